"""Laws of the cost model: nothing that is faster slows anything, more work never takes less time, limits are reached."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.costs.coefficients import coefficients_of
from shardwright.costs.communication import Fabric, all_reduce_seconds, all_to_all_seconds
from shardwright.costs.estimate import estimate
from shardwright.costs.estimates import Performance
from shardwright.costs.roofline import Batch, Links, StageFloor, step_time
from shardwright.costs.workload import Arrival, Workload
from shardwright.hardware.gpus import Link, load_gpus
from shardwright.hardware.inventory import Pool
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.placement import place
from tests.support.builders_plan import a_model, a_network, a_pool, vllm_traits

laws = settings(max_examples=40, deadline=None)
loads = st.builds(
    Workload,
    input_tokens=st.integers(1, 8192),
    output_tokens=st.integers(1, 2048),
    concurrency=st.integers(1, 256),
    max_model_len=st.just(16384),
    arrival=st.sampled_from(Arrival),
)
layouts = st.sampled_from(
    [
        Layout(),
        Layout(tensor=8),
        Layout(tensor=2, pipeline=4),
        Layout(tensor=4, expert=4),
        Layout(expert=8, attention_data=8),
        Layout(tensor=16),
        Layout(tensor=8, pipeline=2),
    ]
)


def _speed(layout: Layout, pool: Pool, load: Workload) -> Performance:
    candidate = Candidate(layout=layout, pool=pool, placement=place(pool, layout))
    return estimate(a_model("qwen3-30b-a3b"), candidate, load, vllm_traits()).performance


def _twice(link: Link | None) -> Link | None:
    return link and replace(link, bytes_per_second=2 * link.bytes_per_second, latency_seconds=link.latency_seconds / 2)


def _faster(pool: Pool, what: str) -> Pool:
    gpu = pool.gpu
    match what:
        case "memory":
            return replace(pool, gpu=replace(gpu, memory_bytes_per_second=2 * gpu.memory_bytes_per_second))
        case "compute":
            twice = {unit: 2 * rate for unit, rate in gpu.flops.items()}
            products = {unit: 2 * rate for unit, rate in gpu.matmul_flops.items()}
            return replace(pool, gpu=replace(gpu, flops=twice, matmul_flops=products))
        case "scale-up":
            return replace(pool, gpu=replace(gpu, scale_up=_twice(gpu.scale_up)))
    return replace(pool, network=_twice(pool.network) or pool.network)


@laws
@given(layout=layouts, load=loads, what=st.sampled_from(["memory", "compute", "scale-up", "network"]))
def test_nothing_that_is_faster_slows_anything(layout: Layout, load: Workload, what: str) -> None:
    pool = a_pool("H200-SXM-141GB", 2)
    before, after = _speed(layout, pool, load), _speed(layout, _faster(pool, what), load)

    assert after.output_tokens_per_second >= before.output_tokens_per_second * (1 - 1e-9)


@laws
@given(layout=layouts, load=loads, more=st.integers(1, 4096))
def test_longer_prompts_never_bring_more_tokens(layout: Layout, load: Workload, more: int) -> None:
    pool = a_pool("H200-SXM-141GB", 2)
    short, long = (_speed(layout, pool, replace(load, input_tokens=n)) for n in (load.input_tokens, load.input_tokens + more))

    assert long.output_tokens_per_second <= short.output_tokens_per_second * (1 + 1e-9)


floors = st.builds(
    StageFloor,
    layers=st.integers(1, 80),
    products=st.integers(1, 1000),
    expert_layers=st.integers(0, 60),
    experts=st.floats(1, 256),
    weights=st.floats(1e-6, 0.1),
    expert_weights=st.floats(0, 0.1),
    token=st.floats(1e-8, 1e-3),
    expert_token=st.floats(0, 1e-4),
    head_token=st.floats(0, 1e-5),
    hidden_token=st.floats(0, 1e-5),
    attention=st.just(((1024.0, 1e-10, 1e-11, 1e-11, 0.0), (float("inf"), 1e-9, 1e-10, 1e-10, 1e-8))),
    widened=st.booleans(),
    expert_widened=st.booleans(),
    expert_columns=st.floats(64, 8192),
)
links = st.builds(
    Links,
    tensor=st.builds(Fabric, inner_ranks=st.sampled_from([1, 4, 8]), inner=st.just(load_gpus()["H100-SXM-80GB"].scale_up)),
    experts=st.just(Fabric(inner_ranks=8, inner=load_gpus()["H100-SXM-80GB"].scale_up)),
    context=st.just(Fabric()),
    peers=st.sampled_from([1, 8]),
    whole_experts=st.booleans(),
    hidden_bytes=st.just(8192),
)
batches = st.builds(
    Batch,
    sequences=st.floats(0, 512),
    context_tokens=st.floats(0, 1e5),
    prompt_tokens=st.floats(0, 16384),
    prompt_context_tokens=st.floats(0, 1e5),
    sampled=st.floats(0, 512),
)


@given(
    floor=floors, links=links, batch=batches, name=st.sampled_from(["sequences", "context_tokens", "prompt_tokens", "sampled"])
)
def test_a_step_takes_no_less_for_more(floor: StageFloor, links: Links, batch: Batch, name: str) -> None:
    fitted = coefficients_of("vLLM", "")
    more = replace(batch, **{name: getattr(batch, name) * 1.5 + 1})

    less, greater = (step_time(floor, links, 0.03, each, fitted).total for each in (batch, more))

    assert greater >= less * (1 - 1e-9)


@given(size=st.floats(0, 1e9), ranks=st.sampled_from([2, 4, 8]), change=st.floats(1e-6, 1e-3))
def test_the_cost_of_a_link_is_continuous_in_its_bandwidth(size: float, ranks: int, change: float) -> None:
    link = load_gpus()["L40S-48GB"].host
    near = replace(link, bytes_per_second=link.bytes_per_second * (1 + change))
    for price in (all_reduce_seconds, all_to_all_seconds):
        one, two = (price(size, Fabric(inner_ranks=ranks, inner=each, shared_host=True)) for each in (link, near))
        assert two == pytest.approx(one, rel=2 * change)


def test_tokens_go_to_experts_through_the_network_where_ranks_lie_on_two_nodes() -> None:
    """Attention data over two nodes: what an infinitely fast network leaves is what one node would take."""
    scale_up = load_gpus()["H100-SXM-80GB"].scale_up
    free = replace(a_network(), bytes_per_second=float("inf"), latency_seconds=0.0)
    two = Fabric(inner_ranks=8, inner=scale_up, outer_ranks=2, outer=free)
    slow = replace(two, outer=a_network())

    assert all_to_all_seconds(1e8, two) < all_to_all_seconds(1e8, slow)
    assert all_to_all_seconds(1e8, two) <= all_to_all_seconds(1e8, Fabric(inner_ranks=16, inner=scale_up))
