#!/usr/bin/env python3
"""Uneven batches: one graph with other lengths, one sequence in other batches.

    tools/bench/gpu/batches.py --prep DIR [--attnc PATH] [--target sm_90a]
    python3 DIR/batches.py [--filter TEXT] [--out FILE] [--passes N] [--ms N]
                           [--cpu]

--prep compiles `bounded` and `own` of serve.attn into DIR; the rest runs there,
on a machine with an NVIDIA GPU and PyTorch. A graph is captured with one set of
lengths and replayed with others (none, one, ends of pages and of parts, one
that is long): each replay is compared with f64 and with a launch outside of the
graph, bit by bit. With @split(own) a sequence has the same bits alone, in three
batches, and by a longer table. --cpu tries all but the graph without a GPU, on
short sequences."""
import math
import os
import sys

import carry

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ("bounded", "own")
HQ, HK, D, PAGE = 32, 8, 128, 16


# ---------------------------------------------------------------- batches
class Batch:
    """A query for each sequence, in a cache with room for `most` keys of each;
    sequences are rows of a pool, so that two batches may have the same."""
    def __init__(self, torch, dev, pool, rows, lengths, most):
        B = len(rows)
        self.torch, self.pool, self.rows = torch, pool, rows
        self.K, self.V = pool.K, pool.V
        self.pt = torch.full((B, -(-most // PAGE)), -1, device=dev,
                             dtype=torch.int32)
        for b, r in enumerate(rows):
            n = min(self.pt.shape[1], pool.pt.shape[1])
            self.pt[b, :n] = pool.pt[r, :n]
        self.len = torch.tensor(lengths, device=dev, dtype=torch.int32)
        self.q = pool.q[torch.tensor(rows, device=dev)].contiguous()
        self.out = torch.full_like(self.q, math.nan)
        self.cu = torch.arange(B + 1, device=dev, dtype=torch.int32)

    def launch(self, name):
        import attn
        prog = attn.load(os.path.join(HERE, name + ".so")).programs[0]
        return prog.prepare(Q=self.q, K=self.K, V=self.V, O=self.out, cu=self.cu,
                            pt=self.pt, **{"len": self.len})

    def error(self, some):
        """The largest error of some sequences; of one without keys, not 0."""
        worst = 0.0
        for b in some:
            want, got = self.reference(b), self.out[b].double()
            e = float((got - want).norm() / max(float(want.norm()), 1e-30))
            worst = max(worst, e if e == e else math.inf)
        return worst

    def reference(self, b):
        torch, n = self.torch, int(self.len[b])
        if not n:
            return torch.zeros(HQ, D, device=self.q.device, dtype=torch.float64)
        at = self.pt[b, :-(-n // PAGE)].long()
        k, v = (x[at].flatten(0, 1)[:n].double().repeat_interleave(HQ // HK, 1)
                for x in (self.K, self.V))
        s = torch.einsum("hd,khd->hk", self.q[b].double(), k) / math.sqrt(D)
        return torch.einsum("hk,khd->hd", s.softmax(-1), v)


class Pool:
    """Queries, keys and values of sequences, in pages in random order."""
    def __init__(self, torch, dev, sequences, longest):
        pages = -(-longest // PAGE)
        self.q = torch.randn(sequences, HQ, D, device=dev, dtype=torch.bfloat16)
        self.pt = torch.randperm(sequences * pages, device=dev).int().view(
            sequences, pages)
        self.K, self.V = (torch.randn(sequences * pages, PAGE, HK, D, device=dev,
                                      dtype=torch.bfloat16) for _ in "KV")


# ---------------------------------------------------------------- cases
def lengths(torch, B, longest):
    """Sets of lengths: even ones, ends of pages and parts, one long, none."""
    few = [0, 1, 2, 15, 16, 17, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097]
    few = [min(n, longest) for n in few]
    draw = torch.randint(0, longest + 1, (B,)).tolist()
    return {"even": [longest // 8] * B,
            "borders": [few[i % len(few)] for i in range(B)],
            "one long": [longest // 32] * (B - 1) + [longest],
            "drawn": draw,
            "none": [0] * B,
            "first alone": [longest] + [0] * (B - 1)}


def replays(torch, dev, name, B, longest):
    """Of a graph that was captured with even lengths."""
    pool = Pool(torch, dev, B, longest)
    sets = lengths(torch, B, longest)
    b = Batch(torch, dev, pool, list(range(B)), sets["even"], longest)
    run = b.launch(name)
    run()
    if dev == "cpu":
        play = run
    else:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        play = graph.replay
    for what, n in sets.items():
        b.len.copy_(torch.tensor(n, dtype=torch.int32))
        seen = []
        for again in (play, play, run):
            b.out.fill_(math.nan)
            again()
            seen.append(b.out.clone())
        yield {"case": f"graph-{name}-{B}x{longest}-{what.replace(' ', '-')}",
               "error": b.error({0, 1, B // 2, B - 1}),
               "same": all(torch.equal(seen[0], x) for x in seen[1:])}


def alone(torch, dev, name, longest, sizes):
    """Sequence 0 by itself and in batches, of which others are long or short."""
    pool, first = Pool(torch, dev, 32, longest), None
    for n in sizes:
        seen = []
        for rows, others, most in (([0], [], longest), ([0], [], 2 * longest),
                                   ([1, 0, 2], [longest, 1], longest),
                                   (list(range(32)), [64] * 31, longest),
                                   (list(range(31, -1, -1)), [longest] * 31,
                                    longest)):
            at = rows.index(0)
            b = Batch(torch, dev, pool, rows, others[:at] + [n] + others[at:],
                      most)
            b.launch(name)()
            seen.append((b.out[at].clone(), b.error({at})))
        yield {"case": f"alone-{name}-{n}", "error": max(e for _, e in seen),
               "same": all(torch.equal(seen[0][0], x) for x, _ in seen[1:])}


def times(a, torch, dev):
    """What parts of one's own cost: the same batches by both programs."""
    from triton.testing import do_bench
    for what, n in (("64*8192", [8192] * 64), ("16*2048", [2048] * 16),
                    ("63*1024+131072", [1024] * 63 + [131072]),
                    ("255*1024+16384", [1024] * 255 + [16384]),
                    ("1*131072", [131072]), ("1*8192", [8192])):
        longest = max(n)
        pages = [-(-x // PAGE) for x in n]
        pool = Pool(torch, dev, 1, sum(pages) * PAGE)
        pool.q = torch.randn(len(n), HQ, D, device=dev, dtype=torch.bfloat16)
        order, at = pool.pt[0], 0
        pool.pt = torch.full((len(n), max(pages)), -1, device=dev,
                             dtype=torch.int32)
        for i, m in enumerate(pages):
            pool.pt[i, :m] = order[at:at + m]
            at += m
        b = Batch(torch, dev, pool, list(range(len(n))), n, longest)
        runs = [b.launch(name) for name in PROGRAMS]
        us = [min(do_bench(r, warmup=10, rep=a.ms, return_mode="median")
                  for _ in range(a.passes)) * 1e3 for r in runs]
        yield {"case": f"time-{what}", "auto us": us[0], "own us": us[1],
               "error": b.error({0, len(n) - 1}), "same": True}


def main():
    ap = carry.options(__doc__, "batches.json", 3)
    ap.add_argument("--ms", type=int, default=20)
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    if a.prep:
        return carry.serving(a, PROGRAMS, D, __file__)
    import torch
    torch.manual_seed(1)
    dev = "cpu" if a.cpu else "cuda"
    shapes = [(3, 600)] if a.cpu else [(64, 8192), (24, 65536)]
    long = 1100 if a.cpu else 65536
    sizes = [0, 1, 513, 1100] if a.cpu else [0, 1, 512, 513, 8000, 40000, 65536]
    cases = {f"graph-{name}-{B}x{S}": replays(torch, dev, name, B, S)
             for B, S in shapes for name in PROGRAMS}
    cases["alone-own"] = alone(torch, dev, "own", long, sizes)
    if not a.cpu:
        cases["time"] = times(a, torch, dev)
    rows = [carry.said(r) for name, c in cases.items() if a.filter in name
            for r in c]
    return carry.verdict(a, rows)


if __name__ == "__main__":
    sys.exit(main())
