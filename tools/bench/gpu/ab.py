#!/usr/bin/env python3
"""Variants of causal softmax beside it, of one build or of several, in one
process. Runs in the folder that prep.py --variants made, on a machine with an
NVIDIA GPU and PyTorch.

    python3 ab.py [--builds NAME=DIR,..] [--filter TEXT,..] [--passes N]
                  [--lengths S,..] [--rest MS] [--ms N] [--json FILE] [--pairs]

DIR is a folder of prep.py; without --builds this one. For each head size and
length all variants of all builds are checked against an f64 reference on some
rows, two launches of each are compared bit by bit; then they are timed in
passes whose order rotates, plain causal softmax among them. Tensors lie
elsewhere in each pass, which can be 5 % by itself. Printed: the median,
TFLOP/s of visible pairs, and the rate over that of plain softmax of the first
build in the same pass, per FLOP of tiles of 128 x 128 that have a visible
pair: median, least and largest. Plain softmax of the other builds, or the same
twice, tells what is noise."""
import argparse
import itertools
import json
import os
import random
import statistics
import sys
import time

import torch

import cases
import run

WRONG = 1e-2


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--builds", default="ours=" + run.HERE)
    ap.add_argument("--filter", default="")
    ap.add_argument("--lengths", default="16384,8192,2048")
    ap.add_argument("--passes", type=int, default=4)
    ap.add_argument("--rest", type=int, default=20)
    ap.add_argument("--ms", type=int, default=30)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--json", default="")
    ap.add_argument("--pairs", action="store_true")
    return ap.parse_args()


def manifests(a):
    """{build: (folder, manifest)}"""
    out = {}
    for text in a.builds.split(","):
        name, folder = text.split("=", 1)
        with open(os.path.join(folder, "manifest.json")) as f:
            out[name] = os.path.abspath(folder), json.load(f)
    return out


def wanted(a):
    """Groups of one head size and length, plain softmax first in each."""
    all_of = cases.variants([int(s) for s in a.lengths.split(",")])
    for _, group in itertools.groupby(all_of, lambda c: (c.D, c.S)):
        group = list(group)
        keep = [c for c in group if any(t in c.name for t in a.filter.split(","))]
        if keep:
            yield [c for c in group if c in keep or c.family == "plain"]


def inputs(group, dev, seed):
    """All of a group read the same Q, K and V."""
    m = {}
    for c in group:
        m = {**run.tensors(c, dev, seed), **m}
    return m


def begin(c, build):
    return {"name": c.name, "family": c.family, "build": build, "D": c.D,
            "S": c.S, "flop": c.flop(), "touched": c.touched(),
            "passes_ms": []}


def load(builds, group, rows, m, dev):
    """[(index, callable)] of the rows that have a library."""
    out = []
    for i, (c, (folder, manifest)) in enumerate(
            itertools.product(group, builds.values())):
        try:
            out.append((i, run.Ours(manifest, c, m, dev, folder)))
        except Exception as e:
            rows[i]["failed"] = run.first_line(e)
    return out


def check(a, builds, group, rows, todo, m, dev):
    refs = [run.Reference(c, m, a.seed) for c in group]
    for i, fn in todo:
        ref = refs[i // len(builds)]
        rows[i]["error"], rows[i]["repeats"] = run.check_ours(fn, ref, dev)


def timed_pass(a, rows, todo, p, dev):
    k = p % len(todo)
    for i, fn in todo[k:] + todo[:k]:
        time.sleep(a.rest * 1e-3)
        rows[i]["passes_ms"].append(run.median_ms(fn, dev, a.ms))


ROUNDS = 6      # of all builds, on the same tensors


def launches_ms(fn, n):
    """A launch, of n one behind the other."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(n):
        fn()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / n


def burst_ms(fn, ms):
    return launches_ms(fn, max(3, int(ms / launches_ms(fn, 2))))


def paired_pass(a, rows, todo, order):
    """Each variant's builds next to each other."""
    per = itertools.groupby(todo, lambda t: rows[t[0]]["name"])
    for _, mine in [(k, list(g)) for k, g in per]:
        for _ in range(ROUNDS):
            for i, fn in order.sample(mine, len(mine)):
                time.sleep(a.rest * 1e-3)
                rows[i]["passes_ms"].append(burst_ms(fn, a.ms))


def compared(rows):
    """Adds the time over that of the variant's first build."""
    first = {}
    for r in rows:
        base = first.setdefault(r["name"], r)
        if not r["passes_ms"] or not base["passes_ms"]:
            continue
        r["ms"] = statistics.median(r["passes_ms"])
        r["over"] = statistics.quantiles(
            [x / y for x, y in zip(r["passes_ms"], base["passes_ms"])], n=4)
    return rows


def pair_line(row):
    at = f"d{row['D']} s{row['S']} {row['family']} {row['build']}"
    if "over" not in row:
        return f"{at}: {row.get('failed', 'no first build')}"
    low, mid, high = row["over"]
    return (f"{at}: {row['ms']:.4f} ms, {mid:.4f} of the first build's "
            f"({low:.4f} to {high:.4f}), error {row['error']:.1e}"
            f"{' WRONG' if wrong(row) else ''}")


def rated(rows):
    """Adds rates; the first row is plain softmax's."""
    plain = rows[0]
    for r in rows:
        if not r["passes_ms"]:
            continue
        r["ms"] = statistics.median(r["passes_ms"])
        r["tflops"] = r["flop"] / r["ms"] * 1e-9
        r["ratios"] = [r["touched"] / plain["touched"] * b / a for a, b
                       in zip(r["passes_ms"], plain["passes_ms"])] or [0]
    return rows


def wrong(row):
    return "failed" in row or not row["error"] < WRONG or not row["repeats"]


def line(row):
    at = f"d{row['D']} s{row['S']} {row['family']} {row['build']}"
    if "failed" in row:
        return f"{at}: {row['failed']}"
    bad = " WRONG" if wrong(row) else ""
    x = row["ratios"]
    return (f"{at}: {row['ms']:.4f} ms, {row['tflops']:.0f} TFLOP/s, to plain "
            f"{statistics.median(x):.3f} ({min(x):.3f} to {max(x):.3f}), "
            f"error {row['error']:.1e}{bad}")


def run_group(a, builds, group, dev):
    rows = [begin(c, build) for c in group for build in builds]
    places = random.Random(a.seed)
    for p in range(a.passes):
        gap = torch.empty(places.randrange(1 << 26), device=dev,
                          dtype=torch.uint8)
        m = inputs(group, dev, a.seed)
        todo = load(builds, group, rows, m, dev)
        if p == 0:
            check(a, builds, group, rows, todo, m, dev)
        if todo and a.pairs:
            paired_pass(a, rows, todo, places)
        elif todo:
            timed_pass(a, rows, todo, p, dev)
        del gap
    return compared(rows) if a.pairs else rated(rows)


def main():
    a = options()
    dev = torch.device("cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    builds, rows = manifests(a), []
    for group in wanted(a):
        done = run_group(a, builds, group, dev)
        print(*map(pair_line if a.pairs else line, done), sep="\n", flush=True)
        rows += done
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f, indent=1)
    bad = sum(map(wrong, rows))
    print(f"{len(rows)} measured, {bad} wrong or failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
