from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from . import Choice, Program

class Function:
    def __call__(self, *args: Any, **named: Any) -> Any: ...
    def operator(self, *args: Any, **named: Any) -> Any: ...
    def compile(self, device: Any = "cpu", grad: bool = False
                ) -> Program | Choice: ...

class _ContextParallel:
    def __call__(self, *args: Any, **named: Any) -> Any: ...

def context_parallel(op: Any, group: Any = None, plan: str | None = None, *,
                     causal: bool = True, queries: str | None = None,
                     keys: str | None = None,
                     heads: str | Sequence[str] | None = None,
                     sees: str | None = None, groups: int | None = None
                     ) -> _ContextParallel: ...
def shard(x: Any, dim: int, group: Any = None, causal: bool = True) -> Any: ...
def unshard(x: Any, dim: int, group: Any = None,
            causal: bool = True) -> Any: ...
def register(program: Program, name: str | None = None) -> Any: ...
def function(path: str | PathLike[str] | None = None,
             fn: str | None = None, *, source: str | None = None,
             dims: Mapping[str, object] | None = None,
             target: str | Sequence[str] | None = None,
             options: Sequence[str] = (),
             include: Sequence[str | PathLike[str]] = ()) -> Function: ...
