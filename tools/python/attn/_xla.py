"""The call frame of XLA's foreign functions, for ctypes: what of its C API
(major version 0, xla/ffi/api/c_api.h) a call of a program needs."""
import ctypes as C

API_MAJOR = 0
EXTENSION_METADATA = 1
EXECUTE = 3
INVALID_ARGUMENT, INTERNAL = 3, 13
# attn_dtype names of XLA's element types.
TYPES = {1: "bool", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "u8", 7: "u16",
         8: "u32", 10: "f16", 11: "f32", 12: "f64", 16: "bf16", 19: "f8e5m2",
         20: "f8e4m3"}


class Extension(C.Structure):
    pass


Extension._fields_ = [("size", C.c_size_t), ("type", C.c_int),
                      ("next", C.POINTER(Extension))]
_HEAD = [("size", C.c_size_t), ("extension", C.POINTER(Extension))]


class Version(C.Structure):
    _fields_ = _HEAD + [("major", C.c_int), ("minor", C.c_int)]


class Metadata(C.Structure):
    _fields_ = [("size", C.c_size_t), ("version", Version),
                ("traits", C.c_uint32), ("state", C.c_int64)]


class MetadataExtension(C.Structure):
    _fields_ = [("base", Extension), ("metadata", C.POINTER(Metadata))]


_MESSAGE = C.CFUNCTYPE(C.c_void_p, C.c_void_p)
_NAMES = ("error_create", "error_message", "error_destroy", "handler_register",
          "stream_get", "type_register", "context_get", "state_set",
          "state_get", "memory_allocate", "memory_free", "pool_schedule",
          "pool_threads", "future_create", "future_available", "future_error",
          "run_id", "device_ordinal")


class Api(C.Structure):
    _fields_ = _HEAD + [("version", Version), ("internal", C.c_void_p)] + [
        (n, C.c_void_p) for n in _NAMES]


class Buffer(C.Structure):
    _fields_ = _HEAD + [("dtype", C.c_int), ("data", C.c_void_p),
                        ("rank", C.c_int64), ("dims", C.POINTER(C.c_int64))]


class Values(C.Structure):
    """Arguments and results."""
    _fields_ = _HEAD + [("n", C.c_int64), ("types", C.POINTER(C.c_int)),
                        ("at", C.POINTER(C.POINTER(Buffer)))]


class Bytes(C.Structure):
    _fields_ = [("at", C.c_void_p), ("n", C.c_size_t)]

    def text(self):
        return C.string_at(self.at, self.n).decode()


class Attributes(C.Structure):
    _fields_ = _HEAD + [("n", C.c_int64), ("types", C.POINTER(C.c_int)),
                        ("names", C.POINTER(C.POINTER(Bytes))),
                        ("at", C.POINTER(C.c_void_p))]

    def texts(self):
        """Those that are strings, by name."""
        return {self.names[i].contents.text():
                C.cast(self.at[i], C.POINTER(Bytes)).contents.text()
                for i in range(self.n) if self.types[i] == 4}


class Frame(C.Structure):
    _fields_ = _HEAD + [("api", C.POINTER(Api)), ("context", C.c_void_p),
                        ("stage", C.c_int), ("args", Values),
                        ("rets", Values), ("attrs", Attributes),
                        ("future", C.c_void_p)]


class _Error(C.Structure):
    _fields_ = _HEAD + [("message", C.c_char_p), ("code", C.c_int)]


class _Said(C.Structure):
    _fields_ = _HEAD + [("error", C.c_void_p), ("message", C.c_char_p)]


class _Gone(C.Structure):
    _fields_ = _HEAD + [("error", C.c_void_p)]


class _Answer(C.Structure):
    """Of a question about the context, whose answer is a pointer or number."""
    _fields_ = _HEAD + [("context", C.c_void_p), ("value", C.c_void_p)]


class _Memory(C.Structure):
    _fields_ = _HEAD + [("context", C.c_void_p), ("bytes", C.c_size_t),
                        ("alignment", C.c_size_t), ("data", C.c_void_p)]


class _Free(C.Structure):
    _fields_ = _HEAD + [("context", C.c_void_p), ("bytes", C.c_size_t),
                        ("data", C.c_void_p)]


HANDLER = C.CFUNCTYPE(C.c_void_p, C.POINTER(Frame))
assert C.sizeof(Frame) == 176 and C.sizeof(Buffer) == 48


def _ask(frame, name, made):
    """Calls a function of the API; errors of XLA are its own to report."""
    f = _MESSAGE(getattr(frame.api.contents, name))
    made.size = C.sizeof(made)
    failed = f(C.addressof(made))
    if failed:
        raise MemoryError(f"XLA refused {name}: {_said(frame, failed)}")
    return made


def _said(frame, failed):
    """What an error of XLA's says; it is destroyed."""
    api, e = frame.api.contents, _Said(error=failed)
    e.size = C.sizeof(e)
    _MESSAGE(api.error_message)(C.addressof(e))
    text = (e.message or b"").decode(errors="replace")
    gone = _Gone(error=failed)
    gone.size = C.sizeof(gone)
    _MESSAGE(api.error_destroy)(C.addressof(gone))
    return text


def error(frame, text, code):
    f = _MESSAGE(frame.api.contents.error_create)
    e = _Error(message=text.encode(), code=code)
    e.size = C.sizeof(e)
    return f(C.addressof(e))


def stream(frame):
    return _ask(frame, "stream_get", _Answer(context=frame.context)).value


def ordinal(frame):
    made = _Answer(context=frame.context)
    made.size = C.sizeof(made) - 4
    f = _MESSAGE(frame.api.contents.device_ordinal)
    if f(C.addressof(made)):
        raise MemoryError("XLA names no device")
    return (made.value or 0) & 0x7FFFFFFF


ALIGNMENT, XLA_ALIGNMENT = 256, 16  # XLA takes no larger one on GPUs


def allocate(frame, n):
    """n bytes: what `free` wants, and the address, a multiple of ALIGNMENT."""
    made = _ask(frame, "memory_allocate", _Memory(
        context=frame.context, bytes=n + ALIGNMENT, alignment=XLA_ALIGNMENT))
    return made.data, -(-made.data // ALIGNMENT) * ALIGNMENT


def free(frame, at, n):
    _ask(frame, "memory_free", _Free(context=frame.context,
                                     bytes=n + ALIGNMENT, data=at))


def describe(frame):
    """Answers XLA's question which version this is; False: it is a call."""
    at = frame.extension
    while at:
        if at.contents.type == EXTENSION_METADATA:
            m = C.cast(at, C.POINTER(MetadataExtension)).contents.metadata
            m.contents.version.major = API_MAJOR
            m.contents.version.minor = frame.api.contents.version.minor \
                if frame.api else 0
            m.contents.traits = 0
            return True
        at = at.contents.next
    return False
