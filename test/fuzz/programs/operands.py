"""What is made of queries, keys and values before their products."""
from .base import FEATURES, kind

RMS = """fn norm<D>(x: f32[D], w: f32[D]) -> f32[D] {
  index d in D;
  return x * rsqrt(sum(d: x[d] * x[d]) / D + 0.1) * w;
}
"""
UNIT = """fn unit<D>(x: f32[D]) -> f32[D] {
  index d in D;
  return x * rsqrt(sum(d: x[d] * x[d]) + 0.1);
}
"""
TURN = """fn turn<D>(x: f32[D], pos: f32) {
  index i in D // 2;
  let a = pos * 100.0 ** (-2.0 * f32(i) / D);
  let lo = x[i] * cos(a) - x[i + D // 2] * sin(a);
  let hi = x[i + D // 2] * cos(a) + x[i] * sin(a);
  return concat(vec(i: lo), vec(i: hi));
}
"""
PART = """fn part<D>(x: f32[D], pos: f32) {
  index i in D // 4;
  let a = pos * 100.0 ** (-4.0 * f32(i) / D);
  let lo = x[i] * cos(a) - x[i + D // 4] * sin(a);
  let hi = x[i + D // 4] * cos(a) + x[i] * sin(a);
  return concat(vec(i: lo), vec(i: hi), x[D // 4 * 2 : D]);
}
"""
PAIRS = """fn pairs<D>(x: f32[D], pos: f32) {
  index d in D;
  let a = pos * 100.0 ** (-f32(d // 2) / D);
  let other = if d % 2 == 0 then -x[d + 1] else x[d - 1];
  return vec(d: x[d] * cos(a) + other * sin(a));
}
"""


def rotation(p, r):
    """A function that turns a vector: of two arguments."""
    if p.d < 2 or p.d % 2:
        return None
    name, text = r.choice([("turn", TURN), ("turn", TURN), ("pairs", PAIRS)]
                          + ([("part", PART)] if p.d % 4 == 0 else []))
    p.function(text)
    return lambda x, at: f"{name}({x}, f32({at}))"


def norm(p, r, stem):
    if r.random() < 0.4:
        p.function(UNIT)
        return lambda x: f"unit({x})"
    p.function(RMS)
    w = p.param(stem, ["D"], "f32", "uniform(0.5,1.5)")
    return lambda x: f"norm({x}, {w})"


@kind(FEATURES)
def rotated(p, r):
    turn = rotation(p, r)
    if turn:
        p.q, p.k = turn(p.q, p.qpos), turn(p.k, p.kpos)


@kind(FEATURES)
def normalized(p, r):
    p.q, p.k = norm(p, r, "wq")(p.q), norm(p, r, "wk")(p.k)


@kind(FEATURES)
def norm_then_turn(p, r):
    normalized(p, r)
    rotated(p, r)


@kind(FEATURES)
def turn_then_norm(p, r):
    rotated(p, r)
    normalized(p, r)


@kind(FEATURES)
def projected(p, r):
    """A matrix between query and key, or on the values."""
    side = r.choice(["q", "k"])
    if p.d > 128:
        return
    w = p.param("Wp", ["D", "D"], p.t, f"normal(0,{p.d ** -0.5:.3f})")
    setattr(p, side, f"({getattr(p, side)} @@ {w})")


@kind(FEATURES)
def feature_map(p, r):
    f = r.choice([lambda x: f"relu({x})", lambda x: f"(0.5 * silu({x}))",
                  lambda x: f"tanh({x})", lambda x: f"exp(min(0.3 * {x}, 1.0))"])
    p.q, p.k = f(p.q), f(p.k)


@kind(FEATURES)
def shifted_operand(p, r):
    side = r.choice(["q", "k"])
    u = p.param("u", ["D"], "f32", "uniform(-0.5,0.5)")
    setattr(p, side, f"({getattr(p, side)} + {u})")


@kind(FEATURES)
def channel_scales(p, r):
    u = p.tensor(r, "cs", "f32", "uniform(0.5,1.5)", ["D"], 0)
    p.k = f"({p.k} * {u})"


@kind(FEATURES)
def gated_values(p, r):
    shape, read = p.keys
    if not shape:
        return
    if r.random() < 0.5:
        g = p.param("vg", [*shape, "Dv"], p.t)
        p.v = f"({p.v} * sigmoid({g}[{read}]))"
    else:
        g = p.param("vg", shape, "f32")
        p.v = f"({p.v} * sigmoid({g}[{read}]))"
