"""What is worth an event."""

from dataclasses import replace

import pytest

from shardwright.errors import Problem
from shardwright.layouts.layout import Layout
from shardwright.reconcile.decide import decide
from shardwright.reconcile.events import Event, events_of, plan_event
from shardwright.reconcile.findings import Findings
from shardwright.reconcile.write_cause import Origin, WriteCause
from shardwright.reconcile.writes import Apply, Create, Delete, Patch, Why
from tests.support.builders_deployment import a_plan
from tests.support.builders_reconcile import NOON, World, desired, service, stateful_set
from tests.support.builders_snapshot import ONE_NODE, Operator
from tests.support.outcomes import CASES
from tests.support.small_cluster import Refuses, SmallCluster

STALLED = Findings(generation=1, problems=(Problem(code="ModelUnknown", what="model x"),))


def test_a_changed_outcome_is_news_once() -> None:
    (event,) = events_of((), STALLED, ())
    assert event == Event(reason="ModelUnknown", action="Reconcile", note="model x", warning=True)
    assert list(events_of([{"type": "Ready", "reason": "ModelUnknown"}], STALLED, ())) == []


@pytest.mark.parametrize("case", CASES)
def test_what_has_gone_wrong_is_told_as_a_warning_and_nothing_else(case: str) -> None:
    findings, reason, state = CASES[case]
    fails = any(group.failing for group in findings.groups)
    ordinary = {"Progressing", "RollingOut", "WaitingForNodes", "WaitingForQuota", "Paused"}
    ordinary |= {"ConfigFetching", "ClusterReading", "PlanOnly", "ScaledToZero"}

    told = {event.warning for event in events_of((), findings, ()) if event.reason == reason}

    wrong = state not in ("ready", "partly") and (fails or reason not in ordinary)
    assert told in ({wrong}, set())


def test_a_group_without_a_place_is_a_warning_beside_those_that_serve() -> None:
    findings, _, _ = CASES["partly placed"]
    (event,) = (one for one in events_of((), findings, ()) if one.reason == "PartlyPlaced")
    assert event.warning


def test_a_group_of_one_pod_whose_pod_is_refused_says_so_and_gives_its_gpus_back() -> None:
    operator = Operator(SmallCluster(), {**ONE_NODE, "replicas": 1})
    operator.cluster.add_nodes(1)
    operator.cluster.refuses.append(Refuses(kind="Pod", message="exceeded quota: pods"))
    found = operator.run(400, step=10).found
    failed = Patch(name="llama-0", namespace="models", uid="u", annotations={}, why=Why.FAILURE)

    *_, event = events_of((), found, [failed])

    assert event.note == "llama-0: rank 0: PodsRefused, restart 0: exceeded quota: pods"
    assert operator.kept
    assert operator.kept.released == frozenset({0})


def test_a_failed_group_is_a_warning_that_names_the_cause() -> None:
    world, wanted = World(), desired(stateful_set())
    world.run(wanted)
    world.crash("llama-0-1", 137)
    decision = decide(wanted, world.observed(), NOON)
    findings = Findings(generation=1, plan=a_plan(), decision=decision)
    *_, event = events_of((), findings, decision.writes)
    note = "llama-0: rank 1, container engine: Error with exit code 137, restart 1"
    assert event == Event(reason="GroupFailed", action="Restart", note=note, warning=True)


def test_a_cause_that_shows_only_while_the_group_stops_is_said_again() -> None:
    world, wanted = World(), desired(stateful_set())
    world.run(wanted)
    world.crash("llama-0-1", 77)
    world.write(decide(wanted, world.observed(), NOON).writes)
    decision = decide(wanted, world.observed().seen_from({"node-0"}), NOON)

    *_, event = events_of(
        (), Findings(generation=1, plan=a_plan(), decision=decision), decision.writes
    )

    note = "llama-0: rank 0: NodeNotReady, restart 1: node node-0 does not answer"
    assert event == Event(reason="GroupFailed", action="Restart", note=note, warning=True)


def test_repairs_and_deletions_are_news_and_our_own_notes_are_not() -> None:
    undone = WriteCause(Origin.UNDONE, "spec.ports[0].port")
    repaired = Apply(content=service(), uid="u", fields=("spec.ports[0].port",), cause=undone)
    noted = Patch(
        name="llama-0",
        namespace="models",
        uid="u",
        annotations={"shardwright.io/members": "a"},
        why=Why.NOTE,
    )
    annotated = Apply(
        content=stateful_set(), uid="u", fields=("metadata.annotations.shardwright.io/members",)
    )
    pruned = Delete(kind="StatefulSet", namespace="models", name="llama-1", uid="u")
    hurried = Delete(kind="Pod", namespace="models", name="llama-0-0", uid="u", grace_seconds=5)
    ready = [{"type": "Ready", "reason": "ModelUnknown"}]
    assert [
        event.reason
        for event in events_of(ready, STALLED, (repaired, noted, annotated, pruned, hurried))
    ] == ["Repaired", "Pruned"]


def test_what_is_made_anew_because_nobody_may_change_it_says_so() -> None:
    given_up = Patch(
        name="llama-0", namespace="models", uid="u", annotations={}, why=Why.ROLLOUT, replicas=0
    )
    made_again = Delete(
        kind="Service", namespace="models", name="llama-0-peers", uid="u", why=Why.DRIFT
    )
    ready = [{"type": "Ready", "reason": "ModelUnknown"}]

    assert list(events_of(ready, STALLED, (given_up, made_again))) == [
        Event(
            reason="RollingOut",
            action="Restart",
            note="StatefulSet llama-0 stops as a whole and is replaced by its next generation: "
            "the fields that differ cannot be changed",
        ),
        Event(
            reason="Repaired",
            action="Repair",
            note="Service llama-0-peers is made again: the fields that differ cannot be changed",
        ),
    ]


def test_what_we_render_anew_ourselves_is_no_repair() -> None:
    anew = Apply(
        content=service(),
        uid="u",
        fields=("metadata.annotations.shardwright.io/content-hash", "spec.ports[0].port"),
    )
    started = Apply(content=stateful_set(), uid="u", why=Why.START)
    ready = [{"type": "Ready", "reason": "ModelUnknown"}]

    assert list(events_of(ready, STALLED, (anew, started))) == []


def test_a_restart_that_was_asked_for_is_news_and_no_repair() -> None:
    asked = Apply(content=stateful_set(), uid="u", why=Why.REQUESTED)
    ready = [{"type": "Ready", "reason": "ModelUnknown"}]

    (event,) = events_of(ready, STALLED, (asked,))
    assert event == Event(
        reason="Restarting",
        action="Restart",
        note="StatefulSet llama-0 restarts as a whole, as asked",
    )


def test_a_group_that_is_made_anew_beside_a_dead_node_is_news_and_a_first_one_is_not() -> None:
    ready = [{"type": "Ready", "reason": "ModelUnknown"}]

    made = (Create(content=stateful_set()), Create(content=stateful_set("llama-0-g1")))
    (event,) = events_of(ready, replace(STALLED, lost=frozenset({"node-1"})), made)
    note = "llama-0-g1 starts on other nodes: pods on node-1 should be gone, and are not"
    assert event == Event(reason="Rebuilt", action="Restart", note=note, warning=True)
    assert list(events_of(ready, STALLED, made)) == []


def test_a_new_plan_is_told_with_its_first_reason() -> None:
    assert plan_event(a_plan()).note == "TP8·PP2 on 16 GPUs of h100"
    one = replace(a_plan(), layout=Layout())
    assert plan_event(one).note == "TP1 of h100"
