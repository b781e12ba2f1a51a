#!/usr/bin/env python3
"""New keys and values written to a cache, beside a plain copy of as many bytes.

    tools/bench/gpu/append.py --prep OUT [--attnc PATH] [--target sm_90a]
    python3 OUT/append.py [--passes N] [--ms N] [--out FILE]

--prep compiles the programs of stdlib/attention/append.attn into OUT, which is
carried to a machine with an NVIDIA GPU and PyTorch. Slots are a random
permutation. Keys and values that were written are compared with f64's; the rate
counts each byte read and written once, and so does that of the copy."""
import math
import os
import subprocess
import sys

import carry

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(carry.TOP, "stdlib", "attention", "append.attn")
HQ, HK, D = 32, 8, 128
TOKENS = (64, 8192)


def prepare(a):
    os.makedirs(a.prep, exist_ok=True)
    for name in ("append", "append_8bit"):
        subprocess.run(
            [a.attnc, LIBRARY, "--fn", name, "--shared", "--target", a.target,
             "-D", f"D={D}", "-D", "T=bf16", "-o",
             os.path.join(a.prep, name + ".so")], check=True)
    carry.script(a, __file__)


def normed(torch, x, w, at):
    """RMS norm, then the rotation that pairs a number with that D/2 behind."""
    x = x.double()
    x = x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w.double()
    half = D // 2
    freq = 10000.0 ** (-torch.arange(half, device=x.device).double() / half)
    t = (at.double()[:, None] * freq)[:, None]
    lo, hi = x[..., :half], x[..., half:]
    return torch.cat([lo * t.cos() - hi * t.sin(), hi * t.cos() + lo * t.sin()], -1)


def inputs(torch, name, n):
    rand = lambda *s: torch.randn(*s, device="cuda").bfloat16()
    m = 2 * n
    have = {"newK": rand(n, HK, D), "newV": rand(n, HK, D),
            "slot": torch.randperm(m, device="cuda")[:n].int(),
            "K": rand(m, HK, D), "V": rand(m, HK, D)}
    if name == "append_8bit":
        have.update(
            newQ=rand(n, HQ, D), wq=torch.rand(D, device="cuda") + 0.5,
            wk=torch.rand(D, device="cuda") + 0.5,
            pos=torch.randint(0, 4000, (n,), device="cuda").int(),
            K=have["K"].to(torch.float8_e4m3fn), V=have["V"].to(torch.float8_e4m3fn),
            kscale=torch.zeros(m, HK, device="cuda"),
            vscale=torch.zeros(m, HK, device="cuda"),
            Q=torch.full((n, HQ, D), math.nan, device="cuda").bfloat16())
    return have


def pairs(torch, name, h):
    """What was written and what should have been, and the type's tolerance."""
    at = h["slot"].long()
    if name == "append":
        return [(h["K"][at], h["newK"]), (h["V"][at], h["newV"])]
    back = lambda x: (h[x].view(torch.uint8)[at].view(torch.float8_e4m3fn).double()
                      * h[x.lower() + "scale"][at][..., None].double())
    return [(back("K"), normed(torch, h["newK"], h["wk"], h["pos"])),
            (back("V"), h["newV"]),
            (h["Q"], normed(torch, h["newQ"], h["wq"], h["pos"]))]


def written(torch, h):
    """The bytes of all that a launch writes."""
    names = ("K", "V", "kscale", "vscale", "Q")
    return [h[x].view(torch.uint8).clone() for x in names if x in h]


def moved(name, n):
    """Bytes that a launch reads and writes."""
    if name == "append":
        return n * HK * D * 2 * 4
    return n * (HQ * D * 4 + HK * D * 2 * 3 + HK * 8)


def measure(a, torch, name, n):
    import attn
    from triton.testing import do_bench
    h = inputs(torch, name, n)
    run = attn.load(os.path.join(HERE, name + ".so")).programs[0].prepare(**h)
    run()
    error = max(((x.double() - y.double()).norm() / y.double().norm()).item()
                for x, y in pairs(torch, name, h))
    first = written(torch, h)
    run()
    same = all(torch.equal(x, y) for x, y in zip(first, written(torch, h)))
    src = torch.empty(moved(name, n) // 2, dtype=torch.uint8, device="cuda")
    dst = torch.empty_like(src)

    def least(fn):
        return 1e3 * min(do_bench(fn, warmup=10, rep=a.ms, return_mode="median")
                         for _ in range(a.passes))

    us, copy = least(run), least(lambda: dst.copy_(src))
    # The 8 bits have 3 of the mantissa.
    return {"case": f"{name}-{n}", "us": us, "copy_us": copy, "error": error,
            "tol": 1e-2 if name == "append" else 5e-2,
            "GB/s": moved(name, n) / us / 1e3, "same": same}


def main():
    ap = carry.options(__doc__, "append.json", 3)
    ap.add_argument("--ms", type=int, default=30)
    a = ap.parse_args()
    if a.prep:
        return prepare(a)
    import torch
    torch.manual_seed(1)
    rows = []
    for name in ("append", "append_8bit"):
        for n in TOKENS:
            rows.append(carry.said(measure(a, torch, name, n)))
    return carry.verdict(a, rows)


if __name__ == "__main__":
    sys.exit(main())
