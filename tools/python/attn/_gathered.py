"""Attention over divided sequences: keys of all ranks are gathered, and each
chunk of a rank's queries runs against those that it sees.

What it sees is found by comparison: one head of the whole sequence beside each
chunk against the keys up to its end, or against all."""
import torch

from . import _abi, _parallel, errors
from . import torch as _torch

_LONG = 4096  # queries of a rank, from which heads are worth groups


def unfit(program, axes):
    """Why queries of this program cannot be cut, or None."""
    if any(p.kind == _abi.INOUT for p in program.params):
        return "overwrites an argument"
    if axes.one:
        name = program.dims[axes.queries]
        return f"has one dim {name} of queries and keys, so that some of " \
            "the queries cannot meet all keys (two dims, Sq and Sk, and " \
            "causal(off = Sk - Sq) can)"
    for i in program._outputs:
        n = program._names[i]
        if n not in axes.q or n in axes.k:
            return f"has an output '{n}' that is not of queries alone"
    return None


class Geometry:
    """chunks: of this rank's queries (begin here, length, first, keys seen)."""

    def __init__(self, call, prefix, groups):
        a, r = call.axes, call.ranks
        self.groups = groups
        c = call.local[a.queries] // r.parts
        rows, self.keys = call.whole(a.queries), call.whole(a.keys)
        self.chunks = []
        for half, j in enumerate(r.chunks(r.rank)):
            seen = (j + 1) * c + self.keys - rows if prefix else self.keys
            self.chunks.append((half * c, c, j * c, seen))
        self.need = max(x[3] for x in self.chunks)
        self.possible = min(x[3] for x in self.chunks) > 0


def _names(call, table, but=()):
    return [n for n in table if n in call.tensors and n not in but]


def _splits(call, n):
    """Whether groups of heads have keys of their own."""
    a = call.axes
    return a.divisible(call.dims, n) and all(
        n_ in a.h and call.shapes[n_][a.h[n_]] % n == 0
        for n_ in _names(call, a.k, a.q))


def geometry(call, sees, groups):
    """The Geometry of a call, found by all ranks together where sees= does not
    say it."""
    a, r = call.axes, call.ranks
    if groups is None:
        groups = 1
        if call.device.type == "cuda" and r.n > 1 and \
                call.local[a.queries] >= _LONG:
            groups = 4 if call.local[a.queries] >= 16 * _LONG else 2
    if groups > 1 and not _splits(call, groups):
        groups = 1
    some, full = Geometry(call, True, 1), Geometry(call, False, 1)
    possible = r.agree([some.possible], call.device)[0]
    found = [possible and sees == "prefix", sees == "all"] if sees else \
        _compare(call, some if possible else None, full)
    found.append(groups == 1 or all(
        _parallel.same_heads(call, i, groups) for i in range(groups)))
    prefix, whole, apart = r.agree(found, call.device)
    if not prefix and not whole:
        raise errors.UnsupportedError(
            f"{call.program.name} gives other numbers for a part of its "
            "queries: neither against the keys up to their end nor against "
            "all keys are they what they are in the whole. Places of queries "
            "must count from the end of the keys (q + Sk - Sq); or "
            "plan=\"heads\"")
    return Geometry(call, prefix, groups if apart else 1)


# ---- which keys a chunk sees

def _sample(call, dims):
    """One head of a whole sequence: random numbers in place of the floats."""
    a, p, given = call.axes, call.program, dict(call.scalars)
    gen = torch.Generator(device=call.device).manual_seed(1)
    for n, x in call.tensors.items():
        i = p._index[n]
        shape = [x.shape[k] if e is None else e.value(dims)
                 for k, e in enumerate(p._axes[i])]
        seq, ints = a.seq(n), call.integers(n)
        if seq is not None and not ints:
            y = torch.randn(shape, device=x.device, generator=gen)
            if seq == len(shape) - 1:  # gates and the like
                y = -y.abs().clamp(max=1)
            given[n] = y.to(x.dtype)
            continue
        x = x.detach()
        for k, extent in enumerate(shape):
            if k not in (a.q.get(n), a.k.get(n)):
                x = x.narrow(k, 0, min(extent, x.shape[k]))
        if seq is not None:
            x = call.ranks.join(call.ranks.gather(x)(), seq)
        given[n] = x.contiguous()
    _pointed(call, given)
    return given


def _pointed(call, given):
    """Queries that look for their own key and the one behind it, so that a
    mask that is off by one shows."""
    a = call.axes
    q = next(iter(_names(call, a.q, a.k)), None)
    k = next(iter(_names(call, a.k, a.q)), None)
    if q is None or k is None or a.q[q] != a.k[k]:
        return
    at, x, y = a.q[q], given[q], given[k]
    more = y.shape[at] - x.shape[at]
    if at == x.dim() - 1 or more < 0 or x.dtype != y.dtype or \
            not x.is_floating_point():
        return
    own = y.narrow(at, more, x.shape[at]).float()
    behind = own.roll(-1, at)
    if own.shape == x.shape:
        given[q] = (2 * (own + behind)).to(x.dtype)


def _one_head(call):
    """Inputs and outputs of the whole with one sequence and one head, but for
    dims that integers have; or, where the program has not that, with all."""
    a, p = call.axes, call.program
    dims = list(call.dims)
    for d in (a.queries, a.keys):
        dims[d] = call.whole(d)
    few = list(dims)
    kept = {d for n in call.tensors if call.integers(n)
            for e in p._axes[p._index[n]] if e is not None for d in e.dims}
    batch = [p.dims.index("B")] if "B" in p.dims else []
    for d in set(batch + a.heads) - kept:
        few[d] = 1
    for last, some in ((False, few), (True, dims)):
        given = _sample(call, some)
        try:
            with torch.no_grad():
                return given, _parallel._tuple(p(**given))
        except errors.Error:
            if last:
                raise


def _compare(call, some, full):
    """Whether chunks against the keys up to their end, and against all keys,
    give what the whole gives."""
    p, a = call.program, call.axes
    given, want = _one_head(call)
    out = []
    for g in (some, full):
        same = g is not None
        for _, length, first, seen in g.chunks if same else ():
            part = dict(call.scalars)
            for n in call.tensors:
                x = given[n]
                if n in a.q:
                    x = x.narrow(a.q[n], first, length)
                if n in a.k:
                    x = x.narrow(a.k[n], 0, seen)
                part[n] = x
            with torch.no_grad():
                got = _parallel._tuple(p(**part))
            for i, x, y in zip(p._outputs, want, got):
                at = a.q[p._names[i]]
                same = same and _alike(x.narrow(at, first, length), y, at)
        out.append(same)
    return out


def _alike(want, got, at):
    """Row by row; where few weights cancel a row's rounding is larger."""
    most = 5 * _parallel.tolerance(want.dtype)
    want, got = (x.movedim(at, 0).flatten(1).float() if x.dim() > 1
                 else x.float()[:, None] for x in (want, got))
    size = want.norm(dim=1)
    small = 1e-3 * size.square().mean().sqrt() + 1e-30
    off = (want - got).norm(dim=1) / (size + small)
    return bool((off <= most).all())


# ---- what runs

def run(call, found, grad):
    names = list(call.tensors)
    made = _Attend.apply(call, found, grad, *call.tensors.values()) if grad \
        else _forward(call, found, dict(zip(names, call.tensors.values())),
                      None)
    return made[0] if len(made) == 1 else tuple(made)


def _part(call, n, x, chunk, group, found):
    """What chunk and group read of a tensor; keys are whole already."""
    a = call.axes
    begin, length, _, seen = chunk
    if n in a.q:
        x = x.narrow(a.q[n], begin, length)
    if n in a.k:
        x = x.narrow(a.k[n], 0, seen)
    return a.share(n, x, group, found.groups)


def _whole_keys(call, found, tensors):
    """Begins to gather keys of all groups; keys(group) waits."""
    a, r = call.axes, call.ranks
    names = _names(call, a.k, a.q)
    begun = [{n: r.gather(a.share(n, tensors[n], i, found.groups).detach())
              for n in names} for i in range(found.groups)]

    def keys(i):
        made = {n: r.join(wait(), a.k[n], found.need)
                for n, wait in begun[i].items()}
        begun[i] = None
        return made

    return keys


def _parts(call, found, tensors, keys, chunk, group):
    """Inputs of one run; heads of keys are divided already."""
    given = {n: _part(call, n, x, chunk, group, found)
             for n, x in tensors.items() if n not in keys}
    for n, x in keys.items():
        given[n] = x.narrow(call.axes.k[n], 0, chunk[3])
    return given


def _empty(call, n, i, shape, program):
    return torch.empty(shape, dtype=_torch._TYPES[program.params[i].dtype],
                       device=call.device)


def _forward(call, found, tensors, saves):
    """Outputs of this rank; saves: a list that gets what each run keeps."""
    p = call.program
    shapes = p.output_shapes(call.shapes)
    outs = {p._names[i]: _empty(call, p._names[i], i, shapes[p._names[i]], p)
            for i in p._outputs}
    keys = _whole_keys(call, found, tensors)
    for group in range(found.groups):
        whole = keys(group)
        for chunk in found.chunks:
            given = _parts(call, found, tensors, whole, chunk, group)
            given.update((n, _part(call, n, x, chunk, group, found))
                         for n, x in outs.items())
            if saves is None:
                p(**given, **call.scalars)
            else:
                kept = p(save=True, **given, **call.scalars)[1]
                saves.append([kept.arrays[p._names[i]] for i in p._saves])
    return list(outs.values())


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, found, grad, *tensors):
        p, saves = call.program, []
        outs = _forward(call, found, dict(zip(call.tensors, tensors)), saves)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.found = call, found
        ctx.save_for_backward(*tensors, *outs, *[x for s in saves for x in s])
        ctx.mark_non_differentiable(*[
            x for i, x in zip(p._outputs, outs)
            if p.params[i].dtype >= _parallel.INTEGERS])
        names, call.tensors = list(call.tensors), dict.fromkeys(call.tensors)
        ctx.names = names
        return tuple(outs)

    @staticmethod
    def backward(ctx, *cotangents):
        call, names, p = ctx.call, ctx.names, ctx.call.program
        kept = list(ctx.saved_tensors)
        tensors = dict(zip(names, kept))
        outs = dict(zip([p._names[i] for i in p._outputs],
                        kept[len(names):]))
        rest = kept[len(names) + len(outs):]
        wants = [n for n, need in zip(names, ctx.needs_input_grad[3:])
                 if need]
        made = _Backward(call, ctx.found, tensors, outs, rest, dict(
            zip(outs, cotangents)), wants).run()
        return (None, None, None) + tuple(made.get(n) for n in names)


class _Backward:
    """Gradients: of queries as each run gives them; of keys sums over the
    chunks of this rank, then over ranks; of all else sums over chunks."""

    def __init__(self, call, found, tensors, outs, saves, cotangents, wants):
        self.call, self.found, self.tensors = call, found, tensors
        self.outs, self.saves, self.wants = outs, saves, wants
        self.cotangents = {n: c for n, c in cotangents.items()
                           if c is not None and "d_" + n in
                           call.program.grad.cotangents}
        for n in wants:
            if n not in call.program.grad.inputs:
                raise errors.UnsupportedError(
                    f"{call.program.name} has no gradient of '{n}', but of "
                    + ", ".join(call.program.grad.inputs), n)

    def begin(self):
        """What gradients are stored into, or added to."""
        a, self.made, self.sums = self.call.axes, {}, {}
        for n in self.wants:
            x = self.tensors[n]
            if n in a.q and n not in a.k:
                self.made[n] = torch.empty_like(
                    x, memory_format=torch.contiguous_format)
            elif n not in a.k or n in a.q:
                self.sums[n] = torch.zeros_like(x, dtype=_wide(x.dtype))

    def one(self, whole, chunk, group, saves):
        """One run: gradients of keys, by name."""
        call, p, found = self.call, self.call.program, self.found
        back = p.grad.backward
        given = _parts(call, found, self.tensors, whole, chunk, group)
        for n, x in self.outs.items():
            given[n] = _part(call, n, x, chunk, group, found)
        for n, x in self.cotangents.items():
            given["d_" + n] = _part(call, n, x, chunk, group, found)
        given.update(zip([p._names[i] for i in p._saves], saves))
        given.update(call.scalars)
        given = {n: x for n, x in given.items() if n in back._index}
        order = []
        for n in p.grad.inputs:
            if n not in self.wants:
                given["g_" + n] = None
                continue
            order.append(n)
            if n in self.made and self.made[n].dtype == _torch._TYPES[
                    back.params[back._index["g_" + n]].dtype]:
                given["g_" + n] = _part(call, n, self.made[n], chunk, group,
                                        found)
        grads = dict(zip(order, _parallel._tuple(back(**given))))
        for n, g in list(grads.items()):
            if n in self.sums:
                _part(call, n, self.sums[n], chunk, group, found).add_(g)
            elif n in self.made and "g_" + n not in given:
                _part(call, n, self.made[n], chunk, group, found).copy_(g)
        return {n: g for n, g in grads.items() if n in whole}

    def run(self):
        call, a, r = self.call, self.call.axes, self.call.ranks
        self.begin()
        sent, n_saves = [], len(call.program._saves)
        keys, at = _whole_keys(call, self.found, self.tensors), 0
        for group in range(self.found.groups):
            whole, sums = keys(group), {}
            for chunk in self.found.chunks:
                saves = self.saves[at:at + n_saves]
                at += n_saves
                grads = self.one(whole, chunk, group, saves)
                for n, g in grads.items():
                    if n not in sums:
                        shape = list(g.shape)
                        shape[a.k[n]] = self.found.keys
                        sums[n] = torch.zeros(shape, dtype=_wide(g.dtype),
                                              device=g.device)
                    sums[n].narrow(a.k[n], 0, chunk[3]).add_(g)
            sent.append({n: r.exchange(r.cut(x, a.k[n]))
                         for n, x in sums.items()})
        for n in sent[0]:
            got = [_parallel._total(s[n](), self.tensors[n].dtype)
                   for s in sent]
            self.made[n] = got[0] if len(got) == 1 else torch.cat(got, a.h[n])
        for n, x in self.sums.items():
            self.made[n] = x.to(self.tensors[n].dtype)
        return self.made


def _wide(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32
