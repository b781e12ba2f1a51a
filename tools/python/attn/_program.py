"""Programs as Python functions.

The first call with given shapes, strides, types and devices makes a plan: the
filled argument struct, shapes of outputs, bytes of workspace. Later calls only
put addresses and scalars into it."""
import ctypes as C

from . import _abi, _arrays, _runtime, _shapes, errors

_MOST_PLANS = 1024
_NOT_WANTED = object()


class _Frame:
    """One argument struct with views of what changes from call to call. A call
    takes a frame out of its plan, so that threads do not share one."""

    def __init__(self, prog, template):
        self.buf = (C.c_char * len(template)).from_buffer_copy(template)
        at = C.addressof(self.buf)
        self.args = C.c_void_p(at)
        self.data = [(C.c_void_p.from_address(at + prog.params[i].offset), i)
                     for i in prog._tensors]
        self.scalars = []
        for i in prog._scalars:
            p = prog.params[i]
            typed = _abi.scalar_type(p.dtype)
            raw = C.c_uint32 if typed is C.c_float else C.c_uint64
            self.scalars.append((typed.from_address(at + p.offset),
                                 raw.from_address(at + p.offset), p.default,
                                 i))
        self.head = _abi.Args.from_address(at)
        self.error = _abi.ErrorInfo()
        self.error_ref = C.byref(self.error)
        self.stream, self.handle = _abi.Stream(), -1
        self.stream_ref = C.byref(self.stream)


class _Plan:
    def __init__(self, template, device, outputs, workspace):
        self.template, self.device = template, device
        self.outputs = outputs      # (parameter, shape, dtype) to be made
        self.workspace = workspace  # bytes on the device
        self.frames = []


class Launch:
    """A prepared call: launch() runs it on the arrays it was made with and
    returns its outputs. Not to be called by two threads at once."""

    def __init__(self, program, frame, kind, plan, values):
        self._call, self._at = program._call, program._at
        self._frame, self._names = frame, program._names
        self._gpu = plan.device[0] != _abi.CPU
        self._stream, self._device = kind.stream, plan.device[1]
        self._keep = values
        self.outputs = program._result(values)

    def __call__(self, stream=None):
        f, ref = self._frame, None
        if self._gpu:
            ref = f.stream_ref
            f.stream.handle = self._stream(self._device) if stream is None \
                else stream
        if self._call(self._at, f.args, ref, f.error_ref):
            raise errors.from_info(f.error, self._names)
        return self.outputs


class Param:
    """A parameter: name, role ("in", "out", "inout", "scalar"), dtype, rank,
    optional."""

    def __init__(self, desc):
        self.name = desc.name.decode()
        self.kind, self.dtype = desc.kind, desc.dtype
        self.offset, self.rank, self.flags = desc.offset, desc.rank, desc.flags
        self.default = desc.default.bits
        self.role = ("in", "out", "inout", "scalar")[desc.kind]
        self.optional = bool(desc.flags & _abi.OPTIONAL) or \
            desc.kind == _abi.SCALAR

    def __repr__(self):
        return f"<{self.role} {self.name}: {_abi.DTYPES[self.dtype]}>"


class Program:
    """A compiled program: p(Q, K, V, scale=0.1) -> O.

    Inputs are positional in the order of their declaration, or named. Arrays
    are NumPy's, PyTorch's (on the CPU or on GPUs, there on the current stream),
    or anything with __dlpack__; all of a call must be on one device. bf16 is
    uint16 and f8 uint8 in NumPy. Outputs are made like the inputs, or given by
    name or by `out` (one array, or a tuple in their order); `NAME=None` for an
    output that is not wanted, whose place in the result is then left out.
    With save=True the result is (outputs, saved), where `saved` is for `grad`.
    `stream` is a raw stream handle where the library of the arrays has no
    current one; `workspace` an array of bytes on the device instead of one made
    by the call. Errors are exceptions of the package, with the names of the
    arguments."""

    def __init__(self, desc, keep, symbol=None):
        self._rt = _runtime.runtime()
        self._desc, self._keep = desc, keep
        if desc.abi >> 16 != _abi.ABI_MAJOR or desc.size < 88:
            raise errors.AbiError(f"ABI version {desc.abi >> 16}, this "
                                  f"package knows {_abi.ABI_MAJOR}")
        self._at = C.c_void_p(C.addressof(desc))
        self._call = self._rt.attn_call
        self.name = desc.name.decode()
        self.symbol = symbol or self.name
        self.params = [Param(desc.params[i]) for i in range(desc.nparams)]
        self._index = {p.name: i for i, p in enumerate(self.params)}
        self._names = [p.name for p in self.params]
        self._inputs = [i for i, p in enumerate(self.params)
                        if p.kind != _abi.OUT]
        self._outputs = [i for i, p in enumerate(self.params)
                         if p.kind == _abi.OUT]
        self._tensors = [i for i, p in enumerate(self.params)
                         if p.kind != _abi.SCALAR]
        self._scalars = [i for i, p in enumerate(self.params)
                         if p.kind == _abi.SCALAR]
        self._blank = [None] * len(self.params)
        self._saves, self._grad = [], None
        must = [k for k, i in enumerate(self._inputs)
                if not self.params[i].optional]
        self._needed = must[-1] + 1 if must else 0
        self._axes, self._fixed = _shapes.read(desc)
        self._plans = {}
        self._fast = None  # False: never
        self._plain = sum(self.params[i].kind != _abi.SCALAR
                          for i in self._inputs)
        template = bytearray(desc.args_size)
        self._rt.attn_args_init(
            self._at, C.addressof(C.c_char.from_buffer(template)))
        self._template = bytes(template)
        self._library = None  # that it is of
        self.__name__ = self.name
        self.__doc__ = self.signature

    def __reduce__(self):
        return _again, (self._library, self.symbol)

    def __repr__(self):
        return f"<attn program {self.signature}>"

    @property
    def signature(self):
        """Parameters with their types and extents, as text."""
        n = self._rt.attn_signature(self._at, None, 0)
        buf = C.create_string_buffer(n + 1)
        self._rt.attn_signature(self._at, buf, n + 1)
        return buf.value.decode()

    @property
    def dims(self):
        """Names of the dims."""
        return [self._desc.dims[i].name.decode()
                for i in range(self._desc.ndims)]

    # ---- gradients

    def _link(self, backward):
        """backward is the gradient of this program. What it reads beside
        inputs and outputs is made on request only."""
        self._grad = Gradient(self, backward)
        have = set(backward._names)
        self._saves = [i for i in self._outputs if self._names[i] in have and
                       self._names[i].startswith("save_")]
        self._outputs = [i for i in self._outputs if i not in self._saves]
        for i in self._saves:
            self._blank[i] = _NOT_WANTED

    @property
    def grad(self):
        """The Gradient of a program compiled with `attnc --grad`."""
        if self._grad is None:
            raise errors.UnsupportedError(
                f"{self.name} has no gradient: compile it with --grad")
        return self._grad

    # ---- shapes

    def output_shapes(self, shapes):
        """{output: shape} from {input: shape}; also of symbolic sizes."""
        dims = _shapes.solve(self._axes, self._fixed,
                             [shapes.get(n) for n in self._names])
        return {self._names[i]: self._output_shape(i, dims)
                for i in self._outputs + self._saves}

    def _output_shape(self, i, dims):
        shape = []
        for k, e in enumerate(self._axes[i]):
            try:
                if e is None:
                    raise _shapes.Unknown(None)
                shape.append(e.value(dims))
            except _shapes.Unknown:
                raise errors.DimError(
                    f"output '{self._names[i]}', axis {k}: the inputs do not "
                    "say its extent; pass the output", self._names[i],
                    k) from None
        return tuple(shape)

    # ---- calls

    def __call__(self, *args, **named):
        if self._fast and not named and len(args) == self._plain:
            return self._fast(*args)
        return self._slow(*args, **named)

    # What torch.compile's tracer asks of a function that it is not to enter.
    __call__._torchdynamo_disable = True
    __call__._torchdynamo_disable_msg = (
        "a compiled program is no operator of PyTorch: "
        "attn.torch.register(program) makes one, attn.torch.function(file) "
        "does it at the first call")

    def _slow(self, *args, out=None, stream=None, workspace=None, save=False,
              again=True, **named):
        if named or out is not None or len(args) < self._needed or \
                len(args) > len(self._inputs):
            values = self._bind(args, out, named)
        else:
            values = self._blank.copy()
            for i, v in zip(self._inputs, args):
                values[i] = v
        if save:
            self._want_saves(values)
        lead = values[self._tensors[0]]
        if lead is None or lead is _NOT_WANTED:
            lead = self._lead(values)
        kind = _arrays.KINDS.get(type(lead)) or self._kind(lead)
        if self._fast is None and isinstance(kind, _arrays.TorchKind):
            from . import _fast
            self._fast = _fast.make(self, kind, self._slow) or False
        same = type(lead)
        key = self._key(values, kind, same)
        plan = self._plans.get(key) or self._plan(key, values)
        for i, shape, dtype in plan.outputs:
            values[i] = kind.empty(shape, dtype, lead)
        first = self._grad.first(values, kind) if save else None
        try:
            frame = plan.frames.pop()
        except IndexError:
            frame = _Frame(self, plan.template)
        self._fill(frame, values, kind, same)
        ref = None
        if plan.device[0] != _abi.CPU:
            ref = self._device(plan, frame, kind, stream, workspace)
        if self._call(self._at, frame.args, ref, frame.error_ref):
            failed = errors.from_info(frame.error, self._names)
            # Addresses that no copy engine takes want workspace for copies.
            if again and workspace is None and \
                    isinstance(failed, errors.OutOfMemoryError):
                self._plans.pop(key, None)
                return self._slow(*args, out=out, stream=stream, save=save,
                                  again=False, **named)
            raise failed
        plan.frames.append(frame)
        if save:
            return self._result(values), Saved(self._grad, values, first)
        return self._result(values)

    def _want_saves(self, values):
        self.grad
        for i in self._saves:
            if values[i] is _NOT_WANTED:
                values[i] = None
        for name in self._grad._reads:
            if values[self._index[name]] is _NOT_WANTED:
                raise errors.ArgumentError(
                    f"argument '{name}': the gradient reads it", name)

    def prepare(self, *args, out=None, workspace=None, **named):
        """A Launch: the same call as often as wanted, on the same arrays, at
        less cost. It keeps the arrays and its workspace."""
        values = self._bind(args, out, named)
        lead = self._lead(values)
        kind = self._kind(lead)
        plan = self._plan(None, values)
        for i, shape, dtype in plan.outputs:
            values[i] = kind.empty(shape, dtype, lead)
        frame = _Frame(self, plan.template)
        self._fill(frame, values, kind, type(lead))
        if plan.device[0] != _abi.CPU:
            self._device(plan, frame, kind, None, workspace)
        return Launch(self, frame, kind, plan, values)

    def _key(self, values, kind, same):
        """What a plan depends on."""
        key = []
        for i in self._tensors:
            v = values[i]
            if type(v) is same:
                key += kind.key(v)
            elif v is None or v is _NOT_WANTED:
                key.append(v is None)
            else:
                key += (type(v), *self._kind(v, i).key(v))
        return tuple(key)

    def _result(self, values):
        result = [values[i] for i in self._outputs
                  if values[i] is not _NOT_WANTED]
        return result[0] if len(result) == 1 else tuple(result) or None

    def _lead(self, values):
        for i in self._tensors:
            if values[i] is not None and values[i] is not _NOT_WANTED:
                return values[i]
        raise errors.NullError(f"{self.name}() got no array")

    def _kind(self, v, i=None):
        try:
            return _arrays.kind_of(v)
        except errors.ArgumentError as e:
            name = self._names[self._tensors[0] if i is None else i]
            raise errors.ArgumentError(f"argument '{name}': {e}",
                                       name) from None

    def _bind(self, args, out, named):
        """Values by parameter."""
        values = self._blank.copy()
        if len(args) > len(self._inputs):
            raise errors.ArgumentError(
                f"{self.name}() takes {len(self._inputs)} inputs, got "
                f"{len(args)}")
        for i, v in zip(self._inputs, args):
            values[i] = v
        if out is not None:
            outs = out if isinstance(out, (tuple, list)) else (out,)
            if len(outs) > len(self._outputs):
                raise errors.ArgumentError(f"{self.name}() has "
                                           f"{len(self._outputs)} outputs")
            for i, v in zip(self._outputs, outs):
                values[i] = v
        for name, v in named.items():
            i = self._index.get(name)
            if i is None:
                raise errors.ArgumentError(
                    f"{self.name}() has no parameter '{name}': "
                    + ", ".join(self._names))
            if values[i] is not None and values[i] is not _NOT_WANTED:
                raise errors.ArgumentError(f"'{name}' is given twice", name)
            dropped = v is None and self.params[i].kind == _abi.OUT
            values[i] = _NOT_WANTED if dropped else v
        for i in self._inputs:
            p = self.params[i]
            if values[i] is None and not p.optional:
                raise errors.NullError(f"argument '{p.name}' is missing",
                                       p.name)
        return values

    def _plan(self, key, values):
        """A new plan; every check of arrays that the runtime cannot make."""
        template = bytearray(self._template)
        device, where, shapes = None, None, [None] * len(self.params)
        at = C.addressof(C.c_char.from_buffer(template))
        for i in self._tensors:
            if values[i] is None or values[i] is _NOT_WANTED:
                continue
            name, kind = self._names[i], self._kind(values[i], i)
            try:
                v = kind.view(values[i])
            except errors.Error as e:
                raise type(e)(f"argument '{name}': {e}", name) from None
            if not v.writable and self.params[i].kind != _abi.IN:
                raise errors.ArgumentError(
                    f"argument '{name}' is written, but read-only", name)
            if device is None:
                device, where = v.device, name
            elif v.device != device:
                raise errors.DeviceError(
                    f"argument '{name}' is on {_device(v.device)}, '{where}' "
                    f"on {_device(device)}", name)
            shapes[i] = v.shape
            self._place(at, i, v)
        outputs = self._missing_outputs(at, values, shapes)
        n = self._rt.attn_args_workspace(self._at, at) \
            if device[0] != _abi.CPU else 0
        plan = _Plan(bytes(template), device, outputs, n)
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        if key is not None:
            self._plans[key] = plan
        return plan

    def _missing_outputs(self, at, values, shapes):
        todo = [i for i in self._outputs + self._saves if values[i] is None]
        if not todo:
            return []
        dims = _shapes.solve(self._axes, self._fixed, shapes)
        found = []
        for i in todo:
            try:
                shape = self._output_shape(i, dims)
            except errors.DimError:
                self._check(at)  # a wrong input explains it better
                raise
            dtype = self.params[i].dtype
            strides, step = [], 1
            for n in reversed(shape):
                strides.insert(0, step)
                step *= max(n, 1)
            self._place(at, i, _arrays.View(1 << 12, shape, tuple(strides),
                                            (dtype,), (_abi.CPU, 0)))
            found.append((i, shape, dtype))
        return found

    def _check(self, at):
        """The runtime's checks of an argument struct: a launch on a device
        that does not exist."""
        s, e = _abi.Stream(kind=-1), _abi.ErrorInfo()
        self._call(self._at, C.c_void_p(at), C.byref(s), C.byref(e))
        found = errors.from_info(e, self._names)
        if not isinstance(found, errors.UnsupportedError):
            raise found

    def _place(self, at, i, v):
        p = self.params[i]
        if len(v.shape) > _abi.MAX_RANK:
            raise errors.RankError(f"argument '{p.name}': rank is "
                                   f"{len(v.shape)}, expected {p.rank}",
                                   p.name)
        t = _abi.Tensor.from_address(at + p.offset)
        t.data, t.rank = v.address, len(v.shape)
        t.shape[:t.rank] = v.shape
        t.stride[:t.rank] = v.strides
        t.dtype = p.dtype if p.dtype in v.dtypes else v.dtypes[0]

    def _fill(self, frame, values, kind, same):
        """Addresses and scalars."""
        for field, i in frame.data:
            v = values[i]
            if type(v) is same:
                field.value = kind.address(v)
            elif v is not None and v is not _NOT_WANTED:
                field.value = _arrays.kind_of(v).address(v)
        for typed, raw, default, i in frame.scalars:
            if values[i] is None:
                raw.value = default
            else:
                typed.value = values[i]

    def _device(self, plan, frame, kind, stream, workspace):
        if stream is None:
            stream = kind.stream(plan.device[1])
        if stream != frame.handle:
            s = frame.stream
            s.kind, s.device = plan.device
            s.handle = frame.handle = stream
        if plan.workspace:
            if workspace is None:
                workspace = self._workspace(plan, kind)
            frame.head.workspace = _arrays.kind_of(workspace).address(
                workspace)
            frame.head.workspace_bytes = plan.workspace
            frame.keep = workspace  # until the next call: the stream orders it
        return frame.stream_ref

    def _workspace(self, plan, kind):
        if not isinstance(kind, _arrays.TorchKind):
            raise errors.OutOfMemoryError(
                f"{self.name} needs {plan.workspace} bytes of device memory: "
                "pass workspace=", None, None, plan.workspace)
        torch = kind.torch
        return torch.empty(plan.workspace, dtype=torch.uint8,
                           device=torch.device("cuda", plan.device[1]))

    def workspace_bytes(self, *args, **named):
        """Bytes of device memory that this call needs beside its arrays."""
        values = self._bind(args, named.pop("out", None), named)
        self._lead(values)
        return self._plan(None, values).workspace


def _again(library, symbol):
    return library[symbol]


class Saved:
    """What a gradient reads of a call: `arrays` by name, `scalars`. Of arrays
    that the call overwrites these are copies of what they were, `first`."""

    def __init__(self, gradient, values, first):
        p = gradient.program
        values = [first.get(i, v) for i, v in enumerate(values)]
        self.arrays, self.scalars = {}, {}
        for name in gradient.backward._names:
            i = p._index.get(name)
            if i is None or values[i] is None or values[i] is _NOT_WANTED:
                continue
            scalar = p.params[i].kind == _abi.SCALAR
            (self.scalars if scalar else self.arrays)[name] = values[i]


class Gradient:
    """The gradient of a program:

        o, saved = p(q, k, v, save=True)
        g_q, g_k = p.grad(saved, d_O=g, want=("Q", "K"))

    Gradients are in the order of the program's inputs, or in that of `want`;
    one alone is no tuple. A cotangent that is not given is zero. `backward` is
    the program that computes it."""

    def __init__(self, program, backward):
        self.program, self.backward = program, backward
        self.inputs = [backward._names[i][2:] for i in backward._outputs]
        self.cotangents = [n for n in backward._names if n.startswith("d_")
                           and program._index.get(n) is None]
        have = [n for n in backward._names if n in program._index]
        kinds = {n: program.params[program._index[n]].kind for n in have}
        self._reads = [n for n in have if kinds[n] == _abi.OUT]
        self._overwritten = [program._index[n] for n in have
                             if kinds[n] == _abi.INOUT]

    def first(self, values, kind):
        """Copies of what the program overwrites and the gradient reads."""
        return {i: kind.copy(values[i]) for i in self._overwritten
                if values[i] is not None and values[i] is not _NOT_WANTED}

    def __repr__(self):
        return f"<attn gradient of {self.program.name} for " + \
            ", ".join(self.inputs) + ">"

    def __call__(self, saved, want=None, stream=None, workspace=None, **named):
        if not isinstance(saved, Saved):
            raise errors.ArgumentError(
                f"the gradient of {self.program.name} takes what a call with "
                "save=True returned")
        want = self.inputs if want is None else \
            [want] if isinstance(want, str) else list(want)
        for n in want:
            if n not in self.inputs:
                raise errors.ArgumentError(
                    f"{self.program.name} has no gradient of '{n}', but of "
                    + ", ".join(self.inputs), n)
        for n in self.inputs:
            if n not in want:
                named["g_" + n] = None
        made = self.backward(stream=stream, workspace=workspace,
                             **saved.arrays, **saved.scalars, **named)
        if len(want) < 2:
            return made
        order = dict(zip([n for n in self.inputs if n in want], made))
        return tuple(order[n] for n in want)


def _device(d):
    names = {_abi.CPU: "the CPU", _abi.CUDA: "CUDA device",
             _abi.HIP: "HIP device"}
    return names[d[0]] + (f" {d[1]}" if d[0] != _abi.CPU else "")
