#!/usr/bin/env python3
"""compute-sanitizer over a small case of every program of the library.

    tools/bench/gpu/check.py --prep DIR --dtypes bf16     # here
    python3 sanitize.py DIR [--tools memcheck,racecheck] [--filter TEXT]
                            [--jobs N] [--dims 64,128] [--limit S] [--heads N]

On the machine with the GPU. Takes the shortest shape of each program and head
dim that has more than one tile, of N times as many heads, so that a CTA has
several tasks, and prints what the tools find."""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def size(cmd):
    """The sequences of a case, to choose by: shortest, longest."""
    dims = cmd[cmd.index("--dim") + 1]
    named = [x.split("=") for x in dims.split(",")]
    n = [int(v) for k, v in named if k[0] == "S"]
    return min(n), max(n)


def better(x, y):
    """More than one tile, then short, then as long for queries as for keys."""
    def rank(cmd):
        lo, hi = size(cmd)
        return hi <= 128, hi, -lo
    return rank(x) < rank(y)


def cases(a):
    sys.path.insert(0, a.folder)
    import check
    best = {}
    for cmd in check.commands(argparse.Namespace(filter=a.filter, seed=1)):
        lib, program = cmd[1], cmd[2]
        if lib.rsplit("_", 1)[1].split(".")[0] not in a.dims.split(","):
            continue
        key = lib, program
        if key not in best or better(cmd, best[key]):
            best[key] = cmd
    return [more_heads(cmd, a.heads) for cmd in best.values()]


def more_heads(cmd, n):
    at = cmd.index("--dim") + 1
    dims = re.sub(r"\b(H[qk]?)=(\d+)",
                  lambda m: f"{m[1]}={int(m[2]) * n}", cmd[at])
    return [*cmd[:at], dims, *cmd[at + 1:]]


def once(a, tool, cmd):
    plain = [x for x in cmd if x != "--verify"]
    at = plain.index("--repeat")
    plain = ["compute-sanitizer", "--tool", tool, *plain[:at], *plain[at + 2:]]
    start = time.time()
    try:
        done = subprocess.run(plain, capture_output=True, text=True,
                              cwd=a.folder, timeout=a.limit)
        text, rc = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        return tool, cmd, None, f"not done after {a.limit} s"
    found = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", text)
    clean = rc == 0 and found and re.match(r"0 (errors|hazards)", found[-1])
    lines = [x for x in text.split("\n") if "=====" in x or rc][:12]
    said = "" if clean else "\n     ".join(lines)
    return tool, cmd, bool(clean), f"{time.time() - start:.1f} s {said}"


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("folder")
    ap.add_argument("--tools", default="memcheck,racecheck")
    ap.add_argument("--filter", default="")
    ap.add_argument("--dims", default="64,128")
    ap.add_argument("--heads", type=int, default=64)
    ap.add_argument("--jobs", type=int, default=8)
    ap.add_argument("--limit", type=float, default=60)
    a = ap.parse_args()
    a.folder = os.path.abspath(a.folder)
    todo = [(t, c) for t in a.tools.split(",") for c in cases(a)]
    count = {True: 0, False: 0, None: 0}
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for tool, cmd, ok, text in pool.map(lambda x: once(a, *x), todo):
            count[ok] += 1
            print(f"{'ok' if ok else 'SLOW' if ok is None else 'FOUND'} {tool} "
                  f"{cmd[2]} {cmd[4]} {text}", flush=True)
    print(f"{count[True]} clean, {count[False]} with findings, "
          f"{count[None]} not done")
    return 1 if count[False] else 0


if __name__ == "__main__":
    sys.exit(main())
