#!/usr/bin/env python3
"""Embedding on a machine with an NVIDIA GPU: a compiled program called from
Python, PyTorch eager, torch.compile and CUDA graphs, from a container, by
pointers alone; what a call costs the host.

    embed.py GQA.so GQA.attnb [--out FILE.json]

GQA: stdlib/attention/gqa.attn for bf16 and D = Dv = 64, as a library
(--target cpu,sm_90a) and as a container. Needs the package attn on the path."""
import argparse
import ctypes
import json
import math
import threading
import time

import torch

import attn
import attn.torch

DONE = {}


def check(name, fine, **more):
    DONE[name] = {"ok": bool(fine), **more}
    print(f"{'ok  ' if fine else 'BAD '} {name} "
          + " ".join(f"{k}={v}" for k, v in more.items()), flush=True)


def inputs(device, b=2, hq=8, hk=2, s=300):
    g = torch.Generator().manual_seed(1)
    return [torch.randn(b, s, h, 64, generator=g).to(device, torch.bfloat16)
            .transpose(1, 2) for h in (hq, hk, hk)]


def reference(q, k, v):
    n = q.shape[1] // k.shape[1]
    q, k, v = q.double(), *(x.double().repeat_interleave(n, 1)
                            for x in (k, v))
    s = q @ k.transpose(-1, -2) / 8
    keep = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril()
    return s.masked_fill(~keep, -math.inf).softmax(-1) @ v


def error(x, want):
    """The largest |x - ref| / (|ref| + rms(ref))."""
    rms = want.pow(2).mean().sqrt()
    e = float(((x.double() - want).abs() / (want.abs() + rms)).max())
    return e if e == e else math.inf


def raises(kind, text, f):
    try:
        f()
    except kind as e:
        return text in str(e)
    return False


def results(gqa, op):
    q, k, v = inputs("cuda")
    want = reference(q, k, v)
    o, _ = gqa(q, k, v)
    e = error(o, want)
    check("eager", e < 1e-2, error=f"{e:.1e}")
    cpu = gqa(*(x.cpu() for x in (q, k, v)))[0]
    e = error(cpu.cuda(), want)
    check("cpu, same library", e < 1e-2, error=f"{e:.1e}")
    check("operator", torch.equal(op(q, k, v)[0], o))
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        again = gqa(q, k, v, LSE=None)
    s.synchronize()
    check("another stream", torch.equal(again, o))
    mixed = raises(attn.DeviceError, "'K' is on the CPU, 'Q' on CUDA device 0",
                   lambda: gqa(q, k.cpu(), v))
    check("mixed devices", mixed)
    check("wrong shape", raises(attn.ShapeError, "argument 'V', axis 2",
                                lambda: gqa(q, k, v[:, :, :5])))
    check("strides", error(gqa(q.contiguous(), k.flip(0).flip(0), v,
                               LSE=None), want) < 1e-2)

    class Foreign:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self):
            return self.x.__dlpack__()

    out = torch.empty_like(o)
    torch.cuda.synchronize()
    gqa(*map(Foreign, (q, k, v)), O=Foreign(out), LSE=None)
    torch.cuda.synchronize()
    check("DLPack", torch.equal(out, o))


def compiled(op):
    q, k, v = inputs("cuda")
    torch._dynamo.reset()

    def f(q, k, v):
        return op(q * 2, k, v)[0] + 1

    for name, opts in (("torch.compile", {"fullgraph": True}),
                       ("torch.compile, dynamic", {"fullgraph": True,
                                                   "dynamic": True}),
                       ("torch.compile, reduce-overhead", {
                           "fullgraph": True, "mode": "reduce-overhead"})):
        g = torch.compile(f, **opts)
        for s in (300, 301):
            q, k, v = inputs("cuda", s=s)
            for _ in range(3):
                o = g(q, k, v).clone()
            want = reference((q * 2), k, v) + 1
            e = error(o, want)
            check(f"{name}, {s}", e < 1e-2, error=f"{e:.1e}")
        torch._dynamo.reset()


def graph(gqa):
    q, k, v = inputs("cuda")
    want = gqa(q, k, v, LSE=None).clone()
    out = torch.empty_like(want)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        gqa(q, k, v, O=out, LSE=None)
    out.fill_(math.nan)
    g.replay()
    torch.cuda.synchronize()
    check("CUDA graph", torch.equal(out, want))


def container(path):
    start = time.perf_counter()
    lib = attn.load(path)
    ms = 1e3 * (time.perf_counter() - start)
    q, k, v = inputs("cuda")
    p = lib.programs[0]
    check("container", error(p(q, k, v, LSE=None), reference(q, k, v)) < 1e-2,
          ms=round(ms, 2))
    check("container on a CPU", raises(attn.UnsupportedError, "no code",
                                       lambda: p(q.cpu(), k.cpu(), v.cpu())))


class Stream(ctypes.Structure):
    _fields_ = [("ctx", ctypes.c_void_p), ("kind", ctypes.c_int),
                ("device", ctypes.c_int), ("handle", ctypes.c_void_p)]


def pointers():
    """attn_stream_of, also in a thread without a context."""
    x = torch.zeros(8, device="cuda")
    host = torch.zeros(8)
    pinned = torch.zeros(8, pin_memory=True)
    found = []

    def ask():
        for t in (x, host, pinned):
            s = Stream()
            rc = attn.runtime().attn_stream_of(
                None, ctypes.c_void_p(t.data_ptr()), ctypes.byref(s), None)
            found.append((rc, s.kind, s.device))

    ask()
    t = threading.Thread(target=ask)
    t.start()
    t.join()
    check("where pointers are", found == [(0, 1, 0), (0, 0, 0),
                                          (0, 0, 0)] * 2, found=found)


def host_us(f, n=2000, repeat=7):
    """The host's time of a call: the device's work is shorter."""
    best = math.inf
    for _ in range(repeat):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            f()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / n)
    return 1e6 * best


def device_us(f, n=200):
    """Of a call, back to back in a graph."""
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for _ in range(n):
            f()
    g.replay()
    torch.cuda.synchronize()
    a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    a.record()
    g.replay()
    b.record()
    torch.cuda.synchronize()
    return 1e3 * a.elapsed_time(b) / n


def overhead(gqa, op):
    q, k, v = inputs("cuda", b=1, hq=2, hk=1, s=64)
    out = torch.empty(1, 64, 2, 64, device="cuda",
                      dtype=torch.bfloat16).transpose(1, 2)
    kernel = device_us(lambda: gqa(q, k, v, O=out, LSE=None))
    ready = gqa.prepare(q, k, v, O=out, LSE=None)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    add = torch.zeros(1, device="cuda")
    times = {"kernel": kernel, "program(q, k, v)": host_us(
        lambda: gqa(q, k, v)),
        "program(.., O=out)": host_us(lambda: gqa(q, k, v, O=out, LSE=None)),
        "prepared": host_us(ready), "operator": host_us(lambda: op(q, k, v)),
        "scaled_dot_product_attention": host_us(
            lambda: sdpa(q, k, v, is_causal=True, enable_gqa=True)),
        "x.add_(1)": host_us(lambda: add.add_(1))}
    times = {n: round(t, 2) for n, t in times.items()}
    for n, t in times.items():
        print(f"     {n:30} {t:8.2f} us")
    check("overhead", times["program(q, k, v)"] - kernel <= 15
          and times["operator"] - kernel <= 15, **{
              "above": round(times["program(q, k, v)"] - kernel, 2),
              "operator": round(times["operator"] - kernel, 2)})
    DONE["overhead"]["times_us"] = times


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("library")
    ap.add_argument("container")
    ap.add_argument("--out")
    ap.add_argument("--quick", action="store_true", help="no torch.compile")
    a = ap.parse_args()
    torch.zeros(1, device="cuda")
    start = time.perf_counter()
    gqa = attn.load(a.library).programs[0]
    loaded = time.perf_counter()
    q, k, v = inputs("cuda")
    torch.cuda.synchronize()
    first = time.perf_counter()
    gqa(q, k, v)
    torch.cuda.synchronize()
    check("loading", True, library_ms=round(1e3 * (loaded - start), 2),
          first_call_ms=round(1e3 * (time.perf_counter() - first), 2))
    op = attn.torch.register(gqa, "bench::gqa")
    results(gqa, op)
    graph(gqa)
    container(a.container)
    pointers()
    overhead(gqa, op)
    if not a.quick:
        compiled(op)
    if a.out:
        with open(a.out, "w") as f:
            json.dump(DONE, f, indent=1)
    bad = [n for n, d in DONE.items() if not d["ok"]]
    print(f"{len(DONE) - len(bad)} of {len(DONE)} fine", *bad)
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
