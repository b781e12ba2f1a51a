"""Code objects for programs of the library: every one is compiled, assembled and
linked; what its metadata says of registers, scratch memory and LDS, and of the
innermost loop that has most of them, matrix instructions and all instructions.

    objects.py STDLIB [--all] [--few] [--both] [--record] [PROGRAM[:DIMS[:TARGET]] ..]

Without programs: all, each for a target of each generation, these and head sizes in
turn; --few: of one generation, in turn; --all: all targets and head sizes. --both: also the second kernels, for tensors of any strides. Flaws are
scratch memory, but of KNOWN programs and recurrences, more LDS than there is, and
what is worse than objects.txt says, where it has a line: more scratch memory,
fewer workgroups on a CU, REGISTERS more registers or a loop LONGER (a factor).
--record writes what is found there."""
import concurrent.futures
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

TARGETS = {"gfx90a": 64, "gfx942": 64, "gfx950": 160, "gfx1100": 64, "gfx1201": 64}
GENERATIONS = [["gfx90a", "gfx942"], ["gfx950"], ["gfx1100", "gfx1201"]]
BUDGET = pathlib.Path(__file__).with_name("objects.txt")
REGISTERS, LONGER = 16, 1.1
SCRATCH = re.compile(r"^\t(scratch_|buffer_\w+ [^/]*\boff, s\[)", re.M)
# Why there is scratch memory is in docs/amd.md.
KNOWN = {"nsa:D=128": "gfx1", "topk_index:D=128": "gfx1", "mxfp4_decode": "gfx", "nvfp4_decode": "gfx"}


def programs(std):
    """(file, program, has T, [(dim, values)], recurrent)"""
    for path in sorted(pathlib.Path(std).glob("*/*.attn")):
        for kind, name, rest in re.findall(
                r"^(attention|recurrent) (\w+)<(.*?)>\n", path.read_text(),
                re.M | re.S):
            dims = re.findall(r"(\w+): const \{([\d, ]+)\}", rest)
            yield (path, name, "T: dtype" in rest,
                   [(d, v.split(", ")) for d, v in dims], kind == "recurrent")


def sizes(dims):
    most = max((len(v) for _, v in dims), default=1)
    for i in range(most):
        yield ",".join(f"{d}={v[min(i, len(v) - 1)]}" for d, v in dims)


def recorded():
    return dict(line.split(" ", 1) for line in BUDGET.read_text().splitlines()
                if line[:1] != "#")


def record(found):
    """Lines of other programs stay."""
    lines = {**recorded(), **dict(found)}
    head = [x for x in BUDGET.read_text().splitlines() if x[:1] == "#"]
    BUDGET.write_text("\n".join(head + [f"{k} {v}" for k, v in
                                        sorted(lines.items())]) + "\n")


def objects(data):
    """The ELF files of AMD inside a file."""
    at = -1
    while (at := data.find(b"\x7fELF\2\1\1\x40", at + 1)) >= 0:
        end, = struct.unpack_from("<Q", data, at + 40)
        count, = struct.unpack_from("<H", data, at + 60)
        yield data[at:at + end + 64 * count]


def kernels(code, folder):
    path = pathlib.Path(folder) / "k.hsaco"
    path.write_bytes(code)
    notes = subprocess.run(["llvm-readobj-22", "--notes", path],
                           capture_output=True, text=True, check=True).stdout
    fields = ("name", "vgpr_count", "private_segment_fixed_size",
              "group_segment_fixed_size")
    found = [re.findall(rf"^ +(?:- )?\.{f}: +(\S+)$", notes, re.M)
             for f in fields]
    assert len(set(map(len, found))) == 1 and found[0]
    return list(zip(*found))


def loops(path):
    """Of each kernel's innermost loop with most matrix instructions: those, and
    all; whether the kernel touches scratch memory: what is set aside for
    scalars may lie in lanes of registers."""
    text = subprocess.run(["llvm-objdump-22", "-d", path], capture_output=True,
                          text=True, check=True).stdout
    for body in re.split(r"^[0-9a-f]+ <\w+>:$", text, flags=re.M)[1:]:
        code = re.findall(r"^\t(\w+).*// ([0-9A-F]+):.*?(?:<\w+\+0x(\w+)>)?$",
                          body, re.M)
        at = [int(x[1], 16) for x in code]
        back = []
        for i, (op, _, to) in enumerate(code):
            first = at[0] + int(to, 16) if to else at[i] + 1
            if op.startswith("s_cbranch") and first <= at[i]:
                back.append((at.index(first), i))
        inner = [(a, b) for a, b in back
                 if not any(a <= c and d < b for c, d in back)]
        best = (0, 0)
        for a, b in inner:
            products = sum(x[0].startswith(("v_mfma", "v_wmma"))
                           for x in code[a:b + 1])
            best = max(best, (products, a - b - 1))
        yield best[0], -best[1] if best[0] else 0, bool(SCRATCH.search(body))


def is_known(name, what, target, recurrent):
    return recurrent or any(
        target.startswith(t) and (name == k or what.startswith(k + ":"))
        for k, t in KNOWN.items())


def is_alone(target, regs, lds):
    """One workgroup takes a CU, on RDNA a pair of them."""
    share = 1024 if target.startswith("gfx1") else 512
    return regs > 256 or lds > TARGETS[target] * share


def numbers(text):
    return [[int(x) for x in re.findall(r"\d+", k)] for k in text.split("; ")]


def worse(target, was, now):
    """What of a kernel is worse than recorded."""
    if was is None:
        return ""
    was, now = numbers(was), numbers(now)
    if len(was) != len(now):
        return "other kernels"
    for (r, s, l, p, n), (r2, s2, l2, p2, n2) in zip(was, now):
        if s2 > s:
            return f"more scratch than {s}"
        if is_alone(target, r2, l2) > is_alone(target, r, l):
            return "alone on its CU"
        if r2 > r + REGISTERS:
            return f"more registers than {r}"
        if p and n2 * p > n * p2 * LONGER:
            return f"a longer loop than {p} of {n}"
    return ""


def report(job, both):
    path, name, typed, dims, target, recurrent = job
    what = f"{name}:{dims}:{target}"
    with tempfile.TemporaryDirectory() as d:
        out = pathlib.Path(d) / "k.o"
        args = ["attnc", path, "--fn", name, "--target", target, "-o", out,
                "--max-seconds=300"]  # topk_index, D 128, gfx1100: 85 s
        args += ["--dim=T=bf16"] if typed else []
        args += [f"--dim={dims}"] if dims else []
        done = subprocess.run(args + ([] if both else ["--emit=hsaco"]),
                              capture_output=True, text=True)
        if done.returncode:
            if "no choice of the const dims" in done.stderr:
                return what, None, ""
            return what, done.stderr.splitlines()[0], "fails"
        flaw, text = "", []
        for code in objects(out.read_bytes()):
            found = kernels(code, d)
            for (_, regs, scratch, lds), (p, n, touched) in zip(
                    found, loops(pathlib.Path(d) / "k.hsaco")):
                scratch = scratch if touched else "0"
                if int(scratch) and not is_known(name, what, target,
                                                     recurrent):
                    flaw = "scratch"
                if int(lds) > TARGETS[target] << 10:
                    flaw = "LDS"
                text.append(f"{regs} registers, {scratch} scratch, {lds} LDS, "
                            f"loop {p} of {n}")
    return what, "; ".join(text), flaw


def jobs(std, everything, few, asked):
    for i, (path, name, typed, dims, rec) in enumerate(programs(std)):
        all_sizes = list(sizes(dims))
        some = [of[i % len(of)] for g, of in enumerate(GENERATIONS)
                if not few or g == i % len(GENERATIONS)]
        for k, target in enumerate(TARGETS):
            for s, size in enumerate(all_sizes):
                what = f"{name}:{size}:{target}"
                if asked and not any((what + ":").startswith(a + ":")
                                     for a in asked):
                    continue
                turn = target in some and s == (i + k) % len(all_sizes)
                if asked or everything or turn:
                    yield path, name, typed, size, target, rec


def main():
    flags = [a for a in sys.argv[2:] if a.startswith("--")]
    asked = [a for a in sys.argv[2:] if not a.startswith("--")]
    both, table = "--both" in flags, recorded()
    work = jobs(sys.argv[1], "--all" in flags, "--few" in flags, asked)
    found, bad = [], 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for what, text, flaw in pool.map(lambda j: report(j, both), work):
            if text is None:
                continue
            if not flaw and not both and "--record" not in flags:
                flaw = worse(what.split(":")[-1], table.get(what), text)
            print(what, text, f"FLAW: {flaw}" if flaw else "", flush=True)
            found.append((what, text))
            bad += flaw != ""
    if "--record" in flags:
        record(found)
    print(f"{len(found)} programs and targets, {bad} with flaws")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
