#!/usr/bin/env python3
"""Looks in machine code for registers of a wgmma that change in its flight.

    tools/bench/gpu/hazards.py [--attnc PATH] [--nvdisasm PATH]
                               FILE .. [-- OPTION OF ATTNC ..]

A wgmma is asynchronous: from its issue to the wait that covers it nothing may
write its accumulators or the registers of its A operand, nor read the
accumulators (PTX ISA, wgmma.mma_async). ptxas 13 does write there: a constant
word of A moved to its register behind the product (docs/gpu/ptxas.md). Such a
kernel is wrong only sometimes, so no run of it tells.

FILE is a program, compiled for sm_90a with the options; or holds cubins
(cubin, container, object, library, as prep.py and check.py --prep make them);
or is a listing (.sass) of `nvdisasm -c -lrm narrow`, whose columns tell what
each instruction reads and writes. Exit code: 1 if something was found.

Looked for too: descriptors whose high half, a constant, is what a wide product
has left there.

How: from each product along all ways through the code, as far as it may be in
flight. A product is the older the more groups (gsb0) were closed since its
issue; WARPGROUP.DEPBAR.LE gsb0, N ends those older than N; where ways meet, it
is as young as on the youngest."""
import argparse
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
EM_CUDA = 190
LINE = re.compile(r"\s+/\*([0-9a-f]+)\*/\s+((?:@\S+ )?\s*\S.*?) *;\s*// \|(.*)")
OLD = 8                      # ages above are one: no code waits for so many


class Op:
    def __init__(self, at, text, marks):
        self.at, self.text = at, " ".join(text.split())
        words = self.text.split(maxsplit=1)
        self.guarded = words[0][0] == "@"
        self.name, _, self.operands = \
            (words[1] if self.guarded else self.text).partition(" ")
        if self.name.startswith("CALL"):  # what is marked is what it may use
            marks = ""
        self.writes = {r for r, m in enumerate(marks) if m in "^x"}
        self.reads = {r for r, m in enumerate(marks) if m in "vx"}
        self.product = "GMMA." in self.name
        self.closes = self.product and "gsb0" in self.operands
        self.next = []


def kernels(listing):
    """(name, instructions) of each section of code."""
    name, ops, labels, base = "", [], {}, None
    for line in listing.split("\n"):
        if ".section" in line:
            if ops:
                yield name, link(ops, labels)
            name, ops, labels = line.split(",")[0].split(".text.")[-1], [], {}
        elif re.search(r"\| +# 0123", line):
            base = line.index("# 0") + 2
        elif re.match(r"\S+:", line):
            labels[line.split(":")[0]] = len(ops)
        elif m := LINE.match(line):
            end = line.index("|", m.start(3))
            ops.append(Op(m[1], m[2], line[base:end]))
    if ops:
        yield name, link(ops, labels)


def link(ops, labels):
    """Where each instruction goes on. BSYNC does at the label of the BSSY
    above it, CALL also behind itself."""
    joins = {}
    for i, op in enumerate(ops):
        kind = op.name.split(".")[0]
        goes = re.search(r"`\((.*?)\)", op.operands)
        goal = labels.get(goes and goes[1])
        if kind == "BSSY":
            joins[op.operands.split(",")[0]] = goal
        if kind == "BSYNC":
            goal = joins.get(op.operands)
        if goal is not None and kind in ("BRA", "CALL", "BSYNC", "JMP"):
            op.next.append(goal)
        leaves = kind in ("EXIT", "RET", "JMP") or goal is not None and (
            kind == "BSYNC" or op.name == "BRA" and op.operands[0] == "`")
        if (op.guarded or not leaves) and i + 1 < len(ops):
            op.next.append(i + 1)
    return ops


def after(i, op, flying):
    """{product: age} behind op, given what it is before."""
    wait = re.match(r"gsb0, (0x[0-9a-f]+)", op.operands)
    if op.name.startswith("WARPGROUP.DEPBAR") and wait:
        return {p: a for p, a in flying.items() if a <= int(wait[1], 16)}
    if not op.product:
        return flying
    return {p: min(a + op.closes, OLD) for p, a in {**flying, i: 0}.items()}


def flights(ops):
    """What is in flight in front of each instruction."""
    before = [{} for _ in ops]
    work = [i for i, op in enumerate(ops) if op.product]
    while work:
        i = work.pop()
        out = after(i, ops[i], before[i])
        for n in ops[i].next:
            had = before[n]
            both = {**out, **had}
            both = {p: min(out.get(p, OLD), had.get(p, OLD)) for p in both}
            if both != had:
                before[n] = both
                work.append(n)
    return before


def clash(op, p):
    """Registers that op must leave alone while p is in flight."""
    sums, source = p.writes, p.reads - p.writes
    if op.product and op.writes == sums:     # products of a sum are in order
        return op.writes & source | (op.reads - op.writes) & sums
    return op.writes & (sums | source) | op.reads & sums


def halves(op):
    """The uniform registers of a product's descriptors' high halves."""
    at = re.search(r"gdesc\[UR(\d+)\]", op.operands)
    if not op.product or not at:
        return []
    both = not re.match(r"R\d+, R\d+", op.operands)
    return [int(at[1]) + k for k in ([1, 3] if both else [3])]


def made(op, ur):
    """Does op write the uniform register, as the second of a pair or alone?"""
    first = re.match(r"UR(\d+)\b", op.operands)
    wide = ".WIDE" in op.name or ".64" in op.name
    return first and int(first[1]) in (ur, ur - wide)


def lost(ops):
    """Descriptors without a high half: (product, what wrote it)."""
    for i, op in enumerate(ops):
        for ur in halves(op):
            by = next((o for o in reversed(ops[:i]) if made(o, ur)), None)
            if by and by.name.startswith("UIMAD.WIDE"):
                yield op, by


def hazards(ops):
    for op, flying in zip(ops, flights(ops)):
        for p in sorted(flying):
            if found := clash(op, ops[p]):
                yield op, ops[p], found


# ---------------------------------------------------------------- files
def cubins(data):
    at = data.find(b"\x7fELF\x02\x01")
    while at >= 0:
        if struct.unpack_from("<H", data, at + 18)[0] == EM_CUDA:
            heads = struct.unpack_from("<QQ", data, at + 32)
            sizes = struct.unpack_from("<HHHH", data, at + 54)
            end = max(heads[0] + sizes[0] * sizes[1],
                      heads[1] + sizes[2] * sizes[3])
            yield data[at:at + end]
        at = data.find(b"\x7fELF\x02\x01", at + 4)


def compiled(a, path, folder):
    out = os.path.join(folder, "container")
    subprocess.run([a.attnc, path, "--target", "sm_90a", "--emit=container",
                    "-q", "-o", out, *a.options], check=True)
    return out


def listings(a, path):
    if path.endswith(".sass"):
        with open(path) as f:
            yield f.read()
        return
    with tempfile.TemporaryDirectory() as folder:
        if path.endswith(".attn"):
            path = compiled(a, path, folder)
        with open(path, "rb") as f:
            data = f.read()
        for image in cubins(data):
            file = os.path.join(folder, "cubin")
            with open(file, "wb") as f:
                f.write(image)
            yield subprocess.run([a.nvdisasm, "-c", "-lrm", "narrow", file],
                                 check=True, capture_output=True,
                                 text=True).stdout


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--attnc", default=os.path.join(TOP, "build/bin/attnc"))
    ap.add_argument("--nvdisasm", default="nvdisasm")
    ap.add_argument("files", nargs="+")
    args = sys.argv[1:]
    cut = args.index("--") if "--" in args else len(args)
    a = ap.parse_args(args[:cut])
    a.options = args[cut + 1:]
    if not all(f.endswith(".sass") for f in a.files) and \
            not shutil.which(a.nvdisasm):
        sys.exit("there is no " + a.nvdisasm + ": it comes with CUDA's "
                 "toolkit, and by pip as nvidia-cuda-nvdisasm")
    code = products = found = 0
    for path in a.files:
        for listing in listings(a, path):
            for name, ops in kernels(listing):
                code += 1
                products += sum(op.product for op in ops)
                for op, by in lost(ops):
                    found += 1
                    print(f"{path}: {name}: {op.at}: {op.text}: half of it is "
                          f"of {by.at}: {by.text}", flush=True)
                for op, p, regs in hazards(ops):
                    found += 1
                    names = " ".join(f"R{r}" for r in sorted(regs))
                    print(f"{path}: {name}: {op.at}: {op.text}: {names} "
                          f"of {p.at}: {p.text}", flush=True)
    print(f"{code} kernels, {products} products, {found} hazards")
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
