"""Compiling from Python: runs attnc, keeps what it made.

The cache is a folder of KEY.json and HASH.so. The key is a hash of the text, the
options and the compiler; the .json lists the imported files and their hashes, and
the hash of the library, which is its name: a process that has loaded a library
does not get it again for a new one. Files are written aside and renamed, so any
number of processes may share the folder; what does not fit together is compiled
again."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sysconfig
import tempfile

from . import _library, _runtime, errors

_VERSION = "1"


def cache_dir():
    """$ATTN_CACHE, else attn below $XDG_CACHE_HOME or ~/.cache."""
    named = os.environ.get("ATTN_CACHE")
    if named:
        return pathlib.Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or \
        os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base, "attn")


def find_attnc():
    """$ATTNC, else a build tree's, else that beside this Python (a wheel's),
    else that of PATH."""
    named = os.environ.get("ATTNC")
    if named:
        return named
    built = _runtime.HERE.parent.parent.parent / "build/bin/attnc"
    script = pathlib.Path(sysconfig.get_path("scripts"), "attnc")
    here = [str(p) for p in (built, script) if p.exists()]
    found = here[0] if here else shutil.which("attnc")
    if not found:
        raise errors.FileError("attnc is not found; ATTNC may name it")
    return found


def _hash_file(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


_compilers = {}


def _compiler_id(path):
    s = os.stat(path)
    key = path, s.st_mtime_ns, s.st_size
    if key not in _compilers:
        _compilers[key] = _hash_file(path)
    return _compilers[key]


def _options(target, dims, fn, include, extra):
    opts = []
    if target:
        opts += ["--target", target if isinstance(target, str)
                 else ",".join(target)]
    for name, value in sorted((dims or {}).items()):
        opts += ["--dim", f"{name}={value}"]
    for name in [fn] if isinstance(fn, str) else fn or ():
        opts += ["--fn", name]
    for folder in include:
        opts += ["-I", os.fspath(folder)]
    return opts + list(extra)


def _imports(depfile):
    """The files of a Makefile rule, less its target and the source."""
    text = pathlib.Path(depfile).read_text().replace("\\\n", " ")
    names = text.split(":", 1)[1].replace("\\ ", "\0").split()
    return [n.replace("\0", " ").replace("$$", "$") for n in names]


def _cached(folder, key):
    """The library's path if everything still fits, else None."""
    try:
        info = json.loads((folder / (key + ".json")).read_text())
        lib = folder / (info["library"] + ".so")
        fits = info["library"] == _hash_file(lib) and \
            all(_hash_file(p) == h for p, h in info["imports"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return lib if fits else None


def _run(attnc, path, text, opts, work):
    lib = os.path.join(work, "out.so")
    cmd = [attnc, "-" if path is None else path, "--shared", "-o", lib,
           "-MD", "-MF", os.path.join(work, "out.d"), *opts]
    done = subprocess.run(cmd, input=text if path is None else None,
                          capture_output=True, text=True,
                          env={**os.environ, "ATTNC_CACHE": ""})
    if done.returncode == 1 or done.returncode == 2:
        raise errors.CompileError(done.stderr.strip())
    if done.returncode:
        raise errors.InternalError(f"{attnc} ended with code "
                                   f"{done.returncode}: {done.stderr.strip()}")
    return lib


def _store(folder, key, lib, imports):
    info = {"library": _hash_file(lib), "imports": imports}
    final = folder / (info["library"] + ".so")
    os.replace(lib, final)
    fd, tmp = tempfile.mkstemp(dir=folder)
    with os.fdopen(fd, "w") as f:
        json.dump(info, f)
    os.replace(tmp, folder / (key + ".json"))
    return final


def compile(path=None, *, source=None, target=None, dims=None, fn=None,
            include=(), options=(), attnc=None):
    """Compiles a .attn file, or `source`, to a Library; from the cache if
    nothing has changed.

    target   as attnc's --target: "cpu" (the default), "cpu,sm_90a", a list
    dims     what --dim fixes: {"T": "bf16", "D": 128}
    fn       the programs wanted, one name or several
    include  folders for imports
    options  further options of attnc
    """
    if (path is None) == (source is None):
        raise errors.ArgumentError("either a path or source=")
    attnc = attnc or find_attnc()
    try:
        text = source if path is None else \
            pathlib.Path(path).read_text(encoding="utf-8")
        compiler = _compiler_id(attnc)
    except OSError as e:
        raise errors.FileError(f"{e.filename}: {e.strerror}") from None
    opts = _options(target, dims, fn, include, options)
    place = "" if path is None else os.path.abspath(path)
    std = os.environ.get("ATTNC_STDLIB", "")
    ptxas = os.environ.get("ATTNC_PTXAS", "")
    key = hashlib.sha256(json.dumps(
        [_VERSION, compiler, place, text, opts, std, ptxas]).encode())
    key = key.hexdigest()[:40]
    folder = cache_dir()
    found = _cached(folder, key)
    if found:
        return _library.load(found)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        work = tempfile.mkdtemp(dir=folder)
    except OSError as e:
        raise errors.FileError(f"{folder}: {e.strerror}; ATTN_CACHE may name "
                               "another place") from None
    try:
        lib = _run(attnc, place or None, text, opts, work)
        files = _imports(os.path.join(work, "out.d"))
        imports = {os.path.abspath(n): _hash_file(n) for n in files
                   if n not in ("-", place) and os.path.exists(n)}
        return _library.load(_store(folder, key, lib, imports))
    finally:
        shutil.rmtree(work, ignore_errors=True)
