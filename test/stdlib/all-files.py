"""Every file of the library checks without a message and is formatted."""
import pathlib
import subprocess
import sys

bad = 0
files = sorted(pathlib.Path(sys.argv[1]).rglob("*.attn"))
for path in files:
    text = path.read_text()
    check = subprocess.run(["attn-parse", "--check", path],
                           capture_output=True, text=True)
    fmt = subprocess.run(["attn-parse", "--fmt", path],
                         capture_output=True, text=True)
    infos = check.stderr.count("\ninfo[") + check.stderr.startswith("info[")
    others = check.stderr.count("[A0") - infos
    if check.returncode or others:
        bad += 1
        print(f"{path}:\n{check.stderr}")
    if fmt.stdout != text:
        bad += 1
        print(f"{path}: not formatted")
    if path.parent.name != "stdlib" and "\ncheck " not in text:
        bad += 1
        print(f"{path}: no check block")
print(f"{len(files)} files, {bad} bad")
sys.exit(bad != 0)
