#!/usr/bin/env python3
"""attn.jax and attn.hf on a GPU, beside what the frameworks compute themselves.

    tools/bench/gpu/frameworks.py --prep OUT [--attnc PATH] [--target sm_90a]
    python3 OUT/frameworks.py [--filter jax,"hf llama"] [--cpu]

--prep compiles a program for attn.jax into OUT, which is carried to the machine.
attn.hf compiles there: it wants attnc, by the wheel of tools/build_wheel.py or
$ATTNC. What is not there is said and is no failure: JAX with CUDA, transformers,
attnc. JAX: results and gradients, under jit and vmap, beside jax.nn.softmax in
f32. transformers: random Llama, gpt-oss, Gemma 3 and DeepSeek V3 in bf16, logits
beside eager attention in f32, which may be off at most twice as much as those of
SDPA, and 16 greedy tokens in f32. --cpu tries the script."""
import copy
import importlib.util
import os
import subprocess
import sys

import carry

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
SMALL = dict(vocab_size=97, hidden_size=256, intermediate_size=512,
             num_hidden_layers=2, num_attention_heads=8,
             num_key_value_heads=2, head_dim=64, max_position_embeddings=1024,
             pad_token_id=0, bos_token_id=1, eos_token_id=None)
TYPES = ["sliding_attention", "full_attention"]
MODELS = {"llama": ("LlamaConfig", SMALL),
          "gpt-oss": ("GptOssConfig", dict(
              SMALL, sliding_window=64, num_local_experts=4,
              num_experts_per_tok=2, layer_types=TYPES)),
          "gemma 3": ("Gemma3TextConfig", dict(
              SMALL, sliding_window=64, query_pre_attn_scalar=64,
              layer_types=TYPES)),
          "deepseek v3": ("DeepseekV3Config", dict(
              {n: x for n, x in SMALL.items() if n != "head_dim"},
              num_key_value_heads=8, q_lora_rank=96, kv_lora_rank=128,
              qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
              n_routed_experts=4, n_group=1, topk_group=1,
              num_experts_per_tok=2, moe_intermediate_size=64,
              first_k_dense_replace=1))}


def prepare(a):
    os.makedirs(a.prep, exist_ok=True)
    target = a.target if a.target.startswith("cpu") else "cpu," + a.target
    subprocess.run(
        [a.attnc, os.path.join(TOP, "stdlib/attention/gqa.attn"), "--grad",
         "--shared", "--target", target, "-D", "T=f32", "-D", "D=64", "-D",
         "Dv=64", "-o", os.path.join(a.prep, "gqa.so")], check=True)
    carry.script(a, __file__)
    print(f"1 library in {a.prep}")


def lacks(*modules):
    gone = [n for n in modules if importlib.util.find_spec(n) is None]
    return "there is no " + " and no ".join(gone) if gone else ""


# ---------------------------------------------------------------- JAX
def jax_here(a):
    """Whether all is right, or why it was not tried."""
    gone = lacks("jax")
    if gone:
        return gone
    import jax
    import jax.numpy as jnp
    if jax.default_backend() != ("cpu" if a.cpu else "gpu"):
        return f"JAX has {jax.default_backend()} only"
    import attn
    import attn.jax
    f = attn.jax.function(attn.load(os.path.join(HERE, "gqa.so"))[
        "gqa_gqa_f32"], batch="B")

    def plain(q, k, v):
        k, v = (jnp.repeat(x, q.shape[-3] // k.shape[-3], -3)
                for x in (k, v))
        with jax.default_matmul_precision("highest"):
            s = q @ jnp.swapaxes(k, -1, -2) / 8
            keep = jnp.tri(*s.shape[-2:], s.shape[-1] - s.shape[-2],
                           dtype=bool)
            return jax.nn.softmax(jnp.where(keep, s, -jnp.inf)) @ v

    def normal(i, *shape):
        return jax.random.normal(jax.random.key(i), shape)

    q = normal(1, 2, 8, 200, 64)
    k, v = normal(2, 2, 2, 300, 64), normal(3, 2, 2, 300, 64)
    d = normal(4, *q.shape)
    many = [jnp.stack([x, -x, x / 2]) for x in (q, k, v)]

    def grads(run):
        return jax.jit(jax.grad(lambda x: (run(*x) * d).sum()))((q, k, v))

    def own(*x):
        return f(*x)[0]

    checks = {"call": (own(q, k, v), plain(q, k, v)),
              "jit": (jax.jit(own)(q, k, v), plain(q, k, v)),
              "vmap": (jax.jit(jax.vmap(own))(*many), plain(*many))}
    checks.update((f"gradient of {n}", x) for n, x in zip(
        "QKV", zip(grads(own), grads(plain))))
    good = True
    for name, (x, y) in checks.items():
        e = float(jnp.linalg.norm((x - y).ravel())
                  / jnp.linalg.norm(y.ravel()))
        print(f"jax {jax.__version__}, {name}: off by {e:.1e}")
        good = good and e < (1e-5 if a.cpu else 2e-3)  # f32 by TF32
    return good


# ---------------------------------------------------------------- transformers
def off(x, y):
    return ((x.float() - y.float()).norm() / y.float().norm()).item()


def model(a, name, torch):
    import transformers
    import attn.hf
    kind, numbers = MODELS[name]
    torch.manual_seed(0)
    eager = transformers.AutoModelForCausalLM.from_config(
        getattr(transformers, kind)(**numbers),
        attn_implementation="eager").eval()
    for n, p in eager.named_parameters():
        if "norm" not in n:
            torch.nn.init.normal_(p, std=0.06)
    dev = "cpu" if a.cpu else "cuda"
    eager, ids = eager.to(dev), torch.randint(2, 97, (2, 300), device=dev)
    keep = torch.ones_like(ids)
    keep[1, :40] = 0  # padding on the left
    real = keep.bool()

    def logits(m):
        with torch.no_grad():
            return m(ids, attention_mask=keep).logits[real]

    def tokens(m):
        return m.generate(ids, attention_mask=keep, max_new_tokens=16,
                          do_sample=False)

    want, errors = logits(eager), {}
    for way in (attn.hf.register(), "sdpa", "eager"):
        m = copy.deepcopy(eager).bfloat16()
        try:
            m.set_attn_implementation(way)
            errors[way] = off(logits(m), want)
        except ValueError as e:  # models without SDPA
            print(f"{name}, {way}: {str(e)[:100]}")
    ours = copy.deepcopy(eager)
    ours.set_attn_implementation("attnc")
    same = torch.equal(tokens(ours), tokens(eager))
    e = off(logits(ours), want)
    print(f"{name}: logits in f32 off by {e:.1e}, greedy tokens "
          + ("the same" if same else "differ") + "; in bf16 "
          + ", ".join(f"{n} {x:.1e}" for n, x in errors.items()))
    peer = errors.get("sdpa", errors["eager"])
    return e < (1e-5 if a.cpu else 5e-3) and errors["attnc"] < 2 * peer and \
        (same or not a.cpu)  # on a GPU f32 goes by TF32


def hf_here(a):
    gone = lacks("torch", "transformers")
    if gone:
        return gone
    import torch
    if not a.cpu and not torch.cuda.is_available():
        return "PyTorch has no CUDA"
    from attn import _compile, errors
    try:
        _compile.find_attnc()
    except errors.Error as e:
        return str(e)
    wanted = a.filter.split(",")
    return all([model(a, name, torch) for name in MODELS
                if any(t in "hf " + name for t in wanted)])


def main():
    ap = carry.options(__doc__, "frameworks.json", 1)
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    if a.prep:
        return prepare(a)
    wrong = []
    for name, run in (("jax", jax_here), ("hf", hf_here)):
        if not any(t.startswith(name) or t in name
                   for t in a.filter.split(",")):
            continue
        made = run(a)
        print(f"{name}: " + (f"not tried: {made}" if isinstance(made, str)
                             else "right" if made else "wrong"), flush=True)
        wrong += [name] * (made is False)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
