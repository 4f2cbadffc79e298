"""Laws of the cost model: nothing that is faster slows anything, more work never takes less time,
limits are reached.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.costs.coefficients import coefficients_of
from shardwright.costs.communication import (
    NETWORK_EFFICIENCY,
    SCALE_UP_EFFICIENCY,
    Fabric,
    all_reduce_seconds,
    all_to_all_seconds,
)
from shardwright.costs.estimates import Performance
from shardwright.costs.estimator import estimate
from shardwright.costs.roofline import AttentionFloor, Batch, Links, StageFloor, step_time, widened
from shardwright.costs.workload import Arrival, Workload
from shardwright.hardware.gpus import Link, load_gpus
from shardwright.hardware.inventory import Pool
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.placing import place
from tests.support.builders_plan import a_model, a_network, a_pool, vllm_traits
from tests.support.examples import examples

laws = examples(20)
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
    return link and replace(
        link, bytes_per_second=2 * link.bytes_per_second, latency_seconds=link.latency_seconds / 2
    )


def _faster(pool: Pool, what: str) -> Pool:
    gpu = pool.gpu
    match what:
        case "memory":
            return replace(
                pool, gpu=replace(gpu, memory_bytes_per_second=2 * gpu.memory_bytes_per_second)
            )
        case "compute":
            twice = {unit: 2 * rate for unit, rate in gpu.flops.items()}
            products = {unit: 2 * rate for unit, rate in gpu.matmul_flops.items()}
            return replace(pool, gpu=replace(gpu, flops=twice, matmul_flops=products))
        case "scale-up":
            return replace(pool, gpu=replace(gpu, scale_up=_twice(gpu.scale_up)))
    return replace(pool, network=_twice(pool.network) or pool.network)


@laws
@given(
    layout=layouts, load=loads, what=st.sampled_from(["memory", "compute", "scale-up", "network"])
)
def test_nothing_that_is_faster_slows_anything(layout: Layout, load: Workload, what: str) -> None:
    pool = a_pool("H200-SXM-141GB", 2)
    before, after = (_speed(layout, pool, load), _speed(layout, _faster(pool, what), load))

    assert after.output_tokens_per_second >= before.output_tokens_per_second * (1 - 1e-9)


@laws
@given(layout=layouts, load=loads, more=st.integers(1, 4096))
def test_longer_prompts_never_bring_more_tokens(layout: Layout, load: Workload, more: int) -> None:
    pool = a_pool("H200-SXM-141GB", 2)
    short, long = (
        _speed(layout, pool, replace(load, input_tokens=n))
        for n in (load.input_tokens, load.input_tokens + more)
    )

    assert long.output_tokens_per_second <= short.output_tokens_per_second * (1 + 1e-9)


SLIDING = AttentionFloor(
    window_tokens=1024.0,
    kv_seconds=1e-10,
    decode_seconds=1e-11,
    prefill_seconds=1e-11,
    state_seconds=0.0,
)
WHOLE = AttentionFloor(
    window_tokens=float("inf"),
    kv_seconds=1e-9,
    decode_seconds=1e-10,
    prefill_seconds=1e-10,
    state_seconds=1e-8,
)
floors = st.builds(
    StageFloor,
    layers=st.integers(1, 80),
    products=st.integers(1, 1000),
    expert_layers=st.integers(0, 60),
    experts=st.floats(1, 256),
    hot_share=st.just(0.03),
    weights_seconds=st.floats(1e-6, 0.1),
    expert_weights_seconds=st.floats(0, 0.1),
    token_seconds=st.floats(1e-8, 1e-3),
    expert_token_seconds=st.floats(0, 1e-4),
    head_token_seconds=st.floats(0, 1e-5),
    hidden_token_seconds=st.floats(0, 1e-5),
    attention=st.just((SLIDING, WHOLE)),
    widened=st.booleans(),
    four_bit_bytes=st.floats(0.0, 1e12),
    expert_widened=st.booleans(),
    expert_columns=st.floats(64, 8192),
    product=st.sampled_from(["", "NVIDIA 9 fp8", "NVIDIA 10 nvfp4"]),
    expert_product=st.sampled_from(["", "NVIDIA 9 fp8"]),
)
links = st.builds(
    Links,
    tensor=st.builds(
        Fabric,
        inner_ranks=st.sampled_from([1, 4, 8]),
        inner=st.just(load_gpus()["H100-SXM-80GB"].scale_up),
    ),
    experts=st.just(Fabric(inner_ranks=8, inner=load_gpus()["H100-SXM-80GB"].scale_up)),
    context=st.just(Fabric()),
    peers=st.sampled_from([1, 8]),
    expert_groups=st.sampled_from([1, 8]),
    hidden_bytes=st.just(8192),
)
NOBODY = Links(
    tensor=Fabric(), experts=Fabric(), context=Fabric(), peers=1, expert_groups=1, hidden_bytes=8192
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
    floor=floors,
    links=links,
    batch=batches,
    name=st.sampled_from(["sequences", "context_tokens", "prompt_tokens", "sampled"]),
)
def test_a_step_takes_no_less_for_more(
    floor: StageFloor, links: Links, batch: Batch, name: str
) -> None:
    fitted = coefficients_of("vLLM", "")
    more = replace(batch, **{name: getattr(batch, name) * 1.5 + 1})

    less, greater = (step_time(floor, links, each, fitted).total_seconds for each in (batch, more))

    assert greater >= less * (1 - 1e-9)


@given(floor=floors, batch=batches)
def test_beside_attention_replicas_the_experts_sums_are_not_summed_again_over_the_tensor_ranks(
    floor: StageFloor, batch: Batch
) -> None:
    floor, fitted = (
        replace(floor, expert_layers=min(floor.layers, floor.expert_layers)),
        coefficients_of("vLLM", ""),
    )
    tensor = Fabric(inner_ranks=4, inner=load_gpus()["H100-SXM-80GB"].scale_up)
    alone, beside = (replace(NOBODY, tensor=tensor, peers=peers) for peers in (1, 8))

    spent, saved = (
        step_time(floor, links, batch, fitted).communication_seconds for links in (alone, beside)
    )
    assert saved == pytest.approx(
        spent * (2 * floor.layers - floor.expert_layers) / (2 * floor.layers)
    )


@given(size=st.floats(0, 1e9), ranks=st.sampled_from([2, 4, 8]), change=st.floats(1e-6, 1e-3))
def test_the_cost_of_a_link_is_continuous_in_its_bandwidth(
    size: float, ranks: int, change: float
) -> None:
    link = load_gpus()["L40S-48GB"].host
    near = replace(link, bytes_per_second=link.bytes_per_second * (1 + change))
    for price in (all_reduce_seconds, all_to_all_seconds):
        one, two = (
            price(size, Fabric(inner_ranks=ranks, inner=each, shared_host=True))
            for each in (link, near)
        )
        assert two == pytest.approx(one, rel=2 * change)


def _seconds_per_byte(fabric: Fabric) -> float:
    size = 1e12  # so large that no start-up matters
    return (all_reduce_seconds(2 * size, fabric) - all_reduce_seconds(size, fabric)) / size


@given(ranks=st.integers(2, 8), own_kernel=st.booleans(), two_shot=st.booleans())
def test_an_all_reduce_moves_what_a_reduce_scatter_and_an_all_gather_move(
    ranks: int,
    own_kernel: bool,  # noqa: FBT001
    two_shot: bool,  # noqa: FBT001
) -> None:
    link = load_gpus()["H100-SXM-80GB"].scale_up
    assert link is not None
    one_of_two = (ranks - 1) / ranks / (link.bytes_per_second * SCALE_UP_EFFICIENCY)

    assert _seconds_per_byte(
        Fabric(inner_ranks=ranks, inner=link, own_kernel=own_kernel, two_shot=two_shot)
    ) == pytest.approx(2 * one_of_two)


@given(inner_ranks=st.integers(2, 8), nodes=st.integers(2, 8))
def test_across_nodes_every_rank_sends_its_share_alone(inner_ranks: int, nodes: int) -> None:
    inside = Fabric(inner_ranks=inner_ranks, inner=load_gpus()["H100-SXM-80GB"].scale_up)
    outside = Fabric(outer_ranks=nodes, outer=a_network())
    both = replace(inside, outer_ranks=nodes, outer=a_network())

    each = _seconds_per_byte(inside) + _seconds_per_byte(outside) / inner_ranks
    assert _seconds_per_byte(both) == pytest.approx(each, rel=1e-6)


@given(inner_ranks=st.integers(2, 8), nodes=st.integers(2, 8))
def test_of_an_all_to_all_every_link_carries_what_crosses_it(inner_ranks: int, nodes: int) -> None:
    inner, outer = load_gpus()["H100-SXM-80GB"].scale_up, a_network()
    assert inner is not None
    fabric = Fabric(inner_ranks=inner_ranks, inner=inner, outer_ranks=nodes, outer=outer)

    inside = (inner_ranks - 1) / (inner.bytes_per_second * SCALE_UP_EFFICIENCY)
    outside = (nodes - 1) * inner_ranks / (outer.bytes_per_second * NETWORK_EFFICIENCY)
    each = (all_to_all_seconds(2e12, fabric) - all_to_all_seconds(1e12, fabric)) / 1e12
    assert each == pytest.approx((inside + outside) / fabric.ranks, rel=1e-6)


@given(floor=floors, tokens=st.floats(1, 16384))
def test_what_overlaps_takes_no_less_than_the_longer_and_no_more_than_both(
    floor: StageFloor, tokens: float
) -> None:
    fitted = coefficients_of("vLLM", "")
    dense = replace(floor, expert_weights_seconds=0.0, attention=())

    def kernels(one: StageFloor) -> float:
        taken = step_time(one, NOBODY, Batch(sequences=tokens, sampled=tokens), fitted)
        return taken.weights_seconds + taken.compute_seconds

    reading, computing = (
        kernels(replace(dense, token_seconds=0.0, head_token_seconds=0.0)),
        kernels(replace(dense, weights_seconds=0.0)),
    )
    assert (
        max(reading, computing) * (1 - 1e-9) <= kernels(dense) <= (reading + computing) * (1 + 1e-9)
    )


@given(floor=floors, tokens=st.floats(1, 16384), more=st.floats(1, 4))
def test_weights_without_a_unit_of_their_own_are_widened_for_nothing_up_to_32_rows(
    floor: StageFloor, tokens: float, more: float
) -> None:
    """A fifth more of what goes beyond; never less for more tokens."""
    fitted, computing = (
        coefficients_of("vLLM", ""),
        replace(
            floor,
            weights_seconds=0.0,
            four_bit_bytes=0.0,
            expert_weights_seconds=0.0,
            attention=(),
            widened=True,
        ),
    )
    few, many = (
        step_time(
            replace(computing, head_token_seconds=0.0), NOBODY, Batch(sequences=count), fitted
        ).compute_seconds
        for count in (tokens, tokens * more)
    )

    assert few == pytest.approx(
        computing.token_seconds
        * (tokens + 0.2 * max(0.0, tokens - 32))
        / fitted.dense_share(computing.product)
    )
    assert few <= many


def test_an_int4_model_is_widened_where_no_unit_multiplies_it() -> None:
    """The H100 multiplies FP8 as it is, and widens four bits; FP4 is native to the B200."""
    h100, b200 = load_gpus()["H100-SXM-80GB"], load_gpus()["B200-SXM-180GB"]
    assert [widened(h100, name) for name in ("bf16", "fp8", "int4", "nvfp4")] == [
        False,
        False,
        True,
        True,
    ]
    assert not widened(b200, "nvfp4")


def test_tokens_go_to_experts_through_the_network_where_ranks_lie_on_two_nodes() -> None:
    """Attention data over two nodes: what an infinitely fast network leaves is what one node would
    take.
    """
    scale_up = load_gpus()["H100-SXM-80GB"].scale_up
    free = replace(a_network(), bytes_per_second=float("inf"), latency_seconds=0.0)
    two = Fabric(inner_ranks=8, inner=scale_up, outer_ranks=2, outer=free)
    slow = replace(two, outer=a_network())

    assert all_to_all_seconds(1e8, two) < all_to_all_seconds(1e8, slow)
    assert all_to_all_seconds(1e8, two) <= all_to_all_seconds(
        1e8, Fabric(inner_ranks=16, inner=scale_up)
    )
