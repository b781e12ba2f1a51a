"""What a folder of benchmarks takes along to a machine with a GPU."""
import os
import shutil

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
