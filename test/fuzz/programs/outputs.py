"""What is made of an output behind its sum over keys, and other outputs."""
from .base import FEATURES, kind
from .operands import RMS


@kind(FEATURES)
def gate(p, r):
    p.late.append(lambda o: f"sigmoid({p.row_tensor('gate', gen='normal(0,1)')}) * {o}")


@kind(FEATURES)
def gate_channels(p, r):
    f = r.choice(["sigmoid", "silu"])
    p.late.append(lambda o: f"{f}({p.row_tensor('gate', ['Dv'], **p.packs())}) * {o}")


@kind(FEATURES)
def residual(p, r):
    p.late.append(lambda o: f"({o} + 0.5 * {p.row_tensor('X', ['Dv'], **p.packs())})")


@kind(FEATURES)
def output_norm(p, r):
    p.function(RMS)
    w = p.param("wo", ["Dv"], "f32", "uniform(0.5,1.5)")
    p.late.append(lambda o: f"norm({p.let('o', o)}, {w})")


@kind(FEATURES)
def output_projected(p, r):
    if p.dv > 128:
        return
    w = p.param("Wo", ["Dv", "Dv"], p.t, f"normal(0,{p.dv ** -0.5:.3f})")
    p.late.append(lambda o: f"({o}) @@ {w}")


@kind(FEATURES)
def output_sum(p, r):
    u = p.param("uo", ["Dv"], "f32", "uniform(-0.5,0.5)")

    def more(o):
        o = p.let("o", o)
        p.extra("Z", f"dot({o}, {u})")
        return o
    if "packed" not in p.words:
        p.late.append(more)


@kind(FEATURES)
def gated_by_sum(p, r):
    """A gate that is a sum over the output's own channels."""
    u = p.param("ug", ["Dv"], "f32", "uniform(-0.5,0.5)")

    def more(o):
        o = p.let("o", o)
        return f"sigmoid(dot({o}, {u})) * {o}"
    p.late.append(more)


@kind(FEATURES)
def second_value(p, r):
    """Two outputs of the same weights."""
    shape, read = p.keys
    if shape and "packed" not in p.words:
        v2 = p.param("V2", [*shape, "Dv"])
        p.more.append(lambda w: p.extra(
            "O2", f"sum({p.key}: {w} * {v2}[{read}])", p.t, ["Dv"]))


@kind(FEATURES)
def row_output(p, r):
    k = p.key
    what = r.choice([f"sum({k}: W * W)", f"max({k}: W) + 1.0", f"mean({k}: W)",
                     f"f32(count({k}: true))", f"log(1.5 + sum({k}: abs(W)))",
                     f"min({k}: W) - 2.0", f"sum({k}: W * f32({k})) * 0.1"])
    if "packed" not in p.words:
        p.more.append(lambda w: p.extra("X1", what.replace("W", w)))
