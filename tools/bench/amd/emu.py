#!/usr/bin/env python3
"""AMD code objects in an emulator, compared with our CPU code.

    emu.py --harness AMD_EMU.PY --tinygrad DIR [--target gfx942,..] [--case NAME,..]
           [--schedules seq,rev,rand:7] [--list] [--mend]

The harness runs one kernel of a code object on the CPU (a module with a class
`Emu`); it is no part of this repository, and neither is tinygrad, whose decoder
of scalar and vector instructions it uses (a checkout of its own: --mend makes
CDNA's 16-bit operations in registers from v128 on right there, which it takes
for RDNA's upper halves, and its buffer accesses of less than 4 bytes, and adds
RDNA's buffer accesses, which it lacks). attnc and attn-lower are taken from PATH. For each case and target: compile; run on
random inputs under each schedule, with unset registers and LDS full of NaN and
guard pages around all buffers; compare with the CPU's f32 code on the same
inputs. No GPU takes part.

An error is |x - ref| / (|ref| + rms(ref)); outputs of 16 bits may have a few
roundings, f32 ones (log-sum-exp) 1e-5 unless products of 16 bits made them."""
import argparse
import array
import bisect
import importlib.util
import json
import math
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import time

STD = pathlib.Path(__file__).resolve().parents[3] / "stdlib"
SCHEDULES = "seq,rev,rand:1,rand:2:1,rand:3:40"


class Case:
    def __init__(self, file, program, dtype="bf16", sets=None, inputs=None,
                 tol=None, consts=None, turned=(), spare=0, tol32=0, **dims):
        self.tol32 = tol32       # of f32 outputs, 0: the option's
        self.turned = turned     # tensors whose last axis is not dense
        self.spare = spare       # registers that tiles leave free
        self.file, self.program, self.dtype = file, program, dtype
        self.sets, self.inputs, self.dims = sets or {}, inputs or {}, dims
        self.consts = consts or ["D"]
        self.tol = tol or {"f16": 2e-3, "f32": 1e-5}.get(dtype, 1.6e-2)

    @property
    def path(self):
        file = self.file if "/" in self.file else f"attention/{self.file}"
        return STD / f"{file}.attn"

    @property
    def name(self):
        d = "-".join(f"{k}{v}" for k, v in self.dims.items())
        t = "-turned" if self.turned else ""
        t += f"-spare{self.spare}" if self.spare else ""
        return f"{self.program}-{self.dtype}-{d}{t}"


def normal(rng, n, mean=0.0, sd=1.0):
    return [rng.gauss(mean, sd) for _ in range(n)]


def uniform(lo, hi):
    return lambda rng, n: [rng.uniform(lo, hi) for _ in range(n)]


def ascending(step):
    """Documents: numbers that grow every `step` elements or so."""
    return lambda rng, n: [i // step for i in range(n)]


def const(x):
    return lambda rng, n: [x] * n


def small(rng, n):
    """Many are denormals of f8e4m3, some are -0."""
    return [rng.choice((1, 1, 0.02, -0.0)) * rng.gauss(0, 1) for _ in range(n)]


def some_nan(rng, n):
    return [math.nan if i % 1931 == 7 else x
            for i, x in enumerate(small(rng, n))]


FP8 = dict(B=1, Hq=2, Hk=1, inputs={x: uniform(0.5, 2) for x in
                                    ("qscale", "kscale", "vscale")})
LOW = dict(B=1, Hq=1, Hk=1, inputs={"Q": small, "K": small, "V": small, **{
    x: const(5.0) for x in ("qscale", "kscale", "vscale")}})
NAN = {**LOW, "inputs": {**LOW["inputs"], "Q": some_nan}}
GQA = dict(consts=["D", "Dv"])
CASES = [
    Case("mha", "mha", B=1, H=2, Sq=128, Sk=100, D=64),
    Case("mha", "mha", "f16", B=1, H=1, Sq=70, Sk=513, D=128),
    Case("mha", "mha", B=1, H=1, Sq=2048, Sk=2048, D=64),
    Case("mha", "mha_causal", B=1, H=1, Sq=1024, Sk=1024, D=128),
    Case("mha", "mha_causal", "f16", B=2, H=1, Sq=1, Sk=300, D=64),
    Case("gqa", "gqa", B=1, Hq=4, Hk=2, Sq=192, Sk=160, D=64, Dv=64, **GQA),
    Case("gqa", "gqa", "f16", B=1, Hq=2, Hk=1, Sq=256, Sk=200, D=128, Dv=64,
         **GQA),
    Case("window", "window_sink", B=1, Hq=2, Hk=1, S=500, D=64,
         sets={"left": 100}),
    Case("alibi", "alibi", B=1, H=2, S=300, D=64,
         inputs={"slope": uniform(0.01, 0.5)}),
    Case("gemma", "gemma", B=1, Hq=2, Hk=1, S=260, D=128,
         sets={"cap": 50.0, "left": 128}),
    Case("sigmoid", "sigmoid_attn", B=1, H=1, Sq=200, Sk=200, D=64,
         sets={"bias": -3.0}),
    Case("relu", "relu_attn", B=1, H=1, Sq=130, Sk=190, D=64),
    Case("differential", "differential", B=1, H=1, S=200, D=64, Dv=128,
         inputs={"lam": uniform(0.1, 0.6)}, **GQA),
    Case("packed", "packed", H=2, S=400, D=64, inputs={"doc": ascending(90)}),
    Case("forgetting", "forgetting", B=1, H=1, S=256, D=64,
         inputs={"F": uniform(0.0, 1.0)}),
    Case("retention", "retention", B=1, H=1, S=256, D=64, Dv=64,
         inputs={"loggamma": uniform(-0.1, -0.01)}, **GQA),
    Case("stick", "stick_breaking", B=1, H=1, S=130, D=64, tol=2.5e-2),
    Case("mha", "mha_causal", B=1, H=1, Sq=90, Sk=130, D=128,
         turned=("K", "V")),
    Case("mha", "mha_causal", B=1, H=1, Sq=90, Sk=130, D=128, spare=168),
    Case("recurrent/gla", "gla", B=1, H=1, S=100, D=64, Dv=64, spare=232,
         inputs={"g": uniform(-1, -0.01)}, tol32=2e-2, **GQA),
    Case("recurrent/gla", "gla", B=1, H=1, S=100, D=64, Dv=64,
         inputs={"g": uniform(-1, -0.01)}, tol32=2e-2, **GQA),
    Case("recurrent/gla", "gla", B=1, H=1, S=70, D=64, Dv=64,
         inputs={"g": uniform(-1.3, -0.5)}, tol32=2e-2, **GQA),
    Case("recurrent/hgrn2", "hgrn2", B=1, H=1, S=100, D=64, Dv=64,
         tol32=4e-2, **GQA),
    Case("recurrent/rwkv6", "rwkv6", B=1, H=1, S=100, D=64, Dv=64,
         inputs={"w": uniform(-3, 0)}, tol32=2e-2, **GQA),
    Case("recurrent/retnet", "retnet", B=1, H=2, S=150, D=64, Dv=64,
         inputs={"loggamma": uniform(-0.1, -0.01)}, tol32=2e-2, **GQA),
    Case("recurrent/deltanet", "deltanet", B=1, H=1, S=40, D=64, Dv=64,
         inputs={"beta": uniform(0.1, 0.9)}, tol32=2e-2, **GQA),
    Case("qknorm", "qk_norm", B=1, Hq=2, Hk=1, S=150, D=64,
         inputs={"wq": uniform(0.5, 1.5), "wk": uniform(0.5, 1.5)}),
    Case("cross", "cross", B=2, H=1, Sq=70, Sk=150, D=64, Dv=64,
         inputs={"len": const(101)}, **GQA),
    Case("fp8", "fp8", "f8e4m3", Sq=130, Sk=200, D=128, **FP8),
    Case("fp8", "fp8", "f8e5m2", Sq=130, Sk=200, D=128, **FP8),
    Case("fp8", "fp8", "f8e4m3", Sq=40, Sk=100, D=64, **LOW),
    Case("fp8", "fp8", "f8e5m2", Sq=40, Sk=100, D=64, **LOW),
    Case("fp8", "fp8", "f8e4m3", Sq=90, Sk=100, D=64, **NAN),
]


# ---------------------------------------------------------------- numbers
def f32_bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def to_bf16(x):
    u = f32_bits(x)
    return (u + 0x7FFF + (u >> 16 & 1)) >> 16 & 0xFFFF


def f8_values(dtype):
    """What each byte means, OCP's."""
    out = []
    for i in range(128):
        if dtype == "f8e5m2":
            x = struct.unpack("<e", bytes((0, i)))[0]
        else:
            x = (i % 8 * 2.0 ** -9 if i < 8 else
                 (8 + i % 8) * 2.0 ** (i // 8 - 10) if i < 127 else math.nan)
        out.append(x)
    return out + [-x for x in out]


def to_f8(values, dtype):
    all = [x for x in f8_values(dtype)[:128] if math.isfinite(x)]
    out = bytearray()
    for v in values:
        if math.isnan(v):
            out.append(0x7f)
            continue
        i = bisect.bisect_left(all, abs(v))
        near = [k for k in (i - 1, i) if 0 <= k < len(all)]
        k = min(near, key=lambda k: (abs(abs(v) - all[k]), k % 2))
        out.append(k | (0x80 if math.copysign(1, v) < 0 else 0))
    return bytes(out)


def encode(values, dtype):
    if dtype.startswith("f8"):
        return to_f8(values, dtype)
    if dtype == "bf16":
        return array.array("H", [to_bf16(v) for v in values]).tobytes()
    if dtype == "i32":
        return struct.pack(f"<{len(values)}i", *values)
    return struct.pack(f"<{len(values)}{'e' if dtype == 'f16' else 'f'}",
                       *values)


def decode(data, dtype):
    if dtype.startswith("f8"):
        means = f8_values(dtype)
        return [means[x] for x in data]
    if dtype == "bf16":
        wide = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
        return struct.unpack(f"<{len(data) // 2}f", wide)
    size, code = {"f16": (2, "e"), "f32": (4, "f"), "i32": (4, "i")}[dtype]
    return struct.unpack(f"<{len(data) // size}{code}", data)


def error(got, ref):
    """NaN or inf at other places than in ref: inf."""
    finite = [r for r in ref if math.isfinite(r)]
    rms = math.sqrt(sum(r * r for r in finite) / len(finite)) if finite else 0
    worst = 0.0
    for g, r in zip(got, ref):
        if g == r or (math.isnan(g) and math.isnan(r)):
            continue
        if not (math.isfinite(g) and math.isfinite(r)):
            return math.inf
        worst = max(worst, abs(g - r) / (abs(r) + rms))
    return worst


# ---------------------------------------------------------------- .npy
def write_npy(path, data, shape, code):
    head = (f"{{'descr': '{code}', 'fortran_order': False, 'shape': "
            f"({', '.join(map(str, shape))}{',' if shape else ''}), }}")
    head += " " * (-(len(head) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) +
                     head.encode() + data)


def read_npy(path):
    b = path.read_bytes()
    return b[10 + struct.unpack_from("<H", b, 8)[0]:]


# ---------------------------------------------------------------- modules
SIZES = {"bf16": 2, "f16": 2, "bool": 1, "f8e4m3": 1, "f8e5m2": 1, "i64": 8}
SIZES = {**{"f32": 4, "i32": 4}, **SIZES}
CODES = {"i32": "<i4", "f8e4m3": "|u1", "f8e5m2": "|u1"}
PARAM = re.compile(r"%([\w.]+): (?:tensor<(\w+)\[(.*?)\]>|(\w+)) (\w+)")


class Phase:
    """One kernel of a module at level mach: its tensors, grid and threads."""

    def __init__(self, name, head, values):
        sign = head[head.index("(") + 1:head.index(") {")]
        sign, axes = sign.split(")\n", 1)
        self.symbol = "k_" + name.replace(".", "_")
        self.tensors, self.scalars = [], []
        for name, dtype, shape, scalar, role in PARAM.findall(sign):
            if scalar:
                self.scalars.append((name, scalar))
            else:
                ext = [value(e, values) for e in parts(shape)]
                self.tensors.append((name, dtype, ext, role))
        listed = axes[axes.index("(") + 1:axes.index(") grid")]
        ext = {a.split()[0]: a.split(None, 2)[2] for a in parts(listed)}
        self.tasks = 1
        for axis, tile in re.findall(r"(\w+):(\d+)", axes[axes.index("grid"):]):
            self.tasks *= -(-value(ext[axis], values) // int(tile))
        self.threads = int(re.search(r"threads = (\d+)", head)[1])


def parts(text):
    """What stands between commas that no parentheses enclose."""
    out, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            out.append("")
        else:
            out[-1] += c
    return out


def value(e, values):
    return int(eval(e, {"min": min, "max": max}, dict(values)))


class Program:
    """What a module at level mach says about its kernels."""

    def __init__(self, text, dims):
        self.dims = re.findall(r"^dim (\w+) (?!=)", text, re.M)
        self.values = {d: dims[d] for d in self.dims}
        for name, e in re.findall(r"^dim (\w+) = (.*)", text, re.M):
            self.values[name] = value(e, self.values)
        self.phases = [Phase(name, body, self.values) for name, body in
                       re.findall(r"^func program @([\w.]+)(.*?^})", text,
                                  re.M | re.S)]
        first = self.phases[0]
        self.tensors = [t for t in first.tensors if t[3] != "shared"]
        self.scalars = first.scalars
        self.workspace = sum(
            -(-math.prod(shape) * SIZES[dtype] // 64) * 64
            for _, dtype, shape, role in first.tensors if role == "shared")

    def block(self, phase, address, scalars, strides, workspace):
        """The parameter block of docs/abi.md."""
        b, given = b"", 0
        for name, _, shape, _ in self.tensors:
            b += struct.pack(f"<Q{2 * len(shape)}q", address[name], *shape,
                             *strides[name])
        for i, (name, dtype) in enumerate(self.scalars):
            v = scalars.get(name)
            given |= (v is not None) << i
            b += struct.pack("<fI" if dtype == "f32" else "<q",
                             *([v or 0, 0] if dtype == "f32" else [v or 0]))
        b += struct.pack("<Q", given)
        b += struct.pack(f"<{len(self.dims)}q",
                         *(self.values[d] for d in self.dims))
        b += struct.pack("<qQQ", phase.tasks, workspace, 0)
        return b + bytes(-len(b) % 64)


def tool(*args):
    got = subprocess.run(list(map(str, args)), capture_output=True)
    if got.returncode:
        raise RuntimeError(" ".join(map(str, args)) + "\n" +
                           got.stderr.decode())
    return got.stdout


def compile_case(case, target, tmp):
    tir = tmp / "k.tir"
    fixed = [f"{c}={case.dims[c]}" for c in case.consts] + [f"T={case.dtype}"]
    fixed = ["--dim", ",".join(fixed)]
    options = ["--strided"] * bool(case.turned)
    options += [f"--spare-regs={case.spare}"] * bool(case.spare)
    if options:
        attn = tmp / "attn.tir"
        attn.write_bytes(tool("attn-lower", case.path, "--fn", case.program, *fixed))
        tool("attn-opt", attn, "--pipeline=mach", f"--target={target}", *options,
             "-o", tir)
    else:
        tool("attnc", "--emit=mach", case.path, "--target", target,
             "--fn", case.program, *fixed, "-o", tir)
    (tmp / "k.hsaco").write_bytes(tool("attn-lower", tir, "--emit=hsaco"))
    info = tool("attn-lower", tir, "--emit=info").decode()
    prog = Program(tir.read_text(), case.dims)
    prog.when = [[int(w) for w in line.split()] for line in
                 re.findall(r"^  when (.*)$", info, re.M)]
    return prog, info


# ---------------------------------------------------------------- running
def make_inputs(case, prog):
    """The bytes the kernel reads, and their values."""
    rng = random.Random(case.name)
    out = {}
    for name, dtype, shape, role in prog.tensors:
        n = math.prod(shape)
        if role == "out":
            continue
        data = encode(case.inputs.get(name, normal)(rng, n), dtype)
        out[name] = data, decode(data, dtype)
    return out


def reference(case, prog, inputs, tmp):
    """The CPU's code on the same numbers, in f32 but for 8-bit floats."""
    own = case.dtype if case.dtype in CODES else "f32"
    args = []
    for name, dtype, shape, role in prog.tensors:
        path = tmp / f"{name}.npy"
        if name in inputs:
            kind = dtype if dtype in CODES else "f32"
            write_npy(path, encode(inputs[name][1], kind), shape,
                      CODES.get(kind, "<f4"))
            args += ["--in", f"{name}={path}"]
        if role != "in":
            args += ["--out", f"{name}={tmp / ('out-' + name)}.npy"]
    for k, v in case.sets.items():
        args += ["--set", f"{k}={v}"]
    fixed = [f"{c}={case.dims[c]}" for c in case.consts] + [f"T={case.dtype}"]
    fixed = ["--dim", ",".join(fixed)]
    tool("attnc", "run", case.path, "--quiet",
         "--fn", case.program, *fixed, f"--dim=T={own}", *args)
    return {name: decode(read_npy(tmp / f"out-{name}.npy"),
                         t if own != "f32" else "f32")
            for name, t, _, role in prog.tensors if role in ("out", "inout")}


def turned(data, dtype, shape):
    """The same array with its last two axes the other way round in memory."""
    size, (n, m) = SIZES[dtype], shape[-2:]
    out = bytearray(len(data))
    for at in range(0, len(data), n * m * size):
        for i in range(n):
            for j in range(m):
                x = at + (i * m + j) * size
                y = at + (j * n + i) * size
                out[y:y + size] = data[x:x + size]
    return bytes(out)


def holds(words, prog, strides):
    """Whether tensors are what a kernel wants (attn_abi.h, "expressions")."""
    stack, at = [], 0
    ops = {6: lambda x, y: x + y, 7: lambda x, y: x - y, 8: lambda x, y: x * y,
           9: lambda x, y: x // y, 10: lambda x, y: x % y, 11: min, 12: max,
           13: lambda x, y: x == y, 14: lambda x, y: x != y,
           15: lambda x, y: x < y, 16: lambda x, y: x <= y,
           17: lambda x, y: x and y, 18: lambda x, y: x or y}
    while at < len(words):
        op, at = words[at], at + 1
        if op in (4, 5):
            name, _, shape, _ = prog.tensors[words[at]]
            n, step = shape[words[at + 1]], strides[name][words[at + 1]]
            stack.append(n if op == 4 else step if n > 1 else 1)
            at += 2
        elif op in (1, 2):
            dims = list(prog.values.values())
            stack.append(words[at] if op == 1 else dims[words[at]])
            at += 1
        else:
            y, x = stack.pop(), stack.pop()
            stack.append(int(ops[op](x, y)))
    return bool(stack[0])


def launch(emu, prog, case, inputs, schedule):
    bufs, address, strides = {}, {}, {}
    for name, dtype, shape, role in prog.tensors:
        init = b"\xff" * (math.prod(shape) * SIZES[dtype])
        if name in inputs:
            init = inputs[name][0]
        dense = [math.prod(shape[i + 1:]) for i in range(len(shape))]
        if name in case.turned:
            init = turned(init, dtype, shape)
            dense[-2:] = 1, shape[-2]
        bufs[name] = emu.buffer(init)
        address[name], strides[name] = bufs[name].addr, dense
    for words in prog.when:
        if not holds(words, prog, strides):
            raise ValueError("the kernels are not made for these strides")
    space = emu.buffer(b"\xff" * (prog.workspace or 64))
    for p in prog.phases:
        if not p.tasks:
            continue
        block = prog.block(p, address, case.sets, strides, space.addr)
        emu.launch(p.symbol, (p.tasks, 1, 1), (p.threads, 1, 1),
                   [("raw", block.hex())], schedule=schedule, poison=True)
    return {n: decode(bufs[n].bytes(), d) for n, d, _, role in prog.tensors
            if role in ("out", "inout")}


def run_case(opt, harness, case, target):
    with tempfile.TemporaryDirectory() as d:
        tmp = pathlib.Path(d)
        prog, info = compile_case(case, target, tmp)
        made = re.findall(r"registers (\d+), spilled bytes (\d+)", info)
        inputs = make_inputs(case, prog)
        ref = reference(case, prog, inputs, tmp)
        emu = harness.Emu(opt.tinygrad, str(tmp / "k.hsaco"))
        worst, bad, start = {}, 0, time.time()
        for schedule in opt.schedules:
            got = launch(emu, prog, case, inputs, schedule)
            for name, dtype, _, role in prog.tensors:
                if role not in ("out", "inout"):
                    continue
                e = error(got[name], ref[name])
                tol = case.tol if dtype != "f32" else case.tol32 or opt.tol32
                bad += not e <= tol
                worst[name] = max(worst.get(name, 0), e)
    return {"ok": not bad, "errors": worst, "registers": max(int(r) for r, _ in made),
            "spilled": sum(int(b) for _, b in made), "seconds": round(time.time() - start, 1)}


def options():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--harness", required=True)
    p.add_argument("--tinygrad", required=True)
    p.add_argument("--target", default="gfx942,gfx950,gfx1100,gfx1201")
    p.add_argument("--case", default="")
    p.add_argument("--schedules", default=SCHEDULES)
    p.add_argument("--tol32", type=float, default=1e-5)
    p.add_argument("--list", action="store_true")
    p.add_argument("--json")
    p.add_argument("--timeout", type=int, default=400)
    p.add_argument("--mend", action="store_true")
    p.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    o = p.parse_args()
    o.schedules = o.schedules.split(",")
    return o


def one(opt, case):
    """In a process of its own: a memory fault ends it."""
    spec = importlib.util.spec_from_file_location("amd_emu", opt.harness)
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    try:
        return run_case(opt, harness, case, opt.target)
    except (RuntimeError, NotImplementedError, ValueError,
            harness.Missing) as e:
        return {"ok": False, "what": str(e)[:600]}


# Buffer accesses of one or two bytes, which it takes for those of four.
NARROW = [
    ("""      val = in_bounds.where(mem.index(word_addr.cast(dtypes.int64).valid(in_bounds)).load(), _c(0))
      stores""", """      val = in_bounds.where(mem.index(word_addr.cast(dtypes.int64).valid(in_bounds)).load(), _c(0))
      if 'SHORT' in op_name or 'BYTE' in op_name:
        assert op_name.endswith(('_USHORT', '_UBYTE')), op_name
        bit = (addr & UOp.const(3, dtypes.uint64)).cast(dtypes.uint32) * _c(8)
        val = (val >> bit) & _c(0xffff if 'SHORT' in op_name else 0xff)
      stores"""),
    ("""      stores.append(idx.store(in_bounds.where(_to_u32(val), idx)))
""", """      val = _to_u32(val)
      if 'SHORT' in op_name or 'BYTE' in op_name:
        if op_name.endswith('_D16_HI'): val = val >> _c(16)
        keep = _c(0xffff if 'SHORT' in op_name else 0xff)
        bit = (addr & UOp.const(3, dtypes.uint64)).cast(dtypes.uint32) * _c(8)
        old = in_bounds.where(idx, _c(0))
        val = (old & ((keep << bit) ^ _c(0xffffffff))) | ((val & keep) << bit)
      stores.append(idx.store(in_bounds.where(val, idx)))
""")]


# RDNA's accesses of raw buffers (OOB_SELECT 3): each word is compared with the
# size.
RDNA_AT = "_INST_HANDLERS[irc.MUBUF] = _compile_mubuf"
RDNA = """
def _compile_raw_buffer(inst, ctx):
  t, name, exec_mask = type(inst), _op_name(inst), ctx.rexec()
  new = hasattr(t, 'ioffset')
  store, size = 'STORE' in name, name.split('_')[-1]
  words = int(size[1:]) // 32 if size[0] == 'B' and int(size[1:]) >= 32 else 1
  small = int(size[1:]) if int(size[1:]) < 32 else 0
  assert ('D16' not in name or store) and 'LDS' not in name, name
  assert size[0] in 'BU', name
  srsrc = ctx.inst_field(t.rsrc) if new else ctx.inst_field(t.srsrc) * _c(4)
  soffset = ctx.inst_field(t.soffset)
  offset = ctx.inst_field(t.ioffset if new else t.offset)
  vdata, vaddr = ctx.inst_field(t.vdata), ctx.inst_field(t.vaddr)
  offen = ctx.inst_field(t.offen)
  base = _u64(ctx.rsgpr_dyn(srsrc), ctx.rsgpr_dyn(srsrc + _c(1)))
  base = base & UOp.const(0xFFFFFFFFFFFF, dtypes.uint64)
  records = ctx.rsgpr_dyn(srsrc + _c(2))
  lane = ctx.range()
  active = _lane_active(exec_mask, lane)
  soff = (soffset < _c(128)).where(ctx.rsgpr_dyn(soffset), soffset - _c(128))
  soff = soffset.ne(_c(124)).where(soff, _c(0))
  voff = offen.ne(_c(0)).where(ctx.rvgpr_dyn(vaddr, lane), _c(0)) + offset
  stores = []
  for i in range(words):
    at = voff + _c(4 * i)
    ok = active & at.__lt__(records - soff)
    addr = base + (at + soff).cast(dtypes.uint64)
    addr = ok.where(addr, UOp.const(0, dtypes.uint64))
    bit = (addr & UOp.const(3, dtypes.uint64)).cast(dtypes.uint32) * _c(8)
    keep = _c((1 << small) - 1)
    word = (addr >> UOp.const(2, dtypes.uint64)).cast(dtypes.int64)
    idx = ctx.vmem.index(word.valid(ok))
    if store:
      val = _to_u32(ctx.rvgpr_dyn(vdata + _c(i), lane))
      if small:
        if 'D16_HI' in name: val = val >> _c(16)
        old = ok.where(idx, _c(0))
        val = (old & ((keep << bit) ^ _c(0xffffffff))) | ((val & keep) << bit)
      stores.append(idx.store(ok.where(val, idx)))
    else:
      val = ok.where(idx.load(), _c(0))
      if small: val = (val >> bit) & keep
      stores.append(ctx.wvgpr_dyn(vdata + _c(i), lane, val, exec_mask))
  return UOp.sink(UOp.group(*stores).end(lane), *ctx.inc_pc())

from tinygrad.renderer.amd import _load_formats
for _arch, _t in (("rdna3", ir3.MUBUF), ("rdna4", ir4.VBUFFER)):
  _INST_HANDLERS[_t] = _compile_raw_buffer
  if _t not in _load_formats()[_arch]: _load_formats()[_arch].insert(0, _t)
"""


def mend(tinygrad):
    path = pathlib.Path(tinygrad) / "test/mockgpu/amd/emu.py"
    was = text = path.read_text()
    for old in ("bits['d'] == 16 and (vdst_reg >=",
                "bits['s0'] == 16 and (vsrc1_reg >=",
                "bits['s0'] == 16:\n      vsrc1_hi =",
                "bits['s0'] == 16:  # src0 >= 384"):
        if "ctx.wave_size == 32 and " + old not in text:
            text = text.replace(old, "ctx.wave_size == 32 and " + old)
    for old, new in NARROW:
        if new not in text:
            text = text.replace(old, new)
    if RDNA not in text:
        at = text.index("\n", text.index(RDNA_AT))
        text = text[:at] + "\n" + RDNA + text[at:]
    if text != was:  # others may be reading it
        whole = path.with_name(f"emu.{os.getpid()}")
        whole.write_text(text)
        whole.replace(path)


def isolated(opt, case, target):
    try:
        return in_process(opt, case, target)
    except subprocess.TimeoutExpired:
        return {"ok": False, "what": "takes too long"}


def in_process(opt, case, target):
    got = subprocess.run(
        [sys.executable, __file__, "--harness", opt.harness, "--tinygrad",
         opt.tinygrad, "--target", target, "--case", case.name, "--schedules",
         ",".join(opt.schedules), "--tol32", str(opt.tol32), "--one"],
        capture_output=True, text=True, timeout=opt.timeout)
    last = got.stdout.strip().split("\n")[-1]
    if got.returncode or not last.startswith("{"):
        return {"ok": False, "what": f"exit {got.returncode}: "
                f"{got.stderr.strip()[-300:]}"}
    return json.loads(last)


def main():
    opt = options()
    cases = [c for c in CASES
             if not opt.case or any(n in c.name for n in opt.case.split(","))]
    if opt.list:
        print("\n".join(c.name for c in cases))
        return 0
    if opt.mend:
        mend(opt.tinygrad)
    if opt.one:
        print(json.dumps(one(opt, cases[0])))
        return 0
    bad, rows = 0, []
    for target in opt.target.split(","):
        for case in cases:
            r = {"case": case.name, "target": target,
                 **isolated(opt, case, target)}
            rows.append(r)
            bad += not r["ok"]
            errors = " ".join(f"{k} {v:.2g}"
                              for k, v in r.get("errors", {}).items())
            print(f"{'ok  ' if r['ok'] else 'BAD '} {target} {case.name}: "
                  f"{errors or r.get('what')} "
                  f"spilled {r.get('spilled')}, {r.get('seconds')} s",
                  flush=True)
    if opt.json:
        pathlib.Path(opt.json).write_text(json.dumps(rows, indent=1))
    print(f"{len(rows)} cases, {bad} bad")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
