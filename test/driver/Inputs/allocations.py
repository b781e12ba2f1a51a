"""Allocations that fail in turn: a command ends as it does with enough memory,
or with a word about memory and exit code 1 or 3, and leaves nothing. The first
--each are tried one by one, then about --some of the others.
usage: FAILING.so DIR PROGRAM STDLIB [--each N] [--some N] [--only COMMAND]"""
import argparse
import os
import pathlib
import subprocess

ap = argparse.ArgumentParser()
ap.add_argument("library")
ap.add_argument("work", type=pathlib.Path)
ap.add_argument("program")
ap.add_argument("stdlib", type=pathlib.Path)
ap.add_argument("--each", type=int, default=40)
ap.add_argument("--some", type=int, default=20)
ap.add_argument("--only", default="")
a = ap.parse_args()
library = os.path.abspath(a.library)
a.work.mkdir(parents=True)
os.chdir(a.work)
dims = "B=1,Hq=1,Hk=1,Sq=4,Sk=4,D=16"
count = a.work.with_suffix(".count")
commands = {
    "fmt": ["fmt", "f.attn"],
    "doc": ["doc", a.program, "-o", "f"],
    "check": ["check", a.program, "--filter", "small"],
    "run": ["run", a.program, "--random", "-D", dims, "--out", "O=f"],
    "compile": [a.program, "-o", "f", "--header", "f.h", "--shared",
                "--target", "cpu:x86-64-v3"],
    "explain": ["explain", a.program],
    "ptx": ["--emit=ptx", a.program, "--target", "sm_90a", "-D", "D=16",
            "-o", "f"],
    "bench": ["bench", a.program, "-D", dims, "--runs", "5"],
}
text = pathlib.Path(a.program).read_text() + "let  x=1;\n"


def run(command, at, on):
    for name in os.listdir("."):
        os.unlink(name)
    pathlib.Path("f.attn").write_text(text)
    pathlib.Path("f").write_text("old")
    env = {**os.environ, "LD_PRELOAD": library, "FAIL_AT": str(at),
           "FAIL_ON": str(on), "FAIL_COUNT": str(count), "ATTNC_CACHE": ""}
    r = subprocess.run(["attnc", *map(str, command), "-q"], env=env, text=True,
                       capture_output=True, stdin=subprocess.DEVNULL,
                       timeout=120)
    n = int(count.read_text()) if count.exists() else 0
    count.unlink(missing_ok=True)
    return r, n


def right(r, good):
    """What is wrong with it, or None."""
    if r.returncode == good.returncode:
        return None
    said = r.stderr.lower() + r.stdout.lower()
    if r.returncode not in (1, 3):
        return f"exit code {r.returncode}"
    if not any(w in said for w in ("memory", "no thread")):
        return "nothing about memory"
    if pathlib.Path("f.attn").read_text() not in (text, formatted):
        return "the file was changed"
    if [n for n in os.listdir(".") if n not in ("f", "f.attn", "f.h")]:
        return f"files are left: {os.listdir('.')}"
    return None


bad = tried = 0
for name, command in commands.items():
    if a.only and name != a.only:
        continue
    good, total = run(command, 0, 0)
    formatted = pathlib.Path("f.attn").read_text()
    step = max(1, (total - a.each) // max(1, a.some))
    points = [*range(1, min(a.each, total) + 1),
              *range(a.each + 1, total + 1, step)]
    for at in points:
        for on in (0, 1):
            r, _ = run(command, at, on)
            tried += 1
            wrong = right(r, good)
            if wrong:
                bad += 1
                print(f"{name}, allocation {at} of {total}"
                      f"{' and all behind it' if on else ''}: {wrong}\n"
                      f"{r.stderr[-300:]}")
print(f"{tried} failures of memory, {bad} wrong")
