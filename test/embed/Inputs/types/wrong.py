import attn

attn.compile(3)
attn.compile("gqa.attn", dim={"D": 64})
attn.load("gqa.so").gqa.params[0].nam
attn.torch.function(fn=1)
attn.jax.function("gqa")
attn.hf.registered()
n: str = attn.threads()
