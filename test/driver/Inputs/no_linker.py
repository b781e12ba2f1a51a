"""Two libraries of one program: the same symbols, the same bits."""
import sys

import numpy as np

import attn
from attn import _library

own, linked = sys.argv[1:]
assert sorted(_library._exported(own)) == sorted(_library._exported(linked))
a, b = attn.load(own), attn.load(linked)
rng = np.random.default_rng(0)
q = rng.standard_normal((1, 4, 100, 64), "f4")
k, v = rng.standard_normal((2, 1, 2, 100, 64), "f4")
results, kept = a.gqa(q, k, v, save=True)
same = b.gqa(q, k, v, save=True)
grads = a.gqa.grad(kept, d_O=q)
for x, y in zip((*results, *grads),
                (*same[0], *b.gqa.grad(same[1], d_O=q)), strict=True):
    assert np.array_equal(x, y)
assert a.gqa(q, k, v, out=results)[0] is results[0]
print(len(results), "results,", len(grads), "gradients")
