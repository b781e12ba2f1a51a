"""passes/README.md has a row for each pass of passes.def, with the targets of
pipeline.def, and names each in its picture. Usage: passes.py SOURCE_ROOT"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
page = (root / "passes/README.md").read_text()
UNSEEN = {"cse", "dce"}  # behind most others: not in the picture

names = re.findall(r"^PASS\((\w+),", (root / "passes/passes.def").read_text(),
                   re.M)
runs = {name: ["", "", "", ""] for name in names}
for row in re.findall(r"^RUN\(([^)]*)\)",
                      (root / "passes/pipeline.def").read_text(), re.M):
    _, name, *targets = [cell.strip() for cell in row.split(",")]
    runs[name] = [old or new.replace("x", ".")
                  for old, new in zip(runs[name], targets)]

picture = " ".join(re.findall(r"^    .*$", page, re.M))
rows = {}
for line in re.findall(r"^\| `.*$", page, re.M):
    cells = [cell.strip() for cell in line.strip("| \n").split(" |")]
    if len(cells) == 7:
        rows[cells[0].strip("`")] = cells[2:6]

problems = [f"{name} has no pass" for name in rows if name not in runs]
for name, targets in runs.items():
    if rows.get(name) != targets:
        problems.append(f"{name}: targets {rows.get(name)}, not {targets}")
    if name not in UNSEEN and not re.search(rf"\b{name}\b", picture):
        problems.append(f"{name} is not in the picture")
print("\n".join(problems) or f"{len(rows)} passes are told")
sys.exit(bool(problems) or not rows)
