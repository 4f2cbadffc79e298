"""Cases of the scorer as questions to AISimulate's documented estimate of one deployment.

Source: docs/aic-backward-compatibility/cli.md of ai-dynamo/aisimulate ("Estimate mode").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

SYSTEMS: Final = {
    "NVIDIA-A100-SXM4-80GB": "a100_sxm",
    "NVIDIA-B200": "b200_sxm",
    "NVIDIA-B300-SXM6-AC": "b300_sxm",
    "NVIDIA-GB200": "gb200",
    "NVIDIA-GB300": "gb300",
    "NVIDIA-H100-80GB-HBM3": "h100_sxm",
    "NVIDIA-H200": "h200_sxm",
    "NVIDIA-L40S": "l40s",
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": "rtx_pro_6000_server",
}
"""Product to the peer's name of the same GPU, where it has measured it."""
BACKENDS: Final = {"sglang": "sglang", "tensorrt-llm": "trtllm", "vllm": "vllm"}
CACHES: Final = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8"}
SIXTEEN_BITS: Final = ("bf16", "fp16")
PUBLISHED: Final = {"fp8": "FP8", "nvfp4": "NVFP4"}
"""Format to ModelOpt's name of it, in which a config says how its weights are stored."""


class Unmapped(StrEnum):
    """Why a case is no question that the peer can be asked."""

    SATURATED = "Saturated"
    STATIC_BATCH = "StaticBatch"
    GPU = "Gpu"
    SHARES = "Shares"
    WEIGHTS = "Weights"


REASONS: Final = {
    Unmapped.SATURATED: "a full queue: it asks for the number of requests in flight",
    Unmapped.STATIC_BATCH: "a static batch: by its manual its static mode is no throughput",
    Unmapped.GPU: "a GPU that it has not measured",
    Unmapped.SHARES: "requests that do not divide among replicas, stages and attention ranks",
    Unmapped.WEIGHTS: "a format of weights that its configs have no name for",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One call of the peer's estimate: the model's config and the other arguments."""

    id: str
    config: Mapping[str, Any]
    arguments: Mapping[str, str | int]


def question(case: Mapping[str, Any]) -> Question | Unmapped:
    """Return what to ask for a case, or why it cannot be asked.

    A rank that shares attention's data has a batch of its own, and so has a stage: the peer
    multiplies its batch by both. Engine versions are left out: it has one version of each, newer
    than all that were measured. What it works out by itself (chunk size, kernels, K/V type where
    the case leaves it to the engine) stays with it.
    """
    hardware, load, degrees = case["hardware"], case["workload"], case["parallelism"]
    if load["arrival"] != "ClosedLoop":
        return Unmapped(load["arrival"])
    if hardware["gpuProduct"] not in SYSTEMS:
        return Unmapped.GPU
    config = _stored_as(case["model"]["config"], case["weights"])
    if config is None:
        return Unmapped.WEIGHTS
    shares = degrees["replicas"] * degrees["pipeline"] * degrees["attentionData"]
    if load["concurrency"] % shares:
        return Unmapped.SHARES
    arguments = {
        "database_mode": "HYBRID",  # measured kernels, and formulas where it has none
        "system_name": SYSTEMS[hardware["gpuProduct"]],
        "backend_name": BACKENDS[case["engine"]["name"]],
        "isl": load["inputTokens"],
        "osl": load["outputTokens"],
        "batch_size": int(load["concurrency"] // shares),
        "tp_size": degrees["tensor"] // degrees["attentionData"],
        "pp_size": degrees["pipeline"],
        "attention_dp_size": degrees["attentionData"],
        "moe_tp_size": degrees["tensor"] // degrees["expert"],
        "moe_ep_size": degrees["expert"],
    }
    if case["kvCache"] in CACHES:
        arguments["kvcache_quant_mode"] = CACHES[case["kvCache"]]
    return Question(id=case["id"], config=config, arguments=arguments)


def _stored_as(config: Mapping[str, Any], weights: str) -> Mapping[str, Any] | None:
    """Return the config of a checkpoint whose weights are stored so; None: it cannot be said."""
    own = config.get("quantization_config") or {}
    if own.get("quant_method") == weights:
        return config
    plain = {name: value for name, value in config.items() if name != "quantization_config"}
    if weights in SIXTEEN_BITS:
        return plain
    if weights not in PUBLISHED:
        return None
    stored = {"quant_method": "modelopt", "quant_algo": PUBLISHED[weights]}
    return {**plain, "quantization_config": stored}
