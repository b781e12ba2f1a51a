import os
import platform
import shutil
import subprocess

import lit.formats

config.name = "attnc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".attn", ".tir", ".test", ".c"]
config.excludes = ["Inputs", "unit", "fuzz", "examples"]
config.test_source_root = os.path.join(config.source_root, "test")
config.test_exec_root = os.path.join(config.build_root, "test")

bin_dirs = [
    os.path.join(config.build_root, "bin"),
    os.path.join(config.build_root, "test", "unit"),
    config.llvm_tools,
    config.environment.get("PATH", os.environ["PATH"]),
]
config.environment["PATH"] = os.pathsep.join(bin_dirs)
config.environment["FILECHECK_OPTS"] = "--enable-var-scope"
config.environment["LC_ALL"] = "C"
config.environment["ATTNC_CACHE"] = ""  # tests compile what they test

config.substitutions += [
    ("%src_root", config.source_root),
    ("%build_root", config.build_root),
    ("%std", os.path.join(config.source_root, "stdlib")),
    ("%examples", os.path.join(config.source_root, "test/parse/examples")),
    ("%cc", config.cc),
    ("%python", "/usr/bin/python3"),
    # One that may have more than Debian's packages.
    ("%ml_python", os.environ.get("ATTN_PYTHON", "/usr/bin/python3")),
]

for tool in sorted(os.listdir(bin_dirs[0])) if os.path.isdir(bin_dirs[0]) else []:
    config.available_features.add(tool)  # REQUIRES: attnc
config.available_features.add(platform.machine())
mach_run = os.path.join(bin_dirs[0], "mach-run")
if os.path.exists(mach_run):  # REQUIRES: x86-64-v4
    rows = subprocess.run([mach_run, "--host-targets"], capture_output=True,
                          text=True).stdout.split()
    config.available_features.update(r.partition(":")[2] for r in rows)
if all(map(shutil.which, ["qemu-aarch64", "aarch64-linux-gnu-gcc"])):
    config.available_features.add("qemu-aarch64")
# Debian's modules of Python.
if all(os.path.isdir(os.path.join("/usr/lib/python3/dist-packages", m))
       for m in ("sphinx", "myst_parser")):
    config.available_features.add("sphinx")
for program in ["nvim", "emacs", "node", "man", "lintian", "chromium", "mypy"]:
    if shutil.which(program):
        config.available_features.add(program)
if os.path.exists("/usr/include/tree_sitter/api.h"):
    config.available_features.add("tree-sitter")
if shutil.which("clang-22") and os.path.exists("/usr/lib/wasm32-wasi/libc.a"):
    config.available_features.add("wasm")
# Tests do without ptxas but those of what it makes, which write %ptxas in front
# of a command.
config.environment["ATTNC_PTXAS"] = "none"
ptxas = [p for p in (os.environ.get("ATTNC_PTXAS"), shutil.which("ptxas"),
                     "/usr/local/cuda/bin/ptxas") if p and os.access(p, os.X_OK)]
if ptxas:
    config.available_features.add("ptxas")
    config.substitutions.append(("%ptxas", f"env ATTNC_PTXAS={ptxas[0]}"))
nvdisasm = shutil.which("nvdisasm") or "/usr/local/cuda/bin/nvdisasm"
config.substitutions.append(("%nvdisasm", nvdisasm))
if os.access(nvdisasm, os.X_OK):
    config.available_features.add("nvdisasm")
for tool, feature in [("ld.lld-22", "ld.lld-22"), ("llvm-mca-22", "llvm-mca"),
                      ("clang-format-22", "clang-format")]:
    if shutil.which(tool):
        config.available_features.add(feature)
# REQUIRES: lsan. In front of a program, it ends it with 23 if memory was lost;
# ASan has its own.
lsan = shutil.which("gcc") and subprocess.run(
    ["gcc", "-print-file-name=liblsan.so"], capture_output=True,
    text=True).stdout.strip()
config.substitutions.append(("%lsan", lsan or "liblsan.so"))
if config.sanitize:
    config.available_features.add("sanitize")
elif lsan and os.path.isabs(lsan):
    config.available_features.add("lsan")
# lit --param=full: what takes minutes.
if "full" in lit_config.params:
    config.available_features.add("full")
