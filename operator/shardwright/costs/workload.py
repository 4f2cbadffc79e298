"""The load a model is planned for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Mean lengths and requests in flight over all replicas; ``max_model_len`` is the longest request."""

    input_tokens: int
    output_tokens: int
    concurrency: int
    max_model_len: int
    kv_cache_dtype: str = "auto"  # auto | fp8
