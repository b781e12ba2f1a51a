"""What a driver and a device read of an AMD code object, as one line a fact.

    metadata.py MODULE.tir LIBRARY_FILE PROGRAM TARGET DIM=N ..

Compiles PROGRAM, then checks its metadata against what launches rely on: one
argument by value at offset 0 that is the parameter block, aligned to 64."""
import re
import subprocess
import sys


def tool(*args):
    return subprocess.run(args, capture_output=True, check=True).stdout


module, file, program, target, *dims = sys.argv[1:]
tool("attnc", "--emit=mach", file, "--target", target, "--fn", program,
     *(f"--dim={d}" for d in dims), "-o", module)
path = module + ".hsaco"
with open(path, "wb") as f:
    f.write(tool("attn-lower", module, "--emit=hsaco"))
info = tool("attn-lower", module, "--emit=info").decode()
notes = tool("llvm-readobj-22", "--notes", path).decode()
code = tool("llvm-objdump-22", "-d", path).decode()
fact = dict(re.findall(r"\.(\w+): +(\S+)", notes))
block = int(re.search(r"block (\d+)", info)[1])
threads = int(re.search(r"threads (\d+)", info)[1])

assert re.search(r"amdhsa.target: +amdgcn-amd-amdhsa--" + target, notes)
assert fact["name"] == f"k_{program}" and fact["symbol"] == f"k_{program}.kd"
assert notes.count(".value_kind") == 1 and fact["value_kind"] == "by_value"
assert "hidden_" not in notes and fact["uses_dynamic_stack"] == "false"
assert int(fact["offset"]) == 0 and int(fact["size"]) == block
assert int(fact["kernarg_segment_size"]) == block
assert int(fact["kernarg_segment_align"]) == 64
assert int(fact["max_flat_workgroup_size"]) == threads
print(f"block {block}, threads {threads}")
print("wave", fact["wavefront_size"])
print("shared", fact["group_segment_fixed_size"])
print("spills" if int(fact["private_segment_fixed_size"]) else "no spills")
for word in ("v_mfma", "v_wmma", "ds_read_b64_tr", "v_permlanex16"):
    print(word, len(re.findall(rf"\t{word}", code)))
