#!/usr/bin/env python3
"""The tables of docs/performance.md, one a target, made of docs/lab/results.tsv.

    tools/bench/table.py            writes them into the page
    tools/bench/table.py --check    fails if the page has others

The page has a line `<!-- table TARGET -->` where a table begins and a line
`<!-- end -->` behind it. A row of results.tsv is one measured number: target,
suite, card, program, shape, value, unit, what it is compared with, that one's
value or else the ratio of the rates, date, and the commit that recorded it.
Numbers of one program that were measured together share a row of the table.
"""
import csv
import itertools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, DATA = ROOT / "docs/performance.md", ROOT / "docs/lab/results.tsv"
# Units of which less is better, so that a ratio of rates is peer over own.
LESS = {"ms", "us", "rms"}
TOGETHER = ["suite", "card", "program", "unit", "peer", "date", "commit"]
HEAD = ["suite", "program", "shapes", "attnc", "beside", "ratio", "card",
        "recorded"]


def ratio(row):
    """Of the rates, above 1 where attnc is faster; of errors none."""
    if row["ratio"] or not row["peer_value"] or row["unit"] == "rms":
        return row["ratio"]
    own, peer = float(row["value"]), float(row["peer_value"])
    return f"{peer / own if row['unit'] in LESS else own / peer:.2f}"


def joined(values):
    """a; b; c, or nothing if none has one."""
    values = [v or "-" for v in values]
    return "; ".join(values) if any(v != "-" for v in values) else ""


def line(rows):
    one = rows[0]
    beside = joined(r["peer_value"] for r in rows)
    return [one["suite"], one["program"], joined(r["shape"] for r in rows),
            f"{joined(r['value'] for r in rows)} {one['unit']}",
            f"{one['peer']} {beside}".strip(),
            joined(ratio(r) for r in rows), one["card"],
            f"{one['date']}, {one['commit']}"]


def table(rows):
    def same(row):
        return [row[name] for name in TOGETHER]
    lines = [HEAD]
    lines += [line(list(group)) for _, group in itertools.groupby(rows, same)]
    head, *rest = [f"| {' | '.join(cells)} |\n" for cells in lines]
    return head + "|---" * len(HEAD) + "|\n" + "".join(rest)


def page(text, rows):
    def fresh(match):
        of = [r for r in rows if r["target"] == match[1]]
        return f"<!-- table {match[1]} -->\n{table(of)}<!-- end -->"
    return re.sub(r"<!-- table (\S+) -->\n.*?<!-- end -->", fresh, text,
                  flags=re.S)


def main():
    with DATA.open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    old = PAGE.read_text()
    shown = set(re.findall(r"<!-- table (\S+) -->", old))
    for target in {r["target"] for r in rows} - shown:
        sys.exit(f"docs/performance.md has no table of {target}")
    new = page(old, rows)
    if "--check" not in sys.argv:
        PAGE.write_text(new)
    elif old != new:
        sys.exit("docs/performance.md is not made of docs/lab/results.tsv: "
                 "run tools/bench/table.py")


main()
