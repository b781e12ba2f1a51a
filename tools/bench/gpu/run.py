#!/usr/bin/env python3
"""Our kernels beside cuDNN, FlashAttention and FlexAttention, in one process,
on the same inputs. Runs in the folder that prep.py made, on a machine with an
NVIDIA GPU and PyTorch; nothing else is needed there.

    python3 run.py [--filter TEXT,..] [--out DIR] [--passes N] [--rest MS]
                   [--ms N] [--deadline S] [--check] [--peers a,b]
                   [--one CASE] [--cpu --divide N]

For each case: fresh inputs, outputs filled with NaN, results of all compared
with an f64 reference on some rows; two launches and two replays of a CUDA
graph bitwise equal. Then times: the order of the contenders rotates from pass
to pass, each rests before it is timed; the median of the passes' medians
counts. Variants of causal softmax are timed beside it on the same tensors
("plain"): their bar there is their rate over its, per FLOP of tiles of
128 x 128 with a visible pair. Writes DIR/results.json, results.md and
roofline.svg after each case. --one launches our kernel of one case once, for
ncu. --cpu tries the script itself without a GPU, on shapes divided by N."""
import argparse
import json
import math
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import attn
import cases
import plot

HERE = os.path.dirname(os.path.abspath(__file__))
DT = {"bf16": torch.bfloat16, "f16": torch.float16}


# ---------------------------------------------------------------- inputs
def tensors(c, dev, seed):
    """(B, H, S, D) views of (B, S, H, D) memory, as models have them."""
    g = torch.Generator(device=dev).manual_seed(seed)

    def rand(*shape):
        return torch.randn(*shape, device=dev, generator=g).to(DT[c.dtype])

    m = {k: v for k, v in c.extra.items() if k != "visible"}
    if c.row == "differential":
        m["Q"] = rand(c.B, 2, c.S, c.Hq, c.D).permute(0, 3, 1, 2, 4)
        m["K"] = rand(c.B, 2, c.S, c.Hk, c.D).permute(0, 3, 1, 2, 4)
        m["lam"] = torch.rand(c.Hq, device=dev, generator=g) * 0.6 + 0.2
    else:
        m["Q"] = rand(c.B, c.S, c.Hq, c.D).transpose(1, 2)
        m["K"] = rand(c.B, c.S, c.Hk, c.D).transpose(1, 2)
    m["V"] = rand(c.B, c.S, c.Hk, c.Dv).transpose(1, 2)
    if c.mod is cases.alibi:
        m["slope"] = torch.tensor(cases.slopes(c.Hq), device=dev)
    if c.mod is cases.forget:
        m["F"] = -torch.rand(c.B, c.Hq, c.S, device=dev, generator=g).cumsum(2)
    if c.row == "sink":
        m["sink"] = torch.randn(c.Hq, device=dev, generator=g)
    if c.row == "sigmoid":
        m["bias"] = -math.log(c.S)
    if c.mask is cases.docs:
        starts = torch.tensor(cases.doc_starts(c.S), device=dev)
        at = torch.arange(c.S, device=dev)
        m["doc"] = (torch.searchsorted(starts, at, right=True) - 1).int()
    return m


# ---------------------------------------------------------------- reference
def weights(c, m, s, keep, h):
    if c.row == "sigmoid":
        w = torch.sigmoid(s + m["bias"])
        return w if keep is None else w * keep
    if c.row == "relu":
        w = torch.relu(s)
        return w / w.sum(-1, keepdim=True)
    if keep is not None:
        s = s.masked_fill(~keep, -math.inf)
    if c.row == "sink":
        sink = m["sink"][h].double().expand(s.shape[0], 1)
        return torch.softmax(torch.cat([s, sink], 1), -1)[:, :-1]
    return torch.softmax(s, -1)


def reference_rows(c, m, b, h, q):
    """Rows q of output head (b, h), in f64."""
    g = h // (c.Hq // c.Hk)
    k = torch.arange(c.S, device=q.device)
    keep = None if c.mask is None else c.mask(m, b, h, q[:, None], k[None])

    def part(Q, K):
        s = Q[q].double() @ K.double().T * cases.scale(c)
        if c.mod:
            s = c.mod(torch, m, s, b, h, q[:, None], k[None])
        return weights(c, m, s, keep, h)

    if c.row == "differential":
        w = part(m["Q"][b, h, 0], m["K"][b, g, 0])
        w = w - m["lam"][h].double() * part(m["Q"][b, h, 1], m["K"][b, g, 1])
    else:
        w = part(m["Q"][b, h], m["K"][b, g])
    return w @ m["V"][b, g].double()


class Reference:
    """Some rows of some heads: the first, the last and random ones."""

    def __init__(self, c, m, seed, heads=6, rows=40):
        dev = m["V"].device
        g = torch.Generator().manual_seed(seed)
        pick = [(0, 0), (c.B - 1, c.Hq - 1)]
        while len(pick) < min(heads, c.B * c.Hq):
            pick.append((int(torch.randint(c.B, (1,), generator=g)),
                         int(torch.randint(c.Hq, (1,), generator=g))))
        self.at = []
        for b, h in pick:
            q = torch.cat([torch.tensor([0, c.S // 2, c.S - 1]),
                           torch.randint(c.S, (rows,), generator=g)]).to(dev)
            self.at.append((b, h, q, reference_rows(c, m, b, h, q)))

    def error(self, out):
        """Norm of the difference over the norm of the reference."""
        d = n = 0.0
        for b, h, q, ref in self.at:
            d += float(((out[b, h][q].double() - ref) ** 2).sum())
            n += float((ref ** 2).sum())
        return math.sqrt(d / n) if d == d else math.inf


# ---------------------------------------------------------------- contenders
class Ours:
    def __init__(self, manifest, c, m, dev, folder=HERE):
        name, _ = c.library
        info = manifest["libraries"].get(name)
        if not info or "failed" in info:
            raise RuntimeError((info or {}).get("failed", "not compiled")
                               .split("\n")[0])
        prog = attn.load(os.path.join(folder, info["library"]))[info["symbol"]]
        self.out = torch.empty(c.B, c.S, c.Hq, c.Dv, device=dev,
                               dtype=DT[c.dtype]).transpose(1, 2)
        named = {p.name: m[p.name] for p in prog.params if p.name in m}
        self.launch = prog.prepare(O=self.out, **named)

    def __call__(self):
        self.launch()
        return self.out


def sdpa(c, m, backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    which = {"cudnn": SDPBackend.CUDNN_ATTENTION,
             "flash": SDPBackend.FLASH_ATTENTION}[backend]
    gqa = {"enable_gqa": True} if c.Hq != c.Hk else {}

    def go(Q=m["Q"], K=m["K"]):
        with sdpa_kernel(which):
            return F.scaled_dot_product_attention(
                Q, K, m["V"], is_causal=c.mask is not None, **gqa)

    return go


def twice(c, m):
    one = sdpa(c, m, "cudnn")
    lam = m["lam"].to(m["V"].dtype)[None, :, None, None]
    a, b = [(m["Q"][:, :, i], m["K"][:, :, i]) for i in (0, 1)]
    return lambda: one(*a) - lam * one(*b)


def flex(c, m):
    from torch.nn.attention import flex_attention as fa
    block = None
    if c.mask:
        block = fa.create_block_mask(
            lambda b, h, q, k: c.mask(m, b, h, q, k), None, None, c.S, c.S,
            device=m["V"].device)
    mod = None
    if c.mod:
        def mod(s, b, h, q, k):
            return c.mod(torch, m, s, b, h, q, k)
    run = torch.compile(fa.flex_attention, dynamic=False)
    return lambda: run(m["Q"], m["K"], m["V"], score_mod=mod, block_mask=block,
                       enable_gqa=c.Hq != c.Hk)


def eager(c, m):
    def go():
        s = m["Q"].float() @ m["K"].float().transpose(-1, -2) * cases.scale(c)
        if c.row == "sigmoid":
            w = torch.sigmoid(s + m["bias"])
        else:
            w = torch.relu(s)
            w = w / w.sum(-1, keepdim=True)
        return (w.to(m["V"].dtype) @ m["V"])
    return go


def compiled(c, m):
    def body(q, k, v):
        s = (q @ k.transpose(-1, -2)).float() * cases.scale(c)
        if c.row == "sigmoid":
            return torch.sigmoid(s + m["bias"]).to(v.dtype) @ v
        w = torch.relu(s)
        return (w / w.sum(-1, keepdim=True)).to(v.dtype) @ v
    run = torch.compile(body, dynamic=False)
    return lambda: run(m["Q"], m["K"], m["V"])


PEERS = {"cudnn": lambda c, m: sdpa(c, m, "cudnn"),
         "flash": lambda c, m: sdpa(c, m, "flash"),
         "flex": flex, "twice": twice, "compiled": compiled, "eager": eager}

# Whose kernel ours are, for a case.
OWN = {"ours": lambda c: c, "plain": cases.plain_of}


# ---------------------------------------------------------------- one case
def sync(dev):
    if dev.type == "cuda":
        torch.cuda.synchronize()


def first_line(e):
    return (str(e).strip().split("\n") or [""])[0][:200]


def check_ours(ours, ref, dev):
    """Relative error; whether a second launch gives the same bits."""
    ours.out.fill_(math.nan)
    out = ours().clone()
    sync(dev)
    whole = bool(torch.isfinite(out.float()).all())
    ours.out.fill_(math.nan)
    again = ours()
    sync(dev)
    return (ref.error(out) if whole else math.inf), torch.equal(out, again)


def graph_repeats(ours, dev):
    """Whether a captured launch, replayed twice, gives the same bits."""
    if dev.type != "cuda":
        return True
    want = ours().clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ours()
    same = True
    for _ in range(2):
        ours.out.fill_(math.nan)
        graph.replay()
        sync(dev)
        same = same and torch.equal(want, ours.out)
    return same


def contenders(a, manifest, c, m, dev, ref):
    """(name, callable) of those that work; and what is known of each."""
    todo, info = [], {}
    for name in ["ours"] + [p for p in c.peers if p in a.peers]:
        start = time.time()
        try:
            fn = Ours(manifest, OWN[name](c), m, dev) if name in OWN \
                else PEERS[name](c, m)
            if name == "ours":
                err, same = check_ours(fn, ref, dev)
                info[name] = {"error": err, "repeats": same,
                              "graph": graph_repeats(fn, dev)}
            elif name in OWN:
                other = OWN[name](c)
                info[name] = {"touched": other.touched(), "flop": other.flop()}
            else:
                info[name] = {"error": ref.error(fn())}
            sync(dev)
            todo.append((name, fn))
        except Exception as e:  # a peer that cannot, or our own failure
            info[name] = {"failed": first_line(e)}
        info[name]["ready_s"] = round(time.time() - start, 2)
    return todo, info


def median_ms(fn, dev, ms):
    if dev.type != "cuda":
        start = time.time()
        fn()
        return (time.time() - start) * 1e3
    from triton.testing import do_bench
    return do_bench(fn, warmup=max(ms // 4, 10), rep=ms, return_mode="median")


def time_all(a, todo, dev):
    times = {name: [] for name, _ in todo}
    for p in range(a.passes if todo else 0):
        k = p % len(todo)
        for name, fn in todo[k:] + todo[:k]:
            time.sleep(a.rest * 1e-3)
            times[name].append(median_ms(fn, dev, a.ms))
    return times


def forget_compiled():
    """What torch.compile made for other cases counts against its limit."""
    dynamo = getattr(torch, "_dynamo", None)
    if dynamo:
        dynamo.reset()


def run_case(a, manifest, c, dev, seed):
    forget_compiled()
    m = tensors(c, dev, seed)
    ref = Reference(c, m, seed)
    todo, info = contenders(a, manifest, c, m, dev, ref)
    times = {} if a.check else time_all(a, todo, dev)
    for name, t in times.items():
        ms = statistics.median(t)
        flop = info[name].get("flop", c.flop())
        info[name].update(ms=ms, passes_ms=t, tflops=flop / ms * 1e-9)
    return {"name": c.name, "family": c.family, "flop": c.flop(),
            "touched": c.touched(), "bytes": c.bytes(), "bars": c.bars,
            "contenders": info}


# ---------------------------------------------------------------- the machine
def machine(dev):
    """What the roofline is made of: a copy and a matrix product, measured."""
    if dev.type != "cuda":
        return {"name": "CPU", "copy_gbs": 10.0, "matmul_tflops": 0.1}
    x = torch.empty(1 << 31, device=dev, dtype=torch.uint8)
    y = torch.empty_like(x)
    ms = median_ms(lambda: y.copy_(x), dev, 60)
    del x, y
    a, b = [torch.randn(8192, 8192, device=dev, dtype=torch.bfloat16)
            for _ in range(2)]
    mm = median_ms(lambda: a @ b, dev, 100)
    p = torch.cuda.get_device_properties(dev)
    return {"name": p.name, "sms": p.multi_processor_count,
            "torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "copy_gbs": 2 * (1 << 31) / ms * 1e-6,
            "matmul_tflops": 2 * 8192 ** 3 / mm * 1e-9}


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--filter", default="")
    ap.add_argument("--out", default=os.environ.get("OUT", "results"))
    ap.add_argument("--passes", type=int, default=4)
    ap.add_argument("--rest", type=int, default=40)
    ap.add_argument("--ms", type=int, default=100)
    ap.add_argument("--deadline", type=float, default=1e9)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--check", action="store_true")
    ap.add_argument("--peers", default=",".join([*PEERS, "plain"]))
    ap.add_argument("--one", default="")
    ap.add_argument("--cpu", action="store_true")
    ap.add_argument("--divide", type=int, default=1)
    a = ap.parse_args()
    a.peers = a.peers.split(",")
    return a


def shrink(c, n):
    if n > 1:
        c.S, c.B = max(c.S // n, 8), 1
        c.Hq, c.Hk = c.Hq // c.Hk * min(c.Hk, 2), min(c.Hk, 2)
        if c.row in ("sigmoid", "relu"):
            c.peers = ("eager",)
    return c


def main():
    a = options()
    start = time.time()
    dev = torch.device("cpu" if a.cpu else "cuda")
    os.makedirs(a.out, exist_ok=True)
    with open(os.path.join(HERE, "manifest.json")) as f:
        manifest = json.load(f)
    if not a.cpu:
        torch.backends.cuda.matmul.allow_tf32 = False
    todo = [shrink(c, a.divide) for c in cases.all_cases()
            if any(t in c.name for t in a.filter.split(","))]
    if a.one:
        c = next(c for c in todo if c.name == a.one)
        Ours(manifest, c, tensors(c, dev, a.seed), dev)()
        return sync(dev)
    result = {"machine": None if a.check else machine(dev), "cases": [],
              "passes": a.passes, "rest_ms": a.rest, "ms": a.ms}
    for i, c in enumerate(todo):
        if time.time() - start > a.deadline:
            print("deadline: the rest is left out")
            break
        row = run_case(a, manifest, c, dev, a.seed + i)
        result["cases"].append(row)
        print(plot.line(row), flush=True)
        plot.write(result, a.out)
    bad = plot.failures(result)
    print(f"{len(result['cases'])} cases, {len(bad)} wrong or failed",
          *bad, sep="\n  ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
