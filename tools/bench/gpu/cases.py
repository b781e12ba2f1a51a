"""The cases of tools/bench/gpu/run.py: shapes, masks, modifications, peers.

A case's score and mask functions are written once over an array module and
serve as reference (on some rows, in f64) and for FlexAttention."""
import math


class Case:
    def __init__(self, family, program, B, Hq, S, D, Hk=None, Dv=None,
                 mask=None, mod=None, row="softmax", peers=(), extra=None,
                 dtype="bf16", bars=None, maps=1):
        self.family, self.program = family, program
        self.B, self.Hq, self.Hk, self.S = B, Hq, Hk or Hq, S
        self.D, self.Dv, self.dtype = D, Dv or D, dtype
        self.mask, self.mod, self.row = mask, mod, row
        self.peers, self.extra = peers, extra or {}
        self.bars = bars or {}   # peer: least ratio; "plain": least rate
        self.maps = maps         # score maps of a head (differential: 2)

    @property
    def name(self):
        d = f"d{self.D}" if self.D == self.Dv else f"d{self.D}_{self.Dv}"
        h = f"h{self.Hq}" if self.Hq == self.Hk else f"h{self.Hq}_{self.Hk}"
        return f"{self.family}-{d}-b{self.B}-{h}-s{self.S}"

    @property
    def library(self):
        """What has to be compiled: program and fixed dims."""
        dims = {"D": self.D}
        if self.program in ("full", "causal_full", "differential"):
            dims["Dv"] = self.Dv
        tag = "".join(f"_{k}{v}" for k, v in dims.items())
        return self.program + tag + "_" + self.dtype, dims

    def visible(self):
        """Pairs (query, key) of a head that count."""
        S = self.S
        if self.mask is None:
            return S * S
        return self.extra["visible"](S)

    def flop(self):
        pairs = self.visible() * self.B * self.Hq
        return 2 * pairs * (self.maps * self.D + self.Dv)

    def touched(self, tile=128):
        """FLOP of the tiles that have a visible pair."""
        n = 0
        for q in range(0, self.S, tile):
            at = set()
            for lo, hi in {SPANS[self.mask](self, r)
                           for r in range(q, min(q + tile, self.S))}:
                at.update(range(lo // tile, (hi - 1) // tile + 1))
            n += len(at)
        pairs = n * tile * tile * self.B * self.Hq
        return 2 * pairs * (self.maps * self.D + self.Dv)

    def bytes(self):
        rows = self.B * self.S
        q = rows * self.Hq * (self.maps * self.D + self.Dv)
        k = rows * self.Hk * (self.maps * self.D + self.Dv)
        return 2 * (q + k)


# ---- masks: (m, b, h, q, k) -> bool array; m has the case's tensors
def causal(m, b, h, q, k):
    return k <= q


def window(m, b, h, q, k):
    return (k <= q) & (q - k < m["left"])


def docs(m, b, h, q, k):
    return (k <= q) & (m["doc"][q] == m["doc"][k])


def prefix(m, b, h, q, k):
    return (k <= q) | (k < m["n"])


# ---- modifications: (xp, m, s, b, h, q, k) -> score, of scaled scores
def alibi(xp, m, s, b, h, q, k):
    return s + m["slope"][h] * (k - q)


def forget(xp, m, s, b, h, q, k):
    return s + m["F"][b, h, q] - m["F"][b, h, k]


def softcap(xp, m, s, b, h, q, k):
    return m["cap"] * xp.tanh(s / m["cap"])


def half(S):
    return S * (S + 1) // 2


def by_window(left):
    return lambda S: half(S) - half(max(S - left, 0))


def by_prefix(n):
    return lambda S: half(S) + half(min(n, S)) - min(n, S)


DOCS = 8


def doc_starts(S):
    """Eight documents of unequal length, the same for everybody."""
    weights = [5, 3, 8, 2, 6, 4, 7, 1]
    at, out = 0, []
    for w in weights:
        out.append(at)
        at += w * S // sum(weights)
    return out


def by_docs(S):
    starts = doc_starts(S) + [S]
    return sum(half(b - a) for a, b in zip(starts, starts[1:]))


def doc_of(c, q):
    return max(a for a in doc_starts(c.S) if a <= q)


# What a row sees: its first key and the one behind its last.
SPANS = {None: lambda c, q: (0, c.S), causal: lambda c, q: (0, q + 1),
         window: lambda c, q: (max(q + 1 - c.extra["left"], 0), q + 1),
         docs: lambda c, q: (doc_of(c, q), q + 1),
         prefix: lambda c, q: (0, max(q + 1, min(c.extra["n"], c.S)))}


# ---- the cases
FUSED = ("cudnn", "flash", "flex")
TOKENS, WIDTH = 16384, 2048

# Least ratio to cuDNN: (D, causal) by S.
BARS = {(128, 0): (1.08, 1.03, 1.00), (128, 1): (1.22, 1.17, 1.13),
        (64, 0): (1.14, 1.14, None), (64, 1): (1.14, 1.14, None),
        (256, 0): (1.07, 1.07, 1.02), (256, 1): (1.17, 1.14, 1.10)}


def plain():
    for D in (128, 64, 256):
        for c in (0, 1):
            for S, bar in zip((16384, 8192, 2048), BARS[D, c]):
                yield Case("causal" if c else "full",
                           "causal_full" if c else "full", TOKENS // S,
                           WIDTH // D, S, D, mask=causal if c else None,
                           extra={"visible": half}, peers=FUSED,
                           bars={"cudnn": bar} if bar else {})


def others():
    for c in (0, 1):
        name = "causal" if c else "full"
        m = {"mask": causal if c else None, "extra": {"visible": half}}
        yield Case("mla-" + name, "causal_full" if c else "full", 4, 16, 4096,
                   192, Dv=128, peers=("cudnn", "flex"), bars={"cudnn": 1.05},
                   **m)
        for B, S in ((8, 2048), (1, 8192)):
            yield Case("gqa-" + name, "gqa_causal" if c else "gqa", B, 32, S,
                       128, Hk=8, peers=FUSED, bars={"flex": 1.35}, **m)
    for B, Hq, Hk, S in ((8, 32, 8, 2048), (1, 16, 16, 16384)):
        g = {"B": B, "Hq": Hq, "Hk": Hk, "S": S, "D": 128, "peers": ("flex", "plain"),
             "bars": {"flex": 1.5, "plain": 0.9}}
        yield Case("alibi", "gqa_alibi", mask=causal, mod=alibi,
                   extra={"visible": half}, **g)
        yield Case("softcap", "gqa_softcap", mask=causal, mod=softcap,
                   extra={"visible": half, "cap": 20.0},
                   **dict(g, bars={"flex": 1.5, "plain": 0.65}))
        yield Case("window", "gqa_window", mask=window,
                   extra={"visible": by_window(1024), "left": 1024}, **g)
        yield Case("docs", "gqa_docs", mask=docs,
                   extra={"visible": by_docs}, **g)
        yield Case("prefix", "gqa_prefix", mask=prefix,
                   extra={"visible": by_prefix(512), "n": 512}, **g)
        yield Case("sink", "gqa_sink", mask=causal, row="sink",
                   extra={"visible": half},
                   **dict(g, peers=("plain",), bars={"plain": 0.9}))
    for S in (2048, 8192):
        for row in ("sigmoid", "relu"):
            yield Case(row, row + "_attn", 1, 32, S, 128, row=row,
                       peers=("compiled",))
    yield Case("relu", "relu_attn", 64, 6, 2048, 64, row="relu",
               peers=("compiled",))
    yield Case("differential", "differential", 8, 16, 2048, 64, Dv=128,
               mask=causal, row="differential", maps=2,
               extra={"visible": half}, peers=("twice",))


# What a variant of causal softmax adds to its case: tools/bench/gpu/ab.py.
VARIANTS = {
    "plain": ("gqa_causal", {"mask": causal, "extra": {"visible": half}}),
    "alibi": ("gqa_alibi", {"mask": causal, "mod": alibi,
                            "extra": {"visible": half}}),
    "forget": ("gqa_forget", {"mask": causal, "mod": forget,
                              "extra": {"visible": half}}),
    "softcap": ("gqa_softcap", {"mask": causal, "mod": softcap,
                                "extra": {"visible": half, "cap": 20.0}}),
    "window": ("gqa_window", {"mask": window, "extra": {
        "visible": by_window(1024), "left": 1024}}),
    "prefix": ("gqa_prefix", {"mask": prefix, "extra": {
        "visible": by_prefix(512), "n": 512}}),
    "sink": ("gqa_sink", {"mask": causal, "row": "sink",
                          "extra": {"visible": half}}),
    "docs": ("gqa_docs", {"mask": docs, "extra": {"visible": by_docs}})}


def variants(lengths=(16384, 8192, 2048)):
    """The variants of causal softmax, 16384 tokens of each."""
    for D in (64, 128):
        for S in lengths:
            for name, (program, more) in VARIANTS.items():
                yield Case(name, program, TOKENS // S, WIDTH // D, S, D,
                           **dict(more, extra=dict(more["extra"])))


def plain_of(c):
    """Causal softmax of the shape of a variant."""
    return Case("plain", "gqa_causal", c.B, c.Hq, c.S, c.D, Hk=c.Hk,
                mask=causal, extra={"visible": half}, dtype=c.dtype)


def all_cases():
    return list(plain()) + list(others())


def slopes(H):
    return [2.0 ** (-8.0 * (i + 1) / H) for i in range(H)]


def scale(case):
    return 1 / math.sqrt(case.D)
