"""Every declaration of the library has a doc comment, and its reference page
shows it. Usage: library-is-documented.py attnc STDLIB"""
import pathlib
import re
import subprocess
import sys

attnc, root = sys.argv[1], pathlib.Path(sys.argv[2])
problems, n = [], 0
for path in sorted(root.rglob("*.attn")):
    page = subprocess.run([attnc, "doc", str(path)], capture_output=True,
                          text=True, check=True).stdout
    head, *parts = re.split(r"^## ", page, flags=re.M)
    if len(head.strip().split("\n")) < 2:
        problems.append(f"{path.name}: says nothing of itself")
    names = re.findall(
        r"^(?:fn|mask|mod|row|attention|recurrent|let) (\w+)",
        path.read_text(), re.M)
    if len(names) != len(parts):
        problems.append(f"{path.name}: {len(parts)} of {len(names)} shown")
    for part in parts:
        title, _, rest = part.partition("\n\n")
        n += 1
        if rest.startswith("```"):
            problems.append(f"{path.name}: {title} has no doc comment")
        if "```attn" not in rest:
            problems.append(f"{path.name}: {title} has no head")
print("\n".join(problems) or f"{n} declarations are documented")
sys.exit(bool(problems))
