"""The usual call, as short as Python allows: PyTorch tensors in their order, no
keywords. The function is written for each program, as text, so that nothing
loops over parameters:

    def call(Q, K, V):
        if type(Q) is not T or ..: return slow(Q, K, V)
        plan = plans.get((Q.shape, Q.stride(), Q.dtype, Q.device, K.shape, ..))
        ..

Whatever is not usual, and the first call of its kind, goes to `slow`."""
from . import _abi, _program


class Plan:
    """What a call needs of a _program._Plan."""

    def __init__(self, program, kind, plan):
        self.program, self.plan, self.ready = program, plan, []
        self.outputs = tuple((shape, kind.own[dtype])
                             for _, shape, dtype in plan.outputs)
        self.gpu = plan.device[0] != _abi.CPU
        self.device = plan.device[1]

    def frame(self):
        """A frame with the defaults of all scalars. With its addresses' fields:
        inputs, then outputs."""
        f = _program._Frame(self.program, self.plan.template)
        fields = {i: field for field, i in f.data}
        p = self.program
        f.fields = tuple(fields[i] for i in p._tensors if i not in p._saves)
        if self.gpu:
            f.stream.kind, f.stream.device = self.plan.device
        f.ref = f.stream_ref if self.gpu else None
        return f


def _text(names, outputs, all_fields):
    key = ", ".join(f"{n}.shape, {n}.stride(), {n}.dtype, {n}.device"
                    for n in names)
    odd = " or ".join(f"type({n}) is not T or {n}.requires_grad"
                      for n in names)
    args = ", ".join(names)
    lines = [f"def call({args}):",
             f"    if {odd}: return slow({args})",
             f"    key = ({key})",
             "    plan = plans.get(key)",
             f"    if plan is None: return first(key, {args})",
             "    try: f = plan.ready.pop()",
             "    except IndexError: f = plan.frame()"]
    for k, o in enumerate(outputs):
        lines += [f"    shape, dtype = plan.outputs[{k}]",
                  f"    {o} = {names[0]}.new_empty(shape, dtype=dtype)"]
    fields = ", ".join(f"_{n}" for n in all_fields)
    lines += [f"    {fields}{',' if len(all_fields) == 1 else ''} = f.fields"]
    lines += [f"    _{n}.value = {n}.data_ptr()" for n in all_fields]
    lines += ["    if plan.gpu:",
              "        s = stream(plan.device)",
              "        if s != f.handle: f.stream.handle = f.handle = s",
              "    if run(at, f.args, f.ref, f.error_ref):",
              f"        return fail(f, key, {args})",
              "    plan.ready.append(f)",
              f"    return {', '.join(outputs)}"]
    return "\n".join(lines)


def make(program, kind, slow):
    """The function, or None where the program is of no usual form."""
    p = program
    lead = [i for i in p._inputs if p.params[i].kind != _abi.SCALAR]
    tensors = [i for i in p._tensors if i not in p._saves]
    plain = all(p.params[i].kind == _abi.IN and not p.params[i].optional
                for i in lead) and p._inputs[:len(lead)] == lead
    if not plain or not lead or not p._outputs:
        return None
    # Parameters are words of the language; `call` has its own.
    name = {i: f"t{i}" for i in tensors}

    def first(key, *args):
        result = slow(*args)
        values = p._blank.copy()
        for i, v in zip(lead, args):
            values[i] = v
        found = p._plans.get(p._key(values, kind, kind.torch.Tensor))
        if found is not None and not found.workspace:
            if len(plans) >= _program._MOST_PLANS:
                plans.clear()
            plans[key] = Plan(p, kind, found)
        return result

    def fail(frame, key, *args):
        failed = _program.errors.from_info(frame.error, p._names)
        if not isinstance(failed, _program.errors.OutOfMemoryError):
            raise failed
        plans.pop(key, None)
        return slow(*args)

    plans = {}
    scope = {"T": kind.torch.Tensor, "plans": plans, "slow": slow, "first": first,
             "fail": fail, "run": p._call, "at": p._at, "stream": kind.stream}
    exec(_text([name[i] for i in lead], [name[i] for i in p._outputs],
               [name[i] for i in tensors]), scope)
    return scope["call"]
