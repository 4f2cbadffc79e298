"""Who waits: the order, when a claim begins, what it keeps back, which nodes it is, and when it
ends.
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.planner_work import claim_of, plan_to_claim, rooms
from shardwright.reconcile.snapshot import Ask
from shardwright.reconcile.waiting import (
    BACKFILL_SECONDS,
    CLAIM_SECONDS,
    Room,
    Waiting,
    choose,
    claimed_before,
    holds,
    kept_back,
    rank_of,
)
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_reconcile import NOON
from tests.support.builders_subject import LARGE, a_subject, stock

A, B = ("team", "a"), ("team", "b")
LIMIT = timedelta(seconds=BACKFILL_SECONDS)


def waits(priority: int = 0, created: str = "2026-01-01T00:00:00Z", **changes: object) -> Waiting:
    waiting = Waiting(rank=rank_of(priority, created, A), since=NOON, asked="question")
    return replace(waiting, **changes)  # type: ignore[arg-type]


def test_the_line_goes_by_priority_then_by_age_then_by_name() -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
    first = rank_of(5, late, A)
    line = [
        first,
        rank_of(0, early, A),
        rank_of(0, early, B),
        rank_of(0, late, A),
        rank_of(-1, early, A),
    ]

    assert sorted([*line[1:], first]) == line


def test_a_model_claims_once_it_has_waited_for_the_limit_and_only_where_it_would_be_deployed() -> (
    None
):
    assert not waits().may_claim(NOON + LIMIT - timedelta(seconds=1))
    assert waits().may_claim(NOON + LIMIT)
    assert not waits(deploys=False).may_claim(NOON + LIMIT)
    assert (waits().turns_at, waits(deploys=False).turns_at) == (NOON + LIMIT, None)


def test_a_claim_of_which_no_gpu_comes_free_for_half_an_hour_ends_and_the_model_waits_anew() -> (
    None
):
    half_an_hour = timedelta(seconds=CLAIM_SECONDS)
    rooms = {"a": Room(node="a", gpus=8, free=3)}
    freer = {"a": Room(node="a", gpus=8, free=4)}

    chosen = waits().claiming({"a": 8}, rooms, NOON)
    assert chosen == waits(claim={"a": 8}, lacked=(5, NOON))
    assert chosen.turns_at == NOON + half_an_hour
    almost = NOON + half_an_hour - timedelta(seconds=1)
    assert chosen.claiming({"a": 8}, rooms, almost) == chosen
    fuller = chosen.claiming({"a": 8}, freer, almost)
    assert fuller == waits(claim={"a": 8}, lacked=(4, almost))
    assert fuller.claiming({"a": 8}, rooms, NOON + half_an_hour) == fuller
    late = NOON + half_an_hour
    assert chosen.claiming({"a": 8}, rooms, late) == waits(since=late)


def test_a_model_goes_on_waiting_with_its_claim_unless_it_waits_for_something_else() -> None:
    later = waits(since=NOON + LIMIT)
    before = waits(claim={"a": 8}, lacked=(3, NOON))

    assert later.carried_on(None) == later
    assert later.carried_on(before) == before
    assert replace(later, asked="another").carried_on(before) == waits(asked="another")
    assert replace(later, deploys=False).carried_on(before) == waits(deploys=False)


def test_claims_count_against_those_who_come_after_alone() -> None:
    line = [waits(5, claim={"a": 8}), waits(0, claim={"a": 2, "b": 4})]

    assert claimed_before(line, rank_of(6, "", A)) == {}
    assert claimed_before(line, line[0].rank) == {}
    assert claimed_before(line, line[1].rank) == {"a": 8}
    assert claimed_before(line, rank_of(-1, "", A)) == {"a": 10, "b": 4}


def test_only_what_is_free_is_kept_back() -> None:
    assert kept_back(
        {"full": 8, "half": 8, "empty": 4, "gone": 8}, {"full": 0, "half": 3, "empty": 8}
    ) == {"half": 3, "empty": 4}


@pytest.mark.parametrize(
    ("room", "of_use"),
    [
        (Room(node="a", gpus=8, free=3), True),
        (
            Room(node="a", gpus=8, free=8),
            False,
        ),  # all of it is free, and the model is not there: it was the wrong place
        (
            Room(node="a", gpus=6, free=0),
            False,
        ),  # somebody before claims the rest, or GPUs are broken
        (Room(node="b", gpus=8, free=0), False),
    ],
)
def test_a_claim_is_of_use_while_its_nodes_can_become_free_and_are_not(
    room: Room, *, of_use: bool
) -> None:
    assert holds({"a": 8}, {room.node: room}) is of_use
    assert not holds({}, {room.node: room})


def test_the_nodes_that_need_least_to_become_free_are_claimed() -> None:
    found = [
        Room(node=name, gpus=8, free=free)
        for name, free in (("a", 0), ("b", 6), ("c", 2), ("d", 6))
    ]
    two = [lambda near: {room.node: 8 for room in near[:2]} if len(near) > 1 else None]

    assert choose(found, two[0]) == {"b": 8, "d": 8}
    assert choose(found, lambda _: None) is None
    assert choose([], lambda near: {} if near else None) is None


def test_a_model_claims_the_gpus_of_the_plan_that_it_would_get() -> None:
    subject = a_subject(model=LARGE["model"])
    whole = stock(subject, h100_nodes(4))
    names = [node.name for node in whole.pools[0].nodes]
    taken = {names[0]: 8, names[1]: 1, names[2]: 8, names[3]: 2}

    ask = Ask(on=None, choice=PlanChoice.REPLAN)
    near = plan_to_claim(subject, ask, whole, tuple(rooms(whole, taken, {})))
    before = {names[1]: 8, names[3]: 1}
    further = plan_to_claim(subject, ask, whole, tuple(rooms(whole, taken, before)))

    assert near
    assert further
    assert claim_of(near, ask) == {names[1]: 8, names[3]: 8}
    assert claim_of(further, ask) == {names[0]: 8, names[2]: 8}
    assert claim_of(near, replace(ask, on=near)) == {}


def test_a_model_that_nothing_would_do_for_claims_nothing() -> None:
    subject = a_subject(model=LARGE["model"])
    whole = stock(subject, h100_nodes(1))

    ask = Ask(on=None, choice=PlanChoice.REPLAN)

    assert plan_to_claim(subject, ask, whole, tuple(rooms(whole, {}, {}))) is None
