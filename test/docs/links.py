"""Links between pages lead somewhere, to a heading too, and no specification
leans on docs/lab: only pages that say where things are may name it.
Usage: links.py SOURCE_ROOT"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
NAME_LAB = {"README.md", "docs/style.md", "docs/tour.md", "docs/performance.md"}
pages = [root / "README.md", root / "passes/README.md",
         *sorted((root / "docs").rglob("*.md"))]


def anchor(heading):
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return words.replace(" ", "-")


def text_of(path):
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)


anchors = {path: {anchor(h) for h in
                  re.findall(r"^#+ (.*)$", path.read_text(), re.M)}
           for path in pages}
problems, count = [], 0
for path in pages:
    name = str(path.relative_to(root))
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(path)):
        if link.startswith(("http:", "https:")):
            continue
        count += 1
        file, _, part = link.partition("#")
        to = (path.parent / file).resolve() if file else path
        if not to.exists():
            problems.append(f"{name}: {link} is no file")
        elif part and part not in anchors.get(to, {part}):
            problems.append(f"{name}: {link} is no heading")
    if not name.startswith("docs/lab/") and name not in NAME_LAB and \
            re.search(r"\blab/", text_of(path)):
        problems.append(f"{name} leans on docs/lab")
print("\n".join(problems) or f"{count} links lead somewhere")
sys.exit(bool(problems) or not count)
