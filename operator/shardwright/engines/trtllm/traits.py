"""TensorRT-LLM's traits for the planner, each figure with its source or the word ``assumed``.

It could not be run: rules and limits are from its documents and source, figures of its memory
assumed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from shardwright.engines import assumed
from shardwright.engines.assumed import NOT_READ
from shardwright.engines.versions import release_month
from shardwright.layouts.captures import Captures
from shardwright.layouts.layout import (
    BatchRules,
    CutRules,
    EngineSupport,
    EngineTraits,
    MemoryRules,
    PromptSharing,
    Remainder,
)

NAME: Final = "TensorRT-LLM"

_UNPROVEN: Final = (
    "TensorRT-LLM: whether it has this model's architecture and fits its weights as counted shows "
    "only when it starts; its "
    "option lists are checked, its model classes and its memory are not"
)

_ASKED_ALONE: Final = "no figure: what spec asks for, not what the engine does by itself"

_MATRIX: Final = (
    "TensorRT-LLM documents, models/supported-models.md (at 00b6d5a), its table of features; "
    "LlamaForCausalLM by llmapi/llm_args.py:DecodingBaseConfig (at 0004396)"
)

_SOURCES: Final[Mapping[str, str]] = {
    **assumed.SOURCES,
    "remainder": "engine-measurements.md 10: mapping.py:pp_layers (tensor_split), the first stages",
    "vocabulary_padding": "assumed: 64, as vLLM's; what it pads to was not read",
    "memory_utilization": (
        "TensorRT-LLM source, llmapi/llm_args.py:KvCacheConfig (at 00e8cf7): "
        "free_gpu_memory_fraction, 0.9 by default"
    ),
    "cache_of_free": (
        "TensorRT-LLM source, _torch/pyexecutor/_util.py:_cal_max_memory (at 158b5d1): the share "
        "of the memory beside the peak of a trial run"
    ),
    "kv_block_tokens": (
        "TensorRT-LLM source, llmapi/llm_args.py:KvCacheConfig (at 00e8cf7): tokens_per_block, 32 "
        "by default"
    ),
    "max_batched_tokens": "engine-measurements.md 10: max_num_tokens, 8,192 by default",
    "max_sequences": (
        "TensorRT-LLM source, llmapi/llm_args.py:validate_misc (at 00e8cf7): max_batch_size, 2,048 "
        "by default"
    ),
    "batch_defaults": "engine-measurements.md 10: the same on every GPU",
    "captures": (
        "TensorRT-LLM source, llmapi/llm_args.py:_generate_cuda_graph_batch_sizes (at 00e8cf7 and "
        "0004396), of the batch that is rendered"
    ),
    "counts_graphs": (
        "TensorRT-LLM source, _torch/pyexecutor/_util.py:configure_kv_cache_capacity (at 158b5d1): "
        "the peak of the trial run has NCCL and graphs in it"
    ),
    "graph_sequences": "rendered: cuda_graph_config.max_batch_size, 1,024 at most",
    "graph_bytes": (
        "assumed: as vLLM's, fitted on one row; its own source says up to 200 MB a graph "
        "(llmapi/llm_args.py:TorchLlmArgs)"
    ),
    "chunks_prompts": "rendered: enable_chunked_prefill, unless a user turns it off",
    "mixes_prompts": "assumed: in-flight batching has both in one step",
    "kv_cache_bytes": _ASKED_ALONE,
    "reserves_output": (
        "TensorRT-LLM source, llmapi/llm_args.py:SchedulerConfig: GUARANTEED_NO_EVICT by default"
    ),
    "cache_follows_weights": "assumed: K/V in FP8 beside weights in FP8 or FP4",
    "mixes_expert_cuts": "engine-measurements.md 10: moe_tp x moe_ep = tp",
    "prompts": (
        "TensorRT-LLM source, _torch/pyexecutor/_util.py:_get_token_num_for_estimation (at "
        "158b5d1): a ValueError with context parallelism"
    ),
    "shares_context": "engine-measurements.md 10: context parallelism adds GPUs, and is Helix only",
    "data_beside_tensor": (
        "engine-measurements.md 10: enable_attention_dp replaces the tensor ranks"
    ),
    "deals_experts_evenly": "engine-measurements.md 10: experts must be divisible by ep",
    "two_shot_sums": (
        "measured, 0.25 to 8 MiB on 8 GPUs: one step, then as NCCL "
        "(ai-dynamo/aiconfigurator@095f58a51, tables of TensorRT-LLM 1.3.0rc20 and 1.0)"
    ),
    "over_ray": _ASKED_ALONE,
    "without_pipeline": "assumed: every class can be cut into stages",
    "adapters": _ASKED_ALONE,
    "adapter_vocabulary": "no figure: adapters are refused beside it",
    "drafter": _ASKED_ALONE,
    "becomes_predictor": NOT_READ,
    "takes_eagle3": _MATRIX,
    "looks_up_alone": NOT_READ,
    "looks_up": _ASKED_ALONE,
    "takes_predictor": _MATRIX,
    "predicts_over_stages": (
        "TensorRT-LLM source, _torch/pyexecutor/_util.py:_get_kv_size_per_token (at 158b5d1): "
        "draft layers of MTP are on the last stage alone"
    ),
    "backends": NOT_READ,
    "refines_blocks": NOT_READ,
    "uncut_inputs": NOT_READ,
    "block_of_every_sequence": NOT_READ,
    "least_capability": NOT_READ,
    "widens_fp8_from": "assumed: nothing is widened, FP8 weights need a unit",
    "told": _ASKED_ALONE,
    "warnings": "docs/tensorrt-llm.md: what was never tried",
}


GRAPH_SEQUENCES: Final = 1024
"""Unit: sequences, of the largest batch that graphs are captured for unless a user says otherwise.
Basis: the largest in the recommended configurations (curated/llama-3.3-70b.yaml at 25a0210).
"""

OF_1_2: Final = "1.2."
"""How its versions begin that have other words and graphs than those after it."""


def _captures(version: str | None) -> Captures:
    older = (version or "").startswith(OF_1_2)
    return Captures.EIGHTS_AND_DOUBLES if older else Captures.EIGHTS_AND_SIXTY_FOURS


def _memory(version: str | None) -> MemoryRules:
    rules = assumed.memory_rules(kv_block_tokens=32)
    if version and not version.startswith("1."):
        # Engines that were built ahead: what they take beside weights was not read, so the share
        # of the whole GPU is assumed.
        return replace(rules, cache_follows_weights=True)
    return replace(
        rules,
        memory_utilization=0.9,
        cache_of_free=True,
        cache_follows_weights=True,
        captures=_captures(version),
        graph_sequences=GRAPH_SEQUENCES,
    )


def predicted(version: str | None) -> EngineTraits:
    """Return what planning must know of TensorRT-LLM, which is alike in all versions but for the
    batches that graphs are captured for, and for the memory before 1.0.
    """
    return EngineTraits(
        name=NAME,
        version=version or "",
        batching=BatchRules(
            max_batched_tokens=8192,
            max_sequences=2048,
            reserves_output=True,
            refuses_long_requests=False,
        ),
        memory=_memory(version),
        cuts=CutRules(
            remainder=Remainder.FIRST,
            mixes_expert_cuts=True,
            shares_context=False,
            data_beside_tensor=False,
            deals_experts_evenly=True,
            two_shot_sums=False,
            prompts=PromptSharing.UNSIZED,
        ),
        support=EngineSupport(
            takes_eagle3=_TAKES_EAGLE3,
            takes_predictor=_TAKES_PREDICTOR,
            predicts_over_stages=_TAKES_PREDICTOR,
        ),
        sources=_SOURCES,
    )


_TAKES_EAGLE3: Final = frozenset(
    {
        "GptOssForCausalLM",
        "Llama4ForConditionalGeneration",
        "LlamaForCausalLM",
        "Qwen3MoeForCausalLM",
    }
)
_TAKES_PREDICTOR: Final = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Glm4MoeForCausalLM",
        "NemotronHForCausalLM",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "Step3p7ForConditionalGeneration",
    }
)


def traits(version: str) -> EngineTraits:
    """Return the traits of ``version`` (``major.minor.patch``), with a warning for every plan."""
    return replace(predicted(version), released=release_month(NAME, version), warnings=(_UNPROVEN,))
