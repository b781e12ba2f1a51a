#!/usr/bin/env python3
"""Random programs on a GPU, against the f64 oracle.

    tools/bench/gpu/generated.py --prep DIR [--attnc PATH] [--target sm_90a]
                                 [--count 300] [--seed 1] [--steps 60] [--jobs N]
                                 [--here]
    python3 DIR/generated.py [--jobs N] [--filter TEXT]

--prep draws programs (test/fuzz/programs), of which `--steps` are recurrences,
compiles them, and writes code, inputs and references into DIR/programs.tar.xz:
what `attnc check --save` makes of a check block. With --here they stay files and
are run at once: for a machine that has attnc and the GPU. Tolerances follow from each
program's condition (attn-oracle). What the target refuses is counted and left out.
There, on the machine with the GPU, each program is a run of gpu-run, with two
launches that must be the same bits. Needs no PyTorch."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent.parent
# A rounding of a type, and what any program may be wrong by.
UNIT = {"f32": 2 ** -21, "bf16": 2 ** -9, "f16": 2 ** -12}
FLOOR = {"f32": 2e-5, "bf16": 1e-2, "f16": 2e-3}


# ---------------------------------------------------------------- preparing
def check_block(p, seed, tol):
    """The program's dims and inputs as a check block."""
    # Blocks of pages follow from the arrays.
    dims = ", ".join(f"{k} = {v}" for k, v in p.dims.items() if "_blocks" not in k)
    lines, names = [f"dims {dims};"], []
    for text in p.params:
        name = re.search(r"(\w+):", text)[1]
        gen = p.inputs.get(name, "normal(0,1)")
        gen = gen if "(" in gen else gen + "()"
        comma = "" if gen.endswith("()") else ", "
        if not gen.startswith("const"):
            gen = f"{gen[:-1]}{comma}seed = {seed})"
        lines.append(f"input {name} = {gen};")
        names.append(name)
    lines.append(f"expect p({', '.join(names)}) ~= reference tol {tol};")
    body = "\n  ".join(lines)
    return f'check "p" {{\n  {body}\n}}\n'


def tolerance(a, p, path):
    """By the program's condition, or None if it is bad."""
    got = subprocess.run(
        [a.attnc.parent / "attn-oracle", path, f"--tol={FLOOR[p.t]}",
         f"--condition={UNIT[p.t]}", f"--seed={p.spec.seed}", *p.options()],
        capture_output=True, text=True)
    allowed = re.findall(r"may differ by (\S+)", got.stdout)
    bad = got.returncode or not allowed
    return None if bad else 1.5 * max(map(float, allowed))


def prepare_one(a, seed, steps):
    sys.path.insert(0, str(TOP / "test/fuzz"))
    import programs
    p = programs.build(programs.draw(seed, steps=steps))
    path = a.prep / "programs" / f"{'r' if steps else 'p'}{seed}.attn"
    path.write_text(p.text())
    tol = tolerance(a, p, path)
    if tol is None:
        return path.stem, "not judged"
    path.write_text(p.text() + check_block(p, seed, f"{tol:.6f}"))
    done = subprocess.run([a.attnc, "check", path, "--save", path.parent,
                           "--target", a.target], capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode == 0:
        return path.stem, ""
    errors = sorted((x for x in said.split("\n") if "error[" in x or "FAIL" in x),
                    key=lambda x: "FAIL" in x)
    return path.stem, errors[0] if errors else f"ends with {done.returncode}"


def prepare(a):
    a.prep = pathlib.Path(a.prep).resolve()
    (a.prep / "programs").mkdir(parents=True, exist_ok=True)
    todo = [(a.seed + i, i < a.steps) for i in range(a.count)]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        made = list(pool.map(lambda x: prepare_one(a, *x), todo))
    left = [(n, why) for n, why in made if why]
    for name, why in left:
        print(f"{name}: {why}"[:160])
    shutil.copy(a.attnc.parent / "gpu-run", a.prep)
    if a.here:
        return run_all(a, a.prep / "programs", len(left))
    with tarfile.open(a.prep / "programs.tar.xz", "w:xz", preset=6) as tar:
        tar.add(a.prep / "programs", "programs")
    shutil.rmtree(a.prep / "programs")
    shutil.copy(__file__, a.prep)
    size = sum(f.stat().st_size for f in a.prep.iterdir()) / 2 ** 20
    print(f"{len(made) - len(left)} programs, {len(left)} left out, {size:.1f} MiB")


# ---------------------------------------------------------------- running
def run_one(args):
    folder, path, more = args
    cmd = [folder.parent / "gpu-run", *path.read_text().split(), "--repeat", "1",
           *more]
    try:
        done = subprocess.run(cmd, capture_output=True, text=True, cwd=folder,
                              timeout=60)
    except subprocess.TimeoutExpired:
        return path.stem, -1, "no end after 60 s"
    said = [x for x in (done.stdout + done.stderr).split("\n") if x]
    wrong = [x for x in said if not x.startswith("ok")]
    return path.stem, done.returncode, wrong[0] if wrong else ""


def run_all(a, folder, refused=0):
    """gpu-run on each program of a folder; 1 if one is wrong."""
    start, bad = time.time(), 0
    more = ["--cpu"] if a.cpu else []
    todo = [(folder, f, more) for f in sorted(folder.glob("*.args"))
            if a.filter in f.stem]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for n, (name, rc, text) in enumerate(pool.map(run_one, todo), 1):
            bad += rc != 0
            if rc:
                first = (folder / name.rsplit("-", 1)[0]).with_suffix(".attn")
                print(f"FAIL({rc}) {name}: {text[:200]}\n{first.read_text()}")
            if n % 50 == 0:
                print(f"{n} of {len(todo)}, {bad} failed, "
                      f"{time.time() - start:.0f} s", flush=True)
    print(f"{len(todo) - bad} passed, {bad} failed, {refused} left out, "
          f"{time.time() - start:.0f} s")
    return 1 if bad or not todo else 0


def measure(a):
    with tempfile.TemporaryDirectory() as tmp:
        with tarfile.open(HERE / "programs.tar.xz") as tar:
            tar.extractall(tmp)
        shutil.copy(HERE / "gpu-run", tmp)
        return run_all(a, pathlib.Path(tmp, "programs"))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--prep")
    ap.add_argument("--attnc", default=TOP / "build/bin/attnc", type=pathlib.Path)
    ap.add_argument("--target", default="sm_90a")
    ap.add_argument("--count", type=int, default=300)
    ap.add_argument("--steps", type=int, default=60, help="recurrences of them")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--filter", default="")
    ap.add_argument("--here", action="store_true",
                    help="with --prep: run them too, on this machine")
    ap.add_argument("--cpu", action="store_true", help="of code for a CPU")
    ap.add_argument("--jobs", type=int, default=2)
    a = ap.parse_args()
    return prepare(a) if a.prep else measure(a)


if __name__ == "__main__":
    sys.exit(main())
