"""Gates on the sources: who may include what, sizes, widths of pages, and no
hidden state.
Usage: check-style.py SOURCE_ROOT BUILD_ROOT"""
import pathlib
import re
import subprocess
import sys

root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
problems = []

# Folder -> prefixes of the quoted and llvm-c includes it may use.
MAY = {
    "ir": ["ir/"],
    "frontend": ["frontend/", "ir/"],
    "passes": ["passes/", "ir/"],
    "codegen": ["codegen/", "ir/", "runtime/attn_abi.h", "llvm-c/"],
    "runtime": ["runtime/", "attn"],
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
        if not system and not inc.startswith(tuple(MAY[folder])):
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


# The lazily made default context of the runtime.
ALLOWED_STATE = {"shared"}

for folder in ["ir", "frontend", "passes", "codegen", "runtime", "tools"]:
    for path in sorted((root / folder).rglob("*.[chly]")):
        check_file(folder, path)
for folder in ["docs", "passes", "tools"]:
    for path in sorted((root / folder).rglob("*.md")):
        check_page(path)
check_page(root / "README.md")
for name in ["ir", "frontend", "passes", "codegen", "attn", "plan", "ls"]:
    lib = build / f"lib/lib{name}.a"
    if lib.exists():
        check_state(lib)
print("\n".join(problems) or "in style")
sys.exit(bool(problems))
