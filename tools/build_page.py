#!/usr/bin/env python3
"""Builds the page that runs the compiler's front half in a browser: an editor
with diagnostics, the canonical text, what the passes derived and the picture of
the masks. Static files, no server code.

    tools/build_page.py [-o build/page] [--build build] [-O 1]

Needs clang-22 with lld, Debian's wasi-libc and libclang-rt-22-dev-wasm32, and a
build tree (for what flex, bison and CMake made)."""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
PAGE = TOP / "tools/page"
CLANG = "clang-22"
FLAGS = ["--target=wasm32-wasi", "--sysroot=/usr", "-std=gnu11", "-w",
         "-D_GNU_SOURCE", "-mllvm", "-wasm-enable-sjlj",
         "-mllvm", "-wasm-use-legacy-eh=true", "-ffp-contract=off",
         "-isystem", str(PAGE / "wasi"), "-isystem", "/usr/include/wasm32-wasi"]
# Folders of which all is taken that the page calls, and single files.
FOLDERS = ("frontend", "passes", "ir", "tools/plan")
RUN = ("call", "cost", "dims", "fill", "forms", "gen", "maps", "npy", "picture",
       "probe", "ragged", "rng", "solve")
FILES = ("tools/page/page.c", "tools/page/wasi/none.c",
         "tools/page/wasi/setjmp.c",
         *(f"tools/driver/run/{name}.c" for name in RUN))
# Of those, what needs files, threads or machine code.
WITHOUT = ("ir/core/outfile.c", "ir/core/watch.c")
STATIC = ("index.html", "page.js", "page.css")


def sources(build):
    found = [f for d in FOLDERS for f in sorted((TOP / d).rglob("*.c"))]
    found += sorted((build / "frontend").glob("*.c"))
    found += [TOP / f for f in FILES]
    return [f for f in found if str(f.relative_to(TOP)) not in WITHOUT]


def compile_one(args):
    source, objects, build, level = args
    name = str(source.relative_to(TOP)).replace("/", "_")
    out = objects / (name + ".o")
    done = subprocess.run(
        [CLANG, *FLAGS, f"-O{level}", f"-I{TOP}", f"-I{build}",
         f"-I{build / 'frontend'}", "-c", str(source), "-o", str(out)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{source}:\n{done.stderr}")
    return out


def link(objects, out):
    """A reactor: functions to call, and memory of up to 1 GiB."""
    done = subprocess.run(
        [CLANG, "--target=wasm32-wasi", "--sysroot=/usr", "-Wno-deprecated",
         "-mexec-model=reactor",
         "-Wl,--gc-sections", "-Wl,--strip-debug", "-Wl,-z,stack-size=8388608",
         "-Wl,--max-memory=1073741824", *map(str, objects), "-o", str(out)],
        capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("-o", "--out", type=pathlib.Path, default=TOP / "build/page")
    ap.add_argument("--build", type=pathlib.Path, default=TOP / "build")
    ap.add_argument("-O", dest="level", default="1", help="as the compiler's")
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    a = ap.parse_args()
    if not shutil.which(CLANG):
        sys.exit(f"{CLANG} is not there")
    objects = a.out.resolve() / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    todo = [(s, objects, a.build.resolve(), a.level)
            for s in sources(a.build.resolve())]
    try:
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            made = list(pool.map(compile_one, todo))
        link(made, a.out / "attnc.wasm")
    except RuntimeError as e:
        sys.exit(str(e))
    shutil.rmtree(objects)
    for name in STATIC:
        shutil.copy(PAGE / name, a.out)
    size = (a.out / "attnc.wasm").stat().st_size
    print(f"{a.out}: attnc.wasm of {size / 2 ** 20:.1f} MiB, {', '.join(STATIC)}")


if __name__ == "__main__":
    main()
