#!/usr/bin/env python3
"""Mutants of the passes: how many of them the tests notice.

    tools/mutation.py --seed 1 --count 400 [--dir build-mutants] [--minutes N]
    tools/mutation.py --list --seed 1 --count 20     what would be changed
    tools/mutation.py --show FILE                    how, in one file
    tools/mutation.py --report                       figures of what has run

A mutant is one change of one place of passes/: an operator exchanged, a number
1 more or less, a statement dropped, a condition or a result turned round. All
are built at once into a copy of the tree below --dir, each asleep:

    if (a < b)    ->    if ((mutant_at(17) ? (a <= b) : (a < b)))

ATTNC_MUTANT=17 wakes one. The sources stay as they are. Each test runs once
with none awake and leaves which places it came by where the change makes a
difference; a mutant runs those tests only, those of its own pass first and the
short ones before the long ones, up to --budget seconds, until one fails or
takes far longer than it did. DIR/mutants.tsv has a line for each mutant, and a
second run goes on where the first ended. tools/mutation/equivalent.tsv has what cannot be noticed, with reasons.
"""
import argparse
import csv
import fcntl
import hashlib
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from mutation import sites

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIT = "/usr/lib/llvm-22/utils/lit"
EQUIVALENT = ROOT / "tools/mutation/equivalent.tsv"
# What passes do is seen here, soon; tests of the library, and by waves, are
# many times as slow.
TESTS = r"(passes|levels|lower|ir|check|tools/attn-opt)/|numeric/(?!wave)"
KEYS = ["id", "place", "function", "change", "result", "by", "tests", "seconds"]


def say(*what):
    print(*what, file=sys.stderr, flush=True)


# ------------------------------------------------------------------ the build
def copy_tree(tree):
    """Files of git, and new ones; those that are as they were keep their time."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT,
        capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if not (ROOT / name).is_file() or re.match(r"passes/.*\.c$", name):
            continue
        put(tree / name, (ROOT / name).read_bytes(), ROOT / name)


def put(path, data, like=None):
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if like:
        shutil.copymode(like, path)


def write_mutants(tree, sources, mutants):
    for name, text in sources.items():
        mine = [m for m in mutants if m.file == name]
        put(tree / name, sites.instrument(text, mine).encode())
    put(tree / "passes/mutant.c", sites.SWITCH.encode())
    put(tree.parent / "mutant.h", sites.HEADER.encode())


def configure(path, sanitize):
    if not (path / "build/build.ninja").exists():
        subprocess.run(
            ["cmake", "-S", path / "tree", "-B", path / "build", "-G", "Ninja",
             "-DATTNC_WERROR=OFF", "-DCMAKE_BUILD_TYPE=None",
             f"-DATTNC_SANITIZE={'ON' if sanitize else 'OFF'}",
             f"-DCMAKE_C_FLAGS=-O1 -w -include {path}/mutant.h"],
            check=True, stdout=subprocess.DEVNULL)


def build(args, sources, mutants):
    """Builds; the mutants that compile."""
    tree, out = args.dir / "tree", args.dir / "build"
    while True:
        write_mutants(tree, sources, mutants)
        configure(args.dir, args.sanitize)
        r = subprocess.run(["ninja", "-C", out, "-k0", f"-j{args.jobs}"],
                           capture_output=True, text=True)
        if r.returncode == 0:
            return mutants
        bad = {(m[1], int(m[2])) for m in re.finditer(
            r"tree/(passes/\S+\.c):(\d+):\d+: error", r.stdout)}
        left = [m for m in mutants
                if not any((m.file, n) in bad for n in range(m.line, m.last + 1))]
        if len(left) == len(mutants):
            raise SystemExit(r.stdout[-4000:])
        say(f"{len(mutants) - len(left)} that do not compile")
        mutants = left


# ------------------------------------------------------------------ the tests
class Suite:
    """The tests of lit, each in a process of its own with limits of its own."""

    def __init__(self, args):
        sys.path.insert(1, LIT)
        import lit.discovery
        import lit.LitConfig
        import lit.worker
        os.environ.setdefault("ATTNC_PTXAS", "none")
        os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")
        self.config = lit.LitConfig.LitConfig(
            "lit", [], "error", False, False, [], False, False, False, "lexical",
            {})
        self.sanitize = args.sanitize
        self.out = str(args.dir / f"out-{args.worker.replace('/', '-')}")
        self.execute = lit.worker._execute
        found = lit.discovery.find_tests_for_inputs(
            self.config, [str(args.dir / "build/test")])
        self.tests = {"/".join(t.path_in_suite): t for t in found
                      if re.match(args.tests, "/".join(t.path_in_suite))}

    def digest(self, name):
        return hashlib.sha256(pathlib.Path(
            self.tests[name].getSourcePath()).read_bytes()).hexdigest()[:16]

    def child(self, test, variables, seconds):
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        if not self.sanitize:  # which reserves more
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        test.config.environment.update(variables)
        test.suite.exec_root = self.out  # beside other workers' files
        result = self.execute(test, self.config)
        os._exit(0 if result.code.name == "PASS"
                 else 2 if result.code.name == "UNSUPPORTED" else 1)

    def run(self, name, variables, usual=60):
        """0: passed, 1: failed, 2: unsupported, 3: far longer than usual; and
        seconds of a processor."""
        cpu, wall = 10 + int(10 * usual), 120 + 60 * usual
        pid = os.fork()
        if pid == 0:
            try:
                self.child(self.tests[name], variables, cpu)
            finally:
                os._exit(1)
        try:
            end, pause = time.time() + wall, 0.002
            while time.time() < end:
                done, status, used = os.wait4(pid, os.WNOHANG)
                if done:
                    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 3
                    return code, used.ru_utime + used.ru_stime
                time.sleep(pause)
                pause = min(0.1, pause * 1.3)
            return 3, 0
        finally:
            try:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


def baseline(args, suite, stop):
    """{test: (seconds, ids of mutants that make a difference in it, the more
    the later it came)}."""
    path, rows = args.dir / "baseline.tsv", {}
    if path.exists():
        for r in csv.reader(path.open(), delimiter="\t"):
            rows.pop(r[0], None)  # the last counts
            rows[r[0]] = r[1:]
    seen = args.dir / "seen"
    out = path.open("a")
    for k, name in enumerate(sorted(
            suite.tests, key=lambda t: (not t.startswith("passes/"), t))):
        digest = suite.digest(name)
        if rows.get(name, ["", "1"])[:2] in ([digest, "0"], [digest, "2"]):
            continue
        if time.time() > stop:
            break
        seen.write_bytes(bytes(sites.MOST))
        code, used = suite.run(name, {"ATTNC_MUTANTS_SEEN": str(seen)},
                               args.longest)
        ids = " ".join(str(i) for i, b in enumerate(seen.read_bytes()) if b)
        rows.pop(name, None)
        rows[name] = [digest, str(code), f"{used:.2f}", ids]
        print(name, *rows[name], sep="\t", file=out, flush=True)
        if code == 1 or k % 50 == 0:
            say(f"test {k} of {len(suite.tests)}: {name}",
                "fails without a mutant" if code == 1 else "")
    return {name: (float(r[2]), set(map(int, r[3].split())), n)
            for n, (name, r) in enumerate(rows.items())
            if name in suite.tests and r[:2] == [suite.digest(name), "0"]
            and float(r[2]) < args.longest}


def order(mutant, source, tests, again):
    """Tests that tell, those of the mutant's pass first, short ones first; again:
    new ones first."""
    own = set(re.findall(r"test/passes/(\w+)", source.split("#include")[0]))
    stem = pathlib.Path(mutant.file).stem

    def key(name):
        if again:
            return -tests[name][2], 0
        part = name.split("/")
        folder = part[1] if part[0] == "passes" and len(part) > 2 else ""
        mine = folder in own or (folder and stem.startswith(folder))
        return not mine, tests[name][0]
    return sorted((t for t in tests if mutant.id in tests[t][1]), key=key)


def judge(args, suite, mutant, names, tests):
    """Result, the test that tells, and how many ran."""
    spent = 0
    for n, name in enumerate(names):
        if spent > args.budget:
            return "survived", f"{len(names) - n} not run", n
        code, used = suite.run(name, {"ATTNC_MUTANT": str(mutant.id)},
                               tests[name][0])
        spent += used
        if code:
            return "killed", name + (" (time)" if code == 3 else ""), n + 1
    return "survived", "" if names else "no test", len(names)


# ------------------------------------------------------------------ the record
def equivalent():
    """{(file, line's text, change): reason}."""
    if not EQUIVALENT.exists():
        return {}
    with EQUIVALENT.open() as file:
        return {tuple(r[:3]): r[3] for r in csv.reader(file, delimiter="\t")
                if r and not r[0].startswith("#")}


def read_rows(path):
    if not path.exists():
        return {}
    with path.open() as file:
        return {int(r["id"]): r for r in csv.DictReader(file, delimiter="\t")}


def add_row(path, row):
    """Of one worker, beside those of others."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = read_rows(path) | {row["id"]: row}
        with path.with_suffix(".new").open("w") as file:
            out = csv.DictWriter(file, KEYS, delimiter="\t", lineterminator="\n")
            out.writeheader()
            out.writerows(rows[i] for i in sorted(rows))
        path.with_suffix(".new").replace(path)


def report(rows, by_hand):
    """Killed of those that can be: as a whole, by folder, by kind."""
    groups, alive = {}, []
    for r in rows.values():
        m = by_hand(r)
        result = "equivalent" if m and r["result"] == "survived" else r["result"]
        folder = "/".join(r["place"].split("/")[:2])
        for key in ("all", folder, r["change"].split(":")[0]):
            groups.setdefault(key, {}).setdefault(result, []).append(r)
        if result != "killed":
            alive.append((result, r, m))
    for result, r, m in sorted(alive, key=lambda a: (a[0], a[1]["place"])):
        print(f"{result}\t{r['id']}\t{r['place']}\t{r['function']}\t"
              f"{r['change']}\t{m or r['by']}")
    print("group\tmutants\tkilled\tequivalent\tsurvived\tscore")
    for key, g in groups.items():
        k, e, s = (len(g.get(x, [])) for x in ("killed", "equivalent", "survived"))
        print(f"{key}\t{k + e + s}\t{k}\t{e}\t{s}\t"
              f"{100 * k / max(1, k + s):.1f} %")


def load(args):
    """Sources as they were when the mutants were drawn, and these."""
    drawn, tree = args.dir / "drawn.tsv", args.dir / "sources"
    if not drawn.exists() or args.list:
        sources = {str(p.relative_to(ROOT)): p.read_text()
                   for p in sorted(ROOT.glob("passes/**/*.c"))}
        more = 0 if args.list else args.count // 5 + 9
        return sources, sites.draw(sources, args.seed, args.count + more)
    sources = {str(p.relative_to(tree)): p.read_text()
               for p in sorted(tree.glob("passes/**/*.c"))}
    with drawn.open() as file:
        ids = {int(r[0]): int(r[1]) for r in csv.reader(file, delimiter="\t")}
    all_of = sites.draw(sources, args.seed, max(ids) + 1)
    return sources, [m for m in all_of if m.id in ids]


def keep(args, sources, mutants):
    for name, text in sources.items():
        put(args.dir / "sources" / name, text.encode())
    (args.dir / "drawn.tsv").write_text(
        "".join(f"{m.id}\t{m.line}\n" for m in mutants))


def run(args):
    stop = time.time() + 60 * args.minutes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    args.dir.mkdir(parents=True, exist_ok=True)
    sources, mutants = load(args)
    copy_tree(args.dir / "tree")
    # Some do not compile: more are drawn, and what is too many stays asleep.
    mutants = build(args, sources, mutants)[:args.count]
    keep(args, sources, mutants)
    say(f"{len(mutants)} mutants")
    suite = Suite(args)
    tests = baseline(args, suite, stop)
    say(f"{len(tests)} tests")
    path = args.dir / "mutants.tsv"
    rows = read_rows(path)
    worker, workers = map(int, args.worker.split("/"))
    for m in mutants[worker - 1::workers]:
        if args.only and str(m.id) not in args.only.split(","):
            continue
        names = order(m, sources[m.file], tests, args.again)
        old = rows.get(m.id)
        if old and (old["result"] == "killed" or not args.again):
            continue
        if time.time() > stop:
            break
        start = time.time()
        result, by, n = judge(args, suite, m, names, tests)
        add_row(path, dict(zip(KEYS, [
            m.id, f"{m.file}:{m.line}", m.function, m.change, result, by, n,
            f"{time.time() - start:.1f}"])))
        say(f"{m.id}\t{m.file}:{m.line}\t{m.change}\t{result} {by}")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=400)
    p.add_argument("--dir", type=pathlib.Path, default=ROOT / "build-mutants")
    p.add_argument("--tests", default=TESTS)
    p.add_argument("--budget", type=float, default=120, help="of a mutant, seconds of a processor")
    p.add_argument("--longest", type=float, default=30, help="test, seconds")
    p.add_argument("--minutes", type=float, default=1e6)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--worker", default="1/1", metavar="K/N",
                   help="judge each N-th mutant; others do the others")
    p.add_argument("--only", metavar="ID,ID", help="judge these")
    p.add_argument("--sanitize", action="store_true", help="with ASan and UBSan")
    p.add_argument("--again", action="store_true",
                   help="survivors once more, new tests first")
    p.add_argument("--list", action="store_true")
    p.add_argument("--show", metavar="FILE", help="this file with --count mutants")
    p.add_argument("--report", action="store_true")
    args = p.parse_args()
    args.dir = args.dir.resolve()
    if args.show:
        text = pathlib.Path(args.show).read_text()
        sys.stdout.write(sites.instrument(
            text, sites.draw({args.show: text}, args.seed, args.count)))
    elif args.list:
        for m in load(args)[1]:
            print(f"{m.id}\t{m.file}:{m.line}\t{m.function}\t{m.change}")
    elif args.report:
        reasons, (sources, _) = equivalent(), load(args)

        def by_hand(r):
            name, line = r["place"].split(":")
            text = sources[name].split("\n")[int(line) - 1].strip()
            return reasons.get((name, text, r["change"]))
        report(read_rows(args.dir / "mutants.tsv"), by_hand)
    else:
        run(args)


if __name__ == "__main__":
    main()
