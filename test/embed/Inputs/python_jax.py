"""attn.jax on the CPU: calls, jit, vmap, gradients, states, errors."""
import importlib.util
import os
import sys

if importlib.util.find_spec("jax") is None:
    print("skipped: there is no jax")
    sys.exit()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import attn  # noqa: E402
import attn.jax  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
STD = os.path.join(HERE, "../../../stdlib")


def compiled(path, options=(), **dims):
    return attn.compile(os.path.join(STD, path), dims=dims, options=options)


def normal(seed, *shape, dtype="float32"):
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def plain(q, k, v, scale=0.25):
    """Causal attention, aligned at the end."""
    n = q.shape[-3] // k.shape[-3]
    k, v = (jnp.repeat(x, n, -3) for x in (k, v))
    s = scale * q @ jnp.swapaxes(k, -1, -2)
    keep = jnp.tri(*s.shape[-2:], s.shape[-1] - s.shape[-2], dtype=bool)
    return jax.nn.softmax(jnp.where(keep, s, -jnp.inf)) @ v


def close(a, b, tol=2e-5):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype, (x, y)
        far = float(jnp.abs(x - y).max() / jnp.abs(y).max())
        assert far < tol, far


gqa = compiled("attention/gqa.attn", ["--grad"], D=16, Dv=16).gqa
f = attn.jax.function(gqa, batch="B")
q, k, v = normal(1, 2, 4, 7, 16), normal(2, 2, 2, 11, 16), normal(3, 2, 2, 11, 16)

# Calls, with scalars, by name, under jit; types choose among programs.
close(f(q, k, v)[0], plain(q, k, v))
close(f(q, V=v, K=k, scale=0.5)[0], plain(q, k, v, 0.5))
close(jax.jit(lambda *x: f(*x, scale=0.5))(q, k, v)[0], plain(q, k, v, 0.5))
o, lse = jax.jit(f)(*(x.astype("bfloat16") for x in (q, k, v)))
assert o.dtype == "bfloat16" and lse.dtype == "float32"
assert float(jnp.abs(o.astype("float32") - plain(q, k, v)).max()) < 3e-2
# The executable is used again, from several calls at once too.
g = jax.jit(lambda *x: sum(f(*x)[0] * i for i in range(1, 4)))
for i in range(5):
    close(g(q + i, k, v), 6 * plain(q + i, k, v))

# Batches: of all, of some, twice, behind another axis, without the dim's name.
many = [jnp.stack([x, -x, 2 * x]) for x in (q, k, v)]
own = attn.jax.function(gqa)
for h in (f, own):
    close(jax.vmap(lambda *x: h(*x)[0])(*many), plain(*many))
    close(jax.vmap(lambda x: h(x, k, v)[0])(many[0]),
          jax.vmap(lambda x: plain(x, k, v))(many[0]))
    close(jax.vmap(lambda x: h(x, k, v)[0], 3, 2)(jnp.moveaxis(many[0], 0, 3)),
          jax.vmap(lambda x: plain(x, k, v), 3, 2)(
              jnp.moveaxis(many[0], 0, 3)))
    twice = jax.vmap(jax.vmap(lambda x: h(x, k, v)[0]))
    close(twice(jnp.stack([many[0]] * 2)),
          plain(*[jnp.broadcast_to(x, (2, 3, *x.shape))
                  if x is not many[0] else jnp.stack([x] * 2)
                  for x in (many[0], k, v)]))
text = jax.jit(jax.vmap(lambda x: f(x, k, v)[0])).lower(many[0]).as_text()
assert text.count("stablehlo.custom_call") == 1 and "while" not in text

# Gradients: of all inputs, of one, under jit and vmap, of both outputs.
w = normal(4, 2, 4, 7, 16)


def loss(attention):
    return lambda *x: (attention(*x) * w).sum()


ours = loss(lambda *x: f(*x)[0])
want = jax.grad(loss(plain), (0, 1, 2))(q, k, v)
close(jax.grad(ours, (0, 1, 2))(q, k, v), want)
close(jax.jit(jax.grad(ours, 1))(q, k, v), want[1])
close(jax.vmap(jax.grad(ours, (0, 1, 2)))(*many),
      jax.vmap(jax.grad(loss(plain), (0, 1, 2)))(*many), 1e-4)
value, back = jax.vjp(f, q, k, v)
both = back((w, jnp.ones_like(value[1])))
first = back((w, jnp.zeros_like(value[1])))
second = back((jnp.zeros_like(w), jnp.ones_like(value[1])))
close(both, [a + b for a, b in zip(first, second)])

# A state is an input and one more result; nothing is changed in place.
r = attn.jax.function(compiled("recurrent/linear.attn", D=16, Dv=16).linear)
x = [normal(i, 1, 2, 9, 16) for i in range(3)]
s0 = normal(5, 1, 2, 16, 16)
kept = np.asarray(s0).copy()
o, s1 = jax.jit(r)(*x, s0)
_, half = r(*(a[:, :, :4] for a in x), s0)
o2, s2 = r(*(a[:, :, 4:] for a in x), half)
close((o[:, :, 4:], s1), (o2, s2))
assert (np.asarray(s0) == kept).all()


def fails(error, call, text):
    try:
        call()
    except error as e:
        assert text in str(e), e
        return
    raise AssertionError("no error")


# Errors have the arguments' names, those of the runtime through XLA too.
biased = attn.jax.function(attn.compile(source="""
import std.rows { softmax }
attention biased<B, S, D: const {16}>
  (Q: f32[B, S, D], K: f32[B, S, D], nograd bias: f32[S]) -> (O: f32[B, S, D])
{
  index b in B, q in S, k in S;
  let (p, _) = softmax(dot(Q[b, q], K[b, k]) + bias[k]);
  O[b, q] = sum(k: p * K[b, k]);
}
""", options=["--grad"]).biased, batch="B")
x, bias = q[0], normal(6, 7)
close(jax.grad(lambda x: biased(x, x, bias).sum())(x), jax.grad(lambda x: (
    jax.nn.softmax(x @ jnp.swapaxes(x, 1, 2) + bias) @ x).sum())(x), 1e-4)
fails(attn.UnsupportedError,
      lambda: jax.grad(lambda b: biased(x, x, b).sum())(bias),
      "no gradient of 'bias'")
# A bias that vmap gives a batch has no axis for it: calls one by one.
rows = jnp.stack([bias, -bias])
close(jax.vmap(lambda b: biased(x, x, b))(rows),
      jnp.stack([biased(x, x, bias), biased(x, x, -bias)]))
fails(attn.ArgumentError, lambda: jax.jit(
    lambda s: f(q, k, v, scale=s))(0.5), "static")
fails(attn.ArgumentError, lambda: f(q, k, v, other=1), "no parameter")
fails(attn.NullError, lambda: f(q, k), "'V' is missing")
fails(attn.DtypeError, lambda: f(q, k, v.astype("int32")), "other types")
fails(attn.DimError, lambda: attn.jax.function(gqa, batch="X"), "no dim X")
fails(Exception, lambda: jax.block_until_ready(f(q, k, v[:, :, :9])),
      "argument 'V'")
print("all good")
