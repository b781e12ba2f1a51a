"""Runs the samples of docs/diag/*.md: the block under `## Fails` must give the
page's code, the one under `## Works` no error. A block marked `attn` is given
to COMMAND, one marked `attn FLAGS` to attnc, one marked `tir [FLAGS]` to
attn-opt with these flags; `sh` blocks run where test/diag/Inputs and some
arrays are. A page without such a block, and a row of diag.def without a page,
must have its code in another test.
Usage: run-pages.py SOURCE_ROOT SCRATCH_DIR COMMAND..."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

root, scratch = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
command = sys.argv[3:]
scratch.mkdir(parents=True, exist_ok=True)
rows = dict(re.findall(r'^DIAG\("(A\d+)", (\w+),',
                       (root / "ir/diag.def").read_text(), re.M))
problems = []


def shell(name, text):
    """Runs commands of a page where its programs and arrays are."""
    done = subprocess.run(["bash", "-ec", text], cwd=inputs, timeout=60,
                          capture_output=True, text=True,
                          env={**os.environ, "PATH": "/usr/bin:" + path_var})
    if done.returncode not in (0, 1, 2, 3):
        problems.append(f"{name}: exit code {done.returncode}")
    return done.stderr, done.returncode


def diagnostics(name, kind, flags, text):
    """(severity, code) of every diagnostic of the sample."""
    if kind == "sh":
        said, code = shell(name, text)
        failed = [("error", "exit code")] if code else []
        return failed + re.findall(r"^(\w+)\[(A\d+)\]", said, re.M)
    path = scratch / (name + "." + kind)
    path.write_text(text)
    tool = command if kind == "attn" else ["attn-opt"]
    if kind == "attn" and flags:
        tool = ["attnc", "-o", "/dev/null"]
    done = subprocess.run(tool + [str(path)] + flags, capture_output=True,
                          text=True)
    if done.returncode not in (0, 1, 2):
        problems.append(f"{name}: exit code {done.returncode}")
    return re.findall(r"^(\w+)\[(A\d+)\]", done.stderr, re.M)


def sample(page, heading):
    """Whether the section is there; kind, flags and text of its block."""
    part = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    if not part:
        return False, None
    block = re.search(r"^```(attn|tir|sh)([^\n]*)\n(.*?)^```$", part[1],
                      re.M | re.S)
    if not block or not shutil.which("attnc"):
        return True, None
    return True, (block[1], block[2].split(), block[3])


def tested_codes():
    """Codes and names of rows that some test of its own mentions."""
    words = set()
    for kind in "*.attn", "*.tir", "*.test", "*.c", "*.py":
        for path in (root / "test").rglob(kind):
            words |= set(re.findall(r"\bA\d{4}\b|\bDIAG_\w+",
                                    path.read_text()))
    return words


inputs = scratch / "inputs"
shutil.rmtree(inputs, ignore_errors=True)
shutil.copytree(root / "test/diag/Inputs", inputs)
path_var = os.environ["PATH"]
shell("arrays", """python3 -c "
import numpy as n
for name, h, s in ('q', 4, 9), ('k', 2, 12), ('v', 2, 12):
    n.save(name, n.zeros((1, h, s, 64), 'f4'))
n.save('matrix', n.zeros((9, 64), 'f4'))
" """)
tested = tested_codes()

for path in sorted((root / "docs/diag").glob("A*.md")):
    code, page = path.stem, path.read_text()
    if code not in rows or not page.startswith(f"# {code} {rows[code]}\n"):
        problems.append(f"{code}: the first line is not '# CODE name' of diag.def")
    for heading, fails in (("Why", None), ("Fails", True), ("Works", False)):
        there, block = sample(page, heading)
        if not there:
            problems.append(f"{code}: no section '## {heading}'")
        if fails and not block and shutil.which("attnc") and not (
                {code, f"DIAG_{rows.get(code)}"} & tested):
            problems.append(f"{code}: neither a sample that runs nor a test")
        if fails is None or not block:
            continue
        got = diagnostics(f"{code}-{heading.lower()}", *block)
        if fails and code not in [c for _, c in got]:
            problems.append(f"{code}: the failing sample gives {got}")
        bad = [c for s, c in got if s == "error" or c == code]
        if not fails and bad:
            problems.append(f"{code}: the working sample gives {bad}")

for code in sorted(rows):
    if not (root / f"docs/diag/{code}.md").exists():
        problems.append(f"{code}: no page")
print("\n".join(problems) or "all pages hold")
sys.exit(bool(problems))
