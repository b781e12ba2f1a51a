#!/usr/bin/env python3
"""Builds a wheel: the package attn with libattn, and attnc and attn-ls as its
scripts, LLVM linked in. It runs on any Linux whose C library is as new as this
one's.

    tools/build_wheel.py [-o FOLDER] [--build FOLDER]

Without --build, a build tree of its own is made with ATTNC_STATIC_LLVM, in
build-wheel. This file is also the build backend of pyproject.toml (PEP 517), so
that `pip wheel .` does the same."""
import argparse
import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile

TOP = pathlib.Path(__file__).resolve().parent.parent
TARGETS = ("attnc", "attn-ls", "attn_shared")
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same input gives the same bytes


def version():
    return re.search(r"^project\(attnc VERSION ([\d.]+)",
                     (TOP / "CMakeLists.txt").read_text(), re.M)[1]


def build_tree():
    folder = TOP / "build-wheel"
    subprocess.run(["cmake", "-S", TOP, "-B", folder, "-G", "Ninja",
                    "-DCMAKE_BUILD_TYPE=Release", "-DATTNC_STATIC_LLVM=ON",
                    "-DATTNC_WERROR=OFF"], check=True)
    subprocess.run(["ninja", "-C", folder, *TARGETS], check=True)
    return folder


def stripped(path, work):
    out = pathlib.Path(work, path.name)
    shutil.copy(path, out)
    subprocess.run(["strip", out], check=True)
    return out.read_bytes()


def platform_tag(files):
    """manylinux by the newest symbol of the C library that the files use."""
    newest = (2, 17)
    for data in files:
        for m in re.finditer(rb"\0GLIBC_(\d+)\.(\d+)", data):
            newest = max(newest, (int(m[1]), int(m[2])))
    return f"manylinux_{newest[0]}_{newest[1]}_{platform.machine()}"


def metadata(name):
    return f"""Metadata-Version: 2.1
Name: attn
Version: {name}
Summary: Compiled attention programs, with their compiler
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Provides-Extra: torch
Requires-Dist: torch; extra == "torch"
Description-Content-Type: text/markdown

""" + (TOP / "README.md").read_text()


def contents(tree, work):
    """(path in the wheel, bytes, mode) of all but the list of them."""
    name = version()
    package = TOP / "tools/python/attn"
    files = [(f"attn/{p.name}", p.read_bytes(), 0o644)
             for p in sorted(package.iterdir()) if p.is_file()]
    runtime = stripped((tree / "lib/libattn.so.0").resolve(), work)
    files.append(("attn/libattn.so.0", runtime, 0o755))
    programs = [runtime]
    for tool in ("attnc", "attn-ls"):
        data = stripped(tree / "bin" / tool, work)
        programs.append(data)
        files.append((f"attn-{name}.data/scripts/{tool}", data, 0o755))
    tag = "py3-none-" + platform_tag(programs)
    info = f"attn-{name}.dist-info/"
    wheel = ("Wheel-Version: 1.0\nGenerator: tools/build_wheel.py\n"
             f"Root-Is-Purelib: false\nTag: {tag}\n")
    files += [(info + "METADATA", metadata(name).encode(), 0o644),
              (info + "WHEEL", wheel.encode(), 0o644),
              (info + "LICENSE", (TOP / "LICENSE").read_bytes(), 0o644)]
    return files, info, tag


def pack(tree, folder):
    with tempfile.TemporaryDirectory() as work:
        files, info, tag = contents(pathlib.Path(tree), work)
    record = ""
    for path, data, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        record += f"{path},sha256={digest.decode().rstrip('=')},{len(data)}\n"
    record += info + "RECORD,,\n"
    files.append((info + "RECORD", record.encode(), 0o644))
    out = pathlib.Path(folder, f"attn-{version()}-{tag}.whl")
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for path, data, mode in files:
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data)
    return out


# ---- PEP 517
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return pack(build_tree(), wheel_directory).name


def build_sdist(sdist_directory, config_settings=None):
    name = f"attn-{version()}"
    out = pathlib.Path(sdist_directory, name + ".tar.gz")
    subprocess.run(["git", "-C", TOP, "archive", f"--prefix={name}/", "-o",
                    os.path.abspath(out), "HEAD"], check=True)
    return out.name


def main():
    args = argparse.ArgumentParser(description="builds a wheel")
    args.add_argument("-o", default="dist", help="the folder (dist)")
    args.add_argument("--build", help="take the files of this build tree")
    a = args.parse_args()
    print(pack(a.build or build_tree(), a.o))


if __name__ == "__main__":
    main()
