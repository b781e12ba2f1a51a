"""Prints the random program of a seed and its options: python3 programs SEED [--steps | --walks]"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import programs  # noqa: E402

seed = int(sys.argv[1])
spec = (programs.draw_walk(seed) if "--walks" in sys.argv else
        programs.draw(seed, steps="--steps" in sys.argv))
p = programs.build(spec)
print("#", spec.dtype, *spec.kinds())
print("#", *p.options())
print(p.text(), end="")
