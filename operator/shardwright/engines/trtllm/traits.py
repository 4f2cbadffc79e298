"""TensorRT-LLM's traits for the planner, each figure with its source or the word ``assumed``.

It could not be run: rules are from its documents and source as of 1.2, figures of its memory
assumed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from shardwright.engines import assumed
from shardwright.engines.assumed import NOT_READ
from shardwright.engines.versions import release_month
from shardwright.layouts.layout import BatchRules, CutRules, EngineTraits, Remainder

NAME: Final = "TensorRT-LLM"

_UNPROVEN: Final = (
    "TensorRT-LLM: whether it has this model's architecture and fits its weights as counted shows "
    "only when it starts; its "
    "option lists are checked, its model classes and its memory are not"
)

_ASKED_ALONE: Final = "no figure: what spec asks for, not what the engine does by itself"

_SOURCES: Final[Mapping[str, str]] = {
    **assumed.SOURCES,
    "remainder": "engine-measurements.md 10: mapping.py:pp_layers (tensor_split), the first stages",
    "vocabulary_padding": "assumed: 64, as vLLM's; what it pads to was not read",
    "memory_utilization": (
        "assumed: its default is 0.9 of what is free after weights and buffers "
        "(engine-measurements.md 10), taken as 0.95 of the GPU"
    ),
    "kv_block_tokens": "engine-measurements.md 10: tokens_per_block, 32 by default",
    "max_batched_tokens": "engine-measurements.md 10: max_num_tokens, 8,192 by default",
    "max_sequences": "engine-measurements.md 10: max_batch_size, 2,048 by default",
    "batch_defaults": "engine-measurements.md 10: the same on every GPU",
    "counts_graphs": "assumed: they are there before its cache is sized",
    "chunks_prompts": "rendered: enable_chunked_prefill",
    "mixes_prompts": "assumed: in-flight batching has both in one step",
    "kv_cache_bytes": _ASKED_ALONE,
    "reserves_output": (
        "TensorRT-LLM source, llmapi/llm_args.py:SchedulerConfig: GUARANTEED_NO_EVICT by default"
    ),
    "cache_follows_weights": "assumed: K/V in FP8 beside weights in FP8 or FP4",
    "mixes_expert_cuts": "engine-measurements.md 10: moe_tp x moe_ep = tp",
    "shares_context": "engine-measurements.md 10: context parallelism adds GPUs, and is Helix only",
    "data_beside_tensor": (
        "engine-measurements.md 10: enable_attention_dp replaces the tensor ranks"
    ),
    "deals_experts_evenly": "engine-measurements.md 10: experts must be divisible by ep",
    "over_ray": _ASKED_ALONE,
    "without_pipeline": "assumed: every class can be cut into stages",
    "adapters": _ASKED_ALONE,
    "adapter_vocabulary": "no figure: adapters are refused beside it",
    "drafter": _ASKED_ALONE,
    "becomes_predictor": "no figure: drafters are refused beside it",
    "takes_eagle3": "no figure: drafters are refused beside it",
    "predicts_over_stages": "no figure: drafters are refused beside it",
    "backends": NOT_READ,
    "refines_blocks": NOT_READ,
    "uncut_inputs": NOT_READ,
    "block_of_every_sequence": NOT_READ,
    "least_capability": NOT_READ,
    "widens_fp8_from": "assumed: nothing is widened, FP8 weights need a unit",
    "told": _ASKED_ALONE,
    "warnings": "docs/tensorrt-llm.md: what was never tried",
}


def predicted(version: str | None) -> EngineTraits:
    """Return what planning must know of TensorRT-LLM, alike in all versions."""
    return EngineTraits(
        name=NAME,
        version=version or "",
        batching=BatchRules(
            max_batched_tokens=8192,
            max_sequences=2048,
            reserves_output=True,
            refuses_long_requests=False,
        ),
        memory=assumed.memory_rules(kv_block_tokens=32, cache_follows_weights=True),
        cuts=CutRules(
            remainder=Remainder.FIRST,
            mixes_expert_cuts=True,
            shares_context=False,
            data_beside_tensor=False,
            deals_experts_evenly=True,
        ),
        sources=_SOURCES,
    )


def traits(version: str) -> EngineTraits:
    """Return the traits of ``version`` (``major.minor.patch``), with a warning for every plan."""
    return replace(predicted(version), released=release_month(NAME, version), warnings=(_UNPROVEN,))
