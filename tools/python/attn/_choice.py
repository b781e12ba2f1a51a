"""A program with dtype generics is compiled to one program for each choice of
them, gqa_bf16, gqa_f32; here they are one function again, which takes the one
that the arrays' types ask for."""
from . import _abi, _arrays, _program, errors


def base_of(name):
    """gqa of gqa_bf16 and gqa_bf16_f32, None of other names."""
    words = name.split("_")
    n = len(words)
    while n > 1 and words[n - 1] in _abi.DTYPES:
        n -= 1
    return "_".join(words[:n]) if n < len(words) else None


class Choice:
    """Programs that differ in types of elements: lib.gqa(q, k, v) calls
    gqa_bf16 for arrays of bf16. `of(q, k, v)` is that program, `programs` has
    all of them."""

    def __init__(self, name, programs):
        self.name, self.programs = name, programs
        self._found = {}
        self.__name__ = name
        self.__doc__ = "\n".join(p.signature for p in programs)

    def __repr__(self):
        return f"<attn program {self.name}: " + \
            ", ".join(p.name for p in self.programs) + ">"

    def __reduce__(self):
        return _again, (self.programs[0]._library, self.name)

    def of(self, *args, **named):
        """The program that a call with these arrays runs."""
        first = self.programs[0]
        if len(args) > len(first._inputs):
            first._bind(args, None, named)  # tells what is wrong
        given = {i: v for i, v in zip(first._inputs, args)}
        given.update((first._index[n], v) for n, v in named.items()
                     if n in first._index)
        given = {i: v for i, v in given.items() if v is not None
                 and first.params[i].kind in (_abi.IN, _abi.INOUT)}
        key = tuple((i, type(v), getattr(v, "dtype", None))
                    for i, v in given.items())
        if key not in self._found or None in [k[2] for k in key]:
            self._found[key] = self._pick(first, given)
        return self._found[key]

    def _pick(self, first, given):
        have = {}
        for i, v in given.items():
            kind = first._kind(v, i)
            have[i] = kind.dtypes(v)
        return self._among(first, have)

    def of_types(self, types):
        """The same of PyTorch's types, as texts, by names or places of
        inputs."""
        first, have = self.programs[0], {}
        kind = _arrays.TorchKind()
        for n, name in types.items():
            i = first._inputs[n] if isinstance(n, int) else first._index[n]
            have[i] = kind.types[getattr(kind.torch, name.split(".")[1])]
        return self._among(first, have)

    def _among(self, first, have):
        exact = [p for p in self.programs if all(
            d and p.params[i].dtype == d[0] for i, d in have.items())]
        fits = exact or [p for p in self.programs if all(
            p.params[i].dtype in d for i, d in have.items())]
        if fits:
            return fits[0]
        types = ", ".join(f"{first._names[i]} {_abi.DTYPES[d[0]]}"
                          for i, d in have.items())
        raise errors.DtypeError(
            f"{self.name}() is compiled for other types than {types}: "
            + ", ".join(p.name for p in self.programs))

    def __call__(self, *args, **named):
        return self.of(*args, **named)(*args, **named)

    __call__._torchdynamo_disable = True
    __call__._torchdynamo_disable_msg = \
        _program.Program.__call__._torchdynamo_disable_msg

    def prepare(self, *args, **named):
        return self.of(*args, **named).prepare(*args, **named)

    @property
    def grad(self):
        raise errors.ArgumentError(
            f"{self.name} is several programs; the gradient is one's: "
            + ", ".join(f"lib.{p.name}.grad" for p in self.programs))


def _again(library, name):
    return library[name]
