"""Time and memory of compilations: a tool that does not come back ends with
attnc, however that ends, and nothing is left. usage: DIR STDLIB FILE"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

work, std = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
program = pathlib.Path(sys.argv[3])
work.mkdir(parents=True)
os.chdir(work)
old = "what was there before"


def tool(name, text):
    file = work / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def fresh(name):
    folder = work / name
    folder.mkdir()
    (folder / "f").write_text(old)
    return folder


def ends(pid):
    """Whether the process goes, in seconds; somebody may not have asked for
    its exit code."""
    for _ in range(500):
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True
        if state.rpartition(")")[2].split()[0] in "ZX":
            return True
        time.sleep(0.01)
    return False


def pids(env):
    """Of the tools that were started, several at a time."""
    return [int(x) for x in pathlib.Path(env["PIDS"]).read_text().split()]


def all_end(env):
    found = pids(env)
    return found and all(map(ends, found))


def kept(folder):
    return os.listdir(folder) == ["f"] and (folder / "f").read_text() == old


endless = tool("endless", 'echo $$ >> "$PIDS"; exec sleep 600')
gpu = ["attnc", std / "attention/mha.attn", "--target", "sm_90a", "--no-cache",
       "-D", "T=bf16,D=64", "-o", "f"]


def environment(folder, **more):
    return {**os.environ, "PIDS": str(folder) + ".pid", **more}


# Each tool that is run.
folder = fresh("ptxas")
env = environment(folder, ATTNC_PTXAS=endless)
for more in [], ["--error-format=json"]:
    r = subprocess.run([*gpu, "--max-seconds=3", *more], cwd=folder, env=env,
                       capture_output=True, text=True)
    assert r.returncode == 3 and kept(folder), r
    assert all_end(env)
    assert "A0910" in r.stderr and "3 s" in r.stderr, r
    assert "ptxas for sm_90a: " in r.stderr, r
said = json.loads(r.stderr)
assert said["line"] and said["file"].endswith("mha.attn"), said
folder = fresh("lld")
env = environment(folder, ATTNC_LLD=endless)
r = subprocess.run([*gpu[:2], "--target=gfx942", *gpu[4:], "--max-seconds=3"],
                   cwd=folder, env=env, capture_output=True, text=True)
assert r.returncode == 3 and kept(folder), r
assert all_end(env), r
assert f"A0910]: compiling takes more than 3 s (--max-seconds): {endless}" in (
    r.stderr), r
print("tools: right")

# Signals, too.
folder = fresh("signals")
env = environment(folder, ATTNC_PTXAS=endless)
for sig in signal.SIGINT, signal.SIGTERM, signal.SIGKILL:
    pathlib.Path(env["PIDS"]).write_text("")
    p = subprocess.Popen(
        gpu, cwd=folder, env=env,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    while not pids(env):
        time.sleep(0.01)
    p.send_signal(sig)
    assert p.wait() == -sig
    assert all_end(env)
    assert kept(folder), sig
print("signals: right")

# Ctrl-C in what runs for long, without a tool.
temporary = work / "tmp"
temporary.mkdir()
env = environment(folder, TMPDIR=str(temporary))
for command in (["run", program, "--random", "-D",
                 "B=1,Hq=4,Hk=4,Sq=500,Sk=500,D=16", "--out", "O=f",
                 "--verify-all"], ["bench", program, "-D", "D=16", "--runs", "1000000"],
                ["tune", program, "--runs", "1000000"],
                ["check", *[program] * 500]):
    p = subprocess.Popen(
        ["attnc", *command], cwd=folder, env=env, stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    time.sleep(0.7)
    p.send_signal(signal.SIGINT)
    p.wait(60)
    assert os.listdir(folder) == ["f"] and not os.listdir(temporary), command
    (folder / "f").write_text(old)
print("Ctrl-C: right")

# Several processes and one cache.
cache = work / "cache"
env = environment(folder, ATTNC_CACHE=str(cache))
made = [subprocess.Popen(["attnc", program, "-o", f"../{i}.o", "--prefix", "p"],
                         cwd=folder, env=env) for i in range(6)]
assert [p.wait(120) for p in made] == [0] * 6
assert len({(work / f"{i}.o").read_bytes() for i in range(6)}) == 1
kept_files = os.listdir(cache)
assert kept_files and all(n.endswith(".attnc") for n in kept_files), kept_files
print("cache: right")

# A tool's memory.
told = tool("told", 'ulimit -v >> "$PIDS"; exit 1')
env = environment(folder, ATTNC_PTXAS=told)
pathlib.Path(env["PIDS"]).write_text("")
subprocess.run([*gpu, "--max-memory=1000"], cwd=folder, env=env,
               capture_output=True)
assert set(pids(env)) == {1024000}

# What tools take at the same time, together with attnc.
many = tool("many", 'echo $$ >> "$PIDS"; exec "$PYTHON" -c "import time; '
            'b = bytearray(250 << 20); time.sleep(600)"')
env = environment(folder, ATTNC_PTXAS=many, PYTHON=sys.executable)
pathlib.Path(env["PIDS"]).write_text("")
r = subprocess.run([*gpu, "--max-memory=480", "-j2"], cwd=folder, env=env,
                   capture_output=True, text=True)
assert r.returncode == 3 and "A0911" in r.stderr and kept(folder), r
assert len(pids(env)) == 2 and all_end(env)
print("memory: right")

# Every command that compiles, in whichever step the time is over.
small = ["-D", "B=1,Hq=1,Hk=1,Sq=8,Sk=8,D=16"]
for command in (["attnc", program, "-o", "f"],
                ["attnc", "--emit=asm", program],
                ["attnc", "--emit=mach", program],
                ["attnc", "run", program, "--random", *small],
                ["attnc", "check", program],
                ["attnc", "bench", program, *small],
                ["attnc", "tune", program, *small]):
    late = ["--max-seconds=0.0001", "--no-cache"]
    r = subprocess.run([*command, *late], cwd=folder, capture_output=True,
                       text=True)
    assert r.returncode == 3 and "error[A0910]" in r.stderr, (command, r)
    assert kept(folder), command
print("commands: right")
