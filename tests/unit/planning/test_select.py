"""Selection: the objectives as docs/planner.md defines them, tie-breaks in their order, no memory of order."""

from dataclasses import replace

import pytest

from shardwright.costs.estimates import Estimate, Performance
from shardwright.errors import Problem
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.placement import place
from shardwright.planning.checks import Verdict, Violation
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import rank, runners_up, select
from tests.support.builders_plan import a_pool, a_request

POOL = a_pool(nodes=2, name="pool")


def _estimate(tokens_per_second: float = 1000, tpot: float = 0.01, ttft: float = 0.1, requests: float = 1000) -> Estimate:
    return Estimate(
        stages=(),
        kv_tokens=int(requests * 2560),
        kv_requests=requests,
        max_model_len=3072,
        max_sequences=1024,
        max_batched_tokens=8192,
        load_bytes_per_node=1,
        performance=Performance(
            ttft_seconds=ttft,
            tpot_seconds=tpot,
            output_tokens_per_second=tokens_per_second,
            requests_per_second=1.0,
            low=1.0,
            high=1.0,
            basis="fitted",
            running_requests=64,
            decode_shares=(),
            prefill_shares=(),
        ),
    )


def _verdict(layout: Layout, estimate: Estimate, pool: object = POOL) -> Verdict:
    candidate = Candidate(layout=layout, pool=pool, placement=place(pool, layout))  # type: ignore[arg-type]
    return Verdict(candidate=candidate, estimate=estimate, violations=())


def _best(request: Request, *verdicts: Verdict) -> Layout:
    return select(verdicts, request)[0].candidate.layout


ONE, TWO, FOUR = Layout(), Layout(tensor=2), Layout(tensor=4)
BALANCED, LATENCY, THROUGHPUT = (a_request(goal) for goal in (OptimizeFor.BALANCED, OptimizeFor.LATENCY, OptimizeFor.THROUGHPUT))


@pytest.mark.parametrize(("speed_up", "winner"), [(1.73, ONE), (1.75, TWO)])
def test_balanced_doubles_gpus_where_tokens_come_1_74_times_as_fast(speed_up: float, winner: Layout) -> None:
    one = _verdict(ONE, _estimate(1000, tpot=0.02))
    two = _verdict(TWO, _estimate(1000 * speed_up, tpot=0.02 / speed_up))

    assert _best(BALANCED, one, two) == winner


@pytest.mark.parametrize(("per_gpu", "winner"), [(0.85, TWO), (0.83, ONE)])
def test_balanced_gives_16_percent_of_throughput_for_requests_twice_as_fast(per_gpu: float, winner: Layout) -> None:
    one = _verdict(ONE, _estimate(1000, tpot=0.02))
    two = _verdict(TWO, _estimate(2 * 1000 * per_gpu, tpot=0.01))

    assert _best(BALANCED, one, two) == winner


def test_throughput_looks_at_tokens_per_gpu_only() -> None:
    one = _verdict(ONE, _estimate(1000, tpot=0.2))
    two = _verdict(TWO, _estimate(1999, tpot=0.01))

    assert _best(THROUGHPUT, one, two) == ONE


@pytest.mark.parametrize(("gain", "winner"), [(0.11, TWO), (0.09, ONE)])
def test_latency_doubles_gpus_only_where_it_brings_10_percent(gain: float, winner: Layout) -> None:
    one = _verdict(ONE, _estimate(ttft=0.1, tpot=0.01))
    two = _verdict(TWO, _estimate(ttft=0.1 * (1 - gain), tpot=0.01 * (1 - gain)))

    assert _best(LATENCY, one, two) == winner


def test_latency_takes_four_gpus_where_two_doublings_bring_their_share_together() -> None:
    times = {ONE: 1.0, TWO: 0.92, FOUR: 0.80}  # 0.92: no; 0.80 < 0.9 x 0.9: yes
    verdicts = [_verdict(layout, _estimate(ttft=0.1 * time, tpot=0.01 * time)) for layout, time in times.items()]

    assert _best(LATENCY, *verdicts) == FOUR


def test_latency_without_more_gpus_is_the_least_time() -> None:
    slow, fast = Layout(pipeline=2), Layout(tensor=2)

    assert _best(LATENCY, _verdict(slow, _estimate(ttft=0.2)), _verdict(fast, _estimate(ttft=0.19))) == fast


def test_what_carries_the_load_goes_before_what_is_faster() -> None:
    faster = _verdict(ONE, _estimate(9000, requests=63.5))
    carrying = _verdict(TWO, _estimate(100, requests=64))

    assert _best(BALANCED, faster, carrying) == TWO


def test_where_nothing_carries_the_load_what_queues_least_wins() -> None:
    verdicts = [_verdict(ONE, _estimate(9000, requests=10)), _verdict(TWO, _estimate(100, requests=20))]

    ranked = select(verdicts, BALANCED)

    assert ranked[0].candidate.layout == TWO
    assert not ranked[0].carries_load


def test_what_is_spoken_against_is_never_chosen() -> None:

    refused = replace(_verdict(ONE, _estimate(9000)), violations=(Violation(problem=Problem(code="X", what="no")),))

    assert select([refused], BALANCED) == ()


def test_ties_go_to_fewer_gpus_then_less_memory_then_less_fragmentation_then_the_name() -> None:
    small_gpu = replace(POOL, name="z", gpu=replace(POOL.gpu, memory_bytes=POOL.gpu.memory_bytes - 1))
    filled = a_pool(nodes=1, name="y", free={0: 1})
    first = a_pool(nodes=1, name="a")
    same_per_gpu = [
        _verdict(TWO, _estimate(2000)),
        _verdict(ONE, _estimate(1000), small_gpu),
        _verdict(ONE, _estimate(1000), filled),
        _verdict(ONE, _estimate(1000), first),
        _verdict(ONE, _estimate(1000), replace(first, name="b")),
    ]

    ranked = select(same_per_gpu, THROUGHPUT)

    assert [standing.candidate.pool.name for standing in ranked] == ["z", "y", "a", "b", "pool"]


def test_the_order_given_does_not_matter() -> None:
    verdicts = [_verdict(layout, _estimate(1000 * layout.gpus)) for layout in (ONE, TWO, FOUR)]

    assert select(verdicts, BALANCED) == select(reversed(verdicts), BALANCED) == rank(select(verdicts, BALANCED))


def test_runners_up_are_other_layouts_not_the_same_one_elsewhere() -> None:
    elsewhere = a_pool(name="elsewhere")
    ranked = select(
        [_verdict(ONE, _estimate(1000)), _verdict(ONE, _estimate(900), elsewhere), _verdict(TWO, _estimate(1500))], THROUGHPUT
    )

    assert [standing.candidate.layout for standing in runners_up(ranked, 3)] == [TWO]
