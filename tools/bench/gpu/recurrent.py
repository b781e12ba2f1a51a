#!/usr/bin/env python3
"""Recurrences beside flash-linear-attention, in one process on the same inputs.

    tools/bench/gpu/recurrent.py --prep DIR [--attnc PATH] [--target sm_90a]
                                 [--filter TEXT] [--grad]
    python3 DIR/recurrent.py [--filter TEXT] [--out FILE] [--passes N]
                             [--no-peers] [--cache DIR] [--grad]

--prep compiles recurrent.attn into DIR; the rest runs there, on a machine with
an NVIDIA GPU and PyTorch. A package `fla` beside the script or installed is
measured too. Errors are norms of differences over norms, against f64 steps on
the first head of the first 256 steps. The order of the contenders rotates.
fla tries many variants of each kernel, which takes minutes of one core:
--cache compiles all of them into DIR first, by many processes, each its share.
Then fla chooses among all of them by time, alone on the machine, as ever;
--variants N: among N of each kernel, evenly spread, by few launches, for
machines that are there for minutes.
What the bars ask for is printed with each case and counted at the end.

--grad compiles and measures gradients: the forward and the backward pass
apart, errors of each gradient against f64 autograd over steps of a shorter
call, two launches bit by bit, and the time that the bytes of arguments take at
a copy's bandwidth; --kernels the time of each kernel too, and fla's is then the
sum of its kernels where that is less. --cpu tries that part of the script
itself."""
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
                            ("gated_delta", 16, 128, 128),
                            ("delta_product", 16, 128, 128),
                            ("rwkv6", 16, 128, 128),
                            ("hgrn2", 16, 128, 128),
                            ("kda", 16, 128, 128),
                            ("rwkv7", 16, 128, 128),
                            ("comba", 16, 128, 128))
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
# Of gradients: milliseconds of a backward pass, and errors.
BACKWARD, GRAD_ERROR = {"retention": 1.5, "simple_gla": 1.6, "gla": 1.0,
                        "deltanet": 1.0, "gated_delta": 0.9, "rwkv6": 1.0,
                        "hgrn2": 1.0, "kda": 1.4, "rwkv7": 2.0, "comba": 1.2}, 1.5e-2


# ---------------------------------------------------------------- preparing
def cases(a):
    """Gradients are those of whole sequences."""
    return [c for c in CASES if a.filter in c[0] and
            not (a.grad and (c[4] < 2048 or "one-key" in c[0]))]


def build(a, program, d, v):
    lib = os.path.join(a.prep, f"{program}_{d}_{v}.so")
    cmd = [a.attnc, os.path.join(HERE, "recurrent.attn"), "--fn", program,
           "--shared", "--target", a.target, "-o", lib, "-D", "T=bf16", "-D",
           f"D={d}", "-D", f"Dv={v}", "--max-seconds=900"] + ["--grad"] * a.grad
    done = subprocess.run(cmd, capture_output=True, text=True)
    if done.returncode:
        print(f"{program}: {done.stderr.strip()[:300]}", file=sys.stderr)
    return done.returncode == 0


def prepare(a):
    os.makedirs(a.prep, exist_ok=True)
    todo = sorted({(c[1], c[5], c[6]) for c in cases(a)})
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        good = sum(pool.map(lambda x: build(a, *x), todo))
    carry.script(a, __file__)
    print(f"{good} of {len(todo)} libraries in {a.prep}")
    return good != len(todo)


# ---------------------------------------------------------------- inputs
def inputs(c, torch, dev="cuda"):
    _, p, B, H, S, D, Dv = c
    g = torch.Generator(device=dev).manual_seed(1)

    def rand(*shape):
        return torch.randn(*shape, device=dev, generator=g)

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
        heads = torch.arange(H, device=dev, dtype=torch.float32)
        m["loggamma"] = torch.log(1 - torch.exp2(-5 - heads))
    if p == "gla":
        m["g"] = (sig(rand(B, S, H, D)) / 16).transpose(1, 2)
    if p in ("simple_gla", "gated_delta", "delta_product", "comba"):
        m["g"] = (sig(rand(B, S, H)) / 16).transpose(1, 2)
    if p == "kda":
        m["g"] = (rand(B, S, H, D) - 2).transpose(1, 2)
        m["A_log"], m["dt_bias"] = -2 * torch.rand(
            H, device=dev, generator=g), rand(H, D) / 2 - 2
    if p == "comba":
        m["E"] = rows(D, True)
    if p == "rwkv7":
        m["w"] = (rand(B, S, H, D) - 1).transpose(1, 2)
        m["kappa"] = rows(D, True)
        m["a"] = torch.sigmoid(rows(D, False))
        m["K"] = m["K"] / 8
    if unit or p in ("kda", "comba"):
        m["beta"] = torch.sigmoid(rand(B, S, H)).transpose(1, 2)
    if p == "delta_product":  # two writes a step
        for x in ("K", "V"):
            two = torch.stack([m[x], m[x].flip(1)], 3).transpose(1, 2)
            m[x] = two.contiguous().transpose(1, 2)
        m["beta"] = torch.sigmoid(rand(B, S, H, 2)).transpose(1, 2)
    if p == "rwkv6":
        m["w"] = (rand(B, S, H, D) - 3).transpose(1, 2)
        m["u"] = rand(H, D)
        m["K"] = m["K"] / 8
    if p == "hgrn2":
        m["f"] = (rand(B, S, H, D) + 3).transpose(1, 2)
        del m["K"]
    if "one-key" in c[0]:
        m["K"] = m["K"][:, :, :1].expand(B, H, S, D).transpose(1, 2) \
            .contiguous().transpose(1, 2)
        m["beta"] = torch.full_like(m["beta"], float(c[0][-1]))
    return m


PARAMETERS = ("loggamma", "u", "A_log", "dt_bias")


def head(m):
    """The first sequence and head of all inputs, in f64."""
    return {x: first_of(x, t).double() for x, t in m.items()}


def first_of(name, t):
    return t[0] if name in PARAMETERS else t[0, 0]


def steps(m, p, n, torch):
    """n outputs of a head, and the last state."""
    M, out, unit = m["S0"], [], torch.nn.functional.normalize
    if p in ("kda", "comba"):
        m = dict(m, Q=unit(m["Q"], dim=-1), K=unit(m["K"], dim=-1))
    for t in range(n):
        q, v = m["Q"][t], m["V"][t]
        keep = torch.sigmoid(m["f"][t]) if p == "hgrn2" else None
        k = m["K"][t] if keep is None else 1 - keep
        read = M
        if p == "hgrn2":
            M = keep[:, None] * M
        elif p == "rwkv6":
            M = torch.exp(-torch.exp(m["w"][t]))[:, None] * M
            read = read + torch.outer(m["u"] * k, v)
        elif p == "retention":
            M = torch.exp(m["loggamma"]) * M
        elif p == "gla":
            M = torch.exp(m["g"][t])[:, None] * M
        elif p == "kda":
            gate = torch.nn.functional.softplus(m["g"][t] + m["dt_bias"])
            M = torch.exp(-torch.exp(m["A_log"]) * gate)[:, None] * M
        elif p == "rwkv7":
            old = m["kappa"][t] @ M
            M = torch.exp(-0.606531 * torch.sigmoid(m["w"][t]))[:, None] * M
            M = M - torch.outer(m["a"][t] * m["kappa"][t], old)
        elif "g" in m:
            M = torch.exp(m["g"][t]) * M
        if p == "delta_product":
            for i in range(2):
                v = m["beta"][t, i] * (m["V"][t, i] - k[i] @ M)
                M = M + torch.outer(k[i], v)
            out.append(q.shape[0] ** -0.5 * (q @ M))
            continue
        if "beta" in m:
            erase = unit(m["E"][t], dim=-1) if p == "comba" else k
            v = m["beta"][t] * (v - erase @ M)
        M = M + torch.outer(k, v)
        out.append(q.shape[0] ** -0.5 * (q @ (read if p == "rwkv6" else M)))
    return torch.stack(out), M


def reference(c, m, torch):
    """O of the first sequence and head, by steps."""
    n = c[4] if "one-key" in c[0] else min(c[4], 256)
    return steps(head(m), c[1], n, torch)[0]


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
    t = {k: (x if k in ("S0",) + PARAMETERS else x.transpose(1, 2).contiguous())
         for k, x in m.items()}
    if p == "hgrn2":
        keep = torch.sigmoid(t["f"])
        t["K"], t["g"] = (1 - keep).bfloat16(), torch.log(keep)
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
    if p == "rwkv6":
        from fla.ops.rwkv6 import chunk_rwkv6
        return lambda: chunk_rwkv6(q, k, v, -torch.exp(t["w"]), t["u"], **more)[0]
    if p in ("gla", "hgrn2"):
        from fla.ops.gla import chunk_gla
        return lambda: chunk_gla(q, k, v, t["g"], **more)[0]
    if p == "deltanet":
        from fla.ops.delta_rule import chunk_delta_rule
        return lambda: chunk_delta_rule(q, k, v, t["beta"], **more)[0]
    if p in ERASING:
        return ERASING[p](q, k, v, t, more)
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    return lambda: chunk_gated_delta_rule(q, k, v, t["g"], t["beta"], **more)[0]


def fla_kda(q, k, v, t, more):
    from fla.ops.kda import chunk_kda
    return lambda: chunk_kda(
        q, k, v, t["g"], t["beta"], use_qk_l2norm_in_kernel=True,
        use_gate_in_kernel=True, A_log=t["A_log"],
        dt_bias=t["dt_bias"].flatten(), **more)[0]


def fla_rwkv7(q, k, v, t, more):
    """Its decays and vectors are made outside, as its layers do."""
    import torch
    from fla.ops.rwkv7 import chunk_rwkv7
    log = -0.606531 * torch.sigmoid(t["w"])
    kappa, removed = -t["kappa"], t["kappa"] * t["a"]
    return lambda: chunk_rwkv7(q, log, k, v, kappa, removed,
                               scale=q.shape[-1] ** -0.5, **more)[0]


def fla_comba(q, k, v, t, more):
    from fla.ops.comba import chunk_comba
    return lambda: chunk_comba(q, k, v, t["E"], t["g"], t["beta"],
                               use_qk_l2norm_in_kernel=True, **more)[0]


def fla_delta_product(q, k, v, t, more):
    """Writes of a step are steps of keys and values there."""
    from fla.ops.gated_delta_product import chunk_gated_delta_product
    n = t["beta"].shape[-1]
    k, v = (x.transpose(2, 3).flatten(1, 2).contiguous() for x in (k, v))
    beta = t["beta"].transpose(2, 3).flatten(1, 2).contiguous()
    return lambda: chunk_gated_delta_product(
        q, k, v, t["g"], beta, num_householder=n, **more)[0]


ERASING = {"kda": fla_kda, "rwkv7": fla_rwkv7, "comba": fla_comba,
           "delta_product": fla_delta_product}


# ---------------------------------------------------------------- gradients
def cotangents(c, m, torch, dev):
    _, _, B, H, S, _, Dv = c
    g = torch.Generator(device=dev).manual_seed(2)
    out = torch.randn(B, S, H, Dv, device=dev, generator=g).bfloat16()
    return {"d_O": out.transpose(1, 2),
            "d_S0": torch.randn(m["S0"].shape, device=dev, generator=g) * 0.1}


def our_gradient(c, m, torch):
    """The launches of both passes, and the gradients by input."""
    import attn
    _, p, B, H, S, D, Dv = c
    prog = attn.load(os.path.join(HERE, f"{p}_{D}_{Dv}.so"))[p]
    back = prog.grad.backward
    grads = {"g_" + x: torch.full_like(t, float("nan"))
             for x, t in m.items() if "g_" + x in back._names}
    have = dict(m, O=torch.empty_like(m["d_O"]), **grads)
    state = dict(have, S0=m["S0"].clone())
    forward = prog.prepare(**{n: state[n] for n in prog._names if n in state})
    backward = back.prepare(**{n: have[n] for n in back._names if n in have})
    return forward, backward, {n[2:]: t for n, t in grads.items()}


def fla_gradient(c, m, torch):
    """As above; heads are behind steps there."""
    leaves = {x: t.detach().requires_grad_() for x, t in m.items()
              if not x.startswith("d_") and x != "loggamma"}
    call = fla(c, dict(m, **leaves), torch)
    accept_gates()
    d = m["d_O"].transpose(1, 2).contiguous()
    out = call()

    def backward():
        return torch.autograd.grad(out, list(leaves.values()), d,
                                   retain_graph=True, allow_unused=True)

    def forward():
        with torch.no_grad():
            return call()

    return forward, backward, {}


def accept_gates():
    """fla refuses gradients of scalar gates with Triton before 3.7.1 on Hopper,
    as their numbers are wrong there. Their time is what is asked for here."""
    from fla.ops.common import chunk_o
    chunk_o.TRITON_ABOVE_3_7_1 = True


def gradient_errors(c, torch, dev):
    """Of a call with two heads, whose last chunk is not whole."""
    c = (c[0], c[1], 1, 2, 100 if dev == "cpu" else 777, c[5], c[6])
    m = inputs(c, torch, dev)
    m.update(cotangents(c, m, torch, dev))
    forward, backward, grads = our_gradient(c, m, torch)
    forward()
    backward()
    first = head({x: t for x, t in m.items() if not x.startswith("d_")})
    for t in first.values():
        t.requires_grad_()
    out, last = steps(first, c[1], c[4], torch)
    d = head({x: t for x, t in m.items() if x.startswith("d_")})
    ((out * d["d_O"]).sum() + (last * d["d_S0"]).sum()).backward()
    found = {}
    for x, got in grads.items():
        got = first_of(x, got).double()
        e = ((got - first[x].grad).norm() / first[x].grad.norm()).item()
        found[x] = float(f"{e:.3g}") if e == e else float("inf")
    return found


def repeats(backward, grads, torch):
    """Are two launches equal, bit by bit?"""
    backward()
    once = {x: t.clone() for x, t in grads.items()}
    backward()
    return all(torch.equal(t, once[x]) for x, t in grads.items())


def kernel_times(run, torch):
    """Microseconds of each kernel of a launch, by name: from the end of the one
    before, as each is launched early and waits for that."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        run()
        torch.cuda.synchronize()
    found, end = {}, 0
    for e in sorted((e for e in prof.events() if e.device_time),
                    key=lambda e: e.time_range.end):
        begin = max(e.time_range.start, end)
        end = e.time_range.end
        found[e.name] = found.get(e.name, 0) + end - begin
    return {k: round(v, 1) for k, v in found.items()}


def rotate(runs, passes, time_of):
    """Medians of the runs' times, in orders that rotate."""
    times, names = {k: [] for k in runs}, list(runs)
    for i in range(passes if names else 0):
        at = i % len(names)
        for k in names[at:] + names[:at]:
            time.sleep(0.05)
            times[k].append(time_of(runs[k]))
    return {k: round(statistics.median(v), 4) for k, v in times.items()}


def measure_gradient(a, c, copy, torch):
    dev, row, runs = "cpu" if a.cpu else "cuda", {"case": c[0]}, {}
    makers = {"ours": our_gradient, "fla": fla_gradient}
    if a.no_peers:
        del makers["fla"]
    if a.cpu:
        c = c[:2] + (1, 2, 200) + c[5:]
    m = inputs(c, torch, dev)
    m.update(cotangents(c, m, torch, dev))
    for name, make in makers.items():
        try:
            forward, backward, grads = make(c, m, torch)
            if name == "ours":
                row["errors"] = gradient_errors(c, torch, dev)
                row["same"] = repeats(backward, grads, torch)
                size = sum(t.numel() * t.element_size() for t in
                           list(m.values()) + list(grads.values()))
            else:
                forward()
                backward()
            if a.kernels:
                of = "kernels_us" if name == "ours" else name + "_kernels_us"
                row[of] = kernel_times(backward, torch)
            runs[name + "_forward"], runs[name + "_backward"] = forward, backward
        except Exception as e:
            row[name + "_failed"] = f"{type(e).__name__}: {str(e)[:200]}"
    time_of = host_time if a.cpu else lambda run: graph_time(run, torch)
    for k, v in rotate(runs, a.passes, time_of).items():
        row[k + "_ms"] = v
    if "ours_backward_ms" in row:
        ms = row["ours_backward_ms"]
        row["to_forward"] = round(ms / row["ours_forward_ms"], 2)
        row["to_bytes"] = round(ms / (size / copy * 1e-6), 2) if copy else 0
        if "fla_backward_ms" in row:
            row["ratio"] = round(fla_alone(row) / ms, 2)
    return row


def fla_alone(row):
    """Milliseconds of fla's backward pass on the GPU: its calls are no graphs, so
    that the host's time may count too, which a training step can hide."""
    kernels = sum(row.get("fla_kernels_us", {}).values()) * 1e-3
    return min(row["fla_backward_ms"], kernels or row["fla_backward_ms"])


def gradient_bars(c, row):
    if "ours_backward_ms" not in row:
        return [("runs", False)]
    out = [(f"errors <= {GRAD_ERROR}",
            all(e <= GRAD_ERROR for e in row["errors"].values())),
           ("two launches are equal", row["same"])]
    if "ratio" in row:
        out.append((f"{RATIO} x fla", row["ratio"] >= RATIO))
    if c[2] == 1 and c[1] in BACKWARD:
        most = BACKWARD[c[1]]
        out.append((f"<= {most} ms", row["ours_backward_ms"] <= most))
    return out


# ---------------------------------------------------------------- compiling
def choose(only, time_of):
    """Autotuners take what `only` leaves of their variants, and time_of's."""
    from triton.runtime.autotuner import Autotuner
    prune, bench = Autotuner.prune_configs, Autotuner._bench

    def fewer(self, *args, **more):
        found = prune(self, *args, **more)
        return only(found) or found[:1]

    def timed(self, *args, **more):
        self.__dict__["do_bench"] = lambda call, **_: [time_of(call)] * 3
        return bench(self, *args, **more)

    Autotuner.prune_configs, Autotuner._bench = fewer, timed


def spread(found, n):
    """n of them, evenly; all for 0."""
    few = n and len(found) > n
    return [found[i * len(found) // n] for i in range(n)] if few else found


def few_launches(call):
    import torch
    a, b = (torch.cuda.Event(enable_timing=True) for _ in "ab")
    call()
    a.record()
    for _ in range(4):
        call()
    b.record()
    torch.cuda.synchronize()
    return a.elapsed_time(b)


def compile_share(a, chosen, torch):
    number, share, shares = map(int, a.share.split(","))
    choose(lambda found: spread(found, a.variants)[share::shares],
           lambda call: call() or 1.0)
    c = chosen[number]
    m = inputs(c, torch)
    if a.grad:
        m.update(cotangents(c, m, torch, "cuda"))
        fla_gradient(c, m, torch)[1]()
    else:
        fla(c, m, torch)()
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
           "--cache", a.cache] + ["--grad"] * a.grad
    cmd += ["--variants", str(a.variants), "--share"]
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


def host_time(run):
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3


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
    for k, v in rotate(runs, passes, lambda r: graph_time(r, torch)).items():
        row[k + "_ms"] = v
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
    ap.add_argument("--grad", action="store_true")
    ap.add_argument("--kernels", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    ap.add_argument("--cache", default="")
    ap.add_argument("--variants", type=int, default=0)
    ap.add_argument("--share", help=argparse.SUPPRESS)
    ap.add_argument("--deadline", type=float, default=1e9)
    a = ap.parse_args()
    if a.prep:
        return prepare(a)
    if a.cache:
        a.cache = os.environ["TRITON_CACHE_DIR"] = os.path.abspath(a.cache)
    import torch
    chosen = cases(a)
    if a.share:
        return compile_share(a, chosen, torch)
    if a.variants and not a.no_peers:
        choose(lambda found: spread(found, a.variants), few_launches)
    if a.cache and not a.no_peers:
        compile_peers(a, chosen)
    start = time.time()
    copy, missed = 0 if a.cpu else round(copy_bandwidth(torch)), []
    rows = [{"case": "copy", "GB/s": copy}]
    print(rows[0], flush=True)
    for c in chosen:
        if time.time() - start > a.deadline:
            continue
        if a.grad:
            rows.append(measure_gradient(a, c, copy, torch))
            kept = gradient_bars(c, rows[-1])
        else:
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
