"""Position-independent, read-only relocations, no executable stack or writable
code, stack protection and checked libc calls. usage: FILE.."""
import re
import subprocess
import sys


def readelf(*args):
    return subprocess.run(["readelf", "-W", *args], capture_output=True,
                          text=True, check=True).stdout


bad = []
for file in sys.argv[1:]:
    head, symbols = readelf("-hld", file), readelf("-s", file)
    segments = re.findall(r"^  (\w+) .* ([R ][W ][E ]) +\w+$", head, re.M)
    flags = dict(segments)
    want = {
        "position-independent": re.search(r"Type: +DYN", head),
        "read-only relocations": "GNU_RELRO" in flags,
        "bound at the start": re.search(r"BIND_NOW|Flags:.*\bNOW\b", head),
        "no executable stack": flags.get("GNU_STACK") == "RW ",
        "no writable code": all(f != "RWE" for _, f in segments),
        "stack protection": "__stack_chk_fail" in symbols,
        "checked calls": re.search(r"__(\w+)_chk\b", symbols),
        "no search path in the build": "RPATH" not in head,
    }
    bad += [f"{file}: not {what}" for what, ok in want.items() if not ok]
for line in bad:
    print(line)
print(f"{len(sys.argv) - 1} files are hardened" if not bad else "not hardened")
