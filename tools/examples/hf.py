#!/usr/bin/env python3
"""A model of Hugging Face transformers with compiled attention: the logits, the
tokens and the times of both it and PyTorch's own.

    hf.py [--model llama|gpt-oss|gemma3] [--device cuda] [--tokens N] [--new N]

The weights are random: nothing is downloaded."""
import argparse
import copy
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../python"))

try:
    import torch
    import transformers
except ImportError as e:
    sys.exit(f"hf.py needs PyTorch and transformers: {e}")

import attn.hf  # noqa: E402

SIZES = dict(vocab_size=1000, hidden_size=512, intermediate_size=1024,
             num_hidden_layers=4, num_attention_heads=8,
             num_key_value_heads=2, head_dim=64, pad_token_id=0,
             bos_token_id=1, eos_token_id=None, max_position_embeddings=8192)
MODELS = {
    "llama": ("LlamaConfig", {}, "sdpa"),
    "gpt-oss": ("GptOssConfig", dict(sliding_window=128, num_local_experts=4,
                                     num_experts_per_tok=2), "eager"),
    "gemma3": ("Gemma3TextConfig", dict(sliding_window=512), "sdpa"),
}


def ms(f, cuda, runs=5):
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        f()
        if cuda:
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times[1:])[runs // 2]


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--model", choices=list(MODELS), default="llama")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--tokens", type=int, default=512)
    ap.add_argument("--new", type=int, default=32)
    a = ap.parse_args()
    cuda = a.device == "cuda"
    config, more, usual = MODELS[a.model]
    torch.manual_seed(0)
    config = getattr(transformers, config)(**SIZES, **more)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation=usual)
    model = model.to(a.device, torch.bfloat16 if cuda else torch.float32)
    model = model.eval()
    ours = copy.deepcopy(model)
    ours.set_attn_implementation(attn.hf.register())

    ids = torch.randint(2, 1000, (1, a.tokens), device=a.device)
    want, got = (m(ids).logits.float() for m in (model, ours))
    far = float((got - want).norm() / want.norm())
    print(f"logits: {far:.1e} from {usual}'s")
    assert far < (2e-2 if cuda else 1e-5)
    tokens = {}
    for name, m in ((usual, model), ("attnc", ours)):
        def generate(m=m):
            return m.generate(ids, max_new_tokens=a.new, do_sample=False)
        tokens[name] = generate()
        print(f"{name:6} {ms(lambda m=m: m(ids), cuda):9.2f} ms for "
              f"{a.tokens} tokens, {ms(generate, cuda, 1) / a.new:8.2f} ms "
              "for each new one")
    same = torch.equal(*tokens.values())
    print("the tokens are the same" if same else "the tokens differ")
    assert same or cuda


if __name__ == "__main__":
    main()
