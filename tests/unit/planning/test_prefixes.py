"""Of several groups behind one Service a request reaches the one with its prefix by chance, and the
plan counts that.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from shardwright.costs.estimates import Performance
from shardwright.pipeline.assembly import plan_serving
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Plan
from shardwright.resolving.subject import Subject
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_subject import a_subject, plan_of, stock

LLAMA = {"id": "meta-llama/Llama-3.1-8B-Instruct"}
LOAD = {"inputTokens": 8000, "outputTokens": 200, "concurrency": 64}
RATE = {"inputTokens": 8000, "outputTokens": 200, "requestsPerSecond": 8.0}
KEYED = {"apiKeySecretRef": {"name": "clients"}}
CHANCE = "A Service spreads requests over"


def asked(hit: int = 90, load: Mapping[str, object] = LOAD, **spec: object) -> Subject:
    workload = {**load, "prefixCacheHitPercent": hit}
    return a_subject(
        model=LLAMA, workload=workload, parallelism={"tensor": 1, "pipeline": 1}, **spec
    )


def followed(subject: Subject) -> Subject:
    load = replace(subject.request.workload, follows_prefixes=True)
    return replace(subject, request=replace(subject.request, workload=load))


def planned(subject: Subject) -> Plan:
    return plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))


def speed(hit: int, load: Mapping[str, object] = LOAD, replicas: int = 4) -> Performance:
    return planned(asked(hit, load, replicas=replicas)).performance


def test_four_groups_at_random_are_priced_at_a_quarter_of_the_hits() -> None:
    at_random = planned(asked(88, replicas=4)).performance

    assert at_random == planned(followed(asked(22, replicas=4))).performance


def test_one_group_finds_every_prefix() -> None:
    assert speed(90, replicas=1) == planned(followed(asked(90, replicas=1))).performance


def test_four_groups_that_requests_follow_are_four_times_one_with_a_quarter_of_them() -> None:
    four = planned(followed(asked(90, replicas=4))).performance
    one = planned(asked(90, LOAD | {"concurrency": 16}, replicas=1)).performance

    assert four.output_tokens_per_second == pytest.approx(4 * one.output_tokens_per_second)
    assert four.ttft_seconds == one.ttft_seconds


def test_a_rate_that_is_served_at_most_counts_the_hits_that_are_left() -> None:
    at_random, there = (
        planned(subject)
        for subject in (asked(88, RATE, replicas=4), followed(asked(22, RATE, replicas=4)))
    )

    assert (at_random.capacity, at_random.replica_rate, at_random.replica_requests) == (
        there.capacity,
        there.replica_rate,
        there.replica_requests,
    )


def test_groups_that_lack_a_place_take_no_hits_from_those_that_run() -> None:
    """Ten are wanted and eight have room: each of these finds an eighth."""
    subject = asked(80, replicas=10, rollout={"minGroups": 1})

    plan = planned(subject)

    assert (len(plan.groups), plan.missing) == (8, 2)
    [said] = [reason for reason in plan.reasons if reason.startswith(CHANCE)]
    assert "over 8 groups at random, so that 10% of the input is cached" in said


def test_the_plan_says_what_requests_that_follow_their_prefixes_would_bring() -> None:
    four, there = planned(asked(90, replicas=4)), planned(followed(asked(90, replicas=4)))

    [said] = [reason for reason in four.reasons if reason.startswith(CHANCE)]

    assert "over 4 groups at random, so that 22% of the input is cached" in said
    assert f"would serve {round(there.performance.output_tokens_per_second, -1):,.0f}" in said


@pytest.mark.parametrize(
    "subject",
    [asked(0, replicas=4), asked(90, replicas=1), followed(asked(90, replicas=4))],
    ids=["nothing is cached", "one group", "requests follow"],
)
def test_nothing_is_said_where_no_hit_is_lost(subject: Subject) -> None:
    assert not [reason for reason in planned(subject).reasons if reason.startswith(CHANCE)]


def test_an_open_number_of_groups_takes_one_that_carries_the_rate_with_the_hits_left() -> None:
    """More groups lose more hits: the fewest are found all the same, and one fewer does not do."""
    subject = asked(50, RATE | {"requestsPerSecond": 25.0})
    nodes = stock(subject, h100_nodes(2))
    plan = plan_of(plan_serving(subject, nodes))
    fewer = replace(subject.request.space, replicas=plan.layout.replicas - 1)

    less = make_plan(
        subject.model, nodes, replace(subject.request, space=fewer), subject.traits
    ).outcome

    assert plan.carries_load
    assert not (isinstance(less, Plan) and less.carries_load)


@pytest.mark.parametrize(
    ("spec", "warned"),
    [
        ({"routing": {"mode": "Router"}}, True),
        ({"routing": {"mode": "Router"}, "engine": KEYED}, False),
        ({"routing": {"mode": "Service"}}, False),
    ],
)
def test_a_router_that_asks_for_no_key_is_warned_of(spec: dict[str, Any], *, warned: bool) -> None:
    said = [one for one in planned(asked(**spec)).warnings if "whoever reaches the router" in one]

    assert len(said) == warned
