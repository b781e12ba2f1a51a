"""Operators under PyTorch 2: its own checks of operators, graphs that are saved
and loaded in another process. With ATTN_AOT=1 AOTInductor's packages, too,
which take a minute of a C++ compiler."""
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    assert torch.__version__ >= "2.4"
except (ImportError, AssertionError):
    print("skipped: there is no PyTorch 2")
    sys.exit()

import attn

TEXT = """
import std.masks { causal }
import std.rows { softmax }
attention f<B, H, Sq, Sk, D>
  (Q: f32[B, H, Sq, D], K: f32[B, H, Sk, D], V: f32[B, H, Sk, D])
  -> (O: f32[B, H, Sq, D])
{
  index b in B, h in H, q in Sq;
  index k in Sk where causal(off = Sk - Sq);
  let (p, _) = softmax(%s * dot(Q[b, h, q], K[b, h, k]));
  O[b, h, q] = sum(k: p * V[b, h, k]);
}
"""


def tensors(length):
    return [torch.randn(1, 2, length, 32) for _ in "qkv"]


class Twice(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, q, k, v):
        return self.f(q, k, v) * 2


def load(folder, name, aot):
    """What another process does; prints the name of the error, if any."""
    f = attn.torch.function(source=TEXT % name)
    f(*tensors(4))
    data = torch.load(folder / "data.pt")
    try:
        module = torch._inductor.aoti_load_package(str(folder / "aot.pt2")) \
            if aot else torch.export.load(folder / "saved.pt2").module()
        worst = (module(*data["in"]) - data["out"]).abs().max().item()
        print("loaded", worst < 1e-6)
    except RuntimeError:
        print("refused")


def other(folder, name, aot=False):
    return subprocess.run(
        [sys.executable, __file__, str(folder), name, *["aot"] * aot],
        stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")[-2]


def main():
    f = attn.torch.function(source=TEXT % "rsqrt(D)")
    for grad in (False, True):
        args = [t.requires_grad_(grad) for t in tensors(12)]
        said = torch.library.opcheck(f.operator(*args), args)
        assert set(said.values()) == {"SUCCESS"}, said
    length = torch.export.Dim("S", min=2, max=4096)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        folder, module = pathlib.Path(folder), Twice(f)
        graph = torch.export.export(module, tuple(tensors(12)),
                                    dynamic_shapes=({2: length},) * 3)
        torch.export.save(graph, folder / "saved.pt2")
        data = tensors(40)
        torch.save({"in": data, "out": module(*data)}, folder / "data.pt")
        assert other(folder, "rsqrt(D)") == "loaded True"
        # Another program has another name, however it was called there.
        assert other(folder, "0.5") == "refused"
        if os.environ.get("ATTN_AOT"):
            torch._inductor.aoti_compile_and_package(
                graph, package_path=str(folder / "aot.pt2"))
            assert other(folder, "rsqrt(D)", True) == "loaded True"
            assert other(folder, "0.5", True) == "refused"
    print("all good")


if len(sys.argv) > 1:
    load(pathlib.Path(sys.argv[1]), sys.argv[2], len(sys.argv) > 3)
else:
    main()
