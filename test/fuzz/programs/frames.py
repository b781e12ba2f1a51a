"""Axes of random programs, and how queries, keys and values lie."""
from .base import FRAMES, kind, shuffled


def heads(p, r):
    """Dims of heads: those of keys by those of queries."""
    hk, group = p.size["Hk"], p.size["G"]
    p.dim("H", hk * group)
    how = r.randint(0, 4)
    if how == 0 or group == 1:
        return "H", "h"
    if how == 1:
        return None, None
    p.dim("Hk", hk)
    p.where.append("H % Hk == 0")
    return "Hk", "h % Hk" if how == 2 else "h // (H // Hk)"


def dense(p, r, par, key="k"):
    """Q, K and V over b, h and the sequence, in any order of the axes."""
    p.par = par
    hk, at = heads(p, r) if "h" in par else (None, None)
    p.extent, p.key = "Sk", key
    p.dim("Sk", p.size["Sk"])
    p.vectors()
    order = list(par) if r.random() < 0.5 else shuffled(r, par)
    q = p.param("Q", [par[i] for i in order] + ["D"])
    have = {"b": ("b", "B")} if "b" in par else {}
    if hk:
        have["h"] = (at, hk)
    have["k"] = (key, "Sk")
    keys = list(have) if r.random() < 0.6 else shuffled(r, have)
    shape, read = [have[i][1] for i in keys], ", ".join(have[i][0] for i in keys)
    p.q = f"{q}[{', '.join(order)}]"
    p.k = f"{p.param('K', shape + ['D'])}[{read}]"
    p.v = f"{p.param('V', shape + ['Dv'])}[{read}]"
    p.keys = (shape, read)
    p.qpos, p.kpos = "q" if "q" in par else "3", key


@kind(FRAMES)
def grid(p, r):
    for n, v in (("B", p.size["B"]), ("Sq", p.size["Sq"])):
        p.dim(n, v)
    dense(p, r, {"b": "B", "h": "H", "q": "Sq"})
    p.words |= {"q", "h", "b", "plain"}


@kind(FRAMES)
def one_axis(p, r):
    p.dim("Sq", p.size["Sq"])
    dense(p, r, {"q": "Sq"})
    p.words |= {"q", "plain"}


@kind(FRAMES)
def decode(p, r):
    """No axis of queries."""
    p.dim("B", p.size["B"])
    dense(p, r, {"b": "B", "h": "H"})
    p.words |= {"h", "b", "plain"}


@kind(FRAMES)
def two_row_axes(p, r):
    """Rows and columns of an image as queries."""
    x = r.choice([1, 2, 4, 7])
    p.dim("Yn", max(1, p.size["Sq"] // x))
    p.dim("Xn", x)
    dense(p, r, {"h": "H", "y": "Yn", "x": "Xn"})
    p.qpos = "(y * Xn + x)"
    p.words |= {"h", "plain"}


@kind(FRAMES)
def padded(p, r):
    """Keys of lengths that differ by sequence."""
    p.dim("B", 2)
    p.dim("Sq", p.size["Sq"])
    p.par = {"b": "B", "h": "H", "q": "Sq"}
    hk, at = heads(p, r)
    n = p.size["Sk"]
    p.dim("S", n, "ragged(len)")
    p.extent, p.key = "S", "k"
    p.vectors()
    p.param("len", ["B"], "i32", f"lengths(1,{n})")
    q = p.param("Q", ["B", "Sq", "H", "D"])
    shape, read = ["B", "S"] + ([hk] if hk else []), "b, k" + (f", {at}" if hk else "")
    p.q = f"{q}[b, q, h]"
    p.k = f"{p.param('K', shape + ['D'])}[{read}]"
    p.v = f"{p.param('V', shape + ['Dv'])}[{read}]"
    p.keys = (shape, read)
    p.qpos, p.kpos = "q", "k"
    p.words |= {"q", "h", "b"}
    p.words -= {"flat"}


@kind(FRAMES)
def paged(p, r):
    p.dim("B", 2)
    p.dim("Sq", r.choice([1, 2, 5, 20]))
    p.par = {"b": "B", "h": "H", "q": "Sq"}
    hk, at = heads(p, r)
    n, page = p.size["Sk"], r.choice([8, 16, 32])
    p.dim("S", n, "ragged(len)")
    p.dim("P", (n + page - 1) // page)
    p.extent, p.key = "S", "k"
    p.vectors()
    p.param("len", ["B"], "i32", f"lengths(1,{n})")
    p.param("pt", ["B", "P"], "i32", "perm")
    q = p.param("Q", ["B", "Sq", "H", "D"])
    shape, read = ["B", "S"] + ([hk] if hk else []), "b, k" + (f", {at}" if hk else "")
    lay = f" layout paged(table = pt, page = {page})"
    p.q = f"{q}[b, q, h]"
    p.k = f"{p.param('K', shape + ['D'], more=lay)}[{read}]"
    p.v = f"{p.param('V', shape + ['Dv'], more=lay)}[{read}]"
    for x in "KV":
        p.dims[f"{x}_blocks"] = 2 * p.dims["P"]
    p.keys = (shape, read)
    p.qpos, p.kpos = "q", "k"
    p.words |= {"q", "h", "b"}
    p.words -= {"flat"}


@kind(FRAMES)
def packed(p, r):
    """Sequences behind each other in one array."""
    p.dim("B", 3)
    p.par = {"b": "B", "h": "H", "q": "S"}
    hk, at = heads(p, r)
    n = r.choice([5, 20, 40])
    p.dim("S", n, "ragged(cu)")
    p.extent, p.key = "S", "k"
    p.vectors()
    p.param("cu", ["B + 1"], "i32", f"offsets(1,{n})")
    lay = " layout ragged(S, by = cu)"
    q = p.param("Q", ["B", "S", "H", "D"], more=lay)
    shape, read = ["B", "S"] + ([hk] if hk else []), "b, k" + (f", {at}" if hk else "")
    p.q = f"{q}[b, q, h]"
    p.k = f"{p.param('K', shape + ['D'], more=lay)}[{read}]"
    p.v = f"{p.param('V', shape + ['Dv'], more=lay)}[{read}]"
    p.keys = (shape, read)
    p.qpos, p.kpos = "q", "k"
    p.layout = lay
    p.words |= {"q", "h", "b", "packed"}
    p.words -= {"flat"}


@kind(FRAMES)
def listed(p, r):
    """Keys by a list: of a head, of a query, of both; whole keys or blocks."""
    grid(p, r)
    n = p.dims["Sk"]
    shape, read = p.keys
    over = r.choice([["b", "h", "q"], ["b", "h"], ["h", "q"], ["q"], ["b"]])
    block = r.choice([1, 1, 2, 8, 16])
    block = block if block <= n else 1
    count = r.choice([1, 3, 8, 20, 33])
    p.dim("N", count)
    sel = p.param("sel", [p.par[i] for i in over] + ["N"], "i32",
                  f"randint(0,{n // block})")
    whole = f"{sel}[{', '.join(over + ['j'])}]"
    p.extent, p.key = "N", "j"
    if block > 1:
        p.extent = f"{block} * N"
        whole = f"{sel}[{', '.join(over + [f'j // {block}'])}] * {block} + j % {block}"
    p.k, p.v = (x.replace(read, ", ".join(whole if i == "k" else i for i in
                                          read.split(", "))) for x in (p.k, p.v))
    p.keys = (None, None)
    p.kpos = f"({whole})"
    p.words -= {"plain"}


@kind(FRAMES)
def paired(p, r):
    """Two axes of keys as one: the pairs are numbered."""
    p.dim("B", p.size["B"])
    p.dim("Sq", p.size["Sq"])
    p.par = {"b": "B", "q": "Sq"}
    p.dim("J", r.choice([1, 2, 3, 5]))
    p.dim("Sk", r.choice([1, 5, 16, 17, 40]))
    p.vectors()
    p.extent, p.key = "J * Sk", "k"
    p.q = f"{p.param('Q', ['B', 'Sq', 'D'])}[b, q]"
    p.k = f"{p.param('K', ['B', 'J', 'Sk', 'D'])}[b, k // Sk, k % Sk]"
    p.v = f"{p.param('V', ['B', 'J', 'Sk', 'Dv'])}[b, k // Sk, k % Sk]"
    p.keys = (None, None)
    p.qpos, p.kpos = "q", "k % Sk"
    p.words |= {"q", "b"}


@kind(FRAMES)
def columns(p, r):
    """What a key gets of the queries, summed over the heads that share it: the
    gradient of a value, for one."""
    p.dim("Hk", r.choice([1, 2]))
    p.const("G", r.choice([1, 2, 3])) if r.random() < 0.5 else p.dim("G", 2)
    p.dim("Sq", p.size["Sq"])
    p.dim("Sk", p.size["Sk"])
    p.vectors()
    p.par = {"h": "Hk", "k": "Sk"}
    p.extent, p.key = "G * Sq", "i"
    g, q = "i // Sq", "i % Sq"
    p.k = f"{p.param('Q', ['Hk', 'G', 'Sq', 'D'])}[h, {g}, {q}]"
    p.q = f"{p.param('K', ['Hk', 'Sk', 'D'])}[h, k]"
    p.v = f"{p.param('dO', ['Hk', 'G', 'Sq', 'Dv'])}[h, {g}, {q}]"
    p.keys = (None, None)
    p.qpos, p.kpos = q, "k"
    p.words |= {"h"}


@kind(FRAMES)
def two_streams(p, r):
    """A second axis of keys, whose row is a row of its own."""
    grid(p, r)
    p.dim("Sc", r.choice([1, 5, 16, 30]))
    p.indices.append("index c in Sc where 4 * c <= q + 2;")
    kc, vc = (p.param(x, ["B", "H", "Sc", d]) for x, d in (("Kc", "D"), ("Vc", "Dv")))
    s = f"rsqrt(D) * dot({p.q}, {kc}[b, h, c])"
    w = r.choice([f"sigmoid({s})", f"relu({s})", f"exp({s} - max(c: {s}))"])
    n = r.choice(["", f" / (sum(c: {w}) + 0.5)"])
    p.more_value = f" + sum(c: {w}{n} * {vc}[b, h, c])"
