from typing import Any

from . import Program

def register(program: Program, name: str | None = None) -> Any: ...
