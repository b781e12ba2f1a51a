"""What becomes of the scores of a row."""
from .base import ROWS, kind


def row_scalar(p, r):
    return p.tensor(r, "sink", gen="uniform(-1,1)", at_least=0, key=False)


@kind(ROWS)
def softmax(p, r):
    e = p.let("e", f"exp({p.s} - max({p.key}: {p.s}))")
    return p.let("p", f"{e} / sum({p.key}: {e})")


@kind(ROWS)
def std_softmax(p, r):
    p.function("import std.rows { softmax }\n")
    p.body.append(f"let (p, lse) = softmax({p.s});")
    if "packed" not in p.words and r.random() < 0.5:
        p.extra("Lse", "lse")
    return "p"


@kind(ROWS)
def softmax_sink(p, r):
    m = p.let("m", f"max({p.key}: {p.s})")
    e = p.let("e", f"exp({p.s} - {m})")
    return p.let("p", f"{e} / (sum({p.key}: {e}) + exp({row_scalar(p, r)} - {m}))")


@kind(ROWS)
def plain_weights(p, r):
    return p.let("p", "0.1 * " + r.choice(
        [f"sigmoid({p.s})", f"relu({p.s})", f"({p.s})", f"softplus({p.s})",
         f"exp(-abs({p.s}))", f"tanh({p.s})"]))


@kind(ROWS)
def by_norm(p, r):
    w = p.let("w", r.choice([f"sigmoid({p.s})", f"relu({p.s})", f"{p.s} * {p.s}",
                             f"softplus({p.s})", f"exp(0.3 * {p.s})"]))
    k = p.key
    n = r.choice([f"sum({k}: {w}) + 0.5", f"sqrt(sum({k}: {w} * {w}) + 0.1)",
                  f"max({k}: abs({w})) + 0.2", f"max(abs(sum({k}: {w})), 1.0)",
                  f"f32(count({k}: true)) + 0.5",
                  f"sum({k}: abs({w})) + exp({row_scalar(p, r)})"])
    return p.let("p", f"{w} / ({n})")


@kind(ROWS)
def centred(p, r):
    c = p.let("cen", f"{p.s} - mean({p.key}: {p.s}) + 0.3")
    return p.let("p", f"0.2 * {c} * rsqrt(mean({p.key}: {c} * {c}) + 0.2)")


@kind(ROWS)
def softpick(p, r):
    m = p.let("m", f"max(max({p.key}: {p.s}), 0.0)")
    e = p.let("e", f"exp({p.s} - {m}) - exp(-{m})")
    return p.let("p", f"relu({e}) / (sum({p.key}: abs({e})) + 0.1)")


@kind(ROWS)
def squared_again(p, r):
    w = softmax(p, r)
    return p.let("p", f"{w} * {w} / (sum({p.key}: {w} * {w}) + 0.02)")


@kind(ROWS)
def thresholded(p, r):
    w = softmax(p, r)
    return p.let("p", f"relu({w} - 0.3 * mean({p.key}: {w}))")


@kind(ROWS)
def scanned(p, r):
    w = softmax(p, r) if r.random() < 0.5 else p.let("w", f"sigmoid({p.s})")
    scan = r.choice(["cumsum", "suffix_sum"])
    more = r.choice(["", ", exclusive = true"])
    c = f"{scan}({p.key}: {w}{more})"
    return p.let("p", r.choice([f"{w} * exp(-0.1 * {c})", f"{w} / (1.0 + {c})"]))


@kind(ROWS)
def stick(p, r):
    return p.let("p", f"exp({p.s} - suffix_sum({p.key}: softplus({p.s})))")


@kind(ROWS)
def difference(p, r):
    a, old = softmax(p, r), p.s
    p.s = f"0.5 * {old}"
    b = softmax(p, r)
    return p.let("p", f"{a} - 0.4 * {b}")


@kind(ROWS)
def row_function(p, r):
    """A row function that captures a tensor by a parameter."""
    p.function("row damped(s: row f32, a: f32) -> (row f32, f32) {\n"
               "  let w = sigmoid(s) * exp(-abs(a) * s * s * 0.1);\n"
               "  let n = sum(w) + 0.3;\n  return w / n, n;\n}\n")
    p.body.append(f"let (p, total) = damped({p.s}, {row_scalar(p, r)});")
    p.extra("Norm", "total") if "packed" not in p.words else None
    return "p"


@kind(ROWS)
def random_features(p, r):
    """Weights as sums over features of a function of the query and one of the key."""
    n = p.const("Nf", r.choice([1, 4, 16, 33])) if r.random() < 0.7 else p.dim("Mf", r.choice([2, 9]))
    table = p.param("Wf", [n, "D"], r.choice(["f32", p.t]), "uniform(-0.5,0.5)")
    m = p.index("m", n)
    f = r.choice(["exp({})", "relu({}) + 0.1", "softplus({})", "sigmoid({})", "exp(-abs({}))",
                  "cos({}) + 1.2"])
    both = [f.format(f"{p.scale} * dot({table}[{m}], {x})") for x in (p.q, p.k)]
    w = p.let("w", f"sum({m}: ({both[0]}) * ({both[1]})) / f32({n})")
    if r.random() < 0.3:
        return p.let("p", f"0.1 * {w} * sigmoid({p.s})")
    return p.let("p", f"{w} / (sum({p.key}: {w}) + 0.5)")
