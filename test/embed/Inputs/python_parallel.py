"""attn.torch.context_parallel on N processes over gloo: results and gradients
beside those of one process, and what is an error.

    python_parallel.py FOLDER N    of libraries, by python-parallel.test"""
import os
import sys
import tempfile

import torch
import torch.multiprocessing as mp

if not torch.distributed.is_available():
    print("all good: no torch.distributed")
    sys.exit()

import torch.distributed as dist  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402

AXES = {"full": 1, "mamba2": 1}  # of tokens, in outputs; else 2
RECURRENT = ("gated_delta", "linear", "mamba2", "gla", "simple_gla", "retnet",
             "linear_normalized", "mlstm")


def inputs(name, S):
    """Tensors by name, each with its axis of tokens, or None."""
    def rand(*shape):
        return torch.randn(*shape)

    if name == "mamba2":
        return {"x": (rand(2, S, 4, 16), 1), "dt": (rand(2, S, 4) - 3, 1),
                "dt_bias": (rand(4) / 8, None), "A": (-rand(4).exp(), None),
                "Bm": (rand(2, S, 4, 16), 1), "C": (rand(2, S, 4, 16), 1),
                "D": (rand(4), None), "S0": (rand(2, 4, 16, 16) / 8, None)}
    if name in RECURRENT:
        return recurrence(name, S, rand)
    h, hk = (8, 4) if name == "grouped" else (4, 4)
    shape = {"full": lambda n: (2, S, n, 16),
             "differential": lambda n: (2, n, 2, S, 16)}.get(
                 name, lambda n: (2, n, S, 16))
    at = {"full": 1, "differential": 3}.get(name, 2)
    m = {"Q": (rand(*shape(h)), at), "K": (rand(*shape(hk)), at),
         "V": (rand(*shape(hk)), at)}
    if name == "full":
        m["bias"] = rand(h, S, S), 1
    if name == "sinks":
        m["sink"] = rand(h), None
    if name == "differential":
        m["V"] = rand(2, h, S, 16), 2
        m["lam"] = torch.rand(h), None
        doc = (torch.arange(S) // (S // 3)).int()
        m["qdoc"], m["kdoc"] = (doc, 0), (doc.clone(), 0)
    return m


def recurrence(name, S, rand):
    m = {n: (rand(2, 4, S, 16), 2) for n in "QKV"}
    if name == "gated_delta":
        m["beta"] = torch.rand(2, 4, S), 2
    if name in ("gated_delta", "simple_gla"):
        m["g"] = -torch.rand(2, 4, S) / 5, 2
    if name == "gla":  # more columns than rows
        m["V"] = rand(2, 4, S, 32), 2
        m["g"] = -torch.rand(2, 4, S, 16) / 5, 2
    if name == "retnet":
        m["loggamma"] = -torch.rand(4) / 5, None
    if name == "mlstm":
        m["i"], m["f"] = (rand(2, 4, S), 2), (rand(2, 4, S) + 3, 2)
    first = "C0" if name == "mlstm" else "S0"
    m[first] = rand(2, 4, 16, m["V"][0].shape[-1]) / 8, None
    if name == "linear_normalized":
        m["z0"] = torch.rand(2, 4, 16), None
    if name == "mlstm":
        m["n0"], m["m0"] = (rand(2, 4, 16), None), (rand(2, 4), None)
    return m


def total(x):
    x = x.clone()
    dist.all_reduce(x)
    return x


def beside(program, S, plan, causal, groups=None, sees=None, few=None,
           **scalars):
    """Results and gradients of parts are the parts of those of the whole; few:
    of that many heads."""
    torch.manual_seed(7)
    m = inputs(program.name.replace("_f32", ""), S)
    if few:
        m = {n: (x[:, :few], at) for n, (x, at) in m.items()}
    op = attn.torch.register(program)
    whole = op
    if program.grad._overwritten:
        space, name = op._schema.name.split("::")
        whole = getattr(getattr(torch.ops, space), name + "_states").default

    def leaves(part):
        return {n: part(x, at).clone().requires_grad_(x.is_floating_point())
                for n, (x, at) in m.items()}

    def mine(x, at):
        return x if at is None else attn.torch.shard(x, at, causal=causal)

    def results(f, x, cotangents, axes):
        outs = f(**x, **scalars)
        outs = outs if isinstance(outs, tuple) else (outs,)
        wrt = {n: v for n, v in x.items() if v.requires_grad}
        if cotangents is None:
            cotangents = [torch.randn_like(o) for o in outs]
        d = [mine(c, at) for c, at in zip(cotangents, axes)]
        return outs, dict(zip(wrt, torch.autograd.grad(
            outs, list(wrt.values()), d))), cotangents

    at = [2] * 2 if program.name == "grouped" else \
        [AXES.get(program.name.replace("_f32", ""), 2)] + [None] * 3
    want, grads, cotangents = results(whole, leaves(lambda x, at: x), None,
                                      [None] * 4)
    at = at[:len(want)]
    # Of what each rank has, cotangents and gradients are summed over ranks.
    shares = [c if a is not None else c / dist.get_world_size()
              for c, a in zip(cotangents, at)]
    cp = attn.torch.context_parallel(op, plan=plan, causal=causal,
                                     groups=groups, sees=sees)
    got, parts, _ = results(cp, leaves(mine), shares, at)
    again = results(cp, leaves(mine), shares, at)
    assert all(torch.equal(parts[n], again[1][n]) for n in parts)
    for x, y, a in zip(got, want, at):
        assert x.shape == mine(y, a).shape
        assert (x - mine(y, a)).abs().max() < 1e-5 * (1 + y.abs().max())
        if a is not None:
            z = attn.torch.unshard(x, a, causal=causal)
            assert (z - y).abs().max() < 1e-5 * (1 + y.abs().max())
    for n, g in parts.items():
        a, y = m[n][1], grads[n]
        g, y = (total(g), y) if a is None else (g, mine(y, a))
        assert (g - y).abs().max() < 3e-5 * (1 + y.abs().max()), (program, n)
    with torch.no_grad():
        plain = cp(**leaves(mine), **scalars)
        plain = plain if isinstance(plain, tuple) else (plain,)
        assert all(torch.equal(x, y) for x, y in zip(plain, got))
    return cp


def fails(kind, text, f, *args, **named):
    try:
        f(*args, **named)
    except kind as e:
        assert text in str(e), e
        return
    raise AssertionError("no error: " + text)


def wrong(lib, plain, recurrent, n, rank):
    """Errors are the same on all ranks: none waits for another."""
    x = torch.randn(2, 4, 8 * n, 16)
    cp = attn.torch.context_parallel
    fails(attn.ShapeError, "pad it to a multiple", attn.torch.shard,
          x[:, :, :2 * n + 1], 2)
    fails(attn.ArgumentError, "plan 'ring'", cp, lib.grouped, plan="ring")
    fails(attn.UnsupportedError, "one dim S", cp, lib.one, plan="gather")
    fails(attn.UnsupportedError, "overwrites", cp, recurrent,
          plan="gather")
    fails(attn.UnsupportedError, "no state that it overwrites", cp, lib.one,
          plan="turn")
    fails(attn.ArgumentError, "no dim 'T'", cp, lib.grouped, queries="T")
    fails(attn.ArgumentError, "takes a program", cp, torch.add)
    q = [attn.torch.shard(x, 2) for _ in range(3)]
    fails(attn.UnsupportedError, "count from the end",
          cp(lib.front), *(attn.torch.shard(torch.randn(1, 4, 96, 16), 2)
                           for _ in range(3)))
    fails(attn.UnsupportedError, "some of its heads", cp(lib.numbered), *q)
    fails(attn.ShapeError, "do not divide the heads", cp(lib.one),
          *(y[:, :3] for y in q))
    fails(attn.UnsupportedError, "compile it with --grad", cp(plain.front),
          Q=q[0].clone().requires_grad_(), K=q[1], V=q[2])
    fails(attn.ShapeError, "all ranks hold as many", cp(lib.grouped),
          *(y[:, :, :2 + 2 * (rank > 0)] for y in q))
    fails(attn.ArgumentError, "call differently", cp(lib.grouped),
          q[0].clone().requires_grad_(rank == 0), q[1], q[2])
    fails(attn.ShapeError, "no two chunks", cp(lib.grouped),
          *(y[:, :, :3] for y in q))
    fails(attn.ShapeError, "argument 'V', axis 2", cp(lib.one), q[0], q[1],
          q[2][:, :, :4])
    fails(attn.NullError, "'V' is missing", cp(lib.grouped), *q[:2])


def recurrences(p, n):
    """By heads, and by steps: what the form of a step is, is found."""
    beside(p, 80, None, False)
    beside(p, 80, "heads", True)
    beside(p, 80, "turn", True)
    beside(p, 16 * n, "turn", False)
    if p.name == "mlstm_f32":  # a maximum
        fails(attn.UnsupportedError, "not found to be linear", beside, p, 80,
              "states", True)
        return
    ways = [next(iter(beside(p, S, "states", causal)._known.values()))
            for S, causal in ((80, True), (24 * n, False))]
    for way in ways:
        assert way.zero == {"mamba2_f32": "x", "gated_delta_f32": "V",
                            "linear_normalized_f32": None}.get(p.name, "K")
        assert set(way.kinds.values()) == {
            2 if p.name == "gated_delta_f32" else "each"}


def worker(rank, n, path, libs):
    fails(attn.ArgumentError, "init_process_group", attn.torch.shard,
          torch.zeros(8), 0)
    dist.init_process_group("gloo", rank=rank, world_size=n,
                            init_method="file://" + path)
    lib, plain = attn.load(libs + "/parallel.so"), \
        attn.load(libs + "/plain.so")
    recurrent = [next(p for p in attn.load(f"{libs}/{name}.so")
                      if p.name == name + "_f32")
                 for name in RECURRENT]
    known = beside(lib.grouped, 96, "gather", True)._known
    seen = next(iter(known.values())).chunks
    assert seen[0][3] == (rank + 1) * 96 // (2 * n)  # keys up to its end
    beside(lib.grouped, 32 * n, "gather", True, groups=2)
    beside(lib.grouped, 32 * n, "gather", False, scale=0.5)
    beside(lib.grouped, 96, "heads", True)
    known = beside(lib.full, 96, "gather", True)._known
    assert next(iter(known.values())).chunks[0][3] == 96  # all keys
    beside(lib.sinks, 128, "gather", True)
    beside(lib.sinks, 128, None, False, left=70)
    beside(lib.sigmoids, 96, None, True, bias=-4.0)
    beside(lib.differential, 96, "gather", True)
    beside(lib.grouped, 96, "gather", True, sees="prefix")
    beside(lib.one, 96, None, True)
    # What the form of a step is does not depend on how many ranks there are.
    for p in recurrent[::1 if n == 2 else 2]:
        recurrences(p, n)
    ways = beside(recurrent[0], 80, None, True, few=3)._known.values()
    assert {w.turn for w in ways} == {n == 2}  # composed where that is faster
    wrong(lib, plain, recurrent[0], n, rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    n = int(sys.argv[2])
    with tempfile.TemporaryDirectory() as where:
        # Forked, processes have torch already, which takes seconds to import.
        mp.start_processes(worker, (n, os.path.join(where, "meet"), sys.argv[1]),
                           n, start_method="fork")
    print("all good")
