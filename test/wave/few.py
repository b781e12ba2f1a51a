"""Every attention of the library as a kernel of few rows, by the wave interpreter.

    few.py STDLIB FOLDER [NAME ..]

Keys are split into three parts where they can be; level tile without parts is
what results are compared with. Each program runs under two random schedules."""
import pathlib
import re
import subprocess
import sys

DIMS = {"B": 2, "H": 2, "Hk": 1, "Hq": 4, "S": 61, "Sq": 3, "Sk": 300, "P": 19, "Nc": 5, "Ns": 2, "M": 9, "N": 3}
INPUTS = {"len": "lengths(1,300)", "pt": "perm", "cu": "offsets(0,61)",
          "cu_q": "offsets(0,3)", "cu_k": "offsets(0,300)", "scale": "const(0.1)",
          "loggamma": "uniform(-0.1,0)", "F": "uniform(-1,0)",
          "slot": "iota(-1,2)", "pos": "randint(0,99)"}
# Ten walks over the keys, each with a sum over heads: wave/topk.test has it.
LONG = {"topk_index"}


def program(path, name, consts, out):
    def run(*cmd, **more):
        return subprocess.run([str(c) for c in cmd], capture_output=True, text=True, **more)
    dims = [f"{d}={v.split(',')[0]}" for d, v in consts]
    dims += ["T=f16"] * (f" {name}<T" in path.read_text())
    text = run("attn-lower", path, "--fn", name, "--dim", ",".join(dims))
    files = {}
    for what, split, level in (("whole", 1, "tile"), ("parts", 3, "mach")):
        files[what] = f"{out}/{name}.{what}.tir"
        made = run("attn-opt", "-", "--few", "--decode", f"--split-k={split}",
                   "--target=sm_90a", f"--pipeline={level}", "-o", files[what],
                   input=text.stdout)
        if made.returncode:
            return "refused" if "A0702" in made.stderr else made.stderr[:300]
    tensors = re.findall(r"%(\w+): ", re.search(rf"@{name}\((.*?)\)\n", text.stdout, re.S)[1])
    have = {k: v for k, v in DIMS.items() if re.search(rf"^dim {k}\b", text.stdout, re.M)}
    if "S" in have and "Hk" in have:  # 64 rows at most
        have["Hk"] = have.get("Hq", have["Hk"])
    same = run("attn-run", files["whole"], files["parts"], "--round", "--tol=2e-2", "--runs=2",
               "--dim=" + ",".join(f"{k}={v}" for k, v in have.items()),
               *[f"--in={k}={v}" for k, v in INPUTS.items() if k in tensors])
    return "" if same.returncode == 0 else (same.stdout + same.stderr)[:300]


std, out, *only = sys.argv[1:]
n = refused = bad = split = 0
for path in sorted(pathlib.Path(std, "attention").glob("*.attn")):
    for name, rest in re.findall(r"^attention (\w+)<(.*?)>\n", path.read_text(), re.M | re.S):
        if only and name not in only or name in LONG:
            continue
        why = program(path, name, re.findall(r"(\w+): const \{([\d, ]+)\}", rest), out)
        n += 1
        refused += why == "refused"
        if why not in ("", "refused"):
            bad += 1
            print(f"{name}: {why}")
        if not why:
            split += ".combine" in pathlib.Path(out, f"{name}.parts.tir").read_text()
print(f"{n} programs, {split} split, {refused} refused, {bad} bad")
