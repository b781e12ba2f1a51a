"""Compiled attention programs in Python.

    import attn
    lib = attn.compile("gqa.attn", dims={"T": "f32", "D": 64, "Dv": 64})
    o, lse = lib.gqa(q, k, v)      # NumPy arrays, PyTorch tensors, DLPack

    lib = attn.load("gqa.so")      # made by attnc --shared

Without dims a library has gqa_bf16, gqa_f32, ..; lib.gqa takes the one that the
arrays' types ask for. `attn.torch.register(lib.gqa_f32)` makes an operator of
PyTorch, for torch.compile; `attn.torch.function("gqa.attn")` is a function that
compiles at its first call; `attn.hf.register()` gives Hugging Face's transformers
attention of compiled programs, and `attn.jax.function(lib.gqa)` is a function of
JAX arrays.

Needs libattn and, for `compile`, attnc; nothing else is imported."""
from ._choice import Choice
from ._compile import cache_dir, compile
from ._library import Library, load, loads
from ._program import Gradient, Launch, Param, Program, Saved
from ._runtime import runtime, threads, units
from .errors import (AbiError, AlignError, ArgumentError, CompileError,
                     ConstraintError, DeviceError, DimError, DtypeError,
                     Error, FileError, FormatError, InternalError, NullError,
                     OutOfMemoryError, RankError, ShapeError, StrideError,
                     UnsupportedError)

__version__ = "0.2.0"
__all__ = ["AbiError", "AlignError", "ArgumentError", "Choice", "CompileError",
           "ConstraintError", "DeviceError", "DimError", "DtypeError",
           "Error", "FileError", "FormatError", "Gradient", "InternalError", "Launch",
           "Library",
           "NullError", "OutOfMemoryError", "Param", "Program", "RankError", "Saved",
           "ShapeError", "StrideError", "UnsupportedError", "cache_dir",
           "compile", "load", "loads", "runtime", "threads", "units"]


def __getattr__(name):
    if name in ("torch", "hf", "jax"):  # imported at first use
        import importlib
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'attn' has no attribute '{name}'")
