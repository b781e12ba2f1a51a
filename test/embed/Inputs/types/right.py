"""What an application writes, for mypy --strict."""
import attn

lib = attn.compile("gqa.attn", dims={"T": "f32", "D": 64})
loaded: attn.Library = attn.load("gqa.so")
program: attn.Program = lib.gqa
o, lse = program([1.0], [2.0], [3.0], scale=0.1, out=None)
launch: attn.Launch = program.prepare([1.0])
launch()
names: list[str] = [p.name for p in program.params]
for each in loaded:
    print(each.signature, each.output_shapes({"Q": (1, 2, 3)}))
try:
    program()
except attn.ShapeError as e:
    axis: int | None = e.axis
except ValueError:
    pass
function = attn.torch.function("gqa.attn", fn="gqa", dims={"T": "f32"})
op = attn.torch.register(program, "my::gqa")
of_arrays = attn.jax.function(program, batch="B")
name: str = attn.hf.register()
