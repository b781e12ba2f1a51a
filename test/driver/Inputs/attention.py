"""attention.py make DIR: Q, K, V as .npy. attention.py compare DIR [TYPE]: O
and LSE against causal grouped attention in numpy, f64."""
import sys

import numpy as np

kind, folder = sys.argv[1:3]


def load(name, dtype=None):
    x = np.load(f"{folder}/{name}.npy")
    if x.dtype == np.uint16:  # bf16
        x = (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float64)


if kind == "make":
    rng = np.random.default_rng(7)
    dtype = np.dtype(sys.argv[3]) if len(sys.argv) > 3 else np.dtype("f4")
    for name, shape in ("Q", (2, 4, 9, 16)), ("K", (2, 2, 21, 16)), \
            ("V", (2, 2, 21, 16)):
        x = rng.standard_normal(shape)
        if dtype == np.uint16:
            x = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        np.save(f"{folder}/{name}.npy", x.astype(dtype))
else:
    tol = float(sys.argv[3])
    q, k, v = load("Q"), load("K"), load("V")
    k, v = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)
    s = q @ k.swapaxes(2, 3) / 4
    s[..., ~np.tri(9, 21, 12, dtype=bool)] = -np.inf
    m = s.max(axis=3, keepdims=True)
    e = np.exp(s - m)
    want = {"O": e @ v / e.sum(axis=3, keepdims=True),
            "LSE": (m + np.log(e.sum(axis=3, keepdims=True)))[..., 0]}
    for name, ref in want.items():
        got = load(name)
        assert got.shape == ref.shape, (name, got.shape)
        err = np.abs(got - ref).max()
        assert err <= tol, (name, err)
    print("equal")
