"""attn.hf with small random models of transformers: logits, padding, caches,
tokens, gradients, against eager attention."""
import copy
import importlib.util
import sys

missing = [n for n in ("torch", "transformers")
           if importlib.util.find_spec(n) is None]
if not missing:
    import torch
    if not hasattr(torch, "compile"):
        missing = ["torch 2"]
if missing:
    print("skipped: there is no", " and no ".join(missing))
    sys.exit()

import transformers  # noqa: E402

import attn.hf  # noqa: E402

SMALL = dict(vocab_size=97, hidden_size=64, intermediate_size=96,
             num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=32, max_position_embeddings=256,
             pad_token_id=0, bos_token_id=1, eos_token_id=None)
WIDE = dict(SMALL, q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=32,
            qk_rope_head_dim=16, v_head_dim=32, n_routed_experts=4, n_group=1,
            topk_group=1, num_experts_per_tok=2, moe_intermediate_size=32,
            first_k_dense_replace=1, num_key_value_heads=4)
del WIDE["head_dim"]
MODELS = {
    "llama": ("LlamaConfig", SMALL),
    "mistral, window": ("MistralConfig", dict(SMALL, sliding_window=9)),
    "gpt-oss": ("GptOssConfig", dict(
        SMALL, sliding_window=8, num_local_experts=4, num_experts_per_tok=2,
        layer_types=["sliding_attention", "full_attention"])),
    "gemma 2": ("Gemma2Config", dict(
        SMALL, sliding_window=8, query_pre_attn_scalar=32,
        attn_logit_softcapping=5.0)),
    "gemma 3": ("Gemma3TextConfig", dict(
        SMALL, sliding_window=8, query_pre_attn_scalar=32,
        layer_types=["sliding_attention", "full_attention"])),
    "llama 4, chunks": ("Llama4TextConfig", dict(
        SMALL, attention_chunk_size=8, num_local_experts=2,
        intermediate_size_mlp=96, no_rope_layers=[1, 0],
        layer_types=["chunked_attention", "full_attention"])),
    "deepseek v3": ("DeepseekV3Config", WIDE),
}


def models(config, numbers, **more):
    torch.manual_seed(0)
    config = getattr(transformers, config)(**numbers, **more)
    eager = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager").eval()
    for n, p in eager.named_parameters():
        if "norm" not in n:
            torch.nn.init.normal_(p, std=0.15)
    ours = copy.deepcopy(eager)
    ours.set_attn_implementation(attn.hf.register())
    return eager, ours


def apart(a, b):
    return float((a - b).abs().max() / b.abs().max())


def logits(eager, ours):
    """Of whole rows, and of a batch with padding left and right."""
    ids = torch.randint(2, 97, (3, 37))
    worst = apart(ours(ids).logits, eager(ids).logits)
    for left in (True, False):
        keep = torch.ones_like(ids)
        for b, n in enumerate((0, 5, 20)):
            keep[b, :n] = 0
        keep = keep if left else keep.flip(1)
        a, b = (m(ids, attention_mask=keep).logits for m in (ours, eager))
        real = keep.bool()
        worst = max(worst, apart(a[real], b[real]))
    return worst


def tokens(eager, ours, **cache):
    """Greedy ones, of a batch with padding on the left: equal?"""
    ids = torch.randint(2, 97, (2, 11))
    keep = torch.ones_like(ids)
    keep[1, :4] = 0
    a, b = (m.generate(ids, attention_mask=keep, max_new_tokens=64,
                       do_sample=False, disable_compile=True, **cache)
            for m in (ours, eager))
    return a.shape == b.shape == (2, 75) and torch.equal(a, b)


def gradients(eager, ours):
    ids = torch.randint(2, 97, (2, 23))
    for m in (eager, ours):
        m.zero_grad()
        m(ids, labels=ids).loss.backward()
    return max(apart(a.grad, b.grad) for a, b in zip(
        ours.parameters(), eager.parameters())
        if b.grad is not None and float(b.grad.abs().max()) > 1e-6)


def close(a, b, tol=1e-4):
    assert apart(a, b) < tol, apart(a, b)


def used(run):
    """The variants of programs that a call takes."""
    seen, own = [], attn.hf.constant_operator
    attn.hf.constant_operator = lambda *a, **f: seen.append(
        attn.hf.Variant(**f)) or own(*a, **f)
    try:
        run()
    finally:
        attn.hf.constant_operator = own
    return set(seen)


def other_masks():
    eager, ours = models(*MODELS["llama"])
    ids = torch.randint(2, 97, (2, 24))
    # Sequences packed in one row: position_ids start again.
    place = torch.cat([torch.arange(n) for n in (10, 9, 5)])[None]
    packed = {"position_ids": place, "use_cache": False}
    close(ours(ids, **packed).logits, eager(ids, **packed).logits)
    assert all(v.doc and v.causal and not v.given
               for v in used(lambda: ours(ids, **packed)))
    # Padding within a row is no range, but no mask of pairs either.
    keep = torch.ones_like(ids)
    keep[1, 7:11] = 0
    a, b = (m(ids, attention_mask=keep).logits for m in (ours, eager))
    close(a[keep.bool()], b[keep.bool()])
    assert all(v.keep and not v.given
               for v in used(lambda: ours(ids, attention_mask=keep)))
    # Masks that a caller made: of booleans, of numbers that are added.
    tri = torch.ones(2, 1, 24, 24, dtype=torch.bool).tril()
    tri[:, :, 9:, 3] = False
    bias = torch.zeros(2, 1, 24, 24).masked_fill(~tri, torch.finfo().min)
    want = eager(ids, attention_mask=bias).logits
    for own in (tri, bias):
        close(ours(ids, attention_mask=own).logits, want)
    # Few rows take other kernels; padding and a window are parameters.
    left = torch.ones_like(ids)
    left[0, :3] = 0
    seen = used(lambda: ours.generate(
        ids, attention_mask=left, max_new_tokens=3, do_sample=False))
    assert {v.few for v in seen} == {False, True} or all(v.few for v in seen)
    assert all(v.padding and not v.given for v in seen)


def compiled():
    """One graph, with padding too; nothing of the programs is traced."""
    eager, ours = models(*MODELS["mistral, window"])
    ids, keep = torch.randint(2, 97, (2, 20)), torch.ones(2, 20).long()
    keep[0, :4] = 0
    graph = torch.compile(ours, backend="eager", fullgraph=True)
    close(graph(ids).logits, eager(ids).logits)
    a, b = (m(ids, attention_mask=keep).logits for m in (graph, eager))
    close(a[keep.bool()], b[keep.bool()])
    # A graph of a step, as generate() makes it for a static cache.
    how = transformers.CompileConfig(backend="eager", fullgraph=True, mode=None)
    how._compile_all_devices = True
    a, b = (m.generate(ids, attention_mask=keep, max_new_tokens=20,
                       do_sample=False, **more) for m, more in (
        (ours, {"cache_implementation": "static", "compile_config": how}),
        (eager, {})))
    assert torch.equal(a, b)


def types():
    """bf16: no further from f32 than eager attention in bf16 is."""
    eager, ours = models(*MODELS["gemma 2"])
    ids = torch.randint(2, 97, (2, 40))
    want = eager(ids).logits
    for dtype in (torch.bfloat16, torch.float16):
        a, b = (copy.deepcopy(m).to(dtype)(ids).logits.float() - want
                for m in (ours, eager))
        assert a.norm() < 2 * b.norm(), (a.norm(), b.norm())


def refusals():
    eager, ours = models(*MODELS["llama"])
    q = torch.zeros(1, 4, 3, 32)
    for bad, error in (
            (lambda: attn.hf.attention(eager, q.double(), q, q, None),
             attn.DtypeError),
            (lambda: attn.hf.attention(eager, q, q, q, None,
                                       output_attentions=True),
             attn.UnsupportedError),
            (lambda: attn.hf.attention(eager, q, q, q, torch.ones(1, 1, 3, 2)),
             attn.ShapeError)):
        try:
            bad()
            raise AssertionError("no error")
        except error:
            pass
    dropped = [attn.hf.attention(eager, q + 1, q + 1, q.normal_(), None,
                                 dropout=0.5)[0] for _ in range(2)]
    assert not torch.equal(*dropped)


def main(names):
    for name, (config, numbers) in MODELS.items():
        if names and not any(n in name for n in names):
            continue
        eager, ours = models(config, numbers)
        with torch.no_grad():
            far = logits(eager, ours)
            same = tokens(eager, ours), tokens(
                eager, ours, cache_implementation="static")
        turned = gradients(eager, ours)
        print(f"{name}: logits {far:.1e}, 64 tokens {same[0]}, static cache "
              f"{same[1]}, gradients {turned:.1e}", flush=True)
        assert far < 1e-4 and all(same) and turned < 1e-3, name
    with torch.no_grad():
        other_masks()
        compiled()
        types()
        refusals()
    print("all good")


if __name__ == "__main__":
    main(sys.argv[1:])
