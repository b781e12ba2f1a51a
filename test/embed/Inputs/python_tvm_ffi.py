"""A library of attnc through tvm_ffi.load_module: arrays of NumPy, PyTorch and
tvm-ffi itself, outputs that are not wanted, errors. usage: LIBRARY"""
import importlib.util
import sys

if importlib.util.find_spec("tvm_ffi") is None:
    print("skipped: there is no tvm_ffi")
    sys.exit()

import numpy as np  # noqa: E402
import tvm_ffi  # noqa: E402

import attn  # noqa: E402

assert attn.load(sys.argv[1]).wide
wide = tvm_ffi.load_module(sys.argv[1]).f64_wide
rng = np.random.default_rng(1)
q, k, v = rng.standard_normal((3, 2, 9, 8))
s = np.where(np.tri(9) > 0, q @ k.swapaxes(1, 2), -np.inf)
want = np.exp(s) / np.exp(s).sum(-1, keepdims=True) @ v


def right(convert):
    o = np.zeros_like(q)
    assert wide(*map(convert, (q, k, v)), convert(o)) is None
    assert np.allclose(o, want, 1e-12, 1e-12)


def wrong(kind, text, *args):
    try:
        wide(*args)
    except kind as e:
        assert text in str(e), e
    else:
        raise AssertionError(text)


o = np.zeros_like(q)
right(lambda x: x)
right(tvm_ffi.from_dlpack)
if importlib.util.find_spec("torch"):
    import torch
    right(torch.from_numpy)
wide(q, k, v.swapaxes(0, 1).copy().swapaxes(0, 1), o)  # strides
assert np.allclose(o, want, 1e-12, 1e-12)
wide(q, k, v, None)
wrong(ValueError, "argument 'V', axis 1: extent is 8, expected S = 9",
      q, k, v[:, :8], o)
wrong(TypeError, "argument 'O': element type is f32, expected f64",
      q, k, v, o.astype("f4"))
wrong(TypeError, "expected 4 arguments, got 3", q, k, v)
print("all good")
