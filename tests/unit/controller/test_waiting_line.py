"""The line before the GPUs: who is woken in which order, and what the planner leaves for those that
have waited for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from shardwright.controller.event_handlers import TURN_SECONDS, EventHandlers
from shardwright.controller.queue import Key, Queue
from shardwright.hardware.inventory import Inventory
from shardwright.pipeline.assembly import Supply
from shardwright.pipeline.replanning import Replanned
from shardwright.planning.report import WaysOut
from shardwright.planning.sentences import ways_sentence
from shardwright.planning.ways_out import Holder
from shardwright.reconcile import planner_work
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.snapshot import Ask
from shardwright.reconcile.waiting import BACKFILL_SECONDS
from shardwright.resolving.subject import Subject
from tests.support.builders_reconcile import NOON
from tests.support.builders_subject import LARGE
from tests.support.clocks import Clock
from tests.support.desk import Desk

LONG_AFTER = NOON + timedelta(seconds=BACKFILL_SECONDS)
SMALL = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_later_model_passes_one_that_waits_until_that_has_waited_for_the_limit(
    desk: Desk,
) -> None:
    large, small, late = (
        desk.add("large", **LARGE),
        desk.add("small", **SMALL),
        desk.add("late", **SMALL),
    )
    desk.hold(desk.names[0], 4)

    assert desk.ask(large).short
    assert desk.nodes_of(desk.ask(small)) <= set(desk.names)
    assert desk.ask(large, LONG_AFTER).short
    refused = desk.ask(late, LONG_AFTER)

    assert desk.cache.line[large].claim == dict.fromkeys(desk.names, 8)
    assert refused.short
    assert refused.short.heals_by_itself
    assert ways_sentence(refused.short.ways_out).startswith(
        "11 free GPUs are kept for models that have waited longer"
    )


def test_what_is_claimed_goes_to_whom_it_was_kept_for(desk: Desk) -> None:
    large, late = desk.add("large", **LARGE), desk.add("late", **SMALL)
    desk.hold(desk.names[0], 4)
    desk.ask(large)
    desk.ask(large, LONG_AFTER)
    assert desk.ask(late, LONG_AFTER).short
    desk.cache.freed.clear()

    desk.hold(desk.names[0], 0)

    assert desk.cache.served_by(desk.cache.freed) == [large, late]
    assert desk.nodes_of(desk.ask(large, LONG_AFTER)) == set(desk.names)
    assert desk.cache.line.keys() == {late}


def test_a_claim_holds_up_nobody_of_higher_priority(desk: Desk) -> None:
    large, high = (
        desk.add("large", **LARGE),
        desk.add("high", pod={"priorityClassName": "high"}, **SMALL),
    )
    desk.hold(desk.names[0], 4)
    desk.ask(large)
    desk.ask(large, LONG_AFTER)

    assert desk.nodes_of(desk.ask(high, LONG_AFTER)) <= set(desk.names)


def test_no_claim_holds_up_a_group_that_has_lost_its_node_whatever_its_class(desk: Desk) -> None:
    serves = desk.add("serves", **SMALL)
    record = desk.ask(serves).record
    assert record
    (lost,) = desk.nodes_of(desk.ask(serves))
    (spare,) = set(desk.names) - {lost}
    desk.cache.keep(serves, None)
    desk.hold(lost, 8, "foreign")
    desk.hold(spare, 4, "other")
    large = desk.add("large", pod={"priorityClassName": "high"}, **LARGE)
    desk.ask(large)
    desk.ask(large, LONG_AFTER)
    assert desk.cache.line[large].claim

    moved = desk.answer(
        serves,
        desk.subject(serves),
        Ask(on=record, choice=PlanChoice.REHOUSE, leaving=frozenset({0}), lost=frozenset({lost})),
        LONG_AFTER,
    )

    assert desk.nodes_of(moved) == {spare}


def test_the_claim_of_a_model_that_is_gone_is_free_for_who_waits(desk: Desk) -> None:
    large, late = desk.add("large", **LARGE), desk.add("late", **SMALL)
    desk.hold(desk.names[0], 4)
    desk.ask(large)
    desk.ask(large, LONG_AFTER)
    desk.ask(late, LONG_AFTER)
    desk.cache.freed.clear()

    desk.cache.forget(large)

    assert desk.cache.freed == set(desk.names)
    assert desk.cache.served_by(desk.cache.freed) == [late]
    assert desk.nodes_of(desk.ask(late, LONG_AFTER)) <= set(desk.names)


def test_a_model_that_is_only_shown_waits_and_claims_nothing(desk: Desk) -> None:
    shown = desk.add("large", mode="PlanOnly", **LARGE)
    desk.hold(desk.names[0], 4)

    desk.ask(shown)
    desk.ask(shown, LONG_AFTER)

    assert desk.cache.line[shown].claim == {}


def test_only_those_are_woken_whose_pods_may_use_a_node_that_came_free(desk: Desk) -> None:
    desk.hold(desk.names[0], 8, "first")
    desk.hold(desk.names[1], 8, "second")
    anywhere = desk.add("anywhere", **SMALL)
    elsewhere = desk.add("elsewhere", placement={"nodeSelector": {"pool": "blue"}}, **SMALL)
    assert desk.ask(anywhere).short
    assert desk.ask(elsewhere).short

    assert desk.cache.served_by({desk.names[0]}) == [anywhere]
    assert desk.cache.served_by({"no-such-node"}) == []


def woken(queue: Queue) -> list[Key]:
    """Return the keys that are in line for a worker, and give them back as done."""

    async def take() -> list[Key]:
        found = []
        while sum(queue.load().depth.values()):
            key = (await queue.get()).key
            queue.forget(key)
            found.append(key)
        return found

    return asyncio.run(take())


def test_models_in_line_for_gpus_are_woken_one_after_another(desk: Desk) -> None:
    queue, clock = Queue(8), Clock()
    handlers = EventHandlers(desk.cache, queue, lambda: True, clock)
    desk.hold(desk.names[0], 8, "first")
    desk.hold(desk.names[1], 8, "second")
    old, young = desk.add("old", **SMALL), desk.add("young", "other", **SMALL)
    high = desk.add("high", pod={"priorityClassName": "high"}, **SMALL)
    for key in (young, old, high):
        desk.ask(key)
    desk.cache.freed = {desk.names[0]}

    handlers.wake_waiting()
    assert woken(queue) == [high]
    handlers.wake_waiting()
    assert woken(queue) == []
    handlers.reconciled(high)
    assert woken(queue) == [old]
    handlers.reconciled(old)
    assert woken(queue) == [young]
    handlers.reconciled(young)
    assert woken(queue) == []


def test_a_namespace_whose_looks_hang_holds_nobody_up_for_long(desk: Desk) -> None:
    queue, clock = Queue(8), Clock()
    handlers = EventHandlers(desk.cache, queue, lambda: True, clock)
    desk.hold(desk.names[0], 8, "first")
    desk.hold(desk.names[1], 8, "second")
    stuck, same = desk.add("stuck", "slow", **SMALL), desk.add("same", "slow", **SMALL)
    other = desk.add("other", **SMALL)
    for key in (stuck, same, other):
        desk.ask(key)
    desk.cache.freed = {desk.names[0]}
    handlers.wake_waiting()
    assert woken(queue) == [stuck]

    clock.now += TURN_SECONDS
    handlers.wake_waiting()

    assert set(woken(queue)) == {same, other}


def ways_of(answer: Replanned) -> WaysOut:
    assert answer.short
    assert answer.short.ways_out
    return answer.short.ways_out


def test_what_would_make_room_is_told_and_only_models_of_the_namespace_by_name(desk: Desk) -> None:
    holding, large = desk.add("holding", **SMALL), desk.add("large", **LARGE)
    theirs = desk.add("theirs", "other", **LARGE)
    desk.ask(holding)

    assert ways_of(desk.ask(large)) == WaysOut(
        pool="h100-sxm-80gb-8x-400g", more_nodes=1, moved="models/holding"
    )
    assert ways_of(desk.ask(theirs)).moved == "a model of another namespace"


def test_a_model_of_a_higher_class_is_not_told_to_go(desk: Desk) -> None:
    holding, large = (
        desk.add("holding", pod={"priorityClassName": "high"}, **SMALL),
        desk.add("large", **LARGE),
    )
    desk.ask(holding)

    assert ways_of(desk.ask(large)).moved == ""


def test_what_would_make_room_is_worked_out_anew_only_where_there_is_something_else(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked_out: list[Inventory] = []
    work_out = planner_work.with_ways_out

    def counted(
        subject: Subject, ask: Ask, supply: Supply, made: Replanned, holders: Sequence[Holder]
    ) -> Replanned:
        worked_out.append(supply.inventory)
        return work_out(subject, ask, supply, made, holders)

    monkeypatch.setattr(planner_work, "with_ways_out", counted)
    large = desk.add("large", **LARGE)
    desk.hold(desk.names[0], 4)

    first, second = ways_of(desk.ask(large)), ways_of(desk.ask(large))
    assert first == second
    assert len(worked_out) == 1

    desk.hold(desk.names[0], 2)
    desk.ask(large)
    assert len(worked_out) == 2


def test_a_field_to_leave_out_is_told_from_the_nodes_that_it_excludes(desk: Desk) -> None:
    nowhere = {"placement": {"nodeSelector": {"team": "search"}}}
    strict = desk.add("strict", **SMALL, **nowhere)

    found = ways_of(desk.ask(strict)).without

    assert [item.fields for item in found] == [("spec.placement.nodeSelector",)]

    for name in desk.names:
        desk.hold(name, 8, f"on-{name}")

    short = desk.ask(strict).short
    assert short
    assert short.ways_out is None
