"""SGLang's traits for the planner, each figure with its source or the word ``assumed``.

No engine of it has run here: its parser and its resolution of options have (``tests/engine``),
its memory is assumed.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Final

from shardwright.engines import assumed
from shardwright.engines.assumed import NOT_READ
from shardwright.engines.versions import release_month
from shardwright.engines.vllm.traits import HUGE_BATCH, LARGE_BATCH
from shardwright.layouts.layout import BatchRules, CutRules, EngineSupport, EngineTraits, Remainder

NAME: Final = "SGLang"

_ASKED_ALONE: Final = "no figure: what spec asks for, not what the engine does by itself"

_UNPROVEN: Final = (
    "SGLang: no engine of it has run here: its own parser takes the arguments, but whether it has "
    "this model's architecture and fits its weights as counted shows only when it starts"
)

GRAPH_SEQUENCES: Final = 512
"""Unit: sequences of the largest batch that a graph of decoding is captured for. Basis: its own
default on GPUs of 60 GiB and more (``srt/arg_groups/memory_hook.py``); told to every engine.
"""

_SOURCES: Final[Mapping[str, str]] = {
    **assumed.SOURCES,
    "remainder": (
        "sglang source, srt/distributed/utils.py:get_pp_indices: the last stages get one more"
    ),
    "vocabulary_padding": "assumed: 64, as vLLM's",
    "memory_utilization": (
        "assumed: 0.95, of everything; mem_fraction_static is of weights and K/V alone, and "
        "rendered as a plan counts them"
    ),
    "kv_block_tokens": "sglang source, srt/server_args.py: page_size, 1 by default",
    "max_batched_tokens": "assumed: as vLLM's on GPUs of less than 70 GiB",
    "max_sequences": "assumed: as vLLM's on GPUs of less than 70 GiB",
    "batch_defaults": "assumed: as vLLM's",
    "counts_graphs": "assumed: as vLLM's",
    "chunks_prompts": "sglang source, srt/server_args.py: chunked_prefill_size",
    "mixes_prompts": "sglang source, srt/server_args.py: enable_mixed_chunk, off by default",
    "kv_cache_bytes": _ASKED_ALONE,
    "reserves_output": "assumed: pages are taken as a request grows",
    "cache_follows_weights": (
        "sglang source, srt/server_args.py: kv_cache_dtype auto; assumed to be the model's"
    ),
    "mixes_expert_cuts": "assumed: ep_size ranks of experts, each sliced over the rest",
    "shares_context": "assumed: as vLLM's, for predictions; no plan to deploy has it",
    "data_beside_tensor": "assumed: as vLLM's",
    "two_shot_sums": "assumed: vLLM's kernel, as its published times on 8 GPUs say",
    "deals_experts_evenly": (
        "SGLang 0.5.23 source, layers/moe/fused_moe_triton/layer.py: asserts it; predicted without"
    ),
    "over_ray": _ASKED_ALONE,
    "without_pipeline": (
        "SGLang 0.5.23 source, model_runner.py: classes whose forward takes no pp_proxy_tensors "
        "(tests/engine/sglang_classes.py)"
    ),
    "adapters": _ASKED_ALONE,
    "adapter_vocabulary": _ASKED_ALONE,
    "drafter": _ASKED_ALONE,
    "becomes_predictor": _ASKED_ALONE,
    "takes_eagle3": (
        "SGLang 0.5.23 source, classes with set_eagle3_layers_to_capture "
        "(tests/engine/sglang_classes.py)"
    ),
    "takes_predictor": (
        "SGLang 0.5.23 source, arg_groups/speculative_hook.py:_handle_eagle_family: models that "
        "draft by themselves without a draft path"
    ),
    "looks_up_alone": (
        "SGLang 0.5.23 source, arg_groups/speculative_hook.py:_handle_ngram and "
        "validation_hook.py:check_pipeline_parallel_compat: refused"
    ),
    "looks_up": _ASKED_ALONE,
    "predicts_over_stages": (
        "SGLang 0.5.23 source, arg_groups/validation_hook.py:check_pipeline_parallel_compat: none"
    ),
    "backends": NOT_READ,
    "refines_blocks": NOT_READ,
    "uncut_inputs": NOT_READ,
    "block_of_every_sequence": NOT_READ,
    "least_capability": "assumed: 7.5, as vLLM's",
    "widens_fp8_from": "assumed: 7.5, as vLLM's",
    "told": _ASKED_ALONE,
    "warnings": "docs/sglang.md: what was never tried",
}


def predicted(version: str | None) -> EngineTraits:
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


_TAKES_PREDICTOR: Final = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Glm4MoeForCausalLM",
        "GlmMoeDsaForCausalLM",
    }
)


def traits(version: str) -> EngineTraits:
    """Return the traits of ``version`` (``major.minor.patch``), with a warning for every plan."""
    own, classes = predicted(version), _classes()
    return replace(
        own,
        released=release_month(NAME, version),
        cuts=replace(
            own.cuts,
            shares_context=False,
            deals_experts_evenly=True,
            without_pipeline=frozenset(classes["without_pipeline"]),
        ),
        support=replace(
            own.support,
            takes_eagle3=frozenset(classes["takes_eagle3"]),
            takes_predictor=_TAKES_PREDICTOR,
            looks_up_alone=True,
        ),
        warnings=(_UNPROVEN,),
    )


@cache
def _classes() -> Mapping[str, list[str]]:
    file = resources.files("shardwright.engines").joinpath("sglang/data/classes-0.5.23.json")
    found: Mapping[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
    return found
