#!/usr/bin/env python3
"""What roundings of operands alone do to a recurrence's output.

    tools/bench/rounding.py [--type bf16|f16] [--seeds N] [--steps N] [--d N]

Programs of the library are evaluated twice on the same inputs, like those of their
check blocks: step by step in f64, and in chunks of 64 steps by the equations of
docs/recurrent.md with nothing but the operands of products rounded, and the
outputs. Printed are the largest error as a check measures it, |x - ref| / (|ref| +
rms(ref)), on average over the seeds and at most, its root of the mean square over
rms(ref), the number of roundings, and the tolerance that docs/testing.md makes of
it. Exit code 1: an average is larger. It shares no code with the compiler and needs
no packages."""
import argparse
import math
import operator
import random
import sys

CHUNK = 64
GATE = {"simple_gla": -0.3, "gated_delta": -0.2}   # the least
BITS = {"bf16": 8, "f16": 11}


def rounding(bits):
    def r(x):
        m, e = math.frexp(x)
        return math.ldexp(round(math.ldexp(m, bits)), e - bits)
    return r


def dot(a, b):
    return sum(map(operator.mul, a, b))


def turned(m):
    return [list(x) for x in zip(*m)]


def product(a, b):
    cols = turned(b)
    return [[dot(x, y) for y in cols] for x in a]


def each(f, *ms):
    return [[f(*x) for x in zip(*rows)] for rows in zip(*ms)]


def add(a, b):
    return each(operator.add, a, b)


# --------------------------------------------------------------- programs
# Of a step: q and k as products take them (`norm`: of unit length, rounded by the
# text), v, beta, and the logarithms of its decays, one a row.
def inputs(rnd, r, name, n, d):
    def normal(mean, scale):
        return [rnd.gauss(mean, scale) for _ in range(d)]

    def tensor(scale):
        return [[r(x) for x in normal(0, scale)] for _ in range(n)]
    norm = name in ("deltanet", "gated_delta", "kda")
    x = {"q": tensor(1), "v": tensor(1), "beta": [1.0] * n, "norm": norm,
         "k": tensor(1 if norm else 0.125), "u": None, "erase": norm,
         "rows": name not in ("simple_gla", "deltanet", "gated_delta"),
         "scale": 1 if name in ("hgrn2", "rwkv6") else d ** -0.5,
         "roundings": {"simple_gla": 2, "deltanet": 4, "gated_delta": 4,
                       "kda": 7}.get(name, 3)}
    if norm:
        x["beta"] = [rnd.random() for _ in range(n)]
    if name == "gla":
        x["g"] = [[rnd.uniform(-0.3, 0) for _ in range(d)] for _ in range(n)]
    elif name == "hgrn2":
        keep = [[1 / (1 + math.exp(-f)) for f in normal(3, 1)] for _ in range(n)]
        x["g"] = each(math.log, keep)
        x["k"] = each(lambda y: 1 - y, keep)
    elif name == "rwkv6":
        x["g"] = [[-math.exp(w) for w in normal(-3, 1)] for _ in range(n)]
        x["u"] = normal(0, 1)
    elif name == "kda":
        a, bias = math.exp(rnd.uniform(-2, 0)), normal(-2, 1)
        x["g"] = [[-a * math.log1p(math.exp(y + z)) for y, z in
                   zip(normal(-2, 1), bias)] for _ in range(n)]
    else:
        g = [GATE.get(name, 0) * rnd.random() for _ in range(n)]
        x["g"] = [[y] * d for y in g]
    x["S"] = [[rnd.gauss(0, 0.1) for _ in range(d)] for _ in range(d)]
    return x


def unit(v):
    n = math.sqrt(dot(v, v))
    return [x / n for x in v]


def steps(x):
    """The program's text in f64."""
    s, out = x["S"], []
    for t, (q, k, v, b) in enumerate(zip(x["q"], x["k"], x["v"], x["beta"])):
        if x["norm"]:
            q, k = unit(q), unit(k)
        if x["u"]:
            own = dot(q, map(operator.mul, x["u"], k))
            out.append([dot(q, c) + own * y for c, y in zip(turned(s), v)])
        s = [[math.exp(g) * y for y in row] for g, row in zip(x["g"][t], s)]
        old = [dot(k, c) for c in turned(s)] if x["erase"] else [0] * len(v)
        w = [b * (y - z) for y, z in zip(v, old)]
        s = [[y + kd * z for y, z in zip(row, w)] for kd, row in zip(k, s)]
        if not x["u"]:
            out.append([dot(q, c) for c in turned(s)])
    return each(lambda y: y * x["scale"], out)


# --------------------------------------------------------------- chunks
def solve(low, rhs):
    """(1 + low)^-1 rhs, low below the diagonal."""
    out = []
    for i, row in enumerate(rhs):
        out.append([y - sum(low[i][j] * out[j][c] for j in range(i))
                    for c, y in enumerate(row)])
    return out


def chunk(x, r, lo, s):
    """The outputs of a chunk, and the state behind it."""
    at = range(lo, min(lo + CHUNK, len(x["q"])))
    n, d = len(at), len(s)
    q, k = [x["q"][t] for t in at], [x["k"][t] for t in at]
    if x["norm"]:
        q, k = each(r, [unit(y) for y in q]), each(r, [unit(y) for y in k])
    sums, own = [], [0.0] * d
    for t in at:
        own = [a + b for a, b in zip(own, x["g"][t])]
        sums.append(own)
    mid = [y / 2 for y in own]
    before = [[a - b for a, b in zip(y, x["g"][t])] for y, t in zip(sums, at)]
    if x["rows"]:      # decays are in the vectors, rounded with them
        read = before if x["u"] else sums
        qs = [[r(a * math.exp(b - m)) for a, b, m in zip(*y, mid)]
              for y in zip(q, read)]
        ks = [[r(a * math.exp(m - b)) for a, b, m in zip(*y, mid)]
              for y in zip(k, sums)]
        ka = [[r(a * math.exp(b - m)) for a, b, m in zip(*y, mid)]
              for y in zip(k, sums)] if x["erase"] else None
        start = [[math.exp(m) * y for y in row] for m, row in zip(mid, s)]
        factor = [[1.0] * n] * n
        reads = [1.0] * n
    else:              # decays are numbers of steps, multiplied to the products
        g = [y[0] for y in sums]
        qs, ks, ka, start = q, k, k, s
        factor = [[math.exp(g[i] - g[j]) if j <= i else 0 for j in range(n)]
                  for i in range(n)]
        reads = [math.exp(y) for y in g]
    seen = product(qs, turned(ks))
    p = [[r(seen[i][j] * factor[i][j]) if j < i + (not x["u"]) else 0.0
          for j in range(n)] for i in range(n)]
    if x["u"]:
        for i, (a, b) in enumerate(zip(q, k)):
            p[i][i] = r(dot(a, map(operator.mul, x["u"], b)))
    e = [[x["beta"][t] * y for y in x["v"][t]] for t in at]
    if x["erase"]:     # T, W and E have two values: not rounded here
        cross = product(ka, turned(ks))
        low = [[x["beta"][t] * cross[i][j] * factor[i][j] if j < i else 0.0
                for j in range(n)] for i, t in enumerate(at)]
        whole = not x["rows"] and not any(own)   # the state has two as well
        old = product(ka, start if whole else each(r, start))
        e = solve(low, [[y - x["beta"][t] * reads[i] * z
                         for y, z in zip(e[i], old[i])]
                        for i, t in enumerate(at)])
    rest = product(qs, each(r, start))
    out = [[a + reads[i] * b for a, b in zip(*rows)]
           for i, rows in enumerate(zip(product(p, e), rest))]
    if x["rows"]:
        s = [[math.exp(m) * y for y in row] for m, row in
             zip(mid, add(start, product(turned(ks), e)))]
    else:
        end = [[math.exp(own[0] - sums[i][0]) * y for y in e[i]]
               for i in range(n)]
        if not x["erase"]:
            end = each(r, end)
        s = add([[math.exp(own[0]) * y for y in row] for row in s],
                product(turned(ks), end))
    return out, s


def chunks(x, r):
    s, out = x["S"], []
    for lo in range(0, len(x["q"]), CHUNK):
        o, s = chunk(x, r, lo, s)
        out += o
    return each(lambda y: r(y * x["scale"]), out)


def errors(got, want):
    n = sum(map(len, want))
    rms = math.sqrt(sum(y * y for row in want for y in row) / n)
    err = [(abs(a - b), abs(b)) for x, y in zip(got, want)
           for a, b in zip(x, y)]
    return (max(e / (b + rms) for e, b in err),
            math.sqrt(sum(e * e for e, _ in err) / n) / rms)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--type", default="bf16", choices=BITS)
    ap.add_argument("--seeds", type=int, default=10)
    ap.add_argument("--steps", type=int, default=75)
    ap.add_argument("--d", type=int, default=64)
    a = ap.parse_args()
    r, bad = rounding(BITS[a.type]), False
    print(f"{'':12} largest  at most  rms      roundings  tolerance")
    for name in ("simple_gla", "gla", "hgrn2", "rwkv6", "deltanet",
                 "gated_delta", "kda"):
        all_ = []
        for seed in range(a.seeds):
            x = inputs(random.Random(seed), r, name, a.steps, a.d)
            all_.append(errors(chunks(x, r), steps(x)))
        m, mean = x["roundings"], sum(e for e, _ in all_) / len(all_)
        tol = 2 * 2.0 ** -BITS[a.type] * m ** 0.5
        bad |= mean > tol
        print(f"{name:12} {mean:.1e}  {max(e for e, _ in all_):.1e}  "
              f"{sum(e for _, e in all_) / len(all_):.1e}  {m:9}  {tol:.1e}",
              flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
