"""What is worth an event."""

from dataclasses import replace

from shardwright.errors import Problem
from shardwright.reconcile.decide import decide
from shardwright.reconcile.decision import Apply, Create, Delete
from shardwright.reconcile.findings import Findings
from shardwright.reconcile.groups import START
from shardwright.reconcile.news import Event, news, plan_event
from tests.support.builders_deployment import a_plan
from tests.support.builders_reconcile import NOON, World, crashed, desired, service, stateful_set

STALLED = Findings(generation=1, problems=(Problem(code="ModelUnknown", what="model x"),))


def test_a_changed_outcome_is_news_once() -> None:
    (event,) = news((), STALLED, ())
    assert event == Event(reason="ModelUnknown", action="Reconcile", note="model x", warning=True)
    assert list(news([{"type": "Ready", "reason": "ModelUnknown"}], STALLED, ())) == []


def test_a_failed_group_is_a_warning_that_names_the_cause() -> None:
    world, wanted = World(), desired(stateful_set())
    world.run(wanted)
    world.pods["llama-0-1"] = crashed("llama-0-1", 137, uid=world.pods["llama-0-1"]["metadata"]["uid"])
    decision = decide(wanted, world.observed(), NOON)
    findings = Findings(generation=1, plan=a_plan(), decision=decision)
    *_, event = news((), findings, decision.writes)
    note = "llama-0: rank 1, container engine: Error with exit code 137, restart 1"
    assert event == Event(reason="GroupFailed", action="Restart", note=note, warning=True)


def test_a_cause_that_shows_only_while_the_group_stops_is_said_again() -> None:
    world, wanted = World(), desired(stateful_set())
    world.run(wanted)
    world.crash("llama-0-1", 77)
    world.write(decide(wanted, world.observed(), NOON).writes)
    decision = decide(wanted, world.observed().seen_from({"node-0"}), NOON)

    *_, event = news((), Findings(generation=1, plan=a_plan(), decision=decision), decision.writes)

    note = "llama-0: rank 0: NodeNotReady, restart 1: node node-0 does not answer"
    assert event == Event(reason="GroupFailed", action="Restart", note=note, warning=True)


def test_repairs_and_deletions_are_news_and_our_own_notes_are_not() -> None:
    repaired = Apply(content=service(), uid="u", because=("spec.ports[0].port",))
    noted = Apply(content=stateful_set(), uid="u", because=("metadata.annotations.shardwright.io/members",))
    pruned = Delete(kind="StatefulSet", namespace="models", name="llama-1", uid="u")
    hurried = Delete(kind="Pod", namespace="models", name="llama-0-0", uid="u", grace_seconds=5)
    ready = [{"type": "Ready", "reason": "ModelUnknown"}]
    assert [event.reason for event in news(ready, STALLED, (repaired, noted, pruned, hurried))] == ["Repaired", "Pruned"]


def test_what_we_render_anew_ourselves_is_no_repair() -> None:
    anew = Apply(content=service(), uid="u", because=("metadata.annotations.shardwright.io/content-hash", "spec.ports[0].port"))
    started = Apply(content=stateful_set(), uid="u", because=(START,))
    ready = [{"type": "Ready", "reason": "ModelUnknown"}]

    assert list(news(ready, STALLED, (anew, started))) == []


def test_a_restart_that_was_asked_for_is_news_and_no_repair() -> None:
    asked = Apply(content=stateful_set(), uid="u", because=("Requested",))
    ready = [{"type": "Ready", "reason": "ModelUnknown"}]

    (event,) = news(ready, STALLED, (asked,))
    assert event == Event(reason="Restarting", action="Restart", note="StatefulSet llama-0 restarts as a whole, as asked")


def test_a_group_that_is_made_anew_beside_a_dead_node_is_news_and_a_first_one_is_not() -> None:
    ready = [{"type": "Ready", "reason": "ModelUnknown"}]

    made = (Create(content=stateful_set()), Create(content=stateful_set("llama-0-g1")))
    (event,) = news(ready, replace(STALLED, lost=frozenset({"node-1"})), made)
    note = "llama-0-g1 starts on other nodes: pods on node-1 should be gone, and it does not answer"
    assert event == Event(reason="Rebuilt", action="Restart", note=note, warning=True)
    assert list(news(ready, STALLED, made)) == []


def test_a_new_plan_is_told_with_its_first_reason() -> None:
    assert plan_event(a_plan()).note == "tensor 8 x pipeline 2 x replicas 1 on h100; does not fit one node"
