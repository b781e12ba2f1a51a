"""The package with PyTorch on the CPU: tensors, and an operator."""
import os
import pickle
import sys
import warnings

import torch

import attn
import attn.torch

HERE = os.path.dirname(os.path.abspath(__file__))
lib = attn.compile(os.path.join(HERE, "../../driver/Inputs/softmax.attn"))
torch.manual_seed(1)
q, k, v = (torch.randn(2, s, h, 16).transpose(1, 2)
           for s, h in ((7, 4), (11, 2), (11, 2)))


def reference(q, k, v):
    k, v = (x.double().repeat_interleave(2, 1) for x in (k, v))
    s = q.double() @ k.transpose(-1, -2) / 4
    n, m = s.shape[-2:]
    keep = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    return s.masked_fill(~keep, -torch.inf).softmax(-1) @ v


want = reference(q, k, v)
o, lse = lib.gqa(q, k, v)
assert isinstance(o, torch.Tensor) and (o - want).abs().max() < 1e-5
# Threads are PyTorch's, unless the caller says otherwise.
assert os.environ["ATTN_OPENMP"] == "1"
# The short way of later calls: the same, whatever happens between them.
lib.gqa(q, k, v, scale=2.0)
for x in (q, q.contiguous(), q[:1].expand(2, -1, -1, -1)):
    slow = lib.gqa(Q=x, K=k, V=v)
    for _ in range(3):
        fast = lib.gqa(x, k, v)
        assert all(torch.equal(a, b) for a, b in zip(fast, slow))
for bad in (lambda: lib.gqa(q, k, v[:, :, :5]), lambda: lib.gqa(q, k),
            lambda: lib.gqa(q, k, v.double()), lambda: lib.gqa(q, k, 1)):
    try:
        bad()
        raise AssertionError("no error")
    except attn.Error:
        pass
op = attn.torch.register(lib.gqa, "demo::gqa")
assert torch.equal(op(q, k, v)[0], o)
assert torch.equal(op(q, k, v, scale=0.25)[1], lse)
try:
    op(q.clone().requires_grad_(), k, v)
    raise AssertionError("no error")
except attn.UnsupportedError as e:
    assert e.arg == "Q"
with torch.no_grad():
    assert torch.equal(op(q.clone().requires_grad_(), k, v)[0], o)
if hasattr(torch.library, "register_fake"):
    meta = op(*(x.to("meta") for x in (q, k, v)))
    assert meta[0].shape == o.shape and meta[0].is_meta
try:
    op(q, k[:, :, :5], v)
    raise AssertionError("no error")
except attn.ShapeError as e:
    assert e.arg == "V"
assert attn.torch.register(lib.gqa, "demo::gqa") is op  # twice
if hasattr(torch, "compile") and sys.argv[1:] == ["compile"]:
    f = torch.compile(lambda q, k, v: torch.ops.demo.gqa(q * 2, k, v)[0] + 1,
                      fullgraph=True)
    assert (f(q, k, v) - (reference(q * 2, k, v) + 1)).abs().max() < 1e-5

# With its gradient: beside PyTorch's own.
pair = attn.compile(os.path.join(HERE, "../../driver/Inputs/gradients.attn"),
                    dims={"T": "f32"}, options=["--grad"])


def formula(q, k, v, masked):
    s = q @ k.transpose(-1, -2) / 4
    if masked:
        s = s.masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    return s.softmax(-1) @ v, s.logsumexp(-1)


for name in ("plain", "masked"):
    masked = name == "masked"
    op = attn.torch.register(pair[name + "_f32"], "demo::" + name)
    # PyTorch's register_autograd takes no tensors that have a name only.
    for end in ("_fwd", "_bwd"):
        schema = getattr(torch.ops.demo, name + end).default._schema
        assert not any(x.kwarg_only for x in schema.arguments)
    q, k, v = (torch.randn(2, 3, 9, 16, requires_grad=True) for _ in range(3))

    def o_of(*args):
        return op(*args)[0] if masked else op(*args)

    losses = [(lambda o: o.sum(), 0), (lambda o: (o * o).sum(), 0)]
    if masked:
        losses.append((lambda o: (o * o).sum(), 1))
    for loss, at in losses:
        inputs = (q, k) if at else (q, k, v)
        mine = op(q, k, v)[at] if masked else op(q, k, v)
        got = torch.autograd.grad(loss(mine), inputs)
        want = torch.autograd.grad(loss(formula(q, k, v, masked)[at]), inputs)
        assert all((a - b).abs().max() < 1e-4 for a, b in zip(got, want))
    some, = torch.autograd.grad(o_of(q, k.detach(), v.detach()).sum(), q)
    all_, = torch.autograd.grad(o_of(q, k, v).sum(), q)
    assert torch.equal(some, all_)
    if masked:  # of outputs that nothing depends on there is no cotangent
        outs = op(q, k, v)
        alone = torch.autograd.grad(outs[1].sum(), (q, k), retain_graph=True)
        both = torch.autograd.grad(outs, (q, k), (torch.zeros_like(outs[0]),
                                                  torch.ones_like(outs[1])))
        assert all(torch.equal(a, b) for a, b in zip(alone, both))
    with torch.no_grad():
        assert not o_of(q, k, v).requires_grad
    try:
        g, = torch.autograd.grad((o_of(q, k, v) ** 2).sum(), q,
                                 create_graph=True)
        g.sum().backward()
        raise AssertionError("differentiated twice")
    except RuntimeError:
        pass
# Autocast casts to the types that the program has; the casts have gradients.
half = attn.compile(os.path.join(HERE, "../../driver/Inputs/gradients.attn"),
                    fn="plain", dims={"T": "bf16"}, options=["--grad"])
op = attn.torch.register(half.plain_bf16, "demo::half")
q, k, v = (torch.randn(2, 3, 9, 16, requires_grad=True) for _ in range(3))
try:
    op(q, k, v)
    raise AssertionError("f32 for bf16")
except attn.Error as e:
    assert e.arg == "Q"
with torch.autocast("cpu", dtype=torch.bfloat16):
    o = op(q, k, V=v.bfloat16())
    mixed = torch.nn.functional.linear(o, torch.ones(16, 16))
assert o.dtype == mixed.dtype == torch.bfloat16
assert torch.equal(o, op(*(x.bfloat16() for x in (q, k, v))))
got = torch.autograd.grad(o.float().square().sum(), (q, k, v))
want = torch.autograd.grad(formula(q, k, v, False)[0].square().sum(),
                           (q, k, v))
assert all(a.dtype == torch.float32 and (a - b).abs().max() < 0.1
           for a, b in zip(got, want))
op = attn.torch.register(pair.plain_f32, "demo::single")
with torch.autocast("cpu", dtype=torch.bfloat16):
    assert op(q.bfloat16(), k, v).dtype == torch.float32

# In f64, where differences of the operator itself are a reference.
wide = attn.compile(os.path.join(HERE, "f64.attn"), options=["--grad"]).wide
op = attn.torch.register(wide, "demo::wide")
x = [torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
     for _ in range(3)]
assert torch.autograd.gradcheck(op, x, eps=1e-6, atol=1e-8, rtol=1e-8)
# A cotangent with strides 0 is that of ones.
one, = torch.autograd.grad(op(*x), x[0],
                           torch.ones((), dtype=x[0].dtype).expand(2, 5, 8))
all_, = torch.autograd.grad(op(*x), x[0], torch.ones(2, 5, 8).double())
assert torch.equal(one, all_)

# One result, of which the gradient needs nothing more.
bare = attn.compile(os.path.join(HERE, "bare.attn"), options=["--grad"]).bare
bare_op = attn.torch.register(bare, "demo::bare")
s = (x[0] @ x[1].transpose(-1, -2)).tril()
assert torch.allclose(bare_op(*x), s.sigmoid().tril() @ x[2])
assert torch.autograd.gradcheck(bare_op, x, eps=1e-6, atol=1e-8, rtol=1e-8)

# Other derivatives: an error, never zeros.
try:
    import functorch
except ImportError:
    functorch = None
plain = attn.compile(os.path.join(HERE, "f64.attn")).wide
alone = attn.torch.register(plain, "demo::wide_alone")
y = [v.detach() for v in x]
ahead = torch.autograd.forward_ad


def forward_mode(f):
    with ahead.dual_level():
        f(ahead.make_dual(y[0], torch.ones_like(y[0])), *y[1:])


for f in (op, alone):
    refused = [lambda: forward_mode(f)]
    if functorch and f is alone:
        refused += [lambda: functorch.grad(lambda a: f(a, *y[1:]).sum())(y[0]),
                    lambda: functorch.jvp(lambda a: f(a, *y[1:]), (y[0],),
                                          (y[0],))]
    for call in refused:
        try:
            call()
            raise AssertionError("no error")
        except (attn.UnsupportedError, RuntimeError) as e:
            assert "no error" not in str(e)
assert torch.equal(alone(*y), op(*y))


def transforms(func):
    """torch.func's, in reverse: right numbers, and no second derivatives."""
    def own(q, k, v):
        s = q @ k.swapaxes(-1, -2)
        return s.masked_fill(~torch.ones(5, 5).tril().bool(),
                             float("-inf")).softmax(-1) @ v

    many = [torch.stack([t, t.flip(1), -t]) for t in y]
    w = torch.randn(2, 5, 8, dtype=y[0].dtype)
    warnings.filterwarnings("error", message=".*batching rule.*")
    for run in (
            lambda f: func.grad(lambda *t: (f(*t) * w).sum(), (0, 1, 2))(*y),
            lambda f: func.vjp(f, *y)[1](w),
            lambda f: (func.vmap(f)(*many),),
            lambda f: func.vmap(func.grad(lambda *t: (f(*t) * w).sum(),
                                          (0, 1, 2)))(*many),
            lambda f: func.grad(lambda k: (func.vmap(
                f, (0, None, 0))(many[0], k, many[2]) * w).sum())(y[1])[None],
            lambda f: (func.jacrev(lambda q: f(q, *y[1:])[0, :2, :2])(y[0]),)):
        for a, b in zip(run(op), run(own)):
            assert torch.allclose(a, b, 1e-9, 1e-11), (a - b).abs().max()
    try:
        func.grad(lambda q: func.grad(lambda q: op(q, *y[1:]).sum())(
            q).square().sum())(y[0])
        raise AssertionError("no error")
    except attn.UnsupportedError as e:
        assert "second derivatives" in str(e)


if hasattr(torch.library, "register_vmap"):
    transforms(torch.func)
assert attn.torch.register(plain, "demo::wide_alone") is alone
try:
    attn.torch.register(wide, "demo::wide_alone")
    raise AssertionError("no error")
except attn.ArgumentError as e:
    assert "another name" in str(e)
try:
    plain(y[0].to("meta"), *y[1:])
    raise AssertionError("no error")
except attn.UnsupportedError as e:
    assert "attn.torch.register" in str(e)

# A file as a function: types of elements, gradients, another process.
GQA = os.path.join(HERE, "../../../stdlib/attention/gqa.attn")
f = attn.torch.function(GQA, dims={"D": 64, "Dv": 64})
q, k, v = (torch.randn(1, h, 9, 64) for h in (4, 2, 2))
o, _ = f(q, k, v)
low, _ = f(*(t.bfloat16() for t in (q, k, v)))
assert low.dtype == torch.bfloat16 and (low - o).abs().max() < 0.1
leaf = q.clone().requires_grad_()
f(leaf, k, v)[0].sum().backward()
assert leaf.grad.abs().sum() > 0
assert torch.equal(pickle.loads(pickle.dumps(f))(q, k, v)[0], o)
for bad, kind in ((lambda: f(q.double(), k.double(), v.double()),
                   attn.DtypeError), (lambda: f(), attn.NullError),
                  (lambda: attn.torch.function("no.attn"), attn.FileError)):
    try:
        bad()
        raise AssertionError("no error")
    except kind:
        pass


def traced():
    """torch.compile: of a function as of an operator, its gradient and types; a
    program is no operator, and says so."""
    run = torch.compile(lambda q, k, v: f(q * 2, k, v)[0] + 1, fullgraph=True)
    assert torch.allclose(run(q, k, v), f(q * 2, k, v)[0] + 1, 1e-5, 1e-6)
    want, = torch.autograd.grad(f(leaf * 2, k, v)[0].sum(), leaf)
    got, = torch.autograd.grad(run(leaf, k, v).sum(), leaf)
    assert torch.allclose(got, want, 1e-5, 1e-6)
    assert run(*(t.half() for t in (q, k, v))).dtype == torch.float16
    whole = attn.compile(GQA, dims={"D": 64, "Dv": 64})
    for p in (whole.gqa, whole.gqa_f32):
        try:
            torch.compile(lambda q: p(q, k, v)[0], fullgraph=True)(q)
            raise AssertionError("no error")
        except torch._dynamo.exc.Unsupported as e:
            assert "attn.torch.register" in str(e)
        parts = torch.compile(lambda q: p(q * 2, k, v)[0] + 1)(q)
        assert torch.allclose(parts, f(q * 2, k, v)[0] + 1, 1e-5, 1e-6)


if hasattr(torch, "compiler"):
    traced()

# A recurrence whose state comes in and goes out: the first stays as it is.
GLA = os.path.join(HERE, "../../../stdlib/recurrent/simple_gla.attn")
lib = attn.compile(GLA, dims={"T": "f32", "D": 64, "Dv": 64},
                   options=["--grad"])
gla = lib.simple_gla_f32
over = attn.torch.register(gla, "my::gla")
pure = torch.ops.my.gla_states


def by_steps(Q, K, V, g, S0):
    M, out = S0, []
    for t in range(Q.shape[2]):
        M = torch.exp(g[:, :, t, None, None]) * M \
            + K[:, :, t, :, None] * V[:, :, t, None, :]
        out.append((Q[:, :, t, :, None] * M).sum(-2) / 8)
    return torch.stack(out, 2), M


m = {"Q": torch.randn(2, 3, 70, 64), "K": torch.randn(2, 3, 70, 64) / 8,
     "V": torch.randn(2, 3, 70, 64), "g": -torch.rand(2, 3, 70),
     "S0": torch.randn(2, 3, 64, 64)}
m = {n: t.requires_grad_() for n, t in m.items()}
first = m["S0"].detach().clone()
found = []
for f in (lambda: pure(**m), lambda: by_steps(**m)):
    o, last = f()
    (o.sin().sum() + last.cos().sum()).backward()
    found.append([o, last] + [t.grad for t in m.values()])
    for t in m.values():
        t.grad = None
for x, y in zip(*found):
    assert (x - y).norm() < 1e-4 * y.norm()
assert torch.equal(m["S0"], first)
with torch.no_grad():
    o, last = pure(**m)
    here = m["S0"].clone()
    assert torch.equal(over(m["Q"], m["K"], m["V"], m["g"], here), o)
    assert torch.equal(here, last)
try:
    over(**m)
    raise AssertionError("no error")
except attn.UnsupportedError as e:
    assert "_states" in str(e)

print("all good: PyTorch", torch.__version__)
