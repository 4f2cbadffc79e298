"""Engine arguments that the planner counts with: what they say is a pin, in the plan as on the command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shardwright.engines.option_tables import canonical
from shardwright.errors import Problem

_COMPUTED_IN: Final = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
"""vLLM's names of the types to compute in; ``auto`` is the config's."""

_KV_BYTES: Final = "kv-cache-memory-bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What a user's arguments fix of the memory of a rank.

    ``dtype`` (bf16, fp16, fp32) is what the model computes in, ``kv_cache_bytes`` what every rank keeps for K/V (None:
    as the planner finds it).
    """

    dtype: str | None = None
    kv_cache_bytes: int | None = None


def read_pins(arguments: Mapping[str, object]) -> Pins:
    """Return the pins among checked arguments.

    >>> read_pins({"dtype": "float32", "kv_cache_memory_bytes": 1073741824, "seed": 1})
    Pins(dtype='fp32', kv_cache_bytes=1073741824)
    """
    named = {canonical(name): value for name, value in arguments.items()}
    bytes_each = named.get(_KV_BYTES)
    return Pins(
        dtype=_COMPUTED_IN.get(str(named.get("dtype"))), kv_cache_bytes=bytes_each if isinstance(bytes_each, int) else None
    )


def check_pins(arguments: Mapping[str, object]) -> tuple[Problem, ...]:
    """Return which pins the planner cannot count with, each problem's path being the argument's name.

    The engine's parser takes ``1G`` too, and 0 for what is free: the plan wants the number.
    """
    return tuple(
        _no_number(name, value) for name, value in arguments.items() if canonical(name) == _KV_BYTES and not _counts(value)
    )


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _no_number(name: str, value: object) -> Problem:
    return Problem(
        code="EngineArgumentInvalid",
        path=name,
        what=f"--{_KV_BYTES} {value!r:.60}",
        limit="must be a whole number of bytes, at least 1",
        remedy="write the number of bytes that every rank shall keep for K/V",
    )
