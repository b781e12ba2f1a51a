"""--help names exactly the options that are taken: those of the tables in the
sources; a reproducer has each that passes are told. usage: SOURCE_ROOT FILE.tir
REPRODUCER"""
import pathlib
import re
import subprocess
import sys

root, module, repro = map(pathlib.Path, sys.argv[1:])


def run(*args):
    return subprocess.run(["attn-opt", *map(str, args)], capture_output=True,
                          text=True)


rows = re.findall(r'^OPTION\("([\w-]+)", \w+, (\w+), "([\w,.:]*)"',
                  (root / "passes/options.def").read_text(), re.M)
own = re.findall(r'^ {4}\{"([\w-]+)", "([\w,]*)"',
                 (root / "tools/attn-opt.c").read_text(), re.M)
want = {f"--{name}" + (f"={value}" if value else "")
        for name, value in own + [(n, v) for n, _, v in rows]}
shown = set(re.findall(r"^  (--\S+)", run("--help").stdout, re.M))
assert shown == want and len(want) > 25, shown ^ want

# Each with a value, alone and all together; the reproducer reads as it was given.
given = {"TARGET": "sm_90a", "INT": "3", "BITS": str((1 << 60) - 1),
         "AUTO": "auto", "FLAG": "", "TEXT": "A,B"}
args = [f"--{n}" + ("=" + given[k] if v else "") for n, k, v in rows]
for arg in args:
    assert run(module, "--passes=cse", arg).returncode == 0, arg
    bad = arg.split("=")[0] + ("" if "=" in arg else "=1")
    assert run(module, "--passes=cse", bad).returncode == 2, bad
assert run(module, "--passes=tile", f"--reproducer={repro}",
           *args).returncode == 1
first = repro.read_text().split("\n")[0]
assert first == "# attn-opt --passes=tile --verify-each " + " ".join(args), first
again = run(repro)
assert again.returncode == 1 and "A0701" in again.stderr, again
print("options: right")
