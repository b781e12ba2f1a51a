"""The C ABI of runtime/attn.h and attn_abi.h, for ctypes."""
import ctypes as C

MAX_RANK = 8
NONE = 0xFFFFFFFF
ABI_MAJOR = 1
# In the order of attn_dtype.
DTYPES = ("f64", "f32", "tf32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64",
          "i32", "i16", "i8", "u32", "u16", "u8", "bool")
SIZES = (8, 4, 4, 2, 2, 1, 1, 8, 4, 2, 1, 4, 2, 1, 1)
TF32, F32 = 2, 1
IN, OUT, INOUT, SCALAR = range(4)
COMPUTED, OPTIONAL = 2, 4
CPU, CUDA, HIP, AUTO = 0, 1, 2, 15


class Tensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("shape", C.c_int64 * MAX_RANK),
                ("stride", C.c_int64 * MAX_RANK), ("rank", C.c_int32),
                ("dtype", C.c_int32)]


class ErrorInfo(C.Structure):
    _fields_ = [("code", C.c_int), ("arg", C.c_int), ("dim", C.c_int),
                ("expected", C.c_int64), ("got", C.c_int64),
                ("text", C.c_char * 256)]


class Stream(C.Structure):
    _fields_ = [("ctx", C.c_void_p), ("kind", C.c_int), ("device", C.c_int),
                ("handle", C.c_void_p)]


class Args(C.Structure):
    _fields_ = [("size", C.c_uint32), ("abi", C.c_uint32),
                ("workspace", C.c_void_p), ("workspace_bytes", C.c_uint64)]


class Scalar(C.Union):
    _fields_ = [("f32", C.c_float), ("f64", C.c_double), ("i64", C.c_int64),
                ("bits", C.c_uint64)]


class Param(C.Structure):
    _fields_ = [("name", C.c_char_p), ("kind", C.c_uint8),
                ("dtype", C.c_uint8), ("rank", C.c_uint8),
                ("flags", C.c_uint8), ("offset", C.c_uint32),
                ("default", Scalar), ("axis", C.c_uint32 * MAX_RANK)]


class Dim(C.Structure):
    _fields_ = [("name", C.c_char_p), ("lo", C.c_int64), ("hi", C.c_int64),
                ("divisor", C.c_int64), ("kind", C.c_uint32),
                ("values", C.c_uint32), ("by", C.c_uint32),
                ("by_offsets", C.c_uint32)]


class Program(C.Structure):
    _fields_ = [("abi", C.c_uint32), ("size", C.c_uint32),
                ("name", C.c_char_p), ("nparams", C.c_uint32),
                ("ndims", C.c_uint32), ("nchecks", C.c_uint32),
                ("nspecs", C.c_uint32), ("params", C.POINTER(Param)),
                ("dims", C.POINTER(Dim)), ("checks", C.POINTER(C.c_uint32)),
                ("specs", C.c_void_p), ("code", C.POINTER(C.c_int64)),
                ("ncode", C.c_uint32), ("args_size", C.c_uint32),
                ("container", C.c_void_p)]


assert C.sizeof(Program) == 88 and C.sizeof(Tensor) == 144
assert C.sizeof(Param) == 56 and C.sizeof(Dim) == 48
assert C.sizeof(ErrorInfo) == 288 and C.sizeof(Stream) == 24


def scalar_type(dtype):
    """How a scalar of this type lies in the argument struct."""
    if DTYPES[dtype] == "f64":
        return C.c_double
    return C.c_float if dtype < DTYPES.index("i64") else C.c_int64
