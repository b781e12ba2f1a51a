# Uses the tests of the pass `lower_cpu` as tests of codegen.
#   assigned.py jit DIR   runs each as machine code, on the best and the lowest
#                         level of this machine
#   assigned.py nm DIR    compiles some, and every function and cast, for a CPU
#                         whose code is not loaded here (loading finds these
#                         out too): only libattn, memcpy and memset may be
#                         undefined
import glob
import os
import re
import subprocess
import sys
import tempfile

ALLOWED = {"attn_call", "attn_args_init", "attn_args_workspace",
           "attn_tvm_ffi", "memcpy", "memset"}
OTHER = "cpu:aarch64"


def run(*args):
    r = subprocess.run(args, capture_output=True, text=True)
    if r.returncode:
        sys.exit(" ".join(args) + "\n" + r.stdout + r.stderr)
    return r.stdout


def jit(path, target):
    for line in open(path):
        m = re.match(r"# RUN: attn-run %s (.*)", line)
        if m:
            keep = [a for a in m.group(1).split()
                    if not a.startswith(("--tol", "--target", "--runs"))]
            run("attn-run", path, "--jit", "--target=" + target, *keep)
            return


def check(obj):
    for line in run("nm", "--undefined-only", obj).splitlines():
        if line.split()[-1] not in ALLOWED:
            sys.exit(obj + " needs " + line)


def nm(path, target, out):
    tir, obj = os.path.join(out, "x.tir"), os.path.join(out, "x.o")
    run("attn-opt", path, "--passes=lower_cpu", "--target=" + target, "-o", tir)
    run("mach-run", tir, "--emit=obj", "-o", obj)
    check(obj)


def functions(target, out):
    obj, table = os.path.join(out, "u.o"), os.path.join(out, "u.c")
    for unit in "unit-cg-math", "unit-cg-cast":
        run(unit, "--emit", target, obj, table)
        check(obj)


files = sorted(glob.glob(os.path.join(sys.argv[2], "*.tir")))
assert files
host = run("mach-run", "--host-targets").split()
with tempfile.TemporaryDirectory() as d:
    if sys.argv[1] == "nm":
        functions(OTHER, d)
        for f in files[::4]:
            nm(f, OTHER, d)
    else:
        for f in files:
            jit(f, host[0])
            jit(f, host[-1])
