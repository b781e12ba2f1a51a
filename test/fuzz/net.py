"""Random programs through every target: compiled, executed, compared.

    net.py [--seeds=LO..HI] [--steps | --walks] [--targets=T,..] [--type=T] [--dir=DIR]
           [--without=KIND,..] [--heads=D,..] [-jN] [--work=N] [--full] [--reduce]
           [--no-cpu] [--limit=SECONDS] [--tsv=FILE] [--report=FILE] [--refused=N]
    net.py --relations [--seeds=LO..HI] [--steps] [--type=T] [--dir=DIR] [-jN]

The CPU's code is compiled and run beside the oracle (attn-numeric), that of
GPUs runs in the wave interpreter (attn-oracle), where rows are few the code for
these too. Tolerances follow from each
program's condition: what inputs change that are wrong by a rounding, in one
draw; what is wrong then is judged again by the largest of several. --full
also compiles objects for each target, with ptxas, and writes time, runs of
ptxas, registers and spilled bytes to --tsv. --reduce makes the first program of
each failure as small as it fails the same way. What fails stays in --dir.
--heads: D and Dv are two of these, instead of those that a seed draws.
--refused=N: no failure, if a target refuses at most N programs. Of targets cpu
is the CPU's code by the interpreter, where --no-cpu leaves out what is compiled.

--relations: each program's code for the CPU beside that of what rules make of
it (relations.py), on arrays; an outcome for each rule.

Outcomes: right; refused (A0702), invalid (a pass or a run found wrong IR or a
race), wrong, crash, slow, error; ill: not judged, its condition is bad.
"""
import collections
import concurrent.futures
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parent))
import programs  # noqa: E402

TARGETS = "sm_90a,sm_80,gfx942,gfx1100"
# Of a rounding, and what any program may be wrong by.
UNIT = {"f32": 2 ** -21, "bf16": 2 ** -9, "f16": 2 ** -12}
FLOOR = {"f32": 2e-5, "bf16": 1e-2, "f16": 1.5e-3}
MORE_DRAWS = 6
CPU = "cpu"


@dataclasses.dataclass
class Result:
    spec: object
    outcome: dict                   # of each target
    said: dict                      # what it said


def run(cmd, limit, env=None):
    try:
        got = subprocess.run([str(c) for c in cmd], capture_output=True,
                             text=True, timeout=limit, env=env,
                             errors="replace")
    except subprocess.TimeoutExpired:
        return None, "takes too long"
    return got.returncode, got.stdout + got.stderr


def outcome(said):
    """One word for what a failing run printed."""
    for word, marks in (("crash", ["crashed", "Assertion"]),
                        ("slow", ["takes too long"]),
                        ("refused", ["A0702"]),
                        ("invalid", ["A0703", "A0704", "A0650"]),
                        ("wrong", [" differs"]), ("ill", ["ill cond"])):
        if any(m in said for m in marks):
            return word
    return "error"


def signature(word, said):
    """What is the same of all failures of a kind."""
    if word == "wrong":
        return "wrong"
    lines = [x for x in said.split("\n") if "error[" in x or "Assertion" in x]
    text = " / ".join(lines) or said.strip().split("\n")[0]
    text = re.sub(r"%\w+ = |: %.*|<[^>]*>", "", text)
    return f"{word}: " + re.sub(r"[-\d.]+", "#", text.replace("@p: ", ""))[:150]


class Net:
    def __init__(self, opt):
        self.opt, self.dir = opt, pathlib.Path(opt["dir"])
        self.dir.mkdir(parents=True, exist_ok=True)
        self.targets = [t for t in opt["targets"].split(",") if t]
        self.limit = int(opt["limit"])
        self.outcome = outcome      # of what a run said

    def spec(self, seed):
        without = opt_list(self.opt["without"])
        dtype = self.opt["type"] or None
        spec = (programs.draw_walk(seed, dtype, without) if self.opt["walks"] else
                programs.draw(seed, dtype, self.opt["steps"], without))
        heads = [int(x) for x in opt_list(self.opt["heads"])]
        if heads:
            r = programs.rng(spec, "heads")
            spec = dataclasses.replace(spec, d=r.choice(heads), dv=r.choice(heads))
        return dataclasses.replace(spec, work=int(self.opt["work"]))

    def write(self, spec, name):
        p, path = programs.build(spec), self.dir / f"{name}.attn"
        path.write_text(f"# {spec.dtype} {' '.join(spec.kinds())}\n"
                        f"# {' '.join(p.options())}\n{p.text()}")
        return p, path

    def execute(self, spec, name, targets, cpu):
        """Runs one program for each target, the CPU too. One draw may tell too
        little of what roundings change."""
        res = self.judge(spec, name, targets, cpu, 1)
        again = [t for t, word in res.outcome.items() if word == "wrong"]
        if again:
            more = self.judge(spec, name, [t for t in again if t != CPU],
                              CPU in again, MORE_DRAWS)
            res.outcome.update(more.outcome)
            res.said.update(more.said)
        return res

    def judge(self, spec, name, targets, cpu, draws):
        p, path = self.write(spec, name)
        res = Result(spec, {}, {})
        cmd = ["attn-oracle", path, "--round", "--few",
               f"--tol={FLOOR[spec.dtype]}", f"--condition={UNIT[spec.dtype]}", f"--draws={draws}",
               f"--limit={self.limit}", f"--seed={spec.seed}", *p.options(),
               *(f"--target={t}" for t in targets)]
        rc, said = run(cmd, 5 * (len(targets) + 2) * self.limit)
        self.split(res, targets, rc, said)
        if cpu and "not judged" not in res.said:
            self.on_cpu(res, p, path, said)
        return res

    def split(self, res, targets, rc, said):
        at, parts = 0, {}
        for m in re.finditer(r"^p for (\w+)\S*: (\w+)\n", said, re.M):
            parts[m[1]] = (m[2] == "right", said[at:m.start()])
            at = m.end()
        if rc is None or (not parts and targets) or rc not in (0, 1):
            word = "slow" if rc is None else self.outcome(said)
            res.said["not judged"] = said
            res.outcome.update({t: word for t in [*targets, CPU]})
        for t, (right, text) in parts.items():
            res.outcome[t] = "right" if right else self.outcome(text)
            res.said[t] = text

    def on_cpu(self, res, p, path, said):
        allowed = [float(x) for x in re.findall(r"may differ by (\S+)", said)]
        tol = max([FLOOR[res.spec.dtype], *allowed])
        rc, text = run(["attn-numeric", path, "--runs=1", f"--tol={tol}",
                        f"--seed={res.spec.seed}", *p.options()], 5 * self.limit)
        res.said[CPU] = text
        res.outcome[CPU] = ("right" if rc == 0 else "slow" if rc is None else
                            "crash" if rc < 0 else self.outcome(text))

    def one(self, seed):
        spec = self.spec(seed)
        res = self.execute(spec, f"p{seed}", self.targets, self.opt["cpu"])
        if self.opt["full"]:
            self.compiled(res, self.dir / f"p{seed}.attn")
        if all(x == "right" for x in res.outcome.values()):
            (self.dir / f"p{seed}.attn").unlink()
        return res

    # -------------------------------------------------------- objects
    def compiled(self, res, path):
        """Objects: what the driver does with a program beyond its passes."""
        res.cost = {}
        for t in self.targets + [CPU]:
            with tempfile.TemporaryDirectory() as tmp:
                start = time.time()
                rc, said = run(["attnc", path, "--target", t, "--remarks",
                                "-o", f"{tmp}/p.o"], 120)
                seconds = time.time() - start
            found = re.findall(r"(\d+) threads, (\d+) registers, (\d+) bytes "
                               r"spilled", said)
            regs = max((int(x[1]) for x in found), default=0)
            spill = max((int(x[2]) for x in found), default=0)
            res.cost[t] = (seconds, len(found), regs, spill)
            if rc != 0:
                res.outcome[t + ".o"] = ("slow" if rc is None else "crash"
                                         if rc < 0 else outcome(said))
                res.said[t + ".o"] = said

    # -------------------------------------------------------- reducing
    def reduce(self, res, target):
        """The smallest program that fails as this one does."""
        spec, want = res.spec, signature(res.outcome[target], res.said[target])
        again = True
        while again:
            again = False
            for less in programs.reduced(spec):
                got = self.execute(less, f"r{spec.seed}.{target}",
                                   [t for t in [target] if t != CPU],
                                   target == CPU)
                word = got.outcome.get(target)
                if word and word != "right" and want == signature(
                        word, got.said.get(target, "")):
                    spec, again = less, True
                    break
        return spec


class Relations(Net):
    """Rules instead of targets."""

    def execute(self, spec, name, targets, cpu):
        p, path = self.write(spec, name)
        res = Result(spec, {}, {})
        rc, said = run(["attn-oracle", path, f"--tol={FLOOR[spec.dtype]}",
                        f"--condition={UNIT[spec.dtype]}", "--round",
                        f"--limit={self.limit}", f"--seed={spec.seed}",
                        *p.options()], 5 * self.limit)
        if "ill cond" in said or rc is None:
            res.outcome["whole"] = "ill"
            return res
        allowed = [float(x) for x in re.findall(r"may differ by (\S+)", said)]
        tol = 2 * max([FLOOR[spec.dtype], *allowed])
        with tempfile.TemporaryDirectory() as tmp:
            found = relations.judge(p, spec.seed, tol, pathlib.Path(tmp))
        for rule, text in found.items():
            if targets and rule not in targets:
                continue
            res.outcome[rule] = text if text == "right" else self.outcome(text)
            res.said[rule] = text
        return res

    def one(self, seed):
        spec = self.spec(seed)
        res = self.execute(spec, f"p{seed}", [], False)
        if all(x in ("right", "ill") for x in res.outcome.values()):
            (self.dir / f"p{seed}.attn").unlink()
        return res


def opt_list(text):
    return tuple(x for x in text.split(",") if x)


def options(args, usage=__doc__):
    opt = {"seeds": "1..100", "steps": False, "walks": False, "targets": TARGETS, "type": "",
           "dir": "/tmp/net", "without": "", "heads": "", "j": "2", "work": "500000",
           "full": False, "reduce": False, "cpu": True, "limit": "20",
           "tsv": "", "report": "", "quiet": False, "refused": "0", "run": CPU,
           "relations": False}
    for a in args:
        key, given, value = a.lstrip("-").partition("=")
        if a.startswith("-j"):
            key, value = "j", a[2:]
        if key == "no-cpu":
            opt["cpu"] = False
        elif key not in opt:
            sys.exit(f"net.py: unknown option {a}\n{usage}")
        else:
            opt[key] = value if given else True
    return opt


def failures(results, refused):
    """By signature: the targets' runs that failed so. At most `refused` refused
    ones of each target are none."""
    found, left = collections.defaultdict(list), collections.Counter()
    for res in results:
        for t, word in res.outcome.items():
            if word == "refused" and left[t] < refused:
                left[t] += 1
            elif word not in ("right", "ill"):
                said = res.said.get(t, res.said.get("not judged", ""))
                found[signature(word, said)].append((res, t))
    return sorted(found.items(), key=lambda x: -len(x[1]))


def describe(net, sig, runs, out):
    seeds = sorted({r.spec.seed for r, _ in runs})
    by = collections.Counter(t for _, t in runs)
    kinds = collections.Counter(k for r in {r.spec: r for r, _ in runs}.values()
                                for k in r.spec.kinds())
    out(f"\n### {sig}")
    out(f"{len(seeds)} programs: " + ", ".join(f"{t} {n}" for t, n in by.items()))
    out(f"seeds: {' '.join(map(str, seeds[:40]))}")
    out("kinds: " + ", ".join(f"{k} {n}" for k, n in kinds.most_common(8)))
    res, t = runs[0]
    spec = net.reduce(res, t) if net.opt["reduce"] and t in res.said else res.spec
    p, path = net.write(spec, f"least.{spec.seed}.{t}")
    said = res.said.get(t, res.said.get("not judged", ""))
    out(f"least, for {t}: {spec.dtype} {' '.join(spec.kinds())} ({path})")
    out(f"    {' '.join(p.options())}")
    out("\n".join("    " + x for x in p.text().split("\n")))
    out("\n".join("    > " + x for x in said.strip().split("\n")[:6]))


def report(kind, opt):
    """Runs the seeds through a net of a kind, and tells what became of them."""
    net = kind(opt)
    lo, _, hi = opt["seeds"].partition("..")
    seeds, results = range(int(lo), int(hi or lo) + 1), []
    start = told = time.time()
    with concurrent.futures.ThreadPoolExecutor(int(opt["j"])) as pool:
        for run in concurrent.futures.as_completed(
                [pool.submit(net.one, s) for s in seeds]):
            res = run.result()
            results.append(res)
            bad = {t: w for t, w in res.outcome.items() if w not in ("right", "ill")}
            if bad and not opt["quiet"]:
                print(f"p{res.spec.seed} {res.spec.dtype} {res.spec.d} "
                      f"{' '.join(res.spec.kinds())}: " +
                      ", ".join(f"{t} {w}" for t, w in bad.items()), flush=True)
            if time.time() - told > 20 and not opt["quiet"]:
                told = time.time()
                print(f"{len(results)} of {len(seeds)}, {told - start:.0f} s",
                      flush=True)
    results.sort(key=lambda res: res.spec.seed)
    table = collections.defaultdict(collections.Counter)
    for res in results:
        for t, word in res.outcome.items():
            table[t][word] += 1
    lines = []
    for t, words in table.items():
        lines.append(f"{t}: " + ", ".join(f"{n} {w}" for w, n in words.most_common()))
    fails = failures(results, int(opt["refused"]))
    for sig, runs in fails if not opt["report"] else []:
        lines.append(f"{sig}: p{runs[0][0].spec.seed} for {runs[0][1]}\n"
                     f"{runs[0][0].said.get(runs[0][1], '')[:300]}")
    if opt["report"]:
        for sig, runs in fails:
            describe(net, sig, runs, lines.append)
        pathlib.Path(opt["report"]).write_text("\n".join(lines) + "\n")
    print("\n".join(lines[:len(table)] if opt["report"] else lines)[:6000])
    if opt["tsv"]:
        with open(opt["tsv"], "w") as f:
            print("seed\tkinds\ttarget\tseconds\tkernels\tregisters\tspilled", file=f)
            for res in results:
                for t, cost in getattr(res, "cost", {}).items():
                    print(res.spec.seed, " ".join(res.spec.kinds()), t,
                          *(f"{x:.2f}" if isinstance(x, float) else x for x in cost),
                          sep="\t", file=f)
    ill = sum("ill" in r.outcome.values() for r in results)
    print(f"{len(results)} programs, {ill} not judged, {len(fails)} kinds of "
          f"failures, {time.time() - start:.0f} s")
    return 1 if fails else 0


if __name__ == "__main__":
    opt = options(sys.argv[1:])
    if opt["relations"]:
        import relations
    sys.exit(report(Relations if opt["relations"] else Net, opt))
