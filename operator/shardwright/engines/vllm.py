"""vLLM's traits: what the planner must know of it, each figure with its source."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from shardwright.layouts.traits import EngineTraits, Remainder
from shardwright.units import GIB, MIB

NAME: Final = "vLLM"

_EXPERTS_AT_LEAST_TENSOR: Final = frozenset(
    {
        "Cohere2MoeForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
        "Step3TextForCausalLM",
    }
)

_ENDS_ON_EVERY_STAGE: Final = frozenset(
    {
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "GemmaForCausalLM",
        "GptOssForCausalLM",
        "MixtralForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
    }
)

_WIDTH_DIVIDES_REPLICA: Final = frozenset({"GptOssForCausalLM"})

_SOURCES: Final[Mapping[str, str]] = {
    "remainder": "vLLM 0.32.0 source, distributed/utils.py:get_pp_indices (126 layers over 4: 31, 32, 32, 31)",
    "vocabulary_padding": "vLLM 0.32.0 source, layers/vocab_parallel_embedding.py: rounded up to 64",
    "memory_utilization": "vLLM 0.32.0 and 0.33.0 option default --gpu-memory-utilization 0.92, share of total memory",
    "kv_block_tokens": "vLLM 0.32.0 source, v1/kv_cache_interface.py: 16 on NVIDIA (some kernels force 64)",
    "max_batched_tokens": "vLLM 0.32.0 source, engine/arg_utils.py:get_batch_defaults for GPUs of 70 GiB and more",
    "max_sequences": "vLLM 0.32.0 source, engine/arg_utils.py:get_batch_defaults for GPUs of 70 GiB and more",
    "fixed_overhead_bytes": (
        "FlashInfer workspace 394 MiB (vLLM 0.32.0 source, VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE)"
        " + CUDA context and libraries 630 MiB (assumed)"
    ),
    "communication_overhead_bytes": "NCCL buffers, 1 to 2 GiB as vLLM measures them; the middle (assumed)",
    "cuda_graph_bytes": "captured CUDA graphs, estimated and subtracted by vLLM since 0.21; 1 GiB (assumed)",
    "architectures": "vLLM 0.32.0 model registry, text generation",
    "without_pipeline": "vLLM 0.32.0 model registry, classes without SupportsPP",
    "experts_at_least_tensor": "vLLM 0.32.0 source, models/qwen3_moe.py and others: tensor size above experts is refused",
    "ends_on_every_stage": "vLLM 0.32.0 model classes, built stage by stage: Qwen3-235B measured so, the others by reading",
    "width_divides_replica": "vLLM 0.32.0 source, models/gpt_oss.py:MLPBlock: expert width over all ranks",
}


def traits(version: str) -> EngineTraits:
    """Return what planning must know of vLLM ``version`` (``major.minor.patch``).

    The figures were read in 0.32.0; 0.33.0 has the same ones. Architectures newer than the list are
    known to a newer engine only, so a version without a list of its own refuses none.
    """
    registry = _registry()
    listed = _minor(version) <= _LISTED_UP_TO
    known = frozenset(registry["with_pipeline"] + registry["without_pipeline"] + registry["unverified"])
    return EngineTraits(
        name=NAME,
        version=version,
        remainder=Remainder.BEFORE_LAST,
        vocabulary_padding=64,
        memory_utilization=0.92,
        kv_block_tokens=16,
        max_batched_tokens=8192,
        max_sequences=1024,
        fixed_overhead_bytes=1 * GIB,
        communication_overhead_bytes=1536 * MIB,
        cuda_graph_bytes=1 * GIB,
        architectures=known if listed else None,
        without_pipeline=frozenset(registry["without_pipeline"]),
        experts_at_least_tensor=_EXPERTS_AT_LEAST_TENSOR,
        sources=_SOURCES,
        ends_on_every_stage=_ENDS_ON_EVERY_STAGE,
        width_divides_replica=_WIDTH_DIVIDES_REPLICA,
    )


_LISTED_UP_TO: Final = (0, 33)
"""Newest minor version that the architecture list is good for: made with 0.32.0, nothing was removed in 0.33.0."""


def _minor(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


@cache
def _registry() -> Mapping[str, Any]:
    file = resources.files("shardwright.engines").joinpath("data/vllm-architectures-0.32.0.json")
    registry: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return registry
