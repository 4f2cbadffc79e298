"""Weights and memory of a whole replica, asked for in one call."""

from shardwright.costs.memory import Frame, ReplicaMemory, memory_under, stage_holds
from shardwright.costs.overheads import Device
from shardwright.costs.weights import stage_weight_parts
from shardwright.costs.workload import Workload
from shardwright.layouts.layout import Layout
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec


def stage_weight_bytes(model: ModelSpec, layout: Layout, traits: EngineTraits) -> tuple[int, ...]:
    """Return the bytes of weights on the fullest rank of every pipeline stage."""
    return tuple(stage.total_bytes for stage in stage_weight_parts(model, layout, traits))


def replica_memory(
    model: ModelSpec, layout: Layout, device: Device, load: Workload, traits: EngineTraits
) -> ReplicaMemory:
    """Return the memory at the highest limits that carry the load."""
    frame = Frame(
        model=model,
        layout=layout,
        holds=stage_holds(model, layout, load.kv_cache_dtype, traits),
        device=device,
        traits=traits,
        mean_tokens=load.input_tokens + load.output_tokens,
    )
    return memory_under(frame, load, {})
