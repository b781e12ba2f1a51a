"""Random programs of the language, always valid: for differential runs.

    gen.py DIR --seed=N --count=M [--type=f32] [--rows=functions]

writes DIR/pN.attn .. and DIR/list, one line for attn-numeric per program.
Scores stay moderate and divisors away from zero, so that all ways to
compute a program agree to a few digits.
"""
import pathlib
import random
import sys


class Program:
    def __init__(self, seed, dtype):
        self.r = random.Random(seed)
        self.dtype = dtype
        self.name = f"p{seed}"
        self.params, self.outs, self.inputs, self.lets = [], [], [], []
        self.decls, self.fresh = "", 0
        self.ascending = self.chance(0.5)   # direction of running sums

    def pick(self, *options):
        return self.r.choice(options)

    def chance(self, p):
        return self.r.random() < p

    def name_of(self, stem):
        self.fresh += 1
        return f"{stem}{self.fresh}"

    def let(self, stem, value):
        name = self.name_of(stem)
        self.lets.append(f"let {name} = {value};")
        return name

    # A tensor over some of the indices in scope: its read expression.
    def tensor(self, stem, key, lo=-0.5, hi=0.5):
        dims = {"b": "B", "h": "H", "q": "Sq", key: self.extent[key]}
        names = [i for i in dims if self.chance(0.5)] or ["h"]
        self.r.shuffle(names)
        name = self.name_of(stem)
        shape = ", ".join(dims[i] for i in names)
        self.params.append(f"{name}: f32[{shape}]")
        self.inputs.append(f"{name}=uniform({lo},{hi})")
        return f"{name}[{', '.join(names)}]"

    # ---------------------------------------------------------- domains
    # A table of integers over one index: its read expression.
    def table(self, index, values):
        name = self.name_of("mark")
        dim = "Sq" if index == "q" else self.extent[index]
        self.params.append(f"nograd {name}: i32[{dim}]")
        self.inputs.append(f"{name}={values}")
        return f"{name}[{index}]"

    # Conditions on the row, on the key alone, or on blocks of both.
    def side_atom(self, key):
        op = self.pick("==", "!=", "<", "<=", ">", ">=")
        n, few = self.r.randint(1, 70), self.r.randint(2, 5)
        index = self.pick("q", key)
        kind = self.r.randint(0, 4)
        if kind == 0:
            return f"{index} {op} {n}"
        if kind == 1:
            return f"{index} % {few} {op} {self.r.randint(0, 1)}"
        if kind == 2:
            values = self.pick("randint(0,2)", "randint(0,3)", "const(1)")
            return f"{self.table(index, values)} {op} 1"
        if kind == 3:
            return f"{key} // {n} {op} (q + {self.r.randint(0, 40)}) // {n}"
        return f"{key} {self.pick('<', '<=', '>')} {self.table('q', 'randint(0,60)')}"

    def atom(self, key):
        n, off = self.r.randint(1, 12), self.r.randint(-6, 6)
        far = f"{self.extent[key]} - Sq"
        kind = self.r.randint(0, 14)
        if kind > 9:
            return self.side_atom(key)
        if kind == 0:
            return f"{key} <= q + {far}"
        if kind == 1:
            return f"{key} <= q + {off}".replace("+ -", "- ")
        if kind == 2:
            return f"0 <= q - {key} + {far} < {n}"
        if kind == 3:
            return f"abs(q - {key}) <= {n}"
        if kind == 4:
            return f"{key} < {n}"
        if kind == 5:
            return f"(q + {n} * {key}) % {self.r.randint(2, 5)} != 0"
        if kind == 6:
            return f"{key} // {n} <= q // {n}"
        if kind == 7:
            return f"{key} != q"
        if kind == 8:
            name = self.name_of("len")
            self.params.append(f"nograd {name}: i32[B]")
            self.inputs.append(f"{name}=randint(0,60)")
            return f"{key} < {name}[b]"
        a, b = self.name_of("qdoc"), self.name_of("kdoc")
        self.params += [f"nograd {a}: i32[Sq]",
                        f"nograd {b}: i32[{self.extent[key]}]"]
        self.inputs += [f"{a}=docs(5)", f"{b}=docs(5)"]
        return f"{a}[q] == {b}[{key}]"

    def domain(self, key):
        if self.chance(0.2):
            return ""
        return f" where {self.condition(key)}"

    def condition(self, key, depth=2):
        text = self.atom(key)
        while depth and self.chance(0.4):
            part = self.condition(key, depth - 1)
            if self.chance(0.2):
                part = f"!({part})"
            text = f"({text}) {self.pick('&', '|')} ({part})"
        return text

    # ---------------------------------------------------------- scores
    def score(self, q, k, key):
        s = f"scale * dot({q}, {k})"
        for _ in range(self.r.randint(0, 3)):
            kind = self.r.randint(0, 6)
            if kind == 0:
                s = f"4.0 * tanh(({s}) / 4.0)"
            elif kind == 1:
                s = f"{s} + {self.tensor('bias', key)}"
            elif kind == 2:
                s = f"{s} - 0.05 * f32(abs(q - {key}))"
            elif kind == 3:
                s = f"({s}) * exp(-0.02 * f32(abs(q - {key})))"
            elif kind == 4:
                s = f"({s}) * (1.0 + {self.tensor('gain', key)})"
            elif kind == 5:
                name = self.name_of("table")
                self.params.append(f"{name}: f32[H, 9]")
                self.inputs.append(f"{name}=uniform(-1,1)")
                s = f"{s} + {name}[h, clamp({key} - q + 4, 0, 8)]"
            else:
                s = f"{self.pick('silu', 'erf', 'sin')}({s})"
            s = self.let("s", s)
        return self.let("s", s) if not s.isidentifier() else s

    # ---------------------------------------------------------- rows
    def weights(self, s, key):
        kind = self.r.randint(0, 8)
        if kind <= 2:
            return self.let("e", f"exp({s} - max({key}: {s}))")
        if kind == 3:
            m = self.let("m", f"max(max({key}: {s}), 0.0)")
            return self.let("e", f"exp({s} - {m}) - exp(-{m})")
        return self.let("w", {
            4: f"sigmoid({s})", 5: f"relu({s})", 6: f"{s} * {s}",
            7: f"softplus({s})", 8: f"exp(-abs({s}))"}[kind])

    def normalized(self, w, key):
        kind = self.r.randint(0, 7)
        if kind == 0:
            return w
        n = {1: f"sum({key}: {w}) + 0.5", 2: f"sum({key}: abs({w})) + 0.1",
             3: f"sqrt(sum({key}: {w} * {w}) + 0.1)",
             4: f"max({key}: abs({w})) + 0.2",
             5: f"max(abs(sum({key}: {w})), 1.0)",
             6: f"f32(count({key}: true)) + 0.5",
             7: f"sum({key}: abs({w})) + exp({self.row_scalar()})"}[kind]
        return self.let("p", f"{w} / ({n})")

    # Both directions in one pass are not possible.
    def scan(self, p, key):
        more = self.pick("", ", exclusive = true")
        name = "cumsum" if self.ascending else "suffix_sum"
        return f"{name}({key}: abs({p}){more})"

    def row_scalar(self):
        name = self.name_of("sink")
        self.params.append(f"{name}: f32[H]")
        self.inputs.append(f"{name}=uniform(-1,1)")
        return f"{name}[h]"

    def second(self, p, key):
        kind = self.r.randint(0, 9)
        if kind == 0:
            return self.let("r", f"relu({p} - 0.3 * mean({key}: {p}))")
        if kind == 1:
            return self.let("r", f"{p} - 0.5 * mean({key}: {p})")
        if kind == 2:
            return self.let("r", f"{p} * {p} / (sum({key}: {p} * {p}) + 0.1)")
        if kind == 3:
            return self.let("r", f"{p} * exp(-0.1 * {self.scan(p, key)})")
        if kind == 4:
            return self.let("r", f"{p} / (1.0 + {self.scan(p, key)})")
        return p

    def row(self, s, key):
        return self.second(self.normalized(self.weights(s, key), key), key)

    # ---------------------------------------------------------- the program
    def stream(self, key, kname, vname, group):
        q = "Q[b, h, q]"
        k = f"{kname}[b, {group}, {key}]"
        if self.chance(0.2):
            self.decls = ("fn unit<D>(x: f32[D]) -> f32[D] {\n  index d in D;\n"
                          "  return x * rsqrt(sum(d: x[d] * x[d]) + 0.1);\n}\n")
            q, k = f"unit({q})", f"unit({k})"
        p = self.row(self.score(q, k, key), key)
        if self.chance(0.25):
            other = self.row(self.score(q, k, key), key)
            p = self.let("p", f"{p} - 0.4 * {other}")
        value = f"sum({key}: {p} * {vname}[b, {group}, {key}])"
        if self.chance(0.3):
            value = f"sigmoid({self.tensor_row('gate')}) * {value}"
        return p, value

    def tensor_row(self, stem):
        name = self.name_of(stem)
        self.params.append(f"{name}: f32[B, H, Sq]")
        return f"{name}[b, h, q]"

    def extra(self, p, key):
        return self.pick(f"sum({key}: {p} * {p})", f"max({key}: {p}) + 1.0",
                         f"mean({key}: {p})", f"f32(count({key}: {p} > -9.0))",
                         f"log(1.0 + sum({key}: abs({p})))",
                         f"min({key}: {p}) - 1.0",
                         f"sum({key}: {p} * f32({key})) * 0.1")

    def text(self):
        d, dv = self.pick(4, 8, 12, 16, 24, 32), self.pick(4, 8, 16, 20, 32)
        two = self.chance(0.2)
        self.extent = {"k": "Sk", "c": "Sc"}
        group = self.pick("h // (H // Hk)", "h % Hk", "0")
        t = "T"
        self.params = [f"Q: {t}[B, H, Sq, D]", f"K: {t}[B, Hk, Sk, D]",
                       f"V: {t}[B, Hk, Sk, Dv]"]
        keys = [f"index k in Sk{self.domain('k')};"]
        p, value = self.stream("k", "K", "V", group)
        dims = "B, Hk, H, Sq, Sk"
        if two:
            dims += ", Sc"
            self.params += [f"Kc: {t}[B, Hk, Sc, D]", f"Vc: {t}[B, Hk, Sc, Dv]"]
            keys.append(f"index c in Sc{self.domain('c')};")
            _, more = self.stream("c", "Kc", "Vc", group)
            value = f"{value} + {more}"
        self.outs = [f"O: {t}[B, H, Sq, Dv]"]
        body = self.lets + [f"O[b, h, q] = {value};"]
        if self.chance(0.4):
            self.outs.append("X: f32[B, H, Sq]")
            body.append(f"X[b, h, q] = {self.extra(p, 'k')};")
        self.params.append("scale: f32 = rsqrt(D)")
        lines = "\n  ".join(["index b in B, h in H, q in Sq;"] + keys + body)
        return f"""{self.decls}attention {self.name}<T: dtype {{{self.dtype}}}, {dims},
  D: const {{{d}}}, Dv: const {{{dv}}}>
  ({', '.join(self.params)})
  -> ({', '.join(self.outs)})
  where H % Hk == 0
{{
  {lines}
}}
"""


class Functions(Program):
    """Rows of functions of functions, with factors of both signs; constants
    and exponentials beside sums, below one and above; powers of capped
    weights; rows that are subtracted."""

    def factor(self):
        return self.pick("0.5", "2.0", "3.0", "-1.0", "-2.0", "0.1")

    def function(self, x, depth):
        y = self.pick(
            f"tanh({x})", f"erf({x})", f"sigmoid({x})", f"exp(-abs({x}))",
            f"relu({x})", f"softplus({x})", f"sin({x})", f"cos({x})",
            f"abs({x})", f"sqrt(abs({x}) + 0.1)", f"log(1.5 + abs({x}))",
            f"min({x}, 0.7)", f"max({x}, -0.3)", f"clamp({x}, -1.0, 0.8)",
            f"exp(min({x}, 2.0))", f"({x}) * ({x})")
        if self.chance(0.6):
            y = f"{self.factor()} * {y}"
        if self.chance(0.3):
            y = f"{y} {self.pick('+', '-')} {self.factor()}"
        return y if depth == 0 else self.function(f"({y})", depth - 1)

    def weights(self, s, key):
        kind = self.r.randint(0, 9)
        if kind <= 5:
            return self.let("w", self.function(s, self.r.randint(0, 2)))
        if kind == 6:
            return self.let("e", f"exp({self.pick('0.25', '0.5')} * {s})")
        if kind == 7:
            return self.let("e", f"exp(min({s}, 9.0)) - 0.2")
        if kind == 8:
            s = self.let("c", f"{self.pick('6.0', '28.0')} * tanh({s})")
        return self.let("e", f"exp({s} - max({key}: {s}))")

    def normalized(self, w, key):
        total = f"sum({key}: abs({w}))"
        n = self.pick(f"0.3 + {total}", f"{total} + 3.0", "",
                      f"sqrt(sum({key}: {w} * {w}) + 0.5)",
                      f"max({key}: abs({w})) + 0.2")
        if not n:
            sink = f"{self.row_scalar()} {self.pick('- 2.0', '+ 1.0')}"
            n = f"{total} + exp({sink})"
        whole = self.pick(f"{w} / ({n})", f"{w} / ({n})",
                          f"tanh({w}) / ({n})", f"({w} + 0.5) / ({n})",
                          f"{w} - {self.pick('0.1', '-0.2')} * sum({key}: {w})")
        return self.let("p", whole)

    def second(self, p, key):
        return self.let("r", self.pick(
            p, f"{p} * {p}", f"{p} * {p} * {p}", f"relu({p} - 0.1)",
            f"{p} / (0.5 + sum({key}: {p} * {p}))", f"tanh({p})"))

    # Not log(1 + sum): powers of weights may be small beside the 1.
    def extra(self, p, key):
        return self.pick(f"sum({key}: {p} * {p})", f"sum({key}: abs({p}))",
                         f"max({key}: {p}) + 1.0", f"min({key}: {p}) - 1.0")


KINDS = {"any": Program, "functions": Functions}


def main():
    opt = {"seed": "1", "count": "20", "type": "f32", "rows": "any"}
    for arg in sys.argv[2:]:
        key, value = arg.lstrip("-").split("=")
        opt[key] = value
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    tol = 1e-4 if opt["type"] == "f32" else 4e-2
    lines = []
    for n in range(int(opt["seed"]), int(opt["seed"]) + int(opt["count"])):
        p = KINDS[opt["rows"]](n, opt["type"])
        (out / f"{p.name}.attn").write_text(p.text())
        ins = " ".join(f"--in={x}" for x in p.inputs)
        lines.append(f"{out}/{p.name}.attn --seed={n} --tol={tol} --dim=B=1..2,"
                     f"Hk=1..2,H=Hk*1..3,Sq=1..40,Sk=1..70,Sc=1..20 {ins}")
    (out / "list").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
