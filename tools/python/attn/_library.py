"""Compiled files: shared libraries of `attnc --shared`, containers."""
import ctypes as C
import os
import struct

from . import _abi, _choice, _program, _runtime, errors

_SUFFIX = "_program"


def _exported(path):
    """Names in the dynamic symbol table of an ELF64 file."""
    with open(path, "rb") as f:
        data = f.read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise errors.FormatError(f"{path}: no shared library")
    at, = struct.unpack_from("<Q", data, 40)
    size, n = struct.unpack_from("<HH", data, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size)
             for i in range(n)]
    names = []
    for h in heads:
        if h[1] != 11:  # SHT_DYNSYM
            continue
        strings = heads[h[6]]
        for k in range(h[4] + 24, h[4] + h[5], 24):
            name, _, _, section = struct.unpack_from("<IBBH", data, k)
            start = strings[4] + name
            if section:
                names.append(data[start:data.index(b"\0", start)].decode())
    return names


class Library:
    """The programs of one file: lib["gqa"], lib.gqa, or all in lib.programs.

    A program with dtype generics is one program for each choice, `gqa_bf16`;
    its own name is the one there is, or a Choice that goes by the arrays'
    types. Libraries and programs can be pickled: they are loaded again, from
    the same file."""

    def __init__(self, path, programs, data=None):
        self.path, self.programs, self._data = path, programs, data
        self._by_name = {}
        for p in programs:
            self._by_name.setdefault(p.name, p)
            self._by_name.setdefault(p.symbol, p)
        for p in programs:
            backward = self._by_name.get(p.name + "_grad")
            if backward:
                p._link(backward)
        self._choices()

    def _choices(self):
        families = {}
        for p in self.programs:
            p._library = self
            base = _choice.base_of(p.name)
            if base and base not in self._by_name:
                families.setdefault(base, []).append(p)
        for base, programs in families.items():
            self._by_name[base] = programs[0] if len(programs) == 1 \
                else _choice.Choice(base, programs)

    def __reduce__(self):
        return (loads, (self._data,)) if self._data is not None \
            else (load, (os.path.abspath(self.path),))

    def __getitem__(self, name):
        try:
            return self._by_name[name]
        except KeyError:
            have = ", ".join(p.name for p in self.programs)
            raise errors.ArgumentError(f"{self.path} has no program '{name}', "
                                       f"but {have}") from None

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except errors.ArgumentError as e:
            raise AttributeError(str(e)) from None

    def __iter__(self):
        return iter(self.programs)

    def __len__(self):
        return len(self.programs)

    def __repr__(self):
        return f"<attn library {self.path}: " + \
            ", ".join(p.name for p in self.programs) + ">"


def _from_shared(path):
    try:
        symbols = [n for n in _exported(path) if n.endswith(_SUFFIX)]
        _runtime.runtime()
        lib = C.CDLL(os.path.abspath(path))
    except (OSError, struct.error, IndexError, ValueError) as e:
        if isinstance(e, errors.Error):
            raise
        kind = errors.FileError if isinstance(e, OSError) \
            else errors.FormatError
        raise kind(f"{path}: {e}") from None
    return [_program.Program(_abi.Program.in_dll(lib, s), lib,
                             s[:-len(_SUFFIX)]) for s in sorted(symbols)]


class _Module:
    def __init__(self, rt, handle, data=None):
        self.rt, self.handle, self.data = rt, handle, data

    def __del__(self):
        self.rt.attn_module_close(self.handle)


def _programs_of(rt, handle, error, data=None):
    if not handle:
        raise errors.from_info(error)
    m = _Module(rt, handle, data)
    return [_program.Program(rt.attn_module_program(handle, i).contents, m)
            for i in range(rt.attn_module_programs(handle))]


def load(path):
    """Programs of a shared library (`attnc --shared`), or of a container
    (`attnc --emit=container`; for GPUs only)."""
    path = os.fspath(path)
    try:
        with open(path, "rb") as f:
            magic = f.read(4)
    except OSError as e:
        raise errors.FileError(f"{path}: {e.strerror}") from None
    if magic != b"\x7fATN":
        return Library(path, _from_shared(path))
    rt, error = _runtime.runtime(), _abi.ErrorInfo()
    m = rt.attn_module_open(None, os.fsencode(path), C.byref(error))
    return Library(path, _programs_of(rt, m, error))


def loads(data):
    """Programs of a container's bytes."""
    rt, error = _runtime.runtime(), _abi.ErrorInfo()
    keep = bytes(data)
    m = rt.attn_module_load(None, keep, len(keep), C.byref(error))
    return Library("<bytes>", _programs_of(rt, m, error, keep), keep)
