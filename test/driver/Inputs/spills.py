# What ptxas says of programs of the library for sm_90a.
#   spills.py [-T DTYPE] FOLDER [PROGRAM:DIMS ..]
# Without programs: all, each head size; DTYPE: bf16 unless said.
import os
import re
import subprocess
import sys

UNITS = {"B": 1, "kB": 1000, "MB": 1000000}
# explain's line: bytes, then what is wrong besides.
LINE = r"launch, (.*) spilled(, products serialized|, warning C\d+)?"


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


def bytes_of(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def report(path, name, dims, dtype):
    text = open(path).read()
    if f" {name}<T" not in text and dtype != "bf16":
        return None
    dtype = ["-D", "T=" + dtype] if f" {name}<T" in text else []
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
    serial = not spilled or any(b for _, b in spilled)
    return float("inf") if serial else sum(bytes_of(a) for a, _ in spilled)


def main():
    args = sys.argv[1:]
    dtype = "bf16"
    if args[0] == "-T":
        dtype, args = args[1], args[2:]
    folder, asked = args[0], args[1:]
    n = bad = 0
    for path, name, consts in programs(folder):
        for dims in variants(consts):
            what = f"{name}:{dims}"
            if asked and what not in asked:
                continue
            spilled = report(path, name, dims, dtype)
            n += spilled is not None
            bad += spilled is not None and spilled > 0
    print(f"{n} programs, {bad} with flaws")


if __name__ == "__main__":
    main()
