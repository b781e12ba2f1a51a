"""PyTorch operators: a program under a name of torch.ops, with a kernel that
computes shapes only, so that torch.compile and export can trace through it."""
import torch

from . import _abi, _program, errors

_libraries = {}


def _schema(program):
    """gqa(Tensor Q, Tensor K, float? scale=None) -> (Tensor, Tensor)"""
    parts, alias, late = [], ord("a"), False
    for i in program._inputs:
        p = program.params[i]
        if p.kind == _abi.SCALAR:
            kind = "float" if p.dtype < _abi.DTYPES.index("i64") else "int"
            parts.append(f"{kind}? {p.name}=None")
            late = True
        elif p.kind == _abi.INOUT:
            parts.append(f"Tensor({chr(alias)}!) {p.name}")
            alias += 1
        elif p.optional:
            parts.append(f"Tensor? {p.name}=None")
            late = True
        else:
            # A parameter without default behind one with: by name only.
            if late and "*" not in parts:
                parts.append("*")
            parts.append(f"Tensor {p.name}")
    n = len(program._outputs)
    result = "()" if not n else "Tensor" if n == 1 else \
        "(" + ", ".join(["Tensor"] * n) + ")"
    return f"({', '.join(parts)}) -> {result}"


def _library(space):
    if space not in _libraries:
        try:
            made = torch.library.Library(space, "FRAGMENT")
        except (ValueError, RuntimeError):  # before PyTorch 2
            made = torch.library.Library(space, "DEF")
        _libraries[space] = made
    return _libraries[space]


def _fake(program):
    names = [program._names[i] for i in program._inputs]

    def fake(*args, **named):
        values = dict(zip(names, args), **named)
        for n, v in values.items():
            if getattr(v, "requires_grad", False) and torch.is_grad_enabled():
                raise errors.UnsupportedError(
                    f"argument '{n}': it requires a gradient, and "
                    f"{program.name} has none", n)
        like = next(v for v in values.values() if isinstance(v, torch.Tensor))
        shapes = {n: v.shape for n, v in values.items()
                  if isinstance(v, torch.Tensor)}
        made = program.output_shapes(shapes)
        types = {program._names[i]: program.params[i].dtype
                 for i in program._outputs}
        outs = tuple(torch.empty(s, dtype=_TYPES[types[n]],
                                 device=like.device)
                     for n, s in made.items())
        return outs[0] if len(outs) == 1 else outs or None

    return fake


_TYPES = {i: getattr(torch, n) for i, n in enumerate(
    ["float64", "float32", "float32", "bfloat16", "float16", "float8_e4m3fn",
     "float8_e5m2", "int64", "int32", "int16", "int8", "uint32", "uint16",
     "uint8", "bool"]) if hasattr(torch, n)}


def register(program, name=None):
    """Makes torch.ops.NAMESPACE.OP of a program and returns its one overload.

    name: "namespace::op"; default attn:: and the program's symbol. Outputs are
    new tensors; `inout` parameters are changed in place. The operator runs on
    the CPU and on CUDA devices, on the current stream, works under
    torch.compile without graph breaks and inside CUDA graphs. It has no
    gradient: inputs that require one raise UnsupportedError outside of
    torch.no_grad()."""
    if not isinstance(program, _program.Program):
        raise errors.ArgumentError("register() takes a program of a Library")
    name = name or "attn::" + program.symbol
    space, _, op = name.partition("::")
    if not op:
        raise errors.ArgumentError(f"'{name}' is not of the form space::name")
    lib = _library(space)
    tags = {}
    if hasattr(torch, "Tag") and hasattr(torch.Tag, "needs_fixed_stride_order"):
        tags = {"tags": (torch.Tag.needs_fixed_stride_order,)}
    try:
        lib.define(op + _schema(program), **tags)
    except TypeError:  # before tags
        lib.define(op + _schema(program))
    except RuntimeError as e:
        raise errors.ArgumentError(f"{name}: {e}") from None
    for key in ("CPU", "CUDA"):
        lib.impl(op, program.__call__, key)
    fake = getattr(torch.library, "register_fake", None)
    if fake:
        fake(name, _fake(program), lib=lib)
    else:
        lib.impl(op, _fake(program), "Meta")
    return getattr(getattr(torch.ops, space), op).default
