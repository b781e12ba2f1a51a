#!/usr/bin/env python3
"""A serving-like decode loop: requests come and go, keys and values live in
pages of 16 that a free list hands out, and each step is one call of
`paged_decode` for whatever requests there are.

    decode.py [--device cuda] [--library paged.so] [--requests N] [--steps N]

NumPy on the CPU, PyTorch on CUDA. Every 8th step a request's result is compared
with attention over its own history in f64."""
import argparse
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../python"))

import numpy as np  # noqa: E402

import attn  # noqa: E402

HEADS, GROUPS, D, PAGE = 8, 2, 64, 16


class Host:
    """Arrays of NumPy, f32."""

    tolerance = 1e-5

    def array(self, x):
        return np.ascontiguousarray(x, np.float32)

    def ints(self, x):
        return np.array(x, np.int32)

    def numpy(self, x):
        return x

    def wait(self):
        pass


class Cuda:
    """Arrays of PyTorch on a GPU, bf16."""

    tolerance = 1e-2

    def __init__(self):
        import torch
        self.torch = torch

    def array(self, x):
        return self.torch.tensor(x, dtype=self.torch.bfloat16, device="cuda")

    def ints(self, x):
        return self.torch.tensor(x, dtype=self.torch.int32, device="cuda")

    def numpy(self, x):
        return x.float().cpu().numpy()

    def wait(self):
        self.torch.cuda.synchronize()


class Cache:
    """Pages of keys and values, and who has which."""

    def __init__(self, xp, pages):
        shape = pages, PAGE, GROUPS, D
        self.k, self.v = xp.array(np.zeros(shape)), xp.array(np.zeros(shape))
        self.free = list(range(pages))

    def append(self, request, k, v):
        if request.length % PAGE == 0:
            request.pages.append(self.free.pop())
        page, slot = request.pages[-1], request.length % PAGE
        self.k[page, slot], self.v[page, slot] = k, v
        request.length += 1

    def release(self, request):
        self.free += request.pages


class Request:
    def __init__(self, wanted):
        self.wanted, self.length, self.pages = wanted, 0, []


def table(requests):
    """Pages of all requests, -1 behind the last."""
    most = max(len(r.pages) for r in requests)
    return [r.pages + [-1] * (most - len(r.pages)) for r in requests]


def reference(xp, cache, request, q):
    """One request's result in f64, from what the cache holds."""
    pages = [xp.numpy(c[p]) for c in (cache.k, cache.v) for p in request.pages]
    n = len(request.pages)
    k, v = (np.concatenate(x)[:request.length].astype("f8")
            .repeat(HEADS // GROUPS, 1) for x in (pages[:n], pages[n:]))
    s = np.einsum("hd,khd->hk", q.astype("f8"), k) / np.sqrt(D)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hk,khd->hd", p / p.sum(-1, keepdims=True), v)


def step(program, xp, cache, requests, rng):
    """A token for each request; returns queries, results."""
    n = len(requests)
    q, k, v = (xp.array(rng.standard_normal((n, h, D)))
               for h in (HEADS, GROUPS, GROUPS))
    for i, r in enumerate(requests):
        cache.append(r, k[i], v[i])
    o = program(q[:, None], cache.k, cache.v,
                xp.ints([r.length for r in requests]), xp.ints(table(requests)))
    return q, o[:, 0]


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--library")
    ap.add_argument("--requests", type=int, default=12)
    ap.add_argument("--steps", type=int, default=64)
    a = ap.parse_args()
    cuda = a.device == "cuda"
    xp = Cuda() if cuda else Host()
    lib = attn.load(a.library) if a.library else attn.compile(
        os.path.join(HERE, "../../stdlib/attention/paged.attn"),
        fn="paged_decode", target="sm_90a" if cuda else "cpu",
        dims={"T": "bf16" if cuda else "f32", "D": D})
    program = lib.programs[0]
    rng = np.random.default_rng(0)
    cache = Cache(xp, a.requests * (a.steps // PAGE + 2))
    waiting = [Request(int(n)) for n in rng.integers(5, a.steps, a.requests)]
    running, done, tokens, worst, spent = [], 0, 0, 0.0, 0.0
    for i in range(4 * a.steps):
        if waiting and i % 2 == 0:
            running.append(waiting.pop())
        if not running:
            break
        start = time.perf_counter()
        q, o = step(program, xp, cache, running, rng)
        xp.wait()
        spent += time.perf_counter() - start
        tokens += len(running)
        if i % 8 == 0:
            want = reference(xp, cache, running[0], xp.numpy(q[0]))
            err = abs(xp.numpy(o[0]) - want) / (
                abs(want) + np.sqrt((want ** 2).mean()))
            worst = max(worst, float(err.max()))
        for r in [r for r in running if r.length >= r.wanted]:
            cache.release(r)
            running.remove(r)
            done += 1
    print(f"{done} requests, {tokens} tokens, {spent * 1e6 / tokens:.0f} us a "
          f"token, largest error {worst:.1e} of {xp.tolerance:.0e}")
    assert worst <= xp.tolerance and done == a.requests
    print("all requests served")


if __name__ == "__main__":
    main()
