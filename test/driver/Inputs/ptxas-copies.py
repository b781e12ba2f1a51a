# Stands in for ptxas, as ptxas.py does: kernels that multiply without copies of
# the copy engine spill.
import re
import sys

ptx = open(sys.argv[-1]).read()
open(sys.argv[sys.argv.index("-o") + 1], "w").write("code")
n = 400 if "mma.sync" in ptx and "cp.async.bulk" not in ptx else 0
for name in re.findall(r"\.entry (\w+)", ptx):
    print(f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'")
    print(f"    {n} bytes stack frame, {n} bytes spill stores, 0 bytes spill loads")
    print("ptxas info    : Used 168 registers, used 16 barriers")
