#!/usr/bin/env python3
"""Tensors whose elements lie more than 2^31 apart.

    tools/bench/gpu/far.py --prep DIR [--attnc PATH] [--target sm_90a]
    python3 DIR/far.py [--filter TEXT] [--cpu] [--whole]

--prep compiles programs of cases.attn, serve.attn and recurrent.attn into DIR,
some with gradients; the rest runs there, with PyTorch, on a GPU or with --cpu.
Each program runs on small tensors, one after the other of which is laid out
again so that the last index of one axis is beyond element 2^31 and byte 2^32:
at a stride that is a multiple of 64 elements, and at an odd one. The results
are those of the small tensors, but for the roundings of other code that takes
odd strides; what the view does not reach keeps what it held. On the CPU the memory is an untouched mapping, most of which never
exists; on a GPU it is memory, full of NaN. --whole, on a GPU: tensors that are
so large without gaps, compared with the same program on their last batches."""
import math
import mmap
import os
import subprocess
import sys

import carry

HERE = os.path.dirname(os.path.abspath(__file__))
ELEMENTS = (1 << 31) + (1 << 28)     # of the far storage, the last index's reach
NORESERVE = 0x4000                   # MAP_NORESERVE: mmap has it since 3.13

B, H, HK, S, D, PAGE = 2, 4, 2, 150, 64, 16
ROWS = dict(Q=(B, H, S, D), K=(B, H, S, D), V=(B, H, S, D), O=(B, H, S, D))
SHARED = dict(Q=(B, H, S, D), K=(B, HK, S, D), V=(B, HK, S, D), O=(B, H, S, D))
PAGED = dict(Q=(7, H, D), K=(40, PAGE, HK, D), V=(40, PAGE, HK, D), O=(7, H, D))
STATES = dict(ROWS, S0=(B, H, D, D))
# library: file, program, shapes, gradients too
CASES = {
    "full": ("cases", "full", ROWS, True),
    "causal": ("cases", "causal_full", ROWS, True),
    "shared": ("cases", "gqa_causal", SHARED, True),
    "softcap": ("cases", "gqa_softcap", SHARED, False),
    "docs": ("cases", "gqa_docs", dict(SHARED, doc=(S,)), False),
    "packed": ("serve", "packed", PAGED, False),
    "bounded": ("serve", "bounded", PAGED, False),
    "own": ("serve", "own", PAGED, False),
    "retention": ("recurrent", "retention", dict(STATES, loggamma=(H,)), True),
    "gla": ("recurrent", "gla", dict(STATES, g=(B, H, S, D)), True),
    "gated_delta": ("recurrent", "gated_delta",
                    dict(STATES, g=(B, H, S), beta=(B, H, S)), True),
}
F32 = ("g", "beta", "loggamma", "S0")


def prepare(a):
    os.makedirs(a.prep, exist_ok=True)
    for name, (file, program, shapes, grad) in CASES.items():
        dims = [f"D={D}"] + [f"Dv={D}"] * (file == "recurrent" or
                                           shapes is ROWS)
        subprocess.run(
            [a.attnc, os.path.join(HERE, file + ".attn"), "--fn", program,
             "--shared", "--target", a.target, "-o",
             os.path.join(a.prep, name + ".so"), "-D", "T=bf16"]
            + ["--grad"] * grad + [x for d in dims for x in ("-D", d)],
            check=True)
    carry.script(a, __file__)
    print(f"{len(CASES)} libraries in {a.prep}")


# ---------------------------------------------------------------- memory
class Far:
    """Storage that is much larger than what is read of it."""

    def __init__(self, torch, dev):
        self.torch, self.dev, self.held = torch, dev, {}

    def storage(self, dtype):
        """ELEMENTS and some more; NaN everywhere on a GPU."""
        torch, n = self.torch, ELEMENTS + (1 << 20)
        if dtype in self.held:
            return self.held[dtype]
        self.held.clear()
        if self.dev == "cpu":
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
            size = n * torch.empty(0, dtype=dtype).element_size()
            x = torch.frombuffer(mmap.mmap(-1, size, flags=flags),
                                 dtype=dtype)
        else:
            x = torch.full((n,), math.nan if dtype.is_floating_point else -1,
                           device=self.dev, dtype=dtype)
        self.held[dtype] = x
        return x

    def view(self, x, axis, odd):
        """A copy of x of which the last index of `axis` is far away."""
        if x.shape[axis] < 2:
            return None
        apart = ELEMENTS // (x.shape[axis] - 1)
        strides, inner = [0] * x.dim(), 1
        for i in reversed(range(x.dim())):
            if i != axis:
                strides[i], inner = inner, inner * x.shape[i]
        strides[axis] = apart // 64 * 64 - odd
        far = self.storage(x.dtype).as_strided(x.shape, strides)
        far.copy_(x)
        return far

    def clear(self, far):
        """What holds no element of `far` is as it was; then all of it is."""
        far.fill_(math.nan if far.dtype.is_floating_point else -1)
        x = self.storage(far.dtype)
        return self.dev == "cpu" or all(
            bool(part.isnan().all()) for part in x.split(1 << 28)
            if x.dtype.is_floating_point)


# ---------------------------------------------------------------- programs
def inputs(torch, dev, case, seed=1):
    g = torch.Generator().manual_seed(seed)
    m = {}
    for name, shape in CASES[case][2].items():
        x = torch.randn(shape, generator=g)
        if name in ("g", "loggamma"):
            x = -x.abs()
        if name == "beta":
            x = x.sigmoid()
        if name == "K" and "beta" in CASES[case][2]:
            x = x / x.norm(dim=-1, keepdim=True)
        m[name] = x if name in F32 else x.to(torch.bfloat16)
    if case == "docs":
        m["doc"] = (torch.arange(S) // 40).int()
    if CASES[case][2] is PAGED:
        m["cu"] = torch.tensor([0, 2, 5, 7], dtype=torch.int32)
        m["len"] = torch.tensor([33, 5, 150], dtype=torch.int32)
        m["pt"] = torch.randperm(40, generator=g)[:30].view(3, 10).int()
    return {n: x.to(dev) for n, x in m.items()}


def close(got, want):
    """Within what two codes round differently."""
    e = (got.double() - want.double()).norm() / want.double().norm()
    return bool(e < 1e-2)


class Call:
    """A program or its backward: what it reads, and what it wrote."""

    def __init__(self, torch, prog, have):
        self.torch, self.prog = torch, prog
        self.have = {n: have[n] for n in prog._names if n in have}
        self.writes = [p.name for p in prog.params
                       if p.role in ("out", "inout") and p.name in self.have]
        self.want = self.run({})

    def run(self, far):
        """Results; far: tensors that take the place of others."""
        now = {n: far[n] if n in far else x.clone() for n, x in self.have.items()}
        for n in self.writes:
            if not self.is_read(n):
                now[n].fill_(math.nan)
        self.prog.prepare(**now)()
        if next(iter(now.values())).is_cuda:
            self.torch.cuda.synchronize()
        return {n: now[n].clone(memory_format=self.torch.contiguous_format)
                for n in self.writes}

    def is_read(self, name):
        return any(p.name == name and p.role == "inout"
                   for p in self.prog.params)

    def wrong(self, got):
        return [n for n in self.writes if not close(got[n], self.want[n])]


def calls(torch, dev, name):
    import attn
    file, program, _, grad = CASES[name]
    p = next(p for p in attn.load(os.path.join(HERE, name + ".so")).programs
             if not p.name.endswith("_grad"))
    have = inputs(torch, dev, name)
    if grad:
        shapes = p.output_shapes({n: x.shape for n, x in have.items()})
        for n, shape in shapes.items():
            have.setdefault(n, torch.zeros(tuple(shape), device=dev))
    yield "forward", Call(torch, p, have)
    if not grad:
        return
    first = Call(torch, p, have)
    b = p.grad.backward
    have = dict(have, **first.want)
    g = torch.Generator().manual_seed(2)
    for q in b.params:
        of = q.name[2:]
        if q.name.startswith("d_"):
            x = torch.randn(have[of].shape, generator=g).to(have[of].dtype)
            have[q.name] = x.to(dev)
        elif q.name.startswith("g_"):
            have[q.name] = torch.zeros_like(have[of])
    yield "backward", Call(torch, b, have)


def tried(torch, dev, name, far):
    """(title, verdict) of each layout of each tensor."""
    for title, call in calls(torch, dev, name):
        for n, x in call.have.items():
            for axis in range(x.dim()):
                for odd in (0, 1):
                    view = far.view(x, axis, odd)
                    if view is None:
                        continue
                    at = f"{name} {title} {n} axis {axis}" + " odd" * odd
                    try:
                        wrong = call.wrong(call.run({n: view}))
                    except Exception as e:  # noqa: BLE001
                        yield at, f"{type(e).__name__}: {e}".split("\n")[0]
                        far.clear(view)
                        continue
                    alone = far.clear(view)
                    yield at, ("right" if not wrong and alone else
                               "differs: " + ", ".join(wrong) if wrong else
                               "wrote elsewhere")


def whole(torch, dev, name):
    """(title, verdict) of tensors without gaps that reach beyond ELEMENTS: the
    small ones again and again, as further batches or pages; what the last
    batches give is that of the first ones."""
    paged = CASES[name][2] is PAGED
    for title, call in calls(torch, dev, name):
        big = {}
        for n, x in call.have.items():
            if paged:
                times = -(-ELEMENTS // x.numel()) if n in "KV" else 1
            else:
                times = -(-ELEMENTS // (B * H * S * D)) if x.shape[0] == B else 1
            big[n] = x.repeat(times, *[1] * (x.dim() - 1))
            if n == "pt":
                big[n] += (-(-ELEMENTS // call.have["K"].numel()) - 1) * 40
        for n in call.writes:
            if not call.is_read(n):
                big[n].fill_(math.nan)
        at = f"{name} {title} whole"
        try:
            call.prog.prepare(**big)()
            torch.cuda.synchronize()
        except torch.OutOfMemoryError:
            yield at, "no room"
            continue
        except Exception as e:  # noqa: BLE001
            yield at, f"{type(e).__name__}: {e}".split("\n")[0]
            continue
        off = []
        for n in call.writes:
            want, got = call.want[n], big[n]
            if len(want) == B or paged:
                off += [n for part in (got[:len(want)], got[-len(want):])
                        if not close(part, want)]
        yield at, "differs: " + ", ".join(off) if off else "right"
        del big
        torch.cuda.empty_cache()


def main():
    a = carry.options(__doc__, "far.json", 1)
    a.add_argument("--cpu", action="store_true")
    a.add_argument("--whole", action="store_true")
    a = a.parse_args()
    if a.prep:
        return prepare(a)
    import torch
    dev = "cpu" if a.cpu else "cuda"
    far, n, bad = Far(torch, dev), 0, 0
    for name in CASES:
        if a.filter not in name:
            continue
        try_ = whole(torch, dev, name) if a.whole else tried(torch, dev, name, far)
        for at, said in try_:
            n, bad = n + 1, bad + (said not in ("right", "no room"))
            if said != "right":
                print(at, said, sep=": ", flush=True)
    print(f"{n} layouts, {bad} wrong")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
