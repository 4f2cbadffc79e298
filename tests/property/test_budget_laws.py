"""Laws of the memory budget: more memory never harms, lower limits never need more, what is tight
starts.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardwright.costs.activations import activation_bytes
from shardwright.costs.limits import Limits
from shardwright.costs.memory import ReplicaMemory
from shardwright.costs.overheads import Device
from shardwright.costs.workload import Workload
from shardwright.hardware.gpus import load_gpus
from shardwright.layouts.layout import Layout
from shardwright.units import GIB
from tests.support.builders_plan import a_model, vllm_traits
from tests.support.held_memory import replica_memory

models = st.sampled_from(("llama-8b", "llama-70b-fp8", "qwen2.5-7b", "qwen3-30b-a3b"))
degrees = st.sampled_from((1, 2, 4))
memories = st.integers(8, 300)
lengths = st.integers(64, 32768)
loads = st.builds(
    lambda tokens, concurrency, slack: Workload(
        input_tokens=tokens,
        output_tokens=64,
        concurrency=concurrency,
        max_model_len=tokens + 64 + slack,
        shortest_model_len=tokens + 64,
    ),
    lengths,
    st.integers(1, 2000),
    st.integers(0, 1023),
)


def memory(model: str, layout: Layout, gib: int, load: Workload) -> ReplicaMemory:
    spec = a_model(model)
    gpu = replace(load_gpus()["H100-SXM-80GB"], memory_bytes=gib * GIB)
    device = Device(gpu=gpu, joined_gpus=8)
    return replica_memory(spec, layout, device, load, vllm_traits())


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
def test_a_length_stays_between_what_is_needed_and_what_is_wished(
    model: str, tensor: int, gib: int, load: Workload
) -> None:
    found = memory(model, Layout(tensor=tensor), gib, load)

    assert (load.shortest_model_len or 0) <= found.limits.model_len <= load.max_model_len
    assert found.starts or not found.tight
    assert found.limits.batched_tokens >= found.limits.sequences


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
