# Compiles a program of the library for both GPU targets and asks ptxas.
#   assembles.py STDLIB [attnc options]
import subprocess
import sys

for target in ("sm_80", "sm_90a"):
    mach = subprocess.run(["attnc", sys.argv[1], "--emit=mach", "--target",
                           target, *sys.argv[2:]], capture_output=True,
                          check=True, text=True).stdout
    for part in mach.split("# -----\n"):
        name = next(x for x in part.split("\n") if x.startswith("# "))
        info = subprocess.run(["attn-lower", "/dev/stdin", "--emit=info"],
                              input=part, capture_output=True, check=True,
                              text=True).stdout
        spills = [x for x in info.split("\n") if "spilled" in x]
        print(target, name[2:], *spills)
