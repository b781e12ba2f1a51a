"""Tree-sitter's grammar and the compiler's parser agree on what has errors.

    tree_sitter.py PROGRAM ATTN_PARSE FOLDER .."""
import pathlib
import subprocess
import sys

# Words that the language reserves are names where no word of it can stand, and
# numbers may be of any size.
LENIENT = ("check/misspelled-import-word", "parse/error-number-range",
           "parse/error-reserved-word", "parse/error-type-as-name")

program, parser, *folders = sys.argv[1:]
files = sorted(str(f) for d in folders for f in pathlib.Path(d).rglob("*.attn"))
lines = subprocess.run([program, *files], capture_output=True, text=True,
                       check=True).stdout.splitlines()
right, wrong = 0, 0
for file, line in zip(files, lines, strict=True):
    fine = subprocess.run([parser, file], capture_output=True).returncode == 0
    if file.removesuffix(".attn").endswith(LENIENT):
        fine = True
    if fine != line.startswith("ok "):
        print(line, "fine" if fine else "has errors")
    right, wrong = right + fine, wrong + (not fine)
print(f"{right} right, {wrong} with errors")
