"""Code objects for programs of the library: every one is compiled, assembled and
linked; what its metadata says of registers, scratch memory and LDS.

    objects.py STDLIB [--all] [--both] [--check] [PROGRAM[:DIMS[:TARGET]] ..]

Without programs: all, each for all targets, head sizes in turn; --all: all head
sizes. --both: also the second kernels, for tensors of
any strides. A flaw is scratch memory, or registers or LDS beyond what leaves two
workgroups on a CU; KNOWN programs have some."""
import concurrent.futures
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

TARGETS = {"gfx90a": 64, "gfx942": 64, "gfx950": 160, "gfx1100": 64, "gfx1201": 64}
# Too many sums, scalars or computed keys for the registers of a lane, and two
# tiles that do not fit 64 KiB. Of recurrences scratch memory is only told.
KNOWN = {"mla_decode": "gfx", "mla_prefill": "gfx11", "qk_norm": "gfx",
         "packed": "gfx1", "paged_decode": "gfx11", "nsa:D=128": "gfx1",
         "differential": "gfx11", "retention:D=256,Dv=256": "gfx1",
         "retention:D=256,Dv=512": "gfx1"}


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


def is_known(name, what, target, recurrent):
    return recurrent or any(
        target.startswith(t) and (name == k or what.startswith(k + ":"))
        for k, t in KNOWN.items())


def report(job, both):
    path, name, typed, dims, target, recurrent = job
    what = f"{name}:{dims}:{target}"
    with tempfile.TemporaryDirectory() as d:
        out = pathlib.Path(d) / "k.o"
        args = ["attnc", path, "--fn", name, "--target", target, "-o", out]
        args += ["--dim=T=bf16"] if typed else []
        args += [f"--dim={dims}"] if dims else []
        done = subprocess.run(args + ([] if both else ["--emit=hsaco"]),
                              capture_output=True, text=True)
        if done.returncode:
            if "no choice of the const dims" in done.stderr:
                return None, ""
            return False, f"{what} {done.stderr.splitlines()[0]}"
        ok, text = True, []
        for i, code in enumerate(objects(out.read_bytes())):
            for _, regs, scratch, lds in kernels(code, d):
                lone = int(regs) > 256 or int(lds) > TARGETS[target] * 512
                ok &= int(scratch) == 0 and int(lds) <= TARGETS[target] << 10
                text.append(f"{regs} registers, {scratch} scratch, {lds} LDS"
                            + (", alone on its CU" if lone else ""))
    known = is_known(name, what, target, recurrent)
    flaw = "" if ok else " known" if known else " FLAW"
    return ok or known, f"{what} {'; '.join(text)}{flaw}"


def jobs(std, everything, asked):
    for i, (path, name, typed, dims, rec) in enumerate(programs(std)):
        all_sizes = list(sizes(dims))
        for k, target in enumerate(TARGETS):
            for s, size in enumerate(all_sizes):
                what = f"{name}:{size}:{target}"
                if asked and not any((what + ":").startswith(a + ":")
                                     for a in asked):
                    continue
                if asked or everything or s == (i + k) % len(all_sizes):
                    yield path, name, typed, size, target, rec


def main():
    flags = [a for a in sys.argv[2:] if a.startswith("--")]
    asked = [a for a in sys.argv[2:] if not a.startswith("--")]
    work = list(jobs(sys.argv[1], "--all" in flags, asked))
    n = bad = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for ok, text in pool.map(lambda j: report(j, "--both" in flags), work):
            if ok is None:
                continue
            print(text, flush=True)
            n += 1
            bad += not ok
    print(f"{n} programs and targets, {bad} with flaws")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
