# What ptxas says of programs of the library for sm_90a, bf16.
#   spills.py FOLDER [PROGRAM:DIMS ..]    without programs: all, each head size
import os
import re
import subprocess
import sys

# Known to spill (docs/recurrent.md, GPUs).
KNOWN = ("hgrn2:D=128", "kda:D=128", "lightning:D=128,Dv=128",
         "linear_normalized:D=128", "mamba2:N=128", "mlstm:",
         "mlstm_sigmoid:D=128", "packed_delta:D=128", "packed_gla",
         "retnet:D=128,Dv=128", "rwkv6:D=128")
# explain's line: bytes, then what is wrong besides.
LINE = r"launch, (.*) spilled(, products serialized)?"


def programs(folder):
    for file in sorted(os.listdir(folder)):
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


def report(path, name, dims):
    text = open(path).read()
    dtype = ["-D", "T=bf16"] if f" {name}<T" in text else []
    cmd = ["attnc", "explain", path, "--fn", name, "--target", "sm_90a", *dtype]
    cmd += ["-D", dims] if dims else []
    done = subprocess.run(cmd, capture_output=True, text=True)
    if "no choice of the const dims" in done.stderr:
        return None
    spilled = re.findall(LINE, done.stdout)
    shared = re.findall(r"shared +(.*) of shared memory", done.stdout)
    ok = bool(spilled) and all(a == "0.00 B" and not b for a, b in spilled)
    text = "; ".join(f"{a} spilled{b}" for a, b in spilled)
    print(f"{name}:{dims} {text or done.stderr[:200]}, {'; '.join(shared)} "
          "bytes of shared memory" + ("" if ok else " FLAW"), flush=True)
    return ok


asked = sys.argv[2:]
n = bad = 0
for path, name, consts in programs(sys.argv[1]):
    for dims in variants(consts):
        what = f"{name}:{dims}"
        if asked and what not in asked:
            continue
        ok = report(path, name, dims)
        known = any(what.startswith(k) for k in KNOWN)
        n += ok is not None
        bad += ok is False and not known
print(f"{n} programs, {bad} with flaws")
