"""Every ```attn block of the given pages is a file that checks.

A block that starts with "# error A0123" must give that diagnostic instead.
With --compile first, blocks are compiled for the CPU too.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

bad = count = 0
pages, command = sys.argv[1:], ["attn-parse", "--check"]
if pages[0] == "--compile":
    pages, command = pages[1:], ["attnc", "--emit=obj", "-o", "/dev/null"]
for page in pages:
    text = pathlib.Path(page).read_text()
    for match in re.finditer(r"^```attn\n(.*?)^```$", text, re.M | re.S):
        block, line = match[1], text[:match.start()].count("\n") + 2
        count += 1
        with tempfile.NamedTemporaryFile("w", suffix=".attn") as file:
            file.write(block)
            file.flush()
            got = subprocess.run([*command, file.name],
                                 capture_output=True, text=True)
        want = re.match(r"# error (A\d{4})", block)
        fine = f"[{want[1]}]" in got.stderr if want else got.returncode == 0
        warned = re.search(r"^warning\[", got.stderr, re.M) and not want
        if not fine or warned:
            bad += 1
            print(f"{page}:{line}:\n{got.stderr}")
print(f"{count} blocks, {bad} bad")
sys.exit(bad != 0 or count == 0)
