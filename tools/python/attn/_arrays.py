"""Arrays of other libraries as views of memory: NumPy, PyTorch, and whatever
speaks DLPack. One class for each; `kind_of` picks it.

A kind has
  key(x)        hashable: equal keys, equal views but for the address
  view(x)       View
  dtypes(x)     the attn_dtype it may stand for, the first is its own
  address(x)    of its first element
  empty(shape, dtype, like)   a new array beside `like`
  stream(device)              the current stream's handle, None: the default
"""
import ctypes as C
import sys
import typing

from . import _abi, errors


class View(typing.NamedTuple):
    address: int
    shape: tuple
    strides: tuple   # in elements
    dtypes: tuple    # the attn_dtype it may stand for, the first is its own
    device: tuple    # (attn_device_kind, ordinal)
    writable: bool = True


_CODE = {name: i for i, name in enumerate(_abi.DTYPES)}
_OTHER_NAMES = {"float64": "f64", "float32": "f32", "float16": "f16",
                "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3",
                "float8_e5m2": "f8e5m2", "int64": "i64", "int32": "i32",
                "int16": "i16", "int8": "i8", "uint32": "u32",
                "uint16": "u16", "uint8": "u8", "bool": "bool"}
_NAME_OF = {v: k for k, v in _OTHER_NAMES.items()} | {"tf32": "float32"}


def dtypes_of(name, bits=False):
    """attn_dtypes of a library's name; bits: integers may hold the bits of a
    small float."""
    own = _CODE.get(_OTHER_NAMES.get(name))
    if own is None:
        raise errors.DtypeError(f"element type {name} is not supported")
    extra = {"f32": ("tf32",), "u16": ("bf16",), "i16": ("bf16",),
             "u8": ("f8e4m3", "f8e5m2")}.get(_abi.DTYPES[own], ())
    if not bits and own != _abi.F32:
        extra = ()
    return (own, *(_CODE[n] for n in extra))


class NumpyKind:
    name = "NumPy"

    @staticmethod
    def dtypes(x):
        return dtypes_of(x.dtype.name, bits=True)

    @staticmethod
    def key(x):
        return x.shape, x.strides, x.dtype, x.flags.writeable

    @staticmethod
    def address(x):
        return x.__array_interface__["data"][0]

    @staticmethod
    def view(x):
        size = x.dtype.itemsize
        if any(s % size for s in x.strides):
            raise errors.StrideError("strides are no multiples of the "
                                     f"{size}-byte elements")
        if not x.dtype.isnative:
            raise errors.DtypeError("the bytes are swapped")
        return View(x.__array_interface__["data"][0], x.shape,
                    tuple(s // size for s in x.strides),
                    dtypes_of(x.dtype.name, bits=True), (_abi.CPU, 0),
                    x.flags.writeable)

    @staticmethod
    def empty(shape, dtype, like):
        import numpy
        name = {"bf16": "uint16", "f8e4m3": "uint8", "f8e5m2": "uint8"}.get(
            _abi.DTYPES[dtype])
        # ml_dtypes' own types go out as they came in.
        same = like is not None and _CODE.get(
            _OTHER_NAMES.get(like.dtype.name)) == dtype
        kind = like.dtype if same else name or _NAME_OF[_abi.DTYPES[dtype]]
        return numpy.empty(shape, kind)

    @staticmethod
    def copy(x):
        return x.copy()

    @staticmethod
    def stream(device):
        return None


_TRACED = ("FakeTensor", "FunctionalTensor", "GradTrackingTensor",
           "BatchedTensor")


class TorchKind:
    name = "PyTorch"

    def __init__(self):
        import torch
        self.torch = torch
        self.recording = torch.is_grad_enabled
        self.types = {getattr(torch, n): dtypes_of(n, bits=n != "int16")
                      for n in _OTHER_NAMES if hasattr(torch, n)}
        self.own = {}
        for t, codes in self.types.items():
            self.own[codes[0]] = t
        self.own[_abi.TF32] = torch.float32
        hip = getattr(torch.version, "hip", None)
        self.gpu = _abi.HIP if hip else _abi.CUDA
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.stream = raw or (
            lambda i: torch.cuda.current_stream(i).cuda_stream)

    def dtypes(self, x):
        if x.dtype not in self.types:
            raise errors.DtypeError(f"element type {x.dtype} is not supported")
        return self.types[x.dtype]

    def key(self, x):
        return (x.shape, x.stride(), x.dtype, x.device,
                x.requires_grad and self.recording())

    @staticmethod
    def address(x):
        return x.data_ptr()

    def view(self, x):
        # Nothing would tell autograd of the call.
        if x.requires_grad and self.recording():
            raise errors.UnsupportedError(
                "it requires a gradient, and programs have none: call under "
                "torch.no_grad(), or detach it")
        self.dtypes(x)
        if x.layout != self.torch.strided:
            raise errors.StrideError(f"layout {x.layout} is not supported")
        kind = x.device.type
        if kind == "meta" or type(x).__name__ in _TRACED:
            raise errors.UnsupportedError(
                "it has no data, as under torch.compile: a program can be "
                "traced once it is an operator, attn.torch.register(program)")
        if kind not in ("cpu", "cuda"):
            raise errors.UnsupportedError(f"device {x.device}")
        if x.is_conj() or getattr(x, "is_neg", lambda: False)():
            raise errors.StrideError("a lazily negated tensor: resolve it "
                                     "first")
        device = (_abi.CPU, 0) if kind == "cpu" else (self.gpu, x.device.index)
        return View(x.data_ptr(), tuple(x.shape), x.stride(),
                    self.types[x.dtype], device)

    def empty(self, shape, dtype, like):
        return like.new_empty(shape, dtype=self.own[dtype])

    def copy(self, x):
        return x.detach().clone()


# ---- DLPack

class _DLTensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("device_type", C.c_int32),
                ("device_id", C.c_int32), ("ndim", C.c_int32),
                ("code", C.c_uint8), ("bits", C.c_uint8),
                ("lanes", C.c_uint16), ("shape", C.POINTER(C.c_int64)),
                ("strides", C.POINTER(C.c_int64)),
                ("byte_offset", C.c_uint64)]


assert C.sizeof(_DLTensor) == 48
_capsule = C.pythonapi.PyCapsule_GetPointer
_capsule.restype, _capsule.argtypes = C.c_void_p, [C.py_object, C.c_char_p]
_DL_TYPES = {(0, 64): "i64", (0, 32): "i32", (0, 16): "i16", (0, 8): "i8",
             (1, 32): "u32", (1, 16): "u16", (1, 8): "u8", (2, 64): "f64",
             (2, 32): "f32", (2, 16): "f16", (4, 16): "bf16", (6, 8): "bool",
             (10, 8): "f8e4m3", (12, 8): "f8e5m2"}
_DL_DEVICES = {1: _abi.CPU, 2: _abi.CUDA, 3: _abi.CPU, 10: _abi.HIP,
               11: _abi.CPU, 13: _abi.CUDA}


class DlpackKind:
    name = "DLPack"

    @staticmethod
    def dtypes(x):
        return DlpackKind.view(x).dtypes

    @staticmethod
    def key(x):
        v = DlpackKind.view(x)
        return v.shape, v.strides, v.dtypes, v.device

    @staticmethod
    def address(x):
        return DlpackKind.view(x).address

    @staticmethod
    def view(x):
        # The capsule is not consumed: it gives the memory back at the end
        # of this function, while x keeps its own hold of it.
        capsule = x.__dlpack__()
        t = _DLTensor.from_address(_capsule(capsule, b"dltensor"))
        if t.lanes != 1 or (t.code, t.bits) not in _DL_TYPES:
            raise errors.DtypeError(f"DLPack type {t.code}, {t.bits} bits, "
                                    f"{t.lanes} lanes is not supported")
        if t.device_type not in _DL_DEVICES:
            raise errors.UnsupportedError(f"DLPack device {t.device_type}")
        shape = tuple(t.shape[:t.ndim])
        if t.strides:
            strides = tuple(t.strides[:t.ndim])
        else:
            strides, step = [], 1
            for n in reversed(shape):
                strides.insert(0, step)
                step *= n
        name = _DL_TYPES[t.code, t.bits]
        return View((t.data or 0) + t.byte_offset, shape, tuple(strides),
                    dtypes_of(_NAME_OF[name], bits=True),
                    (_DL_DEVICES[t.device_type], t.device_id))

    @staticmethod
    def empty(shape, dtype, like):
        if like is not None and DlpackKind.view(like).device[0] != _abi.CPU:
            raise errors.ArgumentError("outputs on a device of a library that "
                                       "is not known here: pass them")
        return NumpyKind.empty(shape, dtype, None)

    @staticmethod
    def copy(x):
        raise errors.ArgumentError(
            "the gradient reads what the program overwrites, and arrays of a "
            "library that is not known here are not copied: use NumPy or "
            "PyTorch")

    @staticmethod
    def stream(device):
        return None


KINDS = {}  # by type


def kind_of(x):
    """The kind of an array; raises ArgumentError for what is none."""
    t = type(x)
    found = KINDS.get(t)
    if found:
        return found
    torch = sys.modules.get("torch")
    numpy = sys.modules.get("numpy")
    if torch is not None and isinstance(x, torch.Tensor):
        same = [k for k in KINDS.values() if isinstance(k, TorchKind)]
        KINDS[t] = same[0] if same else TorchKind()
    elif numpy is not None and isinstance(x, numpy.ndarray):
        KINDS[t] = NumpyKind()
    elif hasattr(t, "__dlpack__"):
        KINDS[t] = DlpackKind()
    else:
        raise errors.ArgumentError(f"{t.__name__} is no array")
    return KINDS[t]
