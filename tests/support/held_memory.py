"""Weights and memory of a whole replica, asked for in one call."""

from shardwright.costs.memory import Frame, ReplicaMemory, lengthened, memory_under, stage_holds
from shardwright.costs.weight_bytes import stage_weight_parts
from shardwright.costs.working_memory import Device
from shardwright.costs.workload import Workload
from shardwright.layouts.layout import EngineTraits, Layout
from shardwright.modelspec.model_spec import ModelSpec


def stage_weight_bytes(model: ModelSpec, layout: Layout, traits: EngineTraits) -> tuple[int, ...]:
    """Return the bytes of weights on the fullest rank of every pipeline stage."""
    return tuple(stage.total_bytes for stage in stage_weight_parts(model, layout, traits))


def replica_memory(
    model: ModelSpec, layout: Layout, device: Device, load: Workload, traits: EngineTraits
) -> ReplicaMemory:
    """Return the memory at the highest limits that carry the load."""
    return memory_under(_frame(model, layout, device, load, traits), load, {})


def longest_memory(
    model: ModelSpec, layout: Layout, device: Device, load: Workload, traits: EngineTraits
) -> ReplicaMemory:
    """Return that memory at the longest request that costs nothing."""
    frame = _frame(model, layout, device, load, traits)
    return lengthened(frame, memory_under(frame, load, {}), load)


def _frame(
    model: ModelSpec, layout: Layout, device: Device, load: Workload, traits: EngineTraits
) -> Frame:
    return Frame(
        model=model,
        layout=layout,
        holds=stage_holds(model, layout, load.kv_cache_dtype, traits),
        device=device,
        traits=traits,
        mean_tokens=load.input_tokens + load.output_tokens,
    )
