#!/usr/bin/env python3
"""Two builds beside each other: the cases of run.py, recurrent.py and decode.py,
without peers, in one process on the same tensors.

    python3 beside.py OLD NEW [--suites run,recurrent,decode] [--filter TEXT,..]
                      [--rounds N] [--passes N] [--again N] [--ms N] [--rest MS]
                      [--deadline S] [--json FILE] [--no-host] [--list]

OLD and NEW are folders in which prep.py, recurrent.py --prep and decode.py
--prep of the two builds worked. Runs on a machine with an NVIDIA GPU and
PyTorch, where run.py, recurrent.py and decode.py lie beside this file. Of each
case the outputs of both are compared with the reference of its suite, of two
launches bit by bit, and with each other. Then they are timed as their suite
does, one behind the other; in each round the programs are prepared anew and
the other is first, so that outputs and workspaces change places. Printed: the
medians, and NEW's time over OLD's in the same pass: median and quartiles. Cases
more than 1 % apart are measured again in N rounds more. "same code" says that
the libraries are byte for byte equal: what those differ by is noise.

Kernels of both are launched through the runtime of NEW. What a launch takes of
the host is measured at the end in processes of their own, each with its own
runtime. --list only says which libraries are equal; it needs no GPU. Exit code
1 if a result is wrong or a bar is missed: the geometric mean within 1 %, no
case more than 3 % slower."""
import argparse
import filecmp
import json
import math
import os
import statistics
import subprocess
import sys
import time

import cases
import decode
import recurrent

GEOMEAN, WORST, APART, WRONG = 0.01, 0.03, 0.01, 1e-2
SUITES = "run,recurrent,decode"
# Short cases of each suite, of which the host's part is measured.
HOST = ("sigmoid-d128-b1-h32-s2048", "simple_gla-decode",
        "gqa-b1-s8192-q1-h32_8 ours")


# ---------------------------------------------------------------- cases
class Job:
    """One program of a case. prepare() makes the inputs and the reference;
    make(folder) the (launch, fresh) of a build, where fresh() sets up what a
    launch changes; error(out) is relative; ms(launch, n) times."""

    def __init__(self, suite, name, library, most):
        self.suite, self.name, self.library = suite, name, library
        self.most = most


class Run(Job):
    def __init__(self, c):
        super().__init__("run", c.name, c.library[0] + ".so", WRONG)
        self.c = c

    def prepare(self, seed):
        import run
        import torch
        self.run, self.dev = run, torch.device("cuda")
        self.m = run.tensors(self.c, self.dev, seed)
        self.error = run.Reference(self.c, self.m, seed).error

    def make(self, folder):
        with open(os.path.join(folder, "manifest.json")) as f:
            manifest = json.load(f)
        return self.run.Ours(manifest, self.c, self.m, self.dev, folder), None

    def ms(self, launch, n):
        return self.run.median_ms(launch, self.dev, n)


class Recurrent(Job):
    def __init__(self, c):
        super().__init__("recurrent", c[0], f"{c[1]}_{c[5]}_{c[6]}.so",
                         recurrent.ERROR)
        self.c = c

    def prepare(self, seed):
        import torch
        self.torch, self.m = torch, recurrent.inputs(self.c, torch)
        self.want = recurrent.reference(self.c, self.m, torch)

    def make(self, folder):
        recurrent.HERE = folder
        return recurrent.ours(self.c, self.m, self.torch)

    def error(self, out):
        got = out[0, 0][:len(self.want)].double()
        return ((got - self.want).norm() / self.want.norm()).item()

    def ms(self, launch, n):
        return recurrent.graph_time(launch, self.torch, n)


OURS = decode.ours


class Decode(Job):
    def __init__(self, name, who, make_case, c):
        library = "mla" if make_case is decode.mla_case else \
            {"ours": "gqa", "pages": "paged"}[who]
        super().__init__("decode", f"{name} {who}", library + ".so", WRONG)
        self.who, self.make_case, self.c = who, make_case, c

    def prepare(self, seed):
        import torch
        torch.manual_seed(seed)
        # What the case would launch, so that it can be made for each build.
        decode.ours = lambda name, out, **tensors: (name, out, tensors)
        decode.peers = lambda *_: {}
        todo, self.ref, _, _ = self.make_case(torch, "cuda", self.c)
        self.call = todo[self.who]

    def make(self, folder):
        decode.HERE = folder
        name, out, tensors = self.call
        return OURS(name, out, **tensors), None

    def error(self, out):
        return decode.error(out, self.ref)

    def ms(self, launch, n):
        from triton.testing import do_bench
        return do_bench(launch, warmup=10, rep=n, return_mode="median")


def jobs(suites):
    if "run" in suites:
        yield from (Run(c) for c in cases.all_cases())
    if "recurrent" in suites:
        yield from (Recurrent(c) for c in recurrent.CASES)
    if "decode" in suites:
        for c in decode.GQA:
            for who in ("ours", "pages"):
                yield Decode("gqa-b%d-s%d-q%d-h%d_%d" % c, who,
                             decode.gqa_case, c)
        for c in decode.MLA:
            yield Decode("mla-b%d-s%d-h%d" % c, "ours", decode.mla_case, c)


def same_code(builds, job):
    return filecmp.cmp(*(os.path.join(f, job.library)
                         for f in builds.values()), shallow=False)


# ---------------------------------------------------------------- measuring
def result(launch, fresh):
    """A launch's output, which was NaN before it."""
    import torch
    out = launch()
    out.fill_(math.nan)
    if fresh:
        fresh()
    got = launch().clone()
    torch.cuda.synchronize()
    return got


def check(row, job, ready):
    """Errors of both builds; whether they repeat; whether they are equal."""
    import torch
    outs = {}
    for name, (launch, fresh) in ready.items():
        outs[name] = result(launch, fresh)
        row["repeats"] &= torch.equal(outs[name], result(launch, fresh))
        whole = bool(torch.isfinite(outs[name].float()).all())
        row[name + "_error"] = job.error(outs[name]) if whole else math.inf
    row["bits"] = torch.equal(*outs.values())


def one_round(a, row, job, builds, number):
    order = list(builds)[::-1 if number % 2 else 1]
    ready = {name: job.make(builds[name]) for name in order}
    if "bits" not in row:
        check(row, job, {name: ready[name] for name in builds})
    for p in range(a.passes):
        for name in order[::-1 if p % 2 else 1]:
            time.sleep(a.rest * 1e-3)
            row[name].append(job.ms(ready[name][0], a.ms))


def rate(row):
    pairs = [n / o for o, n in zip(row["old"], row["new"])]
    row["over"] = statistics.quantiles(pairs, n=4)
    row["ratio"] = row["over"][1]


def measure(a, row, job, builds, rounds, seed):
    import torch
    try:
        job.prepare(seed)
        for number in range(rounds):
            one_round(a, row, job, builds, number)
        rate(row)
    except Exception as e:
        row["failed"] = f"{type(e).__name__}: {str(e)[:200]}"
    for held in ("m", "error", "want", "call", "ref"):
        job.__dict__.pop(held, None)
    torch.cuda.empty_cache()


def wrong(row):
    return "failed" in row or not row["repeats"] or any(
        not row[f"{b}_error"] <= row["most"] for b in ("old", "new"))


def line(row):
    if "failed" in row:
        return f"{row['name']}: {row['failed']} WRONG"
    low, mid, high = row["over"]
    old, new = (statistics.median(row[b]) for b in ("old", "new"))
    return (f"{row['name']:34s} old {old:8.4f} new {new:8.4f} ms  {mid:.4f} "
            f"({low:.4f} to {high:.4f})  error {row['old_error']:.1e} "
            f"{row['new_error']:.1e}" + "  same code" * row["same"]
            + "  OTHER BITS" * (not row["bits"]) + "  WRONG" * wrong(row))


def sweep(a, todo, builds, start):
    """Rows of all cases; then those that are apart, again."""
    rows, late = [], 0
    for i, job in enumerate(todo):
        if time.time() - start > a.deadline:
            late += 1
            continue
        row = {"suite": job.suite, "name": job.name, "most": job.most,
               "same": same_code(builds, job), "repeats": True, "old": [],
               "new": []}
        rows.append(row)
        measure(a, row, job, builds, a.rounds, a.seed + i)
        print(line(row), flush=True)
    for row, job in zip(rows, todo):
        if abs(row.get("ratio", 1) - 1) > APART and not late \
                and time.time() - start < a.deadline:
            measure(a, row, job, builds, a.again, a.seed + 1000)
            print("again " + line(row), flush=True)
    return rows, late


# ---------------------------------------------------------------- the host
def use(folder):
    """`import attn` is that of the folder."""
    sys.path.insert(0, folder)
    import attn  # noqa: F401
    sys.path.pop(0)


def host(folder, batches=40, calls=100):
    """Microseconds of the host's time that a launch takes."""
    import torch
    use(folder)
    found = {}
    for job in jobs(SUITES):
        if job.name not in HOST:
            continue
        job.prepare(1)
        launch, _ = job.make(folder)
        times = []
        for _ in range(batches):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                launch()
            times.append(1e6 * (time.perf_counter() - begin) / calls)
        found[job.name] = statistics.median(times)
    print(json.dumps(found))


def hosts(builds, turns=3):
    """{case: {build: microseconds}}, processes of both in turn."""
    found = {}
    for _ in range(turns):
        for name, folder in builds.items():
            done = subprocess.run(
                [sys.executable, os.path.abspath(__file__), "--host", folder],
                capture_output=True, text=True)
            if done.returncode:
                print(f"host, {name}: {done.stderr.strip()[-200:]}")
                continue
            for case, us in json.loads(done.stdout).items():
                found.setdefault(case, {}).setdefault(name, []).append(us)
    for case, us in found.items():
        print(f"host, {case}: " + ", ".join(
            f"{b} {statistics.median(t):.2f} us" for b, t in us.items()))
    return found


# ---------------------------------------------------------------- summary
def geomean(rows):
    logs = [math.log(r["ratio"]) for r in rows]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def summary(rows, late):
    """Prints it; whether all is right and the bars are kept."""
    good = [r for r in rows if "ratio" in r and not wrong(r)]
    bad = [r["name"] for r in rows if wrong(r)]
    groups = [(s, [r for r in good if r["suite"] == s])
              for s in SUITES.split(",")]
    groups += [("same code", [r for r in good if r["same"]]),
               ("other code", [r for r in good if not r["same"]]),
               ("all", good)]
    for name, part in groups:
        if part:
            slow = max(part, key=lambda r: r["ratio"])
            print(f"{name}: {len(part)} cases, new/old {geomean(part):.4f}, "
                  f"slowest {slow['ratio']:.4f} ({slow['name']})")
    kept = bool(good) and abs(geomean(good) - 1) <= GEOMEAN
    slow = [r["name"] for r in good if r["ratio"] > 1 + WORST]
    print(f"wrong: {', '.join(bad) or 'none'}; other bits: "
          + (", ".join(r["name"] for r in good if not r["bits"]) or "none"))
    print(f"geomean within {GEOMEAN:.0%}: {'kept' if kept else 'missed'}; "
          f"more than {WORST:.0%} slower: {', '.join(slow) or 'none'}; "
          f"left out: {late}")
    return kept and not (slow or bad or late)


def list_code(todo, builds):
    libraries = {job.library: same_code(builds, job) for job in todo}
    for name, same in sorted(libraries.items()):
        print(f"{'same' if same else 'OTHER'} {name}")
    print(f"{sum(libraries.values())} of {len(libraries)} libraries, "
          f"{sum(libraries[j.library] for j in todo)} of {len(todo)} cases "
          "have the same code")


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("builds", nargs="*", metavar="OLD NEW")
    ap.add_argument("--suites", default=SUITES)
    ap.add_argument("--filter", default="")
    ap.add_argument("--rounds", type=int, default=4)
    ap.add_argument("--passes", type=int, default=2)
    ap.add_argument("--again", type=int, default=8)
    ap.add_argument("--ms", type=int, default=30)
    ap.add_argument("--rest", type=int, default=10)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--deadline", type=float, default=1e9)
    ap.add_argument("--json", default="")
    ap.add_argument("--no-host", action="store_true")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--host", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if not a.host and len(a.builds) != 2:
        ap.error("OLD and NEW are needed")
    if a.rounds * a.passes < 2:
        ap.error("quartiles need two passes")
    return a


def main():
    a, start = options(), time.time()
    if a.host:
        return host(os.path.abspath(a.host))
    builds = dict(zip(("old", "new"), map(os.path.abspath, a.builds)))
    todo = [j for j in jobs(a.suites.split(","))
            if any(t in j.name for t in a.filter.split(","))]
    if a.list:
        return list_code(todo, builds)
    use(builds["new"])
    import torch
    torch.backends.cuda.matmul.allow_tf32 = False
    print(torch.cuda.get_device_name(), f"{len(todo)} cases", flush=True)
    rows, late = sweep(a, todo, builds, start)
    spent = {} if a.no_host or time.time() - start > a.deadline \
        else hosts(builds)
    good = summary(rows, late)
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"rows": rows, "host_us": spent}, f, indent=1)
    print(f"{time.time() - start:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
