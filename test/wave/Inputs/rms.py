"""Relative errors, root mean squares, of what attn-oracle --print shows: each
output must be within BOUND.

    attn-oracle .. --print | rms.py BOUND
"""
import re
import sys

bound, sums = float(sys.argv[1]), {}
for name, got, want in re.findall(r"^(\w+)\[\d+\] (\S+) (\S+)$",
                                  sys.stdin.read(), re.M):
    s = sums.setdefault(name, [0.0, 0.0])
    s[0] += (float(got) - float(want)) ** 2
    s[1] += float(want) ** 2
for name, (error, size) in sums.items():
    e = (error / size) ** 0.5
    print(f"{name} {'within' if e <= bound else 'beyond'} {bound}: {e:.1e}")
