"""Programs by their types, pickled programs, the example of help(attn), and
processes that compile the same file at once."""
import os
import pickle
import re
import subprocess
import sys

import numpy as np

import attn

HERE = os.path.dirname(os.path.abspath(__file__))
GQA = os.path.join(HERE, "../../../stdlib/attention/gqa.attn")
DIMS = {"D": 64, "Dv": 64}
rng = np.random.default_rng(1)
q, k, v = (rng.standard_normal((1, h, 5, 64), "f4") for h in (4, 2, 2))

if len(sys.argv) > 1:  # one of the processes
    lib = attn.compile(GQA, dims=DIMS)
    print(lib.path, float(lib.gqa(q, k, v)[0].sum()))
    sys.exit()
both = [subprocess.Popen([sys.executable, __file__, "child"], text=True,
                         stdout=subprocess.PIPE) for _ in range(2)]
said = [p.communicate()[0] for p in both]
assert said[0] == said[1] and said[0], said

lib = attn.compile(GQA, dims=DIMS)
assert isinstance(lib.gqa, attn.Choice) and len(lib.gqa.programs) == 3
o, _ = lib.gqa(q, k, v)
half, _ = lib.gqa(*(x.astype("f2") for x in (q, k, v)), scale=0.125)
assert o.dtype == np.float32 and half.dtype == np.float16
assert np.abs(half - o).max() < 0.01
bits = [(x.view("u4") >> 16).astype("u2") for x in (q, k, v)]
assert lib.gqa(*bits)[0].dtype == np.uint16
assert lib.gqa.of(q, K=k, V=v) is lib.gqa_f32
assert lib.gqa.prepare(q, k, v)()[0].shape == o.shape
for bad, text in ((lambda: lib.gqa(q, k.astype("f2"), v), "other types"),
                  (lambda: lib.gqa(q, k, v, 1, 2), "takes 4 inputs"),
                  (lambda: lib.gqa(1, k, v), "is no array"),
                  (lambda: lib.gqa.grad, "lib.gqa_f32.grad")):
    try:
        bad()
        raise AssertionError("no error")
    except attn.Error as e:
        assert text in str(e), e
for x in (lib.gqa, lib.gqa_f32, lib.gqa_f32.grad.program
          if lib.gqa_f32._grad else lib.gqa_f32):
    again = pickle.loads(pickle.dumps(x))
    assert np.array_equal(again(q, k, v)[0], o)
assert len(pickle.loads(pickle.dumps(lib))) == 3

# Where one choice was compiled, the name is that program.
one = attn.compile(GQA, dims={"T": "f32", **DIMS})
assert one.gqa is one.gqa_f32

os.chdir(os.path.dirname(GQA))
example = "".join(line[4:] for line in re.findall(
    r"^    .*\n", attn.__doc__, re.M) if "load(" not in line)
exec(example)
print("all good")
