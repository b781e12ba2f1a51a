# Stands in for ptxas: kernels spill 60 bytes except at level 3 of register usage.
import re
import sys

out = sys.argv.index("-o") + 1
open(sys.argv[out], "w").write("code")
spilled = 0 if "--register-usage-level 3" in " ".join(sys.argv) else 60
for name in re.findall(r"\.entry (\w+)", open(sys.argv[-1]).read()):
    print(f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'")
    print(f"    {spilled} bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads")
    print("ptxas info    : Used 168 registers, used 16 barriers")
