"""What tools/build_vsix.py says of bad manifests; and what is packed is XML."""
import json
import pathlib
import sys
import xml.dom.minidom

top, packed = map(pathlib.Path, sys.argv[1:])
sys.path.insert(0, str(top / "tools"))
import build_vsix  # noqa: E402

for name in ("extension.vsixmanifest", "[Content_Types].xml"):
    xml.dom.minidom.parse(str(packed / name))
good = json.loads((packed / "extension/package.json").read_text())
assert good["repository"]["url"] == "https://example.org/attnc"
icon = packed / "extension/icon.png"
for change in ({"icon": ""}, {"name": "A B"}, {"version": "9.9"},
               {"engines": {"vscode": "1"}}, {"categories": ["Toys"]},
               {"dependencies": {"x": "1"}}, {"main": "./gone.js"}):
    print(*build_vsix.problems({**good, **change}))
data = icon.read_bytes()
icon.write_bytes(data[:16] + bytes(8) + data[24:])
print(*build_vsix.problems(good, packed / "extension"))
icon.write_bytes(data)
print(*build_vsix.problems(good, packed / "extension"), "fine")
