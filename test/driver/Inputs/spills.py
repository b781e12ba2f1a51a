# What ptxas says of programs of the library for sm_90a.
#   spills.py [-T DTYPE] FOLDER [PROGRAM:DIMS ..]
# Without programs: all, each head size; DTYPE: bf16 unless said. All bodies of a
# program: of few tasks, of single steps, of tensors of any strides.
import os
import re
import shutil
import subprocess
import sys
import tempfile

# What attnc says of a kernel that stays with flaws, and of each that ptxas saw.
STAYS = r"(\w+) for sm_90a: (\d+) bytes stay spilled(, products are serialized|, warning C\d+)?"
SEEN = r"ptxas: (\w+) for sm_90a"


def programs(folder):
    for file in sorted(f for f in os.listdir(folder) if f.endswith(".attn")):
        path = os.path.join(folder, file)
        for name, rest in re.findall(r"^(?:attention|recurrent) (\w+)<(.*?)>\n", open(path)
                                     .read(), re.M | re.S):
            consts = re.findall(r"(\w+): const \{([\d, ]+)\}", rest)
            yield path, name, [(d, v.split(", ")) for d, v in consts]


def variants(consts):
    if not consts:
        return [""]
    (dim, values), more = consts[0], variants(consts[1:])
    return [f"{dim}={v}" + ("," + m if m else "") for v in values for m in more]


def report(path, name, dims, dtype, out):
    typed = f" {name}<T" in open(path).read()
    if not typed and dtype != "bf16":
        return None
    cmd = ["attnc", path, "--fn", name, "--target", "sm_90a", "--remarks",
           "--max-seconds=600", "-o", out]
    cmd += ["-D", "T=" + dtype] if typed else []
    cmd += ["-D", dims] if dims else []
    done = subprocess.run(cmd, capture_output=True, text=True)
    if "no choice of the const dims" in done.stderr:
        return None
    kernels = set(re.findall(SEEN, done.stderr))
    stays = re.findall(STAYS, done.stderr)
    ok = kernels and not stays and not done.returncode
    text = "; ".join(f"{k}: {n} spilled{more}" for k, n, more in stays)
    print(f"{name}:{dims} {len(kernels)} kernels" +
          ("" if ok else f" FLAW: {text or done.stderr[:200]}"), flush=True)
    return not ok


def main():
    args = sys.argv[1:]
    dtype = "bf16"
    if args[0] == "-T":
        dtype, args = args[1], args[2:]
    folder, asked = args[0], args[1:]
    n = bad = 0
    out = os.path.join(tempfile.mkdtemp(), "out.o")
    for path, name, consts in programs(folder):
        for dims in variants(consts):
            what = f"{name}:{dims}"
            if asked and what not in asked:
                continue
            flawed = report(path, name, dims, dtype, out)
            n += flawed is not None
            bad += bool(flawed)
    shutil.rmtree(os.path.dirname(out))
    print(f"{n} programs, {bad} with flaws")


if __name__ == "__main__":
    main()
