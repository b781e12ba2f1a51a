"""The matrix of numeric cases: row functions x masks x types x shapes.

    rows.py DIR [--every=N] [--from=I] [--runs=N] [--poison=1]

writes DIR/*.attn and DIR/list, one line for attn-numeric per program; of all
programs every N-th, each on that many random shapes; with --poison also with
inf and NaN among the keys.
"""
import pathlib
import sys

# A row function: equations of its outputs (O is a vector of Dv, X a scalar),
# declarations, further parameters, inputs, tolerances. What divides by small
# sums of scores, or takes exp of large ones, loses digits of f32; rows without
# a normalizer differ in size, and 16-bit weights are as wrong as the largest.
ROWS = {}


def row(name, body, decls="", params=(), outs="O", inputs=(), tol=1e-5,
        tol16=1e-2, order=False):
    """order: the result depends on the order of the keys."""
    ROWS[name] = dict(body=body, decls=decls, params=params, outs=outs,
                      inputs=inputs, tol=tol, tol16=tol16, order=order)


SUM = "O[b, h, q] = sum(k: p * V[b, g, k]);"
# Scores that are whole numbers: comparisons of them are exact.
WHOLE = ("Q=randint(-2,3)", "K=randint(-2,3)", "scale=const(1)")
# Mostly positive scores, so that sums of positive parts are not tiny.
POSITIVE = ("Q=normal(0.4,1)", "K=normal(0.4,1)")

row("softmax", f"let (p, _) = softmax(s);\n  {SUM}",
    "import std.rows { softmax }")
row("softmax_inline", """let m = max(k: s);
  let e = exp(s - m);
  let l = sum(k: e);
  O[b, h, q] = sum(k: e / l * V[b, g, k]);""")
row("softmax_sink", f"let p = softmax_sink(s, sink[h]);\n  {SUM}",
    "import std.rows { softmax_sink }", ["sink: f32[H]"])
row("softmax1", f"let p = softmax1(s);\n  {SUM}",
    "import std.rows { softmax1 }")
row("logsumexp", "X[b, h, q] = logsumexp(s);",
    "import std.rows { logsumexp }", outs="X")
row("lse_beside", f"let (p, lse) = softmax(s);\n  {SUM}\n  X[b, h, q] = lse;",
    "import std.rows { softmax }", outs="OX")
row("sigmoid", "O[b, h, q] = sum(k: sigmoid(s - 1.5) * V[b, g, k]);",
    tol16=2e-2)
row("norm_sigmoid", f"let p = norm_sigmoid(s);\n  {SUM}",
    "import std.rows { norm_sigmoid }")
row("relu_l1", f"let p = relu_l1(s);\n  {SUM}",
    "import std.rows { relu_l1 }", inputs=POSITIVE, tol=5e-5)
row("relu2", f"let p = relu2(s);\n  {SUM}", "import std.rows { relu2 }",
    tol16=2e-2)
row("power", f"let p = power(s);\n  {SUM}", "import std.rows { power }",
    tol=5e-5)
row("retention", f"""let d = s * exp(-0.05 * f32(abs(q - k)));
  let p = l1(d);
  {SUM}""", "import std.rows { l1 }", tol16=2e-2, order=True, tol=5e-5)
row("softpick", f"let p = softpick(s);\n  {SUM}",
    "import std.rows { softpick }")
row("softpick_eps", f"let p = softpick(s, eps = 0.001);\n  {SUM}",
    "import std.rows { softpick }")
row("relu_max", f"""let r = relu(s);
  let p = r / (max(k: r) + 0.1);
  {SUM}""", tol16=2e-2)
row("variance", """let d = s - mean(k: s);
  X[b, h, q] = mean(k: d * d);""", outs="X", tol=1e-4)
row("layernorm", f"let p = layernorm(s, eps = 0.05) + 0.1;\n  {SUM}",
    "import std.rows { layernorm }", tol=1e-4)
row("rms", f"let p = rms(s);\n  {SUM}", "import std.rows { rms }", tol=5e-5, tol16=2e-2)
row("cosformer", f"let p = cosformer(s, 0.004 * f32(k));\n  {SUM}",
    "import std.rows { cosformer }", inputs=POSITIVE, order=True, tol=5e-5)
row("forgetting", f"""let (p, _) = softmax(s + Fq[b, h, q] - Fk[b, h, k]);
  {SUM}""",
    "import std.rows { softmax }", ["Fq: f32[B, H, Sq]", "Fk: f32[B, H, Sk]"],
    inputs=("Fq=iota(0,-0.02)", "Fk=iota(0,-0.02)"), tol=3e-5)
row("differential", """let t = scale * dot(Q2[b, h, q], K2[b, g, k]);
  let (p1, _) = softmax(s);
  let (p2, _) = softmax(t);
  O[b, h, q] = sum(k: (p1 - lam[h] * p2) * V[b, g, k]);""",
    "import std.rows { softmax }",
    ["Q2: T[B, H, Sq, D]", "K2: T[B, Hk, Sk, D]", "lam: f32[H]"],
    inputs=("lam=uniform(0.1,0.6)",))
row("stick", f"""let p = stick(s);
  {SUM}
  X[b, h, q] = exp(-0.05 * sum(k: softplus(s)));""",
    "import std.rows { stick }", outs="OX", order=True, tol=5e-5)
row("stick_exclusive", """let c = suffix_sum(k: softplus(s), exclusive = true);
  O[b, h, q] = sum(k: sigmoid(s) * exp(-c) * V[b, g, k]);""", order=True)
row("running_sum", """let c = cumsum(k: sigmoid(s));
  O[b, h, q] = sum(k: exp(-0.3 * c) * V[b, g, k]);""", order=True)
row("softmax_l2", f"let p = softmax_l2(s);\n  {SUM}",
    "import std.rows { softmax_l2 }")
row("two_temperatures", """let (p, _) = softmax(s);
  let (r, lse) = softmax(0.5 * s);
  O[b, h, q] = sum(k: (0.7 * p + 0.3 * r) * V[b, g, k]);
  X[b, h, q] = lse;""", "import std.rows { softmax }", outs="OX")
row("entropy", """let (p, lse) = softmax(s);
  X[b, h, q] = 1.0 + lse - sum(k: p * s);""", "import std.rows { softmax }",
    outs="X", tol=3e-5)
# Two and three passes over the keys; whole scores decide exactly.
row("above_mean", """let mu = mean(k: s);
  O[b, h, q] = sum(k: select(s >= mu, 1.0, 0.0) * V[b, g, k]);""",
    inputs=WHOLE)
row("relu_of_softmax", """let (p, _) = softmax(s);
  let many = f32(count(k: true));
  O[b, h, q] = sum(k: relu(p - 0.5 / many) * V[b, g, k]);""",
    "import std.rows { softmax }")
row("sparse_residual", """let mu = mean(k: s);
  let a = select(s >= mu, 1.0, 0.0);
  let many = sum(k: a);
  let t = sum(k: s * a);
  O[b, h, q] = sum(k: relu(s - (t - 1.0) / many) * V[b, g, k]);""",
    inputs=WHOLE, tol16=2e-2)

# A mask: predicate, declarations, parameters, inputs.
MASKS = {
    "all": ("", "", [], []),
    "causal": ("causal(off = Sk - Sq)", "causal", [], []),
    "causal_top": ("causal", "causal", [], []),
    "window": ("window(q = q + Sk - Sq, left = 7)", "window", [], []),
    "both_sides": ("window(left = 4, right = 6)", "window", [], []),
    "prefix": ("prefix(n)", "prefix", ["nograd n: i32"], ["n=randint(0,50)"]),
    "prefix_lm": ("prefix_lm(n = 5)", "prefix_lm", [], []),
    "dilated": ("dilated(r = 3)", "dilated", [], []),
    "docs": ("same_doc(qdoc, kdoc)", "same_doc",
             ["nograd qdoc: i32[Sq]", "nograd kdoc: i32[Sk]"],
             ["qdoc=docs(4)", "kdoc=docs(4)"]),
    "sink_window": ("sink_window(n = 3, left = 6)", "sink_window", [], []),
    "block_causal": ("block_causal(n = 8)", "block_causal", [], []),
    "padding": ("padding(len)", "padding", ["nograd len: i32[B]"],
                ["len=randint(0,60)"]),
    "given": ("allowed[q, k] > 0", "", ["nograd allowed: i8[Sq, Sk]"],
              ["allowed=randint(0,2)"]),
    "late": ("k < q - 3", "", [], []),      # the first rows see no key
    "scattered": ("(q + 2 * k) % 5 < 2 | k == q", "", [], []),
    "head": ("k <= q | h == 0", "", [], []),
}

# Shapes: many heads, more rows than a tile has, few rows and many keys. At
# least 2 keys: of one, some results are zero everywhere, and no relative error
# is small.
DIMS = ["B=1..2,Hk=1..2,H=Hk*1..3,Sq=1..33,Sk=2..70",
        "B=1,Hk=1,H=1..2,Sq=1..140,Sk=2..90",
        "B=1..3,Hk=1..2,H=Hk*1..4,Sq=1..2,Sk=2..300"]


def program(row_name, mask_name, dtype, d, dv):
    r = ROWS[row_name]
    pred, imports, mask_params, mask_inputs = MASKS[mask_name]
    name = f"{row_name}_{mask_name}_{dtype}"
    use = f"import std.masks {{ {imports} }}\n" if imports else ""
    where = f" where {pred}" if pred else ""
    params = ["Q: T[B, H, Sq, D]", "K: T[B, Hk, Sk, D]"]
    if "O" in r["outs"]:
        params.append("V: T[B, Hk, Sk, Dv]")
    params += list(r["params"]) + mask_params + ["scale: f32 = rsqrt(D)"]
    outs = []
    if "O" in r["outs"]:
        outs.append("O: T[B, H, Sq, Dv]")
    if "X" in r["outs"]:
        outs.append("X: f32[B, H, Sq]")
    dims = f"D: const {{{d}}}"
    body = r["body"]
    if "O" in r["outs"]:
        dims += f", Dv: const {{{dv}}}"
    text = f"""{use}{r['decls']}
attention {name}<T: dtype {{{dtype}}}, B, Hk, H, Sq, Sk, {dims}>
  ({', '.join(params)})
  -> ({', '.join(outs)})
  where H % Hk == 0
{{
  index b in B, h in H, q in Sq;
  index k in Sk{where};
  let g = h // (H // Hk);
  let s = scale * dot(Q[b, h, q], K[b, g, k]);
  {body}
}}
"""
    tol = r["tol" if dtype == "f32" else "tol16"]
    inputs = list(r["inputs"]) + mask_inputs
    return name, text, tol, inputs


def cases():
    """(row, mask, dtype, D, Dv): each row meets each mask in f32, and some
    masks in each 16-bit type."""
    masks = list(MASKS)
    for i, r in enumerate(ROWS):
        for j, m in enumerate(masks):
            d, dv = [(16, 16), (8, 24), (32, 16), (20, 12)][(i + j) % 4]
            yield r, m, "f32", d, dv
        for j in range(3):
            m = masks[(3 * i + 5 * j) % len(masks)]
            yield r, m, "bf16", 16 + 16 * j, 32 - 8 * j
            m = masks[(5 * i + 3 * j + 1) % len(masks)]
            yield r, m, "f16", 16 + 16 * j, 32 - 8 * j


def main():
    opt = {"every": 1, "from": 0, "runs": 6, "poison": 0}
    for arg in sys.argv[2:]:
        key, value = arg.lstrip("-").split("=")
        opt[key] = int(value)
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    lines = []
    for n, (r, m, t, d, dv) in enumerate(cases()):
        if n % opt["every"] != opt["from"]:
            continue
        name, text, tol, inputs = program(r, m, t, d, dv)
        (out / f"{name}.attn").write_text(text)
        args = [f"--dim={DIMS[n % 3]}", f"--runs={opt['runs']}",
                f"--seed={n + 1}", f"--tol={tol:g}"]
        if t != "f32":
            args.append(f"--rms={0.4 * tol:g}")
        if m == "all" and not ROWS[r]["order"]:
            args.append("--permute=Sk")
        elif opt["poison"]:
            args.append("--poison=Sk")
        args += [f"--in={x}" for x in inputs]
        lines.append(" ".join([f"{out}/{name}.attn"] + args))
    (out / "list").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
