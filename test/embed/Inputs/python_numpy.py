"""The package with NumPy: results, errors, strides, DLPack, threads, the
cache."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

import attn

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "../../driver/Inputs/softmax.attn")


def reference(q, k, v):
    q, k, v = (x.astype("f8") for x in (q, k, v))
    g = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, g, 1), np.repeat(v, g, 1)
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    n, m = s.shape[-2:]
    s = np.where(np.arange(n)[:, None] + m - n >= np.arange(m), s, -np.inf)
    top = s.max(-1, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(-1, keepdims=True)
    return p / total @ v, (np.log(total) + top)[..., 0]


def close(x, ref):
    bound = 1e-5 * (abs(ref) + np.sqrt((ref ** 2).mean()))
    assert x.shape == ref.shape and (abs(x - ref) <= bound).all()


def raises(kind, text, f, *args, **named):
    try:
        f(*args, **named)
    except kind as e:
        assert isinstance(e, attn.Error) and text in str(e), e
        return e
    raise AssertionError(f"no {kind.__name__}")


class Foreign:
    """Known by DLPack only."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self):
        return self.x.__dlpack__()


lib = attn.compile(SOURCE)
gqa = lib.gqa
assert lib["gqa"] is gqa and len(lib) == 1 and "where Hq % Hk == 0" in \
    gqa.signature and gqa.dims[0] == "B"
rng = np.random.default_rng(1)
q = rng.standard_normal((2, 4, 7, 16)).astype("f4")
k = rng.standard_normal((2, 2, 11, 16)).astype("f4")
v = rng.standard_normal((2, 2, 11, 16)).astype("f4")
want = reference(q, k, v)

# results, however they are asked for
o, lse = gqa(q, k, v)
close(o, want[0])
close(lse, want[1])
assert (gqa(q, k, v, LSE=None) == o).all()
assert (gqa(q, V=v, K=k, scale=0.25, LSE=None) == o).all()
out = np.zeros((2, 7, 4, 16), "f4").transpose(0, 2, 1, 3)
assert gqa(q, k, v, O=out, LSE=None) is out and (out == o).all()
both = gqa(q, k, v, out=(out, lse))
assert both[0] is out and both[1] is lse
wide = np.empty((2, 4, 7, 32), "f4")
wide[..., ::2] = q
close(gqa(wide[..., ::2], k, v, LSE=None), want[0])
close(gqa(q[::-1], k[::-1], v[::-1], LSE=None), want[0][::-1])
close(gqa(Foreign(q), Foreign(k), Foreign(v))[0], want[0])
assert gqa.output_shapes({"Q": (3, 4, 5, 16), "K": (3, 2, 6, 16)}) == \
    {"O": (3, 4, 5, 16), "LSE": (3, 4, 5)}
assert gqa.workspace_bytes(q, k, v) == 0

again = gqa.prepare(q, k, v, O=out)
out[...] = 0
assert again()[0] is out and (out == o).all()

# errors, with names
e = raises(attn.ShapeError, "argument 'V', axis 2: extent is 11, expected "
           "Sk = 5", gqa, q, k[:, :, :5], v)
assert (e.arg, e.axis, e.expected, e.got) == ("V", 2, 5, 11)
raises(TypeError, "argument 'V': element type is f64, expected f32", gqa, q,
       k, v.astype("f8"))
raises(ValueError, "Hq % Hk == 0 does not hold: Hq = 3", gqa, q[:, :3], k, v)
raises(attn.RankError, "argument 'Q': rank is 3", gqa, q[0], k, v)
raises(attn.StrideError, "argument 'O', axis 0: stride 0", gqa, q, k, v,
       O=np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), q.shape, [0] * 4),
       LSE=None)
fixed = np.zeros_like(q)
fixed.flags.writeable = False
raises(attn.ArgumentError, "argument 'O' is written, but read-only", gqa, q, k,
       v, O=fixed, LSE=None)
assert (gqa(fixed, k, v, LSE=None) == gqa(fixed.copy(), k, v, LSE=None)).all()
raises(attn.DimError, "dim D ('Q', axis 3) is 15", gqa, q[..., :15],
       k[..., :15], v)
raises(attn.NullError, "argument 'V' is missing", gqa, q, k)
raises(attn.ArgumentError, "no parameter 'mask'", gqa, q, k, v, mask=1)
raises(attn.ArgumentError, "argument 'K': str is no array", gqa, q, "k", v)
raises(attn.DtypeError, "argument 'Q': element type complex64", gqa,
       q.astype("c8"), k, v)
raises(attn.CompileError, "A0006", attn.compile, source="x y")
raises(attn.FileError, "No such file", attn.load, "/nowhere.so")
raises(attn.FormatError, "not an attn container", attn.loads, b"nothing")
raises(attn.FormatError, "no shared library", attn.load, __file__)
assert not hasattr(lib, "mha")
raises(attn.ArgumentError, "no program 'mha', but gqa", lambda: lib["mha"])

# a container, from a file and from memory, has no code for CPUs
box = os.path.join(sys.argv[1] + ".attnb")
os.makedirs(os.path.dirname(box), exist_ok=True)
subprocess.run([os.environ["ATTNC"], "--emit=container", "--target", "sm_80",
                os.path.join(HERE, "../../driver/Inputs/twice.attn"), "-o",
                box], check=True)
with open(box, "rb") as f:
    data = f.read()
for twice in (attn.load(box).twice, attn.loads(data)["twice"]):
    assert twice.signature.startswith("twice(X: f32[N, M], by: f32 = 2)")
    raises(attn.UnsupportedError, "no code for this CPU", twice,
           np.ones((2, 3), "f4"))
raises(attn.FormatError, "truncated", attn.loads, data[:-1])

# Gradients: what they read is kept on request; some or all, cotangents that
# are missing are zero.
GRADIENTS = os.path.join(HERE, "../../driver/Inputs/gradients.attn")
pair = attn.compile(GRADIENTS, dims={"T": "f32"}, options=["--grad"])
plain, masked = pair.plain_f32, pair.masked_f32
x, y, z, w = rng.standard_normal((4, 1, 2, 6, 16), "f4")
o1 = plain(x, y, z)
o2, saved = plain(x, y, z, save=True)
assert (o1 == o2).all() and "save_lse" in saved.arrays
g = plain.grad(saved, d_O=w)
for name, mine in zip("QKV", g):
    assert (plain.grad(saved, d_O=w, want=name) == mine).all()
one, two = plain.grad(saved, d_O=w, want=("V", "Q"))
assert (one == g[2]).all() and (two == g[0]).all()
step = 1e-2
for arg, mine in enumerate(g):
    ends = []
    for s in (step, -step):
        moved = [x, y, z]
        moved[arg] = moved[arg] + s * w
        ends.append(plain(*moved).astype("f8"))
    slope = ((ends[0] - ends[1]) * w).sum() / (2 * step)
    assert abs(slope - (mine * w).sum()) < 1e-3 * (abs(slope) + 1)
(o3, _), saved = masked(x, y, z, save=True, scale=0.5)
assert saved.scalars == {"scale": 0.5}
none = masked.grad(saved)
assert not any(a.any() for a in none)
part = masked.grad(saved, d_LSE=w[..., 0].copy())
assert part[0].any() and not part[2].any()
whole = masked.grad(saved, d_O=np.zeros_like(w), d_LSE=w[..., 0].copy())
assert all((a == b).all() for a, b in zip(part, whole))
raises(attn.ArgumentError, "no gradient of 'P'", plain.grad, saved, want="P")
raises(attn.ArgumentError, "save=True", plain.grad, o1)
raises(attn.ArgumentError, "the gradient reads it", masked, x, y, z, save=True,
       LSE=None)
raises(attn.UnsupportedError, "--grad", gqa, q, k, v, save=True)

# many threads at once
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    for x in pool.map(lambda i: gqa(q, k, v)[0], range(64)):
        assert (x == o).all()

# The cache: found again; not after a change, nor if it was damaged.
assert attn.compile(SOURCE).path == lib.path
os.makedirs(sys.argv[1], exist_ok=True)
top, part = (pathlib.Path(sys.argv[1], n) for n in ("top.attn", "part.attn"))
top.write_text('import part { f }\nattention up<N>(X: f32[N]) -> (Y: f32[N]) '
               "{\n  index n in N;\n  Y[n] = f(X[n]);\n}\n")
for n in (2, 3):
    part.write_text(f"fn f(x: f32) -> f32 {{ return x * {n}.0; }}\n")
    twice = attn.compile(top)
    assert (twice.up(np.ones(3, "f4")) == n).all()
library = pathlib.Path(twice.path)
made, = (p for p in attn.cache_dir().glob("*.json")
         if library.stem in p.read_text())
assert list(json.loads(made.read_text())["imports"]) == [str(part)]
for damaged, text in ((made, "{"), (library, "no library")):
    # Put in its place: the library is mapped.
    aside = damaged.with_suffix(".aside")
    aside.write_text(text)
    aside.replace(damaged)
    assert (attn.compile(top).up(np.ones(3, "f4")) == 3).all()
    assert damaged.read_bytes() != text.encode()

# A recurrence overwrites its state; its gradient takes what that was.
lib = attn.compile(
    pathlib.Path(__file__).parents[3] / "stdlib/recurrent/linear.attn",
    fn="linear", dims={"T": "f32", "D": 64, "Dv": 64}, options=["--grad"])
linear = lib.linear_f32
rng = np.random.default_rng(0)
q, k, v, d_o = rng.standard_normal((4, 1, 2, 10, 64)).astype("f4")
first, d_s = rng.standard_normal((2, 1, 2, 64, 64)).astype("f4")
state = first.copy()
_, saved = linear(q, k, v, state, save=True)
g_v, g_s = linear.grad(saved, d_O=d_o, d_S0=d_s, want=("V", "S0"))


def loss(x, start):
    s = start.copy()
    return (linear(q, k, x, s) * d_o).sum() + (s * d_s).sum()


for got, by, slope in ((g_v, k, loss(v + k, first) - loss(v - k, first)),
                       (g_s, d_s, loss(v, first + d_s) - loss(v, first - d_s))):
    assert abs((got * by).sum() - slope / 2) < 1e-3 * abs(slope)
print("all good")
