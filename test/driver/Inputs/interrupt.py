"""interrupt.py FILE: attnc check of it, 400 times over, on a terminal;
interrupted once progress was shown."""
import os
import pty
import signal
import subprocess
import sys

ours, theirs = pty.openpty()
run = subprocess.Popen(["attnc", "check"] + sys.argv[1:] * 400,
                       stdout=theirs, stderr=theirs, start_new_session=True)
os.close(theirs)
said = b""
sent = False
while True:
    try:
        part = os.read(ours, 65536)
    except OSError:  # the other end is closed
        break
    said += part
    if not sent and b"check: file" in said:
        sent = True
        run.send_signal(signal.SIGINT)
    if not part:
        break
print(said.replace(b"\r", b"\n").decode())
print("exit code", run.wait())
