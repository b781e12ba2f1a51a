#!/usr/bin/env python3
"""What the CPU takes and a GPU refuses: programs and their gradients, by cause.

    tools/bench/refused.py [PATH ..] [--attnc PATH] [--targets T,..] [--seeds LO..HI]
                           [--dtype T] [--stage mach] [--limit S] [--memory MIB]
                           [-jN] [--dir DIR] [--no-grad] [--no-programs]

Sources are the .attn files of PATH (the library, the tests and the tools), the
```attn blocks of Markdown there (docs), and what test/fuzz/programs draws of
--seeds: three kinds, attention, recurrences and walks, one after the other. Of
each program the first head dim is taken, and --dtype (bf16) where the type is
open. A program that the CPU's passes take, without and with --grad, goes
through those of each target to --stage (mach: all passes, no code generation;
obj: a target's code), and what is refused, invalid, slow or a crash is listed
by its message, with the programs. Exit code 1 if there is any."""
import argparse
import collections
import concurrent.futures
import pathlib
import re
import resource
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "test/fuzz"))
import programs  # noqa: E402

PROGRAM = re.compile(r"^(?:attention|recurrent)\s+(\w+)\s*(?:<(.*?)>\s*)?\(", re.M | re.S)
CHOICE = re.compile(r"(\w+)\s*:\s*(const|dtype)\b\s*(?:\{([^}]*)\})?")
# Folders whose files are meant to be refused, or are no programs.
APART = ("test/diag", "test/parse", "test/fmt", "test/editors")
KINDS = [("", {}), ("s", {"steps": True}), ("w", {})]


class Case:
    """A program of a file, and the dims that choose one of its variants."""

    def __init__(self, path, name, dims, label):
        self.path, self.name, self.dims, self.label = path, name, dims, label


def chosen(generics, dtype):
    dims = []
    for name, kind, values in CHOICE.findall(generics or ""):
        values = [v.strip() for v in (values or "64").split(",")]
        pick = dtype if kind == "dtype" and dtype in values else values[0]
        dims.append(f"{name}={pick}")
    return dims


def of_text(path, label, text, dtype):
    plain = re.sub(r"#.*", "", text)
    return [Case(path, m[1], chosen(m[2], dtype), f"{label}:{m[1]}")
            for m in PROGRAM.finditer(plain)]


def of_paths(paths, work, dtype):
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for f in files:
            label = str(f.relative_to(TOP)) if f.is_relative_to(TOP) else str(f)
            if f.suffix == ".attn" and not label.startswith(APART):
                yield from of_text(f, label, f.read_text(errors="replace"), dtype)
            if f.suffix == ".md":
                for n, m in enumerate(re.finditer(r"^```attn\n(.*?)^```$", f.read_text(),
                                                  re.M | re.S)):
                    block = work / f"{label.replace('/', '.')}.{n}.attn"
                    block.write_text(m[1])
                    yield from of_text(block, f"{label}#{n}", m[1], dtype)


def of_seeds(seeds, work, dtype):
    lo, _, hi = seeds.partition("..")
    for seed in range(int(lo), int(hi or lo) + 1):
        kind, how = KINDS[seed % len(KINDS)]
        spec = (programs.draw_walk(seed, dtype, ()) if kind == "w" else
                programs.draw(seed, dtype, how.get("steps", False), ()))
        path = work / f"p{seed}{kind}.attn"
        path.write_text(programs.build(spec).text())
        yield from of_text(path, f"seed {seed}{kind} ({' '.join(spec.kinds())})",
                           path.read_text(), dtype)


class Sweep:
    def __init__(self, opt):
        self.opt = opt
        self.found = collections.defaultdict(list)
        self.taken = collections.Counter()

    def compile(self, case, target, grad, stage):
        cmd = ["nice", self.opt.attnc, f"--emit={stage}", case.path, "--fn", case.name,
               "--target", target, "-o", "/dev/null", "--no-cache", "-j", "1",
               "--max-seconds", str(self.opt.limit), "--color=never",
               "--max-memory", str(self.opt.memory), "-I", TOP / "test"]
        cmd += [x for d in case.dims for x in ("--dim", d)] + ["--grad"] * grad
        if stage != "obj":
            cmd.append("--verify-each")

        def limits():
            size = 2 * self.opt.memory << 20
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        start = time.time()
        try:
            got = subprocess.run([str(c) for c in cmd], capture_output=True, text=True,
                                 errors="replace", timeout=4 * self.opt.limit,
                                 preexec_fn=limits)
        except subprocess.TimeoutExpired:
            return None, "takes too long", time.time() - start
        return got.returncode, got.stderr, time.time() - start

    def case(self, case):
        out = []
        for grad in [False] * self.opt.programs + [True] * self.opt.grad:
            rc, _, _ = self.compile(case, self.opt.cpu, grad, self.opt.stage)
            if rc != 0:
                continue
            for t in self.opt.targets.split(","):
                rc, said, seconds = self.compile(case, t, grad, self.opt.stage)
                out.append((t, grad, rc, said, seconds))
        return case, out


def signature(rc, said):
    """What is the same of all failures of a kind."""
    if rc is not None and rc < 0:
        return f"signal {-rc}: " + said.strip().split("\n")[-1][:150]
    lines = [x for x in said.split("\n") if re.match(r"(internal )?error", x)]
    text = (lines or [said.strip().split("\n")[0]])[0]
    text = re.sub(r"'[^']*'|%\w+", "X", text)
    return re.sub(r"[-\d.]+(?![^\[]*\])", "#", text)[:160]


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("paths", nargs="*", type=pathlib.Path)
    ap.add_argument("--attnc", default=str(TOP / "build/bin/attnc"))
    ap.add_argument("--targets", default="sm_90a,sm_80,gfx942,gfx1100")
    ap.add_argument("--cpu", default="cpu:x86-64-v3")
    ap.add_argument("--seeds", default="")
    ap.add_argument("--dtype", default="bf16")
    ap.add_argument("--stage", default="mach")
    ap.add_argument("--limit", type=int, default=60)
    ap.add_argument("--memory", type=int, default=3072)
    ap.add_argument("-j", type=int, default=2)
    ap.add_argument("--dir", type=pathlib.Path, default="/tmp/refused")
    ap.add_argument("--no-grad", dest="grad", action="store_false")
    ap.add_argument("--no-programs", dest="programs", action="store_false")
    opt = ap.parse_args()
    opt.dir.mkdir(parents=True, exist_ok=True)
    paths = opt.paths or ([] if opt.seeds else
                          [TOP / x for x in ("stdlib", "docs", "README.md", "test", "tools")])
    cases = list(of_paths([p.resolve() for p in paths], opt.dir, opt.dtype))
    cases += of_seeds(opt.seeds, opt.dir, opt.dtype) if opt.seeds else []
    sweep, found, told = Sweep(opt), collections.defaultdict(list), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(opt.j) as pool:
        for case, out in pool.map(sweep.case, cases):
            for t, grad, rc, said, seconds in out:
                told[t] += 1
                if rc != 0:
                    found[signature(rc, said)].append(
                        (t, case.label + " --grad" * grad, said, seconds))
    for sig, all_ in sorted(found.items(), key=lambda x: -len(x[1])):
        by = collections.defaultdict(list)
        for t, label, _, _ in all_:
            by[label].append(t)
        print(f"\n{sig}\n  {len(by)} programs")
        for label, ts in by.items():
            print(f"    {label}: {' '.join(ts)}")
        print("\n".join("  > " + x for x in all_[0][2].strip().split("\n")[:8]))
    print(f"\n{len(cases)} programs; " + ", ".join(f"{t} {n}" for t, n in told.items()) +
          f" compilations; {sum(map(len, found.values()))} failed, {len(found)} kinds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
