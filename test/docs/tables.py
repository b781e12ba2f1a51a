"""docs/lang.md names every builtin, attribute, schedule key and word."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
page = (root / "docs/lang.md").read_text()
words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", page))
bad = 0
for table, row in [("builtins", "BUILTIN"), ("attributes", "ATTR"),
                   ("schedule", "KEY")]:
    text = (root / f"frontend/{table}.def").read_text()
    for name in re.findall(rf"^{row}\((\w+),", text, re.M):
        if name not in words:
            bad += 1
            print(f"docs/lang.md does not mention {name} of {table}.def")
sys.exit(bad != 0)
