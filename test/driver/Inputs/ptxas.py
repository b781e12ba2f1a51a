# Stands in for ptxas: `ptxas -v -arch A [--register-usage-level L] -o OUT IN`.
# Kernels that multiply by 128 or more keys at a time spill, those of 640 threads, or that multiply
# by 112, are serialized, by 96 fenced again, those by 64 spill except at level 7. Kernels that
# multiply by mma.sync spill unless they may have at most 224 registers.
import re
import sys

ptx = open(sys.argv[-1]).read()
open(sys.argv[sys.argv.index("-o") + 1], "w").write("code")
widest = max(map(int, re.findall(r"m64n(\d+)k16", ptx)), default=0)
levels = {"5": 16, "3": 24, "7": 0}
option = "--register-usage-level"
level = sys.argv[sys.argv.index(option) + 1] if option in sys.argv else "5"
if "mma.sync" in ptx:
    widest = 64
    levels = {"5": 0 if ".maxnreg 224" in ptx else 36, "3": 36, "7": 36}
for name in re.findall(r"\.entry (\w+)", ptx):
    n = 160 if widest >= 128 else 0 if ".reqntid 640" in ptx else levels[level] if widest == 64 else 0
    print(f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'")
    print(f"    {n} bytes stack frame, {n} bytes spill stores, "
          f"{n} bytes spill loads")
    most = re.search(r"\.maxnreg (\d+)", ptx)
    print(f"ptxas info    : Used {most[1] if most else 168} registers, "
          "used 16 barriers")
    if widest == 112 or ".reqntid 640" in ptx:
        print("ptxas info    : (C7512) Potential Performance Loss: "
              "wgmma.mma_async instructions are serialized due to "
              f"insufficient register resources for the function '{name}'")
    if widest == 96:
        print("ptxas info    : (C7519) warpgroup.arrive is injected in around "
              "line 1 by compiler to allow use of registers in GMMA in "
              f"function '{name}'")
