"""Compiled programs from Python, by ctypes: attn_call on tensors that have
data_ptr(), shape, stride() and dtype, such as PyTorch's, on a CUDA stream."""
import ctypes as C

MAX_RANK = 8
DTYPES = ["float64", "float32", "tf32", "bfloat16", "float16", "float8_e4m3fn",
          "float8_e5m2", "int64", "int32", "int16", "int8", "uint32", "uint16",
          "uint8", "bool"]


class Tensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("shape", C.c_int64 * MAX_RANK),
                ("stride", C.c_int64 * MAX_RANK), ("rank", C.c_int32),
                ("dtype", C.c_int32)]


class Error(C.Structure):
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
    _fields_ = [("f32", C.c_float), ("f64", C.c_double), ("i64", C.c_int64)]


class Param(C.Structure):
    _fields_ = [("name", C.c_char_p), ("kind", C.c_uint8),
                ("dtype", C.c_uint8), ("rank", C.c_uint8),
                ("flags", C.c_uint8), ("offset", C.c_uint32), ("dflt", Scalar),
                ("axis", C.c_uint32 * MAX_RANK)]


class ProgramDesc(C.Structure):
    _fields_ = [("abi", C.c_uint32), ("size", C.c_uint32),
                ("name", C.c_char_p), ("nparams", C.c_uint32),
                ("ndims", C.c_uint32), ("nchecks", C.c_uint32),
                ("nspecs", C.c_uint32), ("params", C.POINTER(Param)),
                ("dims", C.c_void_p), ("checks", C.c_void_p),
                ("specs", C.c_void_p), ("code", C.c_void_p),
                ("ncode", C.c_uint32), ("args_size", C.c_uint32),
                ("container", C.c_void_p)]


assert C.sizeof(ProgramDesc) == 88 and C.sizeof(Tensor) == 144
assert C.sizeof(Param) == 56 and C.sizeof(Error) == 288
SCALAR, CUDA = 3, 1


class AttnError(RuntimeError):
    pass


def runtime(path):
    """libattn, whose functions libraries made by attnc look for."""
    lib = C.CDLL(path, mode=C.RTLD_GLOBAL)
    lib.attn_args_workspace.restype = C.c_size_t
    return lib


def describe(x):
    t = Tensor(data=x.data_ptr(), rank=len(x.shape),
               dtype=DTYPES.index(str(x.dtype).split(".")[-1]))
    t.shape[:t.rank] = list(x.shape)
    t.stride[:t.rank] = list(x.stride())
    return t


class Program:
    """One program of a library: p(stream, Q=.., K=.., scale=..)."""

    def __init__(self, runtime, path, name):
        self.rt, self.lib = runtime, C.CDLL(path)
        self.desc = ProgramDesc.in_dll(self.lib, name + "_program")
        self.params = {self.desc.params[i].name.decode(): self.desc.params[i]
                       for i in range(self.desc.nparams)}

    def args(self, **values):
        """The filled argument struct; keeps nothing of the tensors."""
        buf = (C.c_char * self.desc.args_size)()
        self.rt.attn_args_init(C.byref(self.desc), buf)
        for name, v in values.items():
            p = self.params[name]
            if p.kind != SCALAR:
                x = describe(v)
            elif DTYPES[p.dtype].startswith("int"):
                x = C.c_int64(v)
            else:
                x = C.c_double(v) if p.dtype == 0 else C.c_float(v)
            C.memmove(C.addressof(buf) + p.offset, C.byref(x), C.sizeof(x))
        return buf

    def workspace(self, buf):
        return self.rt.attn_args_workspace(C.byref(self.desc), buf)

    def set_workspace(self, buf, address, size):
        a = Args.from_buffer(buf)
        a.workspace, a.workspace_bytes = address, size

    def call(self, buf, stream=None, device=0):
        """stream: a CUstream as a number; None: the CPU."""
        e = Error()
        s = None
        if stream is not None:
            s = C.byref(Stream(kind=CUDA, device=device, handle=stream))
        if self.rt.attn_call(C.byref(self.desc), buf, s, C.byref(e)):
            raise AttnError(e.text.decode())
