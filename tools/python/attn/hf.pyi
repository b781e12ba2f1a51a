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
def recurrences(model: Any, compiled: bool = True) -> list[str]: ...
def gated_delta(query: Any, key: Any, value: Any, g: Any, beta: Any,
                chunk_size: int = 64, initial_state: Any = None,
                output_final_state: bool = False,
                use_qk_l2norm_in_kernel: bool = False, **named: Any
                ) -> tuple[Any, Any]: ...
def mamba2(hidden_states: Any, dt: Any, A: Any, B: Any, C: Any,
           chunk_size: int, D: Any = None, dt_bias: Any = None,
           initial_states: Any = None, dt_softplus: bool = False,
           dt_limit: tuple[float, float] = (0.0, float("inf")),
           return_final_states: bool = False, z: Any = None, **named: Any
           ) -> Any: ...
def mamba2_step(state: Any, hidden_states: Any, dt: Any, A: Any, B: Any,
                C: Any, D: Any = None, dt_bias: Any = None,
                dt_softplus: bool = False, z: Any = None, **named: Any
                ) -> Any: ...
