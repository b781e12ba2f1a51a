"""commands.py PAGE FOLDER FILE..: runs every line of the page's ```sh blocks in
an empty folder that has copies of the files. Each must end with code 0. Other
blocks that begin with a comment of a file's name are written there first."""
import pathlib
import re
import shutil
import subprocess
import sys

page, folder, files = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
shutil.rmtree(folder, ignore_errors=True)
pathlib.Path(folder).mkdir(parents=True)
for file in files:
    shutil.copy(file, folder)
for block in re.findall(r"^```[a-z]+\n(.*?)^```$", page.read_text(),
                        re.M | re.S):
    name = re.match(r"(?:#|//|/\*) ([\w.]+\.\w+)(?: \*/|: .*)?\n", block)
    if name:
        pathlib.Path(folder, name[1]).write_text(block)
bad = count = 0
for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.M | re.S):
    for line in block.splitlines():
        count += 1
        line = re.sub(r"^python3", "/usr/bin/python3", line)
        done = subprocess.run(line, shell=True, cwd=folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            bad += 1
            print(f"{line}\nexit code {done.returncode}\n{done.stdout}")
print(f"{count} commands, {bad} bad")
sys.exit(bad != 0 or count == 0)
