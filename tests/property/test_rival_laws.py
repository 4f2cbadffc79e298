"""Laws of what is not priced: leaving it out changes nothing that a report says."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from shardwright.hardware.gpus import load_gpus
from shardwright.hardware.inventory import Inventory, Pool
from shardwright.layouts.enumerate import enumerate_candidates
from shardwright.planning.checks import Judge, Verdict
from shardwright.planning.planner import best_first
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import FeasibleCandidate, Scale, runners_up, select
from tests.support.builders_plan import (
    a_model,
    a_network,
    a_pool,
    a_request,
    an_inventory,
    an_nvl72_pool,
    vllm_traits,
)
from tests.support.examples import examples

laws = examples(15)


@st.composite
def alike_pools(draw: st.DrawFn) -> Inventory:
    """Return pools of one kind of node that differ in network, room and name."""
    gpu = load_gpus()[draw(st.sampled_from(["H100-SXM-80GB", "L40S-48GB", "GB200-NVL-186GB"]))]
    names = draw(st.permutations(["a", "b", "c", "d"]))
    return an_inventory(*(_pool(draw, gpu.id, name) for name in names[: draw(st.integers(2, 4))]))


def _pool(draw: st.DrawFn, gpu: str, name: str) -> Pool:
    network = a_network(
        draw(st.sampled_from([25, 100, 100.01, 101, 400])), draw(st.sampled_from([12e-6, 30e-6]))
    )
    if gpu.startswith("GB200"):
        return an_nvl72_pool(draw(st.integers(1, 4)), name=name, network=network)
    nodes, board = draw(st.integers(1, 3)), draw(st.sampled_from([8, 6]))
    free = {index: draw(st.sampled_from([0, 4, board, board])) for index in range(nodes)}
    return a_pool(gpu, nodes, name=name, gpus_per_node=board, free=free, network=network)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    request = a_request(
        draw(st.sampled_from(list(OptimizeFor))),
        input_tokens=draw(st.integers(1, 8000)),
        output_tokens=draw(st.integers(1, 2000)),
        concurrency=draw(st.integers(1, 300)),
        replicas=draw(st.integers(1, 2)),
        tpot_seconds=draw(st.none() | st.floats(0.005, 0.1)),
    )
    rate = draw(st.none() | st.sampled_from([0.5, 5.0]))
    return replace(request, workload=replace(request.workload, requests_per_second=rate))


def _feasible(model: str, inventory: Inventory, request: Request) -> list[Verdict]:
    judge = Judge(a_model(model), request, vllm_traits())
    verdicts = map(
        judge.verdict, enumerate_candidates(a_model(model), inventory, request.space, vllm_traits())
    )
    return [verdict for verdict in verdicts if not verdict.violations]


def _smaller_on_its_pool(ranked: tuple[FeasibleCandidate, ...]) -> list[FeasibleCandidate]:
    best = ranked[0].candidate
    return [
        one
        for one in ranked
        if one.candidate.pool == best.pool and one.candidate.layout.gpus <= best.layout.gpus
    ]


@laws
@given(
    model=st.sampled_from(["llama-8b", "llama-70b", "qwen3-30b-a3b"]),
    inventory=alike_pools(),
    request=requests(),
)
def test_what_is_left_out_changes_neither_the_best_nor_what_it_is_compared_with(
    model: str, inventory: Inventory, request: Request
) -> None:
    feasible, scale = _feasible(model, inventory, request), Scale.of(request, inventory)
    assume(feasible)

    pruned, full = best_first(feasible, scale), select(feasible, scale)

    assert pruned[0] == full[0]
    assert runners_up(pruned, 4) == runners_up(full, 4)
    assert _smaller_on_its_pool(pruned) == _smaller_on_its_pool(full)


def test_a_faster_network_that_is_not_crossed_decides_nothing() -> None:
    pools = [
        an_nvl72_pool(4, name=name, network=a_network(gbps))
        for name, gbps in (("a", 100), ("b", 400))
    ]
    inventory, request = an_inventory(*pools), a_request()
    feasible, scale = (_feasible("deepseek-v3", inventory, request), Scale.of(request, inventory))

    ranked = best_first(feasible, scale)

    shown = (ranked[0], *runners_up(ranked, 4))
    assert {one.candidate.pool.name for one in shown} == {"a"}
    assert shown[1:] == runners_up(select(feasible, scale), 4)


def test_of_pools_that_differ_in_their_network_one_is_priced() -> None:
    inventory = an_inventory(
        *(a_pool(nodes=2, name=f"pool-{gbps}", network=a_network(gbps)) for gbps in (400, 200, 100))
    )
    feasible = _feasible("llama-70b", inventory, a_request())

    ranked = best_first(feasible, Scale.of(a_request(), inventory))

    assert len({one.candidate.layout for one in ranked}) == len(feasible) / 3
    assert len(ranked) < len(feasible) / 2


def test_of_boards_of_unlike_sizes_the_one_is_priced_of_which_an_instance_wastes_nothing() -> None:
    inventory = an_inventory(
        a_pool("L40S-48GB", name="a", gpus_per_node=6, free={0: 4}),
        a_pool("L40S-48GB", name="b", gpus_per_node=4),
    )
    request = a_request(concurrency=4)

    ranked = best_first(_feasible("llama-70b", inventory, request), Scale.of(request, inventory))

    assert ranked[0].candidate.pool.name == "b"
