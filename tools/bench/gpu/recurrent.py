#!/usr/bin/env python3
"""Recurrences beside flash-linear-attention, in one process on the same inputs.

    tools/bench/gpu/recurrent.py --prep DIR [--attnc PATH] [--target sm_90a]
    python3 DIR/recurrent.py [--filter TEXT] [--out FILE] [--passes N]
                             [--no-peers] [--cache DIR]

--prep compiles recurrent.attn into DIR; the rest runs there, on a machine with
an NVIDIA GPU and PyTorch. A package `fla` beside the script or installed is
measured too. Errors are norms of differences over norms, against f64 steps on
the first head of the first 256 steps. The order of the contenders rotates.
fla tries many variants of each kernel, which takes minutes of one core:
--cache compiles all of them into DIR first, by many processes, each its share.
Then fla chooses among all of them by time, alone on the machine, as ever.
What the bars ask for is printed with each case and counted at the end."""
import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import time

import carry

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))

# name, program, B, H, S, D, Dv
CASES = [(f"{p}-d{d}_{v}-b{b}-h{h}-s{s}", p, b, h, s, d, v)
         for p, h, d, v in (("retention", 8, 256, 512),
                            ("simple_gla", 80, 128, 64),
                            ("gla", 16, 128, 128),
                            ("deltanet", 16, 128, 128),
                            ("gated_delta", 16, 128, 128))
         for b, s in ((1, 16384), (8, 2048))]
CASES += [("simple_gla-short", "simple_gla", 1, 16, 2048, 128, 128),
          ("simple_gla-decode", "simple_gla", 64, 32, 1, 128, 128),
          ("gated_delta-decode", "gated_delta", 64, 32, 1, 128, 128)]
# One key in all steps and beta 1 or 2, where errors that repeat add up; of
# these all steps are compared.
CASES += [(f"{p}-one-key-beta{n}", p, 1, 16, 4096, 128, 128)
          for p in ("deltanet", "gated_delta") for n in (1, 2)]

# Bars: times faster than fla, milliseconds of one fused pass at 680 TFLOP/s and
# 4.3 TB/s and how many of them, milliseconds, share of a copy's bandwidth.
RATIO, FLOORS, TIMES, SHORT, SHARE, ERROR = 1.5, {
    "retention-d256_512": 0.12, "simple_gla-d128_64": 0.23}, 2.5, 0.06, 0.75, 5e-3


# ---------------------------------------------------------------- preparing
def build(a, program, d, v):
    lib = os.path.join(a.prep, f"{program}_{d}_{v}.so")
    cmd = [a.attnc, os.path.join(HERE, "recurrent.attn"), "--fn", program,
           "--shared", "--target", a.target, "-o", lib, "-D", "T=bf16", "-D",
           f"D={d}", "-D", f"Dv={v}"]
    done = subprocess.run(cmd, capture_output=True, text=True)
    if done.returncode:
        print(f"{program}: {done.stderr.strip()[:300]}", file=sys.stderr)
    return done.returncode == 0


def prepare(a):
    os.makedirs(a.prep, exist_ok=True)
    todo = sorted({(c[1], c[5], c[6]) for c in CASES if a.filter in c[0]})
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        good = sum(pool.map(lambda x: build(a, *x), todo))
    carry.script(a, __file__)
    print(f"{good} of {len(todo)} libraries in {a.prep}")
    return good != len(todo)


# ---------------------------------------------------------------- inputs
def inputs(c, torch):
    _, p, B, H, S, D, Dv = c
    g = torch.Generator(device="cuda").manual_seed(1)

    def rand(*shape):
        return torch.randn(*shape, device="cuda", generator=g)

    def rows(d, unit):
        x = rand(B, S, H, d)
        if unit:
            x = torch.nn.functional.normalize(x, dim=-1)
        return x.bfloat16().transpose(1, 2)

    unit = "delta" in p
    m = {"Q": rows(D, unit), "K": rows(D, unit), "V": rows(Dv, False),
         "S0": rand(B, H, D, Dv) * 0.1}
    sig = torch.nn.functional.logsigmoid
    if p == "retention":
        heads = torch.arange(H, device="cuda", dtype=torch.float32)
        m["loggamma"] = torch.log(1 - torch.exp2(-5 - heads))
    if p == "gla":
        m["g"] = (sig(rand(B, S, H, D)) / 16).transpose(1, 2)
    if p in ("simple_gla", "gated_delta"):
        m["g"] = (sig(rand(B, S, H)) / 16).transpose(1, 2)
    if unit:
        m["beta"] = torch.sigmoid(rand(B, S, H)).transpose(1, 2)
    if "one-key" in c[0]:
        m["K"] = m["K"][:, :, :1].expand(B, H, S, D).transpose(1, 2) \
            .contiguous().transpose(1, 2)
        m["beta"] = torch.full_like(m["beta"], float(c[0][-1]))
    return m


def reference(c, m, torch):
    """O of the first sequence and head, by steps."""
    _, p, B, H, S, D, Dv = c
    n = S if "one-key" in c[0] else min(S, 256)
    M = m["S0"][0, 0].double()
    out = []
    for t in range(n):
        q, k, v = (m[x][0, 0, t].double() for x in "QKV")
        if p == "retention":
            M = torch.exp(m["loggamma"][0]) * M
        elif p == "gla":
            M = torch.exp(m["g"][0, 0, t])[:, None] * M
        elif "g" in m:
            M = torch.exp(m["g"][0, 0, t]) * M
        if "beta" in m:
            v = m["beta"][0, 0, t] * (v - k @ M)
        M = M + torch.outer(k, v)
        out.append(D ** -0.5 * (q @ M))
    return torch.stack(out)


# ---------------------------------------------------------------- contenders
def ours(c, m, torch):
    import attn
    _, p, B, H, S, D, Dv = c
    lib = attn.load(os.path.join(HERE, f"{p}_{D}_{Dv}.so"))
    prog = lib[p]
    out = torch.empty(B, S, H, Dv, device="cuda",
                      dtype=torch.bfloat16).transpose(1, 2)
    state = m["S0"].clone()
    named = {x.name: m[x.name] for x in prog.params if x.name in m}
    named["S0"] = state
    launch = prog.prepare(O=out, **named)

    def go():
        launch()
        return out

    def fresh():
        state.copy_(m["S0"])

    return go, fresh


def fla(c, m, torch):
    _, p, B, H, S, D, Dv = c
    t = {k: (x.transpose(1, 2).contiguous() if k not in ("S0", "loggamma")
             else x) for k, x in m.items()}
    q, k, v = t["Q"], t["K"], t["V"]
    h0 = t["S0"].clone()
    more = dict(initial_state=h0, output_final_state=True)
    if S == 1:
        from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule
        from fla.ops.simple_gla import fused_recurrent_simple_gla
        if p == "simple_gla":
            return lambda: fused_recurrent_simple_gla(q, k, v, t["g"], **more)[0]
        return lambda: fused_recurrent_gated_delta_rule(
            q, k, v, t["g"], t["beta"], **more)[0]
    if p == "retention":
        from fla.ops.retention import chunk_retention
        return lambda: chunk_retention(q, k, v, **more)[0]
    if p == "simple_gla":
        from fla.ops.simple_gla import chunk_simple_gla
        return lambda: chunk_simple_gla(q, k, v, t["g"], **more)[0]
    if p == "gla":
        from fla.ops.gla import chunk_gla
        return lambda: chunk_gla(q, k, v, t["g"], **more)[0]
    if p == "deltanet":
        from fla.ops.delta_rule import chunk_delta_rule
        return lambda: chunk_delta_rule(q, k, v, t["beta"], **more)[0]
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    return lambda: chunk_gated_delta_rule(q, k, v, t["g"], t["beta"], **more)[0]


# ---------------------------------------------------------------- compiling
def only_compile(share, shares):
    """Autotuners compile their share of the variants and time none."""
    from triton.runtime.autotuner import Autotuner
    plain = Autotuner._bench

    def once(call, *args, **more):
        call()
        return [1.0, 1.0, 1.0]

    def bench(self, *args, config, **more):
        if self.configs.index(config) % shares != share:
            return [float("inf")] * 3
        self.__dict__["do_bench"] = once
        return plain(self, *args, config=config, **more)

    Autotuner._bench = bench


def compile_share(text, chosen, torch):
    number, share, shares = map(int, text.split(","))
    only_compile(share, shares)
    c = chosen[number]
    fla(c, inputs(c, torch), torch)()
    torch.cuda.synchronize()


def compile_peers(a, chosen):
    """One process for each share of a program's variants."""
    first = {}
    for i, c in enumerate(chosen):
        first.setdefault((c[1], c[4] == 1), i)
    shares = max(1, (os.cpu_count() or 1) // max(len(first), 1))
    # What is chosen there is not to be found here.
    env = dict(os.environ, FLA_CACHE_RESULTS="0", TRITON_CACHE_AUTOTUNING="0")
    cmd = [sys.executable, os.path.abspath(__file__), "--filter", a.filter,
           "--cache", a.cache, "--share"]
    jobs = [subprocess.Popen(cmd + [f"{i},{j},{shares}"], env=env,
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
            for i in first.values() for j in range(shares)]
    failed = sum(job.wait() != 0 for job in jobs)
    print(f"{len(jobs)} processes have compiled, {failed} failed", flush=True)


# ---------------------------------------------------------------- timing
def graph_time(run, torch, ms=25):
    """Milliseconds of a call, from a CUDA graph of several if that works."""
    run()
    torch.cuda.synchronize()
    a, b = (torch.cuda.Event(enable_timing=True) for _ in "ab")
    a.record()
    for _ in range(3):
        run()
    b.record()
    torch.cuda.synchronize()
    n = max(3, min(200, int(ms / max(a.elapsed_time(b) / 3, 1e-3))))
    a.record()
    for _ in range(n):
        run()
    b.record()
    torch.cuda.synchronize()
    return a.elapsed_time(b) / n


def measure(c, passes, peers, torch):
    m, row = inputs(c, torch), {"case": c[0]}
    want, runs = reference(c, m, torch), {}
    makers = {"ours": ours, "fla": fla} if peers else {"ours": ours}
    for name, make in makers.items():
        try:
            run = make(c, m, torch)
            run, fresh = run if isinstance(run, tuple) else (run, None)
            if fresh:
                fresh()
            got = run()
            got = got[0, 0] if name == "ours" else got[0, :, 0]
            got = got[:len(want)].double()
            row[name + "_error"] = ((got - want).norm() / want.norm()).item()
            runs[name] = run
        except Exception as e:
            row[name + "_failed"] = f"{type(e).__name__}: {str(e)[:200]}"
    times = {k: [] for k in runs}
    for i in range(passes):
        order = list(runs)[i % len(runs):] + list(runs)[:i % len(runs)] \
            if runs else []
        for k in order:
            time.sleep(0.05)
            times[k].append(graph_time(runs[k], torch))
    for k, v in times.items():
        row[k + "_ms"] = round(statistics.median(v), 4)
    if c[4] == 1 and "ours_ms" in row:
        row["GB/s"] = round(8e-6 * m["S0"].numel() / row["ours_ms"])
    if "fla_ms" in row and "ours_ms" in row:
        row["ratio"] = round(row["fla_ms"] / row["ours_ms"], 2)
    return row


def bars(c, row, copy):
    """What the case has to keep: (text, kept)."""
    ms, out = row.get("ours_ms"), []
    if ms is None:
        return [("runs", False)]
    out.append((f"error <= {ERROR}", row["ours_error"] <= ERROR))
    if "ratio" in row and c[4] > 1 and not c[0].endswith("short") \
            and "one-key" not in c[0]:
        out.append((f"{RATIO} x fla", row["ratio"] >= RATIO))
    for name, floor in FLOORS.items():
        if c[0].startswith(name):
            out.append((f"<= {TIMES * floor:.3f} ms", ms <= TIMES * floor))
    if c[0].endswith("short"):
        out.append((f"<= {SHORT} ms", ms <= SHORT))
    if c[4] == 1:
        out.append((f">= {SHARE} of copy", row["GB/s"] >= SHARE * copy))
    return out


def copy_bandwidth(torch):
    x = torch.empty(1 << 28, device="cuda")
    y = torch.empty_like(x)
    return 8e-6 * x.numel() / graph_time(lambda: y.copy_(x), torch)


def main():
    ap = carry.options(__doc__, "recurrent.json", 5)
    ap.add_argument("--no-peers", action="store_true")
    ap.add_argument("--cache", default="")
    ap.add_argument("--share", help=argparse.SUPPRESS)
    ap.add_argument("--deadline", type=float, default=1e9)
    a = ap.parse_args()
    if a.prep:
        return prepare(a)
    if a.cache:
        a.cache = os.environ["TRITON_CACHE_DIR"] = os.path.abspath(a.cache)
    import torch
    chosen = [c for c in CASES if a.filter in c[0]]
    if a.share:
        return compile_share(a.share, chosen, torch)
    start = time.time()
    if a.cache and not a.no_peers:
        compile_peers(a, chosen)
    copy, missed = round(copy_bandwidth(torch)), []
    rows = [{"case": "copy", "GB/s": copy}]
    print(rows[0], flush=True)
    for c in chosen:
        if time.time() - start > a.deadline:
            continue
        rows.append(measure(c, a.passes, not a.no_peers, torch))
        kept = bars(c, rows[-1], copy)
        rows[-1]["bars"] = {t: "kept" if ok else "missed" for t, ok in kept}
        missed += [f"{c[0]}: {t}" for t, ok in kept if not ok]
        print(json.dumps(rows[-1]), flush=True)
        with open(a.out, "w") as f:
            json.dump(rows, f, indent=1)
    print("missed: " + ("; ".join(missed) or "none"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
