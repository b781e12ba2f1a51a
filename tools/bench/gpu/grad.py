#!/usr/bin/env python3
"""Gradients: ours beside cuDNN, FlashAttention 2, FlexAttention and
FlashAttention 4, forward and backward, in one process on the same tensors.

    tools/bench/gpu/grad.py --prep OUT [--attnc PATH] [--target sm_90a]
    python3 OUT/grad.py [--filter TEXT,..] [--peers a,b] [--passes N] [--ms N]
                        [--deadline S] [--out FILE] [--train STEPS]
                        [--cpu --divide N]

--prep compiles programs and gradients into OUT, which is carried to a machine
with an NVIDIA GPU and PyTorch. For each case the gradients of all are compared
with f64's of the last group of heads: norm of the difference over the norm,
the largest of the three; of ours two launches bit by bit. Then they are timed:
the order rotates from pass to pass; medians count. TFLOP/s are those of
visible pairs, 4 * D a pair forward and 2.5 times that backward. "det" is a peer
with deterministic algorithms, "ours-any" ours with @deterministic(off). --train
trains a block of a transformer with ours and with PyTorch's attention. --cpu
tries the script itself."""
import functools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

import carry

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS, WIDTH, TRAIN_D = 16384, 2048, 64


# ---------------------------------------------------------------- cases
class Case:
    def __init__(self, D, causal, S, B, Hq, Hk):
        self.D, self.causal, self.S, self.B = D, causal, S, B
        self.Hq, self.Hk = Hq, Hk
        self.program = "gqa_causal" if Hq != Hk else \
            "causal_full" if causal else "full"
        self.name = (f"d{D}-{'causal' if causal else 'full'}-s{S}"
                     + f"-h{Hq}_{Hk}" * (Hq != Hk))

    def flop(self):
        pairs = self.S * (self.S + 1) / 2 if self.causal else self.S ** 2
        return 4 * self.D * self.B * self.Hq * pairs

    def shrink(self, n):
        self.S, self.B = max(self.S // n, 16), 1
        self.Hk, self.Hq = 1, self.Hq // self.Hk


def all_cases():
    for d in (64, 128, 256):
        for causal in (True, False):
            for s in (2048, 8192, 16384):
                heads = WIDTH // d
                yield Case(d, causal, s, TOKENS // s, heads, heads)
    yield Case(128, True, 2048, 8, 32, 8)
    yield Case(128, True, 8192, 1, 32, 8)


def library(c, order=""):
    return f"{c.program}_{c.D}{order}.so"


def any_order(a):
    """The programs, whose gradients' sums may go in any order."""
    path = os.path.join(a.prep, "cases.attn")
    with open(os.path.join(HERE, "cases.attn")) as f, open(path, "w") as to:
        to.write(re.sub(r"(?m)^attention ", "@deterministic(off)\nattention ",
                        f.read()))
    return path


def prepare(a):
    os.makedirs(a.prep, exist_ok=True)
    todo = {library(c): c for c in all_cases() if a.filter in c.name}
    files = {"": os.path.join(HERE, "cases.attn"), "_any": any_order(a)}
    for c in todo.values():
        dims = ["-D", "T=bf16", "-D", f"D={c.D}"]
        if c.program != "gqa_causal":
            dims += ["-D", f"Dv={c.D}"]
        for order, file in files.items():
            subprocess.run(
                [a.attnc, file, "--fn", c.program, "--grad", "--shared",
                 "--max-seconds=600", "--target", a.target, "-o",
                 os.path.join(a.prep, library(c, order))] + dims, check=True)
    carry.script(a, __file__)
    print(f"{len(todo)} libraries in {a.prep}")


# ---------------------------------------------------------------- inputs
def tensors(c, torch, dev, seed):
    """(B, H, S, D) views of (B, S, H, D) memory, as models have them."""
    g = torch.Generator(device=dev).manual_seed(seed)

    def rand(heads):
        x = torch.randn(c.B, c.S, heads, c.D, device=dev, generator=g)
        return x.to(torch.bfloat16).transpose(1, 2)

    return {"Q": rand(c.Hq), "K": rand(c.Hk), "V": rand(c.Hk),
            "d_O": rand(c.Hq)}


class Reference:
    """The gradients of the last group of heads, in f64."""

    def __init__(self, c, m, torch, rows=1024):
        self.c, self.torch = c, torch
        n = c.Hq // c.Hk
        K, V = (m[x][-1, -1].double() for x in "KV")
        self.Q = torch.empty(n, c.S, c.D, dtype=K.dtype, device=K.device)
        self.K, self.V = torch.zeros_like(K), torch.zeros_like(V)
        k = torch.arange(c.S, device=K.device)
        for h in range(n):
            for at in range(0, c.S, rows):
                part = slice(at, at + rows)
                Q, d = (m[x][-1, h - n, part].double() for x in ("Q", "d_O"))
                s = Q @ K.T / math.sqrt(c.D)
                if c.causal:
                    s = s.masked_fill(k[None] > k[part, None], -math.inf)
                p = s.softmax(-1)
                t = d @ V.T
                t = p * (t - (p * t).sum(-1, keepdim=True)) / math.sqrt(c.D)
                self.Q[h, part] = t @ K
                self.K += t.T @ Q
                self.V += p.T @ d

    def error(self, grads):
        worst, n = 0.0, self.c.Hq // self.c.Hk
        for got, want in zip(grads, (self.Q, self.K, self.V)):
            got = got[-1, -n:] if want is self.Q else got[-1, -1]
            e = ((got.double() - want).norm() / want.norm()).item()
            worst = max(worst, e if e == e else math.inf)
        return worst


# ---------------------------------------------------------------- contenders
# Each gives forward() and backward(); the latter returns three gradients.
def ours(c, m, torch, order=""):
    import attn
    p = attn.load(os.path.join(HERE, library(c, order)))
    p = p[f"cases_{c.program}_bf16"]
    b = p.grad.backward
    have = dict(m, O=torch.empty_like(m["Q"]))
    shapes = p.output_shapes({x: m[x].shape for x in "QKV"})
    for n, shape in shapes.items():
        if n != "O":
            have[n] = torch.empty(shape, device=m["Q"].device)
    grads = {"g_" + x: torch.full_like(m[x], math.nan) for x in "QKV"}
    forward = p.prepare(**{n: have[n] for n in p._names if n in have})
    backward = b.prepare(**{n: have[n] for n in b._names if n in have},
                         **grads)

    def run():
        backward()
        return tuple(grads.values())

    return forward, run


def by_autograd(c, m, torch, attend, deterministic=False):
    q, k, v = (m[x].detach().requires_grad_() for x in "QKV")
    o = attend(q, k, v)

    def forward():
        with torch.no_grad():
            return attend(q, k, v)

    def backward():
        torch.use_deterministic_algorithms(deterministic, warn_only=True)
        try:
            return torch.autograd.grad(o, (q, k, v), m["d_O"],
                                       retain_graph=True)
        finally:
            torch.use_deterministic_algorithms(False)

    return forward, backward


def sdpa(backend, deterministic):
    def make(c, m, torch):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        which = getattr(SDPBackend, backend)
        gqa = {"enable_gqa": True} if c.Hq != c.Hk else {}

        def attend(q, k, v):
            with sdpa_kernel(which):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=c.causal, **gqa)

        return by_autograd(c, m, torch, attend, deterministic)
    return make


def flex(c, m, torch):
    import torch._functorch.config as config
    from torch.nn.attention import flex_attention as fa
    config.donated_buffer = False  # the graph is kept
    torch._dynamo.reset()
    block = fa.create_block_mask(
        lambda b, h, q, k: q >= k, None, None, c.S, c.S,
        device=m["Q"].device) if c.causal else None
    run = torch.compile(fa.flex_attention, dynamic=False)
    return by_autograd(c, m, torch, lambda q, k, v: run(
        q, k, v, block_mask=block, enable_gqa=c.Hq != c.Hk))


def fa4(deterministic):
    def make(c, m, torch):
        from flash_attn.cute import flash_attn_func

        def attend(q, k, v):
            o = flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)),
                                causal=c.causal, deterministic=deterministic)
            return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)

        return by_autograd(c, m, torch, attend)
    return make


def eager(c, m, torch):
    def attend(q, k, v):
        k, v = (x.repeat_interleave(c.Hq // c.Hk, 1) for x in (k, v))
        s = (q @ k.transpose(-1, -2)).float() / math.sqrt(c.D)
        if c.causal:
            hide = torch.ones(c.S, c.S, device=q.device).triu(1).bool()
            s = s.masked_fill(hide, -math.inf)
        return s.softmax(-1).to(v.dtype) @ v
    return by_autograd(c, m, torch, attend)


OURS = {"ours": ours, "ours-any": functools.partial(ours, order="_any")}
PEERS = {"cudnn": sdpa("CUDNN_ATTENTION", False),
         "cudnn-det": sdpa("CUDNN_ATTENTION", True),
         "flash": sdpa("FLASH_ATTENTION", False),
         "flash-det": sdpa("FLASH_ATTENTION", True),
         "fa4": fa4(False), "fa4-det": fa4(True), "flex": flex,
         "eager": eager}
USUAL = "cudnn,cudnn-det,flash,flash-det,fa4,fa4-det"


# ---------------------------------------------------------------- measuring
def median_ms(torch, dev, fn, ms):
    if dev == "cpu":
        begin = time.perf_counter()
        fn()
        return (time.perf_counter() - begin) * 1e3
    from triton.testing import do_bench
    return do_bench(fn, warmup=10, rep=ms, return_mode="median")


def ready(a, c, m, torch, ref):
    """Contenders that work, by name; and what is known of each."""
    todo, info = {}, {}
    for name in list(OURS) + [p for p in a.peers.split(",") if p]:
        try:
            make = OURS.get(name) or PEERS[name]
            forward, backward = make(c, m, torch)
            forward()
            grads = [g.clone() for g in backward()]
            again = backward()
            info[name] = {"error": ref.error(grads), "repeats": all(
                torch.equal(x, y) for x, y in zip(grads, again))}
            todo[name] = forward, backward
        except Exception as e:  # a peer that cannot, or our own failure
            info[name] = {"failed": f"{type(e).__name__}: {str(e)[:160]}"}
    return todo, info


def time_all(a, torch, dev, todo):
    names, times = list(todo), {n: ([], []) for n in todo}
    for p in range(a.passes):
        k = p % len(names)
        for name in names[k:] + names[:k]:
            time.sleep(0.02)
            for fn, found in zip(todo[name], times[name]):
                found.append(median_ms(torch, dev, fn, a.ms))
    return times


def line(c, info):
    parts = [f"{c.name:24s}"]
    for name, i in info.items():
        if "failed" in i:
            parts.append(f"{name} failed ({i['failed']})")
            continue
        parts.append(f"{name} {i['forward_tflops']:.0f}/"
                     f"{i['backward_tflops']:.0f} {i['error']:.1e}"
                     + " repeats" * i["repeats"])
    return "  ".join(parts)


def measure(a, c, torch, dev, seed):
    m = tensors(c, torch, dev, seed)
    todo, info = ready(a, c, m, torch, Reference(c, m, torch))
    for name, (f, b) in (time_all(a, torch, dev, todo) if todo else {}).items():
        f, b = statistics.median(f), statistics.median(b)
        info[name].update(forward_ms=f, backward_ms=b,
                          forward_tflops=c.flop() / f * 1e-9,
                          backward_tflops=2.5 * c.flop() / b * 1e-9)
    print(line(c, info), flush=True)
    return {"case": c.name, "contenders": info}


def wrong(row):
    """Ours failed, does not repeat, or errs twice as much as each peer."""
    found = row["contenders"]
    peers = [i["error"] for n, i in found.items()
             if n not in OURS and "error" in i]
    return any("failed" in found[n] or
               found[n]["error"] > 2 * min(peers + [5e-3])
               for n in OURS) or not found["ours"]["repeats"]


# ---------------------------------------------------------------- training
def block(torch, attend, heads):
    width = heads * TRAIN_D

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(64, width)
            self.qkv = torch.nn.Linear(width, 3 * width)
            self.out = torch.nn.Linear(width, width)
            self.mlp = torch.nn.Sequential(
                torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width),
                torch.nn.GELU(), torch.nn.Linear(4 * width, 64))

        def forward(self, x):
            x = self.table(x)
            x = x + torch.roll(x, 1, 1) / 2
            q, k, v = self.qkv(x).unflatten(-1, (3, heads, TRAIN_D)) \
                .permute(2, 0, 3, 1, 4)
            return self.mlp(x + self.out(
                attend(q, k, v).transpose(1, 2).flatten(2)))

    return Block()


def train_one(a, torch, dev, attend, heads, rows):
    """Losses, and milliseconds a step, of learning to copy what was seen."""
    torch.manual_seed(1)
    net = block(torch, attend, heads).to(dev)
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    losses, begin = [], 0
    for step in range(a.train):
        if step == 5:
            begin = time.perf_counter()
        half = torch.randint(64, rows, device=dev)
        x = torch.cat([half, half], 1)
        with torch.autocast(dev, dtype=torch.bfloat16):
            y = net(x[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            y.float().flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, (time.perf_counter() - begin) / max(a.train - 5, 1) * 1e3


def train(a, torch, dev):
    import attn
    import attn.torch
    heads, rows = (16, (8, 1024)) if dev == "cuda" else (2, (2, 32))
    p = attn.load(os.path.join(HERE, f"causal_full_{TRAIN_D}.so"))
    op = attn.torch.register(p["cases_causal_full_bf16"], "bench::attention")

    def plain(q, k, v):
        fused = getattr(torch.nn.functional, "scaled_dot_product_attention", 0)
        if fused:
            return fused(q, k, v, is_causal=True)
        hide = torch.ones(q.shape[2], q.shape[2]).triu(1).bool()
        s = (q @ k.transpose(-1, -2)).float() / math.sqrt(TRAIN_D)
        return s.masked_fill(hide, -math.inf).softmax(-1).to(v.dtype) @ v

    found = {}
    for name, attend in (("ours", op), ("PyTorch", plain)):
        losses, ms = train_one(a, torch, dev, attend, heads, rows)
        found[name] = {"losses": losses, "ms": ms}
        some = losses[::max(len(losses) // 8, 1)] + losses[-1:]
        print(f"training, {name}: {ms:.2f} ms a step, losses "
              + " ".join(f"{x:.4f}" for x in some), flush=True)
    return found


def options():
    ap = carry.options(__doc__, "grad.json", 3)
    ap.add_argument("--peers", default=USUAL)
    ap.add_argument("--ms", type=int, default=30)
    ap.add_argument("--deadline", type=float, default=1e9)
    ap.add_argument("--train", type=int, default=0, metavar="STEPS")
    ap.add_argument("--cpu", action="store_true")
    ap.add_argument("--divide", type=int, default=1)
    return ap.parse_args()


def main():
    a, start = options(), time.time()
    if a.prep:
        return prepare(a)
    import torch
    dev, rows = "cpu" if a.cpu else "cuda", []
    if not a.cpu:
        print(torch.cuda.get_device_name(), "torch", torch.__version__)
    trained = train(a, torch, dev) if a.train else {}
    for i, c in enumerate(all_cases()):
        if not any(t in c.name for t in a.filter.split(",")) or \
                time.time() - start > a.deadline:
            continue
        if a.divide > 1:
            c.shrink(a.divide)
        rows.append(measure(a, c, torch, dev, 1 + i))
        with open(a.out, "w") as f:
            json.dump({"rows": rows, "training": trained}, f, indent=1)
        if dev == "cuda":
            torch.cuda.empty_cache()
    bad = [r["case"] for r in rows if wrong(r)]
    print(f"{len(rows)} cases, wrong: {', '.join(bad) or 'none'}; "
          f"{time.time() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
