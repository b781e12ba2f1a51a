"""Attention of Hugging Face transformers by compiled programs.

    import attn.hf
    attn.hf.register()             # once in a process
    model = AutoModelForCausalLM.from_pretrained(.., attn_implementation="attnc")

or `model.set_attn_implementation("attnc")`. A layer's program is made of what the
layer asks for: causal or not, a window, a chunk, softcapped scores, sinks,
dropout, sequences packed in one row, padding on either side, any other mask as a
tensor. Heads of keys are shared, not repeated. Programs are compiled at their
first use and kept on disk (attn.cache_dir()); with a gradient where a tensor
requires one, and with kernels for few rows where there are few.

    attn.hf.recurrences(model)     # gated delta rules and Mamba 2

lets recurrent layers run compiled programs too.

transformers and PyTorch are imported by register(), not before."""
import functools
import sys
import typing

from . import errors

# ---- masks
#
# transformers makes masks of functions of positions. Those of its own that are
# ranges of keys become parameters of a program; others become a tensor.


class Mask:
    """What a query may see. Of tensors a program takes as they are:
    pos    i32[B]  place of the first query among the keys
    lo, hi i32[B]  keys that are no padding, None: all
    keep   bool[B, S]  the same where it is no range, or nothing is known of it
    doc    i32[B, S]  sequences packed in one row
    and of numbers: causal, left (a window's keys, 0: all), right, chunk."""

    ndim = 4  # generate() hands a model's own masks to it

    def __init__(self, pos, **fields):
        self.pos = pos
        self.lo = self.hi = self.keep = self.doc = None
        self.causal, self.left, self.right, self.chunk = False, 0, -1, 0
        self.__dict__.update(fields)


def _cells(function):
    """A closure's name and variables."""
    code = getattr(function, "__code__", None)
    if code is None:
        return "", {}
    cells = function.__closure__ or ()
    return function.__qualname__, dict(
        zip(code.co_freevars, (c.cell_contents for c in cells)))


def _read(function, found):
    """Adds what a mask function of transformers says to `found`; False: it
    says what a Mask has no word for."""
    if getattr(function, "__module__", "") != "transformers.masking_utils":
        return False
    name, cells = _cells(function)
    name = name.partition(".")[0]
    if name == "and_masks":
        return all(_read(f, found) for f in cells["mask_functions"])
    if name == "causal_mask_function":
        found["causal"] = True
    elif name == "sliding_window_overlay":
        found["left"] = int(cells["sliding_window"])
    elif name == "sliding_window_bidirectional_overlay":
        found["left"] = int(cells["sliding_window"]) + 1
        found["right"] = int(cells["sliding_window"])
    elif name == "chunked_overlay":
        found["chunk"] = int(cells["chunk_size"])
        found["origin"] = cells["left_padding"]
    elif name == "packed_sequence_mask_function":
        found["doc"] = cells["packed_sequence_mask"]
    elif name == "remap_positions_for_packed_sequence":
        # Distances within one sequence, the only ones that are seen, stay;
        # places do not.
        inner = {}
        good = _read(cells["mask_function"], inner) and "chunk" not in inner
        found.update(inner)
        return good
    elif name != "bidirectional_mask_function":
        return False
    return True


def _range(keep):
    """The first key that is kept and the one behind the last, of each row of
    bool[B, S]; None: there are others between."""
    import torch
    n = keep.shape[1]
    at = torch.arange(n, device=keep.device)
    lo = torch.where(keep, at, n).amin(1)
    hi = torch.where(keep, at + 1, 0).amax(1)
    if bool(((hi - lo).clamp(min=0) != keep.sum(1)).any()):
        return None
    return lo.int(), hi.int()


# By register(): a module, as a trace may not import lazy ones, and whether a
# trace reads what a function within it holds.
_transformers = {}


def _traces_closures():
    import torch

    def hold(n):
        return lambda: n

    def read(x):
        cell, = hold(3).__closure__
        return x + cell.cell_contents

    try:
        run = torch.compile(read, backend="eager", fullgraph=True)
        return int(run(torch.zeros(()))) == 3
    except Exception:  # of PyTorch's own, which differ among versions
        return False


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
         mask_function=None, attention_mask=None, use_vmap=False, device="cpu",
         **other):
    """The mask function of register(): a Mask, or where there is no other way a
    tensor bool[B, 1, Sq, Sk]."""
    import torch
    if isinstance(attention_mask, Mask):
        return attention_mask
    found = {}
    blind = torch.compiler.is_compiling() and not _transformers["reads"]
    if not use_vmap and not blind and _read(mask_function, found):
        return _mask(found, batch_size, kv_length, q_offset, kv_offset,
                     attention_mask, device)
    return _transformers["masks"].sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length,
        q_offset=q_offset, kv_offset=kv_offset, mask_function=mask_function,
        attention_mask=attention_mask, use_vmap=use_vmap, device=device,
        allow_is_causal_skip=False)


def _mask(found, batch, keys, q_offset, kv_offset, padding, device):
    import torch
    origin = found.pop("origin", None)
    pos = torch.empty(batch, dtype=torch.int32, device=device)
    pos.copy_(torch.as_tensor(q_offset - kv_offset))
    made = Mask(pos, **found)
    if made.chunk:
        # Chunks count from the first token of a row, and a place's number does
        # not matter but for them.
        start = torch.as_tensor(origin, device=device) - kv_offset
        made.origin = (made.chunk - start % made.chunk).int().expand(
            batch).contiguous()
    if made.doc is not None:
        made.doc = made.doc.int().expand(batch, -1).contiguous()
    if padding is None:
        return made
    # What the 2-D mask does not reach is not there.
    keep = torch.nn.functional.pad(
        padding.bool(), (0, max(0, kv_offset + keys - padding.shape[1])))
    keep = keep[:, kv_offset:kv_offset + keys]
    # A trace may not look at what is in a tensor.
    ends = None if torch.compiler.is_compiling() else _range(keep)
    if ends is None:
        made.keep = keep.contiguous()
    elif bool((ends[0] > 0).any() or (ends[1] < keys).any()):
        made.lo, made.hi = ends
    return made


# ---- programs

class Variant(typing.NamedTuple):
    """A program: what its text, types and constants depend on."""
    dtype: str
    d: int
    dv: int
    causal: bool = False
    window: bool = False
    right: bool = False
    chunk: bool = False
    padding: bool = False
    keep: bool = False
    doc: bool = False
    given: str = ""       # "bool", or the type of a bias
    heads: bool = False   # the given mask differs among heads
    softcap: bool = False
    sink: bool = False
    dropout: bool = False
    few: bool = False     # kernels for few rows as well


# Feature, parameters, conditions on a key, modifications of a score.
_PARTS = (
    ("causal", "nograd pos: i32[B]", "causal(off = pos[b])", ""),
    ("window", "nograd left: i32", "q + pos[b] - k < left", ""),
    ("right", "nograd right: i32", "k - q - pos[b] <= right", ""),
    ("chunk", "nograd chunk: i32, nograd origin: i32[B]",
     "(k + origin[b]) // chunk == (q + pos[b] + origin[b]) // chunk", ""),
    ("padding", "nograd lo: i32[B], nograd hi: i32[B]",
     "lo[b] <= k & k < hi[b]", ""),
    ("keep", "nograd keep: bool[B, Sk]", "keep[b, k]", ""),
    ("doc", "nograd doc: i32[B, Sk]", "doc[b, q] == doc[b, k]", ""),
    ("softcap", "nograd cap: f32", "", " |> softcap(cap)"),
    ("sink", "sink: f32[Hq]", "", ""),
    ("dropout", "seed: i64, nograd rate: f32", "", ""),
)


def source(v):
    """The text of a variant's program."""
    params, seen, mods = [], [], ""
    for name, param, condition, mod in _PARTS:
        if getattr(v, name):
            params.append(param)
            seen += [condition] if condition else []
            mods += mod
    places = v.causal or v.window or v.right or v.chunk
    if places and not v.causal:
        params.insert(0, _PARTS[0][1])
    head, at = ("Hq", "h") if v.heads else ("1", "0")
    if v.given == "bool":
        params.append(f"nograd allowed: bool[B, {head}, Sq, Sk]")
        seen.append(f"allowed[b, {at}, q, k]")
    elif v.given:
        params.append(f"bias: {v.given}[B, {head}, Sq, Sk]")
        mods += f" + bias[b, {at}, q, k]"
    score = f"scale * dot(Q[b, h, q], K[b, g, k]){mods}"
    weights = f"let p = softmax_sink({score}, sink[h]);" if v.sink else \
        f"let (p, _) = softmax({score});"
    p = "dropout(p, rate, seed)" if v.dropout else "p"
    where = " where " + " & ".join(seen) if seen else ""
    few = "@kernel(decode)\n" if v.few else ""
    return f"""\
import std.rows {{ softmax, softmax_sink }}
import std.masks {{ causal }}
import std.mods {{ softcap, dropout }}

{few}attention attention<T: dtype {{bf16, f16, f32}}, B, Hq, Hk, Sq, Sk,
    D: const {{64}} in 8 .. 576, Dv: const {{64}} in 8 .. 576>
  (Q: T[B, Hq, Sq, D], K: T[B, Hk, Sk, D], V: T[B, Hk, Sk, Dv],
   {"".join(p + ", " for p in params)}scale: f32)
  -> (O: T[B, Sq, Hq, Dv])
  where Hq % Hk == 0
{{
  index b in B, h in Hq, q in Sq;
  index k in Sk{where};
  let g = h // (Hq // Hk);
  {weights}
  O[b, q, h] = sum(k: {p} * V[b, g, k]);
}}
"""


_FEW = 64  # rows of one head of keys


def _registered(text, dims, name, device, grad):
    """Makes an operator of the text's program: its whole name."""
    from . import _choice
    from . import torch as own
    made = own.function(source=text, dims=dims).compile(device, grad)
    if isinstance(made, _choice.Choice):
        made = made.programs[0]
    name += f"_{device.partition(':')[0]}{'_grad' * grad}"
    own.register(made, "attn_hf::" + name)
    return name


@functools.lru_cache(maxsize=None)
def operator(v, device, grad):
    """The name, of torch.ops.attn_hf, of a variant's program on a kind of device,
    with its gradient or without."""
    return _registered(source(v), {"T": v.dtype, "D": v.d, "Dv": v.dv},
                       operator_name(v), device, grad)


def operator_name(v):
    """What differs from the plainest variant, as a name."""
    return "_".join(["attention", v.dtype, str(v.d), str(v.dv)] + [
        n if x is True else x for n, x in zip(v._fields[3:], v[3:]) if x])


def constant_operator(device, grad, **fields):
    """The same of a Variant's fields, for torch.compile: a name is a constant to
    it, and what makes it is not traced."""
    return operator(Variant(**fields), device, grad)


# ---- the attention function

_DTYPES = {"torch.float32": "f32", "torch.bfloat16": "bf16",
           "torch.float16": "f16"}


def _default_mask(module, is_causal, window, query, key):
    """Of a layer that was given no mask."""
    import torch
    pos = torch.full((query.shape[0],), key.shape[2] - query.shape[2],
                     dtype=torch.int32, device=query.device)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    left = window or 0
    if left and not is_causal:
        return Mask(pos, left=left + 1, right=left)
    return Mask(pos, causal=bool(is_causal), left=left)


def _fits(seen, query, key):
    """A 4-D mask for these keys: it may have more columns than there are."""
    import torch
    if seen.ndim != 4 or seen.shape[3] < key.shape[2] or \
            seen.shape[2] not in (1, query.shape[2]):
        raise errors.ShapeError(
            f"attention_mask {tuple(seen.shape)} is not [batch, heads or 1, "
            f"{query.shape[2]}, {key.shape[2]}]", "attention_mask")
    if seen.dtype not in (torch.bool, torch.float32):
        seen = seen.float()
    return seen[..., :key.shape[2]].expand(
        query.shape[0], seen.shape[1], query.shape[2], -1)


def _seen(m, query, key):
    """Fields of a Variant and arguments for a mask."""
    if not isinstance(m, Mask):
        m = _fits(m, query, key)
        flat = str(m.dtype) == "torch.bool"
        fields = {"given": "bool" if flat else "f32", "heads": m.shape[1] > 1}
        return fields, {"allowed" if flat else "bias": m}
    fields = {"causal": m.causal, "window": m.left > 0, "right": m.right >= 0,
              "chunk": m.chunk > 0, "padding": m.lo is not None,
              "keep": m.keep is not None, "doc": m.doc is not None}
    args = {}
    if m.causal or m.left or m.right >= 0 or m.chunk:
        args["pos"] = m.pos
    if m.left:
        args["left"] = m.left
    if m.right >= 0:
        args["right"] = m.right
    if m.chunk:
        args.update(chunk=m.chunk, origin=m.origin)
    if m.lo is not None:
        args.update(lo=m.lo, hi=m.hi)
    if m.keep is not None:
        args["keep"] = m.keep
    if m.doc is not None:
        args["doc"] = m.doc
    return fields, args


def _extras(softcap, s_aux, dropout):
    """Fields and arguments for what else a layer asks for."""
    import torch
    fields, args = {}, {}
    if softcap is not None:
        fields["softcap"], args["cap"] = True, float(softcap)
    if s_aux is not None:
        fields["sink"], args["sink"] = True, s_aux.float()
    if dropout > 0:
        # Another one for each call; torch.manual_seed() repeats them.
        seed = int(torch.randint(1 << 62, ()))
        fields["dropout"] = True
        args.update(seed=seed, rate=float(dropout))
    return fields, args


def _refuse(named):
    if named.get("output_attentions"):
        raise errors.UnsupportedError(
            "output_attentions=True: compiled attention keeps no weights; use "
            "attn_implementation=\"eager\"")
    for name in ("block_table", "position_bias", "cu_seq_lens_q"):
        if named.get(name) is not None:
            raise errors.UnsupportedError(f"{name} of transformers is not "
                                          "supported", name)


def attention(module, query, key, value, attention_mask, scaling=None,
              dropout=0.0, is_causal=None, sliding_window=None, softcap=None,
              s_aux=None, **named):
    """The attention function of register(): queries [B, H, Sq, D], keys and
    values [B, Hk, Sk, D]; gives [B, Sq, H, D] and None."""
    import torch
    _refuse(named)
    dtype = _DTYPES.get(str(query.dtype))
    if dtype is None:
        raise errors.DtypeError(f"attention of {query.dtype}: it is compiled "
                                "for float32, bfloat16 and float16")
    m = attention_mask
    if m is None:
        m = _default_mask(module, is_causal, sliding_window, query, key)
    fields, args = _seen(m, query, key)
    more, extra = _extras(softcap, s_aux, dropout)
    rows = query.shape[2] * (query.shape[1] // key.shape[1])
    scale = query.shape[3] ** -0.5 if scaling is None else float(scaling)
    grad = torch.is_grad_enabled() and any(
        t.requires_grad for t in (query, key, value, *args.values(),
                                  *extra.values())
        if isinstance(t, torch.Tensor))
    name = constant_operator(
        str(query.device), grad, dtype=dtype, d=query.shape[3],
        dv=value.shape[3], few=rows <= _FEW and not grad, **fields, **more)
    run = getattr(torch.ops.attn_hf, name).default
    return run(query, key, value, scale=scale, **args, **extra), None


def register(name="attnc"):
    """Makes `name` an attn_implementation of transformers."""
    try:
        from transformers import AttentionInterface, \
            AttentionMaskInterface, masking_utils
    except ImportError as e:
        raise errors.UnsupportedError(
            f"attn.hf needs transformers 5 or later, and PyTorch: {e}"
        ) from None
    import torch
    if not _transformers:
        _transformers.update(masks=masking_utils, reads=_traces_closures())
    # What it gives depends on nothing that a trace does not know.
    torch.compiler.assume_constant_result(constant_operator)
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    return name


# ---- recurrences
#
# Layers whose sums over the past are a state: gated delta rules (Qwen3-Next and
# others) and Mamba 2. Their functions get no masks: transformers zeroes what is
# padding before it calls them, and zeros leave a state of zeros.

class Recurrence(typing.NamedTuple):
    """A program of a recurrence. k, v: extents of what is read by and of what
    is written."""
    dtype: str
    kind: str             # "gated_delta", "mamba2"
    k: int
    v: int
    norm: bool = False    # q and k are of length 1
    softplus: bool = False
    bias: bool = False    # of the step's width
    limit: bool = False   # of it
    skip: bool = False    # what is written is read beside the state


def _gated_delta_source(v):
    one = "l2norm({})" if v.norm else "{}"
    return f"""\
import std.mods {{ l2norm }}

recurrent gated_delta<T: dtype {{bf16, f16, f32}}, B, Hk, H, S,
    D: const {{64}} in 1 .. 256, Dv: const {{64}} in 1 .. 256>
  (Q: T[B, S, Hk, D], K: T[B, S, Hk, D], V: T[B, S, H, Dv], g: f32[B, S, H],
   beta: f32[B, S, H], inout S0: f32[B, H, D, Dv], nograd scale: f32)
  -> (O: T[B, S, H, Dv])
  where H % Hk == 0
{{
  index b in B, h in H;
  let c = h // (H // Hk);
  state M: f32[D, Dv] = S0[b, h];
  step t {{
    let k = {one.format("K[b, t, c]")};
    let old = exp(g[b, t, h]) * M;
    M = old + beta[b, t, h] * outer(k, V[b, t, h] - k @@ old);
    O[b, t, h] = scale * ({one.format("Q[b, t, c]")} @@ M);
  }}
}}
"""


def _mamba2_source(v):
    params = "dt_bias: f32[H], " * v.bias + "skip: f32[H], " * v.skip + \
        "nograd least: f32, nograd most: f32, " * v.limit
    width = "dt[b, t, h]" + " + dt_bias[h]" * v.bias
    if v.softplus:
        width = f"softplus({width})"
    if v.limit:
        width = f"min(max({width}, least), most)"
    return f"""\
recurrent mamba2<T: dtype {{bf16, f16, f32}}, B, H, G, S,
    D: const {{64}} in 1 .. 256, Dv: const {{64}} in 1 .. 256>
  (x: T[B, S, H, Dv], dt: f32[B, S, H], A: f32[H], Bm: T[B, S, G, D],
   C: T[B, S, G, D], {params}inout S0: f32[B, H, Dv, D])
  -> (y: T[B, S, H, Dv])
  where H % G == 0
{{
  index b in B, h in H;
  let g = h // (H // G);
  state M: f32[Dv, D] = S0[b, h];
  step t {{
    let d = {width};
    let u = x[b, t, h];
    M = exp(d * A[h]) * M + d * outer(u, Bm[b, t, g]);
    y[b, t, h] = M @@ C[b, t, g]{" + skip[h] * u" * v.skip};
  }}
}}
"""


def recurrence_source(v):
    """The text of a Recurrence's program."""
    return (_gated_delta_source if v.kind == "gated_delta"
            else _mamba2_source)(v)


@functools.lru_cache(maxsize=None)
def recurrence_operator(v, device, grad):
    """As operator(), of a Recurrence."""
    name = "_".join([v.kind, v.dtype, str(v.k), str(v.v)] + [
        n for n, x in zip(v._fields[4:], v[4:]) if x])
    return _registered(recurrence_source(v), {"T": v.dtype, "D": v.k,
                                              "Dv": v.v}, name, device, grad)


def constant_recurrence(device, grad, **fields):
    """As constant_operator(), of a Recurrence."""
    return recurrence_operator(Recurrence(**fields), device, grad)


def _recur(state, first, others, **fields):
    """Runs a program from a state, None: zeros, of the shape and type that are
    given; returns the output and the last state."""
    import torch
    shape, given = state
    S0 = torch.zeros(shape, dtype=torch.float32, device=first.device) \
        if given is None else given.to(torch.float32, copy=True)
    dtype = _DTYPES.get(str(first.dtype))
    if dtype is None:
        raise errors.DtypeError(f"a recurrence of {first.dtype}: it is "
                                "compiled for float32, bfloat16 and float16")
    grad = torch.is_grad_enabled() and any(
        t.requires_grad for t in (first, S0, *others.values())
        if isinstance(t, torch.Tensor))
    name = constant_recurrence(str(first.device), grad, dtype=dtype, **fields)
    if grad:
        return getattr(torch.ops.attn_hf, name + "_states").default(
            first, **others, S0=S0)
    return getattr(torch.ops.attn_hf, name).default(first, **others, S0=S0), S0


def _refuse_packed(named):
    for name in ("cu_seqlens", "seq_idx"):
        if named.get(name) is not None:
            raise errors.UnsupportedError(
                f"{name}: sequences packed in one row are not supported in "
                "recurrent layers", name)


def gated_delta(query, key, value, g, beta, chunk_size=64, initial_state=None,
                output_final_state=False, use_qk_l2norm_in_kernel=False,
                **named):
    """What transformers calls chunk_gated_delta_rule, and for one token
    recurrent_gated_delta_rule."""
    _refuse_packed(named)
    like = query.dtype
    shape = (*value.shape[:1], value.shape[2], key.shape[3], value.shape[3])
    out, state = _recur(
        (shape, initial_state), query,
        {"K": key.to(like), "V": value.to(like), "g": g.float(),
         "beta": beta.float(), "scale": key.shape[3] ** -0.5},
        kind="gated_delta", k=key.shape[3], v=value.shape[3],
        norm=bool(use_qk_l2norm_in_kernel))
    return out, state if output_final_state else None


def mamba2(hidden_states, dt, A, B, C, chunk_size, D=None, dt_bias=None,
           initial_states=None, dt_softplus=False,
           dt_limit=(0.0, float("inf")), return_final_states=False, z=None,
           **named):
    """What transformers calls mamba2_chunk_scan."""
    _refuse_packed(named)
    if z is not None:
        raise errors.UnsupportedError("z: a gate within the scan", "z")
    like = hidden_states.dtype
    args = {"dt": dt.float(), "A": A.float(), "Bm": B.to(like),
            "C": C.to(like)}
    if dt_bias is not None:
        args["dt_bias"] = dt_bias.float()
    if D is not None:
        args["skip"] = D.float()
    least, most = map(float, dt_limit)
    limit = most < float("inf") or least > (
        0 if dt_softplus else float("-inf"))
    if limit:
        args.update(least=least, most=most)
    heads, v = hidden_states.shape[2:]
    y, state = _recur(
        ((hidden_states.shape[0], heads, v, B.shape[3]), initial_states),
        hidden_states, args, kind="mamba2", k=B.shape[3], v=v,
        softplus=bool(dt_softplus), bias=dt_bias is not None, limit=limit,
        skip=D is not None)
    return (y, state) if return_final_states else y


def _of_heads(name, x, axes):
    """A tensor that is the same along its axes behind the heads', without
    them."""
    for k in range(x.ndim - axes, x.ndim):
        if x.shape[k] > 1 and x.stride(k):
            raise errors.UnsupportedError(
                f"{name}: one value for each head is supported, not one for "
                "each element", name)
    return x[(..., *[0] * axes)]


def mamba2_step(state, hidden_states, dt, A, B, C, D=None, dt_bias=None,
                dt_softplus=False, z=None, **named):
    """What transformers calls mamba2_selective_state_update: one token, the
    state is changed in place."""
    import torch
    y, last = mamba2(
        hidden_states[:, None], _of_heads("dt", dt, 1)[:, None],
        _of_heads("A", A, 2), B[:, None], C[:, None], 1,
        D=None if D is None else _of_heads("D", D, 1),
        dt_bias=None if dt_bias is None else _of_heads("dt_bias", dt_bias, 1),
        initial_states=state, dt_softplus=dt_softplus,
        dt_limit=(float("-inf"), float("inf")), return_final_states=True,
        **named)
    state.copy_(last)
    y = y[:, 0]
    return y if z is None else y * torch.nn.functional.silu(z)


# By the names that modeling files call, or the attributes of their layers.
_FUNCTIONS = {"torch_chunk_gated_delta_rule": gated_delta,
              "torch_recurrent_gated_delta_rule": gated_delta,
              "mamba2_chunk_scan": mamba2,
              "mamba2_selective_state_update": mamba2_step}
_ATTRIBUTES = {"chunk_gated_delta_rule": gated_delta,
               "recurrent_gated_delta_rule": gated_delta}


def _swap(holder, names, compiled):
    """Puts ours into the dict `holder`, or back what was there; the names."""
    found = []
    for name, own in names.items():
        kept = "_attnc_" + name
        if callable(holder.get(name)):
            if compiled:
                holder.setdefault(kept, holder[name])
                holder[name] = own
            elif kept in holder:
                holder[name] = holder.pop(kept)
            found.append(name)
    return found


def recurrences(model, compiled=True):
    """Lets the gated delta rules and Mamba 2 scans of a model's layers be
    compiled programs, or, with compiled=False, transformers' own again. Where
    the layers call functions of their modeling file, as in today's
    transformers, that holds for all models of the file. Returns the names of
    what was replaced; a model that has none of them is an error."""
    import torch
    if hasattr(torch, "compiler"):
        # What it gives depends on nothing that a trace does not know.
        torch.compiler.assume_constant_result(constant_recurrence)
    found = set()
    for layer in model.modules():
        held = _swap(layer.__dict__, _ATTRIBUTES, compiled)
        file = sys.modules[type(layer).__module__]
        if not held and file.__name__.startswith("transformers.models."):
            held = _swap(file.__dict__, _FUNCTIONS, compiled)
        found.update(held)
    if not found:
        raise errors.UnsupportedError(
            f"{type(model).__name__} has no gated delta rules and no Mamba 2 "
            "scans that attn.hf knows: "
            + ", ".join([*_FUNCTIONS, *_ATTRIBUTES]))
    return sorted(found)
