"""Counts instructions of a cubin without a disassembler.

sass.py FILE.cubin KERNEL: one line of name=count pairs. The low 12 bits of a
16-byte instruction are its opcode; WARPGROUP.DEPBAR has bit 47 set.
mufu-before-wait: of the MUFUs between two DEPBARs, by pair, those that come
before the second; the largest numbers first.
"""
import struct
import sys

OPS = {"hgmma-ss": (0x9F0,), "hgmma-rs": (0xDF0,), "mufu": (0x308, 0x908),
       "ldl": (0x983,), "stl": (0x387, 0x987), "tma-load": (0x5B4,),
       "stsm": (0x844,), "setmaxnreg": (0x9C8,), "r2ur": (0x2CA,),
       "hmma": (0x23C,), "ldsm": (0x83B,), "redux": (0x3C4,)}


def text(path, kernel):
    data = open(path, "rb").read()
    at, = struct.unpack_from("<Q", data, 40)
    size, n, names = struct.unpack_from("<HHH", data, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size)
             for i in range(n)]
    base = heads[names][4]
    for h in heads:
        name = data[base + h[0]:].split(b"\0", 1)[0].decode()
        if name == ".text." + kernel:
            return data[h[4]:h[4] + h[5]]
    sys.exit("no section of " + kernel)


code = text(sys.argv[1], sys.argv[2])
ops, waits, mufu, gaps = [], [], 0, []
for i in range(0, len(code), 16):
    lo, hi = struct.unpack_from("<QQ", code, i)
    op = lo & 0xFFF
    ops.append(op)
    if op in OPS["mufu"]:
        mufu += 1
    if op == 0x9C5 and lo >> 47 & 1:
        waits.append((hi >> 8 & 7, mufu))
for (_, a), (_, b) in zip(waits, waits[1:]):
    gaps.append(b - a)
print("instructions=%d" % len(ops), *("%s=%d" % (k, sum(o in v for o in ops))
      for k, v in OPS.items()), "warpgroup=%d" % ops.count(0x9C5))
print("mufu between waits:", *gaps)
