"""The parts of tools/bench/gpu that need no PyTorch: what is made of results.
argv: the scripts, a folder."""
import os
import sys

scripts, out = sys.argv[1:]
sys.path.insert(0, scripts)
import cases   # noqa: E402
import plot    # noqa: E402


names = [c.name for c in cases.all_cases()]
print(len(names) == len(set(names)), names[0])
c = cases.all_cases()[0]
print(c.flop() == 4 * 2048 * 16384 ** 2, c.library)
print(cases.by_window(4)(6) == 1 + 2 + 3 + 4 + 4 + 4, cases.by_prefix(2)(3))
print(cases.by_docs(36) == sum(n * (n + 1) // 2 for n in [5, 3, 8, 2, 6, 4, 7, 1]))
v = list(cases.variants())
print(len(v), len({c.name for c in v}), v[0].library)
print(all(sum(b - a for a, b in (cases.SPANS[c.mask](c, q)
                                 for q in range(c.S))) == c.visible()
          for c in v if c.S == 2048))
print([c.touched() / (2 * 128 ** 3 * 2 * c.B * c.Hq) for c in v
       if c.S == 2048 and c.D == 128])


def row(name, err, ms, **more):
    return {"name": name, "family": "full", "flop": 1e12, "touched": 2e12,
            "bytes": 1e9, "bars": {"cudnn": 1.1, "plain": 0.9}, "contenders": {
                "ours": {"error": err, "repeats": True, "ms": ms,
                         "tflops": 1e3 / ms, **more},
                "cudnn": {"error": 2e-3, "ms": 2.4, "tflops": 417},
                "flex": {"failed": "cannot"},
                "plain": {"ms": 4.0, "tflops": 500, "flop": 2e12,
                          "touched": 4e12}}}


r = {"machine": {"name": "M", "copy_gbs": 4000, "matmul_tflops": 700},
     "passes": 4, "rest_ms": 40,
     "cases": [row("good", 2e-3, 2.0), row("slow", 2e-3, 2.3),
               row("bad", 5e-3, 2.0), row("race", 2e-3, 2.0, repeats=False)]}
plot.write(r, out)
print(plot.line(r["cases"][0]))
print(plot.ratios(r["cases"][0]))
print("\n".join(plot.failures(r)))
print(open(os.path.join(out, "results.md")).read())
svg = open(os.path.join(out, "roofline.svg")).read()
print(svg.count("<circle"), "nan" in svg)
