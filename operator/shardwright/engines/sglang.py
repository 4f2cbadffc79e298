"""SGLang's traits: figures for predicting its speed, each with a source or ``assumed``.

It is not deployed, and a figure that no published case needs is missing.
"""

from collections.abc import Mapping
from typing import Final

from shardwright.engines import assumed
from shardwright.engines.assumed import NOT_READ
from shardwright.engines.vllm.traits import HUGE_BATCH, LARGE_BATCH
from shardwright.layouts.layout import BatchRules, CutRules, EngineSupport, EngineTraits, Remainder

NAME: Final = "SGLang"

_NOT_ASKED: Final = "no figure: it is predicted without"

_SOURCES: Final[Mapping[str, str]] = {
    **assumed.SOURCES,
    "remainder": (
        "sglang source, srt/distributed/utils.py:get_pp_indices: the last stages get one more"
    ),
    "vocabulary_padding": "assumed: 64, as vLLM's",
    "memory_utilization": (
        "assumed: 0.95; its own mem_fraction_static lies lower and leaves room for what is counted "
        "here beside it"
    ),
    "kv_block_tokens": "sglang source, srt/server_args.py: page_size, 1 by default",
    "max_batched_tokens": "assumed: as vLLM's on GPUs of less than 70 GiB",
    "max_sequences": "assumed: as vLLM's on GPUs of less than 70 GiB",
    "batch_defaults": "assumed: as vLLM's",
    "counts_graphs": "assumed: as vLLM's",
    "chunks_prompts": "sglang source, srt/server_args.py: chunked_prefill_size",
    "mixes_prompts": "sglang source, srt/server_args.py: enable_mixed_chunk, off by default",
    "kv_cache_bytes": _NOT_ASKED,
    "reserves_output": "assumed: pages are taken as a request grows",
    "cache_follows_weights": (
        "sglang source, srt/server_args.py: kv_cache_dtype auto; assumed to be the model's"
    ),
    "mixes_expert_cuts": "assumed: ep_size ranks of experts, each sliced over the rest",
    "shares_context": "assumed: as vLLM's",
    "data_beside_tensor": "assumed: as vLLM's",
    "deals_experts_evenly": NOT_READ,
    "over_ray": _NOT_ASKED,
    "without_pipeline": NOT_READ,
    "adapters": _NOT_ASKED,
    "adapter_vocabulary": _NOT_ASKED,
    "drafter": _NOT_ASKED,
    "becomes_predictor": _NOT_ASKED,
    "takes_eagle3": _NOT_ASKED,
    "predicts_over_stages": _NOT_ASKED,
    "backends": NOT_READ,
    "refines_blocks": NOT_READ,
    "uncut_inputs": NOT_READ,
    "block_of_every_sequence": NOT_READ,
    "least_capability": "assumed: 7.5, as vLLM's",
    "widens_fp8_from": "assumed: 7.5, as vLLM's",
    "told": _NOT_ASKED,
    "warnings": "none: it is predicted, not planned",
}


def traits(version: str | None) -> EngineTraits:
    """Return what predicting must know of SGLang, alike in all versions."""
    return EngineTraits(
        name=NAME,
        version=version or "",
        batching=BatchRules(
            max_batched_tokens=2048,
            max_sequences=256,
            batch_defaults=(HUGE_BATCH, LARGE_BATCH),
            refuses_long_requests=False,
            mixes_prompts=False,
        ),
        memory=assumed.memory_rules(kv_block_tokens=1),
        cuts=CutRules(remainder=Remainder.LAST, mixes_expert_cuts=True),
        support=EngineSupport(least_capability=(7, 5), widens_fp8_from=(7, 5)),
        sources=_SOURCES,
    )
