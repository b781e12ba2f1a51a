"""Takes single waits, barriers and fences out of a compiled module; the wave
interpreter must notice each.

    mutants.py REFERENCE.tir COMPILED.tir DIMS SCRATCH

Prints what was not noticed. Of waits for products one more is left pending."""
import re
import subprocess
import sys

ORDER = ("gsync", "cp_wait", "cp_commit", "mbar_wait", "mbar_arrive",
         "mbar_expect", "fence_async", "bar_sync", "wg_fence")
WAIT = re.compile(r"(.* = wg_wait\(.*\) \{pending = )(\d+)(\}.*)")

reference, compiled, dims, path = sys.argv[1:5]
lines = open(compiled).read().split("\n")
count = 0
for i, line in enumerate(lines):
    wait = WAIT.match(line)
    if line.strip().split("(")[0] not in ORDER and not wait:
        continue
    count += 1
    mutant = lines[:]
    mutant[i] = f"{wait[1]}{int(wait[2]) + 1}{wait[3]}" if wait else ""
    with open(path, "w") as f:
        f.write("\n".join(mutant))
    got = subprocess.run(
        ["attn-run", reference, path, "--round", "--tol=1e-2", "--runs=3",
         f"--dim={dims}"], capture_output=True, text=True)
    if got.returncode == 0:
        print(f"not noticed: line {i + 1}: {line.strip()}")
print(f"{count} mutants")
