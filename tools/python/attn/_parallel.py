"""Sequences that are divided among the ranks of a group of torch.distributed:
placement of tokens, what is sent, and a program over them.

Rank r of N holds the chunks r and 2N-1-r of 2N (zigzag), or chunk r of N. What
is sent goes as bytes: backends differ in the types that they know. Sums over
ranks are made here, in the order of ranks, so that they repeat."""
import zlib

import torch

from . import _abi, _choice, _program, _shapes, errors
from . import torch as _torch

INTEGERS = _abi.DTYPES.index("i64")  # types before it are floats
_HEADS = ("H", "Hq", "Hk", "Hv", "G")


def _distributed():
    import torch.distributed as dist
    if not dist.is_available():
        raise errors.UnsupportedError("this PyTorch has no torch.distributed")
    if not dist.is_initialized():
        raise errors.ArgumentError(
            "torch.distributed has no group: call "
            "torch.distributed.init_process_group() first")
    return dist


class Ranks:
    """A group, and who holds what."""

    def __init__(self, group, zigzag):
        self.dist, self.group = _distributed(), group
        self.n, self.rank = (f(group) for f in (self.dist.get_world_size,
                                                self.dist.get_rank))
        if self.rank < 0:
            raise errors.ArgumentError("this process is not of the group")
        self.zigzag = bool(zigzag)
        self.parts = 2 if zigzag else 1  # chunks of a rank

    def chunks(self, rank):
        return (rank, 2 * self.n - 1 - rank) if self.zigzag else (rank,)

    def owner(self, chunk):
        """Rank, and which of its chunks."""
        return (2 * self.n - 1 - chunk, 1) if chunk >= self.n else (chunk, 0)

    # ---- order

    def cut(self, x, axis):
        """Of the whole sequence the tokens of each rank: [N, ..]."""
        c = x.shape[axis] // (self.parts * self.n)
        return torch.stack([torch.cat([x.narrow(axis, j * c, c)
                                       for j in self.chunks(r)], axis)
                            for r in range(self.n)])

    def join(self, stacked, axis, need=None):
        """The reverse; of the tokens in front of `need` only."""
        c = stacked.shape[1 + axis] // self.parts
        most = self.parts * self.n
        if need is not None:
            most = min(most, -(-need // c))
        at = [self.owner(j) for j in range(most)]
        return torch.cat([stacked[r].narrow(axis, half * c, c)
                          for r, half in at], axis)

    # ---- what is sent: begin now, finish() waits and returns [N, ..]

    def gather(self, x):
        x = x.contiguous()
        if self.n == 1:
            return lambda: x[None]
        made = torch.empty((self.n, *x.shape), dtype=x.dtype, device=x.device)
        to, source = _bytes(made), _bytes(x)
        if x.is_cuda and hasattr(self.dist, "all_gather_into_tensor"):
            work = self.dist.all_gather_into_tensor(
                to, source, group=self.group, async_op=True)
        else:
            work = self.dist.all_gather(
                list(to.view(self.n, -1).unbind(0)), source, group=self.group,
                async_op=True)
        return _finish(work, made, x)

    def exchange(self, stacked):
        """stacked[i] goes to rank i; made[i] is from it."""
        if self.n == 1:
            return lambda: stacked
        stacked = stacked.contiguous()
        made = torch.empty_like(stacked)
        work = self.dist.all_to_all_single(
            _bytes(made), _bytes(stacked), group=self.group, async_op=True)
        return _finish(work, made, stacked)

    def agree(self, flags, device):
        """Those that all ranks have."""
        t = torch.tensor([int(f) for f in flags], device=device)
        if self.n > 1:
            self.dist.all_reduce(t, self.dist.ReduceOp.MIN, self.group)
        return [bool(x) for x in t.tolist()]


def _bytes(x):
    return x.view(-1).view(torch.uint8) if x.dtype != torch.bool \
        else x.view(torch.uint8).view(-1)


def _finish(work, made, keep):
    def finish():
        work.wait()
        return made
    finish.keep = keep  # until then
    return finish


def _total(stacked, dtype):
    """The sum over ranks, in their order."""
    made = stacked[0].float() if dtype != torch.float64 else stacked[0]
    for x in stacked[1:]:
        made = made + x
    return made.to(dtype)


# ---- placement

class _Whole(torch.autograd.Function):
    """Parts of all ranks, joined along an axis."""

    @staticmethod
    def forward(ctx, x, ranks, axis):
        ctx.ranks, ctx.axis = ranks, axis
        return ranks.join(ranks.gather(x)(), axis)

    @staticmethod
    def backward(ctx, g):
        send = ctx.ranks.cut(g, ctx.axis)
        return _total(ctx.ranks.exchange(send)(), g.dtype), None, None


def _to_heads(x, ranks, seq, head):
    sent = torch.stack(x.chunk(ranks.n, head))
    return ranks.join(ranks.exchange(sent)(), seq)


def _to_sequence(x, ranks, seq, head):
    return torch.cat(ranks.exchange(ranks.cut(x, seq))().unbind(0), head)


class _Swap(torch.autograd.Function):
    """A part of the sequence with all heads <-> all of it with some."""

    @staticmethod
    def forward(ctx, x, ranks, seq, head, way):
        ctx.rest = ranks, seq, head
        ctx.back = _to_sequence if way is _to_heads else _to_heads
        return way(x, *ctx.rest)

    @staticmethod
    def backward(ctx, g):
        return (ctx.back(g, *ctx.rest),) + (None,) * 4


def _axis_of(x, dim):
    if not -x.dim() <= dim < x.dim():
        raise errors.ArgumentError(f"dim {dim} of a tensor of {x.dim()} axes")
    return dim % x.dim()


def shard(x, dim, group=None, causal=True):
    ranks, dim = Ranks(group, causal), _axis_of(x, dim)
    most = ranks.parts * ranks.n
    if x.shape[dim] % most:
        raise errors.ShapeError(
            f"axis {dim} has {x.shape[dim]} elements, which {ranks.n} ranks "
            f"divide into {most} chunks: pad it to a multiple of {most}",
            axis=dim)
    c = x.shape[dim] // most
    return torch.cat([x.narrow(dim, j * c, c)
                      for j in ranks.chunks(ranks.rank)], dim)


def unshard(x, dim, group=None, causal=True):
    ranks, dim = Ranks(group, causal), _axis_of(x, dim)
    if x.shape[dim] % ranks.parts:
        raise errors.ShapeError(
            f"axis {dim} has {x.shape[dim]} elements, no two chunks", axis=dim)
    return _Whole.apply(x, ranks, dim)


# ---- axes of a program

class _Axes:
    """Which axis of a parameter is of queries, of keys, of heads."""

    def __init__(self, program, queries, keys, heads):
        self.program, names = program, program.dims
        if queries is None:
            queries = "Sq" if "Sq" in names else "S"
        if keys is None:
            keys = "Sk" if "Sk" in names and queries != "S" else queries
        for what, name in (("queries", queries), ("keys", keys)):
            if name not in names:
                raise errors.ArgumentError(
                    f"{program.name} has no dim '{name}', but "
                    f"{', '.join(names)}: {what}= names that of {what}")
        heads = [n for n in _HEADS if n in names] if heads is None \
            else [heads] if isinstance(heads, str) else list(heads)
        for name in heads:
            if name not in names:
                raise errors.ArgumentError(
                    f"{program.name} has no dim '{name}': heads= names those "
                    "of heads")
        self.queries, self.keys = names.index(queries), names.index(keys)
        self.heads = [names.index(n) for n in heads]
        self.one = self.queries == self.keys
        self.q, self.k, self.h = {}, {}, {}  # name -> axis
        for axes, p in zip(program._axes, program.params):
            for at, e in enumerate(axes):
                plain = None if e is None else e.plain
                if plain == self.queries:
                    self.q[p.name] = at
                if plain == self.keys:
                    self.k[p.name] = at
                if plain in self.heads:
                    self.h[p.name] = at

    def seq(self, name):
        return self.q.get(name, self.k.get(name))

    def divisible(self, dims, n):
        """Whether heads go into n parts; one that all share stays."""
        return bool(self.heads) and all(
            dims[d] == 1 or dims[d] % n == 0 for d in self.heads) and any(
            dims[d] > 1 for d in self.heads)

    def share(self, name, x, i, n):
        """Part i of n of the heads."""
        at = self.h.get(name)
        if at is None or x.shape[at] == 1 or n == 1:
            return x
        c = x.shape[at] // n
        return x.narrow(at, i * c, c)


def _program_of(op, grad, args, named):
    """The Program of whatever stands for one."""
    if isinstance(op, _torch.Function):
        tensors = [v for v in (*args, *named.values())
                   if isinstance(v, torch.Tensor)]
        if not tensors:
            raise errors.NullError(f"{op.__name__}() got no tensor")
        op = op.compile(tensors[0].device, grad)
    if isinstance(op, _choice.Choice):
        with torch.no_grad():
            op = op.of(*args, **named)
    if isinstance(op, _program.Program):
        return op
    name = getattr(getattr(op, "_schema", None), "name", None)
    if name in _torch._registered:
        return _torch._registered[name]
    raise errors.ArgumentError(
        "context_parallel() takes a program, a function of "
        "attn.torch.function(), or an operator of attn.torch.register()")


# ---- what runs

class _Call:
    """One call: tensors of this rank by name, scalars, extents."""

    def __init__(self, program, axes, ranks, args, named):
        self.program, self.axes, self.ranks = program, axes, ranks
        names = [program._names[i] for i in program._inputs]
        if len(args) > len(names):
            raise errors.ArgumentError(
                f"{program.name}() takes {len(names)} inputs, got {len(args)}")
        given = dict(zip(names, args))
        for n, v in named.items():
            if n not in names or n in given:
                raise errors.ArgumentError(
                    f"{program.name}() has no input '{n}' beside: "
                    + ", ".join(given), n)
            given[n] = v
        self.tensors, self.scalars = {}, {}
        for i in program._inputs:
            p = program.params[i]
            v = given.get(p.name)
            if v is None and not p.optional:
                raise errors.NullError(f"argument '{p.name}' is missing",
                                       p.name)
            if v is None:
                continue
            if p.kind == _abi.SCALAR:
                self.scalars[p.name] = v
            elif not isinstance(v, torch.Tensor):
                raise errors.ArgumentError(
                    f"argument '{p.name}' is no tensor", p.name)
            else:
                self.tensors[p.name] = v
        self.device = next(iter(self.tensors.values())).device
        self.shapes = {n: tuple(x.shape) for n, x in self.tensors.items()}
        self.dims = _shapes.solve(program._axes, program._fixed,
                                  [self.shapes.get(n)
                                   for n in program._names])
        self.extents()

    def extents(self):
        """Tokens of this rank, and of all."""
        a, r = self.axes, self.ranks
        for n, shape in self.shapes.items():
            want = self.program._axes[self.program._index[n]]
            if len(shape) != len(want):
                raise errors.RankError(
                    f"argument '{n}': rank is {len(shape)}, expected "
                    f"{len(want)}", n)
            at = a.seq(n)
            both = n in a.q and n in a.k and not a.one
            dim = a.queries if n in a.q else a.keys
            if at is not None and not both and shape[at] != self.dims[dim]:
                raise errors.ShapeError(
                    f"argument '{n}', axis {at}: extent is {shape[at]}, "
                    f"expected {self.dims[dim]}", n, at, self.dims[dim],
                    shape[at])
        if not a.one:  # a tensor with both axes has all keys
            for n, at in a.k.items():
                if n in self.shapes and n not in a.q:
                    self.dims[a.keys] = self.shapes[n][at]
        self.local = {d: self.dims[d] for d in (a.queries, a.keys)}
        for d, n in self.local.items():
            if n is None or n % r.parts:
                name = self.program.dims[d]
                raise errors.ShapeError(
                    f"{name} of this rank is {n}, which are no two chunks: "
                    f"shard() makes them of a multiple of {2 * r.n}")

    def whole(self, dim):
        return self.local[dim] * self.ranks.n

    def integers(self, name):
        p = self.program
        return p.params[p._index[name]].dtype >= INTEGERS

    def key(self):
        return (self.program, tuple(self.shapes.items()), self.device,
                tuple((n, v) for n, v in self.scalars.items()
                      if isinstance(v, int)))

    def compare(self, plan, wants):
        """An error where ranks call differently."""
        a, r = self.axes, self.ranks
        text = repr((plan, self.program.name, r.zigzag, wants, [
            (n, x.dtype, x.shape) for n, x in self.tensors.items()]))
        own = [self.local[a.queries], self.local[a.keys],
               zlib.crc32(text.encode())]
        made = r.gather(torch.tensor(own, device=self.device))().tolist()
        for i, other in enumerate(made):
            for d, x, y in zip((a.queries, a.keys), own, other):
                if x != y:
                    raise errors.ShapeError(
                        f"{self.program.dims[d]} is {x} on rank {r.rank} and "
                        f"{y} on rank {i}: all ranks hold as many tokens",
                        expected=x, got=y)
            if other != own:
                raise errors.ArgumentError(
                    f"ranks {r.rank} and {i} call differently: other shapes, "
                    "types, arguments, or other gradients are wanted")


def _grad_wanted(tensors):
    return torch.is_grad_enabled() and any(
        x.requires_grad for x in tensors)


class ContextParallel:
    """Made by attn.torch.context_parallel()."""

    def __init__(self, op, group, plan, causal, queries, keys, heads, sees,
                 groups):
        if plan not in (None, "gather", "heads", "states", "turn"):
            raise errors.ArgumentError(
                f"plan '{plan}': there are gather, heads, states and turn")
        if sees not in (None, "prefix", "all"):
            raise errors.ArgumentError(
                f"sees '{sees}': there are prefix and all")
        self.op, self.plan, self.sees, self.groups = op, plan, sees, groups
        self.ranks = Ranks(group, causal)
        self.named = queries, keys, heads
        self._axes, self._ops, self._known = {}, {}, {}
        if not isinstance(op, _torch.Function) and \
                not isinstance(op, _choice.Choice):
            self._plan_of(_program_of(op, False, (), {}))

    def __repr__(self):
        return f"<attn {self.op!r} over {self.ranks.n} ranks>"

    def axes(self, program):
        if program not in self._axes:
            self._axes[program] = _Axes(program, *self.named)
        return self._axes[program]

    def _plan_of(self, program, call=None):
        from . import _gathered, _states
        axes = self.axes(program)
        if self.plan in ("states", "turn"):
            why = _states.unfit(program, axes)
        else:
            why = _gathered.unfit(program, axes)
        if self.plan not in (None, "heads") and why:
            raise errors.UnsupportedError(
                f"{program.name} {why}; plan=\"heads\" divides its heads")
        if self.plan or not why:
            return self.plan or "gather"
        if call and not axes.divisible(call.dims, self.ranks.n) and \
                not _states.unfit(program, axes):
            return "steps"
        return "heads"

    def __call__(self, *args, **named):
        from . import _gathered, _states
        grad = _grad_wanted([v for v in (*args, *named.values())
                             if isinstance(v, torch.Tensor)])
        program = _program_of(self.op, grad, args, named)
        if grad and program._grad is None:
            n = next((n for n, v in named.items()
                      if getattr(v, "requires_grad", False)), None)
            raise errors.UnsupportedError(
                f"an argument requires a gradient, and {program.name} "
                + _torch._why(program), n)
        call = _Call(program, self.axes(program), self.ranks, args, named)
        plan = self._plan_of(program, call)
        key = (*call.key(), plan, grad)
        # What integers say, as documents, may be another mask at each call.
        found = self._known.get(key) if self.sees or plan == "heads" or \
            not any(map(call.integers, call.tensors)) else None
        if found is None or call.device.type == "cpu":
            call.compare(plan, [n for n, x in call.tensors.items()
                                if grad and x.requires_grad])
        if plan == "heads":
            if found is None:
                self._known[key] = _check_heads(call)
            return _by_heads(self, call)
        if plan != "gather":
            if found is None:
                found = self._known[key] = _states.geometry(call, self.plan)
            return _states.run(self, call, found, grad)
        if found is None:
            found = self._known[key] = _gathered.geometry(
                call, self.sees, self.groups)
        return _gathered.run(call, found, grad)

    def operator(self, program):
        if program not in self._ops:
            name = f"attn_parallel::{program.symbol}_" \
                f"{len(_torch._registered)}"
            op = _torch.register(program, name)
            if program._grad is not None and program._grad._overwritten:
                op = getattr(torch.ops.attn_parallel,
                             name.partition("::")[2] + "_states").default
            self._ops[program] = op
        return self._ops[program]


# ---- heads: each rank has the whole sequence, of some heads

def _check_heads(call):
    """Whether the heads of this rank give what they give among all."""
    a, r, p = call.axes, call.ranks, call.program
    if not a.divisible(call.dims, r.n):
        have = ", ".join(f"{p.dims[d]} = {call.dims[d]}" for d in a.heads)
        raise errors.ShapeError(
            f"{r.n} ranks do not divide the heads of {p.name} "
            f"({have or 'heads= names their dims'})")
    for i in p._outputs:
        n = p._names[i]
        if n not in a.h:
            raise errors.UnsupportedError(
                f"output '{n}' of {p.name} has no axis of heads")
    same = same_heads(call, r.rank, r.n)
    if not r.agree([same], call.device)[0]:
        raise errors.UnsupportedError(
            f"{p.name} gives other numbers where it has some of its heads "
            "only: they cannot be divided")
    return True


def tolerance(dtype):
    """Of norms of differences of what is the same but for rounding."""
    return 1e-3 if dtype in (torch.float32, torch.float64) else 2e-2


def same_heads(call, i, n, tokens=64):
    """On the first tokens of this rank, of its own numbers."""
    a, p = call.axes, call.program
    whole, part = dict(call.scalars), dict(call.scalars)
    with torch.no_grad():
        for name, x in call.tensors.items():
            for axes in (a.q, a.k):
                at = axes.get(name)
                if at is not None:
                    x = x.narrow(at, 0, min(tokens, x.shape[at]))
            whole[name] = x.detach().clone()
            part[name] = a.share(name, x.detach(), i, n).clone()
        want, got = (_tuple(p(**v)) for v in (whole, part))
    for at, x, y in zip(p._outputs, want, got):
        most = tolerance(x.dtype)
        x = a.share(p._names[at], x, i, n).float()
        if not (x - y.float()).norm() <= most * x.norm():
            return False  # or no number
    return True


def _tuple(x):
    return x if isinstance(x, tuple) else (x,)


def _by_heads(own, call):
    a, r, p = call.axes, call.ranks, call.program
    given = dict(call.scalars)
    for n, x in call.tensors.items():
        seq, head = a.seq(n), a.h.get(n)
        if head is not None and x.shape[head] == 1:
            head = None
        if seq is None:
            x = a.share(n, x, r.rank, r.n)
        elif head is None:
            x = _Whole.apply(x, r, seq)
        else:
            x = _Swap.apply(x, r, seq, head, _to_heads)
        given[n] = x
    states = [q.name for q in p.params if q.kind == _abi.INOUT]
    if states and p._grad is None:
        for n in states:
            given[n] = given[n].clone()
        made = _tuple(p(**given)) + tuple(given[n] for n in states)
    else:
        made = _tuple(own.operator(p)(**given))
    outs = []
    plain = Ranks(r.group, False)
    for n, x in zip([p._names[i] for i in p._outputs] + states, made):
        if n in a.q:
            outs.append(_Swap.apply(x, r, a.q[n], a.h[n], _to_sequence))
        else:
            outs.append(_Whole.apply(x, plain, a.h[n]))
    return outs[0] if len(outs) == 1 else tuple(outs)
