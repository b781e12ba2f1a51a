"""Compiles the header of each program of the library as C11 and C++17 with gcc
and clang, all in one translation unit, twice included."""
import pathlib
import subprocess
import sys

attnc, std, out, runtime = sys.argv[1:]
names = []
for path in sorted(pathlib.Path(std).glob("*/*.attn")):
    header = pathlib.Path(out, path.stem + ".h")
    done = subprocess.run([attnc, "--emit=header", path, "--target",
                           "cpu:x86-64-v3", "-o", header],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names.append(header.name)
text = "".join(f'#include "{n}"\n' for n in names * 2)
for language, compilers in (("c11", ["gcc", "clang-22"]),
                            ("c++17", ["g++", "clang++-22"])):
    source = pathlib.Path(out, "all.c" if language == "c11" else "all.cc")
    source.write_text(text)
    for cc in compilers:
        subprocess.run([cc, f"-std={language}", "-Wall", "-Wextra", "-Werror",
                        "-pedantic", "-fsyntax-only", f"-I{runtime}", source],
                       check=True)
assert len(names) > 15, names
