"""The engines that speed can be predicted for; those that can also be deployed are fewer."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.engines import vllm
from shardwright.engines.eras import release_of
from shardwright.engines.release_months import release_month
from shardwright.layouts.traits import EngineTraits, Remainder
from shardwright.units import GIB

TENSORRT_LLM: Final = "TensorRT-LLM"
SGLANG: Final = "SGLang"

_RULES_READ_IN: Final = "0.33.0"


def traits_of(engine: str, version: str | None) -> EngineTraits:
    """Return the traits of an engine in a version (None: the newest) that planning must know.

    Raises:
        KeyError: The engine is not known.
    """
    return replace(
        _ENGINES[engine](version),
        version=version or "",
        released=release_month(engine, version),
    )


def _vllm(version: str | None) -> EngineTraits:
    """Return vLLM's rules; a string that names no release has those of its month."""
    numbered = release_of(version or "") is not None
    return vllm.traits(
        version
        if version and numbered
        else release_month(vllm.NAME, version) or _RULES_READ_IN
    )


def _tensorrt_llm(version: str | None) -> EngineTraits:
    """Return TensorRT-LLM's rules where they differ from vLLM's.

    Sources: engines.md section 10 (``mapping.py:pp_layers``, defaults of trtllm-serve: batch 2,048,
    8,192 tokens, 32 tokens a block, 0.9 of what is free after the weights, requests admitted only
    whole).
    """
    del version
    return replace(
        vllm.traits(_RULES_READ_IN),
        name=TENSORRT_LLM,
        remainder=Remainder.FIRST,
        memory_utilization=0.95,
        kv_block_tokens=32,
        max_sequences=2048,
        max_batched_tokens=8192,
        architectures=None,
        quantizations=None,
        reserves_output=True,
        cache_follows_weights=True,
        refuses_long_requests=False,
        mixes_expert_cuts=True,
        batch_defaults=(),
        fixed_overhead_bytes=GIB // 2,
        least_capability=None,
        widens_fp8_from=None,
        oldest_for={},
    )


def _sglang(version: str | None) -> EngineTraits:
    """Return SGLang's rules where they differ from vLLM's: pages of one token (its own default)."""
    del version
    return replace(
        vllm.traits(_RULES_READ_IN),
        name=SGLANG,
        memory_utilization=0.95,
        kv_block_tokens=1,
        architectures=None,
        quantizations=None,
        refuses_long_requests=False,
        mixes_expert_cuts=True,
        mixes_prompts=False,
        fixed_overhead_bytes=GIB // 2,
        oldest_for={},
    )


_ENGINES: Final[Mapping[str, Callable[[str | None], EngineTraits]]] = MappingProxyType(
    {vllm.NAME: _vllm, TENSORRT_LLM: _tensorrt_llm, SGLANG: _sglang}
)

BY_LOWER_NAME: Final[Mapping[str, str]] = MappingProxyType(
    {name.lower(): name for name in _ENGINES}
)
"""The names of the engines by their lower case."""
