"""Recurrences longer than a chunk of which parts are the same at all steps:
decays, what is written and where, what erases, what reads. Several writes."""
from .base import STEPS, rng
from .operands import UNIT
from .steps import Steps, part

FADES, PUTS, GETS = {}, {}, {}


class Walk(Steps):
    """A recurrence whose tensors need not have a step."""

    def still(self, r, stem, tail, dtype, gen):
        """A read of a tensor that is the same at all steps."""
        axes = r.choice([["H"], ["H"], ["B", "H"], ["B"], []][:5 if tail else 4])
        name = self.param(stem, [*axes, *tail], dtype, gen)
        at = ", ".join(x.lower() for x in axes)
        return f"{name}[{at}]" if axes else name

    def some(self, r, stem, tail, gen, dtype=None, few=False):
        """A read of a tensor, of the step or of all."""
        dtype = dtype or r.choice([self.t] * 3 + ["f32"])
        if r.random() < 0.6:
            return self.seq(stem, tail, dtype, gen, few)
        return self.still(r, stem, tail, dtype, gen)

    def vector(self, r, stem, n, few=False):
        """Along the rows or columns; of an erasing program of length 1, without
        negative elements: products of what is left do not grow."""
        if n == "D" and self.unit:
            return f"unit({self.some(r, stem, [n], 'uniform(0,1)', few=few)})"
        size = min(1, self.d ** -0.5 * 2) if n == "D" else 1
        return self.some(r, stem, [n], f"normal(0,{size:.3f})", few=few)

    def share(self, r):
        if r.random() < 0.2:
            return r.choice(["0.5", "0.25"])
        return self.some(r, "beta", (), "uniform(0,1)")

    # The state lies either way.
    def outer(self, k, v):
        return f"outer({v}, {k})" if self.columns else f"outer({k}, {v})"

    def read(self, q, m):
        return f"({m} @@ {q})" if self.columns else f"({q} @@ {m})"

    def rows(self, g):
        return f"{g}[1, :]" if self.columns else f"{g}[:, 1]"


def logs(r):
    return r.choice(["uniform(-0.3,-0.01)"] * 4 + ["uniform(-5,0)"])


def factor(r, g):
    return r.choice([f"exp({g})", f"exp({g})", f"sigmoid({g} + 3.0)", f"exp2({g})"])


@part(FADES)
def fade_none(p, r):
    return "{}"


@part(FADES)
def fade_number(p, r):
    return r.choice(["0.9", "exp(-0.2)"]) + " * {}"


@part(FADES)
def fade_step(p, r):
    return factor(r, p.seq("g", (), r.choice(["f32", p.t]), logs(r))) + " * {}"


@part(FADES)
def fade_still(p, r):
    return factor(r, p.still(r, "g", (), "f32", logs(r))) + " * {}"


@part(FADES)
def fade_step_and_still(p, r):
    a = p.still(r, "a", (), "f32", "uniform(0.1,1)")
    g = p.seq("g", (), "f32", logs(r))
    return r.choice([f"exp({a} * {g})", f"(sigmoid({g}) * exp(-{a}))"]) + " * {}"


@part(FADES)
def fade_rows(p, r):
    return p.rows(factor(r, p.seq("g", ["D"], r.choice(["f32", p.t]), logs(r)))) + " * {}"


@part(FADES)
def fade_still_rows(p, r):
    return p.rows(factor(r, p.still(r, "g", ["D"], "f32", logs(r)))) + " * {}"


@part(FADES)
def fade_step_and_still_rows(p, r):
    g, a = p.seq("g", (), "f32", logs(r)), p.still(r, "a", ["D"], "f32", "uniform(0.1,1)")
    return p.rows(f"exp({a} * {g})") + " * {}"


@part(PUTS)
def put_plain(p, r, k, v):
    return f"{{m}} + {p.outer(k, v)}"


@part(PUTS)
def put_share(p, r, k, v):
    return f"{{m}} + {p.share(r)} * {p.outer(k, v)}"


@part(PUTS)
def put_delta(p, r, k, v):
    return f"{{m}} + {p.share(r)} * {p.outer(k, f'{v} - ' + p.read(k, '{m}'))}"


@part(PUTS)
def put_other(p, r, k, v):
    """What is erased is found by another vector."""
    e = p.vector(r, "E", "D")
    return f"{{m}} + {p.outer(k, f'{p.share(r)} * ({v} - ' + p.read(e, '{m}') + ')')}"


@part(PUTS)
def put_nothing(p, r, k, v):
    """Only erases."""
    return f"{{m}} - {p.share(r)} * {p.outer(k, p.read(k, '{m}'))}"


@part(GETS)
def get_behind(p, r):
    return "", p.read("qt", "M")


@part(GETS)
def get_before(p, r):
    return f"let before = {p.read('qt', 'M')};", "before"


@part(GETS)
def get_both(p, r):
    f = p.vector(r, "F", "D")
    return f"let before = {p.read(f, 'M')};", f"{p.read('qt', 'M')} + 0.5 * before"


@part(GETS)
def get_between(p, r):
    """Between the decay and what is written."""
    return "", p.read("qt", "old") + r.choice([f" + {p.read('qt', 'M')}", ""])


FEATURES = ["scale_read", "gate_read", "bonus", "norm_read", "step_reverse",
            "last_state", "query_groups", "keys_rotated"]


def write(p, spec, fade, puts, get):
    p.unit = any(x in ("put_delta", "put_other", "put_nothing") for x in puts)
    r = rng(spec, "vectors")
    p.columns = r.random() < 0.25
    for f in spec.features:
        STEPS[f][0](p, rng(spec, f))
    old = FADES[fade][0](p, rng(spec, fade)).format("M")
    if p.unit:
        p.function(UNIT)
    q, k = p.vector(r, "Q", "D", few=True), p.vector(r, "K", "D", few=True)
    if p.turned:
        q, k = p.turned(q, "t"), p.turned(k, "t")
    lines = [f"let qt = {q};", f"let kt = {k};", f"let vt = {p.vector(r, 'V', 'Dv')};"]
    first, o = GETS[get][0](p, rng(spec, get))
    lines += [first] * bool(first) + [f"let old = {old};"]
    for i, name in enumerate(puts):
        own = rng(spec, f"{name}{i}")
        new = i and own.random() < 0.8
        k = p.vector(own, "K", "D") if new else "kt"
        v = p.vector(own, "V", "Dv") if i else "vt"
        value = PUTS[name][0](p, own, k, v)
        lines.append(f"M = {value.format(m='M' if i else 'old')};")
    for f in p.reads:
        o = f(o, "qt", "kt", "vt")
    return lines, o


def walk(spec):
    p = Walk(spec)
    p.reads, p.before, p.normal, p.second = [], False, False, False
    p.reverse, p.turned, p.last, p.shift, p.groups = False, None, False, False, False
    p.frame(rng(spec, "frame"))
    fade, *puts, get = spec.row.split("+")
    lines, o = write(p, spec, fade, puts, get)
    size = ["Dv", "D"] if p.columns else ["D", "Dv"]
    start = p.start("S0", size, rng(spec, "end"))
    p.outs.append(f"O: {p.t}[{', '.join([*p.shape, 'Dv'])}]{p.layout}")
    lines.append(f"O[{p.at}] = {o};")
    step = "\n    ".join(lines)
    p.indices.insert(0, "index b in B, h in H;")
    p.body = [f"state M: f32[{', '.join(size)}] = {start};",
              f"step t{' reverse' if p.reverse else ''} {{\n    {step}\n  }}"]
    if p.last:
        p.outs.append(f"HT: f32[B, H, {', '.join(size)}]")
        p.after.append("HT[b, h] = M;")
    return p


def row(r, without):
    """A decay, one to three writes, a read."""
    fade, get = (r.choice([x for x in t if x not in without]) for t in (FADES, GETS))
    puts = [x for x in PUTS if x not in without]
    return "+".join([fade, *(r.choice(puts) for _ in range(r.choice([1, 1, 1, 2, 2, 3]))),
                     get])


def simpler(row):
    """Rows that are a step simpler."""
    fade, *puts, get = row.split("+")
    for i in range(len(puts) if len(puts) > 1 else 0):
        yield "+".join([fade, *puts[:i], *puts[i + 1:], get])
    for i, x in enumerate(puts):
        if x != "put_plain":
            yield "+".join([fade, *puts[:i], "put_plain", *puts[i + 1:], get])
    if fade != "fade_none":
        yield "+".join(["fade_none", *puts, get])
    if get != "get_behind":
        yield "+".join([fade, *puts, "get_behind"])
