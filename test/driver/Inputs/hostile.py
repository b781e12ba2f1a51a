"""Sources that nobody means well with: each is compiled or refused with a
diagnostic, in SECONDS of processor time and MIB of memory. usage: DIR [NAME]"""
import os
import pathlib
import random
import re
import resource
import subprocess
import sys

SECONDS, MIB = 20, 1024
work = pathlib.Path(sys.argv[1])
work.mkdir(parents=True)
os.chdir(work)
many = range(10000)
head = ("attention a<B, S, D: const {64}>(Q: f32[B, S, D]) -> (O: f32[B, S, D])"
        " {\n  index b in B, q in S, k in S;\n")
tail = "  O[b, q] = sum(k: dot(Q[b, q], Q[b, k]) * Q[b, k]);\n}\n"


def doubled(n):
    """A chain of calls that is 2^n operations."""
    fns = "fn g_0(x: f32) -> f32 = x;\n" + "".join(
        f"fn g_{i}(x: f32) -> f32 = g_{i - 1}(x) + g_{i - 1}(x);\n"
        for i in range(1, n))
    return fns + head + f"  O[b, q] = sum(k: g_{n - 1}(1.0) * Q[b, k]);\n}}\n"


def dims(kind, n):
    names = [f"D{i}{kind}" for i in range(n)]
    return ("attention a<" + ", ".join(names) + ">(" + ", ".join(
        f"Q{i}: f32[D{i}]" for i in range(n)) +
        ") -> (O: f32[D0]) { index q in D0; O[q] = Q0[q]; }\n")


rng = random.Random(1)
# The code that it has to give; "": whatever it gives.
cases = {
    "parens": ("A0007", "let x = " + "(" * 100000 + "1" + ")" * 100000 + ";"),
    "signs": ("A0007", "let x = " + "-" * 100000 + "1;"),
    "sums": ("A0007", "let x = " + "1 + " * 100000 + "1;"),
    "ifs": ("A0007", "fn f(x: f32) = " + "if x > 0 then " * 50000 + "1"
            + " else 2" * 50000 + ";"),
    "blocks": ("A0006", head + "{" * 100000),
    "lines": ("A0952", "\n" * 1000000),
    "lets": ("A0952", "".join(f"let x{i} = {i};\n" for i in range(200000))),
    "functions": ("A0952", "fn g_0(x: f32) -> f32 = x;\n" + "".join(
        f"fn g_{i}(x: f32) -> f32 = x + g_{i - 1}(x);\n"
        for i in range(1, 20000))),
    "doubled": ("A0702", doubled(60)),
    "NUL": ("A0003", b"let x = 1;\0let y = 2;\n"),
    "only NUL": ("A0003", b"\0" * 1000000),
    "dims": ("A0240", dims("", 10000)),
    "choices": ("A0240", dims(": const {1, 2, 3, 4, 5, 6, 7, 8}", 12)),
    "values": ("A0240", "attention a<D: const {" + ", ".join(
        map(str, range(1, 100000))) + "}>(Q: f32[D]) -> (O: f32[D]) "
        "{ index q in D; O[q] = Q[q]; }"),
    "axes": ("A0217", "attention a<D>(Q: f32[" + ", ".join(["D"] * 100000)
             + "]) -> (O: f32[D]) { index q in D; O[q] = 1.0; }"),
    "arguments": ("A0230", "let x = max(" + ", ".join(["1"] * 100000) + ");"),
    "unused": ("", head + "".join(f"  let t{i} = {i}.0;\n" for i in many)
               + tail),
    "name": ("A0002", "let " + "x" * 10000000 + " = 1;"),
    "string": ("A0002", 'check "' + "y" * 10000000 + '" { dims B = 1; }'),
    "number": ("A0002", "let x = " + "9" * 1000000 + "e999999999;"),
    "comment": ("A0952", "# " + "z" * 20000000),
    "errors": ("A0006", "let x = ;\n" * 100000),
    "unknown": ("A0100", "".join(f"let x{i} = y{i};\n" for i in range(20000))),
    "not UTF-8": ("A0003", b"let x = \xff\xfe\xed\xa0\x80;\n" * 10000),
    "bytes": ("", bytes(rng.randrange(256) for _ in range(200000))),
    "itself": ("A0107", "import itself { x }\nlet y = x;\n"),
    "circle": ("A0107", "import circle1 { x }\n"),
    "chain": ("A0108", "import chain1 { x }\n"),
    "links": ("A0106", "import round { x }\n"),
    "folder": ("A0106", "import sub { x }\n"),
    "steps": ("", "recurrent r<B, S, D: const {8}>(Q: f32[B, S, D]) -> (O: "
              "f32[B, S, D]) {\n index b in B;\n state M: f32[D] = 0.0;\n"
              " step t in S {\n  repeat i in 100000000 { M = M + Q[b, t]; }\n"
              "  O[b, t] = M;\n }\n}\n"),
}
pathlib.Path("circle1.attn").write_text("import circle { x }\nlet x = 1;\n")
for i in range(1, 3000):
    pathlib.Path(f"chain{i}.attn").write_text(
        f"import chain{i + 1} {{ x }}\nlet y = x;\n")
os.symlink("round.attn", "round.attn")
os.mkdir("sub.attn")
os.symlink("/dev/zero", "endless.attn")
os.mkfifo("pipe.attn")


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def run(name, *args):
    p = subprocess.Popen(["attnc", *args], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, preexec_fn=limits)
    said = p.stderr.read().decode(errors="replace")
    _, status, used = os.wait4(p.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 1, 3), (name, args, code, said[:500])
    assert used.ru_maxrss < MIB << 10, (name, used.ru_maxrss)
    assert len(said) < 200000, (name, len(said))
    return code, said


for name, (want, text) in cases.items():
    file = name.replace(" ", "-") + ".attn"
    if sys.argv[2:] and name not in sys.argv[2:]:
        continue
    pathlib.Path(file).write_bytes(text if isinstance(text, bytes)
                                   else text.encode())
    for args in (["--emit=ast", file], ["fmt", "--check", file],
                 [file, "-o", "o", "--no-cache", "--target", "cpu:x86-64-v3"]):
        code, said = run(name, *args)
    assert not want or f"error[{want}]" in said, (name, want, said[:500])
    assert (code == 0) == ("error[" not in said), (name, said[:500])
    assert code == 0 or re.search(r"^error\[A\d{4}\]: ", said, re.M), said
code, said = run("endless", "--emit=ast", "endless.attn")
assert code and "A0002" in said, said
print(len(cases), "sources")
