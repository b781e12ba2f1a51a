"""Dims and extents in Python, where calling the runtime is no choice: shapes of
outputs before they exist, also with torch's symbolic sizes. What is wrong is
left to the runtime to say."""
from . import _abi

END, CONST, DIM, SCALAR, SHAPE, STRIDE = range(6)
_BINARY = (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b,
           lambda a, b: a // b, lambda a, b: a % b, min, max,
           lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a < b,
           lambda a, b: a <= b, lambda a, b: a and b, lambda a, b: a or b)
NOT = STRIDE + 1 + len(_BINARY)


class Unknown(Exception):
    """A dim that no shape says."""


class Expr:
    """Postfix code of attn_abi.h."""

    def __init__(self, code, at):
        self.words = []
        while code[at] != END:
            n = 3 if code[at] in (SHAPE, STRIDE) else \
                2 if code[at] in (CONST, DIM, SCALAR) else 1
            self.words.append(tuple(code[at:at + n]))
            at += n
        self.dims = sorted({w[1] for w in self.words if w[0] == DIM})
        plain = len(self.words) == 1 and self.words[0][0] == DIM
        self.plain = self.words[0][1] if plain else None

    def value(self, dims):
        stack = []
        for op, *arg in self.words:
            if op == CONST:
                stack.append(arg[0])
            elif op == DIM:
                if dims[arg[0]] is None:
                    raise Unknown(arg[0])
                stack.append(dims[arg[0]])
            elif op in (SCALAR, SHAPE, STRIDE):
                raise Unknown(None)
            elif op == NOT:
                stack.append(not stack.pop())
            else:
                b = stack.pop()
                stack.append(_BINARY[op - STRIDE - 1](stack.pop(), b))
        return stack[0]

    def solve(self, dims, extent):
        """Sets the one unknown dim if the expression is linear in it."""
        missing = [d for d in self.dims if dims[d] is None]
        if len(missing) != 1:
            return False
        at = [self.value(dims[:missing[0]] + [x] + dims[missing[0] + 1:])
              for x in (0, 1, 2)]
        step = at[1] - at[0]
        if step == 0 or at[2] - at[1] != step:
            return False
        dims[missing[0]] = (extent - at[0]) // step
        return True


def read(desc):
    """The expressions of the axes of each parameter, None for any extent; and
    the dims that have one value only."""
    code = desc.code[:desc.ncode]
    axes = []
    for i in range(desc.nparams):
        p = desc.params[i]
        axes.append([None if a == _abi.NONE else Expr(code, a)
                     for a in p.axis[:p.rank]])
    fixed = []
    for i in range(desc.ndims):
        d = desc.dims[i]
        listed = d.kind == 1 and d.values != _abi.NONE
        one = listed and code[d.values] == 1
        fixed.append(code[d.values + 1] if one
                     else d.lo if d.lo == d.hi else None)
    return axes, fixed


def solve(axes, fixed, shapes):
    """Dims from the shapes (None: not given) of the parameters."""
    dims = [None] * len(fixed)
    todo = []
    for exprs, shape in zip(axes, shapes):
        if shape is None or len(shape) != len(exprs):
            continue
        for e, extent in zip(exprs, shape):
            if e is None:
                continue
            if e.plain is None:
                todo.append((e, extent))
            elif dims[e.plain] is None:
                dims[e.plain] = extent
    while any(e.solve(dims, extent) for e, extent in todo):
        pass
    return [f if d is None else d for d, f in zip(dims, fixed)]
