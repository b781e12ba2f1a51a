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


def kept(folder):
    return os.listdir(folder) == ["f"] and (folder / "f").read_text() == old


endless = tool("endless", 'echo $$ > "$PIDS"; exec sleep 600')
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
    assert ends(int(pathlib.Path(env["PIDS"]).read_text()))
    assert "A0910" in r.stderr and "3 s" in r.stderr, r
    assert "ptxas for sm_90a: " in r.stderr, r
said = json.loads(r.stderr)
assert said["line"] and said["file"].endswith("mha.attn"), said
folder = fresh("lld")
env = environment(folder, ATTNC_LLD=endless)
r = subprocess.run([*gpu[:2], "--target=gfx942", *gpu[4:], "--max-seconds=3"],
                   cwd=folder, env=env, capture_output=True, text=True)
assert r.returncode == 3 and kept(folder), r
assert ends(int(pathlib.Path(env["PIDS"]).read_text())), r
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
    while not pathlib.Path(env["PIDS"]).read_text():
        time.sleep(0.01)
    p.send_signal(sig)
    assert p.wait() == -sig
    assert ends(int(pathlib.Path(env["PIDS"]).read_text()))
    assert kept(folder), sig
print("signals: right")

# A tool's memory.
told = tool("told", 'ulimit -v > "$PIDS"; exit 1')
env = environment(folder, ATTNC_PTXAS=told)
subprocess.run([*gpu, "--max-memory=1000"], cwd=folder, env=env,
               capture_output=True)
assert pathlib.Path(env["PIDS"]).read_text() == "1024000\n"
print("memory: right")

# Every command that compiles, in whichever step the time is over.
small = ["-D", "N=8,M=8"]
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
