# Stands in for ptxas: kernels of keys spill 8 bytes, stored and loaded in loop RARE_LOOP of three
# with products, the first of which has a way out and back in behind all of them; with -1 a kernel
# of pages spills in front of them. SIZE is the size of what is spilled, as instructions have it: 3
# is 2 bytes, 4 (else) 4. Kernels of clusters have a loop less.
import os
import re
import struct
import sys

BRA, EXIT, STL, LDL, HGMMA, NOP = 0x947, 0x94D, 0x387, 0x983, 0x9F0, 0x918
P0, ALWAYS, SIZE = 0, 7, int(os.environ.get("SIZE", 4))


def insn(op, pred=ALWAYS, high=0):
    return struct.pack("<QQ", op | pred << 12, high)


def bra(at, to, pred):
    far = (to - at - 1) * 16
    low, rest = far % 1024, (far // 1024) & (1 << 48) - 1
    words = BRA | pred << 12 | (low // 4) << 16 | rest << 34
    return struct.pack("<QQ", words & (1 << 64) - 1, words >> 64)


def code(loops, spilling):
    out, heads = [insn(NOP)], []
    if spilling < 0:
        out += [insn(STL, high=SIZE << 9), insn(LDL, high=SIZE << 9)]
    for i in range(loops):
        heads.append(len(out))
        out += [insn(HGMMA), insn(NOP)]
        if i == spilling:
            out += [insn(STL, high=SIZE << 9), insn(LDL, high=SIZE << 9)]
        out.append(bra(len(out), heads[-1], P0))
    out.append(insn(EXIT))
    out[heads[0] + 1] = bra(heads[0] + 1, len(out), P0)
    out.append(bra(len(out), heads[0] + 2, ALWAYS))
    return b"".join(out)


def elf(name, text):
    names = b"\0.shstrtab\0.text." + name.encode() + b"\0"
    at = 64 + len(names) + -len(names) % 8
    head = struct.pack("<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0x33, 2, 190, 1, 0, 0,
                       at + len(text), 0, 64, 0, 0, 64, 3, 1)
    section = "<IIQQQQIIQQ"
    table = struct.pack(section, *[0] * 10)
    table += struct.pack(section, 1, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    table += struct.pack(section, 11, 1, 6, 0, at, len(text), 0, 0, 16, 0)
    return head + names + bytes(at - 64 - len(names)) + text + table


ptx = open(sys.argv[-1]).read()
names = re.findall(r"\.entry (\w+)", ptx)
loops, spilling = (int(os.environ[x]) for x in ("LOOPS", "RARE_LOOP"))
loops -= "nctapercluster" in ptx
spills = [n.endswith("_keys") and "n48k16" in ptx or
          spilling < 0 and "setmaxnreg" in ptx for n in names]
with open(sys.argv[sys.argv.index("-o") + 1], "wb") as f:
    f.write(elf(names[0], code(loops, spilling)) if any(spills) else b"code")
for name, spill in zip(names, spills):
    n = {3: 2, 4: 4}[SIZE] if spill else 0
    print(f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'")
    print(f"    {n} bytes stack frame, {n} bytes spill stores, {n} bytes spill loads")
    print("ptxas info    : Used 168 registers, used 16 barriers")
