#!/usr/bin/env python3
"""Coverage of the suite: lines and branches by folder.

    tools/coverage.py [--dir build-cov] [--filter REGEX] [--seconds N]
    tools/coverage.py --report [--missing FOLDER]

Builds with clang's counters below --dir, runs the tests, and prints what they
reached; --report prints it again, --missing with the functions of a folder that
nothing called and the longest pieces of others that nothing came to. Asserts
count as no branches: the side that fails is a bug.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["frontend", "ir", "passes", "runtime", "codegen", "tools/plan",
           "tools/driver", "tools/attnc", "tools/attn-ls"]
TESTS = (r"^attnc :: (parse|check|diag|fmt|ir|passes|lower|levels|lsp|runtime|"
         r"driver|codegen|stdlib|numeric|wave)/")
PIECE = 8  # lines that are worth a look


def build(path, jobs):
    subprocess.run(
        ["cmake", "-S", ROOT, "-B", path, "-G", "Ninja", "-DATTNC_WERROR=OFF",
         "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_COMPILER=clang-22",
         "-DCMAKE_C_FLAGS=-O1 -w -fprofile-instr-generate -fcoverage-mapping"],
        check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", path, f"-j{jobs}"], check=True,
                   stdout=subprocess.DEVNULL)


def run(path, args):
    profiles = path / "profiles"
    profiles.mkdir(exist_ok=True)
    for old in profiles.iterdir():
        old.unlink()
    env = os.environ | {"LLVM_PROFILE_FILE": f"{profiles}/%m.profraw"}
    limit = [f"--max-time={args.seconds}"] if args.seconds else []
    subprocess.run(["lit-22", f"-j{args.jobs}", "-s", f"--filter={args.filter}",
                    *limit, path / "test"], env=env)


def export(path):
    """Files and functions of all programs, as llvm-cov has them."""
    merged = path / "merged.profdata"
    raw = sorted((path / "profiles").glob("*.profraw"))
    subprocess.run(["llvm-profdata-22", "merge", "-sparse", *raw, "-o", merged],
                   check=True)
    programs = [p for folder in ("bin", "lib", "test/unit")
                for p in sorted((path / folder).iterdir())
                if p.is_file() and os.access(p, os.X_OK)]
    objects = [x for p in programs[1:] for x in ("-object", p)]
    out = subprocess.run(
        ["llvm-cov-22", "export", "-instr-profile", merged, programs[0], *objects],
        check=True, capture_output=True)
    return json.loads(out.stdout)["data"][0]


def lines_of(segments):
    """{line: times}, the most of a line, from where counts change."""
    out, count, since = {}, None, 0
    for line, _, times, has, *_ in segments:
        if count is not None:
            for k in range(since, line + 1):
                out[k] = max(out.get(k, 0), count)
        count, since = (times if has else None), line
    return out


def branches_of(file, text):
    """(taken, sides) of branches, but for those of asserts. A macro's are one,
    wherever it stands."""
    sides = {}
    for b in file["branches"]:
        if not re.search(r"\bassert\(", text[b[0] - 1]):
            t, f = sides.get(tuple(b[:4]), (False, False))
            sides[tuple(b[:4])] = t or b[4] > 0, f or b[5] > 0
    return sum(t + f for t, f in sides.values()), 2 * len(sides)


def report(data):
    sums = {f: [0, 0, 0, 0] for f in FOLDERS}
    for file in data["files"]:
        name = os.path.relpath(file["filename"], ROOT)
        folder = next((f for f in FOLDERS if name.startswith(f + "/")), None)
        if not folder:
            continue
        text = (ROOT / name).read_text().split("\n")
        lines, (taken, sides) = file["summary"]["lines"], branches_of(file, text)
        for k, n in enumerate((lines["covered"], lines["count"], taken, sides)):
            sums[folder][k] += n
    print("| folder | lines | reached | sides of branches | taken |")
    print("|---|---|---|---|---|")
    for folder, (a, b, c, d) in sums.items():
        print(f"| {folder} | {b} | {100 * a / max(b, 1):.1f} % | {d} | "
              f"{100 * c / max(d, 1):.1f} % |")


def missing(data, folder):
    called = {}
    for f in data["functions"]:
        name = os.path.relpath(f["filenames"][0], ROOT)
        if name.startswith(folder + "/") and f["regions"]:
            first, last = f["regions"][0][0], f["regions"][0][2]
            key = name, first, last, f["name"].split(":")[-1]
            called[key] = called.get(key, 0) + f["count"]
    never = sorted((k for k in called if not called[k]),
                   key=lambda k: k[1] - k[2])
    for name, first, last, function in never:
        print(f"{last - first + 1:4} {name}:{first} {function}: not called")
    covered = {(k[0], n) for k in never for n in range(k[1], k[2] + 1)}
    pieces = []
    for file in data["files"]:
        name = os.path.relpath(file["filename"], ROOT)
        if not name.startswith(folder + "/"):
            continue
        begin, last = None, -9
        for n, times in sorted(lines_of(file["segments"]).items()):
            if times or (name, n) in covered:
                begin = None
                continue
            begin = n if begin is None or n != last + 1 else begin
            last = n
            if begin == n:
                pieces.append([0, name, begin])
            pieces[-1][0] = n - begin + 1
    for size, name, line in sorted(pieces, reverse=True):
        if size >= PIECE:
            print(f"{size:4} {name}:{line}")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--dir", type=pathlib.Path, default=ROOT / "build-cov")
    p.add_argument("--filter", default=TESTS)
    p.add_argument("--seconds", type=int, help="of tests, at most")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--report", action="store_true")
    p.add_argument("--missing", metavar="FOLDER")
    args = p.parse_args()
    path = args.dir.resolve()
    if not (args.report or args.missing):
        build(path, args.jobs)
        run(path, args)
    data = export(path)
    report(data)
    if args.missing:
        missing(data, args.missing)


if __name__ == "__main__":
    sys.exit(main())
