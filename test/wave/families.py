"""Every program of the library by the wave interpreter, against the oracle.

    families.py STDLIB TARGET [--dtype=T] [FILE ..]

Each program runs under two schedules, for sm_90a, which copies and multiplies
asynchronously, under three: the seed chooses data and schedule. What the target
refuses is counted too."""
import pathlib
import subprocess
import sys

DIMS = "B=1,H=2,Hk=1,Hq=2,S=75,Sq=70,Sk=141,N=3,Nc=5,Ns=2,D=64,Dk=64,Dv=64"
SPECIAL = {
    "append": "--dim=M=9 --in=slot=iota(-1,2) --in=pos=randint(0,99) "
              "--tol=2e-2",
    "comba": "--in=g=uniform(-0.2,0) --in=beta=uniform(0,1)",
    "delta_product": "--in=g=uniform(-0.2,0) --in=beta=uniform(0,1)",
    "deltanet": "--in=beta=uniform(0,1)",
    "gated_delta": "--in=g=uniform(-0.2,0) --in=beta=uniform(0,1)",
    "fp4": "--in=kscale=randint(124,130) --in=vscale=randint(124,130)",
    "gla": "--in=g=uniform(-0.5,0)",
    "kda": "--in=beta=uniform(0,1)",
    "mamba2": "--dim=P=64,G=1,H=2 --in=A=uniform(-4,-1)",
    "mla": "--in=scale=const(0.05)",
    "linear": "--in=z0=const(1)",
    "packed": "--in=g=uniform(-0.2,0) --in=beta=uniform(0,1) "
              "--in=cu=offsets(0,40) --in=cu_q=offsets(0,40) "
              "--in=cu_k=offsets(0,40)",
    "qknorm": "--tol=2e-2 --in=wq=uniform(0.5,1.5) "
              "--in=wk=uniform(0.5,1.5)",
    "mlstm": "--tol=2e-2",
    "retention": "--in=loggamma=uniform(-0.1,0)",
    "retnet": "--in=loggamma=uniform(-0.1,0)",
    "rwkv7": "--in=kappa=normal(0,0.1) --in=a=uniform(0,1)",
    "simple_gla": "--in=g=uniform(-0.5,0)",
}

# The first seed, and how many: all kinds of schedules meet each program.
SEEDS = {"sm_90a": (1, 3), "sm_80": (3, 2), "gfx942": (5, 2)}

std, target, *names = sys.argv[1:]
first, count = SEEDS.get(target, (1, 2))
dtype = next((n[8:] for n in names if n.startswith("--dtype=")), "f16")
names = [n for n in names if not n.startswith("--")]
runs = refused = bad = 0
for path in sorted(pathlib.Path(std).glob("*/*.attn")):
    if names and path.stem not in names:
        continue
    tol = "1e-5" if dtype == "f32" else "1e-2"
    got = subprocess.run(
        ["attn-oracle", str(path), f"--target={target}", "--round",
         f"--tol={tol}", f"--seed={first}", f"--runs={count}",
         f"--dim=T={dtype},{DIMS}",
         *SPECIAL.get(path.stem, "").split()],
        capture_output=True, text=True)
    runs += 1
    if "A0702" in got.stderr and "differs" not in got.stdout:
        refused += 1
    elif got.returncode:
        bad += 1
        print(f"{path.stem}: differs or fails\n{got.stdout[:400]}"
              f"{got.stderr[:600]}")
print(f"{runs} files, {refused} with a program refused, {bad} bad")
sys.exit(bad != 0)
