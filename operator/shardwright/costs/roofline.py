"""How long one stage takes for one step: the slower of computing and of reading memory, plus communication."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shardwright.costs.coefficients import (
    COMPUTE_EFFICIENCY,
    EXPERT_IMBALANCE,
    KV_EFFICIENCY,
    LAYER_SECONDS,
    MEMORY_EFFICIENCY,
    SEQUENCE_SECONDS,
    THIN_SLICE_COLUMNS,
)
from shardwright.costs.communication import Fabric, all_reduce_seconds
from shardwright.costs.work import ModelWork, StageWork
from shardwright.hardware.gpus import Gpu

_UNITS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "fp8": ("fp8", "bf16", "fp16"),
        "int8": ("int8", "bf16", "fp16"),
        "nvfp4": ("fp4", "bf16", "fp16"),
        "mxfp4": ("fp4", "bf16", "fp16"),
        "fp16": ("fp16", "bf16"),
    }
)
"""Which unit multiplies weights that are stored so; where the GPU has none, they are widened first."""

_ALL_REDUCES_PER_LAYER: Final = 2  # after attention and after the feed-forward block


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one step carries: decoding sequences with their mean context, and prompt tokens with theirs.

    ``kv_bytes`` are the K/V bytes that one decoding sequence reads on this stage's rank.
    """

    sequences: float = 0.0
    context_tokens: float = 0.0
    kv_bytes: float = 0.0
    prompt_tokens: float = 0.0
    prompt_context_tokens: float = 0.0
    sampled: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one step on one stage, by what takes them."""

    weights: float
    kv_cache: float
    compute: float
    communication: float
    overhead: float

    @property
    def bound(self) -> float:
        """Return the roofline: memory traffic or computing, whichever is slower."""
        return max(self.compute, self.weights + self.kv_cache)

    @property
    def total(self) -> float:
        """Return the whole step."""
        return self.bound + self.communication + self.overhead


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What one rank can do: FLOP/s and bytes/s that are really reached, and the links of its group."""

    flops_per_second: float
    memory_bytes_per_second: float
    fabric: Fabric
    hidden_bytes: int  # one token's activations, as they cross links

    @classmethod
    def of(cls, gpu: Gpu, work: ModelWork, fabric: Fabric, hidden_bytes: int) -> "Machine":
        """Derate a GPU's data sheet for a model's storage."""
        units = _UNITS.get(work.storage, ("bf16", "fp16"))
        peak = next((gpu.flops[unit] for unit in units if unit in gpu.flops), 0.0) or max(gpu.flops.values())
        return cls(
            flops_per_second=peak * COMPUTE_EFFICIENCY,
            memory_bytes_per_second=gpu.memory_bytes_per_second,
            fabric=fabric,
            hidden_bytes=hidden_bytes,
        )


def step_time(machine: Machine, model: ModelWork, stage: StageWork, batch: Batch, *, whole_experts: bool) -> StepTime:
    """Return the time of one step of one stage; monotone in every figure of the batch."""
    tokens = batch.sequences + batch.prompt_tokens
    imbalance = EXPERT_IMBALANCE if whole_experts else 1.0
    touched = min(1.0, model.touched_share(tokens) * imbalance)
    weights = stage.dense_bytes + stage.expert_bytes * touched
    reduce = all_reduce_seconds(tokens * machine.hidden_bytes, machine.fabric)
    return StepTime(
        weights=weights / (machine.memory_bytes_per_second * MEMORY_EFFICIENCY),
        kv_cache=batch.sequences * batch.kv_bytes / (machine.memory_bytes_per_second * KV_EFFICIENCY),
        compute=_flops(stage, batch, imbalance) / machine.flops_per_second,
        communication=_ALL_REDUCES_PER_LAYER * stage.layers * reduce,
        overhead=stage.layers * LAYER_SECONDS + batch.sequences * SEQUENCE_SECONDS,
    )


def prompt_time(machine: Machine, model: ModelWork, stage: StageWork, batch: Batch, *, whole_experts: bool) -> StepTime:
    """Return what prompt tokens add to a step that runs anyway: its weights are read for the decoding already."""
    time = step_time(machine, model, stage, batch, whole_experts=whole_experts)
    return StepTime(weights=0.0, kv_cache=time.kv_cache, compute=time.compute, communication=time.communication, overhead=0.0)


def _flops(stage: StageWork, batch: Batch, imbalance: float) -> float:
    tokens = batch.sequences + batch.prompt_tokens
    thin = 1 + THIN_SLICE_COLUMNS / stage.expert_columns if stage.expert_columns else 1.0
    attention = (
        batch.sequences * batch.context_tokens * stage.decode_attention_flops
        + batch.prompt_tokens * batch.prompt_context_tokens * stage.prefill_attention_flops
    )
    experts = stage.expert_flops * imbalance * thin
    return tokens * (stage.dense_flops + experts) + attention + batch.sampled * stage.head_flops
