"""The parts of tools/bench/gpu that need no PyTorch: calls through ctypes on
the CPU, and what is made of results. argv: the scripts, libattn.so, a library
of twice.attn, a folder."""
import ctypes
import os
import sys

scripts, runtime, library, out = sys.argv[1:]
sys.path.insert(0, scripts)
import attn    # noqa: E402
import cases   # noqa: E402
import plot    # noqa: E402


class Array:
    """As much of a tensor as attn.py looks at."""

    def __init__(self, *shape):
        self.shape, self.dtype = shape, "torch.float32"
        self.at = (ctypes.c_float * (shape[0] * shape[1]))()

    def data_ptr(self):
        return ctypes.addressof(self.at)

    def stride(self):
        return (self.shape[1], 1)


x, y = Array(3, 5), Array(3, 5)
x.at[:] = range(15)
p = attn.Program(attn.runtime(runtime), library, "lib_twice")
p.call(p.args(X=x, Y=y))
print(list(y.at)[:3], p.workspace(p.args(X=x, Y=y)))
p.call(p.args(X=x, Y=y, by=3.0))
print(list(y.at)[:3])
try:
    p.call(p.args(X=x, Y=Array(3, 4)))
except attn.AttnError as e:
    print(e)

names = [c.name for c in cases.all_cases()]
print(len(names) == len(set(names)), names[0])
c = cases.all_cases()[0]
print(c.flop() == 4 * 2048 * 16384 ** 2, c.library)
print(cases.by_window(4)(6) == 1 + 2 + 3 + 4 + 4 + 4, cases.by_prefix(2)(3))
print(cases.by_docs(36) == sum(n * (n + 1) // 2 for n in [5, 3, 8, 2, 6, 4, 7, 1]))


def row(name, err, ms, **more):
    return {"name": name, "family": "full", "flop": 1e12, "bytes": 1e9,
            "bars": {"cudnn": 1.1}, "contenders": {
                "ours": {"error": err, "repeats": True, "ms": ms,
                         "tflops": 1e3 / ms, **more},
                "cudnn": {"error": 2e-3, "ms": 2.4, "tflops": 417},
                "flex": {"failed": "cannot"}}}


r = {"machine": {"name": "M", "copy_gbs": 4000, "matmul_tflops": 700},
     "passes": 4, "rest_ms": 40,
     "cases": [row("good", 2e-3, 2.0), row("slow", 2e-3, 2.3),
               row("bad", 5e-3, 2.0), row("race", 2e-3, 2.0, repeats=False)]}
plot.write(r, out)
print(plot.line(r["cases"][0]))
print("\n".join(plot.failures(r)))
print(open(os.path.join(out, "results.md")).read())
svg = open(os.path.join(out, "roofline.svg")).read()
print(svg.count("<circle"), "nan" in svg)
