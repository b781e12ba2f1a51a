"""Random programs of many kinds: what people write, not what a library has.

    python3 programs SEED [--steps | --walks]  prints one program and its options

A program is a frame (its axes, and how its tensors lie), a row function, and a
list of features: terms of scores, masks, operands, epilogues, outputs. Each
draws from random numbers of its own, by seed and name, so that a program with
one feature less is otherwise the same; `reduced` gives all that are a step
simpler. Scores stay moderate, divisors away from zero, and nothing compares
floats that are computed, so that all ways to compute a program agree to a few
digits; a program has the dims and the ranges of its inputs with it.
"""
import dataclasses
import random

from .base import (FEATURES, FRAMES, HEADS, ROWS, STEPS, TYPES, Program, Spec,
                   rng, shuffled)
from . import frames, masks, operands, outputs, rows, scores  # noqa: F401
from . import walks
from .steps import DECAYS, UNIT, WRITES, Steps

OPERANDS = {"rotated", "normalized", "norm_then_turn", "turn_then_norm",
            "projected", "feature_map", "shifted_operand", "channel_scales",
            "gated_values"}


def attention(spec):
    p = Program(spec)
    p.late, p.more, p.more_value, p.layout = [], [], "", ""
    p.packs = lambda: {}

    def extra(stem, value, dtype="f32", tail=()):
        name = p.name(stem)
        p.outs.append(f"{name}: {dtype}[{', '.join([*p.par.values(), *tail])}]")
        p.after.append(f"{name}[{', '.join(p.par)}] = {value};")
    p.extra = extra
    FRAMES[spec.frame][0](p, rng(spec, "frame"))
    todo = [f for f in spec.features if set(FEATURES[f][1]) <= p.words]
    first = [f for f in todo if f in OPERANDS]
    for f in first:
        FEATURES[f][0](p, rng(spec, f))
    p.s = f"{p.scale} * dot({p.q}, {p.k})"
    for f in todo:
        if f not in first:
            FEATURES[f][0](p, rng(spec, f))
    finish(p, spec)
    return p


def finish(p, spec):
    r = rng(spec, "end")
    par = f"index {', '.join(f'{i} in {e}' for i, e in p.par.items())};"
    where = f" where {' & '.join(f'({c})' for c in p.domain)}" if p.domain else ""
    p.indices.insert(0, par)
    p.indices.append(f"index {p.key} in {p.extent}{where};")
    p.s = p.let("s", p.s)
    w = ROWS[spec.row][0](p, rng(spec, spec.row))
    o = f"sum({p.key}: {w} * {p.v}){p.more_value}"
    for f in p.late:
        o = f(o if o.isidentifier() else f"({o})")
    order = list(p.par) if r.random() < 0.7 or "packed" in p.words else shuffled(r, p.par)
    if p.layout:
        order = ["b", "q", "h"]
    shape = ", ".join([p.par[i] for i in order] + ["Dv"])
    p.outs.insert(0, f"O: {p.t}[{shape}]{p.layout}")
    p.after.insert(0, f"O[{', '.join(order)}] = {o};")
    for f in p.more:
        f(w)


def recurrent(spec):
    p = Steps(spec)
    p.reads, p.before, p.normal, p.second, p.unit = [], False, False, False, False
    p.reverse, p.turned, p.last, p.shift, p.groups = False, None, False, False, False
    p.frame(rng(spec, "frame"))
    r = rng(spec, "end")
    decay, write = spec.row.split("+")
    old = DECAYS[decay][0](p, rng(spec, decay)).format("M")
    put = WRITES[write][0](p, rng(spec, write))
    for f in spec.features:
        STEPS[f][0](p, rng(spec, f))
    small = "normal(0,1)" if p.unit else f"normal(0,{min(1, p.d ** -0.5 * 2):.3f})"
    q, k = (p.seq(x, ["D"], gen=small, few=True) for x in "QK")
    v = p.seq("V", ["Dv"])
    if p.unit:
        p.function(UNIT)
        q, k = f"unit({q})", f"unit({k})"
    if p.turned:
        q, k = p.turned(q, "t"), p.turned(k, "t")
    if p.shift:
        v = f"(0.7 * {v} + 0.3 * {v.replace('t', 't - 1')})"
    states = [f"state M: f32[D, Dv] = {p.start('S0', ['D', 'Dv'], r)};"]
    lines = [f"let kt = {k};", f"let qt = {q};", f"let vt = {v};"]
    o = "qt @@ M"
    if p.before:
        lines.append(f"let before = {o};")
        o = "before"
    lines.append(f"let old = {old};")
    lines += put.format(old="old", k="kt", v="vt").split("\n    ")
    if p.normal:
        states.append(f"state n: f32[D] = {p.start('n0', ['D'], r)};")
        lines.append("n = 0.9 * n + kt;")
        o = f"({o}) / (abs(dot(qt, n)) + 1.0)"
    if p.second:
        states.append("state N: f32[D, Dv] = 0.0;")
        lines.append("N = 0.8 * N + outer(kt, vt);")
        o = f"{o} + 0.5 * (qt @@ N)"
    for f in p.reads:
        o = f(o, "qt", "kt", "vt")
    out = p.at
    p.outs.append(f"O: {p.t}[{', '.join([*p.shape, 'Dv'])}]{p.layout}")
    lines.append(f"O[{out}] = {o};")
    step = "\n    ".join(lines)
    p.indices.insert(0, "index b in B, h in H;")
    p.body = states + [f"step t{' reverse' if p.reverse else ''} {{\n    {step}\n  }}"]
    if p.last:
        p.outs.append("HT: f32[B, H, D, Dv]")
        p.after.append("HT[b, h] = M;")
    return p




def build(spec):
    if spec.frame.startswith("walk"):
        return walks.walk(spec)
    return recurrent(spec) if spec.frame.startswith("steps") else attention(spec)


# An inner loop of steps behind the end of a packed sequence is executed by the
# interpreter, which does not take its reads then; machine code clamps them.
NOT_WITH = {"steps_packed": ("write_repeat",)}


def pick(r, table, without):
    return r.choice([x for x in table if x not in without])


def draw(seed, dtype=None, steps=False, without=()):
    """The program of a seed; none of its kinds is in `without`."""
    r = random.Random(f"program {seed}")
    dtype = dtype or r.choice(TYPES)
    d = r.choice(HEADS)
    dv = d if r.random() < 0.5 else r.choice(HEADS)
    n = r.choice([0, 1, 1, 2, 2, 3, 3, 4])
    if steps:
        d, dv = (x if x < 66 or r.random() < 0.2 else 16 for x in (d, dv))
        frame = "steps_packed" if r.random() < 0.2 else "steps"
        row = pick(r, DECAYS, without) + "+" + pick(
            r, WRITES, (*without, *NOT_WITH.get(frame, ())))
        features = STEPS
    else:
        frames = ["grid"] * 5 + list(FRAMES)
        rows = ["softmax"] * 4 + list(ROWS)
        frame, row, features = pick(r, frames, without), pick(r, rows, without), FEATURES
    have = [x for x in features if x not in without]
    return Spec(seed, dtype, d, dv, frame, row, tuple(r.sample(have, n)))


def draw_walk(seed, dtype=None, without=()):
    """The recurrence of a seed, of those of walks.py."""
    r = random.Random(f"walk {seed}")
    dtype = dtype or r.choice(TYPES + ["bf16"] * 2)
    d, dv = (r.choice([8] * 6 + [16] * 4 + [32, 64, 5, 1, 24]) for _ in range(2))
    have = [x for x in walks.FEATURES if x not in without]
    return Spec(seed, dtype, d, dv, r.choice(["walk"] * 3 + ["walk_packed"]),
                walks.row(r, without), tuple(r.sample(have, r.choice([0, 0, 1, 1, 2]))))


def reduced(spec):
    """Specs that are one step simpler."""
    for i in range(len(spec.features)):
        yield dataclasses.replace(
            spec, features=spec.features[:i] + spec.features[i + 1:])
    plain = {"frame": ["one_axis", "grid"], "row": ["plain_weights", "softmax"]}
    if spec.frame.startswith("walk"):
        plain = {"frame": ["walk"]}
        for row in walks.simpler(spec.row):
            yield dataclasses.replace(spec, row=row)
    if spec.frame.startswith("steps"):
        plain = {"frame": ["steps"], "row": ["decay_none+write_plain"]}
    for field, values in plain.items():
        now = getattr(spec, field)
        for v in values[:values.index(now) if now in values else None]:
            yield dataclasses.replace(spec, **{field: v})
    for field in ("d", "dv"):
        if getattr(spec, field) not in (16, 32):
            yield dataclasses.replace(spec, **{field: 16})
    if spec.d != spec.dv:
        yield dataclasses.replace(spec, dv=spec.d)
