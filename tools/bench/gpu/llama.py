#!/usr/bin/env python3
"""A stack of layers as those of Llama 3 8B, random weights: prefill, decoding
and a training step, with our attention and with PyTorch's and FlashAttention.

    tools/bench/gpu/llama.py --prep OUT [--attnc PATH] [--target sm_90a] [--tiny]
    python3 OUT/llama.py [--filter prefill,decode,train] [--peers a,b]
                         [--layers N] [--passes N] [--deadline S] [--out FILE]
                         [--hf] [--tiny]

--prep compiles llama.attn into OUT, which is carried to a machine with an NVIDIA
GPU and PyTorch. Width 4096, 32 heads of queries on 8 of keys, D 128, MLP 14336,
bf16; layers are alike, so a few stand for 32. Prefill is 8192 tokens, decoding
64 sequences with 8192 keys each, a step of training forward, backward and AdamW
over 8192 tokens. Each contender runs the same stack on the same weights; what
attention takes of a step is what the step takes more than one without attention.
Errors are those of the outputs, in training of gradients, beside attention in
f32: norm of the difference over the norm. Contenders take turns, medians count;
decoding is a CUDA graph.
--hf runs a LlamaModel of transformers too, by attn.hf, where it imports; its
programs are compiled there, by $ATTNC. --tiny tries the script on a CPU."""
import json
import math
import os
import statistics
import subprocess
import sys
import time

import carry

HERE = os.path.dirname(os.path.abspath(__file__))
PHASES = "prefill", "decode", "train"
THIRD, FASTER = 1 / 3, 1.1  # where attention takes that share, so much faster


class Shape:
    """Width, heads of queries and keys, D, MLP, tokens, sequences, keys."""

    def __init__(self, tiny):
        self.type = "f32" if tiny else "bf16"
        self.width, self.Hq, self.Hk, self.D, self.mlp = \
            (128, 4, 2, 64, 256) if tiny else (4096, 32, 8, 128, 14336)
        self.tokens, self.rows, self.keys = \
            (96, 3, 70) if tiny else (8192, 64, 8192)


def library(program):
    return os.path.join(HERE, program + ".so")


def prepare(a):
    os.makedirs(a.prep, exist_ok=True)
    s = Shape(a.tiny)
    for program, more in (("prefill", ["--grad"]), ("decode", [])):
        subprocess.run(
            [a.attnc, os.path.join(HERE, "llama.attn"), "--fn", program,
             "--shared", "--target", a.target, "-D", f"T={s.type}", "-D",
             f"D={s.D}", "-o", os.path.join(a.prep, program + ".so"),
             "--max-seconds=600", *more], check=True)
    carry.script(a, __file__)
    print(f"2 libraries in {a.prep}")


# ---------------------------------------------------------------- contenders
# attend(q, k, v): (B, H, S, D) to (B, Sq, Hq * D); keys end with the last query.
def ours(torch, phase):
    import attn
    import attn.torch
    name = "decode" if phase == "decode" else "prefill"
    lib = attn.load(library(name))
    op = attn.torch.register(
        next(p for p in lib if not p.name.endswith("_grad")),
        "llama::" + phase)
    return lambda q, k, v: op(q, k, v).flatten(2)


def sdpa(backend):
    def make(torch, phase):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        which = getattr(SDPBackend, backend)

        def attend(q, k, v):
            with sdpa_kernel(which):
                o = torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=q.shape[2] > 1, enable_gqa=True)
            return o.transpose(1, 2).flatten(2)
        return attend
    return make


def sdpa_as_it_is(torch, phase):
    def attend(q, k, v):
        o = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=q.shape[2] > 1, enable_gqa=True)
        return o.transpose(1, 2).flatten(2)
    return attend


def fa2(torch, phase):
    from flash_attn import flash_attn_func, flash_attn_with_kvcache
    run = flash_attn_with_kvcache if phase == "decode" else flash_attn_func

    def attend(q, k, v):
        return run(*(x.transpose(1, 2) for x in (q, k, v)),
                   causal=True).flatten(2)
    return attend


def none(torch, phase):
    return lambda q, k, v: q.transpose(1, 2).flatten(2)


def exact(torch, phase):
    """In f32, in parts; in training a part's scores are made again."""
    from torch.utils.checkpoint import checkpoint

    def part(q, k, v, begin):
        g = q.shape[1] // k.shape[1]
        q = q.float().unflatten(1, (-1, g))
        s = torch.einsum("bhgqd,bhkd->bhgqk", q, k.float())
        s = s / math.sqrt(q.shape[-1])
        at = torch.arange(q.shape[3], device=q.device)[:, None] + begin
        hide = torch.arange(k.shape[2], device=q.device)[None] > at
        p = s.masked_fill(hide, -math.inf).softmax(-1)
        return torch.einsum("bhgqk,bhkd->bhgqd", p, v.float()).flatten(1, 2)

    def attend(q, k, v):
        more, size = k.shape[2] - q.shape[2], max(1, 512 // q.shape[0])
        run = part if phase != "train" else \
            lambda *x: checkpoint(part, *x, use_reentrant=False)
        rows = [torch.cat([run(q[b:b + 1, :, i:i + size], k[b:b + 1],
                               v[b:b + 1], i + more)
                           for i in range(0, q.shape[2], size)], 2)
                for b in range(q.shape[0])]
        return torch.cat(rows).to(q.dtype).transpose(1, 2).flatten(2)
    return attend


CONTENDERS = {"ours": ours, "sdpa": sdpa_as_it_is,
              "sdpa-cudnn": sdpa("CUDNN_ATTENTION"),
              "sdpa-flash": sdpa("FLASH_ATTENTION"),
              "flash_attention_2": fa2, "exact": exact, "none": none}
USUAL = "sdpa,sdpa-cudnn,sdpa-flash,flash_attention_2"


# ---------------------------------------------------------------- the stack
def layer(torch, s):
    def turned(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def norm(x, w):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)
        return y.to(x.dtype) * w

    class Layer(torch.nn.Module):
        def __init__(self, dev, dtype):
            super().__init__()

            def linear(n, m):
                return torch.nn.Linear(n, m, bias=False, device=dev,
                                       dtype=dtype)

            def ones():
                return torch.nn.Parameter(torch.ones(
                    s.width, device=dev, dtype=dtype))

            self.qkv = linear(s.width, (s.Hq + 2 * s.Hk) * s.D)
            self.out = linear(s.Hq * s.D, s.width)
            self.up = linear(s.width, 2 * s.mlp)
            self.down = linear(s.mlp, s.width)
            self.first, self.second = ones(), ones()
            for x in (self.qkv, self.out, self.up, self.down):
                torch.nn.init.normal_(x.weight, std=x.in_features ** -0.5)

        def forward(self, x, attend, places, cache):
            y = self.qkv(norm(x, self.first)).unflatten(-1, (-1, s.D))
            q, k, v = y.transpose(1, 2).split([s.Hq, s.Hk, s.Hk], 1)
            q, k = (turned(z, *places) for z in (q, k))
            if cache is not None:  # its last place is this token's
                for old, new in zip(cache, (k, v)):
                    old[:, :, -k.shape[2]:] = new
                k, v = cache
            x = x + self.out(attend(q, k, v))
            a, b = self.up(norm(x, self.second)).chunk(2, -1)
            return x + self.down(torch.nn.functional.silu(a) * b)

    return Layer


class Stack:
    def __init__(self, a, torch, dev):
        self.torch, self.dev, self.s, self.lr = torch, dev, Shape(a.tiny), 1e-4
        self.type = torch.float32 if a.tiny else torch.bfloat16
        torch.manual_seed(1)
        one = layer(torch, self.s)
        self.layers = torch.nn.ModuleList(
            one(dev, self.type) for _ in range(a.layers))

    def rand(self, *shape):
        return self.torch.randn(*shape, device=self.dev, dtype=self.type)

    def places(self, begin, n):
        torch, half = self.torch, self.s.D // 2
        f = 5e5 ** (-torch.arange(half, device=self.dev) / half)
        at = torch.arange(begin, begin + n, device=self.dev)[:, None] * f
        return at.cos().to(self.type), at.sin().to(self.type)

    def forward(self, x, attend, places, caches=None):
        for i, one in enumerate(self.layers):
            x = one(x, attend, places, caches[i] if caches else None)
        return x

    # ---- phases: of attend a function that runs, and what its error is of

    def prefill(self):
        x, places = self.rand(1, self.s.tokens, self.s.width), \
            self.places(0, self.s.tokens)

        def make(attend):
            def run():
                with self.torch.no_grad():
                    return self.forward(x, attend, places)
            return run, lambda: [run()]
        return make

    def decode(self):
        s = self.s
        x, places = self.rand(s.rows, 1, s.width), self.places(s.keys - 1, 1)
        caches = [[self.rand(s.rows, s.Hk, s.keys, s.D) for _ in range(2)]
                  for _ in self.layers]

        def make(attend):
            def run():
                with self.torch.no_grad():
                    return self.forward(x, attend, places, caches)
            return run, lambda: [run()]
        return make

    def train(self):
        torch, (x, d) = self.torch, (
            self.rand(1, self.s.tokens, self.s.width) for _ in range(2))
        places = self.places(0, self.s.tokens)
        weights = list(self.layers.parameters())
        x.requires_grad_()
        fused = {"fused": True} if self.dev == "cuda" else {}
        opt = torch.optim.AdamW(weights, 0.0, **fused)  # weights stay

        def make(attend):
            def run():
                opt.zero_grad()
                x.grad = None
                self.forward(x, attend, places).backward(d)
                opt.step()

            def shown():
                run()
                return [x.grad, self.layers[0].qkv.weight.grad]
            return run, lambda: [t.clone() for t in shown()]
        return make


# ---------------------------------------------------------------- measuring
def off(got, want):
    e = max(((x.float() - y.float()).norm() / y.float().norm()).item()
            for x, y in zip(got, want))
    return e if e == e else math.inf


def timed(torch, dev, run, least):
    """Milliseconds of one run; of as many as `least` seconds have."""
    if dev == "cpu":
        begin = time.perf_counter()
        run()
        return (time.perf_counter() - begin) * 1e3
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start, n = time.perf_counter(), 0
    begin.record()
    while n < 2 or time.perf_counter() - start < least and n < 20:
        run()
        n += 1
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / n


def replayed(torch, run):
    """Run as a CUDA graph: layers of few rows would wait for the host."""
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def measure(a, stack, phase, torch, dev):
    make, info, todo = getattr(stack, phase)(), {}, {}
    want = make(exact(torch, phase))[1]()
    for name in ["ours", *[p for p in a.peers.split(",") if p], "none"]:
        try:
            run, shown = make(CONTENDERS[name](torch, phase))
            info[name] = {"error": off(shown(), want)}
            run()
            graph = dev == "cuda" and phase == "decode"
            todo[name] = replayed(torch, run) if graph else run
        except Exception as e:  # a peer that cannot, or our own failure
            info[name] = {"failed": f"{type(e).__name__}: {str(e)[:160]}"}
    names, found = list(todo), {n: [] for n in todo}
    for p in range(a.passes):
        k = p % len(names)
        for name in names[k:] + names[:k]:
            found[name].append(timed(torch, dev, todo[name], 0.1))
    for name, ms in found.items():
        info[name]["ms"] = statistics.median(ms)
    if dev == "cuda":
        torch.cuda.empty_cache()
    return report(phase, info, a)


def report(phase, info, a):
    bare = info["none"].get("ms", math.nan)
    own = info["ours"].get("ms", math.nan)
    print(f"{phase}: {a.layers} layers, {bare:.2f} ms without attention",
          flush=True)
    for name, i in info.items():
        if name == "none":
            continue
        if "ms" not in i:
            print(f"  {name:18s} failed: {i.get('failed')}")
            continue
        i["share"], i["ratio"] = 1 - bare / i["ms"], i["ms"] / own
        i["attention_ratio"] = (i["ms"] - bare) / (own - bare)
        print(f"  {name:18s} {i['ms']:9.3f} ms a step, attention "
              f"{100 * i['share']:4.1f} %, error {i['error']:.1e}; ours is "
              f"{i['ratio']:.2f} times as fast, its attention "
              f"{i['attention_ratio']:.2f}", flush=True)
    return {"phase": phase, "layers": a.layers, "contenders": info}


def bars(row):
    """What is missed."""
    info, out = row["contenders"], []
    own = info["ours"]
    if "ms" not in own:
        return ["failed"]
    peers = {n: i for n, i in info.items()
             if n not in ("ours", "none") and "ms" in i}
    for n, i in peers.items():
        if i["share"] >= THIRD and i["ratio"] < FASTER:
            out.append(f"{i['ratio']:.2f} of {n}")
    most = 2 * min([i["error"] for i in peers.values()] + [1e-2])
    if not own["error"] <= max(most, 1e-5):
        out.append(f"error {own['error']:.1e}")
    return out


# ---------------------------------------------------------------- transformers
def hugging_face(a, torch, dev):
    """The same stack as a LlamaModel, prefill only."""
    try:
        import transformers
        import attn.hf
    except ImportError as e:
        print(f"transformers: not here ({e})")
        return {}
    s = Shape(a.tiny)
    attn.hf.register()
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=s.width, intermediate_size=s.mlp,
        num_hidden_layers=a.layers, num_attention_heads=s.Hq,
        num_key_value_heads=s.Hk, head_dim=s.D)
    model = transformers.LlamaModel(config).to(
        dev, torch.float32 if a.tiny else torch.bfloat16).eval()
    ids, found = torch.randint(128, (1, s.tokens), device=dev), {}
    for name in ("attnc", "sdpa", "flash_attention_2"):
        try:
            model.set_attn_implementation(name)
            with torch.no_grad():
                outs = [model(ids, use_cache=False)[0] for _ in range(2)]
                ms = [timed(torch, dev, lambda: model(ids, use_cache=False),
                            0.1) for _ in range(a.passes)]
            found[name] = {"ms": statistics.median(ms), "out": outs[1]}
        except Exception as e:
            print(f"transformers, {name}: {type(e).__name__}: {str(e)[:160]}")
    outs = {n: i.pop("out") for n, i in found.items()}
    for name, i in found.items():
        if "sdpa" in outs:
            i["beside"] = off([outs[name]], [outs["sdpa"]])
        print(f"transformers, prefill, {name}: {i['ms']:.3f} ms, "
              f"{i.get('beside', math.nan):.1e} from sdpa", flush=True)
    return found


def main():
    ap = carry.options(__doc__, "llama.json", 3)
    ap.add_argument("--peers", default=USUAL)
    ap.add_argument("--layers", type=int, default=4)
    ap.add_argument("--deadline", type=float, default=130)
    ap.add_argument("--hf", action="store_true")
    ap.add_argument("--tiny", action="store_true")
    a, start = ap.parse_args(), time.time()
    if a.prep:
        return prepare(a)
    import torch
    dev, rows = "cpu" if a.tiny else "cuda", []
    if dev == "cuda":
        print(torch.cuda.get_device_name(), "torch", torch.__version__)
    stack = Stack(a, torch, dev)
    for phase in PHASES:
        if any(t in phase for t in a.filter.split(",")) and \
                time.time() - start < a.deadline:
            rows.append(measure(a, stack, phase, torch, dev))
    found = {"rows": rows, "hf": hugging_face(a, torch, dev) if a.hf else {}}
    with open(a.out, "w") as f:
        json.dump(found, f, indent=1)
    missed = [f"{r['phase']}: {t}" for r in rows for t in bars(r)]
    print(f"{len(rows)} phases, missed: {'; '.join(missed) or 'none'}; "
          f"{time.time() - start:.0f} s")
    return 1 if any("failed" in t for t in missed) else 0


if __name__ == "__main__":
    sys.exit(main())
