"""PyTorch operators: a program under a name of torch.ops, with a kernel that
computes shapes only, so that torch.compile and export can trace through it."""
import functools
import itertools
import os
import re
import threading
import weakref

import torch

from . import _abi, _choice, _compile, _program, errors

_libraries = {}
_registered = {}  # name -> Program


def _parameters(program):
    """Of each input its name, its place in a schema, and whether it has a
    default there."""
    parts, alias = [], ord("a")
    for i in program._inputs:
        p = program.params[i]
        if p.kind == _abi.SCALAR:
            kind = "float" if p.dtype < _abi.DTYPES.index("i64") else "int"
            parts.append((p.name, f"{kind}? {p.name}=None", True))
        elif p.kind == _abi.INOUT:
            parts.append((p.name, f"Tensor({chr(alias)}!) {p.name}", False))
            alias += 1
        elif p.optional:
            parts.append((p.name, f"Tensor? {p.name}=None", True))
        else:
            parts.append((p.name, f"Tensor {p.name}", False))
    return parts


def _results(n):
    return "()" if not n else "Tensor" if n == 1 else \
        "(" + ", ".join(["Tensor"] * n) + ")"


def _schema(program, more=0):
    """gqa(Tensor Q, Tensor K, float? scale=None) -> (Tensor, Tensor)

    more: results behind the outputs."""
    parts, late = [], False
    for _, text, default in _parameters(program):
        # A parameter without default behind one with: by name only.
        if late and not default and "*" not in parts:
            parts.append("*")
        parts.append(text)
        late = late or default
    return f"({', '.join(parts)}) -> {_results(len(program._outputs) + more)}"


def _pure(schema):
    """Without the marks of what is overwritten."""
    return re.sub(r"\(\w!\)", "", schema)


def _by_place(program):
    """Names and schema of the inputs without any that has a name only, which
    operators with a gradient of their own may not have: defaults come last."""
    parts = sorted(_parameters(program), key=lambda p: p[2])
    return [p[0] for p in parts], ", ".join(p[1] for p in parts)


def _library(space):
    if space not in _libraries:
        try:
            made = torch.library.Library(space, "FRAGMENT")
        except (ValueError, RuntimeError):  # before PyTorch 2
            made = torch.library.Library(space, "DEF")
        _libraries[space] = made
    return _libraries[space]


def _fake(program, names=None):
    """names: of the arguments, of an operator that returns what is saved."""
    saves = names is not None
    indices = program._outputs + (program._saves if saves else [])
    names = names or [program._names[i] for i in program._inputs]

    def fake(*args, **named):
        values = dict(zip(names, args), **named)
        for n, v in values.items():
            if getattr(v, "requires_grad", False) and torch.is_grad_enabled() \
                    and not saves and not _differentiable(program):
                raise errors.UnsupportedError(
                    f"argument '{n}': it requires a gradient, and "
                    f"{program.name} {_why(program)}", n)
        like = next(v for v in values.values() if isinstance(v, torch.Tensor))
        shapes = {n: v.shape for n, v in values.items()
                  if isinstance(v, torch.Tensor)}
        made = program.output_shapes(shapes)
        types = {program._names[i]: program.params[i].dtype for i in indices}
        outs = tuple(torch.empty(made[n], dtype=_TYPES[t], device=like.device)
                     for n, t in types.items())
        return outs[0] if len(outs) == 1 else outs or None

    return fake


_TYPES = {i: getattr(torch, n) for i, n in enumerate(
    ["float64", "float32", "float32", "bfloat16", "float16", "float8_e4m3fn",
     "float8_e5m2", "int64", "int32", "int16", "int8", "uint32", "uint16",
     "uint8", "bool"]) if hasattr(torch, n)}


def _define(lib, op, schema):
    tags = {}
    if hasattr(torch, "Tag") and hasattr(torch.Tag, "needs_fixed_stride_order"):
        tags = {"tags": (torch.Tag.needs_fixed_stride_order,)}
    try:
        lib.define(op + schema, **tags)
    except TypeError:  # before tags
        lib.define(op + schema)


def _implement(lib, space, op, kernel, fake):
    for key in ("CPU", "CUDA"):
        lib.impl(op, kernel, key)
    register_fake = getattr(torch.library, "register_fake", None)
    if register_fake:
        register_fake(f"{space}::{op}", fake, lib=lib)
    else:
        lib.impl(op, fake, "Meta")
    _map_calls(lib, space, op)


def _map_calls(lib, space, op):
    register_vmap = getattr(torch.library, "register_vmap", None)
    if register_vmap:
        run = getattr(getattr(torch.ops, space), op).default
        if not any(p.kwarg_only and "Tensor" in str(p.type)
                   for p in run._schema.arguments):  # PyTorch has none then
            register_vmap(f"{space}::{op}", functools.partial(_mapped, run),
                          lib=lib)


# ---- derivatives that there are none of
#
# An operator without a kernel for autograd would be a constant to it: torch.func
# and forward mode would get zeros. So each has one, which refuses.

def _differentiable(program):
    """An operator that overwrites an argument, as a recurrence its state, has
    no derivative for autograd: its gradient takes what the argument was."""
    return program._grad is not None and not program._grad._overwritten


def _why(program):
    if program._grad is None:
        return "has none: compile it with --grad, or call under " \
            "torch.no_grad()"
    names = ", ".join(program._names[i] for i in program._grad._overwritten)
    return f"overwrites {names}: call its operator with _states behind the " \
        f"name, or it with save=True and {program.name}.grad, or under " \
        "torch.no_grad()"


def _tangent(v):
    return torch.autograd.forward_ad.unpack_dual(v).tangent is not None


def _refuse(program, named, reverse):
    """named: (name, value) of the arguments; reverse: nor is there the usual
    gradient."""
    for n, v in named:
        if not isinstance(v, torch.Tensor):
            continue
        if reverse and v.requires_grad and torch.is_grad_enabled():
            raise errors.UnsupportedError(
                f"argument '{n}': it requires a gradient, and {program.name} "
                + _why(program), n)
        if _tangent(v):
            raise errors.UnsupportedError(
                f"argument '{n}': {program.name} has no derivative in forward "
                "mode (jvp)", n)


def _guard(program, lib, space, op):
    names = [program._names[i] for i in program._inputs]

    def run(*args, **named):
        _refuse(program, [*zip(names, args), *named.items()], True)
        # Not `with`, which PyTorch 1 has not for it.
        below = torch._C._AutoDispatchBelowAutograd()
        try:
            return getattr(getattr(torch.ops, space), op).default(
                *args, **named)
        finally:
            del below

    lib.impl(op, run, "Autograd")


# ---- autocast
#
# A program has the types it was compiled for. So each tensor of floats is cast
# to its parameter's, as autocast casts what F.scaled_dot_product_attention
# gets; autograd sees the casts.

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def _autocast(program, lib, space, op):
    inputs = [program.params[i] for i in program._inputs]
    types = {p.name: _TYPES.get(p.dtype) for p in inputs
             if p.kind == _abi.IN}

    def cast(name, v):
        to = types.get(name)
        if isinstance(v, torch.Tensor) and v.dtype in _FLOATS \
                and to in _FLOATS:
            return v.to(to)
        return v

    def kernel(device):
        def run(*args, **named):
            with torch.autocast(device, enabled=False):
                return getattr(getattr(torch.ops, space), op).default(
                    *(cast(p.name, v) for p, v in zip(inputs, args)),
                    **{n: cast(n, v) for n, v in named.items()})
        return run

    for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        lib.impl(op, kernel(device), key)


# ---- gradients
#
# Three operators beside the program's own: `op_run` is the program, `op_fwd`
# has what its gradient reads as outputs more and is differentiable, `op_bwd`
# is the gradient. `op` is one of the first two.
#
# Of a program that overwrites its states `op_states` is `op` here: it leaves
# them as they are, and returns the last ones behind the outputs.

def _bare(results):
    """Of a schema with one result that, not a tuple."""
    return results[0] if len(results) == 1 else results


class _Gradients:
    def __init__(self, program, lib, space, op):
        self.program, self.lib, self.space, self.op = program, lib, space, op
        self.gradient = program.grad
        self.backward = self.gradient.backward
        p = program
        self.inputs = [p._names[i] for i in p._inputs]
        self.outputs = [p._names[i] for i in p._outputs]
        self.saves = [p._names[i] for i in p._saves]
        self.states = [p._names[i] for i in p._grad._overwritten]
        self.results = self.outputs + self.states
        self.fwd_names, self.fwd_inputs = _by_place(p)
        self.bwd_names, self.bwd_inputs = _by_place(self.backward)

    def overload(self, end=""):
        return getattr(getattr(torch.ops, self.space), self.op + end).default

    def forward(self, *args, **named):
        named.update(zip(self.fwd_names, args))
        for n in self.states:
            named[n] = named[n].clone()
        result, saved = self.program(save=True, **named)
        outs = result if isinstance(result, tuple) else (result,)
        return _bare(outs + tuple(named[n] for n in self.states)
                     + tuple(saved.arrays[n] for n in self.saves))

    def fake_forward(self, *args, **named):
        made = _fake(self.program, self.fwd_names)(*args, **named)
        made = made if isinstance(made, tuple) else (made,)
        named.update(zip(self.fwd_names, args))
        n = len(self.outputs)
        return _bare(made[:n] + tuple(torch.empty_like(named[s])
                                      for s in self.states) + made[n:])

    def reads(self, inputs, outs):
        """What the backward pass takes, by name: tensors, and the rest."""
        have = dict(zip(self.outputs, outs))
        have.update(zip(self.saves, outs[len(self.results):]))
        have.update(zip(self.inputs, inputs))
        return {n: have[n] for n in self.backward._names
                if have.get(n) is not None}

    def gradients(self, want, *args, **values):
        """Those of the inputs whose bit is set, in their order."""
        values.update(zip(self.bwd_names, args))
        names = [n for i, n in enumerate(self.gradient.inputs) if want >> i & 1]
        for n in self.gradient.inputs:
            if n not in names:
                values["g_" + n] = None
        made = self.backward(**values)
        return list(made) if isinstance(made, tuple) else [made]

    def fake_gradients(self, want, *args, **values):
        values.update(zip(self.bwd_names, args))
        return [torch.empty_like(values[n], dtype=_TYPES[
            self.backward.params[self.backward._index["g_" + n]].dtype])
            for i, n in enumerate(self.gradient.inputs) if want >> i & 1]

    def differentiate(self, reads, needs, cotangents):
        """Gradients in the order of the program's inputs; None: not wanted."""
        want, found = 0, [None] * len(self.inputs)
        wanted = []
        for i, n in enumerate(self.gradient.inputs):
            at = self.inputs.index(n)
            if needs[at]:
                want |= 1 << i
                wanted.append(at)
        for at, n in enumerate(self.inputs):
            t = reads.get(n)
            if needs[at] and at not in wanted and isinstance(t, torch.Tensor):
                raise errors.UnsupportedError(
                    f"{self.program.name} has no gradient of '{n}', but of "
                    + ", ".join(self.gradient.inputs), n)
        if want:
            given = {"d_" + n: c for n, c in zip(self.results, cotangents)
                     if "d_" + n in self.gradient.cotangents}
            made = self.overload("_bwd")(want, **reads, **given)
            for at, g in zip(wanted, made):
                found[at] = g
        return found

    def define(self):
        p, lib, space = self.program, self.lib, self.space
        made = _results(len(self.results) + len(self.saves))
        _define(lib, self.op + "_fwd", _pure(f"({self.fwd_inputs}) -> {made}"))
        _define(lib, self.op + "_bwd",
                f"(int want, {self.bwd_inputs}) -> Tensor[]")
        _implement(lib, space, self.op + "_fwd", self.forward,
                   self.fake_forward)
        _implement(lib, space, self.op + "_bwd", self.gradients,
                   self.fake_gradients)
        self.autograd()
        if self.states:
            _define(lib, self.op, _pure(_schema(p, len(self.states))))
        else:
            _define(lib, self.op + "_run", _schema(p))
            _implement(lib, space, self.op + "_run", p.__call__, _fake(p))

        def either(*args, **named):
            values = args + tuple(named.values())
            _refuse(p, [*zip(self.inputs, args), *named.items()], False)
            # What a transform tracks outside of this one does not show.
            plain = not _transformed() and (
                not torch.is_grad_enabled() or not any(
                    getattr(v, "requires_grad", False) for v in values))
            if plain and not self.states:
                return self.overload("_run")(*args, **named)
            named.update(zip(self.inputs, args))
            made = self.overload("_fwd")(**named)
            return made if isinstance(made, torch.Tensor) \
                else _bare(tuple(made[:len(self.results)]))

        lib.impl(self.op, either, "CompositeImplicitAutograd")
        _map_calls(lib, space, self.op)

    def in_order(self, args, named):
        """The program's inputs, of the arguments of op_fwd."""
        have = dict(zip(self.fwd_names, args), **named)
        return [have.get(n) for n in self.inputs]

    def keep(self, ctx, inputs, outs):
        reads = self.reads(inputs, outs)
        tensors = {n: v for n, v in reads.items()
                   if isinstance(v, torch.Tensor)}
        ctx.set_materialize_grads(False)  # cotangents may be missing
        ctx.names, ctx.tensor_names = list(reads), list(tensors)
        ctx.others = {n: v for n, v in reads.items() if n not in tensors}
        ctx.save_for_backward(*tensors.values())

    def kept(self, ctx):
        return dict(zip(ctx.tensor_names, ctx.saved_tensors), **ctx.others)

    def autograd(self):
        """Kernels for autograd. torch.func's transforms call them at their own
        levels, as kernels of PyTorch's operators: hence one level at a time,
        and what is below by the dispatcher."""
        own = self

        class Backward(_OneLevel):
            @staticmethod
            def forward(ctx, want, names, *values):
                return tuple(_below(own.overload("_bwd"), want,
                                    **dict(zip(names, values))))

            @staticmethod
            def backward(ctx, *cotangents):
                raise errors.UnsupportedError(
                    f"second derivatives of {own.program.name} are not "
                    "compiled")

        class Forward(_OneLevel):
            @staticmethod
            def forward(ctx, *inputs):
                given = {n: v for n, v in zip(own.inputs, inputs)
                         if v is not None}
                outs = _below(own.overload("_fwd"), **given)
                outs = outs if isinstance(outs, tuple) else (outs,)
                own.keep(ctx, inputs, outs)
                ctx.mark_non_differentiable(*outs[len(own.results):])
                return outs

            @staticmethod
            def backward(ctx, *cotangents):
                return tuple(own.differentiate(
                    own.kept(ctx), ctx.needs_input_grad, cotangents))

        def forward(*args, **named):
            return _bare(_apply(Forward, *own.in_order(args, named)))

        def backward(want, *args, **named):
            named.update(zip(own.bwd_names, args))
            given = {n: v for n, v in named.items() if v is not None}
            return list(_apply(Backward, want, tuple(given), *given.values()))

        for key in ("AutogradCPU", "AutogradCUDA"):
            self.lib.impl(self.op + "_fwd", forward, key)
            self.lib.impl(self.op + "_bwd", backward, key)


_OneLevel = getattr(torch.autograd.function, "_SingleLevelFunction",
                    torch.autograd.Function)


def _transformed():
    active = getattr(torch._C, "_are_functorch_transforms_active", None)
    return active is not None and active()


def _apply(function, *args):
    if not _transformed():
        return function.apply(*args)
    from torch._functorch.utils import enable_single_level_autograd_function
    with enable_single_level_autograd_function():
        return function.apply(*args)


def _below(run, *args, **named):
    # Not `with`, which PyTorch 1 has not for it.
    guard = torch._C._AutoDispatchBelowAutograd()
    try:
        # Of a function autograd does not record what is within; the levels
        # outside of a transform's do.
        with torch.set_grad_enabled(_transformed()):
            return run(*args, **named)
    finally:
        del guard


def _mapped(run, info, in_dims, *args):
    """vmap: one call after the other."""
    for p, d in zip(run._schema.arguments, in_dims):
        if d is None and p.alias_info is not None and p.alias_info.is_write:
            raise errors.UnsupportedError(
                f"vmap of {run._schema.name}: it overwrites '{p.name}', which "
                "has to be mapped too", p.name)
    made = []
    for i in range(info.batch_size):
        made.append(run(*(a if d is None else a.select(d, i)
                          for a, d in zip(args, in_dims))))
    if made[0] is None:
        return None, None
    if isinstance(made[0], torch.Tensor):
        return torch.stack(made), 0
    many = type(made[0])
    return many(torch.stack(x) for x in zip(*made)), many(0 for _ in made[0])


def register(program, name=None):
    """Makes torch.ops.NAMESPACE.OP of a program and returns its one overload.

    name: "namespace::op"; default attn:: and the program's symbol. Outputs are
    new tensors; `inout` parameters are changed in place. The operator runs on
    the CPU and on CUDA devices, on the current stream, works under
    torch.compile without graph breaks and inside CUDA graphs. Under autocast
    tensors of floats are cast to the types of the parameters. A program that
    was compiled with --grad is differentiable once. If it overwrites states,
    OP_states is: that leaves them as they are and returns the last ones behind
    the outputs. Others have no gradient:
    inputs that require one raise UnsupportedError outside of
    torch.no_grad(). Forward mode (jvp) is an error. To register a program again
    under its name changes nothing."""
    if isinstance(program, _choice.Choice):
        raise errors.ArgumentError(
            f"an operator is of one program; {program.name} is "
            + ", ".join(p.name for p in program.programs))
    if not isinstance(program, _program.Program):
        raise errors.ArgumentError("register() takes a program of a Library")
    name = name or "attn::" + program.symbol
    space, _, op = name.partition("::")
    if not op:
        raise errors.ArgumentError(f"'{name}' is not of the form space::name")
    old = _registered.get(name)
    if old is not None and old is not program:
        raise errors.ArgumentError(
            f"{name} is registered, for {old.symbol} of {old._library.path}: "
            f"give {program.symbol} of {program._library.path} another name")
    if old is not None:
        return getattr(getattr(torch.ops, space), op).default
    lib = _library(space)
    try:
        _define(lib, op, _schema(program))
    except RuntimeError as e:
        raise errors.ArgumentError(f"{name}: {e}") from None
    _registered[name] = program
    if not _differentiable(program):
        _implement(lib, space, op, program.__call__, _fake(program))
        _guard(program, lib, space, op)
    else:
        _Gradients(program, lib, space, op).define()
    _autocast(program, lib, space, op)
    if program._grad is not None and program._grad._overwritten:
        _Gradients(program, lib, space, op + "_states").define()
        _autocast(program, lib, space, op + "_states")
    return getattr(getattr(torch.ops, space), op).default


# ---- from a file to a function

def _target_of(device):
    """attnc's name for a device."""
    if device.type == "cpu":
        return "cpu"
    if getattr(torch.version, "hip", None):
        arch = torch.cuda.get_device_properties(device).gcnArchName
        return "cpu," + arch.split(":")[0]
    major = torch.cuda.get_device_capability(device)[0]
    return "cpu,sm_90a" if major == 9 else "cpu,sm_80"


_functions = weakref.WeakValueDictionary()
_numbers = itertools.count()


def _constant_name(number, device, grad, types):
    """The name of a Function's operator, for torch.compile: a number, texts and
    types are constants to it, and what makes the operator is not traced."""
    f = _functions[number]
    program = f.compile(device, grad)
    if isinstance(program, _choice.Choice):
        program = program.of_types(dict(types))
    return f.operator_of(program)._schema.name.partition("::")[2]


_constant_name._dynamo_marked_constant = True  # without importing Dynamo


_compiling = getattr(getattr(torch, "compiler", None), "is_compiling",
                     lambda: False)


class Function:
    """A program of a file as a function of tensors; made by function()."""

    def __init__(self, path, fn, dims, target, options, include, source=None):
        self.path, self.fn, self.dims = path, fn, dict(dims or {})
        self.target, self.options = target, tuple(options)
        self.include, self.source = tuple(include), source
        self.__name__ = self.__qualname__ = fn or (
            os.path.splitext(os.path.basename(path))[0] if path else "source")
        self._lock = threading.Lock()
        self._made = {}  # (target, with gradient) -> Choice or Program
        self._ops = {}   # Program -> operator
        self._number = next(_numbers)
        _functions[self._number] = self

    def __reduce__(self):
        return Function, (self.path, self.fn, self.dims, self.target,
                          self.options, self.include, self.source)

    def __repr__(self):
        return f"<attn function {self.__name__} of {self.path or 'a text'}>"

    def compile(self, device="cpu", grad=False):
        """The Program, or the Choice by types of elements, for a device."""
        key = self.target or _target_of(torch.device(device)), bool(grad)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._compile(*key)
            return self._made[key]

    def _compile(self, target, grad):
        options = self.options + (("--grad",) if grad else ())
        lib = _compile.compile(self.path, source=self.source, target=target,
                               dims=self.dims, fn=self.fn, options=options,
                               include=self.include)
        if self.fn:
            return lib[self.fn]
        names = {_choice.base_of(p.name) or p.name for p in lib
                 if not p.name.endswith("_grad")}
        if len(names) != 1:
            raise errors.ArgumentError(
                f"{self.path or 'source'} has several programs, fn= names one "
                "of them: "
                + ", ".join(sorted(names)))
        return lib[names.pop()]

    def operator(self, *args, **named):
        """The operator that a call with these tensors runs."""
        tensors = [v for v in (*args, *named.values())
                   if isinstance(v, torch.Tensor)]
        if not tensors:
            raise errors.NullError(f"{self.__name__}() got no tensor")
        grad = torch.is_grad_enabled() and any(
            t.requires_grad for t in tensors)
        program = self.compile(tensors[0].device, grad)
        if isinstance(program, _choice.Choice):
            with torch.no_grad():
                program = program.of(*args, **named)
        return self.operator_of(program)

    def operator_of(self, program):
        op = self._ops.get(program)
        if op is None:
            with self._lock:
                # Exported graphs name operators: by what the code is.
                code = os.path.basename(program._library.path)[:16]
                name = f"attn_function::{program.name}_{code}"
                op = register(_registered.get(name, program), name)
                self._ops[program] = op
        return op

    def __call__(self, *args, **named):
        if not _compiling():
            return self.operator(*args, **named)(*args, **named)
        tensors = [(n, v) for n, v in [*enumerate(args), *named.items()]
                   if isinstance(v, torch.Tensor)]
        grad = torch.is_grad_enabled() and any(
            [v.requires_grad for _, v in tensors])
        name = _constant_name(self._number, str(tensors[0][1].device), grad,
                              tuple([(n, str(v.dtype)) for n, v in tensors]))
        return getattr(torch.ops.attn_function, name).default(*args, **named)


def function(path=None, fn=None, *, source=None, dims=None, target=None,
             options=(), include=()):
    """A .attn file, or `source`, as a function of tensors:

        attention = attn.torch.function("gqa.attn")
        o, lse = attention(q, k, v)

    It is compiled at the first call on a kind of device, with its gradient where
    a tensor requires one, and kept on disk (attn.cache_dir()): later processes
    load it, and several may start at once. The arrays' types choose among the
    program's dtypes. fn: the program, where there are several; dims, target,
    options, include: as of attn.compile(). The function can be pickled."""
    if (path is None) == (source is None):
        raise errors.ArgumentError("either a path or source=")
    if path is not None:
        path = os.path.abspath(os.fspath(path))
        if not os.path.exists(path):
            raise errors.FileError(f"{path}: no such file")
    return Function(path, fn, dims, target, options, include, source)


# ---- several devices

def context_parallel(op, group=None, plan=None, *, causal=True, queries=None,
                     keys=None, heads=None, sees=None, groups=None):
    """A program over sequences that are divided among the ranks of a group of
    torch.distributed: a function of this rank's parts, made by shard().

    op: a program, a function() or an operator of register(). plan: "gather"
    gathers keys and values, "heads" gives each rank the whole sequence of some
    heads; of programs with states "states" composes those of all ranks, "turn"
    hands them from rank to rank; by default the first that the program can.
    causal: as shard() was
    called. queries, keys, heads: names of the program's dims where they are not
    Sq and Sk, or S, and H, Hq, Hk, Hv, G. sees: "prefix" or "all", the keys that
    a chunk of queries runs against; by default that is found by comparison with
    the whole. groups: of heads, the keys of one of which are sent while another
    one computes. Programs with states return the last ones behind the outputs.
    docs/several-gpus.md has all of it."""
    from . import _parallel
    return _parallel.ContextParallel(op, group, plan, causal, queries, keys,
                                     heads, sees, groups)


def shard(x, dim, group=None, causal=True):
    """This rank's part of a tensor that all ranks have: of 2N chunks along dim
    the ones r and 2N-1-r, which makes causal attention even; with causal=False
    chunk r of N."""
    from . import _parallel
    return _parallel.shard(x, dim, group, causal)


def unshard(x, dim, group=None, causal=True):
    """The whole of parts that shard() made, on each rank."""
    from . import _parallel
    return _parallel.unshard(x, dim, group, causal)
