"""What random programs are written with: a spec, the text that grows, the tables
of kinds."""
import dataclasses
import random

FRAMES, ROWS, FEATURES, STEPS = {}, {}, {}, {}
TYPES = ["f32", "bf16", "f16"]
HEADS = [16, 32, 64] * 4 + [8, 24, 40, 48, 80, 96, 128, 1, 2, 3, 5, 7, 12, 17,
                            20, 33, 63, 65, 100, 129, 130, 192, 200, 256, 300]


def kind(table, *needs):
    """Registers a kind by its function's name; `needs` are words that a frame
    must have: 'q' an index of queries, 'flat' no ragged axis, .."""
    def register(f):
        table[f.__name__] = (f, needs)
        return f
    return register


@dataclasses.dataclass(frozen=True)
class Spec:
    """All that a program is made of."""
    seed: int
    dtype: str
    d: int
    dv: int
    frame: str
    row: str
    features: tuple
    work: int = 500000      # products of all rows, keys and channels, at most

    def kinds(self):
        return [self.frame, self.row, *self.features]


class Program:
    """A program that is being written. Its functions add to it."""

    def __init__(self, spec):
        self.spec, self.t = spec, spec.dtype
        self.d, self.dv = spec.d, spec.dv
        self.head = "attention"
        self.dims, self.generics, self.where = {}, [], []
        self.params, self.inputs, self.outs, self.decls = [], {}, [], []
        self.indices, self.body, self.after, self.domain = [], [], [], []
        self.fresh, self.words = {}, {"flat"}
        self.scale = "rsqrt(D)"
        self.size = sizes(rng(spec, "sizes"), spec)

    # ------------------------------------------------------------ parts
    def name(self, stem):
        self.fresh[stem] = n = self.fresh.get(stem, 0) + 1
        return stem if n == 1 else f"{stem}{n}"

    def dim(self, name, value, how=""):
        if name not in self.dims:
            self.generics.append(name + (f": {how}" if how else ""))
            self.dims[name] = value
        return name

    def const(self, name, value):
        return self.dim(name, value, f"const {{{value}}}")

    def vectors(self):
        self.const("D", self.d)
        self.const("Dv", self.dv)

    def param(self, stem, shape, dtype=None, gen=None, more=""):
        name = self.name(stem)
        dtype = dtype or self.t
        size = f"[{', '.join(shape)}]" if shape else ""
        word = "nograd " if dtype.startswith("i") else ""
        self.params.append(f"{word}{name}: {dtype}{size}{more}")
        if gen:
            self.inputs[name] = gen
        return name

    def let(self, stem, value):
        name = self.name(stem)
        self.body.append(f"let {name} = {value};")
        return name

    def function(self, text):
        if text not in self.decls:
            self.decls.append(text)

    def number(self, r, stem, value):
        """An integer that is known at run time only: a dim, or an argument."""
        if r.random() < 0.4:
            return self.param(stem.lower(), [], "i32", f"const({value})")
        if stem not in self.dims:
            self.dim(stem, value)
            at = self.param("by" + stem.lower(), [stem], "f32", "uniform(-0.5,0.5)")
            self.s = f"{self.s} + {at}[({self.kpos}) % {stem}]"
        return stem

    def index(self, name, extent):
        """An index that is bound by a sum in an expression."""
        name = self.name(name)
        self.indices.append(f"index {name} in {extent};")
        return name

    # ------------------------------------------------------------ tensors
    def axes(self, r, at_least=0, key=True):
        """Some of the axes in scope: pairs of index and extent."""
        have = [*self.par.items()] + ([(self.key, self.extent)] if key else [])
        have = [x for x in have if x[1] not in ("S", "Sr")] or have
        take = [x for x in have if r.random() < 0.5]
        if len(take) < at_least:
            take = [r.choice(have)]
        r.shuffle(take)
        return take

    def tensor(self, r, stem, dtype="f32", gen="uniform(-0.5,0.5)", tail=(),
               at_least=1, key=True):
        """A read of a new tensor over some of the axes."""
        axes = self.axes(r, at_least, key)
        name = self.param(stem, [e for _, e in axes] + list(tail), dtype, gen)
        return f"{name}[{', '.join(i for i, _ in axes)}]" if axes else name

    def row_tensor(self, stem, tail=(), dtype=None, gen=None):
        name = self.param(stem, [*self.par.values(), *tail], dtype, gen)
        return f"{name}[{', '.join(self.par)}]"

    # ------------------------------------------------------------ text
    def options(self):
        dims = ",".join(f"{k}={v}" for k, v in self.dims.items())
        return [f"--dim={dims}"] + [f"--in={k}={v}" for k, v in
                                    self.inputs.items()]

    def text(self):
        where = f"\n  where {', '.join(self.where)}" if self.where else ""
        lines = "\n  ".join(self.indices + self.body + self.after)
        sep = ",\n   "
        return f"""{''.join(self.decls)}{self.head} p<{', '.join(self.generics)}>
  ({sep.join(self.params)})
  -> ({', '.join(self.outs)}){where}
{{
  {lines}
}}
"""


def rng(spec, name):
    return random.Random(f"{spec.seed}/{name}")


def shuffled(r, names):
    names = list(names)
    r.shuffle(names)
    return names


ROW_SIZES = [1, 2, 3, 7, 16, 17, 33, 40, 65]
STEP_SIZES = [1, 2, 15, 17, 31, 33, 63, 64, 65, 70, 75, 100, 129, 130, 150]
KEY_SIZES = [1, 2, 5, 16, 17, 33, 64, 65, 70, 129, 150, 200]


def sizes(r, spec):
    """Extents of axes whose product is little work."""
    walk, steps = spec.frame.startswith("walk"), ROW_SIZES + [64, 100, 130]
    if walk:        # as long with many heads as with few
        fit = [n for n in STEP_SIZES if 3 * n * spec.d * spec.dv <= spec.work]
        steps = [r.choice(fit[-9:] + [1, 2])]
    for tries in range(200):
        x = {"B": r.choice([1, 1, 2, 3]), "Hk": r.choice([1, 1, 2]),
             "G": r.choice([1, 1, 2, 3, 4]), "Sq": r.choice(ROW_SIZES),
             "Sk": r.choice(KEY_SIZES), "S": r.choice(steps)}
        heads = x["B"] * x["Hk"] * x["G"]
        if spec.frame == "decode":
            x["Sq"] = 1
        work = heads * x["Sq"] * x["Sk"] * (spec.d + spec.dv)
        if walk or spec.frame.startswith("steps"):
            work = 3 * heads * x["S"] * spec.d * spec.dv
        if work <= spec.work:
            break
    return x
