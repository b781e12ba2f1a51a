"""Terms and functions of scores."""
from .base import FEATURES, kind
from .masks import atom


def add(p, r, term):
    p.s = f"{p.s} {r.choice(['+', '+', '-'])} {term}"


def gathered(p, r, row, n):
    """A product of the query or key with a row of a table."""
    lead = [("h", p.par["h"])] if "h" in p.par and r.random() < 0.4 else []
    dtype = r.choice([p.t, p.t, "f32"])
    e = p.param("R", [x for _, x in lead] + [n, "D"], dtype, "uniform(-0.5,0.5)")
    with_ = r.choice([p.q, p.q, p.k])
    add(p, r, f"{p.scale} * dot({with_}, {e}[{', '.join([i for i, _ in lead] + [row])}])")


@kind(FEATURES)
def relative_rows(p, r):
    n = p.dim("Nr", r.choice([1, 5, 17, 40]))
    far = r.randint(0, 8)
    gathered(p, r, f"clamp({p.qpos} - {p.kpos} + {far}, 0, {n} - 1)", n)


@kind(FEATURES, "q", "plain")
def relative_all(p, r):
    gathered(p, r, "q - k + Sk - 1", "Sq + Sk")


@kind(FEATURES)
def rows_by_table(p, r):
    n = p.dim("Ne", r.choice([1, 3, 12, 40]))
    at = p.tensor(r, "id", "i32", f"randint(0,{p.dims['Ne']})")
    gathered(p, r, at, n)


@kind(FEATURES)
def decomposed_rows(p, r):
    """Positions of an image: a table of rows, one of columns."""
    x = p.number(r, "W", r.choice([1, 3, 8]))
    for op in ("//", "%"):
        gathered(p, r, f"clamp(({p.qpos}) {op} {x} - ({p.kpos}) {op} {x} + 4, 0, 8)",
                 p.const("Nw", 9))


@kind(FEATURES)
def const_terms(p, r):
    n = r.randint(2, 4)
    e = p.tensor(r, "E", gen="uniform(-0.5,0.5)", tail=[str(n)])
    w = p.tensor(r, "w", tail=[str(n)], at_least=0)
    if "[" not in w:
        w += "[]"
    read = [x[:-1] + ("" if x.endswith("[]") else ", ") for x in (w, e)]
    add(p, r, "(" + " + ".join(f"{read[0]}{i}] * {read[1]}{i}]" for i in range(n)) + ")")


@kind(FEATURES)
def const_sum(p, r):
    n = p.const("L", r.choice([1, 2, 3, 5, 8]))
    e, w = p.tensor(r, "E", tail=[n]), p.tensor(r, "w", tail=[n], key=False)
    l = p.index("l", n)
    f = r.choice(["{} * {}", "tanh({} + {})", "abs({} - {})"]).format(
        e[:-1] + f", {l}]", w[:-1] + f", {l}]")
    add(p, r, f"{r.choice(['sum', 'sum', 'max', 'mean'])}({l}: {f})")


@kind(FEATURES)
def dyn_sum(p, r):
    n = p.dim("M", r.choice([1, 2, 5, 9]))
    e, w = p.tensor(r, "E", tail=[n]), p.tensor(r, "w", tail=[n], key=False)
    m = p.index("m", n)
    f = r.choice(["{} * {}", "sigmoid({} + {})"]).format(
        e[:-1] + f", {m}]", w[:-1] + f", {m}]")
    add(p, r, f"0.3 * sum({m}: {f})")


@kind(FEATURES)
def feature_dot(p, r):
    """A dot with features of the pair."""
    n = p.const("F", r.choice([1, 3, 8, 16]))
    e = p.tensor(r, "E", r.choice(["f32", p.t]), tail=[n])
    w = p.tensor(r, "w", tail=[n], at_least=0, key=False)
    add(p, r, f"0.5 * dot({w}, {e})")


@kind(FEATURES)
def counted(p, r):
    n = p.const("L", r.choice([1, 2, 4])) if r.random() < 0.5 else p.dim("M", 3)
    a = p.tensor(r, "ia", "i32", "randint(0,4)", [n])
    b = p.tensor(r, "ib", "i32", "randint(0,4)", key=False)
    l = p.index("l", n)
    what = r.choice([f"f32(count({l}: {a[:-1]}, {l}] > {b}))",
                     f"select(any({l}: {a[:-1]}, {l}] == {b}), 1.0, -0.5)",
                     f"select(all({l}: {a[:-1]}, {l}] >= {b}), 1.0, -0.5)"])
    add(p, r, f"0.2 * {what}")


@kind(FEATURES, "h", "plain")
def heads_mixed(p, r):
    """Scores of all heads, mixed by a matrix."""
    if "[b, h, q]" not in p.q or "(" in p.q:
        return
    shape, read = p.keys
    mix = p.param("mix", ["H", "H"], "f32", "uniform(-0.3,0.3)")
    g = p.index("g", "H")
    add(p, r, f"sum({g}: {mix}[h, {g}] * {p.scale} * dot({p.q.replace('h', g)}, {p.k}))")


@kind(FEATURES, "q", "h", "plain")
def weights_of_heads(p, r):
    """Weights of all heads at once, as a bias."""
    if "[b, h, q]" not in p.q or "(" in p.q:
        return
    g = p.index("g", "H")
    add(p, r, f"0.3 * sum({g}: sigmoid({p.scale} * dot({p.q.replace('h', g)}, {p.k})))")


@kind(FEATURES, "q", "plain")
def convolved(p, r):
    """A kernel over the scores of the last queries."""
    if "(" in p.q or p.q.count("q") != 1:
        return
    n = p.const("I", r.choice([2, 3]))
    w = p.param("cw", [n], "f32", "uniform(-0.5,0.5)")
    i = p.index("i", n)
    add(p, r, f"sum({i}: {w}[{i}] * {p.scale} * "
              f"dot({p.q.replace('q', f'max(q - {i}, 0)')}, {p.k}))")


@kind(FEATURES)
def bias(p, r):
    add(p, r, p.tensor(r, "bias", r.choice(["f32", p.t])))


@kind(FEATURES)
def distance(p, r):
    far = f"f32(abs({p.qpos} - {p.kpos}))"
    p.s = r.choice([f"{p.s} - 0.05 * {far}", f"({p.s}) * exp(-0.02 * {far})",
                    f"({p.s}) * cos(0.01 * {far})",
                    f"{p.s} - 0.1 * log(1.0 + {far})"])


@kind(FEATURES)
def gain(p, r):
    p.s = f"({p.s}) * (1.0 + {p.tensor(r, 'gain')})"


@kind(FEATURES)
def table_bias(p, r):
    n = r.choice([1, 5, 9])
    t = p.tensor(r, "table", tail=[str(n)], key=False, gen="uniform(-1,1)")
    at = r.choice([f"clamp({p.kpos} - {p.qpos} + {n // 2}, 0, {n - 1})",
                   f"({p.kpos}) % {n}", f"min(({p.kpos}) // 7, {n - 1})"])
    add(p, r, t[:-1] + f", {at}]")


@kind(FEATURES)
def capped(p, r):
    c = r.choice(["2.0", "4.0"])
    p.s = f"{c} * tanh(({p.s}) / {c})"


@kind(FEATURES)
def bent(p, r):
    p.s = r.choice(["silu", "erf", "sin", "gelu", "atan"]) + f"({p.s})"


@kind(FEATURES)
def leaky(p, r):
    s = p.let("s", p.s)
    p.s = r.choice([f"select({s} > 0.0, {s}, 0.2 * {s})",
                    f"(if {s} > 0.0 then {s} else 0.2 * {s})"])


@kind(FEATURES)
def by_condition(p, r):
    p.s = f"select({atom(p, r)}, {p.s}, 0.5 * ({p.s}))"


@kind(FEATURES)
def second_product(p, r):
    shape, read = p.keys
    if not shape or "packed" in p.words:
        return
    n = p.const("D2", r.choice([1, 4, 16, 32, 33]))
    q, k = p.row_tensor("Q2", [n]), p.param("K2", [*shape, n])
    add(p, r, f"0.3 * dot({q}, {k}[{read}])")


@kind(FEATURES)
def modified(p, r):
    """A mod that captures a tensor, and a function of a function."""
    x = p.tensor(r, "slope", at_least=0, key=False)
    p.function("mod tilt(s: f32, a: f32, far: int) = s - a * 0.05 * f32(far);\n")
    p.function("fn soft(x: f32) -> f32 = x / (1.0 + 0.1 * abs(x));\n")
    p.s = f"soft({p.s} |> tilt({x}, {p.qpos} - {p.kpos}))"
