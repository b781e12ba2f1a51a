"""What a folder of benchmarks takes along to a machine with a GPU."""
import argparse
import json
import os
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


def runtime(attnc, to):
    """libattn of the build that attnc is of, and the package attn."""
    lib = os.path.join(os.path.dirname(os.path.dirname(attnc)), "lib")
    shutil.copy(os.path.realpath(os.path.join(lib, "libattn.so")),
                os.path.join(to, "libattn.so"))
    shutil.copytree(os.path.join(TOP, "tools/python/attn"),
                    os.path.join(to, "attn"), dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__"))


def options(doc, out, passes):
    """Of a script that prepares a folder here and measures in it there."""
    ap = argparse.ArgumentParser(description=doc.split("\n")[0])
    ap.add_argument("--prep")
    ap.add_argument("--attnc", default=os.path.join(TOP, "build/bin/attnc"))
    ap.add_argument("--target", default="sm_90a")
    ap.add_argument("--filter", default="")
    ap.add_argument("--out", default=out)
    ap.add_argument("--passes", type=int, default=passes)
    return ap


def script(a, file):
    """The script itself, with all that it needs to run in the folder."""
    runtime(a.attnc, a.prep)
    for f in (file, __file__):
        shutil.copy(os.path.abspath(f), a.prep)


def serving(a, programs, d, file):
    """Programs of serve.attn, a library each, and the script that runs them."""
    os.makedirs(a.prep, exist_ok=True)
    for name in programs:
        subprocess.run(
            [a.attnc, os.path.join(HERE, "serve.attn"), "--fn", name, "--shared",
             "--target", a.target, "--prefix", "serve", "-D", f"D={d}", "-o",
             os.path.join(a.prep, name + ".so")], check=True)
    script(a, file)
    print(f"{len(programs)} libraries in {a.prep}")


def said(row):
    """The row, printed."""
    print(" ".join(f"{k} {v:.4g}" if isinstance(v, float) else str(v)
                   for k, v in row.items()), flush=True)
    return row


def verdict(a, rows):
    """Writes rows of case, error, same; 1 if one of them is wrong: by more than
    its tol, if it has one."""
    with open(a.out, "w") as f:
        json.dump(rows, f, indent=1)
    wrong = [r["case"] for r in rows
             if not r["same"] or not r["error"] < r.get("tol", 1e-2)]
    print(f"{len(rows)} cases, wrong: " + (", ".join(wrong) or "none"))
    return 1 if wrong else 0
