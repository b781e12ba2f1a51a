#!/usr/bin/env python3
"""Our CPU kernels beside PyTorch's scaled_dot_product_attention, and beside
FlexAttention where it compiles, in one process, on the same tensors.

    tools/bench/cpu.py [--cases prefill,decode,backward] [--dtypes f32,bf16]
                       [--threads 1,all] [--heads N] [--size S] [--dim D]
                       [--rounds N] [--calls N] [--target cpu] [--flex] [--json]
                       [--prep DIR | --libs DIR]

A round runs all contenders of a case, one after the other, in an order that
turns, each several times: the first call may wait for CPUs on which the threads
of the one before still spin. The least time of all rounds counts, as what else
runs on the machine only ever adds some. `ratio` is the peer's time over ours.
Prefill and backward are causal attention with as many queries as keys, decode is
one query of each head against a cache of the size, which is read once: GB/s of
keys and values.
Needs PyTorch, attnc and libattn (a build tree's are found). --prep compiles only,
into DIR with libattn; --libs takes that where there is no attnc."""
import argparse
import json
import os
import shutil
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tools", "python"))

import torch
import torch.nn.functional as F

import attn

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
LIBRARY = os.path.join(TOP, "stdlib", "attention")
GRAD = ("--grad=Q,K,V",)


def compiled(a, file, fn, dtype, options=()):
    name = f"{fn}_{dtype}_{a.dim}{'_grad' if options else ''}.so"
    if a.libs:
        lib = attn.load(os.path.join(a.libs, name))
    else:
        lib = attn.compile(os.path.join(LIBRARY, file), fn=fn, target=a.target,
                           dims={"T": dtype, "D": a.dim}, options=options)
    if a.prep:
        shutil.copy(lib.path, os.path.join(a.prep, name))
    return lib[f"{fn}_{dtype}"] if f"{fn}_{dtype}" in [p.name for p in lib] else lib[fn]


def flex(q, k, v, causal):
    """FlexAttention compiled for these tensors, or None."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    mask = causal and create_block_mask(lambda b, h, i, j: i >= j, None, None,
                                        q.shape[2], k.shape[2], device="cpu")
    run = torch.compile(flex_attention)
    try:
        run(q, k, v, block_mask=mask or None)
    except Exception as e:  # no compiler, no template for this CPU
        print("flex: " + str(e).splitlines()[0], file=sys.stderr)
        return None
    return lambda: run(q, k, v, block_mask=mask or None)


def prepare(a):
    """All that the cases need, and the runtime, in a.prep."""
    os.makedirs(a.prep, exist_ok=True)
    shutil.copy(attn.runtime()._name, os.path.join(a.prep, "libattn.so"))
    for dtype in a.dtypes.split(","):
        compiled(a, "mha.attn", "mha_causal", dtype)
        compiled(a, "mha.attn", "mha_causal", dtype, GRAD)
        compiled(a, "decode.attn", "gqa_decode", dtype)


def prefill(a, dtype):
    q, k, v = (torch.randn(1, a.heads, a.size, a.dim).to(DTYPES[dtype])
               for _ in range(3))
    ours = compiled(a, "mha.attn", "mha_causal", dtype)
    out = [torch.empty_like(q), None]
    launch = ours.prepare(q, k, v, out=out)
    what = {"ours": launch, "sdpa": lambda: F.scaled_dot_product_attention(
        q, k, v, is_causal=True)}
    if a.flex:
        what["flex"] = flex(q, k, v, True)
    return what, 2 * a.heads * a.size ** 2 * a.dim, "GFLOP/s", out[0]


def decode(a, dtype):
    q = torch.randn(1, a.heads, 1, a.dim).to(DTYPES[dtype])
    k, v = (torch.randn(1, a.heads, a.size, a.dim).to(DTYPES[dtype])
            for _ in range(2))
    ours = compiled(a, "decode.attn", "gqa_decode", dtype)
    rows = [x.transpose(1, 2) for x in (q, k, v)]
    out = [torch.empty_like(rows[0]), None]
    full = torch.tensor([a.size], dtype=torch.int32)
    launch = ours.prepare(*rows, full, out=out)
    what = {"ours": launch,
            "sdpa": lambda: F.scaled_dot_product_attention(q, k, v)}
    if a.flex:
        what["flex"] = flex(q, k, v, False)
    return what, 2 * k.numel() * k.element_size(), "GB/s", out[0].transpose(1, 2)


def backward(a, dtype):
    q, k, v = (torch.randn(1, a.heads, a.size, a.dim).to(DTYPES[dtype])
               .requires_grad_() for _ in range(3))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    do = torch.randn_like(o)
    ours = compiled(a, "mha.attn", "mha_causal", dtype, GRAD)
    _, saved = ours(q.detach(), k.detach(), v.detach(), save=True)

    def peer():
        return torch.autograd.grad(o, (q, k, v), do, retain_graph=True)
    what = {"ours": lambda: ours.grad(saved, d_O=do), "sdpa": peer}
    return what, 5 * a.heads * a.size ** 2 * a.dim, "GFLOP/s", None


CASES = {"prefill": prefill, "decode": decode, "backward": backward}


def measure(what, rounds, calls):
    """Least seconds of each contender, whose turns are so many calls."""
    names = [n for n in what if what[n]]
    best = dict.fromkeys(names, float("inf"))
    for n in names:
        what[n]()
    for i in range(rounds):
        for n in names[i % len(names):] + names[:i % len(names)]:
            for _ in range(calls):
                begin = time.perf_counter()
                what[n]()
                best[n] = min(best[n], time.perf_counter() - begin)
    return best


def close(what, out, dtype):
    """Our result beside the peer's."""
    if out is None:
        return True
    what["ours"]()
    x, y = out.float(), what["sdpa"]().float()
    return bool((x - y).abs().max() <= (1e-4 if dtype == "f32" else 5e-2) *
                (1 + y.abs().max()))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("--cases", default="prefill,decode,backward")
    ap.add_argument("--dtypes", default="f32,bf16")
    ap.add_argument("--threads", default="1,all")
    ap.add_argument("--heads", type=int, default=32)
    ap.add_argument("--size", type=int, default=4096)
    ap.add_argument("--dim", type=int, default=128)
    ap.add_argument("--rounds", type=int, default=10)
    ap.add_argument("--calls", type=int, default=3)
    ap.add_argument("--target", default="cpu")
    ap.add_argument("--flex", action="store_true")
    ap.add_argument("--json", action="store_true")
    ap.add_argument("--prep")
    ap.add_argument("--libs")
    a = ap.parse_args()
    if a.prep:
        return prepare(a)
    if a.libs:
        os.environ.setdefault("ATTN_LIBRARY", os.path.join(a.libs, "libattn.so"))
    every = len(os.sched_getaffinity(0))
    if not a.json:
        print(f"{'case':10}{'type':6}{'threads':>8}  contenders: rate, peer's time over ours")
    for case in a.cases.split(","):
        for dtype in a.dtypes.split(","):
            what, work, unit, out = CASES[case](a, dtype)
            if not close(what, out, dtype):
                sys.exit(f"{case} {dtype}: results differ")
            for t in a.threads.split(","):
                n = every if t == "all" else int(t)
                torch.set_num_threads(n)
                attn.threads(n)
                best = measure(what, a.rounds, a.calls)
                if a.json:
                    print(json.dumps(dict(case=case, dtype=dtype, threads=n, unit=unit,
                                          work=work, seconds=best)))
                    continue
                parts = [f"{name} {work / s * 1e-9:.1f} {unit}" +
                         (f" ({s / best['ours']:.2f})" if name != "ours" else "")
                         for name, s in best.items()]
                print(f"{case:10}{dtype:6}{n:8}  " + ", ".join(parts), flush=True)


if __name__ == "__main__":
    main()
