from collections.abc import Callable
from typing import Any

from . import Choice, Program

def function(program: Program | Choice, batch: str | None = None
             ) -> Callable[..., Any]: ...
