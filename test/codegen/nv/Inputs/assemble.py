"""Assembles every .tir of a folder that is not a test of errors."""
import pathlib
import subprocess
import sys

bad = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.tir")):
    if "RUN: not" in path.read_text():
        continue
    r = subprocess.run(["attn-lower", path, "--emit=info"],
                       capture_output=True, text=True)
    if r.returncode or "C75" in r.stdout or "spilled bytes 0" not in r.stdout:
        bad += 1
        print(path.name, r.stdout, r.stderr)
sys.exit(bad != 0)
