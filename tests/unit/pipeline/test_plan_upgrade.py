"""When a plan that serves gives way to a better one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shardwright.api.record import PlanRecord, decode, encode
from shardwright.hardware.gpus import GpuPrice, PriceBasis
from shardwright.hardware.inventory import Inventory
from shardwright.pipeline.assembly import plan_serving, record_of
from shardwright.pipeline.plan_upgrade import PAUSE, improve, is_due
from shardwright.pipeline.replanning import Ground, plan_anew
from shardwright.planning.gain import GAIN_MIN, Better, better
from shardwright.planning.report import Plan, Report
from shardwright.planning.request import OptimizeFor
from shardwright.planning.select import Scale, score
from shardwright.resolving.subject import Subject
from tests.support.builders_nodes import a_node, an_l40s_node, h100_nodes
from tests.support.builders_subject import a_subject, ground, plan_of, stock

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FAST = {"objective": {"optimizeFor": "Latency"}}
ONE_GPU = {"tensor": 1, "pipeline": 1}
H100S = h100_nodes(2)


def a_record_on_one_gpu(subject: Subject) -> PlanRecord:
    """Return the record of a plan on one GPU, as an answer to the question of ``subject``."""
    pinned = a_subject(**FAST, parallelism=ONE_GPU)
    made = record_of(subject, plan_serving(pinned, stock(pinned, H100S)))
    assert made
    return made


def the_best(subject: Subject) -> PlanRecord:
    made = record_of(subject, plan_serving(subject, stock(subject, H100S)))
    assert made
    return made


def test_a_plan_that_is_worth_a_restart_takes_the_place_of_the_one_that_stands() -> None:
    subject = a_subject(**FAST)
    record = a_record_on_one_gpu(subject)

    found = improve(subject, record, ground(subject, H100S), take=True)

    assert found == plan_anew(subject, record, ground(subject, H100S))
    assert found.record
    assert found.record.plan.layout == the_best(subject).plan.layout != record.plan.layout


def test_a_better_plan_that_is_not_to_be_taken_is_said() -> None:
    subject = a_subject(**FAST)
    record, best = a_record_on_one_gpu(subject), the_best(subject).plan

    found = improve(subject, record, ground(subject, H100S), take=False)

    assert (found.record, found.short) == (record, None)
    assert found.better
    assert found.better.gain
    assert found.better == Better(
        layout=best.layout, pool=best.pool, objective=OptimizeFor.LATENCY, gain=found.better.gain
    )
    assert found.better.gain > GAIN_MIN


@pytest.mark.parametrize("take", [True, False])
def test_the_best_plan_stands_and_nothing_is_said(*, take: bool) -> None:
    subject = a_subject(**FAST)
    record = the_best(subject)
    found = improve(subject, record, ground(subject, H100S), take=take)
    assert (found.record, found.better) == (record, None)


def test_after_a_better_plan_was_taken_none_is_better_on_the_same_nodes() -> None:
    subject = a_subject(**FAST)
    taken = improve(subject, a_record_on_one_gpu(subject), ground(subject, H100S), take=True).record
    assert taken

    again = improve(subject, taken, ground(subject, H100S), take=True)

    assert (again.record, again.better) == (taken, None)


@pytest.mark.parametrize(
    ("counted", "moves"),
    [(None, True), (0.9, False), (1.0, True)],
    ids=["as one", "by another list", "by the same list"],
)
def test_a_plan_whose_gpu_has_another_list_price_by_now_gives_way_to_none(
    counted: float | None, *, moves: bool
) -> None:
    asked = {"objective": {"optimizeFor": "Throughput"}, "parallelism": ONE_GPU}
    subject, both = (a_subject(**asked), [*H100S, a_node("a100", "NVIDIA-A100-SXM4-40GB")])
    price = None if counted is None else GpuPrice(per_hour=counted, basis=PriceBasis.LISTED)
    record = the_best(subject)
    record = replace(record, plan=replace(record.plan, gpu_price=price))

    found = improve(subject, record, ground(subject, both), take=True)

    assert found.record
    assert found.record.plan.product == (
        "NVIDIA-A100-SXM4-40GB" if moves else "NVIDIA-H100-80GB-HBM3"
    )
    assert (found.better.relisted if found.better else None) is (None if moves else True)


def test_what_was_predicted_when_the_plan_was_made_counts_for_nothing() -> None:
    subject = a_subject(**FAST)
    record = a_record_on_one_gpu(subject)
    slow = replace(record.plan.performance, ttft_seconds=99.0, tpot_seconds=99.0)
    as_it_was = improve(subject, record, ground(subject, H100S), take=False)

    found = improve(
        subject,
        replace(record, plan=replace(record.plan, performance=slow)),
        ground(subject, H100S),
        take=False,
    )

    assert found.better == as_it_was.better


def test_a_plan_whose_layout_has_no_room_any_more_is_left_alone() -> None:
    subject = a_subject(**FAST)
    record = a_record_on_one_gpu(subject)

    found = improve(subject, record, ground(subject, [an_l40s_node("other")]), take=True)

    assert (found.record, found.short, found.better) == (record, None, None)


def two_plans() -> tuple[Subject, Plan, Plan, Inventory]:
    subject = a_subject(**FAST)
    inventory = stock(subject, H100S)
    return (
        subject,
        plan_of(plan_serving(subject, inventory)),
        a_record_on_one_gpu(subject).plan,
        inventory,
    )


def test_one_plan_is_better_than_another_or_the_other_way_round_never_both() -> None:
    subject, best, other, inventory = two_plans()
    assert better(best, other, inventory, Scale.of(subject.request, inventory))
    assert better(other, best, inventory, Scale.of(subject.request, inventory)) is None
    assert better(best, best, inventory, Scale.of(subject.request, inventory)) is None


@pytest.mark.parametrize(
    ("now", "then", "is_better"),
    [
        ({}, {"carries_load": False}, True),
        ({"carries_load": False}, {}, False),
        ({"tight": True}, {}, False),
    ],
    ids=["it carries the load", "it does not carry the load", "it may not start"],
)
def test_what_carries_the_load_and_surely_starts_is_not_given_up_for_speed(
    now: dict[str, Any], then: dict[str, Any], *, is_better: bool
) -> None:
    subject, best, other, inventory = two_plans()
    best, other = (replace(plan, carries_load=True, tight=False) for plan in (best, other))

    found = better(
        replace(best, **now),
        replace(other, **then),
        inventory,
        Scale.of(subject.request, inventory),
    )

    carries = Better(layout=best.layout, pool=best.pool, objective=OptimizeFor.LATENCY, gain=None)
    assert found == (carries if is_better else None)


def test_a_plan_is_better_by_how_much_longer_the_other_one_takes() -> None:
    subject, best, _, inventory = two_plans()
    speed = best.performance
    slower = replace(
        speed, ttft_seconds=speed.ttft_seconds * 1.25, tpot_seconds=speed.tpot_seconds * 1.25
    )

    found = better(
        best, replace(best, performance=slower), inventory, Scale.of(subject.request, inventory)
    )

    assert found
    assert found.gain == pytest.approx(0.25)


def test_a_better_plan_is_taken_once_in_an_hour() -> None:
    record = a_record_on_one_gpu(a_subject(**FAST))
    assert is_due(record, NOW)
    taken = replace(record, improved_at=NOW)
    assert [is_due(taken, NOW + PAUSE + timedelta(seconds=more)) for more in (-1, 0)] == [
        False,
        True,
    ]


def test_when_a_better_plan_was_taken_is_kept_with_the_record_and_by_every_later_plan() -> None:
    subject, after = (
        a_subject(**FAST),
        a_subject(**FAST, engine={"env": [{"name": "NCCL_DEBUG", "value": "WARN"}]}),
    )
    record: Any = replace(a_record_on_one_gpu(subject), improved_at=NOW)

    assert decode(encode(record)) == record
    anew = plan_anew(after, record, ground(after, H100S)).record
    assert anew
    assert anew.improved_at == NOW


def a_score_of(plan: Plan, subject: Subject, inventory: Inventory) -> float:
    scale, pool = Scale.of(subject.request, inventory), inventory.pools[0]
    cost, domain = scale.cost_on(plan.layout, pool), scale.domain_cost(pool)
    return score(plan.performance, cost, subject.request, 1, domain=domain)


@pytest.mark.parametrize(("faster", "taken"), [(1.09, False), (1.11, True)])
def test_a_plan_that_serves_gives_way_only_to_one_that_is_better_by_a_tenth(
    faster: float, *, taken: bool
) -> None:
    subject = a_subject(**FAST)
    record, inventory = a_record_on_one_gpu(subject), stock(subject, H100S)
    stands = record.plan.performance
    speed = replace(
        stands, ttft_seconds=stands.ttft_seconds / faster, tpot_seconds=stands.tpot_seconds / faster
    )
    two = replace(record.plan.layout, tensor=2)
    dearer = a_score_of(replace(record.plan, layout=two), subject, inventory) / a_score_of(
        record.plan, subject, inventory
    )
    speed = replace(
        speed, ttft_seconds=speed.ttft_seconds / dearer, tpot_seconds=speed.tpot_seconds / dearer
    )
    found = replace(record.plan, layout=two, gpus_per_node=2, performance=speed)

    answer = improve(
        subject,
        record,
        Ground(inventory=inventory),
        lambda *_: Report(outcome=found, alternatives=(), excluded=(), considered=1),
        take=True,
    )

    assert answer.record
    assert answer.record.plan.layout.tensor == (2 if taken else 1)
    assert (answer.better is None) is taken
    assert answer.better is None or answer.better.gain == pytest.approx(faster - 1)
