"""Runs the programs of a list of gen.py by attn-oracle at three levels: the
interpreter against the oracle, in f64.

    levels.py DIR [PROGRAM ..]
"""
import subprocess
import sys

ATTN = "inline,canon,cse,dce"
STREAM = ATTN + ",online,static_max,exp2,cse,dce,mask_bounds"
TILE = STREAM + ",tile,cse,dce"
LEVELS = {"stream": STREAM, "tile": TILE, "mach": TILE + ",lower_cpu,cse,dce,sink"}
SHAPES = "B=2,Hk=2,H=4,Sq=7,Sk=21,Sc=5"

runs = bad = 0
for line in open(sys.argv[1] + "/list"):
    file, *args = line.split()
    if sys.argv[2:] and not any(f"/{p}.attn" in file for p in sys.argv[2:]):
        continue
    inputs = [a for a in args if a.startswith("--in=")]
    for level, passes in LEVELS.items():
        got = subprocess.run(
            ["attn-oracle", file, f"--dim={SHAPES}", "--tol=1e-6",
             f"--passes={passes}", *inputs], capture_output=True, text=True)
        runs += 1
        if got.returncode:
            bad += 1
            print(f"{file} at {level}: differs or fails\n"
                  f"{got.stdout[:300]}{got.stderr[:300]}")
print(f"{runs} runs, {bad} bad")
sys.exit(bad != 0)
