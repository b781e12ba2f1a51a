"""A list for attn-numeric: the recurrences of the library, step by step and in
chunks, on shapes that are no multiples of a chunk; strong decays, repeated
keys.

    recurrent.py STDLIB LIST
"""
import pathlib
import sys

DIMS = "B=1..2,H=1..2,Hk=1..2,S=1..70,N=64,D=64,Dv=64"
GATES = "--in=g=uniform(-0.5,0)"
BETA = "--in=beta=uniform(0,1)"
SPECIAL = {
    "comba": f"{GATES} {BETA}",
    "delta_product": f"--dim=R=2 {GATES} {BETA}",
    "deltanet": BETA,
    "gated_delta": f"--dim=H=Hk*1..2 {GATES} {BETA}",
    "gla": GATES,
    "kda": BETA,
    "linear": "--in=z0=const(1)",
    "mamba2": "--dim=P=64,G=1..2,H=G*1..2 --in=A=uniform(-4,-1)",
    "packed": f"{GATES} {BETA}",
    "retnet": "--in=loggamma=uniform(-0.1,0)",
    "rwkv7": "--in=kappa=normal(0,0.1) --in=a=uniform(0,1)",
    "simple_gla": GATES,
}
# Gates down to -30, all steps with the same key, and no decay at all.
EXTREME = [
    ("simple_gla", "--in=g=uniform(-30,0)"), ("gla", "--in=g=uniform(-30,0)"),
    ("simple_gla", "--in=g=const(0)"), ("gla", "--in=g=uniform(-2,0)"),
    ("gated_delta", f"--dim=H=Hk*1..2 --in=g=uniform(-30,0) {BETA}"),
    ("deltanet", "--in=K=const(1) --in=beta=const(1)"),
    ("deltanet", "--in=K=const(1) --in=beta=const(2) --tol=1e-4"),
    ("kda", f"--in=A_log=const(2) {BETA}"), ("rwkv6", "--in=w=normal(1,1)"),
    ("mlstm", "--in=i=normal(0,20) --in=f=normal(0,20) --tol=1e-4"),
]
folder = pathlib.Path(sys.argv[1]) / "recurrent"
lines = []


def add(stem, special, chunk, more):
    lines.append(f"{folder / stem}.attn {special} --chunk={chunk} {more} "
                 f"--dim=T=f32,{DIMS}")


for path in sorted(folder.glob("*.attn")):
    for chunk in 4, 32:
        add(path.stem, SPECIAL.get(path.stem, ""), chunk, "--tol=1e-5 --runs=2")
for stem, special in EXTREME:
    for chunk in 4, 32:
        tol = "" if "--tol" in special else "--tol=1e-5"
        add(stem, special, chunk, f"{tol} --runs=2")
pathlib.Path(sys.argv[2]).write_text("\n".join(lines) + "\n")
