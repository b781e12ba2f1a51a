"""Runs the samples of docs/diag/*.md: the block under `## Fails` must give the
page's code, the one under `## Works` no error. Blocks that are not marked
`attn` are not run. Usage: run-pages.py SOURCE_ROOT SCRATCH_DIR COMMAND..."""
import json
import pathlib
import re
import subprocess
import sys

root, scratch = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
command = sys.argv[3:]
scratch.mkdir(parents=True, exist_ok=True)
rows = dict(re.findall(r'^DIAG\("(A\d+)", (\w+),',
                       (root / "ir/diag.def").read_text(), re.M))
problems = []


def diagnostics(name, text):
    """(code, severity) of every diagnostic of the sample."""
    path = scratch / (name + ".attn")
    path.write_text(text)
    done = subprocess.run(command + [str(path), "--error-format=json"],
                          capture_output=True, text=True)
    if done.returncode not in (0, 1):
        problems.append(f"{name}: exit code {done.returncode}")
    lines = [json.loads(s) for s in done.stderr.splitlines() if s[:1] == "{"]
    return [(d["code"], d["severity"]) for d in lines]


def sample(page, heading):
    part = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    if not part:
        return False, None
    block = re.search(r"^```attn\n(.*?)^```$", part[1], re.M | re.S)
    return True, block and block[1]


for path in sorted((root / "docs/diag").glob("A*.md")):
    code, page = path.stem, path.read_text()
    if code not in rows or not page.startswith(f"# {code} {rows[code]}\n"):
        problems.append(f"{code}: the first line is not '# CODE name' of diag.def")
    for heading, fails in (("Why", None), ("Fails", True), ("Works", False)):
        there, text = sample(page, heading)
        if not there:
            problems.append(f"{code}: no section '## {heading}'")
        if fails is None or not text:
            continue
        got = diagnostics(f"{code}-{heading.lower()}", text)
        if fails and code not in [c for c, _ in got]:
            problems.append(f"{code}: the failing sample gives {got}")
        bad = [c for c, s in got if s == "error" or c == code]
        if not fails and bad:
            problems.append(f"{code}: the working sample gives {bad}")

for code in sorted(rows):
    if code < "A0100" and not (root / f"docs/diag/{code}.md").exists():
        problems.append(f"{code}: no page")
print("\n".join(problems) or "all pages hold")
sys.exit(bool(problems))
