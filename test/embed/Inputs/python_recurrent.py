"""attn.hf's recurrences: its functions beside plain loops over tokens, with any
PyTorch; and small random models of transformers, where there are any."""
import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    print("skipped: there is no torch")
    sys.exit()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import attn.hf  # noqa: E402


def apart(a, b):
    return float((a - b).abs().max() / b.abs().max())


def close(a, b, tol=1e-5):
    for x, y in zip(a, b):
        assert x.shape == y.shape and apart(x, y) < tol, apart(x, y)


def normal(*shape):
    return torch.randn(*shape, generator=RNG)


RNG = torch.Generator().manual_seed(1)


# ---- functions

def delta_loop(q, k, v, g, beta, state):
    """Of unit vectors, heads repeated."""
    n = v.shape[2] // k.shape[2]
    q, k = (F.normalize(x, dim=-1).repeat_interleave(n, 2) for x in (q, k))
    out = []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        was = torch.einsum("bhd,bhdv->bhv", k[:, t], state)
        step = beta[:, t, :, None] * (v[:, t] - was)
        state = state + torch.einsum("bhd,bhv->bhdv", k[:, t], step)
        out.append(torch.einsum("bhd,bhdv->bhv", q[:, t], state))
    return torch.stack(out, 1) * q.shape[-1] ** -0.5, state


def delta_rule():
    q, k = normal(2, 2, 21, 2, 8)
    v, g, beta = normal(2, 21, 4, 16), -normal(2, 21, 4).abs(), torch.sigmoid(
        normal(2, 21, 4))
    state = normal(2, 4, 8, 16)
    want = delta_loop(q, k, v, g, beta, state)
    how = dict(output_final_state=True, use_qk_l2norm_in_kernel=True)
    before = state.clone()
    close(attn.hf.gated_delta(q, k, v, g, beta, initial_state=state, **how),
          want)
    assert torch.equal(state, before)
    # From nothing, then one token more.
    most, last = (x[:, :20] for x in (q, k, v, g, beta)), (
        x[:, 20:] for x in (q, k, v, g, beta))
    _, half = attn.hf.gated_delta(*most, **how)
    o, end = attn.hf.gated_delta(*last, initial_state=half, **how)
    want = delta_loop(q, k, v, g, beta, torch.zeros_like(state))
    close((o, end), (want[0][:, 20:], want[1]))
    assert attn.hf.gated_delta(q, k, v, g, beta)[1] is None


def scan_loop(x, dt, A, B, C, D, bias, state, least, most):
    n = x.shape[2] // B.shape[2]
    B, C = (y.repeat_interleave(n, 2) for y in (B, C))
    out = []
    for t in range(x.shape[1]):
        d = F.softplus(dt[:, t] + bias).clamp(least, most)
        state = state * (d * A).exp()[..., None, None] + torch.einsum(
            "bh,bhp,bhn->bhpn", d, x[:, t], B[:, t])
        out.append(torch.einsum("bhpn,bhn->bhp", state, C[:, t])
                   + D[:, None] * x[:, t])
    return torch.stack(out, 1), state


def scan():
    x, (B, C) = normal(2, 21, 4, 8), normal(2, 2, 21, 2, 16)
    dt, bias, D, A = normal(2, 21, 4), normal(4), normal(4), -normal(4).exp()
    state = normal(2, 4, 8, 16)
    want = scan_loop(x, dt, A, B, C, D, bias, state, 0.1, 1.0)
    how = dict(D=D, dt_bias=bias, dt_softplus=True, return_final_states=True)
    close(attn.hf.mamba2(x, dt, A, B, C, 16, initial_states=state,
                         dt_limit=(0.1, 1.0), **how), want)
    # One token, as transformers gives it; a gate.
    want = scan_loop(*(y[:, :1] for y in (x, dt)), A, B[:, :1], C[:, :1], D,
                     bias, state, 0, 99)
    wide = {"dt": dt[:, 0, :, None].expand(2, 4, 8),
            "A": A[:, None, None].expand(4, 8, 16),
            "D": D[:, None].expand(4, 8), "dt_bias": bias[:, None].expand(4, 8)}
    z, own = normal(2, 4, 8), state.clone()
    step = dict(B=B[:, 0], C=C[:, 0], dt_softplus=True)
    y = attn.hf.mamba2_step(own, x[:, 0], z=z, **wide, **step)
    close((y, own), (want[0][:, 0] * F.silu(z), want[1]))
    return wide, step, own, x[:, 0]


def refusals(wide, step, state, x):
    q = torch.zeros(1, 2, 2, 8)
    g = torch.zeros(1, 2, 2)
    for bad, error, text in (
            (lambda: attn.hf.gated_delta(q, q, q, g, g, cu_seqlens=g),
             attn.UnsupportedError, "cu_seqlens"),
            (lambda: attn.hf.gated_delta(q.double(), q, q, g, g),
             attn.DtypeError, "float64"),
            (lambda: attn.hf.mamba2(q, g, g[0, 0], q, q, 16, seq_idx=g),
             attn.UnsupportedError, "seq_idx"),
            (lambda: attn.hf.mamba2_step(
                state, x, **{**wide, "A": wide["A"].contiguous()}, **step),
             attn.UnsupportedError, "A: one value for each head"),
            (lambda: attn.hf.gated_delta(q, q, q, g[:, :1], g),
             attn.ShapeError, "'g'")):
        try:
            bad()
        except error as e:
            assert text in str(e), e
        else:
            raise AssertionError(text)


def layers():
    """A layer that holds its function; one that has none."""
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.chunk_gated_delta_rule = delta_loop

    layer = Layer()
    both = torch.nn.Sequential(layer, Layer(), torch.nn.Identity())
    assert attn.hf.recurrences(both) == ["chunk_gated_delta_rule"]
    assert layer.chunk_gated_delta_rule is attn.hf.gated_delta
    attn.hf.recurrences(both)
    attn.hf.recurrences(both, compiled=False)
    assert layer.chunk_gated_delta_rule is delta_loop
    try:
        attn.hf.recurrences(torch.nn.Linear(2, 2))
        raise AssertionError("no error")
    except attn.UnsupportedError as e:
        assert "no gated delta rules and no Mamba 2" in str(e)


# ---- models

TEXT = dict(vocab_size=97, hidden_size=64, pad_token_id=0, bos_token_id=1,
            eos_token_id=None)
MODELS = {
    "Qwen3Next": dict(
        TEXT, intermediate_size=96, num_hidden_layers=4, head_dim=32,
        num_attention_heads=4, num_key_value_heads=2, linear_key_head_dim=16,
        linear_value_head_dim=16, linear_num_key_heads=2,
        linear_num_value_heads=4, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32, shared_expert_intermediate_size=32),
    "Mamba2": dict(TEXT, num_heads=8, head_dim=16, state_size=16, n_groups=2,
                   num_hidden_layers=2, chunk_size=16),
    "FalconH1": dict(
        TEXT, intermediate_size=96, num_hidden_layers=2, head_dim=32,
        num_attention_heads=4, num_key_value_heads=2, mamba_d_ssm=64,
        mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=16,
        mamba_chunk_size=16),
}


def model(name, numbers):
    import transformers
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(
        getattr(transformers, name + "Config")(**numbers),
        attn_implementation="eager").eval()
    for n, p in made.named_parameters():
        if not any(w in n for w in ("norm", "A_log", "dt_bias")):
            torch.nn.init.normal_(p, std=0.1)
    return made


def results(m, ids, keep):
    """Logits, those of a batch with padding on the left, 64 greedy tokens of
    it, gradients."""
    short = {"attention_mask": keep[:, 26:], "max_new_tokens": 64,
             "do_sample": False, "disable_compile": True}
    with torch.no_grad():
        plain = m(ids).logits
        padded = m(ids, attention_mask=keep).logits[keep.bool()]
        tokens = m.generate(ids[:, 26:], **short)
    m.zero_grad()
    m(ids, labels=ids).loss.backward()
    turned = {n: p.grad.clone() for n, p in m.named_parameters()
              if p.grad is not None and float(p.grad.abs().max()) > 1e-6}
    return plain, padded, tokens, turned


def small_types(m, ids, want):
    """In bf16 no further from f32 than PyTorch's own is."""
    import copy
    half = copy.deepcopy(m).to(torch.bfloat16)
    far = []
    for compiled in (False, True):
        attn.hf.recurrences(half, compiled)
        with torch.no_grad():
            far.append(float((half(ids).logits.float() - want).norm()))
    assert far[1] < 2 * far[0], far


def compare(name, numbers):
    m = model(name, numbers)
    ids, keep = torch.randint(2, 97, (3, 37)), torch.ones(3, 37).long()
    keep[1, :31] = keep[2, :20] = 0
    want = results(m, ids, keep)
    names = attn.hf.recurrences(m)
    made = results(m, ids, keep)
    far = [apart(a, b) for a, b in zip(made[:2], want)]
    same = torch.equal(made[2], want[2]) and made[2].shape == (3, 75)
    turned = max(apart(made[3][n], g) for n, g in want[3].items())
    print(f"{name}: logits {far[0]:.1e}, padded {far[1]:.1e}, 64 tokens {same},"
          f" gradients {turned:.1e}", flush=True)
    assert len(names) == 2 and max(far) < 1e-4 and same and turned < 1e-3
    # One graph; nothing of the programs is traced.
    graph = torch.compile(m, backend="eager", fullgraph=name == "Mamba2")
    with torch.no_grad():
        close((graph(ids).logits,), (want[0],), 1e-4)
    small_types(m, ids, want[0])
    if name == "Qwen3Next":  # and its layers of attention
        m.set_attn_implementation(attn.hf.register())
        with torch.no_grad():
            padded = m(ids, attention_mask=keep).logits[keep.bool()]
        close((padded,), (want[1],), 1e-4)
        m.set_attn_implementation("eager")
    attn.hf.recurrences(m, False)
    with torch.no_grad():
        assert torch.equal(m(ids).logits, want[0])


with torch.no_grad():
    delta_rule()
    refusals(*scan())
layers()
if importlib.util.find_spec("transformers") and hasattr(torch, "compile"):
    for item in MODELS.items():
        compare(*item)
    print("models: all good")
else:
    print("models skipped: there is no transformers")
print("functions: all good")
