"""Programs of the library and of the tests, each changed in one place, compiled
and run on random inputs beside the oracle. For hand and night runs: what it
prints wants a look.

    mutants.py --attnc build/bin/attnc --seconds 600 [--seed N] [--keep DIR]

A change is another element type, operator, function, number or dim, or a line
left out. Half are refused by the compiler with a diagnostic; the others must
give the oracle's numbers. Types narrower than f32 are not made: with those a
difference may be a rounding. Integer division by zero, and what divides by a
sum near 0, may differ too.
"""
import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GROUPS = [
    "f32 f64 i64 i32 i16 u8".split(),
    "sum max min prod mean any all".split(),
    "exp log exp2 log2 tanh sigmoid relu abs sqrt sin cos floor softplus".split(),
    "< <= > >= == !=".split(),
    "+ - * / // %".split(),
    "and or".split(),
    "B H S D Dv Sq Sk N T q k b h t d e".split(),
    "0 1 2 3 8 16 64 100".split(),
]
EXTENTS = {"long": [1, 2, 3, 5, 17, 33, 70, 130, 300], "short": [1, 2, 3]}


def word(group):
    names = "|".join(re.escape(g) for g in sorted(group, key=len, reverse=True))
    if group[0][0].isalnum():
        return re.compile(rf"(?<![\w.#])({names})(?![\w.])")
    return re.compile(rf"(?<=\s)({names})(?=\s)")


PATTERNS = [(g, word(g)) for g in GROUPS]


def mutant(rng, text):
    if rng.random() < 0.1:
        lines = text.split("\n")
        del lines[rng.randrange(len(lines))]
        return "\n".join(lines)
    group, pattern = rng.choice(PATTERNS)
    places = [m for m in pattern.finditer(text)
              if text[text.rfind("\n", 0, m.start()) + 1:][:1] != "#"]
    if not places:
        return None
    m = rng.choice(places)
    new = rng.choice(group)
    return None if new == m.group() else text[:m.start()] + new + text[m.end():]


def dims_of(rng, head):
    """Values of the dims in `<..>`: the least of a const, else small or odd."""
    out = []
    for part in re.split(r",(?![^{(\[]*[})\]])", head):
        name, _, kind = (x.strip() for x in part.partition(":"))
        if not re.fullmatch(r"\w+", name):
            continue
        if "const" in kind:
            out.append(f"{name}={min(map(int, re.findall(r'[0-9]+', kind)), default=8)}")
        elif "dtype" in kind:
            wide = [t for t in ("f64", "f32") if t in kind]
            out.append(f"{name}={rng.choice(wide or ['f32'])}")
        else:
            size = "long" if name[0] in "STN" else "short"
            out.append(f"{name}={rng.choice(EXTENTS[size])}")
    return out


def narrow(text):
    code = re.sub(r"#.*", "", text).split("check ")[0]
    code = re.sub(r"dtype \{[^}]*\}", "", code)
    return re.search(r"\b(bf16|f16|tf32|f8e\w+)\b", code)


def in_range(line):
    """Not where f32 over- or underflows and the oracle's f64 does not."""
    m = re.search(r"the oracle says (\S+)", line)
    x = abs(float(m.group(1))) if m else 1.0
    return 1e-30 < x < 1e30 or x == 0


def verdict(args, path, text, rng):
    head = re.search(r"(attention|recurrent)\s+(\w+)\s*<(.*?)>\s*\(", text, re.S)
    if not head or narrow(text):
        return "skipped", ""
    command = [args.attnc, "run", "--random", "--verify-all", "--color=never",
               "--fn", head.group(2), "--seed", str(rng.randrange(1000))]
    for d in dims_of(rng, head.group(3)):
        command += ["-D", d]
    try:
        p = subprocess.run(command + [str(path)], capture_output=True, text=True,
                           timeout=60)
    except subprocess.TimeoutExpired:
        return "slow", " ".join(command)
    wrong = [w for w in re.findall(r"^FAIL .*", p.stdout, re.M) if in_range(w)]
    if p.returncode not in (0, 1, 2, 3) or "(a bug" in p.stderr:
        return "broken", f"{' '.join(command)}\n{p.stderr}"
    if wrong:
        return "differs", f"{' '.join(command)}\n" + "\n".join(wrong)
    return ("same" if p.returncode == 0 else "refused"), ""


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("--attnc", default="build/bin/attnc")
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--count", type=int, default=10**9, help="as many at most")
    ap.add_argument("--seed", type=int, default=int(time.time()))
    ap.add_argument("--keep", type=Path, help="folder for what is found")
    args = ap.parse_args()
    root = Path(__file__).resolve().parents[2]
    seeds = sorted([*root.glob("stdlib/**/*.attn"), *root.glob("test/lower/*.attn"),
                    *root.glob("test/numeric/*.attn")])
    rng, counts = random.Random(args.seed), {}
    end, found = time.time() + args.seconds, 0
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        while time.time() < end and sum(counts.values()) < args.count:
            source = rng.choice(seeds)
            text = re.sub(r"\b(bf16|f16)\b(?=\[)", "f32", source.read_text())
            text = mutant(rng, text)
            if text is None:
                continue
            path = Path(tmp) / "m.attn"
            path.write_text(text)
            kind, what = verdict(args, path, text, rng)
            counts[kind] = counts.get(kind, 0) + 1
            if kind in ("differs", "broken", "slow"):
                found += 1
                keep = (args.keep or Path(".")) / f"mutant-{args.seed}-{found}.attn"
                if args.keep:
                    keep.write_text(text)
                print(f"{kind}: of {source.relative_to(root)}, kept as {keep}\n{what}",
                      flush=True)
    print(f"seed {args.seed}:", ", ".join(f"{n} {k}" for k, n in sorted(counts.items())))
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
