"""Gradients of random programs: compiled, executed, compared with dual numbers.

    gradients.py [--seeds=LO..HI] [--targets=T,..] [--dir=DIR] [--reduce] ..

Options and programs are those of net.py. The oracle's dual numbers give some
elements of the gradient of each input, and what they may differ by: what they
change by if inputs, cotangents and all values between are wrong by a rounding. The CPU's code is that of `attnc run --grad`, which draws its
inputs itself; that of GPUs runs in the wave interpreter (attn-oracle --grad).
--run=TARGET runs code for that target by `attnc run` instead of the CPU's: on
the card of this machine.

Outcomes: right; refused, with the diagnostic (A0523, A0527, ..); ill; others as
those of net.py, and all are failures. --refused=N allows N refused programs.
"""
import re
import sys

import net

# What any gradient may be wrong by: two products and a sum that were rounded.
FLOOR = {"f32": 5e-5, "bf16": 4e-2, "f16": 6e-3}
ELEMENTS = 24
REFUSED = re.compile(r"error\[(A052\d|A0702)\]")
# Sizes that the arguments of a run have from their arrays.
NOT_RUN = re.compile(r"\w+_blocks=")


def outcome(said):
    """Refused only if nothing worse was said."""
    word = net.outcome(said)
    if word not in ("error", "refused"):
        return word
    codes = re.findall(r"error\[(A\d+)\]", said)
    if codes and all(REFUSED.match(f"error[{c}]") for c in codes):
        return "refused"
    return "no input" if "no float input" in said else "error"


class GradientNet(net.Net):
    def __init__(self, opt):
        super().__init__(opt)
        self.outcome = outcome

    def oracle(self, spec, p, path, targets, elements):
        cmd = ["attn-oracle", path, "--grad", "--round",
               f"--elements={elements}", f"--tol={FLOOR[spec.dtype]}",
               f"--condition={net.UNIT[spec.dtype]}", f"--limit={self.limit}",
               f"--seed={spec.seed}", *p.options(),
               *(f"--target={t}" for t in targets)]
        return net.run(cmd, 3 * (len(targets) + 2) * self.limit)

    def execute(self, spec, name, targets, cpu):
        p, path = self.write(spec, name)
        res = net.Result(spec, {}, {})
        rc, said = self.oracle(spec, p, path, targets, ELEMENTS)
        self.split(res, targets, rc, said)
        if "ill conditioned" in said:
            res.outcome[net.CPU] = "ill"
        if cpu and rc is not None and not self.ill(res):
            self.on_cpu(res, p, path, said)
        return res

    def ill(self, res):
        return res.outcome.get(net.CPU) == "ill"

    def on_cpu(self, res, p, path, said):
        rc, text = net.run(
            ["attnc", "run", path, "--fn", "p", "--grad", "--random", "--verify",
             "--target", self.opt["run"], f"--seed={res.spec.seed}",
             *run_options(p)], 5 * self.limit)
        res.said[net.CPU] = text
        bad = self.beyond(text, rc, said)
        if bad:  # a key at a bend changes elements that were not looked at
            _, said = self.oracle(res.spec, p, path, [], 0)
            bad = self.beyond(text, rc, said)
        verified = re.search(r"^(ok  |FAIL) g_\w+:", text, re.M)
        word = ("slow" if rc is None else "crash" if rc < 0 else
                "wrong" if bad else "ill" if "ill conditioned" in said else
                "right" if verified else outcome(text))
        if word == "wrong":
            res.said[net.CPU] = "\n".join(
                f"{n} differs: {a}, relative {r}" for n, a, r in bad)
        res.outcome[net.CPU] = word

    @staticmethod
    def beyond(text, rc, said):
        """The gradients that differ by more than the oracle says."""
        allowed = {m[1]: (float(m[2]), float(m[3])) for m in re.finditer(
            r"(g_\w+) may differ by (\S+), or (\S+)", said)}
        bad = re.findall(r"^FAIL (g_\w+): max abs error (\S+), rms \S+, "
                         r"relative (\S+) ", text, re.M)
        return [(n, a, r) for n, a, r in bad if rc != 1 or n not in allowed or
                float(a) > allowed[n][1] and not float(r) <= allowed[n][0]]


def run_options(p):
    """The program's options as `attnc run` takes them."""
    dims, *inputs = p.options()
    dims = [x for x in dims.removeprefix("--dim=").split(",")
            if not NOT_RUN.match(x)]
    return (["--dim", *dims] if dims else []) + [
        x for i in inputs for x in ("--in", i.removeprefix("--in="))]


def main():
    given = [a for a in sys.argv[1:]]
    if not any(a.startswith("--work") for a in given):
        given.append("--work=60000" if "--walks" in given else "--work=20000")
    return net.report(GradientNet, net.options(given, __doc__))


if __name__ == "__main__":
    sys.exit(main())
