"""Domains that gen.py draws, of small programs, as the kernels of GPUs: each is
run by waves and compared with the oracle.

    masks.py DIR SEED COUNT TARGET..
"""
import pathlib
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "fuzz"))
from gen import Program  # noqa: E402

ROWS = ["let (p, _) = softmax(0.25 * dot(Q[q], K[k]));",
        "let p = 0.1 * dot(Q[q], K[k]);",
        "let p = 0.1 * dot(Q[q], K[k]) * f32(k % 4);",
        "let e = exp(0.25 * dot(Q[q], K[k]));\n  let p = e / sqrt(sum(k: e * e) + 0.1);"]


def program(seed):
    p = Program(seed, "f16")
    p.extent = {"k": "Sk"}
    domain = f" where {p.condition('k')}"
    more = "".join(f", {x}" for x in p.params)
    return p, f"""import std.rows {{ softmax }}
attention p<B, Sq, Sk, D: const {{16, 64}}>
  (Q: f16[Sq, D], K: f16[Sk, D], V: f16[Sk, D]{more}) -> (O: f16[B, Sq, D])
{{
  index b in B, q in Sq;
  index k in Sk{domain};
  {p.pick(*ROWS)}
  O[b, q] = sum(k: p * V[k]);
}}
"""


def main():
    out, seed, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    targets = sys.argv[4:]
    out.mkdir(parents=True, exist_ok=True)
    bad = 0
    for n in range(seed, seed + count):
        p, text = program(n)
        file = out / f"m{n}.attn"
        file.write_text(text)
        dims = (f"B=1,D={p.pick(16, 64)},Sq={p.pick(1, 40, 65, 130)},"
                f"Sk={p.pick(20, 70, 129, 200)}")
        target = targets[n % len(targets)]
        got = subprocess.run(
            ["attn-oracle", file, f"--target={target}", "--round", "--tol=2e-2",
             f"--dim={dims}", f"--seed={n}", *(f"--in={x}" for x in p.inputs)],
            capture_output=True, text=True)
        if got.returncode:
            bad += 1
            print(f"{file} for {target}, {dims}: differs or fails\n"
                  f"{got.stdout[-300:]}{got.stderr[-300:]}")
    print(f"{count} programs, {bad} bad")


main()
