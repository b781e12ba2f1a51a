"""What objects export and refer to, and that all of it may be anywhere: five
names a program, calls of the runtime, memcpy and memset. usage: STDLIB OUT.o"""
import pathlib
import re
import subprocess
import sys

std, out = pathlib.Path(sys.argv[1]), sys.argv[2]
RUNTIME = {"attn_call", "attn_args_init", "attn_args_workspace",
           "attn_tvm_ffi", "memcpy", "memset"}
# Kinds of relocations, and the only one that stands for a whole address.
KINDS = {
    "x86_64": ({"R_X86_64_PC32", "R_X86_64_PLT32"}, "R_X86_64_64"),
    "aarch64": ({"R_AARCH64_CALL26", "R_AARCH64_JUMP26",
                 "R_AARCH64_ADR_PREL_PG_HI21", "R_AARCH64_ADD_ABS_LO12_NC",
                 "R_AARCH64_LDST8_ABS_LO12_NC", "R_AARCH64_LDST16_ABS_LO12_NC",
                 "R_AARCH64_LDST32_ABS_LO12_NC",
                 "R_AARCH64_LDST64_ABS_LO12_NC",
                 "R_AARCH64_LDST128_ABS_LO12_NC"}, "R_AARCH64_ABS64"),
}


def said(*args):
    return subprocess.run([str(a) for a in args], capture_output=True,
                          text=True, check=True).stdout


def check(file, dims, targets, programs):
    said("attnc", std / file, "--prefix", "p", "--target", targets, "-o", out,
         "-D", dims, "--no-cache", "-q")
    symbols = said("llvm-nm", "--extern-only", out).splitlines()
    defined = {s.split()[-1] for s in symbols if " U " not in s}
    needed = {s.split()[-1] for s in symbols if " U " in s}
    want = {f"p_{p}{end}" for p in programs
            for end in ("", "_args_init", "_program", "_workspace")}
    want |= {f"__tvm_ffi_p_{p}" for p in programs}
    assert defined == want, (file, defined ^ want)
    assert needed <= RUNTIME, (file, needed - RUNTIME)
    kinds, whole = KINDS["aarch64" if "aarch64" in targets else "x86_64"]
    text = said("readelf", "-rW", out)
    for section in re.split(r"^Relocation section ", text, flags=re.M)[1:]:
        name = re.match(r"'\.rela(\S+)'", section)[1]
        have = set(re.findall(r"R_[A-Z0-9_]+", section))
        may = {whole} if name.startswith(".data.rel.ro") else kinds
        assert have <= may, (file, name, have - may)
    sections = re.findall(r"\] (\.\S+) +\S+ +\S+ \S+ (\S+) \S+ +(\w*) ",
                          said("readelf", "-SW", out))
    for name, size, flags in sections:
        assert "W" not in flags or name.startswith(".data.rel.ro") or \
            not int(size, 16), (file, name, flags)
        assert not {"W", "X"} <= set(flags), (file, name, flags)
    assert any(n == ".note.GNU-stack" for n, _, _ in sections), file
    return len(defined)


count = check("attention/mha.attn", "T=f32,D=64",
              "cpu:x86-64,cpu:x86-64-v3,sm_90a",
              ["mha_f32", "mha_causal_f32"])
count += check("attention/mha.attn", "T=f32,D=128", "cpu:aarch64",
               ["mha_f32", "mha_causal_f32"])
count += check("recurrent/gla.attn", "T=f32,D=64,Dv=64", "cpu:x86-64-v4",
               ["gla_f32"])
print(count, "names, all relocatable")
