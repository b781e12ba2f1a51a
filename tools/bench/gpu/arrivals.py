#!/usr/bin/env python3
"""Looks in machine code for loads of shared memory that an arrival at a barrier
does not wait for.

    tools/bench/gpu/arrivals.py [--nvdisasm PATH] FILE ..

A warp that has read a slot gives it back by an mbarrier.arrive, behind which
TMA writes it. ptxas 13 lets the arrival wait for no load that was issued in
front of it, and what TMA writes overtakes such loads (docs/gpu/ptxas.md).
This tells where an arrival comes while loads are in flight: what it gives back
may be something else. Loads of what lies behind a kernel's barriers are left
out, nobody copies there.

FILE holds cubins (cubin, container, object, library), or is a listing (.sass)
of `nvdisasm -c -hex`: what an instruction waits for is in its second word, as
is the scoreboard of a load (bits 52 to 57, 46 to 48). Of the ways to an arrival
the one without a jump is looked at. Exit code: 1 if something was found."""
import argparse
import re
import subprocess
import sys
import tempfile

import hazards

FIRST = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*/\* 0x[0-9a-f]{16} \*/")
SECOND = re.compile(r"\s+/\* 0x([0-9a-f]{16}) \*/")
LOAD = re.compile(r"(@\S+ )?(LDS|LDSM)\b")
ARRIVAL = re.compile(r"(@\S+ )?SYNCS\.ARRIVE")
LEAVES = re.compile(r"(BRA|EXIT|RET|JMP)\b")
FENCE = re.compile(r"FENCE\.VIEW\.ASYNC")
OFFSET = re.compile(r"\[.*?(?:\+|\[)(0x[0-9a-f]+)\]")
NONE = 7                     # no scoreboard


def instructions(listing):
    """(kernel, address, text, second word)."""
    name = first = ""
    for line in listing.split("\n"):
        if ".section" in line:
            name = line.split(",")[0].split(".text.")[-1]
            first = ""
        if m := FIRST.match(line):
            first = m
        elif first and (m := SECOND.match(line)):
            yield name, first[1], " ".join(first[2].split()), int(m[1], 16)
            first = ""


def offset(text):
    m = OFFSET.search(text)
    return int(m[1], 16) if m else 0


def last_barriers(code):
    """Of each kernel the last of its shared memory that is a barrier's."""
    last = {}
    for name, _, text, _ in code:
        if "SYNCS." in text:
            last[name] = max(last.get(name, 0), offset(text))
    return last


def in_flight(listing):
    """Arrivals, and the loads that are in flight then."""
    code, flying = list(instructions(listing)), {}
    last = last_barriers(code)
    for name, at, text, word in code:
        waits = word >> 52 & 0x3f
        flying = {b: x for b, x in flying.items() if not waits >> b & 1}
        if ARRIVAL.match(text) and flying:
            yield name, at, text, [x for loads in flying.values() for x in loads]
        if LOAD.match(text) and word >> 46 & 7 != NONE and \
                offset(text) <= last.get(name, 0):
            flying.setdefault(word >> 46 & 7, []).append((at, text))
        if LEAVES.match(text) or FENCE.match(text):
            flying = {}


def listings(a, path):
    if path.endswith(".sass"):
        with open(path) as f:
            yield f.read()
        return
    with open(path, "rb") as f:
        data = f.read()
    for image in hazards.cubins(data):
        with tempfile.NamedTemporaryFile() as f:
            f.write(image)
            f.flush()
            yield subprocess.run([a.nvdisasm, "-c", "-hex", f.name], check=True,
                                 capture_output=True, text=True).stdout


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--nvdisasm", default="nvdisasm")
    ap.add_argument("files", nargs="+")
    a = ap.parse_args()
    n = 0
    for path in a.files:
        for listing in listings(a, path):
            for name, at, text, loads in in_flight(listing):
                n += 1
                first, last = loads[0], loads[-1]
                more = f" .. {last[0]}: {last[1]}" if len(loads) > 1 else ""
                print(f"{path}: {name}: {at}: {text}: {len(loads)} loads in "
                      f"flight: {first[0]}: {first[1]}{more}", flush=True)
    print(f"{n} arrivals that wait for no load")
    return 1 if n else 0


if __name__ == "__main__":
    sys.exit(main())
