# Stands in for ptxas: machine code of $INSTRUCTIONS for each kernel, which is said to store
# $BYTES to local memory and to load as many.
import os
import re
import struct
import sys

ptx = open(sys.argv[-1]).read()
name = re.search(r"\.entry (\w+)", ptx)[1]
code = struct.pack("<QQ", 0x7918, 0) * int(os.environ["INSTRUCTIONS"])  # NOP
names = b"\0.text." + name.encode() + b"\0"
rest = names + bytes(-len(names) % 8)
end = 64 + len(code) + len(rest)


def section(name, kind, offset, size):
    return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 8, 0)


sections = (section(0, 0, 0, 0) + section(1, 1, 64, len(code)) +
            section(0, 3, 64 + len(code), len(names)))
head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
    "<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, end, 0, 64, 0, 0, 64, 3, 2)
with open(sys.argv[sys.argv.index("-o") + 1], "wb") as f:
    f.write(head + code + rest + sections)
n = int(os.environ["BYTES"])
print(f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'")
print(f"    {n} bytes stack frame, {n} bytes spill stores, {n} bytes spill loads")
print("ptxas info    : Used 168 registers, used 16 barriers")
