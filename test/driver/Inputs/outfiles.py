"""Output files are whole or not there: each writer with a disk that is full
after 100 bytes, then what a file's place keeps. usage: DIR STDLIB"""
import os
import pathlib
import resource
import stat
import subprocess
import sys

work, std = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
gqa = std / "attention/gqa.attn"
old = "let  x=1 ;" + " # old\n" + "# .\n" * 100
work.mkdir(parents=True)
os.chdir(work)
pathlib.Path("in.tir").write_text(subprocess.run(
    ["attnc", "--emit=attn", gqa, "--dim", "T=f32"], capture_output=True,
    text=True).stdout)


def full():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


def run(*args, **how):
    return subprocess.run([str(a) for a in args], capture_output=True,
                          text=True, **how)


def fresh(name):
    """A folder with one old file, for what may be written."""
    folder = work / name
    folder.mkdir()
    (folder / "f").write_text(old)
    return folder, folder / "f"


small = ["--dim", "T=f32,D=64,Dv=64", "--target", "cpu:x86-64-v3"]
call = ["--random", "--dim", "T=f32,D=64,Dv=64,B=1,Hq=1,Hk=1,Sq=8,Sk=8"]
writers = {
    "fmt": ["attnc", "fmt", "f"],
    "object": ["attnc", gqa, *small, "-o", "f"],
    "header": ["attnc", gqa, *small, "-o", "/dev/null", "--header", "f"],
    "depends": ["attnc", gqa, *small, "-o", "/dev/null", "-MF", "f", "-I",
                "x" * 120],
    "shared": ["attnc", gqa, *small, "--shared", "-o", "f"],
    "emit": ["attnc", "--emit=attn", gqa, "-o", "f"],
    "doc": ["attnc", "doc", gqa, "-o", "f"],
    "npy": ["attnc", "run", gqa, *call, "--out", "O=f"],
    "attn-opt": ["attn-opt", "../in.tir", "-o", "f"],
}
for name, command in writers.items():
    folder, file = fresh(name)
    if name == "depends":
        path = folder / ("x" * 110 + ".attn")
        path.write_text(gqa.read_text())
        command[1] = path
    before = set(os.listdir(folder))
    r = run(*command, cwd=folder, preexec_fn=full)
    assert r.returncode in (1, 3), (name, r)
    if name != "shared":  # that is the linker's, or its input's
        assert "cannot write 'f': File too large" in r.stderr, (name, r)
    assert file.read_text() == old, name
    assert set(os.listdir(folder)) == before, (name, os.listdir(folder))
    # With room it is replaced.
    r = run(*command, cwd=folder)
    assert r.returncode == 0 and file.read_bytes() != old.encode(), (name, r)
    assert set(os.listdir(folder)) == before, name
print("a full disk: right")

# Dumps, which are many files.
folder, file = fresh("dumps")
file.rename(folder / "01-inline.tir")
r = run("attn-opt", "in.tir", "--passes=inline", f"--dump-dir={folder}",
        preexec_fn=full)
assert r.returncode == 1 and "cannot write" in r.stderr, r
assert (folder / "01-inline.tir").read_text() == old
assert os.listdir(folder) == ["01-inline.tir"]
# What failed writes nothing.
folder, file = fresh("failed")
r = run("attn-opt", "in.tir", "--passes=tile", "-o", file)
assert r.returncode == 1 and file.read_text() == old, r

# Mode, links, new files.
folder, file = fresh("kept")
file.chmod(0o751)
(folder / "far").mkdir()
(folder / "far/link").symlink_to("../f")
(folder / "link").symlink_to("far/link")
(folder / "new").symlink_to("far/made")
doc = run("attnc", "doc", gqa).stdout
os.umask(0o027)
for name in "link", "new":
    assert run("attnc", "doc", gqa, "-o", folder / name).returncode == 0
    assert (folder / name).is_symlink() and (folder / name).read_text() == doc
assert stat.S_IMODE(file.stat().st_mode) == 0o751
assert stat.S_IMODE((folder / "far/made").stat().st_mode) == 0o640
(folder / "loop").symlink_to("loop")
r = run("attnc", "doc", gqa, "-o", folder / "loop")
assert r.returncode == 3 and "symbolic links" in r.stderr, r
shared = [*writers["shared"][:-1], file]
assert run(*shared).returncode == 0
assert stat.S_IMODE(file.stat().st_mode) == 0o751
print("places: right")

# Streams: between what others write there, and no file beside a pipe.
text = run("sh", "-c", f"(echo a; attnc doc {gqa} -o /dev/stdout; echo b) > s;"
           f" (echo c; attnc doc {gqa} -o /dev/fd/3; echo d >&3) 3>> s")
assert text.stdout == "c\n", text
assert pathlib.Path("s").read_text() == f"a\n{doc}b\n{doc}d\n"
os.mkfifo("pipe")
r = run("sh", "-c", f"attnc doc {gqa} -o pipe & cat pipe")
assert r.stdout == doc and stat.S_ISFIFO(os.stat("pipe").st_mode)
r = run("attnc", "doc", gqa, "-o", "/dev/full")
assert r.returncode == 3 and "No space left" in r.stderr
r = run("attnc", "doc", gqa, "-o", ".")
assert r.returncode == 3 and "Is a directory" in r.stderr, r
print("streams: right")

# Folders and files that may not be written, for somebody who is not root.
who = {} if os.geteuid() else {"user": 65534}
folder, file = fresh("closed")
folder.chmod(0o555)
if run("sh", "-c", f"attnc --version && test -r {file} && test -r {gqa}",
       **who).returncode == 0:
    r = run("attnc", "doc", gqa, "-o", file, **who)
    assert r.returncode == 3 and "Permission denied" in r.stderr, r
    folder.chmod(0o777)
    file.chmod(0o444)
    r = run("attnc", "doc", gqa, "-o", file, **who)
    assert r.returncode == 3 and "Permission denied" in r.stderr, r
    assert file.read_text() == old and os.listdir(folder) == ["f"]
folder.chmod(0o777)
print("permissions: right")
