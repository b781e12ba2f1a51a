#!/usr/bin/env python3
"""Builds a gallery of the library's programs as one page: of each its text, the
picture of its masks by tiles with the roofline, and the derived form; then what
variants were measured at, beside plain softmax.

    tools/build_gallery.py [-o build/gallery] [--attnc PATH] [--filter TEXT]

Pictures and forms are those of `attnc explain`; no network, no packages."""
import argparse
import csv
import html
import pathlib
import re
import subprocess

TOP = pathlib.Path(__file__).resolve().parent.parent
HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Gallery of attnc</title>
<style>
body { font: 16px sans-serif; max-width: 60em; margin: 2em auto; }
pre { background: #f6f8fa; padding: 0.6em; overflow-x: auto; font-size: 13px; }
img { max-width: 100%; border: 1px solid #d0d7de; }
td, th { text-align: left; padding: 0.1em 0.8em; }
</style>
<h1>Gallery</h1>
<p>Programs of the library. Nobody told the compiler their streaming forms or
which keys they skip: both are derived. Pictures have queries downwards and keys
to the right.</p>
"""


def programs(text):
    """(name, its words, its text) of each program of a file."""
    for m in re.finditer(
            r"((?:^##[^\n]*\n)*)((?:^@[^\n]*\n)*^(?:attention|recurrent) (\w+)"
            r".*?^\}\n)", text, re.M | re.S):
        yield m[3], re.sub(r"^## ?", "", m[1], flags=re.M).strip(), m[2]


def entry(attnc, file, name, words, text, folder):
    picture = f"{file.stem}-{name}.svg"
    made = subprocess.run(
        [attnc, "explain", file, "--fn", name, f"--svg={folder / picture}"],
        capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"{file.name}, {name}:\n{made.stderr}")
    # Of this machine is what follows.
    form = [x for x in made.stdout.splitlines()
            if re.match(r"\w|  - |  (keys|work|memory|tiles) ", x)]
    return f"""<h2 id="{file.stem}-{name}">{name}</h2>
<p>{html.escape(words)}</p>
<pre>{html.escape(text)}</pre>
<p><img src="{picture}" alt="masks of {name} by tiles"></p>
<pre>{html.escape(chr(10).join(form))}</pre>
"""


def speed():
    """Variants that were measured, of docs/lab/results.tsv."""
    with open(TOP / "docs/lab/results.tsv") as f:
        rows = [r for r in csv.DictReader(f, delimiter="\t")
                if r["suite"] == "variants"]
    cells = [[r[k] or "" for k in ("program", "card", "shape", "value", "unit",
                                   "ratio")] for r in rows]
    lines = ["<tr>" + "".join(f"<td>{html.escape(c)}" for c in r)
             for r in cells]
    return ("<h2 id=\"speed\">Speed</h2>\n<p>Measured; the ratio is to plain "
            "softmax, for each point that is visible.</p>\n<table>\n<tr><th>"
            "variant<th>machine<th>shape<th>value<th>unit<th>ratio\n"
            + "\n".join(lines) + "\n</table>\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("-o", type=pathlib.Path, default=TOP / "build/gallery")
    ap.add_argument("--attnc", default=TOP / "build/bin/attnc")
    ap.add_argument("--filter", default="")
    a = ap.parse_args()
    a.o.mkdir(parents=True, exist_ok=True)
    made, names = [], []
    for part in ("attention", "recurrent"):
        for file in sorted((TOP / "stdlib" / part).glob("*.attn")):
            for name, words, text in programs(file.read_text()):
                if a.filter in name:
                    names.append((f"{file.stem}-{name}", name))
                    made.append(entry(a.attnc, file, name, words, text, a.o))
    index = ", ".join(f'<a href="#{at}">{n}</a>' for at, n in names)
    (a.o / "index.html").write_text(
        HEAD + f"<p>{index}; <a href=\"#speed\">speed</a></p>\n"
        + "".join(made) + speed() + "</html>\n")
    print(f"{len(names)} programs in {a.o}")


if __name__ == "__main__":
    main()
