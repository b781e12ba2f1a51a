#!/usr/bin/env python3
"""Compile time and spills of random programs, by phase.

    tools/bench/drawn.py [--seeds LO..HI] [-T DTYPE] [--target sm_90a] [-jN]
                         [--steps N] [--attnc PATH] [--worst N] [--dir DIR]
                         [--tsv FILE] [--first] [--check]

Programs are those of test/fuzz/programs, every Nth (--steps, 5) a recurrence,
each compiled to an object for one target with ptxas, or, with --first, to the
machine code of its first body alone. Time is CPU time (user and
system): of the passes (--time-passes), of ptxas, and of what is left, LLVM and
the driver; and what a clock on the wall shows, of a machine with cores to spare
for all jobs (kernels of a program are compiled side by side). Prints the median,
the 95th of a hundred and the most of both, how many runs of ptxas a kernel has,
and the share of programs whose kernels spill nothing; then the worst programs,
each with its kinds, phases and tiles. Bars, of CPU time: a median of 0.7 s, 3 s,
3 runs a kernel, 95 of 100 without spills, and a warning (A0970) of each that
spills more than 128 bytes."""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "test/fuzz"))
import programs  # noqa: E402

BARS = {"median": 0.7, "most": 3.0, "runs": 3, "share": 0.95, "told": 128}
USUAL = "/usr/local/cuda/bin/ptxas"
# Its time for each run: "0m0.512s 0m0.031s", behind a line of the shell's own.
WRAPPER = '#!/bin/sh\n"{ptxas}" "$@"\nrc=$?\ntimes >> "{log}"\nexit $rc\n'
RUNS = re.compile(r"ptxas: (\d+) runs for ")
KERNEL = re.compile(r"ptxas: (\S+) for \S+ (\d+) threads, (\d+) registers, "
                    r"(\d+) bytes spilled")


@dataclasses.dataclass
class Drawn:
    seed: int
    kinds: str
    seconds: float = 0      # CPU, all of it
    wall: float = 0
    passes: float = 0
    ptxas: float = 0
    runs: int = 0           # most of a kernel of a body
    spilled: int = 0        # bytes of a thread, most of a kernel
    told: bool = False      # by A0970
    tiles: str = ""
    failed: str = ""

    @property
    def rest(self):
        return self.seconds - self.passes - self.ptxas


def seconds(text):
    minutes, _, rest = text.partition("m")
    return 60 * int(minutes) + float(rest.rstrip("s"))


def cpu(pid):
    """CPU time of a child that has ended, and its status."""
    _, status, used = os.wait4(pid, 0)
    return used.ru_utime + used.ru_stime, os.waitstatus_to_exitcode(status)


def run(cmd, env, log):
    with open(log, "w") as out:
        child = subprocess.Popen([str(x) for x in cmd], env=env, stdout=out,
                                 stderr=out)
        used, rc = cpu(child.pid)
        child.returncode = rc
    return used, rc, pathlib.Path(log).read_text(errors="replace")


def kept(said):
    """Most bytes of a kernel; what is kept is the best."""
    bytes_ = {}
    for name, _, _, spilled in KERNEL.findall(said):
        bytes_[name] = min(int(spilled), bytes_.get(name, 1 << 30))
    left = re.findall(r"(\d+) bytes stay spilled", said)
    return max(map(int, left), default=0) if left else \
        max(bytes_.values(), default=0)


def compile_one(a, seed):
    spec = programs.draw(seed, a.dtype, seed % a.steps == a.steps - 1)
    d = Drawn(seed, " ".join(spec.kinds()))
    work = pathlib.Path(a.dir)
    path = work / f"p{seed}.attn"
    path.write_text(programs.build(spec).text())
    wrapper, times = work / f"ptxas{seed}", work / f"times{seed}"
    wrapper.write_text(WRAPPER.format(ptxas=a.ptxas, log=times))
    wrapper.chmod(0o755)
    times.write_text("")
    start = time.monotonic()
    d.seconds, rc, said = run(
        [a.attnc, path, "--target", a.target, "--remarks", "--time-passes",
         *["--emit=cubin"] * a.first, "-o", work / f"p{seed}.o"],
        dict(os.environ, ATTNC_PTXAS=str(wrapper), ATTNC_CACHE=""),
        work / f"log{seed}")
    d.wall = time.monotonic() - start
    if rc:
        d.failed = next((x for x in said.split("\n") if "error" in x), f"ends with {rc}")
        return d
    d.passes = sum(float(x) for x in re.findall(r"^\w+ +([\d.]+) ms$", said,
                                                re.M)) / 1e3
    d.ptxas = sum(seconds(x) for line in times.read_text().split("\n")[1::2]
                  for x in line.split())
    d.runs = max(map(int, RUNS.findall(said)), default=1)
    d.spilled, d.told = kept(said), "A0970" in said
    d.tiles = "; ".join(re.findall(r": tiles of (\S+ rows(?: x \S+ keys)?)", said))
    return d


def share(n, of):
    return f"{100 * n / max(of, 1):.0f} %"


def middle(times):
    return times[len(times) // 2]


def print_times(what, times):
    """times: sorted, in seconds"""
    slow = sum(t > BARS["most"] for t in times)
    print(f"  {what:7s} median {middle(times):.2f}, 95 of 100 "
          f"{times[min(len(times) * 95 // 100, len(times) - 1)]:.2f}, most "
          f"{times[-1]:.2f}, {slow} above {BARS['most']}")


def report(a, all_):
    ok = [d for d in all_ if not d.failed]
    for d in all_:
        if d.failed:
            print(f"{d.seed}: {d.failed[:150]}")
    times = sorted(d.seconds for d in ok)
    dry = sum(d.spilled == 0 for d in ok)
    quiet = [d for d in ok
             if d.spilled > BARS["told"] and not d.told and not a.first]
    slow = sum(t > BARS["most"] for t in times)
    print(f"{len(ok)} programs, s")
    print_times("CPU", times)
    print_times("wall", sorted(d.wall for d in ok))
    for name in ("passes", "rest", "ptxas"):
        total = sum(getattr(d, name) for d in ok)
        print(f"  {name:7s} {share(total, sum(times)):>5s} of it")
    most = max(d.runs for d in ok)
    print(f"runs of ptxas a kernel and body: most {most}, one in "
          f"{share(sum(d.runs == 1 for d in ok), len(ok))} of the programs")
    print(f"without spills {share(dry, len(ok))}, above {BARS['told']} bytes "
          f"{sum(d.spilled > BARS['told'] for d in ok)}, of these not told {len(quiet)}")
    worst(a, ok)
    return (middle(times) > BARS["median"] or slow or quiet or
            most > BARS["runs"] or dry < BARS["share"] * len(ok))


def worst(a, ok):
    print(f"{'seed':>7s} {'s':>5s} {'passes':>6s} {'LLVM':>5s} {'ptxas':>5s} runs bytes")
    first = sorted(ok, key=lambda d: -d.seconds)[:a.worst]
    spilled = sorted((d for d in ok if d.spilled and d not in first),
                     key=lambda d: -d.spilled)[:a.worst]
    for d in first + spilled:
        print(f"{d.seed:7d} {d.seconds:5.2f} {d.passes:6.2f} {d.rest:5.2f} "
              f"{d.ptxas:5.2f} {d.runs:4d} {d.spilled:5d} {d.kinds} [{d.tiles}]")


def write_tsv(a, all_):
    names = [f.name for f in dataclasses.fields(Drawn)]
    with open(a.tsv, "w") as f:
        print(*names, sep="\t", file=f)
        for d in all_:
            print(*(getattr(d, n) for n in names), sep="\t", file=f)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--seeds", default="50001..50080")
    ap.add_argument("-T", dest="dtype", default="bf16")
    ap.add_argument("--target", default="sm_90a")
    ap.add_argument("--steps", type=int, default=5)
    ap.add_argument("-j", dest="jobs", type=int, default=1)
    ap.add_argument("--attnc", default=TOP / "build/bin/attnc")
    ap.add_argument("--worst", type=int, default=10)
    ap.add_argument("--dir", default="", help="keep what is made there")
    ap.add_argument("--tsv", default="")
    ap.add_argument("--first", action="store_true")
    ap.add_argument("--check", action="store_true", help="fail beyond the bars")
    a = ap.parse_args()
    a.ptxas = os.environ.get("ATTNC_PTXAS") or shutil.which("ptxas") or USUAL
    if not shutil.which(a.ptxas):
        sys.exit("no ptxas")
    lo, _, hi = a.seeds.partition("..")
    with tempfile.TemporaryDirectory() as made:
        a.dir = a.dir or made
        os.makedirs(a.dir, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            all_ = list(pool.map(lambda s: compile_one(a, s),
                                 range(int(lo), int(hi or lo) + 1)))
    if a.tsv:
        write_tsv(a, all_)
    return 1 if report(a, all_) and a.check else 0


if __name__ == "__main__":
    sys.exit(main())
