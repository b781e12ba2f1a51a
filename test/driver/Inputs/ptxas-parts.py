# Stands in for ptxas: kernels named *_states spill 40 bytes, at level 3 none,
# those named *_joins 300, HGRN 2's chunks 100, at level 3 none.
# Each run adds a line to LOG: level, kernels.
#   ptxas-parts.py LOG -v -arch A [--register-usage-level L] -o OUT IN
import re
import sys

log, ptx = sys.argv[1], open(sys.argv[-1]).read()
open(sys.argv[sys.argv.index("-o") + 1], "w").write("code")
option = "--register-usage-level"
level = sys.argv[sys.argv.index(option) + 1] if option in sys.argv else "5"
names = re.findall(r"\.entry (\w+)", ptx)
with open(log, "a") as f:
    print(level, *names, file=f)
for name in names:
    n = 40 if name.endswith("_states") and level != "3" else 0
    n += 300 * name.endswith("_joins")
    n += 100 * (name.startswith("hgrn2") and name.endswith("_chunks") and level != "3")
    print(f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'")
    print(f"    {n} bytes stack frame, {n} bytes spill stores, 0 bytes spill loads")
    print("ptxas info    : Used 168 registers, used 16 barriers")
