#!/usr/bin/env python3
"""Every mask, modification, row and attention of the library against plain
causal softmax of the same head size, per FLOP of touched tiles.

    tools/bench/variants.py [--attnc PATH] [--filter TEXT] [--rounds N]
                            [--threads N] [--dtype f32] [--size N]

A round times plain attention and all variants one after the other; the column
`to plain` is the fastest run of the variant in all rounds against the fastest
plain one: what else runs on the machine only ever adds time. Runs are timed by
the CPU time of the process over the number of threads: a long run hardly ever
has the machine for itself, a short one does. The bar: 0.75,
with tanh 0.50, per FLOP that the streaming form does (`work` times those of
the text). Tiles of which a part is skipped can be faster than plain ones.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# What surrounds one mask, modification or row.
TEMPLATE = """
import std.rows as rows;
import std.masks as masks;
import std.mods as mods;

attention t<T: dtype {{bf16, f16, f32}}, B, Hq, Hk, Sq, Sk, D: const {{64, 128}}{dims}>
  (Q: T[B, Hq, Sq, D], K: T[B, Hk, Sk, D], V: T[B, Hk, Sk, D]{params}, scale: f32 = rsqrt(D))
  -> (O: T[B, Hq, Sq, D])
{{
  index b in B, h in Hq, q in Sq;
  index k in Sk{mask};
  let g = h // (Hq // Hk);
  let x = {x};
  let y = {y};
  let s = scale * dot(x, y){mod};
  {row}
  O[b, h, q] = sum(k: p * V[b, g, k]);
}}
"""

SOFTMAX = "let (p, _) = rows.softmax(s);"


def inline(name, mask="masks.causal", params="", mod="", row=SOFTMAX,
           x="Q[b, h, q]", y="K[b, g, k]", dims="", size=(), bar=0.75, work=1,
           **args):
    text = TEMPLATE.format(mask=" where " + mask if mask else "", x=x, y=y,
                           params=", " + params if params else "", mod=mod,
                           row=row, dims=", " + dims if dims else "")
    return dict(name=name, text=text, fn="t", bar=bar, work=work, args=args,
                dims=dict(dict(B=1, Hq=2, Hk=1, Sq="S", Sk="S", D=128), **dict(size)))


def library(name, file, fn, bar=0.75, to=128, work=1, args=None, **dims):
    return dict(name=name, file=f"stdlib/attention/{file}.attn", fn=fn, bar=bar,
                dims=dims, args=args or {}, to=to, work=work)


def mask(name, m, params="", **args):
    return inline("mask " + name, mask="masks." + m, params=params, **args)


def row(name, text, **kw):
    return inline("row " + name, row="let p = rows." + text + ";", **kw)


def mod(name, text, params="", **kw):
    return inline("mod " + name, mod=" |> mods." + text, params=params, **kw)


S1 = dict(Sq="S", Sk="S")
ROWS = [
    mask("full", "full"),
    mask("window 128", "window(left = 128)"),
    mask("window 512", "window(left = 512)"),
    mask("prefix", "prefix(n = 1000)"),
    mask("prefix_lm", "prefix_lm(n = 500)"),
    mask("dilated", "dilated(r = 4)"),
    mask("sink_window", "sink_window(n = 4, left = 256)"),
    mask("global_window", "global_window(n = 16, left = 128)"),
    mask("block_causal", "block_causal(n = 96)"),
    mask("block_local", "block_local(n = 256)"),
    mask("same_doc 512", "causal & masks.same_doc(doc, doc)", "nograd doc: i32[Sq]",
         doc="docs(512)"),
    mask("same_doc 64", "causal & masks.same_doc(doc, doc)", "nograd doc: i32[Sq]",
         doc="docs(64)"),
    mask("same_doc random", "causal & masks.same_doc(doc, doc)",
         "nograd doc: i32[Sq]", doc="randint(0, 8)"),
    mask("padding", "padding(len)", "nograd len: i32[B]", len="const(1500)"),
    mask("given", "given(allowed)", "nograd allowed: bool[Sq, Sk]",
         allowed="randint(0, 2)"),
    mask("block_diffusion", "block_diffusion(n = Sq // 2, block = 32)"),
    mask("natten", "natten(W = 64, H = Sq // 64, kw = 13, kh = 13)"),
    mod("softcap", "softcap(50.0)", bar=0.5),
    mod("alibi", "alibi(slope)", "slope: f32[Hq]", slope="uniform(0.01, 0.5)"),
    mod("decay", "decay(lg)", "lg: f32[Hq]", lg="uniform(-0.1, -0.001)"),
    mod("forget", "forget(F)", "F: f32[B, Hq, Sq]", F="iota(0, -0.001)"),
    mod("bias", "bias(t)", "t: f32[B, Hq, Sq, Sk]"),
    inline("mod bias over q, k", mod=" + t[q, k]", params="t: f32[Sq, Sk]"),
    inline("mod bias transposed", mod=" + t[h, k, q]", params="t: f32[Hq, Sk, Sq]"),
    inline("mod bias bf16", mod=" + t[h, q, k]", params="t: bf16[Hq, Sq, Sk]"),
    inline("mod bias per key", mod=" + t[h, k]", params="t: f32[Hq, Sk]"),
    mod("relative", "relative(t)", "t: f32[Hq, N]", dims="N", size=dict(N=257)),
    mod("t5", "t5(t)", "t: f32[Hq, N]", dims="N", size=dict(N=32)),
    inline("rope on q and k", x="mods.rope(Q[b, h, q], f32(q))",
           y="mods.rope(K[b, g, k], f32(k))"),
    inline("l2norm on q and k", x="mods.l2norm(Q[b, h, q])",
           y="mods.l2norm(K[b, g, k])"),
    inline("rmsnorm on k", y="mods.rmsnorm(K[b, g, k], w)", params="w: f32[D]"),
    inline("scaled keys", y="K[b, g, k] * ks[g, k]", params="ks: f32[Hk, Sk]"),
    row("softmax_sink", "softmax_sink(s, 0.5)"),
    row("softmax1", "softmax1(s)"),
    row("sigmoids", "sigmoids(s, -7.0)"),
    row("norm_sigmoid", "norm_sigmoid(s)"),
    row("relu_l1", "relu_l1(s)"),
    row("relu2", "relu2(s)"),
    row("power", "power(s)"),
    row("l1", "l1(s)"),
    row("cosformer", "cosformer(s, 0.0007 * f32(q - k))"),
    row("softpick", "softpick(s)"),
    row("layernorm", "layernorm(s)", work=3 / 2),  # sums of V, too
    row("rms", "rms(s)"),
    row("softmax_l2", "softmax_l2(s)"),
    row("stick", "stick(s)"),
    library("alibi", "alibi", "alibi", B=1, H=2, S="S", D=128),
    library("t5", "alibi", "t5", B=1, H=2, S="S", N=32, D=128),
    library("cross", "cross", "cross", B=1, H=2, **S1, D=128, Dv=128,
            args=dict(len="const(S)")),
    # Each map has its own frame, and so its own sum of V.
    library("differential", "differential", "differential", to=64, work=4 / 3, B=1, H=2, S="S",
            D=64, Dv=64),
    library("differential Dv 128", "differential", "differential", to=64,
            work=3 / 2, B=1, H=2, S="S", D=64, Dv=128),
    library("forgetting", "forgetting", "forgetting", B=1, H=2, S="S", D=128),
    library("gemma", "gemma", "gemma", bar=0.5, B=1, Hq=2, Hk=1, S="S", D=128),
    library("mha", "mha", "mha", B=1, H=2, **S1, D=128),
    library("mha_causal", "mha", "mha_causal", B=1, H=2, **S1, D=128),
    library("mla_prefill", "mla", "mla_prefill", B=1, H=2, **S1, D=192, Dv=128),
    library("mla_decode", "mla", "mla_decode", B=1, H=16, Sq=1, Sk="S", P=-64,
            args=dict(len="const(S)", pt="perm()")),
    library("nsa", "nsa", "nsa", to=64, B=1, H=16, S="S", Nc=-17, Ns=4, D=64,
            args=dict(sel="randint(0, 16)")),
    library("packed", "packed", "packed", H=2, S="S", D=128,
            args=dict(doc="docs(300)")),
    library("varlen", "packed", "varlen", B=4, H=2, Sq=-4, Sk=-4, D=128,
            args=dict(cu_q="iota(0, S/4)", cu_k="iota(0, S/4)")),
    library("paged_decode", "paged", "paged_decode", B=1, Hq=8, Hk=2, Sq=16, Sk="S",
            P=-16, D=128, args=dict(len="const(S)", pt="perm()")),
    library("qk_norm", "qknorm", "qk_norm", B=1, Hq=4, Hk=1, S="S", D=128),
    library("relu_attn", "relu", "relu_attn", B=1, H=2, **S1, D=128),
    library("retention", "retention", "retention", B=1, H=2, S="S", D=128, Dv=128,
            args=dict(loggamma="uniform(-0.1, -0.001)")),
    library("sigmoid", "sigmoid", "sigmoid_attn", B=1, H=2, **S1, D=128),
    library("stick_breaking", "stick", "stick_breaking", B=1, H=2, S="S", D=128),
    library("window_sink", "window", "window_sink", B=1, Hq=2, Hk=1, S="S", D=128),
]


def size_of(v, n):
    if isinstance(v, str):
        return n
    return n // -v if v < 0 else v


class Bench:
    def __init__(self, opt, folder):
        self.opt, self.folder, self.files = opt, folder, {}

    def path(self, case):
        if "file" in case:
            return os.path.join(TOP, case["file"])
        text = case["text"]
        if text not in self.files:
            self.files[text] = os.path.join(self.folder, f"t{len(self.files)}.attn")
            with open(self.files[text], "w") as f:
                f.write(text)
        return self.files[text]

    def run(self, case):
        o = self.opt
        cmd = [o.attnc, "bench", self.path(case), "--fn", case["fn"], "--json",
               "--threads", str(o.threads), "--runs", str(o.runs), "-q"]
        for d, v in case["dims"].items():
            cmd += ["--dim", f"{d}={size_of(v, o.size)}"]
        if "T:" in open(self.path(case)).read():
            cmd += ["--dim", f"T={o.dtype}"]
        for a, v in case["args"].items():
            v = v.replace("S/4", str(o.size // 4)).replace("S", str(o.size))
            cmd += ["--in", f"{a}={v}"]
        r = subprocess.run(cmd, capture_output=True, text=True)
        if r.returncode:
            sys.exit(" ".join(cmd) + "\n" + r.stderr + r.stdout)
        d = json.loads(r.stdout)
        d["s"] = d["cpu_s"] / o.threads
        d["rate"] = d["product_flop"] / d["s"]
        d["touched"] = d["touched_flop"] / d["s"]
        return d


def plain(d):
    case = inline("plain")
    case["dims"]["D"] = d
    return case


def faster(best, run):
    return run if not best or run["s"] < best["s"] else best


def measure(b, cases):
    """The fastest runs of the plain programs and of the cases, by name."""
    refs = {d: plain(d) for d in sorted({c.get("to", 128) for c in cases})}
    ref, best = {}, {}
    for n in range(b.opt.rounds):
        for i, case in enumerate(cases):
            for d in refs if i % 8 == 0 else ():
                ref[d] = faster(ref.get(d), b.run(refs[d]))
            best[case["name"]] = faster(best.get(case["name"]), b.run(case))
        print(f"round {n + 1} of {b.opt.rounds}", file=sys.stderr)
    return ref, best


def main():
    a = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawTextHelpFormatter)
    a.add_argument("--attnc", default=os.path.join(TOP, "build", "bin", "attnc"))
    a.add_argument("--filter", default="")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--runs", type=int, default=8)
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--dtype", default="f32")
    a.add_argument("--size", type=int, default=2048)
    opt = a.parse_args()
    cases = [c for c in ROWS if re.search(opt.filter, c["name"])]
    with tempfile.TemporaryDirectory() as folder:
        ref, best = measure(Bench(opt, folder), cases)
    peak = max(v["peak_flop_per_s"] for v in best.values())
    print(f"{'variant':24} {'ms':>8} {'GFLOP/s':>8} {'of peak':>8} "
          f"{'touched':>8} {'to plain':>8} {'bar':>5}")
    below = 0
    for case in cases:
        v, p = best[case["name"]], ref[case.get("to", 128)]
        ratio = case.get("work", 1) * v["touched"] / p["touched"]
        below += ratio < case["bar"]
        print(f"{case['name']:24} {v['s'] * 1e3:8.2f} {v['rate'] / 1e9:8.1f} "
              f"{100 * v['rate'] / peak:7.1f}% {100 * v['touched'] / peak:7.1f}% "
              f"{ratio:8.2f} {case['bar']:5.2f}"
              f"{'  below' if ratio < case['bar'] else ''}")
    print(f"{below} below the bar")


if __name__ == "__main__":
    main()
