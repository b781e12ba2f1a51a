from typing import Any

def register(name: str = "attnc") -> str: ...
def attention(module: Any, query: Any, key: Any, value: Any,
              attention_mask: Any, scaling: float | None = None,
              dropout: float = 0.0, is_causal: bool | None = None,
              sliding_window: int | None = None,
              softcap: float | None = None, s_aux: Any = None, **named: Any
              ) -> tuple[Any, None]: ...
def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0,
         kv_offset: int = 0, mask_function: Any = None,
         attention_mask: Any = None, use_vmap: bool = False,
         device: Any = "cpu", **other: Any) -> Any: ...
