"""paged.py DIR: arrays for paged-window.attn. Only the last 22 keys of an entry
are visible; the pages before them are absent (-1)."""
import pathlib
import sys

import numpy as np

out = pathlib.Path(sys.argv[1])
out.mkdir(exist_ok=True)
rng = np.random.default_rng(0)
np.save(out / "q.npy", rng.standard_normal((2, 3, 2, 64), dtype="f4"))
for name in "kv":
    np.save(out / name, rng.standard_normal((10, 16, 2, 64), dtype="f4"))
np.save(out / "len.npy", np.array([100, 50], "i4"))
pages = np.full((2, 8), -1, "i4")
pages[0, 4:7] = 3, 1, 2
pages[1, 1:4] = 5, 6, 7
np.save(out / "pt.npy", pages)
