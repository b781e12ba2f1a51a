#!/usr/bin/env python3
"""Builds the documentation as a site: the pages of docs/ and the README, by Sphinx
and MyST.

    tools/build_site.py [-o build/site]

Needs Debian's python3-sphinx and python3-myst-parser; no network. A page that is
not rendered cleanly is an error. Links to sources become text; programs have the
colours of the editors' grammar."""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
GRAMMAR = TOP / "tools/editors/vscode/syntaxes/attn.tmLanguage.json"
# Parts of the site, in their order, by patterns of pages.
PARTS = (
    ("Using attnc", ("docs/lang.md", "docs/attnc.md", "docs/gradients.md",
                     "docs/embedding.md", "docs/several-gpus.md",
                     "docs/editors.md")),
    ("Coming from", ("docs/from-*.md",)),
    ("Measured", ("docs/performance.md", "docs/lab/*.md")),
    ("The compiler", ("docs/tour.md", "docs/*.md", "docs/gpu/*.md",
                      "*/README.md", "CONTRIBUTING.md")),
    ("Changes", ("CHANGELOG.md",)),
    ("Diagnostics", ("docs/diag/*.md",)),
)
CONF = """\
import sys
sys.path.insert(0, {here!r})
import attn_lexer
project, author, version = "attnc", "attnc", {version!r}
release = version
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme, html_title = "alabaster", "attnc " + version
html_theme_options = {{"description": "attention and recurrences, compiled",
                      "fixed_sidebar": True, "page_width": "1100px"}}
html_extra_path, root_doc = ["index.html"], "README"
html_copy_source = html_show_sourcelink = False
html_static_path, html_css_files = ["_static"], ["site.css"]
templates_path, html_context = ["_templates"], {{"parts": {parts!r}}}
html_sidebars = {{"**": ["about.html", "parts.html", "relations.html",
                        "searchbox.html"]}}

def setup(app):
    app.add_lexer("attn", attn_lexer.AttnLexer)
    app.add_lexer("tir", attn_lexer.TextLexer)  # IR as text
"""
CSS = """\
div.body { max-width: 60em } div.highlight pre { overflow-x: auto }
table.docutils td, table.docutils th { vertical-align: top }
"""
# The parts of the site beside each page. Sphinx would make them of all headings
# of all pages, for each page again: more than half of the time.
SIDEBAR = """\
{% for part, pages in parts %}
<p class="caption" role="heading"><span class="caption-text">{{ part }}</span></p>
<ul>
{% for name, title in pages %}
<li class="toctree-l1{{ " current" if name == pagename }}"><a class="reference
internal" href="{{ pathto(name) }}">{{ title|e }}</a></li>
{% endfor %}
</ul>
{% endfor %}
"""
FIRST = pathlib.Path("README.md")
TREE = """
```{{toctree}}
:hidden:
:maxdepth: 1
:caption: {part}

{names}
```
"""
# The editors' grammar as a lexer: names of scopes to Pygments' tokens.
LEXER = """\
import json
from pygments.lexer import RegexLexer
from pygments.lexers import TextLexer
from pygments.token import (Comment, Keyword, Name, Number, Operator, String,
                            Text)

TOKENS = (("comment", Comment), ("constant.numeric", Number),
          ("constant", Name.Constant), ("storage.type", Keyword.Type),
          ("keyword.operator", Operator), ("keyword", Keyword),
          ("storage", Keyword), ("string", String),
          ("entity.name.function", Name.Function),
          ("support.function", Name.Builtin), ("support", Name.Builtin),
          ("entity", Name.Entity), ("variable", Name.Variable))

with open({grammar!r}) as f:
    grammar = json.load(f)


def token(scope):
    return next((t for s, t in TOKENS if scope.startswith(s)), Text)


def groups(captures):
    def split(lexer, m):
        at = m.start()
        for i in sorted(captures, key=int):
            start, end = m.span(int(i))
            if start > at:
                yield at, Text, m.string[at:start]
            yield start, token(captures[i]["name"]), m.string[start:end]
            at = end
        if at < m.end():
            yield at, Text, m.string[at:m.end()]
    return split


def rules(rule):
    if "include" in rule:
        yield from rules(grammar["repository"][rule["include"][1:]])
    elif "patterns" in rule:
        for r in rule["patterns"]:
            yield from rules(r)
    elif "captures" in rule:
        yield rule["match"], groups(rule["captures"])
    else:
        yield rule["match"], token(rule["name"])


class AttnLexer(RegexLexer):
    name, aliases, filenames = "attn", ["attn"], ["*.attn"]
    tokens = {{"root": [*rules(grammar), (r"\\s+", Text), (r"\\w+", Name),
                       (r".", Text)]}}
"""


def pages():
    """(part, page) without repetition."""
    seen = {TOP / FIRST}
    for part, patterns in PARTS:
        for pattern in patterns:
            for p in sorted(TOP.glob(pattern)):
                if p not in seen:
                    seen.add(p)
                    yield part, p.relative_to(TOP)


def title(page):
    """Its first heading, without marks."""
    return re.search(r"^# (.*)", (TOP / page).read_text(), re.M)[1].replace("`", "")


def links(page, text, have):
    """Links to what the site has not become text."""
    def link(m):
        target = m[2].partition("#")[0]
        if not target or re.match(r"\w+:", target):
            return m[0]
        at = os.path.normpath(os.path.join(page.parent, target))
        if at + "/README.md" in have:
            return f"[{m[1]}]({os.path.join(target, 'README.md')})"
        return m[0] if at in have else m[1]
    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", link, text)


def write(folder, version):
    listed = list(pages())
    have = {str(p) for _, p in listed} | {"README.md"}
    pictures = [p.relative_to(TOP) for p in TOP.glob("docs/**/*.svg")]
    have |= {str(p) for p in pictures}
    for p in pictures:
        (folder / p).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / p, folder / p)
    trees = {}
    for part, p in listed:
        trees.setdefault(part, []).append((str(p)[:-3], title(p)))
    for p in [FIRST] + [p for _, p in listed]:
        text = links(p, (TOP / p).read_text(), have)
        if p == FIRST:
            text += "".join(TREE.format(part=part, names="\n".join(n for n, _ in names))
                            for part, names in trees.items())
        (folder / p).parent.mkdir(parents=True, exist_ok=True)
        (folder / p).write_text(text)
    (folder / "index.html").write_text(
        '<meta http-equiv="refresh" content="0; url=README.html">\n')
    (folder / "conf.py").write_text(CONF.format(
        here=str(folder), version=version, parts=list(trees.items())))
    (folder / "attn_lexer.py").write_text(LEXER.format(grammar=str(GRAMMAR)))
    (folder / "_templates").mkdir()
    (folder / "_templates/parts.html").write_text(SIDEBAR)
    (folder / "_static").mkdir()
    (folder / "_static/site.css").write_text(CSS)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("-o", "--output", default=str(TOP / "build/site"))
    a = ap.parse_args()
    try:
        import myst_parser  # noqa: F401
        import sphinx  # noqa: F401
    except ImportError as e:
        sys.exit(f"build_site.py: {e}; the packages are python3-sphinx and "
                 "python3-myst-parser")
    version = re.search(r"project\(\w+ VERSION ([\d.]+)",
                        (TOP / "CMakeLists.txt").read_text())[1]
    with tempfile.TemporaryDirectory() as folder:
        write(pathlib.Path(folder), version)
        done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W",
                               "--keep-going", "-b", "html", folder, a.output])
    if done.returncode:
        sys.exit(done.returncode)
    n = len(list(pathlib.Path(a.output).rglob("*.html")))
    print(f"{n} pages in {a.output}")


if __name__ == "__main__":
    main()
