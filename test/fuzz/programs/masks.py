"""Domains of keys."""
from .base import FEATURES, kind


def atom(p, r):
    q, k = p.qpos, p.kpos
    n, few = r.randint(1, 40), r.randint(2, 5)
    op = r.choice(["==", "!=", "<", "<=", ">", ">="])
    off = r.choice(["+ 3", "- 2", "+ 0"])
    return r.choice([
        f"{k} <= {q} {off}", f"0 <= {q} - {k} + {n // 2} < {n}",
        f"abs({q} - {k}) <= {n}", f"{k} < {n}", f"{k} != {q}",
        f"({q} + {few} * {k}) % {few + 1} != 0", f"{k} // {n} <= {q} // {n}",
        f"{k} // {few} {op} ({q} + {n}) // {few}",
        f"({k}) % {few} {op} ({q}) % {few}", f"{k} {op} {n}", f"{q} {op} {n}"])


def joined(p, r, text, depth=2):
    while depth and r.random() < 0.4:
        more = joined(p, r, atom(p, r), depth - 1)
        more = f"!({more})" if r.random() < 0.2 else f"({more})"
        text, depth = f"({text}) {r.choice('&|')} {more}", depth - 1
    return text


@kind(FEATURES)
def causal(p, r):
    p.domain.append(f"{p.kpos} <= {p.qpos}")


@kind(FEATURES)
def arithmetic(p, r):
    p.domain.append(joined(p, r, atom(p, r)))


@kind(FEATURES)
def image(p, r):
    """Coordinates of an image whose width is known at run time."""
    x, q, k = p.number(r, "W", r.choice([1, 3, 8])), p.qpos, p.kpos
    n = r.randint(0, 3)
    p.domain.append(r.choice([
        f"abs(({q}) % {x} - ({k}) % {x}) <= {n} & abs(({q}) // {x} - ({k}) // {x}) <= {n}",
        f"({k}) // {x} == ({q}) // {x} | ({k}) % {x} == ({q}) % {x}",
        f"({k}) // {x} <= ({q}) // {x}"]))


@kind(FEATURES, "b")
def chunk_from(p, r):
    """Chunks that begin at a number of each sequence."""
    start = p.param("start", [p.par["b"]], "i32", "randint(0,9)")
    n = r.choice(["4", "16", p.number(r, "W", r.choice([1, 5, 8]))])
    p.domain.append(f"({p.kpos} + {start}[b]) // {n} "
                    f"{r.choice(['==', '<='])} ({p.qpos} + {start}[b]) // {n}")


@kind(FEATURES)
def table_mask(p, r):
    a = p.tensor(r, "ma", "i32", "randint(0,4)")
    other = r.choice(["1", p.tensor(r, "mb", "i32", "randint(0,4)")])
    text = f"{a} {r.choice(['==', '!=', '<', '<=', '>='])} {other}"
    p.domain.append(joined(p, r, text))


@kind(FEATURES, "b")
def lengths(p, r):
    n = p.param("n", [p.par["b"]], "i32", "randint(0,60)")
    p.domain.append(f"{p.kpos} < {n}[b]")


@kind(FEATURES, "q", "flat")
def limits(p, r):
    lo, hi = (p.param(x, [p.par["q"]], "i32", g) for x, g in
              (("lo", "randint(0,12)"), ("hi", "randint(3,60)")))
    p.domain.append(f"{lo}[q] <= {p.kpos} & {p.kpos} < {hi}[q]")


@kind(FEATURES, "q", "plain")
def documents(p, r):
    a, b = (p.param(x, [e], "i32", "docs(7)") for x, e in
            (("qdoc", "Sq"), ("kdoc", "Sk")))
    p.domain.append(f"{a}[q] == {b}[k]" + r.choice(["", " & k <= q"]))


@kind(FEATURES)
def any_of_list(p, r):
    """A key is seen if some entry of a short list names it, or its block."""
    n = p.const("L", r.choice([1, 2, 3, 6])) if r.random() < 0.5 else p.dim("M", 4)
    a = p.tensor(r, "names", "i32", "randint(0,12)", [n], key=False)
    l = p.index("l", n)
    block = r.choice([1, 4, 16])
    what = f"({p.kpos}) // {block}" if block > 1 else p.kpos
    p.domain.append(joined(p, r, f"any({l}: {a[:-1]}, {l}] == {what})"))


@kind(FEATURES)
def count_in_mask(p, r):
    n = p.const("L", r.choice([1, 2, 3, 6])) if r.random() < 0.5 else p.dim("M", 4)
    a = p.tensor(r, "va", "i32", "randint(0,9)", [n])
    b = p.tensor(r, "vb", "i32", "randint(0,9)", key=False)
    l = p.index("l", n)
    e = a[:-1] + f", {l}]"
    p.domain.append(r.choice([f"count({l}: {e} > {b}) <= 1",
                              f"all({l}: {e} != {b})",
                              f"sum({l}: {e}) % 3 != 1",
                              f"max({l}: {e}) > {b}"]))
