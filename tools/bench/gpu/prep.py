#!/usr/bin/env python3
"""Compiles what tools/bench/gpu/run.py needs into one folder to carry.

    tools/bench/gpu/prep.py OUT [--attnc PATH] [--target sm_90a]
                            [--filter TEXT] [--variants] [--jobs N]

OUT gets a library for each program and head size, gpu-run, libattn.so, the
scripts, and manifest.json. On the GPU machine: python3 OUT/run.py; with
--variants those of causal softmax instead: python3 OUT/ab.py
"""
import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, HERE)
import carry  # noqa: E402
import cases  # noqa: E402


def build(a, name, dims, program, dtype):
    lib = os.path.join(a.out, name + ".so")
    cmd = [a.attnc, os.path.join(HERE, "cases.attn"), "--fn", program,
           "--shared", "--target", a.target, "-o", lib, "-D", "T=" + dtype]
    for k, v in dims.items():
        cmd += ["-D", f"{k}={v}"]
    start = time.time()
    done = subprocess.run(cmd, capture_output=True, text=True)
    info = {"library": name + ".so", "symbol": f"cases_{program}_{dtype}",
            "compile_s": round(time.time() - start, 3)}
    if done.returncode:
        info["failed"] = done.stderr.strip()
    else:
        info["bytes"] = os.path.getsize(lib)
    return name, info


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("out")
    ap.add_argument("--attnc", default=os.path.join(TOP, "build/bin/attnc"))
    ap.add_argument("--target", default="sm_90a")
    ap.add_argument("--filter", default="")
    ap.add_argument("--variants", action="store_true")
    ap.add_argument("--jobs", type=int, default=2)
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    wanted = {}
    for c in cases.variants() if a.variants else cases.all_cases():
        if a.filter in c.name:
            for one in [c] + [cases.plain_of(c)] * ("plain" in c.peers):
                name, dims = one.library
                wanted[name] = (dims, one.program, one.dtype)
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        made = dict(pool.map(lambda kv: build(a, kv[0], *kv[1]),
                             wanted.items()))
    for name, info in made.items():
        if "failed" in info:
            print(f"{name}: {info['failed']}", file=sys.stderr)
    bin_dir = os.path.dirname(a.attnc)
    shutil.copy(os.path.join(bin_dir, "gpu-run"), a.out)
    carry.runtime(a.attnc, a.out)
    for f in ("run.py", "ab.py", "beside.py", "cases.py", "plot.py"):
        shutil.copy(os.path.join(HERE, f), a.out)
    with open(os.path.join(a.out, "manifest.json"), "w") as f:
        json.dump({"target": a.target, "libraries": made}, f, indent=1)
    ok = sum("failed" not in i for i in made.values())
    size = sum(i.get("bytes", 0) for i in made.values())
    print(f"{ok} of {len(made)} libraries, {size / 1e6:.1f} MB, in {a.out}")
    return 0 if ok == len(made) else 1


if __name__ == "__main__":
    sys.exit(main())
