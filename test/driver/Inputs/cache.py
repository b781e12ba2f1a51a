"""cache.py damage FOLDER: changes a byte of each file of a cache.
cache.py newest FOLDER: fails where a file has not been written again since."""
import pathlib
import sys

for path in pathlib.Path(sys.argv[2]).iterdir():
    data = bytearray(path.read_bytes())
    mark = path.parent.parent / "damaged"
    if sys.argv[1] == "damage":
        data[-1] ^= 1
        path.write_bytes(data)
        mark.write_bytes(data)
    else:
        assert data != mark.read_bytes()
