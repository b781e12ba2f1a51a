#!/usr/bin/env python3
"""What the inner loop of an AMD kernel could reach: llvm-mca on its instructions.

    attn-lower x.tir --emit=gcn-asm | mca.py --cpu gfx950 [--bound 0.75] [--serial 0.45]

Of the blocks that branch to themselves and have matrix instructions the one with
the fewest others counts: it has no masks. One unit is 4 clocks, the issue of
a vector instruction. Prints

  bound   share of the time in which matrix units of a SIMD with two waves are
          busy if nothing but throughput limits: matrix / max(matrix, vector + 3 *
          transcendental, scalar, LDS)
  serial  that share for one wave on its own, in llvm-mca's schedule

llvm-mca has no model of waits, bank conflicts and barriers, and takes
transcendental instructions for one unit where hardware needs four; LDS is counted by
bytes, 128 a clock (gfx950: 256). Exit code 1: below what was asked for.
"""
import argparse
import re
import subprocess
import sys

TRANS = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
LDS = {"b64": 8, "b128": 16, "b32": 4, "u16": 2, "b16": 2}


def blocks(text):
    name, body = None, []
    for line in text.splitlines():
        m = re.match(r"(\.LBB\d+_\d+):", line)
        if m:
            if name:
                yield name, body
            name, body = m.group(1), []
        elif name and re.match(r"\s+[a-z]", line):
            body.append(line.split(";")[0].strip())
    if name:
        yield name, body


def inner(text):
    found = []
    for name, body in blocks(text):
        loops = any(re.match(r"s_cbranch_\w+ " + re.escape(name) + "$", x)
                    for x in body)
        if loops and any(re.match("v_(mfma|wmma)", x) for x in body):
            found.append(body)
    return min(found, key=len)


def lds_bytes(body):
    total = 0
    for x in body:
        m = re.match(r"ds_(read|write)(2(?:st64)?)?_(\w+?)(_tr_b16)?\b", x)
        if m:
            size = LDS.get(m.group(3).split("_")[0], 4)
            total += 64 * size * (2 if m.group(2) else 1)
    return total


def resources(body, cpu, mca):
    skip = re.compile(r"s_(cbranch|barrier|waitcnt|endpgm|nop|branch)")
    code = "\n".join(x for x in body if not skip.match(x)) + "\n"
    out = subprocess.run(
        [mca, "-mtriple=amdgcn", "-mcpu=" + cpu, "-iterations=1"], input=code,
        capture_output=True, text=True, check=True).stdout
    names = dict(re.findall(r"^(\[\d+\])\s+- (\w+)$", out, re.M))
    rows = out.split("Resource pressure per iteration:\n")[1].splitlines()
    values = [0.0 if v == "-" else float(v) for v in rows[1].split()]
    used = dict(zip((names[k] for k in re.findall(r"\[\d+\]", rows[0])), values))
    used["cycles"] = float(re.search(r"Total Cycles:\s+(\d+)", out).group(1))
    return used


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cpu", required=True)
    p.add_argument("--bound", type=float, default=0)
    p.add_argument("--serial", type=float, default=0)
    p.add_argument("--mca", default="llvm-mca-22")
    o = p.parse_args()
    body = inner(sys.stdin.read())
    r = resources(body, o.cpu, o.mca)
    trans = sum(bool(TRANS.match(x)) for x in body)
    rate = 256 if o.cpu == "gfx950" else 128
    lds = lds_bytes(body) / rate          # 4 SIMDs share it, a unit is 4 clocks
    xdl, vector = r["HWXDL"], r["HWVALU"] + 3 * trans
    bound = xdl / max(xdl, vector, r["HWSALU"], lds)
    serial = xdl / r["cycles"]
    print(f"{o.cpu}: {len(body)} instructions, matrix {xdl:.0f}, vector "
          f"{r['HWVALU']:.0f} and {trans} transcendental, scalar "
          f"{r['HWSALU']:.0f}, LDS {lds:.0f} units; bound {bound:.2f}, "
          f"serial {serial:.2f}")
    return bound < o.bound or serial < o.serial


if __name__ == "__main__":
    sys.exit(main())
