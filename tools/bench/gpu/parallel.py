#!/usr/bin/env python3
"""Sequences divided among GPUs by attn.torch.context_parallel, beside one GPU.

    tools/bench/gpu/parallel.py --prep OUT [--attnc PATH] [--target sm_90a]
    python3 OUT/parallel.py [--filter TEXT,..] [--ranks N] [--passes N]
                            [--deadline S] [--out FILE] [--cpu --divide N]

--prep compiles programs and gradients into OUT, compressed, which is carried to
a machine with several NVIDIA GPUs and PyTorch. The script starts one process
for each. Rank 0 computes the whole sequence alone, then all compute it
together; results are compared with those of rank 0 (norm of the difference over
the norm) and two backward passes bit by bit. Milliseconds are the slowest
rank's, medians of passes. "even" is work over time of all, over that of one GPU
and the number of them: 1 is what cannot be had. Cases with "weak" have longer
sequences on more GPUs. --cpu tries the script itself, with gloo."""
import json
import lzma
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import carry

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
# Times faster than one GPU, of N: share of N.
FORWARD, BACKWARD, ERROR = 1.85 / 2, 1.8 / 2, 2e-2

# name, program, plan, tokens on one GPU, weak
CASES = [("gqa-gather-s65536", "gqa", "gather", 65536, False),
         ("gqa-heads-s65536", "gqa", "heads", 65536, False),
         ("gated_delta-heads-s65536", "gated_delta", "heads", 65536, False),
         ("gated_delta-states-s65536", "gated_delta", "states", 65536, False),
         ("gated_delta-turn-s65536", "gated_delta", "turn", 65536, False),
         ("gqa-gather-s262144", "gqa", "gather", 262144, False),
         ("gqa-heads-s262144", "gqa", "heads", 262144, False),
         ("gqa-gather-weak-s65536", "gqa", "gather", 65536, True),
         ("gated_delta-heads-weak-s65536", "gated_delta", "heads", 65536,
          True)]
SOURCES = {"gqa": "stdlib/attention/gqa.attn",
           "gated_delta": "tools/bench/gpu/recurrent.attn"}
D, HEADS = 128, {"gqa": (32, 8), "gated_delta": (32, 32)}


def chosen(a):
    return [c for c in CASES if any(t in c[0] for t in a.filter.split(","))]


# ---------------------------------------------------------------- preparing
def prepare(a):
    os.makedirs(a.prep, exist_ok=True)
    todo = sorted({c[1] for c in chosen(a)})
    for program in todo:
        lib = os.path.join(a.prep, program + ".so")
        if os.path.exists(lib + ".xz"):
            continue
        subprocess.run(
            [a.attnc, os.path.join(TOP, SOURCES[program]), "--fn", program,
             "--grad", "--shared", "--target", a.target, "-o", lib, "-D",
             "T=bf16", "-D", f"D={D}", "-D", f"Dv={D}", "--max-seconds=600"],
            check=True)
        with open(lib, "rb") as f, lzma.open(lib + ".xz", "wb") as to:
            to.write(f.read())
        os.remove(lib)
    carry.script(a, __file__)
    print(f"{len(todo)} libraries in {a.prep}")


def unpack(program, where):
    lib = os.path.join(where, program + ".so")
    with lzma.open(os.path.join(HERE, program + ".so.xz")) as f, \
            open(lib, "wb") as to:
        to.write(f.read())


# ---------------------------------------------------------------- inputs
def inputs(program, S, torch, dev):
    """Whole sequences in the order of the program's inputs, (B, S, H, D)."""
    g = torch.Generator(device=dev).manual_seed(1)
    Hq, Hk = HEADS[program]

    def rand(*shape):
        return torch.randn(*shape, device=dev, generator=g)

    def rows(heads, unit=False):
        x = rand(1, S, heads, D)
        if unit:
            x = torch.nn.functional.normalize(x, dim=-1)
        return x.bfloat16()

    if program == "gqa":
        return {"Q": rows(Hq), "K": rows(Hk), "V": rows(Hk)}
    return {"Q": rows(Hq, True), "K": rows(Hq, True), "V": rows(Hq),
            "g": torch.nn.functional.logsigmoid(rand(1, S, Hq)) / 16,
            "beta": torch.sigmoid(rand(1, S, Hq)),
            "S0": rand(1, Hq, D, D) * 0.1}


def cotangent(x, torch):
    """That of the output: the same on all ranks."""
    g = torch.Generator(device=x.device).manual_seed(2)
    return torch.randn(x.shape, device=x.device, generator=g).to(x.dtype)


def placed(m, part):
    """As the program takes them: heads before tokens."""
    return {n: (x.clone() if n == "S0" else part(x).transpose(1, 2)).detach()
            .requires_grad_() for n, x in m.items()}


def work(program, S):
    return S * (S + 1) / 2 if program == "gqa" else S


# ---------------------------------------------------------------- measuring
class Machine:
    def __init__(self, a, rank, torch):
        import torch.distributed as dist
        self.torch, self.dist, self.rank, self.cpu = torch, dist, rank, a.cpu
        self.dev = "cpu" if a.cpu else f"cuda:{rank}"
        self.passes, self.known = a.passes, {}

    def wait(self):
        if not self.cpu:
            self.torch.cuda.synchronize()

    def slowest(self, ms):
        t = self.torch.tensor([ms], device=self.dev)
        self.dist.all_reduce(t, self.dist.ReduceOp.MAX)
        return t.item()

    def time(self, run, together):
        """Milliseconds; together: of the slowest rank."""
        found = []
        for _ in range(self.passes):
            if together:
                self.dist.barrier()
            self.wait()
            begin = time.perf_counter()
            run()
            self.wait()
            ms = (time.perf_counter() - begin) * 1e3
            found.append(self.slowest(ms) if together else ms)
        return statistics.median(found)


def passes_of(m, attend, x, d):
    """Results and gradients, and functions that make them."""
    torch = m.torch

    def forward():
        with torch.no_grad():
            return attend(**x)

    out = attend(**x)[0]

    def backward():
        return torch.autograd.grad(out, list(x.values()), d,
                                   retain_graph=True)

    forward()
    grads = backward()
    return [out.detach(), *grads], forward, backward


def off(got, want, torch):
    """Norm of the difference over the norm, in parts: f32 of all is much."""
    num = den = 0.0
    for x, y in zip(got.flatten(0, 1).split(1), want.flatten(0, 1).split(1)):
        num += (x.float() - y.float()).square().sum(dtype=torch.float64)
        den += y.float().square().sum(dtype=torch.float64)
    e = (num / den).sqrt().item()
    return e if e == e else math.inf


def whole(x, n, m, attn):
    """A result of this rank, of all ranks; of S0, which each has, the sum."""
    if n == "S0":
        x = x.clone()
        m.dist.all_reduce(x)
        return x
    return attn.torch.unshard(x.detach(), 2)


def operators(m, program, where):
    """The program's, and what is differentiable on one GPU."""
    import attn
    import attn.torch
    if program not in m.known:
        lib = attn.load(os.path.join(where, program + ".so"))
        op = attn.torch.register(
            next(p for p in lib if not p.name.endswith("_grad")),
            "bench::" + program)
        alone = m.torch.ops.bench.gated_delta_states.default \
            if program == "gated_delta" else op
        m.known[program] = op, alone
    return m.known[program]


def measure(a, c, m, where):
    import attn
    import attn.torch
    torch, (name, program, plan, S, weak) = m.torch, c
    n, (op, alone) = m.dist.get_world_size(), operators(m, program, where)
    step = 4 * n * 64
    S = max(S // a.divide // step, 1) * step
    more = S * (n ** 0.5 if program == "gqa" else n) if weak else S
    more = int(more) // step * step
    row = {"case": name, "tokens": [S, more], "ranks": n}
    if m.rank == 0:
        x = inputs(program, S, torch, m.dev)
        d = cotangent(x["Q"], torch)
        ref, forward, backward = passes_of(
            m, alone, placed(x, lambda t: t), d.transpose(1, 2))
        row["one_ms"] = [m.time(forward, False), m.time(backward, False)]
        names = ["O", *x]
        del x, forward, backward
    m.dist.barrier()
    x = inputs(program, more, torch, m.dev)
    d = cotangent(x["Q"], torch)
    names = ["O", *x]
    if not m.cpu:
        torch.cuda.reset_peak_memory_stats()
    own = placed(x, lambda t: attn.torch.shard(t, 1).contiguous())
    d = attn.torch.shard(d, 1).transpose(1, 2)
    del x
    cp = attn.torch.context_parallel(op, plan=plan)
    got, forward, backward = passes_of(m, cp, own, d)
    again = backward()
    row["same"] = all(torch.equal(p, q) for p, q in zip(got[1:], again))
    del again
    row["all_ms"] = [m.time(forward, True), m.time(backward, True)]
    row["peak_GB"] = 0 if m.cpu else round(
        torch.cuda.max_memory_allocated() / 1e9, 1)
    if not weak:
        row["errors"] = {}
        for i, r in enumerate(names):
            y = whole(got[i], r, m, attn)
            if m.rank == 0:
                row["errors"][r] = off(y, ref[i], torch)
            del y
    if m.rank == 0:
        share = work(program, more) / work(program, S) / n
        row["even"] = [round(p / q * share, 3)
                       for p, q in zip(row["one_ms"], row["all_ms"])]
        row["ratio"] = [round(e * n, 3) for e in row["even"]]
    return row


def line(row):
    both = [" + ".join(f"{x:.1f}" for x in row[k])
            for k in ("one_ms", "all_ms")]
    errors = " ".join(f"{n} {e:.1e}" for n, e in row.get("errors", {}).items())
    return (f"{row['case']:30s} tokens {row['tokens'][0]} {row['tokens'][1]}  "
            f"one {both[0]} ms, {row['ranks']} {both[1]} ms, ratio "
            f"{row['ratio'][0]} + {row['ratio'][1]}  {errors}  "
            f"{row['peak_GB']} GB" + "  repeats" * row["same"])


def bars(row):
    out = []
    if "s262144" in row["case"]:
        out = [(f"forward {FORWARD} of all", row["even"][0] >= FORWARD),
               (f"backward {BACKWARD} of all", row["even"][1] >= BACKWARD)]
    out += [("repeats", row["same"]), (f"errors <= {ERROR}", all(
        e <= ERROR for e in row.get("errors", {}).values()))]
    return [t for t, kept in out if not kept]


# ---------------------------------------------------------------- processes
def worker(rank, a, n, where, start):
    import datetime
    import torch
    import torch.distributed as dist
    if not a.cpu:
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "gloo" if a.cpu else "nccl", rank=rank, world_size=n,
        init_method="file://" + os.path.join(where, "meet"),
        timeout=datetime.timedelta(seconds=120))
    m, rows, missed = Machine(a, rank, torch), [], []
    if rank == 0 and not a.cpu:
        print(n, torch.cuda.get_device_name(), "torch", torch.__version__,
              flush=True)
    for c in chosen(a):
        if m.slowest(time.time() - start) > a.deadline:
            continue
        row = measure(a, c, m, where)
        if rank == 0:
            rows.append(row)
            print(line(row), flush=True)
            missed += [f"{c[0]}: {t}" for t in bars(row)]
            with open(a.out, "w") as f:
                json.dump(rows, f, indent=1)
        if not a.cpu:
            torch.cuda.empty_cache()
    if rank == 0:
        print(f"{len(rows)} cases, missed: {'; '.join(missed) or 'none'}; "
              f"{time.time() - start:.0f} s", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    ap = carry.options(__doc__, "parallel.json", 3)
    ap.add_argument("--ranks", type=int, default=0)
    ap.add_argument("--deadline", type=float, default=110)
    ap.add_argument("--cpu", action="store_true")
    ap.add_argument("--divide", type=int, default=1)
    a = ap.parse_args()
    if a.prep:
        return prepare(a)
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    import torch
    import torch.multiprocessing as mp
    n = a.ranks or (2 if a.cpu else torch.cuda.device_count())
    with tempfile.TemporaryDirectory() as where:
        for program in {c[1] for c in chosen(a)}:
            unpack(program, where)
        mp.spawn(worker, (a, n, where, time.time()), n)


if __name__ == "__main__":
    sys.exit(main())
