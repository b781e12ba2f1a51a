"""Stands between a client and attn-ls and checks what the server sends.
Usage: proxy.py SERVER LOG. The log's last line counts the messages; problems
stand above it."""
import json
import os
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
import lsptypes

server, log = sys.argv[1:3]
p = subprocess.Popen([server], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
sent, problems, count = {}, [], 0


def messages(read):
    """Whole messages with their bytes."""
    buffer = b""
    while True:
        data = read()
        if not data:
            return
        buffer += data
        while True:
            head, sep, rest = buffer.partition(b"\r\n\r\n")
            n = next((int(x.split(b":")[1]) for x in head.split(b"\r\n")
                      if x.lower().startswith(b"content-length")), 0)
            if not sep or len(rest) < n:
                break
            yield json.loads(rest[:n]), head + sep + rest[:n]
            buffer = rest[n:]


def to_server():
    for m, raw in messages(lambda: os.read(0, 65536)):
        if "method" in m and "id" in m:
            sent[m["id"]] = m["method"]
        try:
            p.stdin.write(raw)
            p.stdin.flush()
        except OSError:
            return
    p.stdin.close()


def note():
    with open(log, "w") as f:
        f.write("".join(x + "\n" for x in problems))
        f.write(f"{count} messages, {len(problems)} problems\n")


threading.Thread(target=to_server, daemon=True).start()
for m, raw in messages(lambda: os.read(p.stdout.fileno(), 65536)):
    count += 1
    try:
        lsptypes.check_message(m, sent)
    except lsptypes.Invalid as e:
        problems.append(str(e))
    note()
    try:
        os.write(1, raw)
    except OSError:
        break
sys.exit(p.wait())
