"""What a call can fail with. Every exception is an attn.Error; most are also
the built-in exception that Python programs expect."""


class Error(RuntimeError):
    """A failed call: code, and which argument and axis, where one is to blame.

    code      the name of the runtime's code: "SHAPE", "DTYPE", ..
    arg       the parameter's name, or None
    axis      its axis, or None
    expected, got   numbers, 0 where they say nothing
    """

    code = "INTERNAL"

    def __init__(self, text, arg=None, axis=None, expected=0, got=0):
        super().__init__(text)
        self.arg, self.axis = arg, axis
        self.expected, self.got = expected, got


def _kind(name, code, doc, *bases):
    return type(name, (Error, *bases), {"__doc__": doc, "code": code,
                                        "__module__": "attn"})


ArgumentError = _kind("ArgumentError", "ARGUMENT", "A wrong call.", TypeError)
AbiError = _kind("AbiError", "ABI", "Code and runtime do not fit together.")
NullError = _kind("NullError", "NULL", "An array is missing.", ValueError)
DtypeError = _kind("DtypeError", "DTYPE", "A wrong element type.", TypeError)
RankError = _kind("RankError", "RANK", "A wrong number of axes.", ValueError)
ShapeError = _kind("ShapeError", "SHAPE", "A wrong extent.", ValueError)
StrideError = _kind("StrideError", "STRIDE", "Strides that no code takes.",
                    ValueError)
AlignError = _kind("AlignError", "ALIGN", "Misaligned memory.", ValueError)
DimError = _kind("DimError", "DIM", "A dim out of its range.", ValueError)
ConstraintError = _kind("ConstraintError", "CONSTRAINT",
                        "A `where` of the program is false.", ValueError)
UnsupportedError = _kind("UnsupportedError", "UNSUPPORTED",
                         "No code for these dims, strides or this device.",
                         NotImplementedError)
OutOfMemoryError = _kind("OutOfMemoryError", "MEMORY", "No memory.",
                         MemoryError)
DeviceError = _kind("DeviceError", "DEVICE",
                    "A device or its driver failed or is missing.")
FileError = _kind("FileError", "IO", "A file cannot be read.", OSError)
FormatError = _kind("FormatError", "FORMAT", "A damaged file.", ValueError)
InternalError = _kind("InternalError", "INTERNAL",
                      "The compiled program contradicts itself.")
CompileError = _kind("CompileError", "COMPILE", "attnc's diagnostics.",
                     ValueError)

# By attn_code, from 1.
BY_CODE = (ArgumentError, AbiError, NullError, DtypeError, RankError,
           ShapeError, StrideError, AlignError, DimError, ConstraintError,
           UnsupportedError, OutOfMemoryError, DeviceError, FileError,
           FormatError, InternalError)


def from_info(info, names=()):
    """The exception for an attn_error; names: of the parameters."""
    known = 0 < info.code <= len(BY_CODE)
    kind = BY_CODE[info.code - 1] if known else Error
    arg = names[info.arg] if 0 <= info.arg < len(names) else None
    return kind(info.text.decode(errors="replace"), arg,
                info.dim if info.dim >= 0 else None, info.expected, info.got)
