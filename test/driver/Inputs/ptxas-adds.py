# Stands in for ptxas: kernels that add to memory spill 300 bytes, or as many as
# SPILLS says.
import os
import re
import sys

ptx = open(sys.argv[-1]).read()
open(sys.argv[sys.argv.index("-o") + 1], "w").write("code")
parts = re.split(r"\.entry (\w+)", ptx)
for name, text in zip(parts[1::2], parts[2::2]):
    n = int(os.environ.get("SPILLS", 300)) // 2 if "red.relaxed" in text else 0
    print(f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'")
    print(f"    {n} bytes stack frame, {n} bytes spill stores, "
          f"{n} bytes spill loads")
    print("ptxas info    : Used 168 registers, used 16 barriers")
