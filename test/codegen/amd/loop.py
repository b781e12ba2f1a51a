"""What the unmasked loop of a kernel has: instructions by kind, a line a target.

    loop.py FILE PROGRAM DIMS TARGET ..

Comparisons of integers are masks' (floats are compared for NaN), or of copies
that test where tensors end; branches but for the loop's own are masks' too."""
import importlib.util
import pathlib
import re
import subprocess
import sys

path = pathlib.Path(__file__).resolve().parents[3] / "tools/bench/amd/mca.py"
spec = importlib.util.spec_from_file_location("mca", path)
mca = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mca)

KINDS = [("matrix", r"v_(mfma|wmma)_"), ("exponentials", r"v_exp_f32"),
         ("masks", r"v_cmpx?_\w+_[iu](16|32|64)"), ("scratch", r"scratch_"),
         ("branches", r"s_cbranch"), ("barriers", r"s_barrier(_wait)?\b"),
         ("tr", r"ds_read_b64_tr"), ("copies", r"v_accvgpr")]
file, program, dims, *targets = sys.argv[1:]
for target in targets:
    text = subprocess.run(
        ["attnc", "--emit=amdgcn", "--target", target, file, "--fn", program,
         "-D", dims], capture_output=True, text=True, check=True).stdout
    body = mca.inner(text)
    print(target + ":", ", ".join(
        f"{sum(bool(re.match(p, x)) for x in body)} {name}"
        for name, p in KINDS))
