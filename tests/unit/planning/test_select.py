"""Selection: the objectives as docs/planner.md defines them, tie-breaks in their order, no memory
of order.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from shardwright.costs.estimates import Estimate, Performance, TimeShare
from shardwright.costs.memory import ReplicaMemory
from shardwright.costs.workload import Workload
from shardwright.errors import Problem
from shardwright.layouts.layout import Candidate, Layout, Placement
from shardwright.layouts.placing import place
from shardwright.planning.checks import Verdict, Violation
from shardwright.planning.choice import settled
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import (
    MORE_GPUS,
    UNPROVEN,
    FeasibleCandidate,
    Scale,
    million_tokens_price,
    rank,
    runners_up,
)
from shardwright.planning.select import select as select_by
from tests.support.builders_nodes import a_node, inventory_of
from tests.support.builders_plan import a_pool, a_request, an_inventory

POOL = a_pool(nodes=2, name="pool")


def _estimate(
    tokens_per_second: float = 1000, tpot: float = 0.01, ttft: float = 0.1, requests: float = 1000
) -> Estimate:
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
    return Verdict(candidate=candidate, violations=(), prices=_Known(estimate))


class _Known:
    """Prices every candidate alike."""

    def __init__(self, estimate: Estimate) -> None:
        self._estimate = estimate

    def under(self, workload: Workload) -> "_Known":
        del workload
        return self

    def memory(self, candidate: Candidate) -> ReplicaMemory:
        raise AssertionError(f"who selects asks for no memory of {candidate}")

    def lengthened(self, candidate: Candidate) -> ReplicaMemory:
        return self.memory(candidate)

    def speed(self, candidate: Candidate) -> Performance:
        return self.estimate(candidate).performance

    def estimate(self, candidate: Candidate) -> Estimate:
        del candidate
        return self._estimate


def select(verdicts: Iterable[Verdict], request: Request) -> tuple[FeasibleCandidate, ...]:
    return select_by(verdicts, Scale(request=request, by_price=False))


def _best(request: Request, *verdicts: Verdict) -> Layout:
    return select(verdicts, request)[0].candidate.layout


ONE, TWO, FOUR = Layout(), Layout(tensor=2), Layout(tensor=4)
BALANCED, LATENCY, THROUGHPUT = (
    a_request(goal) for goal in (OptimizeFor.BALANCED, OptimizeFor.LATENCY, OptimizeFor.THROUGHPUT)
)


@pytest.mark.parametrize(("speed_up", "winner"), [(1.73, ONE), (1.75, TWO)])
def test_balanced_doubles_gpus_where_tokens_come_1_74_times_as_fast(
    speed_up: float, winner: Layout
) -> None:
    one = _verdict(ONE, _estimate(1000, tpot=0.02))
    two = _verdict(TWO, _estimate(1000 * speed_up, tpot=0.02 / speed_up))

    assert _best(BALANCED, one, two) == winner


@pytest.mark.parametrize(("per_gpu", "winner"), [(0.85, TWO), (0.83, ONE)])
def test_balanced_gives_16_percent_of_throughput_for_requests_twice_as_fast(
    per_gpu: float, winner: Layout
) -> None:
    one = _verdict(ONE, _estimate(1000, tpot=0.02))
    two = _verdict(TWO, _estimate(2 * 1000 * per_gpu, tpot=0.01))

    assert _best(BALANCED, one, two) == winner


def test_throughput_takes_the_fewest_gpus_however_fast_more_are() -> None:
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
    verdicts = [
        _verdict(layout, _estimate(ttft=0.1 * time, tpot=0.01 * time))
        for layout, time in times.items()
    ]

    assert _best(LATENCY, *verdicts) == FOUR


@pytest.mark.parametrize(("share", "gpus"), [(0.49, 16), (0.51, 8)])
def test_latency_takes_more_gpus_than_an_nvlink_domain_only_where_they_halve_the_time(
    share: float, gpus: int
) -> None:
    eight, sixteen = Layout(tensor=8), Layout(tensor=8, replicas=2)
    one = _verdict(eight, _estimate(ttft=0.1, tpot=0.01))
    two = _verdict(sixteen, _estimate(ttft=0.1 * share, tpot=0.01 * share))

    assert _best(LATENCY, one, two).gpus == gpus


def test_latency_without_more_gpus_is_the_least_time() -> None:
    slow, fast = Layout(pipeline=2), Layout(tensor=2)

    assert (
        _best(LATENCY, _verdict(slow, _estimate(ttft=0.2)), _verdict(fast, _estimate(ttft=0.19)))
        == fast
    )


def test_what_carries_the_load_goes_before_what_is_faster() -> None:
    faster = _verdict(ONE, _estimate(9000, requests=60))
    carrying = _verdict(TWO, _estimate(100, requests=64))

    assert _best(BALANCED, faster, carrying) == TWO


def test_where_nothing_carries_the_load_what_serves_most_wins_whatever_queues_less() -> None:
    slow, most = Layout(pipeline=2), Layout(tensor=2)
    verdicts = [
        _verdict(slow, _estimate(1000, tpot=0.01, requests=20)),
        _verdict(most, _estimate(1100, tpot=0.04, requests=10)),
    ]

    ranked = select(verdicts, BALANCED)

    assert ranked[0].candidate.layout == most
    assert not ranked[0].carries_load


@pytest.mark.parametrize(("room", "carries"), [(61, True), (60, False)])
def test_a_shortfall_within_the_error_of_the_room_for_k_v_is_none(
    room: int, *, carries: bool
) -> None:
    (found,) = select([_verdict(ONE, _estimate(requests=room))], BALANCED)

    assert found.carries_load == carries


@pytest.mark.parametrize(("gain", "basis"), [(1.2, "fitted"), (1.4, "modelled")])
def test_what_is_not_measured_must_be_better_by_half_of_its_lower_band(
    gain: float, basis: str
) -> None:
    measured = _verdict(ONE, _estimate(1000))
    guessed = _verdict(Layout(expert=2), _modelled(_estimate(1000 * gain, tpot=0.01 / gain)))

    best = select([measured, guessed], BALANCED)[0]

    assert best.estimate.performance.basis == basis


def _modelled(estimate: Estimate) -> Estimate:
    speed = estimate.performance
    low = 0.55 * speed.output_tokens_per_second
    return replace(estimate, performance=replace(speed, low=low, basis="modelled"))


def test_gpus_of_a_board_that_nobody_else_can_join_cost_as_those_that_are_used() -> None:
    five, eight = Layout(tensor=5), Layout(tensor=8)

    assert _best(THROUGHPUT, _verdict(five, _estimate()), _verdict(eight, _estimate(1100))) == eight


def test_stages_that_halve_nothing_count_as_not_proven_on_a_switched_board() -> None:
    three, four = Layout(pipeline=3), FOUR
    verdicts = [_verdict(three, _estimate(1000)), _verdict(four, _estimate(1100))]

    ranked = select(verdicts, BALANCED)

    assert [(one.candidate.layout, one.sure) for one in ranked] == [(four, 1.0), (three, UNPROVEN)]


def test_an_instance_over_nodes_comes_after_all_that_carry_the_load_inside_them() -> None:
    over = _verdict(TWO, _estimate(9000))
    over = replace(over, candidate=replace(over.candidate, placement=_on_two_nodes()))

    assert _best(BALANCED, over, _verdict(FOUR, _estimate(100))) == FOUR
    assert _best(BALANCED, over, _verdict(FOUR, _estimate(100, requests=1))) == TWO


def test_a_layout_with_a_violation_is_never_chosen() -> None:

    refused = replace(
        _verdict(ONE, _estimate(9000)),
        violations=(Violation(problem=Problem(code="X", what="no")),),
    )

    assert select([refused], BALANCED) == ()


def test_ties_go_to_fewer_gpus_then_less_memory_then_less_fragmentation_then_the_name() -> None:
    small_gpu = replace(
        POOL, name="z", gpu=replace(POOL.gpu, memory_bytes=POOL.gpu.memory_bytes - 1)
    )
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

    assert [feasible.candidate.pool.name for feasible in ranked] == ["z", "y", "a", "b", "pool"]


def test_the_order_given_does_not_matter() -> None:
    verdicts = [_verdict(layout, _estimate(1000 * layout.gpus)) for layout in (ONE, TWO, FOUR)]

    assert (
        select(verdicts, BALANCED)
        == select(reversed(verdicts), BALANCED)
        == rank(select(verdicts, BALANCED), Scale(request=BALANCED, by_price=False))
    )


def test_runners_up_are_other_layouts_not_the_same_one_on_the_same_gpus_elsewhere() -> None:
    elsewhere = a_pool(name="elsewhere")
    ranked = select(
        [
            _verdict(ONE, _estimate(1000)),
            _verdict(ONE, _estimate(900), elsewhere),
            _verdict(TWO, _estimate(1500)),
        ],
        THROUGHPUT,
    )

    assert [feasible.candidate.layout for feasible in runners_up(ranked, 3)] == [TWO]


def test_the_best_on_other_gpus_is_among_the_runners_up() -> None:
    smaller = a_pool("L40S-48GB", name="smaller")
    ranked = select(
        [
            *(
                _verdict(layout, _estimate(speed))
                for layout, speed in ((ONE, 1000), (TWO, 1500), (FOUR, 2500))
            ),
            *(
                _verdict(layout, _estimate(speed), smaller)
                for layout, speed in ((ONE, 100), (TWO, 150))
            ),
        ],
        BALANCED,
    )

    shown = [(one.candidate.layout, one.candidate.pool.name) for one in runners_up(ranked, 3)]
    assert shown == [(TWO, "pool"), (FOUR, "pool"), (ONE, "smaller")]


def test_the_best_on_every_kind_of_gpu_is_among_the_runners_up_and_pushes_none_out() -> None:
    kinds = ("L40S-48GB", "A100-SXM4-80GB", "L4-24GB", "H200-SXM-141GB", "B200-SXM-180GB")
    others = [a_pool(gpu, name=gpu) for gpu in kinds]
    ranked = select(
        [
            *(
                _verdict(layout, _estimate(speed))
                for layout, speed in ((ONE, 1000), (TWO, 1500), (FOUR, 2500))
            ),
            *(
                _verdict(layout, _estimate(speed - 10 * index), pool)
                for index, pool in enumerate(others)
                for layout, speed in ((ONE, 100), (TWO, 150))
            ),
        ],
        BALANCED,
    )

    shown = [(one.candidate.layout, one.candidate.pool.name) for one in runners_up(ranked, 3)]
    assert shown == [(TWO, "pool"), (FOUR, "pool"), *((ONE, gpu) for gpu in kinds)]
    assert len(runners_up(ranked, 2)) == 2 + MORE_GPUS


def _at_price(layout: Layout, speed: Estimate, each: float, name: str = "pool") -> Verdict:
    return _verdict(layout, speed, replace(POOL, name=name, gpu_hour_price=each))


def test_a_gpu_counts_as_its_price_where_every_pool_has_one() -> None:
    fast, cheap = (
        _at_price(ONE, _estimate(2000), 5.0, "fast"),
        _at_price(ONE, _estimate(1000), 2.0, "cheap"),
    )

    by_price, by_number = (
        select_by([fast, cheap], Scale(request=THROUGHPUT, by_price=flag)) for flag in (True, False)
    )

    assert by_price[0].candidate.pool.name == "cheap"
    assert by_number[0].candidate.pool.name == "fast"


def test_prices_count_only_where_no_pool_lacks_one() -> None:
    priced, unknown = replace(POOL, gpu_hour_price=2.0), replace(POOL, name="other")

    assert Scale.of(BALANCED, an_inventory(priced)).by_price
    assert not Scale.of(BALANCED, an_inventory(priced, unknown)).by_price
    assert not Scale.of(BALANCED, an_inventory()).by_price


def test_one_price_for_all_changes_no_choice() -> None:
    speeds = {
        ONE: _estimate(1000, tpot=0.02),
        TWO: _estimate(1740, tpot=0.0115),
        FOUR: _estimate(3000, tpot=0.007),
    }

    for request in (BALANCED, LATENCY, THROUGHPUT):
        plain = select([_verdict(layout, speed) for layout, speed in speeds.items()], request)
        priced = select_by(
            [_at_price(layout, speed, 3.0) for layout, speed in speeds.items()],
            Scale(request=request, by_price=True),
        )
        assert [one.candidate.layout for one in plain] == [one.candidate.layout for one in priced]


def test_a_million_tokens_cost_the_gpus_for_as_long_as_they_take() -> None:
    ranked = select([_at_price(TWO, _estimate(1000), 1.8)], BALANCED)

    assert million_tokens_price(ranked[0]) == pytest.approx(
        1.0
    )  # 2 x 1.8 an hour, 3.6 million tokens an hour


def test_filling_a_budget_compares_what_all_its_gpus_bring() -> None:
    filling = a_request(OptimizeFor.THROUGHPUT, fill=True, max_gpus=8)
    few, many = (
        _verdict(replace(ONE, replicas=4), _estimate(5000)),
        _verdict(replace(TWO, replicas=4), _estimate(6000)),
    )

    assert _best(THROUGHPUT, few, many) == few.candidate.layout
    assert _best(filling, few, many) == many.candidate.layout


def test_an_offered_rate_is_carried_when_it_is_served_with_headroom() -> None:
    asked = replace(BALANCED, workload=replace(BALANCED.workload, requests_per_second=2.0))
    slow, fast = _estimate(9000), _estimate(100)
    slow, fast = replace(slow, capacity=1.25), replace(fast, capacity=2.5)

    ranked = select([_verdict(ONE, slow), _verdict(TWO, fast)], asked)

    assert [(one.candidate.layout, one.served_share, one.falls_behind) for one in ranked] == [
        (TWO, 1.0, False),
        (ONE, 0.5, True),
    ]


def test_a_rate_that_takes_more_than_four_fifths_of_what_is_served_is_not_carried() -> None:
    asked = replace(BALANCED, workload=replace(BALANCED.workload, requests_per_second=2.0))

    (found,) = select([_verdict(ONE, replace(_estimate(9000), capacity=2.2))], asked)

    assert found.served_share == pytest.approx(0.88)
    assert not found.falls_behind


@pytest.mark.parametrize(
    ("most", "fewer", "taken"),
    [
        (3.0, 2.6, "sooner"),  # both carry the rate: neither brings more
        (2.4, 2.1, "more"),  # both serve it, but leave no headroom
        (2.4, 2.36, "more"),
        (1.9, 1.6, "more"),  # both fall behind
    ],
)
def test_sooner_goes_before_what_serves_more_only_where_both_carry_a_rate(
    most: float, fewer: float, taken: str
) -> None:
    load = replace(THROUGHPUT.workload, requests_per_second=2.0)
    asked = replace(THROUGHPUT, workload=load)
    scale = Scale(request=asked, by_price=False)
    more = _verdict(TWO, replace(_estimate(tpot=0.02), capacity=most))
    sooner = _verdict(Layout(pipeline=2), replace(_estimate(tpot=0.01), capacity=fewer))

    chosen = settled(select([more, sooner], asked), scale)[0].candidate

    assert chosen == {"more": more, "sooner": sooner}[taken].candidate


def test_ties_inside_nodes_go_to_less_communication() -> None:
    def _with(seconds: float) -> Estimate:
        even = _estimate(1000)
        return replace(
            even,
            performance=replace(
                even.performance,
                decode_shares=(TimeShare(name="TensorCommunication", seconds=seconds),),
            ),
        )

    across = replace(
        _verdict(TWO, _with(0.0)),
        candidate=replace(_verdict(TWO, _with(0.0)).candidate, placement=_on_two_nodes()),
    )

    ranked = select(
        [_verdict(replace(TWO, expert=2), _with(0.001)), across, _verdict(TWO, _with(0.0))],
        BALANCED,
    )

    assert [
        (one.candidate.layout.expert, one.candidate.placement.nodes_per_replica) for one in ranked
    ] == [(1, 1), (2, 1), (1, 2)]


def _on_two_nodes() -> Placement:
    return Placement(groups=(("pool-00000", "pool-00001"),), nodes_per_replica=2, gpus_per_node=1)


def test_stages_cut_elsewhere_are_no_other_way_to_cut() -> None:
    even, uneven = Layout(pipeline=2), Layout(pipeline=2, partition=(17, 15))

    ranked = select(
        [
            _verdict(even, _estimate(1000)),
            _verdict(uneven, _estimate(990)),
            _verdict(TWO, _estimate(900)),
        ],
        BALANCED,
    )

    assert [feasible.candidate.layout for feasible in runners_up(ranked, 3)] == [TWO]


def test_runners_up_show_every_other_kind_of_cut_before_more_of_one_kind() -> None:
    eight, deeper, replicas = (Layout(tensor=8), Layout(tensor=2, pipeline=2), Layout(replicas=2))
    speeds = {FOUR: 4000, TWO: 1900, eight: 7500, deeper: 3500, replicas: 1700}
    ranked = select(
        [_verdict(layout, _estimate(speed)) for layout, speed in speeds.items()], BALANCED
    )

    assert [one.candidate.layout for one in ranked] == [FOUR, TWO, eight, deeper, replicas]
    assert [one.candidate.layout for one in runners_up(ranked, 3)] == [TWO, deeper, replicas]
    assert [one.candidate.layout for one in runners_up(ranked, 4)] == [TWO, eight, deeper, replicas]


def test_gpus_that_are_left_on_a_board_are_those_of_its_own_node() -> None:
    (pool,) = inventory_of(a_node("a"), a_node("b", gpus=4)).joined
    layout = Layout(tensor=3, replicas=3)
    candidate = Candidate(layout=layout, pool=pool, placement=place(pool, layout))
    scale = Scale.of(a_request(), an_inventory(pool))

    # One on the board of four, which it takes whole; two on less than half of eight each.
    assert candidate.placement.groups == (("b",), ("a",), ("a",))
    assert scale.stranded(candidate) == 1
