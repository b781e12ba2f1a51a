"""What is true of programs without a reference: a random program (programs/)
and what a rule makes of it, with its arrays, compute the same. Of net.py
--relations. A rule gives None where it says nothing of a program."""
import copy
import re
import subprocess

import numpy as np

KINDS = {"f32": np.float32, "f16": np.float16, "bf16": np.float32,
         "i32": np.int32}


class Case:
    """A program's text, its dims, and the arrays of its parameters."""

    def __init__(self, p, seed):
        self.text, self.dims, self.more = p.text(), dict(p.dims), []
        self.par, self.key = getattr(p, "par", {}), getattr(p, "key", "k")
        rng = np.random.default_rng(seed)
        self.axes, self.data, self.types, self.scalars = {}, {}, {}, {}
        for text in [*p.params, *p.outs]:
            m = re.match(r"(?:nograd |inout )*(\w+): (\w+)(?:\[(.*?)\])?$", text)
            if not m:
                raise ValueError("a layout")
            name, kind = m[1], m[2]
            self.axes[name] = m[3].split(", ") if m[3] else []
            self.types[name] = kind
            if text in p.outs:
                continue
            gen = p.inputs.get(name, "normal(0,1)")
            if self.axes[name]:
                shape = [self.extent(a) for a in self.axes[name]]
                self.data[name] = draw(rng, gen, shape).astype(KINDS[kind])
            else:
                fixed = re.match(r"const\((\S+)\)", gen)
                if not fixed:
                    raise ValueError("a scalar that is drawn")
                self.scalars[name] = fixed[1]
        self.outs = [re.match(r"(\w+)", o)[1] for o in p.outs]

    def extent(self, text):
        if not re.fullmatch(r"\w+", text):
            raise ValueError("a computed extent")
        return int(text) if text.isdigit() else int(self.dims[text])

    def copy(self):
        c = copy.copy(self)
        c.dims, c.data, c.axes = dict(self.dims), dict(self.data), dict(self.axes)
        c.more = list(self.more)
        return c

    def sliced(self, dim, lo, hi):
        """The part of an axis, of all arrays that have it."""
        c = self.copy()
        c.dims[dim] = hi - lo
        for n, x in self.data.items():
            for i, a in enumerate(self.axes[n]):
                if a == dim:
                    x = x.take(range(lo, hi), i)
            c.data[n] = x
        return c

    def reads(self, name):
        """The items of each read of a tensor in the body."""
        body = self.text[self.text.index("{\n"):]
        return [split(inside(body, m.end() - 1)) for m in
                re.finditer(rf"\b{name}\[", body)]

    def run(self, work, name):
        """Its outputs; None, and what was said."""
        file = work / f"{name}.attn"
        file.write_text(self.text)
        cmd = ["attnc", "run", file, "--fn", "p", "-q", "--no-cache",
               "--max-seconds=60", *self.more]
        cmd += ["-D", ",".join(f"{k}={v}" for k, v in self.dims.items())]
        for n, v in self.scalars.items():
            cmd += ["--set", f"{n}={v}"]
        for n, x in self.data.items():
            np.save(work / f"{name}.{n}.npy", x)
            cmd += ["--in", f"{n}={work}/{name}.{n}.npy"]
        for n in self.outs:
            cmd += ["--out", f"{n}={work}/{name}.{n}.out.npy"]
        r = subprocess.run([str(c) for c in cmd], capture_output=True, text=True)
        if r.returncode:
            return None, r.stderr
        return {n: self.value(n, np.load(work / f"{name}.{n}.out.npy"))
                for n in self.outs}, ""

    def value(self, name, x):
        if self.types[name] == "bf16" and x.dtype == np.uint16:
            x = (x.astype(np.uint32) << 16).view(np.float32)
        return x.astype(np.float64)


def draw(rng, gen, shape):
    kind, args = re.match(r"(\w+)(?:\((.*)\))?$", gen).groups()
    a = [float(x) for x in args.split(",")] if args else []
    if kind == "normal":
        return a[0] + a[1] * rng.standard_normal(shape)
    if kind == "uniform":
        return rng.uniform(a[0], a[1], shape)
    if kind == "randint":
        return rng.integers(int(a[0]), int(a[1]), shape)
    if kind == "const":
        return np.full(shape, a[0])
    raise ValueError(gen)


# ---------------------------------------------------------------- text
def inside(text, at):
    """What stands between the bracket at text[at] and its partner."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([") - (text[i] in ")]")
        if not depth:
            return text[at + 1:i]
    raise ValueError("a bracket without end")


def split(text):
    parts, depth = [""], 0
    for ch in text:
        depth += (ch in "([") - (ch in ")]")
        if ch == "," and not depth:
            parts.append("")
        else:
            parts[-1] += ch
    return [p.strip() for p in parts]


def exchanged(text, name, items, by):
    """Reads name[items] become `by`."""
    old = re.escape(f"{name}[{', '.join(items)}]")
    return re.sub(rf"\b{old}", lambda m: by, text)


def free_of_position(c):
    """Whether keys are told apart by what is read at them only."""
    scans = re.search(r"\b(cum|suffix_|prefix_)\w+\(", c.text)
    if c.extent_of_key() is None or "ragged" in c.text or scans:
        return False
    k, body = c.key, c.text[c.text.index("{\n"):]
    body = re.sub(rf"index {k} in \w+;|\b{k}:", "", body)
    for n in c.data:
        for items in c.reads(n):
            body = exchanged(body, n, items,
                             ", ".join(i for i in items if i != k))
    return not re.search(rf"\b{k}\b", body)


def extent_of_key(c):
    m = re.search(rf"index {c.key} in (\w+);", c.text)
    return m[1] if m else None


Case.extent_of_key = extent_of_key


def key_axes(c):
    """By tensor the axes that the key index reads; None if it reads them in
    some places only."""
    found = {}
    for n in c.data:
        for items in c.reads(n):
            at = [i for i, x in enumerate(items) if x == c.key]
            if found.setdefault(n, at) != at:
                return None
    return found


SOFTMAX = re.compile(
    r"let e = exp\(s - max\(k: s\)\);\n  let p = e / sum\(k: e\);\n"
    r"  O\[([^\]]*)\] = sum\(k: p \* (V)\[([^\]]*)\]\);\n}")


# ---------------------------------------------------------------- rules
def renamed(c):
    """Indices and dims have other names."""
    d, names = c.copy(), [n for n in c.dims if not n.startswith("D")]
    d.text = re.sub(rf"\b({'|'.join(names)})\b", r"\1x", c.text)
    d.dims = {k + "x" if k in names else k: v for k, v in c.dims.items()}
    d.text = re.sub(r"\b([bhq])\b(?!\()", r"\1_", d.text)
    return d, lambda got: got


def reordered(c):
    """The first two axes of each tensor of inputs lie the other way."""
    d, any_ = c.copy(), False
    for n, axes in c.axes.items():
        reads = d.reads(n)  # others' reads in them have been changed already
        if n not in c.data or len(axes) < 3 or "D" in axes[:2] or not reads or \
                any(len(r) < 2 for r in reads):
            continue
        for items in reads:
            new = ", ".join([items[1], items[0], *items[2:]])
            d.text = exchanged(d.text, n, items, f"{n}[{new}]")
        d.text = re.sub(rf"\b({n}: \w+\[)(\w+), (\w+)", r"\1\3, \2", d.text)
        d.data[n] = np.ascontiguousarray(c.data[n].swapaxes(0, 1))
        any_ = True
    return (d, lambda got: got) if any_ else None


def swapped(c):
    """dot(a, b) is dot(b, a)."""
    d, at, n = c.copy(), 0, 0
    while (m := re.compile(r"\bdot\(").search(d.text, at)):
        args = inside(d.text, m.end() - 1)
        a = split(args)
        at = m.end()
        if len(a) == 2 and "dot(" not in args:
            d.text = d.text[:at] + f"{a[1]}, {a[0]}" + d.text[at + len(args):]
            n += 1
    return (d, lambda got: got) if n else None


def batches(c):
    """Sequences one by one."""
    if c.dims.get("B", 1) < 2 or "B + 1" in c.text or \
            re.search(r"\bB\b", c.text[c.text.index("{\n"):].replace("b in B", "")):
        return None
    at = {n: c.axes[n].index("B") if "B" in c.axes[n] else None for n in c.outs}
    if None in at.values():
        return None
    parts = [c.sliced("B", i, i + 1) for i in range(c.dims["B"])]

    def join(*got):
        return {n: np.concatenate([g[n] for g in got], at[n]) for n in c.outs}
    return parts, join


def permuted(c):
    """Keys in another order."""
    axes = key_axes(c)
    if not axes or not free_of_position(c):
        return None
    d, order = c.copy(), np.random.default_rng(7).permutation(
        c.dims[c.extent_of_key()])
    for n, at in axes.items():
        for i in at:
            d.data[n] = d.data[n].take(order, i)
    return d, lambda got: got


def scaled_queries(c):
    """Q is twice as large, and the scale half."""
    whole, scaled = len(re.findall(r"\bQ\[", c.text)), "rsqrt(D) * dot(Q["
    if not whole or c.text.count(scaled) != whole:
        return None
    d = c.copy()
    d.text = c.text.replace(scaled, "0.5 * " + scaled)
    d.data["Q"] = c.data["Q"] * c.data["Q"].dtype.type(2)
    return d, lambda got: got


def halves(c):
    """Two streams of keys, joined by their log-sum-exp."""
    m, axes = SOFTMAX.search(c.text), key_axes(c)
    if not m or not axes or not free_of_position(c) or len(c.outs) > 1:
        return None
    dim = c.extent_of_key()
    n = c.dims[dim]
    if n < 2 or any(c.axes[t][i] != dim for t, at in axes.items() for i in at):
        return None
    d = c.copy()
    shape = ", ".join(c.axes["O"][:-1])
    d.text = re.sub(r"\)(\n  where .*)?\n\{", lambda x: f", LSE: f32[{shape}])"
                    f"{x[1] or ''}\n{{", c.text, count=1)
    d.text = d.text[:-2] + (f"  LSE[{m[1]}] = max(k: s) + log(sum(k: e));\n}}\n")
    d.axes["LSE"], d.types = c.axes["O"][:-1], {**c.types, "LSE": "f32"}
    d.outs = c.outs + ["LSE"]

    def join(a, b):
        with np.errstate(all="ignore"):
            most = np.maximum(a["LSE"], b["LSE"])
            most = np.where(np.isfinite(most), most, 0)
            x, y = (np.exp(g["LSE"] - most)[..., None] for g in (a, b))
            return {"O": np.nan_to_num((x * a["O"] + y * b["O"]) / (x + y))}
    return [d.sliced(dim, 0, n // 2), d.sliced(dim, n // 2, n)], join


def tiles(c):
    """Other tiles, or steps one after the other."""
    d = c.copy()
    d.more = ["--chunk=1"] if c.text.count("recurrent p") else [
        "--tile-q=8", "--tile-k=16"]
    return d, lambda got: got


def dead(c):
    """An output more, which nobody wants."""
    d = c.copy()
    if "recurrent p" in c.text:
        if "HT" in c.outs:
            return None
        made, shape = "HT[b, h] = M;", "HT: f32[B, H, D, Dv]"
    else:
        if "let s = " not in c.text or not c.par:
            return None
        made = f"Dead[{', '.join(c.par)}] = max({c.key}: s);"
        shape = f"Dead: f32[{', '.join(c.par.values())}]"
    d.text = re.sub(r"\)(\n  where .*)?\n\{", lambda x: f", {shape})"
                    f"{x[1] or ''}\n{{", c.text, count=1)
    d.text = d.text[:-2] + f"  {made}\n}}\n"
    return d, lambda got: got


def shifted(c):
    """All scores of a softmax are larger by the same."""
    if not SOFTMAX.search(c.text):
        return None
    d = c.copy()
    d.text = re.sub(r"  let s = (.*);\n", r"  let s = (\1) + 1.5;\n", c.text, 1)
    return d, lambda got: got


def scaled_values(c):
    """Values are twice as large, and so is what is computed."""
    if not SOFTMAX.search(c.text) or len(c.reads("V")) != 1:
        return None
    d = c.copy()
    d.data["V"] = c.data["V"] * c.data["V"].dtype.type(2)
    return d, lambda got: {n: x / 2 for n, x in got.items()}


RULES = [renamed, reordered, swapped, batches, permuted, scaled_queries, halves,
         tiles, dead, shifted, scaled_values]


# ---------------------------------------------------------------- comparing
def differs(want, got, tol):
    """By how much of what may be, and where; None: not at all."""
    for n, x in want.items():
        y = got[n]
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return f"{n} differs: inf or NaN"
        ok = np.isfinite(x)
        if not ok.any():
            continue
        rms = np.sqrt(np.mean(x[ok] ** 2))
        most = np.maximum(np.abs(x[ok]) + rms, 1e-300)
        far = (np.abs(x - y)[ok] / most).max()
        if far > tol:
            return f"{n} differs: {far:.3g} > {tol:.3g}"
    return None


def judge(p, seed, tol, work):
    """By rule "right", or what is wrong; rules that say nothing are left out.
    Where a program cannot be transformed: {}."""
    try:
        c = Case(p, seed)
    except ValueError:
        return {}
    want, said = c.run(work, "whole")
    if want is None:
        return {"whole": said}
    found = {}
    for rule in RULES:
        made = rule(c)
        if not made:
            continue
        cases, join = made
        cases = cases if isinstance(cases, list) else [cases]
        got = [x.run(work, f"{rule.__name__}{i}") for i, x in enumerate(cases)]
        bad = [said for out, said in got if out is None]
        found[rule.__name__] = bad[0] if bad else differs(
            want, join(*[out for out, _ in got]), tol) or "right"
    return found
