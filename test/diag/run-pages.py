"""Runs the samples of docs/diag/*.md: the block under `## Fails` must give the
page's code, the one under `## Works` no error. A block marked `attn` is given
to COMMAND, one marked `tir [FLAGS]` to attn-opt with these flags; others are
not run. Usage: run-pages.py SOURCE_ROOT SCRATCH_DIR COMMAND..."""
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


def diagnostics(name, kind, flags, text):
    """(severity, code) of every diagnostic of the sample."""
    path = scratch / (name + "." + kind)
    path.write_text(text)
    tool = command if kind == "attn" else ["attn-opt"]
    done = subprocess.run(tool + [str(path)] + flags, capture_output=True,
                          text=True)
    if done.returncode not in (0, 1):
        problems.append(f"{name}: exit code {done.returncode}")
    return re.findall(r"^(\w+)\[(A\d+)\]", done.stderr, re.M)


def sample(page, heading):
    """Whether the section is there; kind, flags and text of its block."""
    part = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    if not part:
        return False, None
    block = re.search(r"^```(attn|tir)([^\n]*)\n(.*?)^```$", part[1],
                      re.M | re.S)
    if not block or (block[1] == "tir" and not shutil.which("attn-opt")):
        return True, None
    return True, (block[1], block[2].split(), block[3])


for path in sorted((root / "docs/diag").glob("A*.md")):
    code, page = path.stem, path.read_text()
    if code not in rows or not page.startswith(f"# {code} {rows[code]}\n"):
        problems.append(f"{code}: the first line is not '# CODE name' of diag.def")
    for heading, fails in (("Why", None), ("Fails", True), ("Works", False)):
        there, block = sample(page, heading)
        if not there:
            problems.append(f"{code}: no section '## {heading}'")
        if fails is None or not block:
            continue
        got = diagnostics(f"{code}-{heading.lower()}", *block)
        if fails and code not in [c for _, c in got]:
            problems.append(f"{code}: the failing sample gives {got}")
        bad = [c for s, c in got if s == "error" or c == code]
        if not fails and bad:
            problems.append(f"{code}: the working sample gives {bad}")

for code in sorted(rows):
    if code < "A0600" and not (root / f"docs/diag/{code}.md").exists():
        problems.append(f"{code}: no page")
print("\n".join(problems) or "all pages hold")
sys.exit(bool(problems))
