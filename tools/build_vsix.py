#!/usr/bin/env python3
"""Packs tools/editors/vscode into a .vsix, which `code --install-extension`
takes. Needs Python only, no network.

    tools/build_vsix.py [-o DIR] [--repository URL]

The manifest is looked through first: fields, files that it names, the icon, and
that its version is the compiler's. --repository: what the manifest says of it;
default is git's `origin`, where that is on the web. The same input gives the
same bytes."""
import argparse
import json
import pathlib
import re
import struct
import subprocess
import sys
import zipfile
from xml.sax.saxutils import escape

TOP = pathlib.Path(__file__).resolve().parent.parent
EXTENSION = TOP / "tools/editors/vscode"
FILES = ("package.json", "extension.js", "client.js", "features.js",
         "language-configuration.json", "syntaxes/attn.tmLanguage.json",
         "README.md", "icon.png")
CATEGORIES = {"AI", "Azure", "Chat", "Data Science", "Debuggers",
              "Education", "Extension Packs", "Formatters", "Keymaps",
              "Language Packs", "Linters", "Machine Learning", "Notebooks",
              "Other", "Programming Languages", "SCM Providers", "Snippets",
              "Testing", "Themes", "Visualization"}
TYPES = {"json": "application/json", "js": "application/javascript",
         "md": "text/markdown", "txt": "text/plain", "png": "image/png",
         "vsixmanifest": "text/xml"}
MANIFEST = """\
<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0"
  xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id="{name}" Version="{version}"
      Publisher="{publisher}"/>
    <DisplayName>{displayName}</DisplayName>
    <Description xml:space="preserve">{description}</Description>
    <Tags>{tags}</Tags>
    <Categories>{categories}</Categories>
    <GalleryFlags>Public</GalleryFlags>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value="{engine}"/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind"
        Value="workspace"/>
{source}    </Properties>
    <License>extension/LICENSE.txt</License>
    <Icon>extension/icon.png</Icon>
  </Metadata>
  <Installation>
    <InstallationTarget Id="Microsoft.VisualStudio.Code"/>
  </Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest"
      Path="extension/package.json" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.Details"
      Path="extension/README.md" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.License"
      Path="extension/LICENSE.txt" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Icons.Default"
      Path="extension/icon.png" Addressable="true"/>
  </Assets>
</PackageManifest>
"""


def compiler_version():
    text = (TOP / "CMakeLists.txt").read_text()
    return re.search(r"project\(\w+ VERSION ([\d.]+)", text)[1]


def named_files(m):
    """Files that the manifest names."""
    yield m["main"].removeprefix("./")
    yield m["icon"]
    for l in m["contributes"]["languages"]:
        yield l["configuration"].removeprefix("./")
    for g in m["contributes"]["grammars"]:
        yield g["path"].removeprefix("./")


def problems(m, root=EXTENSION):
    """What is wrong with a manifest, as texts."""
    for field in ("name", "displayName", "description", "publisher", "license",
                  "version", "engines", "categories", "main", "icon",
                  "contributes"):
        if not m.get(field):
            yield f"no {field}"
            return
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", m["name"]):
        yield f"name {m['name']}: lower case, digits and - only"
    if m["version"] != compiler_version():
        yield f"version {m['version']}, the compiler is {compiler_version()}"
    if not re.fullmatch(r"\^\d+\.\d+\.\d+", m["engines"].get("vscode", "")):
        yield "engines.vscode is no ^X.Y.Z"
    for c in sorted(set(m["categories"]) - CATEGORIES):
        yield f"category {c} is none of VS Code's"
    if m.get("dependencies"):
        yield "dependencies: nothing is fetched, so nothing may be needed"
    for name in named_files(m):
        if name not in FILES or not (root / name).is_file():
            yield f"{name} is named, but not there"
            return
    data = (root / m["icon"]).read_bytes()
    if data[:8] != b"\x89PNG\r\n\x1a\n" or min(
            struct.unpack(">II", data[16:24])) < 128:
        yield "the icon is no PNG of 128 x 128 or more"


def repository(given):
    if given:
        return given
    done = subprocess.run(["git", "-C", str(TOP), "remote", "get-url",
                           "origin"], capture_output=True, text=True)
    url = done.stdout.strip()
    return url if url.startswith("https://") and "@" not in url else None


def manifest_text(m, url):
    link = "" if not url else "".join(
        f'      <Property Id="Microsoft.VisualStudio.Services.Links.{n}"\n'
        f'        Value={json.dumps(escape(url))}/>\n'
        for n in ("Source", "GitHub" if "github.com" in url else "Getstarted"))
    values = {n: escape(m[n]) for n in ("name", "version", "publisher",
                                        "displayName", "description")}
    return MANIFEST.format(
        **values, tags=",".join(m.get("keywords", [])), source=link,
        categories=",".join(m["categories"]),
        engine=m["engines"]["vscode"])


def content_types():
    rows = "".join(f'<Default Extension=".{e}" ContentType="{t}"/>'
                   for e, t in TYPES.items())
    return ('<?xml version="1.0" encoding="utf-8"?>\n<Types xmlns="http://'
            'schemas.openxmlformats.org/package/2006/content-types">'
            f"{rows}</Types>\n")


def pack(path, m, url):
    files = {"extension/" + n: (EXTENSION / n).read_bytes() for n in FILES}
    if url:
        m = {**m, "repository": {"type": "git", "url": url}}
    files["extension/package.json"] = (json.dumps(m, indent=2) + "\n").encode()
    files["extension/LICENSE.txt"] = (TOP / "LICENSE").read_bytes()
    files["extension.vsixmanifest"] = manifest_text(m, url).encode()
    files["[Content_Types].xml"] = content_types().encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(info, files[name])


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("-o", "--output", default=".")
    ap.add_argument("--repository", metavar="URL")
    a = ap.parse_args()
    m = json.loads((EXTENSION / "package.json").read_text())
    wrong = list(problems(m))
    if wrong:
        sys.exit("package.json: " + "; ".join(wrong))
    out = pathlib.Path(a.output)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{m['publisher']}.{m['name']}-{m['version']}.vsix"
    pack(path, m, repository(a.repository))
    print(path)


if __name__ == "__main__":
    main()
