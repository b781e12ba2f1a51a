"""libattn: found once, loaded so that compiled libraries see its functions."""
import ctypes as C
import functools
import os
import pathlib
import sys

from . import _abi, errors

HERE = pathlib.Path(__file__).resolve().parent


def _candidates():
    """ATTN_LIBRARY alone if set; else beside the package (a folder that was
    carried somewhere), a build tree, an installed tree, the loader's path."""
    named = os.environ.get("ATTN_LIBRARY")
    if named:
        return [named]
    top = HERE.parent.parent.parent
    found = [p for p in (HERE / "libattn.so.0", HERE.parent / "libattn.so",
                         top / "build/lib/libattn.so",
                         top / "libattn.so.0") if p.exists()]
    return [str(p) for p in found] + ["libattn.so.0"]


@functools.lru_cache(maxsize=None)
def runtime():
    """The loaded library, its functions declared."""
    # PyTorch's threads spin between its operators, one on each CPU: calls take
    # the same ones.
    if "torch" in sys.modules:
        os.environ.setdefault("ATTN_OPENMP", "1")
    problem = None
    for path in _candidates():
        try:
            lib = C.CDLL(path, mode=C.RTLD_GLOBAL)
            break
        except OSError as e:
            problem = e
    else:
        raise errors.FileError(f"libattn is not found ({problem}); "
                               "ATTN_LIBRARY may name it")
    lib.attn_args_workspace.restype = C.c_size_t
    lib.attn_args_workspace.argtypes = [C.c_void_p, C.c_void_p]
    lib.attn_args_init.restype = None
    lib.attn_args_init.argtypes = [C.c_void_p, C.c_void_p]
    lib.attn_signature.restype = C.c_size_t
    lib.attn_signature.argtypes = [C.c_void_p, C.c_char_p, C.c_size_t]
    lib.attn_module_open.restype = C.c_void_p
    lib.attn_module_open.argtypes = [C.c_void_p, C.c_char_p, C.c_void_p]
    lib.attn_module_load.restype = C.c_void_p
    lib.attn_module_load.argtypes = [C.c_void_p, C.c_char_p, C.c_size_t,
                                     C.c_void_p]
    lib.attn_module_close.argtypes = [C.c_void_p]
    lib.attn_module_close.restype = None
    lib.attn_module_programs.argtypes = [C.c_void_p]
    lib.attn_module_programs.restype = C.c_uint32
    lib.attn_module_program.argtypes = [C.c_void_p, C.c_uint32]
    lib.attn_module_program.restype = C.POINTER(_abi.Program)
    lib.attn_ctx_default.restype = C.c_void_p
    lib.attn_ctx_threads.argtypes = [C.c_void_p]
    lib.attn_ctx_set_threads.argtypes = [C.c_void_p, C.c_int]
    lib.attn_ctx_set_threads.restype = None
    lib.attn_ctx_units.argtypes = [C.c_void_p]
    lib.attn_ctx_set_units.argtypes = [C.c_void_p, C.c_int]
    lib.attn_ctx_set_units.restype = None
    return lib


def threads(n=None):
    """The number of CPU threads that calls use; sets it if n is given.
    Results never depend on it."""
    rt = runtime()
    if n is not None:
        rt.attn_ctx_set_threads(rt.attn_ctx_default(), n)
    return rt.attn_ctx_threads(rt.attn_ctx_default())


def units(n=None):
    """The multiprocessors of a GPU that a kernel takes at most, 0: all; sets it
    if n is given. Kernels beside it, as of communication, have the rest.
    Results never depend on it."""
    rt = runtime()
    if n is not None:
        rt.attn_ctx_set_units(rt.attn_ctx_default(), n)
    return rt.attn_ctx_units(rt.attn_ctx_default())
