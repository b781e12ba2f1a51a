"""Do tiles of launches with two CTAs fit into half of an H100's shared memory?"""
import re
import sys

MEMORY = 232448
SIZE = {"f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i8": 1, "f8e4m3": 1, "f8e5m2": 1}
found = 0
for kernel in re.split(r"(?m)^func program ", open(sys.argv[1]).read())[1:]:
    if not re.search(r"launch\(\) \{.*\boccupancy = 2\b", kernel):
        continue
    found += 1
    sum_of = 0
    for dims, dtype in re.findall(r"salloc\(\).* : smem<([\dx]+)x(\w+),", kernel):
        n = SIZE[dtype]
        for k in dims.split("x"):
            n *= int(k)
        sum_of += n
    if sum_of > MEMORY // 2:
        sys.exit(f"{kernel.split('(')[0]}: {sum_of} bytes")
print(f"{found} launches of two CTAs, all fit")
