#!/usr/bin/env python3
"""CPU time that compiling for a GPU takes, milliseconds per kernel.

    tools/bench/compile.py FILE|FOLDER .. [-T DTYPE] [--filter TEXT] [--runs N]
                           [--attnc PATH] [--target sm_90a] [--grad] [--check]

A line for each program and head size: kernels (phases; of programs that have a
body for each kind of tensors those of all, else of the first), time to PTX and
to machine code (user and system, ptxas included), least of N runs, and how often
ptxas ran; for each kernel PTX's time is divided by their number. A bar is for one
kernel: 150 ms to PTX, 600 to machine code.

With --grad, for any target: seconds of an object with all bodies, of one with the
gradient too, their ratio, runs of ptxas for each, and bytes that stay spilled in
the second. The bars are a ratio of 3 and no spills.
"""
import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "test/driver/Inputs"))
import spills  # noqa: E402

BARS = {"ptx": 150, "cubin": 600}
GRAD_RATIO = 3
STAYS = rb"(\d+) bytes stay spilled"
# Counts its runs in a file, each of which has a line.
WRAPPER = "#!/bin/sh\necho >> {count}\nexec {ptxas} \"$@\"\n"


def cpu_ms(cmd, env):
    """CPU time of cmd and what it starts; None if it fails."""
    def spent():
        r = resource.getrusage(resource.RUSAGE_CHILDREN)
        return r.ru_utime + r.ru_stime
    before = spent()
    done = subprocess.run(cmd, env=env, capture_output=True)
    return 1e3 * (spent() - before) if done.returncode == 0 else None


def least(cmd, env, runs):
    times = [cpu_ms(cmd, env) for _ in range(runs)]
    return None if None in times else min(times)


def measure(a, work, path, name, dims):
    out, count = os.path.join(work, "out"), os.path.join(work, "count")
    cmd = [a.attnc, path, "--fn", name, "--target", a.target, "-o", out]
    for d in dims:
        cmd += ["-D", d]
    env = {p: dict(os.environ, ATTNC_PTXAS=p, ATTNC_CACHE="") for p in ("/none", work + "/ptxas")}
    none, ptxas = env.values()
    # Where inputs have bodies of their own an object has all.
    one = cpu_ms(cmd + ["--emit=cubin"], ptxas) is not None
    ptx = least(cmd + ["--emit=ptx"] * one, none, a.runs)
    if ptx is None:
        return None
    kernels = len(re.findall(rb"^\.visible \.entry", open(out, "rb").read(), re.M))
    open(count, "w").close()
    cubin = least(cmd + ["--emit=cubin"] * one, ptxas, a.runs)
    return kernels, ptx, cubin, os.path.getsize(count) // a.runs


def cases(a):
    for what in a.files:
        folder = what if os.path.isdir(what) else os.path.dirname(what)
        for path, name, consts in spills.programs(folder or "."):
            if not os.path.isdir(what) and not os.path.samefile(path, what):
                continue
            typed = re.search(rf" {name}<\s*T\b", open(path).read())
            for v in spills.variants(consts):
                dims = ["T=" + a.dtype] if typed else []
                label = name + (":" + v if v else "")
                if a.filter in label and (typed or a.dtype == "bf16"):
                    yield label, path, name, dims + [d for d in v.split(",") if d]


def report(a, work):
    n = above = 0
    print(f"{'':38s} kernels    PTX  cubin  runs; a kernel:  PTX  cubin")
    for label, path, name, dims in cases(a):
        m = measure(a, work, path, name, dims)
        if not m:
            continue
        kernels, ptx, cubin, ran = m
        flaw = ptx > BARS["ptx"] * kernels or cubin > BARS["cubin"] * kernels
        n, above = n + 1, above + flaw
        print(f"{label:38s} {kernels:7d} {ptx:6.0f} {cubin:6.0f} {ran:5d} "
              f"{'':9s} {ptx / kernels:6.0f} {cubin / kernels:6.0f}"
              + (" FLAW" if flaw else ""), flush=True)
    print(f"{n} programs, {above} above the bars "
          f"({BARS['ptx']} and {BARS['cubin']} ms a kernel)")
    return above


def whole(a, work, path, name, dims, grad):
    """Seconds of CPU time of an object, runs of ptxas, bytes that stay spilled; or why there is
    none."""
    count = os.path.join(work, "count")
    cmd = [a.attnc, path, "--fn", name, "--target", a.target, "--remarks", "--no-cache",
           "--max-seconds=600", "-o", os.path.join(work, "out.o")] + ["--grad"] * grad
    for d in dims:
        cmd += ["-D", d]
    env = dict(os.environ, ATTNC_PTXAS=work + "/ptxas")
    best = None
    for _ in range(a.runs):
        open(count, "w").close()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(cmd, env=env, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            return done.stderr.decode().split("\n")[0]
        t = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = min(t, best or t)
    # Remarks are on standard error.
    stays = sum(map(int, re.findall(STAYS, done.stderr)))
    return best, os.path.getsize(count), stays


def report_grad(a, work):
    ratios, flaws = [], 0
    print(f"{'':38s} forward   grad  ratio   runs of ptxas   spilled")
    for label, path, name, dims in cases(a):
        one = whole(a, work, path, name, dims, False)
        if isinstance(one, str):
            continue
        both = whole(a, work, path, name, dims, True)
        if isinstance(both, str):
            print(f"{label:38s} {one[0]:7.2f}         {both[:60]}", flush=True)
            continue
        ratio = both[0] / one[0]
        flaw = ratio > GRAD_RATIO or both[2]
        flaws += bool(flaw)
        ratios.append(ratio)
        print(f"{label:38s} {one[0]:7.2f} {both[0]:6.2f} {ratio:6.1f} {one[1]:8d} {both[1]:6d} "
              f"{both[2]:9d}" + (" FLAW" if flaw else ""), flush=True)
    ratios.sort()
    middle = ratios[len(ratios) // 2] if ratios else 0
    print(f"{len(ratios)} gradients, {flaws} above the bars (a ratio of {GRAD_RATIO}, spills), "
          f"median {middle:.1f}")
    return flaws


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("files", nargs="+")
    ap.add_argument("-T", dest="dtype", default="bf16")
    ap.add_argument("--filter", default="")
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--attnc", default=os.path.join(TOP, "build/bin/attnc"))
    ap.add_argument("--target", default="sm_90a")
    ap.add_argument("--grad", action="store_true", help="objects without and with the gradient")
    ap.add_argument("--check", action="store_true", help="fail beyond the bars")
    a = ap.parse_args()
    ptxas = os.environ.get("ATTNC_PTXAS") or shutil.which("ptxas")
    if not ptxas and a.target.startswith("sm_"):
        sys.exit("no ptxas")
    with tempfile.TemporaryDirectory() as work:
        wrapper = os.path.join(work, "ptxas")
        with open(wrapper, "w") as f:
            f.write(WRAPPER.format(count=os.path.join(work, "count"), ptxas=ptxas))
        os.chmod(wrapper, 0o755)
        above = report_grad(a, work) if a.grad else report(a, work)
    return 1 if a.check and above else 0


if __name__ == "__main__":
    sys.exit(main())
