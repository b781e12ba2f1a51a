#!/usr/bin/env python3
"""A small PyTorch transformer whose attention is replaced by a compiled program:
the logits of both are compared, and their times.

    transformer.py [--device cuda] [--library gqa.so] [--tokens N] [--json OUT]

Without --library the program is compiled (f32 for the CPU, bf16 for CUDA). Where
PyTorch has them, torch.compile and CUDA graphs are tried too."""
import argparse
import json
import math
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../python"))

import torch  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402

WIDTH, HEADS, GROUPS, D, LAYERS, VOCABULARY = 512, 8, 2, 64, 4, 1000


def plain(q, k, v):
    """Causal attention by PyTorch's own means."""
    own = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    k, v = (x.repeat_interleave(HEADS // GROUPS, 1) for x in (k, v))
    if own:
        return own(q, k, v, is_causal=True)
    s = q @ k.transpose(-1, -2) / math.sqrt(D)
    keep = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril()
    return s.masked_fill(~keep, -math.inf).softmax(-1) @ v


class Block(torch.nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.qkv = torch.nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * D, bias=False)
        self.out = torch.nn.Linear(HEADS * D, WIDTH, bias=False)
        self.up = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.down = torch.nn.Linear(2 * WIDTH, WIDTH)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH)
                                         for _ in range(2))

    def forward(self, x):
        b, s, _ = x.shape
        heads = self.qkv(self.norms[0](x)).view(b, s, -1, D).transpose(1, 2)
        q, k, v = heads.split([HEADS, GROUPS, GROUPS], 1)
        o = self.attention(q, k, v)
        x = x + self.out(o.transpose(1, 2).reshape(b, s, -1))
        return x + self.down(torch.nn.functional.gelu(
            self.up(self.norms[1](x))))


class Model(torch.nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block(attention)
                                            for _ in range(LAYERS)))
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        return self.norm(self.blocks(self.embed(tokens))) @ self.embed.weight.T


def ms(f, cuda, runs):
    """Median time of a call, the device's work included."""
    times = []
    for _ in range(runs + 2):
        start = time.perf_counter()
        f()
        if cuda:
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times[2:])[runs // 2]


def graphed(model, tokens):
    """A replay of the model as a CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        model(tokens)  # loads code
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(tokens)

    def replay():
        graph.replay()
        return out

    return replay


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--library")
    ap.add_argument("--tokens", type=int, default=256)
    ap.add_argument("--batch", type=int, default=2)
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--json")
    a = ap.parse_args()
    cuda = a.device == "cuda"
    dtype = torch.bfloat16 if cuda else torch.float32
    lib = attn.load(a.library) if a.library else attn.compile(
        os.path.join(HERE, "../../stdlib/attention/gqa.attn"),
        target="cpu,sm_90a" if cuda else "cpu",
        dims={"T": "bf16" if cuda else "f32", "D": D, "Dv": D})
    op = attn.torch.register(lib.programs[0], "example::gqa")

    torch.manual_seed(0)
    model = Model(plain).to(a.device, dtype).eval()
    ours = Model(lambda q, k, v: op(q, k, v)[0]).to(a.device, dtype).eval()
    ours.load_state_dict(model.state_dict())
    tokens = torch.randint(VOCABULARY, (a.batch, a.tokens), device=a.device)
    variants = {"PyTorch": lambda: model(tokens),
                "compiled attention": lambda: ours(tokens)}
    with torch.no_grad():
        exact = Model(plain).to(a.device, torch.float64)
        exact.load_state_dict({k: v.double()
                               for k, v in model.state_dict().items()})
        want = exact(tokens)
        if cuda and hasattr(torch, "compile"):
            for name, m in (("PyTorch", model), ("compiled attention", ours)):
                fast = torch.compile(m, fullgraph=True)
                variants[name + ", torch.compile"] = \
                    lambda fast=fast: fast(tokens)
                variants[name + ", CUDA graph"] = graphed(m, tokens)
        rows, bound = {}, None
        for name, f in variants.items():
            err = float((f().double() - want).norm() / want.norm())
            bound = bound or max(2 * err, 1e-5)  # PyTorch's own error, twice
            rows[name] = {"error": err, "ms": ms(f, cuda, a.runs)}
            print(f"{name:36} error {err:.1e} of {bound:.1e}  "
                  f"{rows[name]['ms']:8.3f} ms")
            assert err <= bound, name
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f, indent=1)
    print("logits agree")


if __name__ == "__main__":
    main()
