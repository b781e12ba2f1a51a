"""wheel.py DIST ROOT: checks the list of files of the wheel in DIST, and unpacks
it into ROOT as pip does."""
import base64
import hashlib
import os
import pathlib
import sys
import zipfile

dist, root = map(pathlib.Path, sys.argv[1:])
wheel, = dist.glob("*.whl")
with zipfile.ZipFile(wheel) as z:
    names = z.namelist()
    record, = (n for n in names if n.endswith("/RECORD"))
    rows = dict(line.rsplit(",", 2)[0:2] for line in
                z.read(record).decode().splitlines())
    assert set(rows) == set(names)
    for name, digest in rows.items():
        have = base64.urlsafe_b64encode(hashlib.sha256(z.read(name)).digest())
        assert not digest or digest == "sha256=" + have.decode().rstrip("=")
        out = root / name
        if ".data/scripts/" in name:
            out = root / "bin" / out.name
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(z.read(name))
        os.chmod(out, z.getinfo(name).external_attr >> 16)
assert os.access(root / "bin/attnc", os.X_OK)
