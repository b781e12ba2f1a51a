#!/usr/bin/env python3
"""Common kinds of attention beside plain softmax, per FLOP.

    tools/bench/gpu/kinds.py --prep DIR [--attnc PATH] [--target sm_90a]
    python3 DIR/kinds.py [--filter TEXT] [--out FILE] [--passes N] [--ms N] [--cpu]

--prep compiles the programs of kinds.attn into DIR; the rest runs there, on a
machine with an NVIDIA GPU and PyTorch. A program's FLOP are those of its
products in all tiles of 128 x 128 that have a visible pair; its share is its
FLOP a second over those of `plain` (causal) or `full` at the same shape.
Outputs are filled with NaN first, some rows are compared with f64, and two
launches must be the same bits. --cpu tries the script on short sequences."""
import math
import os
import statistics
import subprocess
import sys

import carry

HERE = os.path.dirname(os.path.abspath(__file__))
B, H, TILE = 1, 16, 128
LENGTHS, SHORT = (2048, 4096, 8192), (256,)
CHUNK, OFF, PIXELS, AROUND, BLOCKS = 1000, 300, 64, 15, 16
GROUPS = (64, 32, 8, 8192)   # decoding: batch, heads, heads of keys, keys
SHORT_GROUPS = (2, 4, 2, 100)


# ---------------------------------------------------------------- kinds
class Kind:
    """mask(q, k), score(m, h, q, k) added, vec(x, at) applied to queries and
    keys: over arrays of positions; products: of D each, of a pair."""
    beside, D, products, tensors = "plain", 128, 2, ""

    def __init__(self, torch):
        self.torch = torch

    def make(self, m, S, dev):
        return {}

    def mask(self, q, k):
        return k <= q

    def add(self, m, h, q, k):
        return 0

    def vec(self, m, x, at, name):
        return x

    def out(self, m, h, q, o):
        return o

    def touched(self, S):
        """Tiles that have a visible pair."""
        at = self.torch.arange(S)
        seen = self.mask(at[:, None], at[None, :])
        return int(seen.view(S // TILE, TILE, S // TILE, TILE)
                   .any(3).any(1).sum())

    def flop(self, S):
        return 2 * self.products * self.D * self.touched(S) * TILE ** 2 * B * H


def rotated(torch, x, at, n):
    """The first 2 n elements of x in pairs (i, i + n)."""
    i = torch.arange(n, device=x.device)
    angle = at[:, None].double() * 10000.0 ** (-i.double() / n)
    lo, hi = x[:, :n], x[:, n:2 * n]
    c, s = torch.cos(angle), torch.sin(angle)
    return torch.cat([lo * c - hi * s, hi * c + lo * s, x[:, 2 * n:]], 1)


class NormOfRotation(Kind):
    def make(self, m, S, dev):
        return {w: self.torch.rand(self.D, device=dev) + 0.5
                for w in ("wq", "wk")}

    def vec(self, m, x, at, name):
        y = rotated(self.torch, x, at, self.D // 2)
        norm = (y.square().mean(1, keepdim=True) + 1e-6).rsqrt()
        return y * norm * m["w" + name].double()


class PartialRotation(Kind):
    def vec(self, m, x, at, name):
        return rotated(self.torch, x, at, self.D // 4)


class Chunked(Kind):
    def make(self, m, S, dev):
        return {"n": CHUNK, "off": OFF}

    def mask(self, q, k):
        return (k <= q) & ((k + OFF) // CHUNK == (q + OFF) // CHUNK)


class Image(Kind):
    beside = "full"

    def make(self, m, S, dev):
        return {"table": self.torch.randn(H, AROUND, AROUND, device=dev),
                "X": PIXELS}

    def mask(self, q, k):
        n = AROUND // 2
        return ((k // PIXELS - q // PIXELS).abs() <= n) \
            & ((k % PIXELS - q % PIXELS).abs() <= n)

    def add(self, m, h, q, k):
        at = [(d + AROUND // 2).clamp(0, AROUND - 1)
              for d in (k // PIXELS - q // PIXELS, k % PIXELS - q % PIXELS)]
        return m["table"][h][at[0], at[1]].double()


class Relative(Kind):
    products = 3

    def make(self, m, S, dev):
        return {"R": self.torch.randn(H, S, self.D, device=dev).bfloat16()}

    def add(self, m, h, q, k):
        r = m["R"][h].double()[(q - k).clamp(min=0)]
        return (m["Q"][0, h, q.flatten()].double()[:, None] * r).sum(2) \
            * self.D ** -0.5


class Gated(Kind):
    D, beside = 256, "plain256"

    def make(self, m, S, dev):
        return {"G": self.torch.randn_like(m["Q"])}

    def out(self, m, h, q, o):
        return o * self.torch.sigmoid(m["G"][0, h, q].double())


class Blocks(Kind):
    beside = "full"

    def make(self, m, S, dev):
        n = min(BLOCKS, S // 64)
        rows = self.torch.rand(B, H, S // TILE, S // 64, device=dev)
        return {"sel": rows.argsort(3)[..., :n].int().contiguous()}

    def mask_of(self, m, h, q, S):
        seen = self.torch.zeros(len(q), S // 64, dtype=self.torch.bool,
                                device=q.device)
        seen.scatter_(1, m["sel"][0, h, q // TILE].long(), True)
        return seen.repeat_interleave(64, 1)

    def flop(self, S):
        return 2 * 2 * self.D * S * min(BLOCKS, S // 64) * 64 * B * H


class Full(Kind):
    beside = "full"

    def mask(self, q, k):
        return (k >= 0) & (q >= 0)


class Plain256(Kind):
    D = 256


KINDS = {"plain": Kind, "full": Full, "plain256": Plain256,
         "norm_of_rotation": NormOfRotation,
         "partial_rotation": PartialRotation, "chunked": Chunked,
         "image": Image, "relative": Relative, "gated": Gated,
         "blocks": Blocks}
BASES = ("plain", "full", "plain256")
DECODES = ("decode", "decode_row")


# ---------------------------------------------------------------- preparing
def prepare(a):
    os.makedirs(a.prep, exist_ok=True)
    for name in [*KINDS, *DECODES]:
        D = KINDS[name].D if name in KINDS else 128
        subprocess.run(
            [a.attnc, os.path.join(HERE, "kinds.attn"), "--fn",
             name.replace("256", ""), "--shared", "--target", a.target,
             "--prefix", "kinds", "-D", "T=bf16", "-D", f"D={D}",
             "-o", os.path.join(a.prep, name + ".so")], check=True)
    carry.script(a, __file__)
    print(f"{len(KINDS) + len(DECODES)} libraries in {a.prep}")


# ---------------------------------------------------------------- measuring
def program(name, out, **tensors):
    import attn
    lib = attn.load(os.path.join(HERE, name + ".so"))
    go = lib[name.replace('256', '')].prepare(O=out, **tensors)

    def launch():
        go()
        return out
    return launch


def reference(torch, kind, m, h, q, S):
    """Rows q of head h in f64."""
    k = torch.arange(S, device=q.device)
    x = kind.vec(m, m["Q"][0, h, q].double(), q, "q")
    y = kind.vec(m, m["K"][0, h].double(), k, "k")
    s = x @ y.T * kind.D ** -0.5 + kind.add(m, h, q[:, None], k[None, :])
    seen = kind.mask_of(m, h, q, S) if hasattr(kind, "mask_of") else \
        kind.mask(q[:, None], k[None, :])
    p = torch.softmax(s.masked_fill(~seen, -math.inf), 1)
    return kind.out(m, h, q, p @ m["V"][0, h].double())


def is_same_twice(torch, launch, out):
    first = []
    for _ in range(2):
        out.fill_(math.nan)
        first.append(launch().clone())
    return torch.equal(*first)


def case(torch, name, S, dev):
    """(launch, FLOP, error, whether two launches are the same bits)"""
    kind = KINDS[name](torch)
    m = {x: torch.randn(B, H, S, kind.D, device=dev).bfloat16() for x in "QKV"}
    more = kind.make(m, S, dev)
    m.update(more)
    out = torch.empty_like(m["Q"])
    launch = program(name, out, **{x: m[x] for x in "QKV"}, **more)
    same = is_same_twice(torch, launch, out)
    q = torch.tensor([0, 1, S // 3, S // 2 + 1, S - 1], device=dev)
    err = 0
    for h in (0, H - 1):
        want = reference(torch, kind, m, h, q, S)
        err = max(err, float((out[0, h, q].double() - want).norm()
                             / want.norm()))
    return launch, kind.flop(S), err, same


def decoding(torch, name, dev, c):
    batch, hq, hk, S = c
    rows = (1,) if name == "decode_row" else ()
    q = torch.randn(batch, hq, *rows, 128, device=dev).bfloat16()
    k, v = [torch.randn(batch, hk, S, 128, device=dev).bfloat16()
            for _ in range(2)]
    out = torch.empty_like(q)
    launch = program(name, out, Q=q, K=k, V=v)
    same = is_same_twice(torch, launch, out)
    x = q.view(batch, hq, 128)[-1, -1].double()
    w = torch.softmax(k[-1, -1].double() @ x * 128 ** -0.5, 0)
    want = w @ v[-1, -1].double()
    got = out.view(batch, hq, 128)[-1, -1].double()
    return launch, 1, float((got - want).norm() / want.norm()), same


def timed(a, todo):
    """Median milliseconds of each, in turns."""
    from triton.testing import do_bench
    t = {name: [] for name in todo}
    order = list(todo)
    for p in range(a.passes):
        k = p % len(order)
        for name in order[k:] + order[:k]:
            t[name].append(do_bench(todo[name][0], warmup=10, rep=a.ms,
                                    return_mode="median"))
    return {name: statistics.median(x) for name, x in t.items()}


def measure(a, torch, dev, at, todo, beside):
    rows = []
    ms = timed(a, todo) if dev == "cuda" else {}
    for name, (_, flop, err, same) in todo.items():
        row = {"case": f"{name}-{at}", "error": err, "same": same}
        if ms:
            row.update(ms=ms[name], share=flop / ms[name] * ms[beside(name)]
                       / todo[beside(name)][1])
        rows.append(row)
        print(" ".join(f"{k} {v:.4g}" if isinstance(v, float) else str(v)
                       for k, v in row.items()), flush=True)
    return rows


def main():
    ap = carry.options(__doc__, "kinds.json", 3)
    ap.add_argument("--ms", type=int, default=30)
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    if a.prep:
        return prepare(a)
    import torch
    dev = "cpu" if a.cpu else "cuda"
    torch.manual_seed(1)
    rows = []
    wanted = [n for n in KINDS if n in BASES or a.filter in n]
    for S in SHORT if a.cpu else LENGTHS:
        todo = {n: case(torch, n, S, dev) for n in wanted}
        rows += measure(a, torch, dev, S, todo, lambda n: KINDS[n].beside)
    c = SHORT_GROUPS if a.cpu else GROUPS
    todo = {n: decoding(torch, n, dev, c) for n in DECODES}
    rows += measure(a, torch, dev, "b%d_h%d_%d_s%d" % c, todo,
                    lambda n: "decode_row")
    return carry.verdict(a, rows)


if __name__ == "__main__":
    sys.exit(main())
