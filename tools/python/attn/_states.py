"""Recurrences over divided sequences: each rank runs the steps that it has.

plan "turn" hands the state from chunk to chunk: exact for any step, no faster.
plan "states" composes: what a chunk makes of its first state S is M S + L. L is
its last state where S is zero; M is what it makes of unit states where nothing
is written, or what they add to L. All chunks find theirs at once, all ranks
compose those in front of their own, and run from the state that is found. The
cotangents of states go the other way through the transposed M.

Nothing is known of the program but that it computes. Which input has to be zero
that nothing is written, if there is one, and whether M is a factor for each
element or a matrix, is tried on one head of the whole sequence, and the
outcome of all chunks is compared with that of all steps in one call."""
import torch

from . import _abi, _gathered, _parallel, errors

_EACH = "each"  # M is a factor for each element; else: the axis of its rows
_FEW, _SOME = 3, 64  # tokens on which a form is tried


def unfit(program, axes):
    """Why steps of this program cannot be divided, or None."""
    states = names(program)
    if not states:
        return "has no state that it overwrites (inout)"
    if not axes.one or any(axes.seq(n) is not None for n in states):
        return "has no one dim of steps, which its states have not"
    for p in program.params:
        if p.kind != _abi.SCALAR and p.dtype >= _parallel.INTEGERS:
            return f"reads the integers '{p.name}', which may count steps"
    for i in program._outputs:
        if program._names[i] not in axes.q:
            return f"has an output '{program._names[i]}' that has no steps"
    return None


def names(program):
    return [p.name for p in program.params if p.kind == _abi.INOUT]


class Way:
    """kinds: of each state's M, none of plan "turn"; zero: the input that is
    zeroed where nothing shall be written, or None: each input leaves some."""

    def __init__(self, kinds=None, zero=None):
        self.kinds, self.zero, self.turn = kinds, zero, kinds is None


# ---- maps of states

def _columns(call, n):
    """The axes of a state that are neither heads nor sequences of a batch."""
    p, a = call.program, call.axes
    dims = a.heads + ([p.dims.index("B")] if "B" in p.dims else [])
    return [k for k, e in enumerate(p._axes[p._index[n]])
            if e is None or e.plain is None or e.plain not in dims]


def _matrix(x, axes):
    """The state as matrices of rows and columns, the first of axes the rows."""
    return x.movedim(axes, (-2, -1))


def _order(call, n, kind):
    inner = _columns(call, n)
    return [kind] + [k for k in inner if k != kind]


def _apply(call, n, kind, m, x, transposed=False):
    if kind == _EACH:
        return m * x
    axes = _order(call, n, kind)
    y = (m.transpose(-1, -2) if transposed else m) @ _matrix(x, axes)
    return y.movedim((-2, -1), axes)


def _no_map(call, n, kind, x):
    if kind == _EACH:
        return torch.zeros_like(x)
    x = _matrix(x, _order(call, n, kind))
    return x.new_zeros(*x.shape[:-1], x.shape[-2])


def _runs(call, n, kind, x):
    if kind == _EACH:
        return 1
    rows, columns = _matrix(x, _order(call, n, kind)).shape[-2:]
    return -(-rows // columns)


def _units(call, n, kind, x, i):
    """First states of run i, of which the last ones show M."""
    if kind == _EACH:
        return torch.ones_like(x)
    y = torch.zeros_like(x)
    rows, columns = _matrix(x, _order(call, n, kind)).shape[-2:]
    size = min(columns, rows - i * columns)
    if size > 0:
        eye = torch.eye(rows, columns + rows, dtype=x.dtype, device=x.device)
        at = torch.zeros(rows, columns, dtype=x.dtype, device=x.device)
        at[i * columns:i * columns + size, :size] = eye[:size, :size]
        _matrix(y, _order(call, n, kind)).copy_(at)
    return y


def _maps(call, way, given, own):
    """M of each state: one run, or as many as columns have rows. own: last
    states from zero. Where they do not go away by zeroing an input, unit states
    are as large as them: the difference loses no more than a step's rounding."""
    kinds, size = way.kinds, {}
    if way.zero:
        given = _without(given, way.zero)
    for n, x in own.items():
        inner = _columns(call, n)
        size[n] = x.abs().amax(inner, True).clamp(min=1) \
            if inner and not way.zero else torch.ones_like(x)
    runs = {n: _runs(call, n, k, own[n]) for n, k in kinds.items()}
    found = {n: [] for n in kinds}
    for i in range(max(runs.values())):
        lasts = _plain(call, given, {
            n: size[n] * _units(call, n, k, own[n], i)
            for n, k in kinds.items()})[1]
        for n, k in kinds.items():
            x = lasts[n] if way.zero else (lasts[n] - own[n]) / size[n]
            if i < runs[n]:
                found[n].append(x if k == _EACH else _matrix(
                    x, _order(call, n, k)))
    return {n: x[0] if kinds[n] == _EACH else
            torch.cat(x, -1)[..., :x[0].shape[-2]].contiguous()
            for n, x in found.items()}


def _without(given, zero):
    return dict(given, **{zero: torch.zeros_like(given[zero])})


def _plain(call, given, firsts):
    """Outputs and last states; first states stay as they are."""
    states = {n: x.clone(memory_format=torch.contiguous_format)
              for n, x in firsts.items()}
    with torch.no_grad():
        outs = _parallel._tuple(call.program(**given, **states))
    return outs, states


def _chain(call, way, lasts, maps):
    """First states of chunks 1 .., of last states from zero and maps of chunks
    0 ..; the first chunk's last state is the true one."""
    made = [lasts[0]]
    for own, m in zip(lasts[1:], maps[1:]):
        made.append({n: own[n] + _apply(call, n, k, m[n], made[-1][n])
                     for n, k in way.kinds.items()})
    return made


# ---- what is found by trying

def geometry(call, plan):
    """The Way of a call, found by all ranks together. plan None: composed where
    that is faster, else in turn."""
    given, firsts = _one_head(call)
    want = _plain(call, given, firsts)
    most = call.ranks.parts * call.ranks.n
    turn = _same(call, want, _in_turn(call, given, firsts, most))
    way = None
    if plan != "turn":
        way = _form(call, given, firsts)
        if way and not _same(call, want,
                             _composed(call, way, given, firsts, most)):
            way = None
    turn, composed = call.ranks.agree([turn, way is not None], call.device)
    if not turn:
        raise errors.UnsupportedError(
            f"{call.program.name} gives other numbers where its steps are "
            "divided: what a step does must not depend on its place; or "
            "plan=\"heads\"")
    if plan == "states" and not composed:
        raise errors.UnsupportedError(
            f"the last states of {call.program.name} are not found to be "
            "linear in its first ones: plan=\"turn\" hands them from rank to "
            "rank")
    if composed and plan is None:
        runs = max(_runs(call, n, k, firsts[n]) for n, k in way.kinds.items())
        composed = call.ranks.n > 2 + runs
    return way if composed else Way()


def _one_head(call):
    """Inputs and first states of the whole sequence, of one head and one
    sequence of a batch if the program has that."""
    a, p, r = call.axes, call.program, call.ranks
    few = list(call.dims)
    batch = [p.dims.index("B")] if "B" in p.dims else []
    for d in set(batch + a.heads):
        few[d] = 1
    for last, dims in ((False, few), (True, list(call.dims))):
        given = dict(call.scalars)
        for n, x in call.tensors.items():
            x, seq = x.detach(), a.seq(n)
            for k, e in enumerate(p._axes[p._index[n]]):
                if e is not None and k != seq:
                    x = x.narrow(k, 0, min(e.value(dims), x.shape[k]))
            given[n] = x.contiguous() if seq is None else \
                r.join(r.gather(x)(), seq)
        firsts = {n: given.pop(n) for n in names(p)}
        try:
            _plain(call, _steps(call, given, 0, 1), firsts)
            return given, firsts
        except errors.Error:
            if last:
                raise


def _steps(call, given, begin, length):
    return {n: x if call.axes.seq(n) is None else
            x.narrow(call.axes.seq(n), begin, length)
            for n, x in given.items()}


def _parts(call, given, most):
    n, x = next((n, x) for n, x in given.items()
                if call.axes.seq(n) is not None)
    c = x.shape[call.axes.seq(n)] // most
    return [_steps(call, given, j * c, c) for j in range(most)]


def _in_turn(call, given, firsts, most):
    outs = []
    for part in _parts(call, given, most):
        made, firsts = _plain(call, part, firsts)
        outs.append(made)
    return _joined(call, outs), firsts


def _composed(call, way, given, firsts, most):
    parts, zeros = _parts(call, given, most), {
        n: torch.zeros_like(x) for n, x in firsts.items()}
    lasts = [_plain(call, part, zeros if j else firsts)[1]
             for j, part in enumerate(parts[:-1])]
    maps = [None] + [_maps(call, way, part, own)
                     for part, own in zip(parts[1:], lasts[1:])]
    begin = [firsts] + (_chain(call, way, lasts, maps) if lasts else [])
    made = [_plain(call, part, s) for part, s in zip(parts, begin)]
    return _joined(call, [x[0] for x in made]), made[-1][1]


def _joined(call, outs):
    at = [call.axes.q[call.program._names[i]] for i in call.program._outputs]
    return tuple(torch.cat(x, k) for x, k in zip(zip(*outs), at))


def _rounding(call):
    p = call.program
    return max(_parallel.tolerance(_torch_type(p, i)) for i in p._outputs)


def _torch_type(p, i):
    from . import torch as own
    return own._TYPES[p.params[i].dtype]


def _near(x, y, size, most):
    return bool((x - y).norm() <= most * size + 1e-30)  # False of no number


def _same(call, want, got):
    p, most = call.program, _rounding(call)
    for i, x, y in zip(p._outputs, want[0], got[0]):
        if not _gathered._alike(x, y, call.axes.q[p._names[i]]):
            return False
    return all(_near(x, got[1][n], x.norm(), 5 * most)
               for n, x in want[1].items())


def _form(call, given, firsts):
    """The Way of composing, tried on a few tokens: states of several sizes."""
    a, p = call.axes, call.program
    gen = torch.Generator(device=call.device).manual_seed(1)
    tries = []
    for tokens, size in ((_FEW, 1.0), (_FEW, 30.0), (_SOME, 1.0)):
        some = {n: x if a.seq(n) is None else
                x.narrow(a.seq(n), 0, min(tokens, x.shape[a.seq(n)]))
                for n, x in given.items()}
        tries.append((some, {n: size * torch.randn(
            x.shape, device=x.device, generator=gen).to(x.dtype)
            for n, x in firsts.items()}))
    for zero in [n for n, x in given.items() if a.seq(n) is not None
                 and x.is_floating_point()] + [None]:
        if zero and not all(_writes(call, zero, *t) for t in tries):
            continue
        kinds = {n: _kind(call, n, zero, tries) for n in firsts}
        if None not in kinds.values():
            return Way(kinds, zero)
    return None


def _writes(call, zero, given, states):
    """Whether last states are M S + L, and L is zero without this input."""
    most, zeros = _rounding(call), {n: torch.zeros_like(x)
                                    for n, x in states.items()}
    without = _without(given, zero)
    both, own = (_plain(call, given, s)[1] for s in (states, zeros))
    kept, none = (_plain(call, without, s)[1] for s in (states, zeros))
    return all(not none[n].any() and _near(
        both[n], own[n] + kept[n],
        both[n].norm() + own[n].norm() + kept[n].norm(), most) for n in states)


def _kind(call, n, zero, tries):
    """What M of a state is, or None."""
    inner = _columns(call, n)
    for kind in [_EACH] + (inner if len(inner) == 2 else []):
        if all(_is(call, n, kind, zero, *t) for t in tries):
            return kind
    return None


def _is(call, n, kind, zero, given, states):
    way = Way({s: kind if s == n else _EACH for s in states}, zero)
    own, both = (_plain(call, given, s)[1] for s in (
        {s: torch.zeros_like(x) for s, x in states.items()}, states))
    m = _maps(call, way, given, own)[n]
    return _near(own[n] + _apply(call, n, kind, m, states[n]), both[n],
                 both[n].norm() + own[n].norm(), _rounding(call))


# ---- what runs

class _Runs:
    """The chunks of this rank: what each run gave, and was given."""

    def __init__(self, call, way, op, tensors):
        self.call, self.way, self.op = call, way, op
        self.ranks, self.states = call.ranks, names(call.program)
        self.most = self.ranks.parts * self.ranks.n
        self.mine = self.ranks.chunks(self.ranks.rank)
        self.first = {n: tensors[n].detach() for n in self.states}
        rest = {n: x.detach() for n, x in tensors.items()
                if n not in self.states}
        self.parts = [dict(part, **call.scalars)
                      for part in _parts(call, rest, self.ranks.parts)]
        self.outs, self.lasts = ([None] * len(self.mine) for _ in range(2))
        self.leaves, self.maps = [None] * len(self.mine), None

    def run(self, half, firsts, wants=()):
        """From the true first states; with an operator differentiable."""
        if self.op is None:
            made = _plain(self.call, self.parts[half], firsts)
            self.outs[half], self.lasts[half] = made
            return
        leaves = dict(self.parts[half], **firsts)
        for n in (*wants, *self.states):
            leaves[n] = leaves[n].detach().requires_grad_()
        with torch.enable_grad():
            made = _parallel._tuple(self.op(**leaves))
        n = len(made) - len(self.states)
        self.outs[half], self.leaves[half] = made[:n], leaves
        self.lasts[half] = dict(zip(self.states, made[n:]))

    def all(self, own):
        """Of all chunks, by state, of what this rank has of its own."""
        made = {n: self.ranks.gather(torch.stack(
            [x[n].detach() for x in own])) for n in self.states}
        made = {n: wait() for n, wait in made.items()}
        return [{n: x[self.ranks.owner(j)] for n, x in made.items()}
                for j in range(self.most)]

    def forward(self, wants):
        with torch.no_grad():
            last = self._turn(wants) if self.way.turn \
                else self._compose(wants)
        return _joined(self.call, [[x.detach() for x in outs]
                                   for outs in self.outs]), last

    def _turn(self, wants):
        now = self.first
        for j in range(self.most):
            rank, half = self.ranks.owner(j)
            sent = [now] * len(self.mine)
            if rank == self.ranks.rank:
                self.run(half, now, wants)
                sent[half] = self.lasts[half]
            now = self.all(sent)[j]
        return now

    def _compose(self, wants):
        call, kinds, first = self.call, self.way.kinds, self.first
        zeros = {n: torch.zeros_like(x) for n, x in first.items()}
        none = {n: _no_map(call, n, k, first[n]) for n, k in kinds.items()}
        lasts, maps = [zeros] * len(self.mine), [none] * len(self.mine)
        for half, j in enumerate(self.mine):
            if j == 0:
                self.run(half, first, wants)
                lasts[half] = self.lasts[half]
            elif j < self.most - 1:
                lasts[half] = _plain(call, self.parts[half], zeros)[1]
                maps[half] = _maps(call, self.way, self.parts[half],
                                   lasts[half])
        lasts, self.maps = self.all(lasts)[:-1], self.all(maps)
        begin = [first] + (_chain(call, self.way, lasts, self.maps[:-1])
                           if lasts else [])
        for half, j in enumerate(self.mine):
            if j:
                self.run(half, begin[j], wants)
        return self.all(self.lasts)[-1]

    # ---- gradients

    def back(self, half, cotangents, after, wants):
        """Gradients by name; after: cotangents of this chunk's last states."""
        given = list(zip(self.outs[half], cotangents[half]))
        given += [(self.lasts[half][n], after[n]) for n in self.states]
        given = [(x, d) for x, d in given if d is not None
                 and x.requires_grad]
        made = torch.autograd.grad(
            [x for x, _ in given], [self.leaves[half][n] for n in wants],
            [d for _, d in given], retain_graph=True, allow_unused=True)
        return {n: torch.zeros_like(self.leaves[half][n]) if g is None else g
                for n, g in zip(wants, made)}

    def backward(self, cotangents, last, wants):
        """Gradients of each chunk of this rank."""
        wants = [*wants, *self.states]
        made = [None] * len(self.mine)
        if self.way.turn:
            after = last
            for j in reversed(range(self.most)):
                rank, half = self.ranks.owner(j)
                sent = [after] * len(self.mine)
                if rank == self.ranks.rank:
                    made[half] = self.back(half, cotangents, after, wants)
                    sent[half] = made[half]
                after = self.all(sent)[j]
            return made
        zeros = {n: torch.zeros_like(x) for n, x in self.first.items()}
        own = [zeros] * len(self.mine)
        for half, j in enumerate(self.mine):
            if j == self.most - 1:
                made[half] = self.back(half, cotangents, last, wants)
                own[half] = made[half]
            elif j:
                own[half] = self.back(half, cotangents, zeros, self.states)
        after = {self.most: last}
        for j, x in reversed(list(enumerate(self.all(own)))):
            after[j] = x if j == self.most - 1 else {
                n: x[n] + _apply(self.call, n, k, self.maps[j][n],
                                 after[j + 1][n], True)
                for n, k in self.way.kinds.items()}
        for half, j in enumerate(self.mine):
            if j < self.most - 1:
                made[half] = self.back(half, cotangents, after[j + 1], wants)
        return made

    def gathered(self, made, wants):
        """Of this rank's tensors, of the gradients of its chunks."""
        found, a = {}, self.call.axes
        for n in wants:
            if n in self.states:
                found[n] = made[0][n] if self.mine[0] == 0 \
                    else torch.zeros_like(self.first[n])
            elif a.seq(n) is not None:
                found[n] = torch.cat([g[n] for g in made], a.seq(n))
            else:
                found[n] = _parallel._total([g[n] for g in made],
                                            made[0][n].dtype)
        return found


class _Recur(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, way, op, wants, *tensors):
        runs = _Runs(call, way, op, dict(zip(call.tensors, tensors)))
        outs, last = runs.forward([n for n in wants if n not in runs.states])
        ctx.runs, ctx.wants, ctx.names = runs, wants, list(call.tensors)
        call.tensors = dict.fromkeys(call.tensors)
        ctx.set_materialize_grads(False)
        return (*outs, *(last[n] for n in runs.states))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *cotangents):
        runs, call = ctx.runs, ctx.runs.call
        n = len(cotangents) - len(runs.states)
        last = {}
        for name, d in zip(runs.states, cotangents[n:]):
            d = torch.zeros_like(runs.first[name]) if d is None else d
            last[name] = _parallel._total(runs.ranks.gather(d)(), d.dtype)
        at = [call.axes.q[call.program._names[i]]
              for i in call.program._outputs]
        parts = [[None if d is None else d.chunk(len(runs.mine), k)[half]
                  for d, k in zip(cotangents, at)]
                 for half in range(len(runs.mine))]
        rest = [w for w in ctx.wants if w not in runs.states]
        found = runs.gathered(runs.backward(parts, last, rest), ctx.wants)
        return (None,) * 4 + tuple(found.get(n) for n in ctx.names)


def run(own, call, way, grad):
    p = call.program
    if not grad:
        outs, last = _Runs(call, way, None, call.tensors).forward(())
        return (*outs, *(last[n] for n in names(p)))
    wants = [n for n, x in call.tensors.items() if x.requires_grad]
    for n in (*names(p), *wants):
        if n not in p.grad.inputs:
            raise errors.UnsupportedError(
                f"{p.name} has no gradient of '{n}', but of "
                + ", ".join(p.grad.inputs), n)
    return _Recur.apply(call, way, own.operator(p), wants,
                        *call.tensors.values())
