#!/usr/bin/env python3
"""Decoding beside cuDNN and FlashAttention, in one process on the same inputs.

    tools/bench/gpu/decode.py --prep DIR [--attnc PATH] [--target sm_90a]
    python3 DIR/decode.py [--filter TEXT] [--out FILE] [--passes N] [--ms N]
                          [--cpu]

--prep compiles std's gqa_decode (a cache with lengths), full_decode (without:
all sequences have all keys), paged_decode (pages of 16 in random order) and
mla_decode (pages of 64) into DIR; the rest runs there, on a machine with an
NVIDIA GPU and PyTorch. Peers read caches without lengths or pages, as
full_decode does, through scaled_dot_product_attention; batches of sequences of
several lengths have none. Some heads are compared with f64; outputs are filled with NaN
first and two launches must be equal bit by bit. The order of the contenders
rotates. GB/s count keys and values once.
--cpu tries the script on a few short caches without a GPU."""
import json
import math
import os
import statistics
import subprocess
import sys
import time

import carry

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))

# batch, keys, queries, heads of queries and of keys; D 128
GQA = [(64, 8192, 1, 32, 8), (8, 32768, 1, 32, 8), (1, 131072, 1, 32, 8),
       (1, 8192, 1, 32, 8), (16, 2048, 1, 32, 8), (64, 1024, 1, 32, 8),
       (16, 8192, 4, 32, 8), (4, 4096, 1, 32, 32), (16, 8192, 1, 64, 1)]
# sequences of one length, their length, that of one more, heads
RAGGED = [(63, 1024, 131072, 32, 8), (31, 512, 32768, 32, 8)]
# batch, keys, heads
MLA = [(64, 8192, 128), (8, 8192, 128), (1, 32768, 128), (64, 8192, 16)]
SHORT = [(3, 300, 2, 4, 2), (1, 70, 1, 2, 2)]   # --cpu
SHORT_RAGGED = [(3, 20, 300, 4, 2)]
LIBRARIES = {"gqa": ("decode.attn", "gqa_decode", ["D=128"]),
             "full": ("decode.attn", "full_decode", ["D=128"]),
             "paged": ("paged.attn", "paged_decode", ["D=128"]),
             "mla": ("mla.attn", "mla_decode", [])}
OURS = ("ours", "full", "pages")
PAGE = {"paged": 16, "mla": 64}


# ---------------------------------------------------------------- preparing
def prepare(a):
    os.makedirs(a.prep, exist_ok=True)
    for name, (file, program, dims) in LIBRARIES.items():
        cmd = [a.attnc, os.path.join(TOP, "stdlib/attention", file), "--fn",
               program, "--shared", "--target", a.target, "--prefix", name,
               "-o", os.path.join(a.prep, name + ".so"), "-D", "T=bf16"]
        for d in dims:
            cmd += ["-D", d]
        subprocess.run(cmd, check=True)
    carry.script(a, __file__)
    print(f"{len(LIBRARIES)} libraries in {a.prep}")


# ---------------------------------------------------------------- inputs
def rand(torch, dev, *shape):
    return torch.randn(*shape, device=dev, dtype=torch.bfloat16)


def paged(torch, dev, x, page):
    """x, (B, S, ..), as blocks in random order, and their table."""
    B, S = x.shape[:2]
    P = (S + page - 1) // page
    blocks = torch.zeros(B * P * page, *x.shape[2:], device=dev, dtype=x.dtype)
    order = torch.randperm(B * P, device=dev)
    at = (order.view(B, P, 1) * page
          + torch.arange(page, device=dev)).view(B, -1)[:, :S]
    blocks[at.reshape(-1)] = x.reshape(B * S, *x.shape[2:])
    return blocks.view(B * P, page, *x.shape[2:]), order.int().view(B, P), at


def ours(name, out, **tensors):
    import attn
    prog = attn.load(os.path.join(HERE, name + ".so"))[
        f"{name}_{LIBRARIES[name][1]}_bf16"]
    launch = prog.prepare(O=out, **tensors)

    def go():
        launch()
        return out
    return go


def attend(torch, q, k, v, scale):
    return torch.softmax(q.double() @ k.double().T * scale, -1) @ v.double()


def peers(torch, q, k, v):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    t = [x.transpose(1, 2) for x in (q, k, v)]
    Sq, S, mask = q.shape[1], k.shape[1], None
    if Sq > 1:   # the last query sees all keys
        mask = torch.ones(Sq, S, device=q.device, dtype=torch.bool).tril(S - Sq)

    def of(backend):
        def go():
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    *t, attn_mask=mask, enable_gqa=q.shape[2] != k.shape[2]
                ).transpose(1, 2)
        return go
    return {"cudnn": of(SDPBackend.CUDNN_ATTENTION),
            "flash": of(SDPBackend.FLASH_ATTENTION)}


# ---------------------------------------------------------------- cases
def gqa_case(torch, dev, c):
    B, S, Sq, Hq, Hk = c
    q = rand(torch, dev, B, Sq, Hq, 128)
    k, v = [rand(torch, dev, B, S, Hk, 128) for _ in range(2)]
    n = torch.full((B,), S, device=dev, dtype=torch.int32)
    K, pt, at = paged(torch, dev, k, PAGE["paged"])
    V = torch.zeros_like(K)
    V.view(-1, Hk, 128)[at.reshape(-1)] = v.view(-1, Hk, 128)
    lse = torch.empty(B, Sq, Hq, device=dev)
    todo = {"ours": ours("gqa", torch.empty_like(q), Q=q, K=k, V=v, LSE=lse,
                         **{"len": n}),
            "pages": ours("paged", torch.empty_like(q), Q=q, K=K, V=V, pt=pt,
                          **{"len": n})}
    todo["full"] = ours("full", torch.empty_like(q), Q=q, K=k, V=v, LSE=lse)
    if dev != "cpu":
        todo.update(peers(torch, q, k, v))
    ref = []
    for b, i, h in {(0, 0, 0), (B - 1, Sq - 1, Hq - 1), (B // 2, 0, Hq // 2)}:
        g, end = h // (Hq // Hk), S - Sq + i + 1
        ref.append(((b, i, h), attend(torch, q[b, i, h], k[b, :end, g],
                                      v[b, :end, g], 128 ** -0.5)))
    return todo, ref, 4 * B * S * Hk * 128, 4 * B * Sq * S * Hq * 128


def ragged_case(torch, dev, c):
    """Pages in random order, and a table with room for the longest sequence."""
    some, short, long, Hq, Hk = c
    B, page = some + 1, PAGE["paged"]
    n = [short] * some + [long]
    q = rand(torch, dev, B, 1, Hq, 128)
    need = [(x + page - 1) // page for x in n]
    K, V = [rand(torch, dev, sum(need), page, Hk, 128) for _ in range(2)]
    order = torch.randperm(sum(need), device=dev)
    pt = torch.full((B, max(need)), -1, device=dev, dtype=torch.int32)
    at, rows = 0, []
    for b, m in enumerate(need):
        pt[b, :m] = order[at:at + m].int()
        rows.append(order[at:at + m])
        at += m
    todo = {"pages": ours("paged", torch.empty_like(q), Q=q, K=K, V=V, pt=pt, **{
        "len": torch.tensor(n, device=dev, dtype=torch.int32)})}
    ref = []
    for b, h in {(0, 0), (B - 1, Hq - 1), (B // 2, Hq // 2), (B - 1, 0)}:
        k, v = [x[rows[b], :, h // (Hq // Hk)].reshape(-1, 128)[:n[b]]
                for x in (K, V)]
        ref.append(((b, 0, h), attend(torch, q[b, 0, h], k, v, 128 ** -0.5)))
    return todo, ref, 4 * sum(n) * Hk * 128, 4 * sum(n) * Hq * 128


def mla_case(torch, dev, c):
    B, S, H = c
    q, x = rand(torch, dev, B, 1, H, 576), rand(torch, dev, B, S, 576)
    n = torch.full((B,), S, device=dev, dtype=torch.int32)
    C, pt, _ = paged(torch, dev, x, PAGE["mla"])
    out, scale = rand(torch, dev, B, 1, H, 512), 576 ** -0.5
    todo = {"ours": ours("mla", out, Q=q, C=C, pt=pt, scale=scale,
                         LSE=torch.empty(B, 1, H, device=dev), **{"len": n})}
    ref = [((b, 0, h), attend(torch, q[b, 0, h], x[b], x[b, :, :512], scale))
           for b, h in {(0, 0), (B - 1, H - 1)}]
    return todo, ref, 2 * B * S * 576, 2 * B * S * H * (576 + 512)


def error(out, ref):
    d = sum(float((out[at].double() - w).square().sum()) for at, w in ref)
    n = sum(float(w.square().sum()) for _, w in ref)
    return math.sqrt(d / n) if d == d else math.inf


def check(torch, name, fn, ref):
    """Relative error; for ours also whether two launches are equal."""
    out = fn()
    if name in ("cudnn", "flash"):
        return {"error": error(out, ref)}
    first = []
    for _ in range(2):
        out.fill_(math.nan)
        first.append(fn().clone())
    return {"error": error(first[0], ref), "repeats": torch.equal(*first)}


def measure(a, torch, dev, todo, ref):
    info, good = {}, []
    for name, fn in todo.items():
        try:
            info[name] = check(torch, name, fn, ref)
            good.append((name, fn, []))
        except Exception as e:
            info[name] = {"failed": str(e).split("\n")[0][:100]}
    if dev == "cpu":
        return info
    from triton.testing import do_bench
    for p in range(a.passes):
        k = p % len(good)
        for _, fn, t in good[k:] + good[:k]:
            time.sleep(0.03)
            t.append(do_bench(fn, warmup=10, rep=a.ms, return_mode="median"))
    for name, _, t in good:
        info[name]["us"] = 1e3 * statistics.median(t)
    return info


def line(name, info, moved, flop):
    parts = [name]
    for who, i in info.items():
        if "us" in i:
            parts.append(f"{who} {i['us']:.1f} us {moved / i['us'] * 1e-3:.0f} GB/s "
                         f"{flop / i['us'] * 1e-6:.0f} TFLOP/s err {i['error']:.1e}")
        else:
            parts.append(f"{who} {i.get('failed') or format(i['error'], '.1e')}")
    peers = [info[w]["us"] for w in ("cudnn", "flash") if "us" in info.get(w, {})]
    if peers:
        parts += [f"{w}/best {min(peers) / info[w]['us']:.2f}"
                  for w in OURS if "us" in info.get(w, {})]
    return " | ".join(parts)


def is_wrong(info):
    peers = [info[w]["error"] for w in ("cudnn", "flash")
             if "error" in info.get(w, {})]
    most = min([1e-2] + [2 * e for e in peers])
    return any(not i.get("repeats", True) or i.get("error", math.inf) > most
               for w, i in info.items() if w in OURS)


def main():
    ap = carry.options(__doc__, "decode.json", 3)
    ap.add_argument("--ms", type=int, default=40)
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    if a.prep:
        return prepare(a)
    import torch
    dev = "cpu" if a.cpu else "cuda"
    torch.manual_seed(1)
    cases = [("gqa-b%d-s%d-q%d-h%d_%d" % c, gqa_case, c)
             for c in (SHORT if a.cpu else GQA)]
    cases += [("ragged-%d*%d+%d-h%d_%d" % c, ragged_case, c)
              for c in (SHORT_RAGGED if a.cpu else RAGGED)]
    cases += [("mla-b%d-s%d-h%d" % c, mla_case, c)
              for c in ([(2, 100, 5)] if a.cpu else MLA)]
    rows, wrong = [], []
    for name, make, c in cases:
        if a.filter not in name:
            continue
        todo, ref, moved, flop = make(torch, dev, c)
        info = measure(a, torch, dev, todo, ref)
        rows.append({"case": name, "bytes": moved, "flop": flop, **info})
        wrong += [name] * is_wrong(info)
        print(line(name, info, moved, flop), flush=True)
        with open(a.out, "w") as f:
            json.dump(rows, f, indent=1)
    print(f"{len(rows)} cases, wrong: " + (", ".join(wrong) or "none"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
