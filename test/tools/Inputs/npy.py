# `make DIR` writes arrays of every type, order and format version; `compare
# DIR` checks that IN.npy and its copy OUT.npy are equal and load alike.
import glob
import sys

import numpy as np
from numpy.lib import format as fmt

what, where = sys.argv[1:]
rng = np.random.default_rng(1)


def save(name, x, version=(1, 0)):
    with open(f"{where}/{name}.in.npy", "wb") as f:
        fmt.write_array(f, x, version=version)


if what == "make":
    types = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u4", "u2", "u1", "?"]
    for t in types:
        x = (rng.standard_normal((3, 4, 5)) * 50).astype("i4").astype(t)
        save(f"{t}-c".replace("?", "b"), x)
        save(f"{t}-f".replace("?", "b"), np.asfortranarray(x))
        save(f"{t}-big".replace("?", "b"), x.astype(x.dtype.newbyteorder(">")))
    save("scalar", np.float32(3))
    save("empty", np.zeros((2, 0, 3), "f4"))
    save("one", np.arange(7.0), (2, 0))
    save("eight", np.arange(256).reshape([2] * 8).T, (3, 0))
else:
    names = glob.glob(f"{where}/*.in.npy")
    for name in names:
        a = np.load(name)
        b = np.load(name.replace(".in.", ".out."))
        assert a.shape == b.shape and (a == b).all(), name
        assert b.dtype == a.dtype.newbyteorder("="), name
        assert b.flags.c_contiguous, name
    print(len(names), "arrays agree")
