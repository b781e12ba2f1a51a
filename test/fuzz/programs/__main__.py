"""Prints the random program of a seed and its options: python3 programs SEED [--steps]"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import programs  # noqa: E402

spec = programs.draw(int(sys.argv[1]), steps="--steps" in sys.argv)
p = programs.build(spec)
print("#", spec.dtype, *spec.kinds())
print("#", *p.options())
print(p.text(), end="")
