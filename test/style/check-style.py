"""Gates on the sources: who may include what, sizes, widths of pages, and no
hidden state.
Usage: check-style.py SOURCE_ROOT BUILD_ROOT"""
import pathlib
import re
import subprocess
import sys

root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
problems = []

# Folder -> beginnings of the quoted and llvm-c includes its files may use; a
# folder in it has its own row or that of the folder above. Arrows go one way:
# what all of a folder share stands at its top or in support, core, math.
IR = ["ir/"]
PASS = ["ir/", "passes/pass.h", "passes/support/"]
CODE = ["ir/", "runtime/attn_abi.h", "llvm-c/", "codegen/cg.h",
        "codegen/codegen.h"]
MAY = {
    "ir/core": ["ir/core/", "ir/diag.def", "ir/dtype.def"],
    "ir": [r"ir/\w+\.", "ir/core/"],
    "ir/text": [r"ir/\w+\.", "ir/core/", "ir/text/"],
    "ir/verify": [r"ir/\w+\.", "ir/core/", "ir/text/", "ir/verify/"],
    "ir/interp": [r"ir/\w+\.", "ir/core/", "ir/interp/"],
    "ir/simt": [r"ir/\w+\.", "ir/core/", "ir/interp/", "ir/simt/"],
    "frontend": ["frontend/", "ir/"],
    "passes": [r"passes/\w+\.", *PASS],
    "passes/support": PASS,
    "passes/opt": PASS,
    "passes/attn": ["passes/attn/", *PASS],
    "passes/stream": ["passes/stream/", *PASS],
    "passes/tile": ["passes/tile/", *PASS],
    "passes/cpu": ["passes/cpu/", *PASS],
    "passes/gpu": ["passes/gpu/", *PASS],
    "passes/hopper": ["passes/hopper/", "passes/gpu/gpu.h", *PASS],
    "codegen": CODE,
    "codegen/math": ["codegen/math/", *CODE],
    "codegen/cpu": ["codegen/cpu/", "codegen/math/", *CODE],
    "codegen/gpu": ["codegen/gpu/", "codegen/math/", *CODE],
    "codegen/nv": ["codegen/nv/", "codegen/gpu/", "codegen/object/tool.h",
                   *CODE],
    "codegen/amd": ["codegen/amd/", "codegen/gpu/", "codegen/object/tool.h",
                    *CODE],
    "codegen/object": ["codegen/object/", *CODE],
    "runtime": ["runtime/", "attn"],
}
# Names that cross files tell where they stand: they begin with a word of their
# folder, or with their file's.
WORDS = {
    "ir": "ir type attr op vmap smem frag",
    "ir/core": "diag out",
    "ir/text": "ir parse op attr level rkind word print",
    "ir/verify": "ir verify",
    "ir/interp": "ir interp",
    "ir/simt": "simt",
    "frontend": "fe ck low ex st ty val de oracle scan scope guess token layout"
                " dim diag span type attn",
    "passes": "pass",
    "passes/support": "",
    "passes/opt": "pass",
    "passes/attn": "pass canon materialize",
    "passes/stream": "pass online chunk",
    "passes/tile": "pass tile",
    "passes/cpu": "pass cpu",
    "passes/gpu": "pass lower prefetch",
    "passes/hopper": "pass hop",
    "codegen": "cg",
    "codegen/math": "cg",
    "codegen/cpu": "cg",
    "codegen/gpu": "gpu cg",
    "codegen/nv": "nv cg",
    "codegen/amd": "amd cg",
    "codegen/object": "cg",
    "tools/plan": "plan drv",
    "tools/attn-ls": "ls js",
    "tools/driver": "drv",
    "tools/driver/compile": "drv",
    "tools/driver/gpu": "drv",
    "tools/driver/run": "drv gen",
}
# Calls that only tools may make: a library neither prints nor ends a process.
BANNED = re.compile(r"(?<![\w>.])(exit|abort|printf|puts|putchar|perror)\s*\(")


def strip(text):
    """Without comments and the contents of strings; lines stay."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m[0])
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text,
                  flags=re.S)


def check_file(folder, path):
    name, text = path.relative_to(root), path.read_text()
    lines = text.split("\n")
    if len(lines) > 1001:
        problems.append(f"{name}: {len(lines) - 1} lines, at most 1000")
    for n, line in enumerate(lines, 1):
        if len(line) > 100 and path.suffix != ".def":
            problems.append(f"{name}:{n}: {len(line)} columns, at most 100")
        if line != line.rstrip() or "\t" in line:
            problems.append(f"{name}:{n}: tab or space at the end")
        if re.search(r'\bfopen\(.*, "[wa]', line):
            problems.append(f"{name}:{n}: files are written by ir/core/outfile.h")
    if folder not in MAY:
        return
    for inc in re.findall(r'^#include ["<]([^">]+/[^">]+|attn\w*\.h)[">]',
                          text, re.M):
        system = inc.startswith(("sys/", "sanitizer/", "linux/", "arpa/"))
        may = MAY.get(str(name.parent), MAY[folder])
        if not system and not re.match("|".join(may), inc):
            problems.append(f"{name}: may not include {inc}")
    for n, line in enumerate(strip(text).split("\n"), 1):
        if m := BANNED.search(line):
            problems.append(f"{name}:{n}: {m[1]}() outside tools/")


PROSE = 120


def check_page(path):
    """Prose of pages is narrow; tables and code are as wide as they must be."""
    code = False
    for n, line in enumerate(path.read_text().split("\n"), 1):
        fence = line.lstrip().startswith("```")
        code ^= fence
        if code or fence or line.startswith(("|", "    ")):
            continue
        if len(line) > PROSE:
            problems.append(f"{path.relative_to(root)}:{n}: {len(line)} "
                            f"columns, at most {PROSE}")
# ---------------------------------------------------------------- numbers
# Numbers that decide stand in cost.def, facts of machines in targets.def. In
# passes/ and tools/driver neither a constant of an enum nor a comparison has a
# decimal number of its own, but for small ones and:
#   MAX in a name          the size of a data structure
#   1 << n, hexadecimal    a flag, or a range of values
FREE = {
    "BOUNDS": "the region of an op `pass` that has bounds",
    "NUMBERS": "values that bounds have for an interval",
    "FAR": "bits of an index that any clamp leaves alone",
    "RELIEF_BITS": "width of a field",
    "RELIEF_FUNCS": "fields of 64 bits",
    "40": "from which softplus is its argument, in f64",
    "100": "exponents of powers of two that have an inverse",
    "PROBE_KEYS": "an identity is tried with so many keys: trust, not time",
    "PROBE_TRIALS": "and so often",
    "STEPS": "samples of a function between its bounds: trust, not time",
}
# Files whose numbers no code that is made depends on: what a tool samples,
# measures or fills in, and formats of files.
TOOL = {"blas.c", "cost.c", "cost.h", "fill.c", "gen.c", "gradient.c", "npy.c",
        "peak.c", "picture.c", "points.c", "rng.c", "verify.c"}
SMALL, COMPARED = 3, 9
AXES = {63, 64}    # a set of axes is a word


def numbers_of(text):
    """Lines and names of numbers in a C file's text without comments."""
    for m in re.finditer(r"\benum\b[^{;()]*\{([^}]*)\}", text):
        for c in re.finditer(r"\b([A-Za-z]\w*)\s*=\s*(\d+)\s*(?=[,}\s]|$)",
                             m[1]):
            if "MAX" not in c[1] and int(c[2]) >= SMALL:
                yield text.count("\n", 0, m.start(1) + c.start()) + 1, c[1]
    constant = r"\bstatic const (?:double|float|u?int\w*) (\w+) = -?([\d.]+);"
    for m in re.finditer(constant, text):
        if float(m[2]) >= SMALL and "." not in m[2]:
            yield text.count("\n", 0, m.start()) + 1, m[1]
    for m in re.finditer(r"(?<![<>-])[<>]=? *(\d+)\b(?![.\w])", text):
        if int(m[1]) >= COMPARED and int(m[1]) not in AXES:
            yield text.count("\n", 0, m.start()) + 1, m[1]


def check_numbers(path):
    if path.name in TOOL:
        return
    for line, name in numbers_of(strip(path.read_text())):
        if name not in FREE:
            problems.append(f"{path.relative_to(root)}:{line}: {name}: a number"
                            " that decides belongs in passes/support/cost.def, a fact"
                            " of machines in ir/targets.def")


# ---------------------------------------------------------------- functions
# A definition begins at column 0, has `) {` behind its parameters, and ends
# with `}` at column 0, as clang-format writes it. A parameter that is a pointer
# to a function is one.
DEFINITION = re.compile(r"^[A-Za-z_][^\n;{}=()]*?(\w+)\(([^;{}]*?)\)\s*\{(.*)$",
                        re.M)
LINES, PARAMS = 60, 6
# An op is a code, operands, attributes, types and counts of them: functions
# that make any op take what it consists of.
MANY = {
    "ir_op": "makes an op of all that it consists of",
    "op_make": "the same without results and regions, in front of another",
    "cpu_op": "ir_op of one result, in the pass lower_cpu",
    "lower_op": "ir_op of one result, in the pass lower_gpu",
}


def parameters(text):
    depth, n = 0, 1
    for c in text:
        depth += (c == "(") - (c == ")")
        n += c == "," and depth == 0
    return 0 if text.strip() in ("", "void") else n


def functions_of(text):
    """Line, name, parameters and lines of the functions that text defines."""
    for m in DEFINITION.finditer(text):
        if m[1].isupper():  # a macro: of a vendor's API, or of vector kernels
            continue
        whole = m[3].rstrip().endswith("}")
        end = m.end() if whole else text.find("\n}", m.end())
        line = text.count("\n", 0, m.start()) + 1
        yield line, m[1], parameters(m[2]), text.count("\n", m.start(), end) + (
            1 if whole else 2)


def check_functions(path):
    name = path.relative_to(root)
    for line, f, params, lines in functions_of(strip(path.read_text())):
        if lines > LINES:
            problems.append(f"{name}:{line}: {f} has {lines} lines, at most "
                            f"{LINES}")
        if params > PARAMS and f not in MANY:
            problems.append(f"{name}:{line}: {f} has {params} parameters, at "
                            f"most {PARAMS}: hold what travels together")


def check_state(library):
    """No symbol in a writable section, relocated constants aside."""
    out = subprocess.run(["objdump", "-t", str(library)], capture_output=True,
                         text=True).stdout
    for line in out.splitlines():
        m = re.match(r"^[0-9a-f]+ (.{7}) (\.data|\.bss|\.tbss|\.tdata|\*COM\*)"
                     r"\t[0-9a-f]+ +(\S.*)$", line)
        if m and "d" not in m[1] and "O" in m[1]:
            if m[3].split()[-1].split(".")[0] not in ALLOWED_STATE:
                problems.append(f"{library.name}: writable global {m[3]}")


def check_names(objects):
    """An object's exported names begin with a word of WORDS, or their file's."""
    out = subprocess.run(["nm", "-A", "-g", "--defined-only", *objects],
                         capture_output=True, text=True).stdout
    place = r"^\S*?([^/\s]+)/CMakeFiles/[\w-]+\.dir/(\S+)\.c\.o:\w+ \w (\S+)$"
    for folder, file, name in re.findall(place, out, re.M):
        source = pathlib.Path(folder, file)
        words = WORDS.get(str(source.parent))
        if words is None or name.startswith("__") or name in ANY_NAME:
            continue
        words = [*words.split(), source.name,
                 source.name.split("_")[0].rstrip("s")]
        if not re.match(r"(%s)(_|$)" % "|".join(map(re.escape, words)), name):
            problems.append(f"{source}.c: exports {name}, which begins with "
                            f"none of: {' '.join(words[:-1])}")


# Functions whose names others prescribe.
ANY_NAME = {"attn_lex"}
# Made by other programs.
GENERATED = "tools/editors/tree-sitter/src"
# The lazily made default context of the runtime.
ALLOWED_STATE = {"shared"}


def sources(folder):
    return [path for path in sorted((root / folder).rglob("*.[chly]"))
            if root / GENERATED not in path.parents]


for folder in ["ir", "frontend", "passes", "codegen", "runtime", "tools"]:
    for path in sources(folder):
        check_file(folder, path)
for folder in ["ir", "frontend", "passes", "codegen", "runtime", "tools",
               "test/unit"]:
    for path in sources(folder):
        check_functions(path)
for folder in ["docs", "passes", "tools"]:
    for path in sorted((root / folder).rglob("*.md")):
        check_page(path)
if (root / "README.md").exists():
    check_page(root / "README.md")
for folder in ["passes", "tools/driver"]:
    for path in sorted((root / folder).rglob("*.[ch]")):
        check_numbers(path)
for name in ["ir", "frontend", "passes", "codegen", "attn", "plan", "ls"]:
    lib = build / f"lib/lib{name}.a"
    if lib.exists():
        check_state(lib)
check_names([obj for folder in ["ir", "frontend", "passes", "codegen", "tools"]
             for obj in sorted((build / folder).rglob("*.c.o"))])
print("\n".join(problems) or "in style")
sys.exit(bool(problems))
