"""rc.py CODE COMMAND..: runs it, prints what it says, and demands its exit
code to be CODE."""
import subprocess
import sys

done = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE,
                      stderr=subprocess.STDOUT, text=True)
print(done.stdout, end="")
if done.returncode != int(sys.argv[1]):
    sys.exit(f"exit code {done.returncode}, expected {sys.argv[1]}")
