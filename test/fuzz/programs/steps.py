"""Parts of recurrences."""
from .base import STEPS, Program, kind
from .operands import RMS, UNIT, rotation


class Steps(Program):
    """A recurrence: its state decays, is written, and is read."""

    def frame(self, r):
        self.head = "recurrent"
        self.layout = ""
        self.dim("B", self.size["B"])
        self.dim("H", self.size["Hk"] * self.size["G"])
        self.shape = ["B", "H", "S"]
        if "packed" in self.spec.frame:
            self.dims["B"] = 3
            n = max(1, self.size["S"] // 2)
            self.dim("S", n, "ragged(cu)")
            self.param("cu", ["B + 1"], "i32", f"offsets(1,{n})")
            self.shape, self.layout = ["B", "S", "H"], " layout ragged(S, by = cu)"
        else:
            self.dim("S", self.size["S"])
            if r.random() < 0.5:
                self.shape = ["B", "S", "H"]
        self.vectors()
        order = {"B": "b", "H": "h", "S": "t"}
        self.at = ", ".join(order[x] for x in self.shape)

    def seq(self, stem, tail=(), dtype=None, gen=None, few=False):
        """A read, at the step, of a new tensor; `few`: heads share it."""
        shape, at = self.shape, self.at
        if few and self.groups and self.size["G"] > 1:
            self.dim("Hk", self.size["Hk"])
            self.where = ["H % Hk == 0"]
            shape = ["Hk" if x == "H" else x for x in shape]
            at = at.replace("h", "h // (H // Hk)")
        name = self.param(stem, [*shape, *tail], dtype, gen, self.layout)
        return f"{name}[{at}]"

    def start(self, stem, tail, r):
        """A state's first value: zeros or an array that is written back."""
        if "packed" in self.spec.frame or r.random() < 0.4:
            return "0.0"
        name = self.name(stem)
        size = ", ".join(["B", "H", *tail])
        self.params.append(f"inout {name}: f32[{size}]")
        self.inputs[name] = "normal(0,0.1)"
        return f"{name}[b, h]"


def part(table):
    return kind(table)


DECAYS, WRITES = {}, {}


@part(DECAYS)
def decay_none(p, r):
    return "{}"


@part(DECAYS)
def decay_const(p, r):
    return "0.9 * {}"


@part(DECAYS)
def decay_scalar(p, r):
    g = p.seq("g", (), "f32", "uniform(-0.3,0)")
    return r.choice([f"exp({g}) * {{}}", f"sigmoid({g} + 3.0) * {{}}"])


@part(DECAYS)
def decay_head(p, r):
    g = p.param("lg", ["H"], "f32", "uniform(-0.2,-0.01)")
    return f"exp({g}[h]) * {{}}"


@part(DECAYS)
def decay_row(p, r):
    g = p.seq("g", ["D"], r.choice(["f32", p.t]), "uniform(-0.3,0)")
    return f"exp({g})[:, 1] * {{}}"


@part(DECAYS)
def decay_column(p, r):
    g = p.seq("g", ["Dv"], "f32", "uniform(-0.3,0)")
    return f"exp({g})[1, :] * {{}}"


@part(DECAYS)
def decay_both(p, r):
    g, a = p.seq("g", ["D"], "f32", "uniform(-0.2,0)"), p.seq("a", (), "f32", "uniform(-0.2,0)")
    return f"exp({g} + {a})[:, 1] * {{}}"


@part(DECAYS)
def decay_matrix(p, r):
    g = p.seq("gm", ["D", "Dv"], "f32", "uniform(-0.3,0)")
    return f"exp({g}) * {{}}"


@part(WRITES)
def write_plain(p, r):
    return "M = {old} + outer({k}, {v});"


@part(WRITES)
def write_gated(p, r):
    b = p.seq("beta", (), "f32", "uniform(0,1)")
    return f"M = {{old}} + {b} * outer({{k}}, {{v}});"


@part(WRITES)
def write_delta(p, r):
    p.unit = True
    b = p.seq("beta", (), "f32", "uniform(0,1)")
    return f"M = {{old}} + {b} * outer({{k}}, {{v}} - {{k}} @@ {{old}});"


@part(WRITES)
def write_other(p, r):
    """What is erased is found by another key."""
    p.unit = True
    b, e = p.seq("beta", (), "f32", "uniform(0,1)"), p.seq("Ek", ["D"])
    p.function(UNIT)
    return f"M = {{old}} + outer({{k}}, {b} * ({{v}} - unit({e}) @@ {{old}}));"


@part(WRITES)
def write_twice(p, r):
    p.unit = True
    b, v = p.seq("beta", (), "f32", "uniform(0,1)"), p.seq("V2", ["Dv"])
    return (f"M = {{old}} + {b} * outer({{k}}, {{v}} - {{k}} @@ {{old}});\n    "
            f"M = M + 0.5 * outer({{k}}, {v} - {{k}} @@ M);")


@part(WRITES)
def write_repeat(p, r):
    p.unit = True
    n = p.const("R", r.choice([2, 3]))
    b = p.seq("beta", [n], "f32", "uniform(0,1)")
    k, v = p.seq("Kr", [n, "D"]), p.seq("Vr", [n, "Dv"])
    p.function(UNIT)
    read = [x[:-1] + ", i]" for x in (b, k, v)]
    return (f"M = {{old}};\n    repeat i in {n} {{\n"
            f"      let ki = unit({read[1]});\n"
            f"      M = M + outer(ki, {read[0]} * ({read[2]} - ki @@ M));\n    }}"
            ).replace("{", "{{").replace("}", "}}").replace("{{old}}", "{old}")


@part(WRITES)
def write_removed(p, r):
    """The state times one less a product of two vectors."""
    p.unit = True
    a = p.seq("ra", ["D"], p.t, "uniform(0,1)")
    return "M = {old} - outer(" + a + " * {k}, {k} @@ {old}) + outer({k}, {v});"


@kind(STEPS)
def bonus(p, r):
    u = p.param("u", ["H", "D"], "f32", "uniform(-0.5,0.5)")
    p.reads.append(lambda o, q, k, v: f"{o} + dot({q} * {u}[h], {k}) * {v}")


@kind(STEPS)
def read_before(p, r):
    p.before = True


@kind(STEPS)
def scale_read(p, r):
    p.reads.append(lambda o, q, k, v: f"rsqrt(D) * ({o})")


@kind(STEPS)
def gate_read(p, r):
    g = p.seq("go", ["Dv"])
    p.reads.append(lambda o, q, k, v: f"sigmoid({g}) * ({o})")


@kind(STEPS)
def norm_read(p, r):
    """A norm of what is read, along its channels."""
    w = p.param("wn", ["Dv"], "f32", "uniform(0.5,1.5)")
    p.function(RMS)
    p.reads.append(lambda o, q, k, v: f"norm({o}, {w})")


@kind(STEPS)
def normalizer(p, r):
    p.normal = True


@kind(STEPS)
def second_state(p, r):
    p.second = True


@kind(STEPS)
def inner_sum(p, r):
    """A sum over an index of the step's own vectors."""
    p.indices.append("index e in D;")
    what = r.choice(["{q}[e] * {q}[e]", "abs({q}[e])", "{q}[e] * {k}[e]"])
    p.reads.append(lambda o, q, k, v:
                   f"({o}) / (1.0 + abs(sum(e: {what.format(q=f'({q})', k=f'({k})')})))")


@kind(STEPS)
def sum_of_state(p, r):
    """A sum over an index that reads the state's rows."""
    p.indices.append("index c in D;")
    p.reads.append(lambda o, q, k, v: f"{o} + 0.1 * sum(c: ({q})[c] * M[c])")


@kind(STEPS)
def step_reverse(p, r):
    if "packed" not in p.spec.frame:
        p.reverse = True


@kind(STEPS)
def keys_normalized(p, r):
    p.unit = True


@kind(STEPS)
def keys_rotated(p, r):
    turn = rotation(p, r)
    if turn:
        p.turned = turn


@kind(STEPS)
def last_state(p, r):
    if "packed" not in p.spec.frame:
        p.last = True


@kind(STEPS)
def shifted_input(p, r):
    """A token's value mixed with the one before."""
    p.shift = True


@kind(STEPS)
def query_groups(p, r):
    p.groups = True
