"""Laws of the memory budget: more memory never harms, lower limits never need more, what is tight
starts.
"""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardwright.costs.memory import ReplicaMemory
from shardwright.costs.working_memory import Device, activation_bytes
from shardwright.costs.workload import Limits, Workload
from shardwright.hardware.gpus import load_gpus
from shardwright.layouts.layout import EngineTraits, Layout
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.units import GIB
from tests.support.builders_plan import a_model, vllm_traits
from tests.support.held_memory import longest_memory, replica_memory

Held = Callable[[ModelSpec, Layout, Device, Workload, EngineTraits], ReplicaMemory]

models = st.sampled_from(("llama-8b", "llama-70b-fp8", "qwen2.5-7b", "qwen3-30b-a3b"))
degrees = st.sampled_from((1, 2, 4))
memories = st.integers(8, 300)
lengths = st.integers(64, 32768)
loads = st.builds(
    lambda tokens, concurrency, more: Workload(
        input_tokens=tokens,
        output_tokens=64,
        concurrency=concurrency,
        max_model_len=tokens + 64,
        open_model_len=tokens + 64 + more,
    ),
    lengths,
    st.integers(1, 2000),
    st.integers(0, 1_000_000),
)


def memory(
    model: str, layout: Layout, gib: int, load: Workload, held: Held = replica_memory
) -> ReplicaMemory:
    spec = a_model(model)
    gpu = replace(load_gpus()["H100-SXM-80GB"], memory_bytes=gib * GIB)
    device = Device(gpu=gpu, joined_gpus=8)
    return held(spec, layout, device, load, vllm_traits())


@given(models, degrees, degrees, memories, st.integers(0, 100), loads)
def test_more_memory_never_keeps_a_layout_from_starting(
    model: str, tensor: int, pipeline: int, gib: int, more: int, load: Workload
) -> None:
    layout = Layout(tensor=tensor, pipeline=pipeline)
    less, roomier = (memory(model, layout, size, load) for size in (gib, gib + more))

    assert roomier.starts or not less.starts


@given(models, degrees, memories, st.integers(0, 100), loads)
def test_more_memory_never_runs_fewer_requests(
    model: str, tensor: int, gib: int, more: int, load: Workload
) -> None:
    less, roomier = (memory(model, Layout(tensor=tensor), size, load) for size in (gib, gib + more))

    if less.starts and less.running(load.concurrency) >= load.concurrency:
        assert roomier.running(load.concurrency) >= load.concurrency


@given(models, degrees, memories, loads)
def test_a_longer_request_costs_no_batch_no_certainty_and_no_request_of_the_load(
    model: str, tensor: int, gib: int, load: Workload
) -> None:
    found, longer = (
        memory(model, Layout(tensor=tensor), gib, load, held)
        for held in (replica_memory, longest_memory)
    )

    batch = (longer.limits.batched_tokens, longer.limits.sequences)
    assert load.max_model_len <= longer.limits.model_len <= (load.open_model_len or 0)
    assert batch == (found.limits.batched_tokens, found.limits.sequences)
    assert batch[0] >= batch[1]
    assert (longer.starts, longer.tight) == (found.starts, found.tight)
    assert longer.running(load.concurrency) == found.running(load.concurrency)


@given(models, degrees, st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 16384))
def test_smaller_batches_never_need_more(
    model: str, tensor: int, sequences: int, fewer: int, tokens: int
) -> None:
    few, many = sorted((sequences, fewer))
    peaks = [
        activation_bytes(
            a_model(model),
            Layout(tensor=tensor),
            Limits(batched_tokens=batch, sequences=rows, model_len=1),
            4.0,
            last=True,
        )
        for batch, rows in ((tokens, few), (tokens, many), (2 * tokens, many))
    ]

    assert peaks == sorted(peaks)
