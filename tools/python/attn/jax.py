"""Programs as functions of JAX arrays.

    import attn.jax
    lib = attn.compile("gqa.attn", options=["--grad"])
    attention = attn.jax.function(lib.gqa, batch="B")
    o, lse = jax.jit(attention)(q, k, v)

A call is a foreign function of XLA, on the CPU and on CUDA devices, without
copies. Needs JAX; no compiler of C."""
import ctypes as C
import functools
import hashlib
import json
import pathlib
import typing

import jax
import jax.numpy as jnp
import numpy as np

from . import _abi, _arrays, _choice, _program, _xla, errors

# ---- arrays of a call

_NAMES = {"f32": "float32", "f64": "float64", "bf16": "bfloat16",
          "f16": "float16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
          "tf32": "float32", "i64": "int64", "i32": "int32", "i16": "int16",
          "i8": "int8", "u32": "uint32", "u16": "uint16", "u8": "uint8",
          "bool": "bool"}


class _Buffer(typing.NamedTuple):
    """An array without gaps, in XLA's memory or to be."""
    address: int
    shape: tuple
    dtype: str      # JAX's name
    device: tuple = (_abi.CPU, 0)


class _BufferKind:
    name = "JAX"

    @staticmethod
    def dtypes(x):
        return _arrays.dtypes_of(x.dtype)

    @staticmethod
    def key(x):
        return x[1:]

    @staticmethod
    def address(x):
        return x.address

    @staticmethod
    def view(x):
        strides, step = [], 1
        for n in reversed(x.shape):
            strides.insert(0, step)
            step *= max(n, 1)
        return _arrays.View(x.address, x.shape, tuple(strides),
                            _arrays.dtypes_of(x.dtype), x.device)

    @staticmethod
    def stream(device):
        return None


_arrays.KINDS[_Buffer] = _BufferKind


def _buffers(values, device):
    made = []
    for i in range(values.n):
        b = values.at[i].contents
        made.append(_Buffer(b.data or 0, tuple(b.dims[:b.rank]),
                            _NAMES[_xla.TYPES[b.dtype]], device))
    return made


# ---- the foreign function
#
# One target of XLA for each program and kind of device. What a call needs beside
# its arrays are attributes: names of the inputs and outputs, and scalars.

_targets = {}  # (program, platform) -> (name, callback), which must live on


def _execute(program, kind, frame):
    device = (_abi.CPU, 0) if kind == _abi.CPU else (kind, _xla.ordinal(frame))
    call = json.loads(frame.attrs.texts()["call"])
    values = dict(zip(call["inputs"], _buffers(frame.args, device)))
    values.update(zip(call["outputs"], _buffers(frame.rets, device)))
    values.update(call["scalars"])
    values.update((n, None) for n in call["without"])
    if kind == _abi.CPU:
        program(**values)
        return
    n = program.workspace_bytes(**values)
    made, at = _xla.allocate(frame, n) if n else (None, None)
    try:
        work = _Buffer(at, (n,), "uint8", device) if n else None
        program(stream=_xla.stream(frame), workspace=work, **values)
    finally:
        if n:
            _xla.free(frame, made, n)


def _handler(program, kind):
    def run(at):
        frame = at.contents
        try:
            if not _xla.describe(frame):
                _execute(program, kind, frame)
            return None
        except errors.Error as e:
            return _xla.error(frame, str(e), _xla.INVALID_ARGUMENT)
        except Exception as e:  # nothing may pass through XLA
            return _xla.error(frame, f"{type(e).__name__}: {e}",
                              _xla.INTERNAL)
    return _xla.HANDLER(run)


@functools.lru_cache(maxsize=None)
def _identity(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]


def _target(program):
    """The name of a program's target: the same in every process, so that what
    XLA keeps on disk calls the same code."""
    if program not in _targets:
        path = getattr(program._library, "path", None)
        name = f"attn.{_identity(path)}.{program.symbol}" if path else \
            f"attn.{id(program)}.{program.symbol}"
        keep = []
        for platform, kind in (("cpu", _abi.CPU), ("CUDA", _abi.CUDA)):
            keep.append(_handler(program, kind))
            jax.ffi.register_ffi_target(
                name, jax.ffi.pycapsule(keep[-1]), platform=platform)
        _targets[program] = name, keep
    return _targets[program][0]


# ---- calls

class _Call:
    """A program with the names of the arrays that it is given, and scalars."""

    def __init__(self, program, inputs, scalars, save, batch, wanted=None):
        self.program, self.inputs, self.batch = program, inputs, batch
        self.scalars = scalars
        params, names = program.params, program._names
        self.outputs = [names[i] for i in program._outputs] + (
            [names[i] for i in program._saves] if save else [])
        self.without = []
        if wanted is not None:
            self.without = [n for n in self.outputs if n not in wanted]
            self.outputs = [n for n in self.outputs if n in wanted]
        # What is overwritten is an input and one output more.
        self.changed = [n for n in inputs
                        if params[program._index[n]].kind == _abi.INOUT]
        self.results = self.outputs + self.changed
        self.run = jax.custom_batching.custom_vmap(self._run)
        self.run.def_vmap(self._batched)

    def _type(self, name):
        return jnp.dtype(_NAMES[_abi.DTYPES[
            self.program.params[self.program._index[name]].dtype]])

    def _run(self, *arrays):
        shapes = dict(zip(self.inputs, (a.shape for a in arrays)))
        made = {**self.program.output_shapes(shapes),
                **{n: shapes[n] for n in self.changed}}
        results = [jax.ShapeDtypeStruct(made[n], self._type(n))
                   for n in self.results]
        call = {"inputs": [n for n in self.inputs], "outputs": self.results,
                "scalars": self.scalars, "without": self.without}
        alias = {self.inputs.index(n): self.results.index(n)
                 for n in self.changed}
        f = jax.ffi.ffi_call(_target(self.program), results,
                             input_output_aliases=alias,
                             vmap_method="sequential")
        return tuple(f(*arrays, call=json.dumps(call)))

    # ---- vmap

    def _axis(self, name):
        """The one axis of a parameter that is the batch; None: it has none."""
        p = self.program
        d = p.dims.index(self.batch)
        axes = p._axes[p._index[name]]
        at = [k for k, e in enumerate(axes) if e is not None and e.plain == d]
        other = [e for e in axes if e is not None and e.plain != d
                 and d in e.dims]
        if len(at) > 1 or other:
            raise errors.UnsupportedError(
                f"vmap over {self.batch}: it is not one axis of '{name}'",
                name)
        return at[0] if at else None

    def _batched(self, n, batched, *arrays):
        """With `batch` the new axis becomes part of that dim, else the calls
        are made one after the other."""
        axes = None
        if self.batch is not None:
            axes = [self._axis(name) for name in self.inputs]
            if any(b and k is None for b, k in zip(batched, axes)):
                axes = None  # an array without batch has one now
        if axes is None:
            rest = [a for a, b in zip(arrays, batched) if b]

            def one(some):
                some = iter(some)
                return self.run(*(next(some) if b else a
                                  for a, b in zip(arrays, batched)))
            return jax.lax.map(one, rest), (True,) * len(self.results)
        folded = []
        for a, b, k in zip(arrays, batched, axes):
            if k is None:
                folded.append(a)
                continue
            if not b:
                a = jnp.broadcast_to(a, (n, *a.shape))
            a = jnp.moveaxis(a, 0, k)  # beside the batch, before it
            folded.append(a.reshape(a.shape[:k] + (-1,) + a.shape[k + 2:]))
        outs = []
        for name, o in zip(self.results, self.run(*folded)):
            k = self._axis(name)
            if k is None:
                raise errors.UnsupportedError(
                    f"vmap over {self.batch}: '{name}' has no such axis", name)
            o = o.reshape(o.shape[:k] + (n, -1) + o.shape[k + 1:])
            outs.append(jnp.moveaxis(o, k, 0))
        return tuple(outs), (True,) * len(outs)


def _scalars(program, named):
    made = {}
    for n, v in named.items():
        if isinstance(v, jax.core.Tracer):
            raise errors.ArgumentError(
                f"argument '{n}': a scalar is a number when the call is "
                "traced; make it a static argument of jax.jit", n)
        p = program.params[program._index[n]]
        made[n] = float(v) if p.dtype < _abi.DTYPES.index("i64") else int(v)
    return made


def _given(program, args, named):
    """Arrays by name in the order of the inputs, and scalars."""
    values = program._bind(args, None, named)
    arrays, scalars = {}, {}
    for i in program._inputs:
        if values[i] is None:
            continue
        p = program.params[i]
        if p.kind == _abi.SCALAR:
            scalars[p.name] = values[i]
        else:
            arrays[p.name] = jnp.asarray(values[i])
    shapes = [a.shape for a in arrays.values()]
    _check(program, arrays, shapes)
    return arrays, _scalars(program, scalars)


def _check(program, arrays, shapes):
    """What the runtime says of these shapes and types, as early as a trace."""
    like = {n: _Buffer(1 << 12, tuple(s), str(a.dtype))
            for (n, a), s in zip(arrays.items(), shapes)}
    program.workspace_bytes(**like)


def _program_of(choice, args, named):
    if isinstance(choice, _program.Program):
        return choice

    def stub(v):
        return _Buffer(0, v.shape, str(v.dtype)) if hasattr(v, "shape") and \
            hasattr(v, "dtype") and v.shape != () else v
    return choice.of(*map(stub, args), **{n: stub(v)
                                          for n, v in named.items()})


def function(program, batch=None):
    """A program of a Library, or a Choice, as a function of JAX arrays.

    Inputs are positional or named, as in a call of the program; scalars are
    numbers. The result are the outputs and, behind them, the new values of
    `inout` parameters: nothing is changed in place. It goes through jax.jit; a
    program compiled with --grad is differentiable once, in reverse.
    batch: the dim whose entries do not depend on each other. jax.vmap then adds
    to it; without, or where an array has no such axis, it makes calls one after
    the other."""
    if not isinstance(program, (_program.Program, _choice.Choice)):
        raise errors.ArgumentError("function() takes a program of a Library")
    of = program.programs if isinstance(program, _choice.Choice) else [program]
    for p in of:
        if batch is not None and batch not in p.dims:
            raise errors.DimError(f"{p.name} has no dim {batch}: "
                                  + ", ".join(p.dims), batch)

    def call(*args, **named):
        p = _program_of(program, args, named)
        arrays, scalars = _given(p, args, named)
        run = _plain if p._grad is None or p._grad._overwritten \
            else _differentiable
        outs = run(p, batch, tuple(arrays), scalars)(*arrays.values())
        return outs[0] if len(outs) == 1 else outs

    call.__name__ = call.__qualname__ = program.name
    call.__doc__ = program.__doc__
    return call


def _plain(p, batch, names, scalars):
    return _Call(p, list(names), scalars, False, batch).run


def _differentiable(p, batch, names, scalars):
    g = p._grad
    whole = _Call(p, list(names), scalars, True, batch)
    outs = len(p._outputs)

    @jax.custom_vjp
    def f(*arrays):
        return _plain(p, batch, names, scalars)(*arrays)

    def forward(*arrays):
        for n, a in zip(names, arrays):
            if a.perturbed and n not in g.inputs and jnp.issubdtype(
                    a.value.dtype, jnp.inexact):
                raise errors.UnsupportedError(
                    f"{p.name} has no gradient of '{n}', but of "
                    + ", ".join(g.inputs), n)
        values = [a.value for a in arrays]
        made = whole.run(*values)
        have = {**dict(zip(names, values)), **dict(zip(whole.outputs, made))}
        reads = {n: have[n] for n in g.backward._names if n in have}
        return tuple(made[:outs]), (reads, [a.perturbed for a in arrays])

    def backward(kept, cotangents):
        reads, wanted = kept
        given = dict(reads)
        for i, c in zip(p._outputs, cotangents):
            n = "d_" + p._names[i]
            if n in g.cotangents:
                given[n] = jnp.zeros(c.aval.shape, c.aval.dtype) if isinstance(
                    c, jax.custom_derivatives.SymbolicZero) else c
        order = [n for n in g.backward._names if n in given]
        want = [n for n, w in zip(names, wanted) if w and n in g.inputs]
        scalar = {n: v for n, v in scalars.items() if n in g.backward._index}
        c = _Call(g.backward, order, scalar, False, batch,
                  ["g_" + n for n in want])
        made = dict(zip(c.outputs, c.run(*(given[n] for n in order))))
        return tuple(made.get("g_" + n) for n in names)

    f.defvjp(forward, backward, symbolic_zeros=True)
    return f
