#!/usr/bin/env python3
"""Programs of the library on a GPU: their check blocks, and against their own CPU
code on many shapes.

    tools/bench/gpu/check.py --prep DIR [--attnc PATH] [--target sm_90a]
                             [--dtypes bf16,f16,f32] [--dims 64,128 [--turns]]
                             [--filter TEXT,..] [--jobs N] [--no-checks]
    python3 DIR/check.py [--filter TEXT] [--jobs N] [--seed N]

--prep compiles the library for the CPU (x86-64-v3) and the target into DIR, and
has `attnc check --save` write the check blocks there: code as `attnc check
--target` runs it, inputs, and the references in f64. There, on the machine with the GPU, each case is a run of gpu-run: made-up
inputs, outputs filled with NaN, three launches bitwise equal, results within
the block's tolerance or that of the dtype, the largest norms of errors printed at the end.
Needs no PyTorch."""
import argparse
import concurrent.futures
import glob
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))

# Tails, one query, fewer queries than keys, empty and long.
SQUARE = [1, 17, 64, 100, 128, 300, 1000]
PAIRS = [(1, 1), (1, 129), (37, 53), (64, 64), (100, 300), (128, 1024),
         (513, 700), (1000, 1000)]


def square(text, **more):
    return [(f"B={b},H={h},S={s},{text}", more) for s in SQUARE
            for b, h in ([(2, 3)] if s < 500 else [(1, 2)])]


def grouped(text, **more):
    return [(f"B=2,Hq=4,Hk={k},S={s},{text}", more) for s in SQUARE
            for k in ([1, 2] if s < 200 else [4])]


def pairs(text, **more):
    return [(f"B=2,H=3,Sq={q},Sk={k},{text}", more) for q, k in PAIRS]


def gqa(text):
    return [(f"B=2,Hq=6,Hk={h},Sq={q},Sk={k},{text}", {}) for q, k in PAIRS
            for h in (2, 6)]


# Recurrences: gates of -30 a step and none, beta up to 2, grouped heads.
GATES = ["g=uniform(-0.2,0)", "S0=normal(0,0.1)", "K=normal(0,0.125)"]
STRONG = ["g=uniform(-30,0)", "S0=normal(0,0.1)", "K=normal(0,0.125)"]
ERASE = ["beta=uniform(0,1)", "S0=normal(0,0.1)", "g=uniform(-0.2,0)"]
RECURRENT = [
    ("simple_gla", "", [GATES, STRONG]),
    ("retnet", "", [GATES + ["loggamma=uniform(-0.1,-0.001)"]]),
    ("lightning", "", [GATES]),
    ("linear", "", [GATES]),
    ("gla", "", [GATES, STRONG]),
    ("rwkv6", "", [GATES + ["w=uniform(-0.3,0)"]]),
    ("mlstm", "", [GATES + ["C0=normal(0,0.1)", "n0=uniform(0,1)"]]),
    ("deltanet", "", [ERASE, ["beta=const(2)", "S0=normal(0,0.1)"]]),
    ("gated_delta", "Hk=1,", [ERASE, STRONG + ["beta=const(1)"]]),
    ("comba", "", [ERASE]),
    ("kda", "", [ERASE + ["A_log=uniform(-2,0)"]]),
    ("delta_product", "R=2,", [ERASE]),
    ("rwkv7", "", [["kappa=normal(0,0.1)", "a=uniform(0,1)",
                    "K=normal(0,0.125)", "S0=normal(0,0.1)"]]),
]
# 64 steps are a chunk; 1100 and more are split into parts.
LONG = [1, 64, 100, 300, 1100]
# Of each dtype what gpu-run allows; f32 erases step by step.
TOLERANCES, CHUNK = {"bf16": 2e-2, "f16": 4e-3}, 64


def steps(d, text, more, **also):
    return [(f"B=2,H=2,{text}S={s},D={d},Dv={d}",
             {"in": x, "strong": "g=uniform(-30,0)" in x,
              "turns": s if "beta=const(2)" in x else 0, **also})
            for x in more for s in LONG]


def tolerance(dtype, turns=0, strong=False, divided=False, few=False):
    """Of `turns` steps that reflect the state. Keys are rounded behind their
    norm; a reflection leaves errors as long as they are, so those of n chunks,
    independent of each other, add up to sqrt(n) of one. Logarithms of strong
    decays sum to 64 * 30 / ln 2 in a chunk, of which f32 knows 2^-13: so much of
    a factor is unknown. A quotient has the rounded products of both its sums. Decays
    of a half a step leave an output a `few` products of a rounded weight and a value,
    which may cancel: of 10^5 outputs one has a product of 15 times the root of their
    mean square, of which a rounding is 2^-9."""
    if strong and dtype == "f32":
        return ["--tol", str(2 * 2.0 ** -13)]
    if not (turns or divided or few) or dtype not in TOLERANCES:
        return []
    more = 2 if divided or few else max(1, turns / CHUNK) ** 0.5
    return ["--tol", str(TOLERANCES[dtype] * more)]


# file, program, dims by D, and what else gpu-run is told
CASES = [
    ("mha", "mha", lambda d: pairs(f"D={d}")),
    ("mha", "mha_causal", lambda d: pairs(f"D={d}")),
    ("gqa", "gqa", lambda d: gqa(f"D={d},Dv=64") + gqa(f"D={d},Dv=128")),
    ("alibi", "alibi", lambda d: square(
        f"D={d}", **{"in": ["slope=uniform(0.01,0.5)"]})),
    ("alibi", "t5", lambda d: square(f"N=32,D={d}")),
    ("cross", "cross", lambda d: pairs(
        f"D={d},Dv=64", **{"in": ["len=randint(0,2000)"]})),
    ("differential", "differential", lambda d: square(
        f"D={d},Dv=128", **{"in": ["lam=uniform(0.2,0.8)"]})),
    ("forgetting", "forgetting", lambda d: square(
        f"D={d}", **{"in": ["F=uniform(0,1)"]})),
    ("gemma", "gemma", lambda d: grouped(f"D={d}", set=["left=50", "cap=5"])),
    ("qknorm", "qk_norm", lambda d: grouped(
        f"D={d}", **{"in": ["wq=uniform(0.5,1.5)", "wk=uniform(0.5,1.5)"]})),
    ("window", "window_sink", lambda d: grouped(f"D={d}", set=["left=40"])),
    ("packed", "packed", lambda d: [
        (f"H=3,S={s},D={d}", {"in": ["doc=docs(40)"]}) for s in SQUARE]),
    # Keys of other documents that are NaN or inf. (f32: inf's parts are NaN.)
    ("packed", "packed", lambda d: [
        (f"H=3,S={s},D={d}", {"in": ["doc=docs(150)", "K=broken(20000)"],
                              "types": ["bf16", "f16"]}) for s in (300, 1000)]),
    ("packed", "varlen", lambda d: [
        (f"B={b},H=2,Sq={t},Sk={t},Sq_total={t},Sk_total={t},D={d}",
         {"in": [f"cu_q=offsets({t})", f"cu_k=offsets({t})"]})
        for b, t in ((1, 40), (3, 200), (5, 1000))]),
    ("decode", "gqa_decode", lambda d: [
        (f"B={b},Hq={h},Hk={g},Sq={q},Sk={s},D={d}", {"in": [f"len=lengths(0,{s})"]})
        for b, h, g, q, s in ((3, 4, 2, 1, 60), (2, 8, 1, 3, 300), (1, 5, 5, 2, 3000),
                              (2, 64, 1, 1, 9000), (150, 4, 1, 1, 500),
                              (1, 12, 4, 30, 2000))]),
    ("paged", "paged_decode", lambda d: [
        (f"B=3,Hq=4,Hk=2,Sq={q},Sk={s},P={s // 16 + 1},"
         f"K_blocks={3 * (s // 16 + 1)},V_blocks={3 * (s // 16 + 1)},D={d}",
         {"in": [f"len=lengths({s // 2},{s})", "pt=perm"]})
        for q, s in ((1, 60), (2, 100), (4, 700), (1, 5000), (40, 1500))]),
    ("sigmoid", "sigmoid_attn", lambda d: pairs(f"D={d}", set=["bias=-3.5"])),
    ("relu", "relu_attn", lambda d: pairs(f"D={d}")),
    ("retention", "retention", lambda d: square(
        f"D={d},Dv={d}", **{"in": ["loggamma=uniform(-0.1,-0.01)"]})),
    ("stick", "stick_breaking", lambda d: square(f"D={d}")),
    *[(f, f, lambda d, more=more, text=text: steps(d, text, more))
      for f, text, more in RECURRENT],
    ("linear", "linear_normalized", lambda d: steps(
        d, "", [GATES + ["z0=uniform(0,1)"]], divided=True)),
    ("hgrn2", "hgrn2", lambda d: steps(d, "", [GATES], few=True)),
    *[(f, f, lambda d, gate=gate: steps(
        d, "", [GATES[1:] + [gate + "=uniform(-2,0)"]], few=True))
      for f, gate in (("gla", "g"), ("rwkv6", "w"))],
    ("mlstm", "mlstm_sigmoid", lambda d: steps(
        d, "", [GATES + ["C0=normal(0,0.1)"]])),
    *[("packed_steps", f, lambda d, more=more: [
        (f"B={b},H=2,S={t},S_total={t},D={d},Dv={d}",
         {"in": [f"cu=offsets({t})"] + more})
        for b, t in ((1, 40), (3, 200), (5, 1000))])
      for f, more in (("packed_gla", GATES), ("packed_delta", ERASE))],
    ("nsa", "nsa", lambda d: [
        (f"B=1,H=2,S={s},Nc={s // 16},Ns=4,D={d}",
         {"in": ["sel=randint(0,3)"]}) for s in (64, 200, 500)]),
]


# The file of stdlib/recurrent that a library is made of.
STEPS = {f: f for f, _, _ in RECURRENT}
STEPS.update(packed_steps="packed", hgrn2="hgrn2")


# ---------------------------------------------------------------- preparing
def build(a, file, dtype, d):
    name = f"{file}_{dtype}_{d}"
    folder = "recurrent" if file in STEPS else "attention"
    src = os.path.join(TOP, "stdlib", folder,
                       STEPS.get(file, file) + ".attn")
    cmd = [a.attnc, src, "--shared", "--prefix", file, "-o",
           os.path.join(a.prep, name + ".so"), "--target",
           "cpu:x86-64-v3," + a.target, "-D", "T=" + dtype, "-D", f"D={d}"]
    if file in STEPS:
        cmd += ["-D", f"Dv={d}"]
    done = subprocess.run(cmd, capture_output=True, text=True)
    return name, done.returncode, done.stderr.strip().split("\n")[0]


def save_checks(a, folder, file):
    """The check blocks of one file of the library."""
    done = subprocess.run(
        [a.attnc, "check", os.path.join(TOP, "stdlib", folder, file),
         "--save", os.path.join(a.prep, "checks-" + folder),
         "--target", a.target], capture_output=True, text=True)
    said = (done.stdout + done.stderr).strip().split("\n")
    bad = [x for x in said if x.startswith("FAIL") or "error[" in x]
    return file, done.returncode, bad[0] if bad else said[-1]


def library(a):
    return [(folder, f) for folder in ("attention", "recurrent")
            for f in sorted(os.listdir(os.path.join(TOP, "stdlib", folder)))
            if f.endswith(".attn")
            and any(x in f for x in a.filter.split(","))]


def prepare(a):
    os.makedirs(a.prep, exist_ok=True)
    todo = sorted({(f, t, d) for f, _, _ in CASES for t in a.dtypes.split(",")
                   for d in map(int, a.dims.split(","))
                   if any(x in f for x in a.filter.split(","))
                   and not (f == "differential" and d > 64)})
    if a.turns:
        groups = itertools.groupby(todo, key=lambda x: x[:2])
        groups = [list(group) for _, group in groups]
        todo = [g[i % len(g)] for i, g in enumerate(groups)]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        made = list(pool.map(lambda x: build(a, *x), todo))
        saved = [] if a.no_checks else list(
            pool.map(lambda x: save_checks(a, *x), library(a)))
    for name, rc, text in made + saved:
        if rc:
            print(f"{name}: {text}", file=sys.stderr)
    shutil.copy(os.path.join(os.path.dirname(a.attnc), "gpu-run"), a.prep)
    shutil.copy(os.path.abspath(__file__), a.prep)
    with open(os.path.join(a.prep, "check.json"), "w") as f:
        json.dump([n for n, rc, _ in made if not rc], f)
    bad = sum(rc != 0 for _, rc, _ in made)
    print(f"{len(made) - bad} of {len(made)} libraries in {a.prep}")
    lost = sum(rc != 0 for _, rc, _ in saved)
    if saved:
        print(f"checks of {len(saved) - lost} of {len(saved)} files")
    return 1 if bad or lost else 0


# ---------------------------------------------------------------- running
def checks(a):
    for folder in sorted(glob.glob(os.path.join(HERE, "checks-*"))):
        for path in sorted(glob.glob(os.path.join(folder, "*.args"))):
            with open(path) as f:
                cmd = ["../gpu-run", *f.read().split(), "--repeat", "2"]
            if any(x in " ".join(cmd) for x in a.filter.split(",")):
                yield folder, cmd


def commands(a):
    with open(os.path.join(HERE, "check.json")) as f:
        libraries = json.load(f)
    for lib in libraries:
        file, dtype, d = lib.rsplit("_", 2)
        for f, program, shapes in CASES:
            for dims, more in shapes(int(d)) if f == file else []:
                if dtype not in more.get("types", [dtype]):
                    continue
                cmd = ["./gpu-run", lib + ".so", f"{file}_{program}_{dtype}",
                       "--dim", dims, "--verify", "--repeat", "2", "--seed",
                       str(a.seed)]
                cmd += tolerance(dtype, **{
                    k: more[k] for k in ("turns", "strong", "divided", "few")
                    if k in more})
                for key, values in more.items():
                    for v in values if key in ("in", "set") else []:
                        cmd += ["--" + key, v]
                if any(x in " ".join(cmd) for x in a.filter.split(",")):
                    yield HERE, cmd


def run_one(job):
    folder, cmd = job
    try:
        done = subprocess.run(cmd, capture_output=True, text=True, cwd=folder,
                              timeout=120)
    except subprocess.TimeoutExpired:
        return cmd, -1, "no end after 120 s", 0
    said = [x for x in (done.stdout + done.stderr).split("\n") if x]
    wrong = [x for x in said if not x.startswith("ok")]
    norms = [float(x) for x in re.findall(r"norm ([-+.e\d]+)", "\n".join(said))]
    return cmd, done.returncode, wrong[0] if wrong else "", max(norms, default=0)


def print_norms(norms):
    """Of each program the largest norm of an error over that of the result."""
    worst = sorted(norms.items(), key=lambda x: -x[1])
    for i in range(0, len(worst), 4):
        print("   ".join(f"{n} {e:.1e}" for n, e in worst[i:i + 4]))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--prep")
    ap.add_argument("--attnc", default=os.path.join(TOP, "build/bin/attnc"))
    ap.add_argument("--target", default="sm_90a")
    ap.add_argument("--dtypes", default="bf16,f16,f32")
    ap.add_argument("--dims", default="64,128", help="head sizes to compile")
    ap.add_argument("--turns", action="store_true",
                    help="one head size of each program, in turn")
    ap.add_argument("--filter", default="", help="parts of names, by commas")
    ap.add_argument("--no-checks", action="store_true",
                    help="prepare no check blocks")
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    if a.prep:
        return prepare(a)
    start, todo = time.time(), [*checks(a), *commands(a)]
    good, bad, norms = 0, 0, {}
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for cmd, rc, text, norm in pool.map(run_one, todo):
            good, bad = good + (not rc), bad + bool(rc)
            norms[cmd[2]] = max(norm, norms.get(cmd[2], 0))
            if rc:
                print(f"FAIL({rc}) {' '.join(cmd[1:])}\n     {text[:160]}")
            if rc or (good + bad) % 20 == 0:
                print(f"{good} passed, {bad} failed of {len(todo)}, "
                      f"{time.time() - start:.0f} s", flush=True)
    print_norms(norms)
    print(f"{good} passed, {bad} failed, {time.time() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
