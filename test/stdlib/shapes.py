"""A list for attn-numeric: every program of the library that takes f32."""
import pathlib
import re
import sys

DIMS = ("B=1..3,H=1..3,Hk=1..2,Hq=Hk*1..3,S=1..40,Sq=1..9,Sk=1..50,N=64,"
        "Nc=1..4,Ns=1..2,P=auto")
# Dims that mean something else, sensible inputs, coarser types.
SPECIAL = {
    "alibi": "--dim=N=32",
    "append": "--dim=N=1..9,M=1..20 --in=slot=iota(-1,2) "
              "--in=pos=randint(0,99)",
    "comba": "--in=g=uniform(-0.2,0) --in=beta=uniform(0,1)",
    "delta_product": "--in=g=uniform(-0.2,0) --in=beta=uniform(0,1)",
    "deltanet": "--in=beta=uniform(0,1)",
    "gated_delta": "--dim=H=Hk*1..3 --in=g=uniform(-0.2,0) "
                   "--in=beta=uniform(0,1)",
    "gla": "--in=g=uniform(-0.5,0)",
    "kda": "--in=beta=uniform(0,1)",
    "mamba2": "--dim=P=64,G=1..2,H=G*1..3 --in=A=uniform(-4,-1)",
    "mla": "--in=scale=const(0.05)",
    "linear": "--in=z0=const(1)",
    "packed": "--in=g=uniform(-0.2,0) --in=beta=uniform(0,1) "
              "--in=cu=offsets(0,60) --in=cu_q=offsets(0,40) "
              "--in=cu_k=offsets(0,60)",
    "paged": "--tol=1e-2",
    "retention": "--in=loggamma=uniform(-0.1,0)",
    "retnet": "--in=loggamma=uniform(-0.1,0)",
    "rwkv7": "--in=kappa=normal(0,0.1) --in=a=uniform(0,1)",
    "simple_gla": "--in=g=uniform(-0.5,0)",
}
lines = []
for path in sorted(pathlib.Path(sys.argv[1]).glob("*/*.attn")):
    types = re.findall(r"T: dtype \{(.*?)\}", path.read_text())
    if types and not any("f32" in t for t in types):
        continue
    special = SPECIAL.get(path.stem, "")
    lines.append(f"{path} --tol=1e-5 {special} --dim=T=f32,{DIMS} --runs=4")
pathlib.Path(sys.argv[2]).write_text("\n".join(lines) + "\n")
