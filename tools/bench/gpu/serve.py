#!/usr/bin/env python3
"""Decoding as engines call it: packed queries, lengths of their own, drafts.

    tools/bench/gpu/serve.py --prep OUT [--attnc PATH] [--target sm_90a]
    python3 OUT/serve.py [--filter TEXT] [--passes N] [--ms N] [--out FILE]

--prep compiles the programs of serve.attn into OUT, which is carried to a
machine with an NVIDIA GPU and PyTorch. Keys lie in pages of 16 in random order,
lengths are random between half of the longest and that. Some sequences are
compared with f64; the rate is that of the keys' bytes."""
import math
import os
import sys

import carry

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ("packed", "bounded", "tree", "eight", "tokens")
HQ, HK, D, PAGE, DRAFTS = 32, 8, 128, 16, 8
NARROW = {"eight": (), "tokens": (PAGE,)}   # programs of 8-bit caches
# sequences, longest, queries of each
CASES = ((64, 1024, 1), (64, 8192, 1), (32, 8192, 4), (1, 32768, 1))


class Cache:
    """Keys and values in pages; of 8 bits with scales of heads, or of each slot."""
    def __init__(self, torch, name, B, S, dev):
        pages = -(-S // PAGE)
        self.torch, self.dev, self.scales = torch, dev, {}
        self.pt = torch.randperm(B * pages, device=dev).int().view(B, pages)
        self.K, self.V = (torch.randn(B * pages, PAGE, HK, D, device=dev,
                                      dtype=torch.bfloat16) for _ in "KV")
        if name in NARROW:
            slots = ((B * pages,) + NARROW[name]) if NARROW[name] else ()
            self.K, self.V = (x.to(torch.float8_e4m3fn) for x in (self.K, self.V))
            self.scales = {s: torch.rand(*slots, HK, device=dev) + 0.5
                           for s in ("kscale", "vscale")}
        self.len = torch.randint(max(S // 2, DRAFTS), S + 1, (B,), device=dev,
                                 dtype=torch.int32)

    def bytes(self):
        scales = sum(4 * HK for s in self.scales.values() if s.ndim > 1)
        each = 2 * HK * D * self.K.element_size() + scales
        return int(self.len.sum()) * each

    def sequence(self, b):
        n, at = int(self.len[b]), self.pt[b].long()
        for x, name in ((self.K, "kscale"), (self.V, "vscale")):
            s, kind, bits = self.scales.get(name), x.dtype, self.torch.uint8
            x = (x.view(bits)[at].view(kind) if s is not None else x[at]).double()
            if s is not None:
                x = x * (s if s.ndim == 1 else s[at])[..., None].double()
            yield x.flatten(0, 1)[:n].repeat_interleave(HQ // HK, 1)

    def reference(self, b, q, see):
        torch, (k, v) = self.torch, self.sequence(b)
        n, rows = len(k), len(q)
        shown = torch.ones(rows, n, dtype=torch.bool, device=self.dev)
        shown[:, n - rows:] = see
        s = torch.einsum("qhd,khd->hqk", q.double(), k) / math.sqrt(D)
        s = s.masked_fill(~shown, -math.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", s, v)


def call(torch, name, c, B, rows):
    """The launch, its output by sequence, what queries see of each other."""
    import attn
    lib = attn.load(os.path.join(HERE, name + ".so"))
    q = torch.randn(B, rows, HQ, D, device=c.dev, dtype=torch.bfloat16)
    out = torch.full_like(q, math.nan)
    see = torch.ones(B, rows, rows, device=c.dev).tril().bool()
    have = {"K": c.K, "V": c.V, "len": c.len, "pt": c.pt, **c.scales}
    if name == "tree":
        see = torch.rand(see.shape, device=c.dev) < 0.5
        see |= torch.eye(rows, device=c.dev).bool()
        have.update(Q=q, O=out, see=see)
    else:
        cu = torch.arange(0, B * rows + 1, rows, device=c.dev).int()
        have.update(Q=q.flatten(0, 1), O=out.view(B * rows, HQ, D), cu=cu)
    return lib.programs[0].prepare(**have), q, out, see


def measure(a, torch, dev, name, B, S, rows):
    from triton.testing import do_bench
    c = Cache(torch, name, B, S, dev)
    run, q, out, see = call(torch, name, c, B, rows)
    run()
    torch.cuda.synchronize()
    error = 0.0
    for b in {0, B // 2, B - 1}:
        want = c.reference(b, q[b], see[b])
        e = ((out[b].double() - want).norm() / want.norm()).item()
        error = max(error, e if e == e else math.inf)
    first = out.clone()
    run()
    us = min(do_bench(run, warmup=10, rep=a.ms, return_mode="median")
             for _ in range(a.passes)) * 1e3
    return {"case": f"{name}-{B}x{S}-q{rows}", "us": us, "error": error,
            "GB/s": c.bytes() / us / 1e3, "same": torch.equal(first, out)}


def main():
    ap = carry.options(__doc__, "serve.json", 3)
    ap.add_argument("--ms", type=int, default=30)
    a = ap.parse_args()
    if a.prep:
        return carry.serving(a, PROGRAMS, D, __file__)
    import torch
    torch.manual_seed(1)
    rows = []
    for B, S, queries in CASES:
        for name in PROGRAMS:
            if a.filter not in name:
                continue
            n = DRAFTS if name == "tree" else queries
            rows.append(carry.said(measure(a, torch, "cuda", name, B, S, n)))
    return carry.verdict(a, rows)


if __name__ == "__main__":
    sys.exit(main())
