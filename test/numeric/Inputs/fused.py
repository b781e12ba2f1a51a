"""Gradients beside padding of NaN, with one thread and with several."""
import sys

import numpy as np

import attn

B, Hq, Hk, Sq, Sk, D = 2, 4, 2, 600, 700, 40
LENGTH = np.array([640, 655], "i4")


def gradients(program, arrays, d_o, threads):
    attn.threads(threads)
    _, saved = program(*arrays, LENGTH, save=True)
    return program.grad(saved, d_O=d_o)


def check(dtype, of_bits, to_bits):
    r = np.random.default_rng(3)
    lib = attn.compile(sys.argv[1], fn="groups", dims={"T": dtype, "D": D},
                       options=["--grad"])
    program = getattr(lib, f"groups_{dtype}")
    q, d_o = r.standard_normal((2, B, Hq, Sq, D), "f4")
    k, v = r.standard_normal((2, B, Hk, Sk, D), "f4")
    for b in range(B):
        k[b, :, LENGTH[b]:] = v[b, :, LENGTH[b]:] = np.nan
    arrays, d_o = [to_bits(x) for x in (q, k, v)], to_bits(d_o)
    one = gradients(program, arrays, d_o, 1)
    g_q, g_k, g_v = map(of_bits, one)
    assert np.isfinite(g_q).all(), dtype
    for b in range(B):
        for g in (g_k, g_v):
            assert np.isfinite(g[b, :, :LENGTH[b]]).all(), dtype
    for threads in (2, 7):
        for a, b in zip(one, gradients(program, arrays, d_o, threads)):
            assert np.array_equal(a.view("u1"), b.view("u1")), (dtype, threads)


check("f32", lambda x: x, lambda x: x)
check("bf16", lambda x: (x.astype("u4") << 16).view("f4"),
      lambda x: (x.view("u4") >> 16).astype("u2"))
