"""How often a group starts again, why it failed, and what it remembers of that."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from shardwright.reconcile.annotations import (
    GroupAnnotations,
    find_failure,
    new_incident,
    read_annotations,
)
from shardwright.reconcile.decide import Decision, decide
from shardwright.reconcile.group import LOST_SECONDS, LifeRules, following_generations
from shardwright.reconcile.groups import REFUSED_SECONDS
from shardwright.reconcile.members import Failure, GroupState, Member, Situation, read_member
from shardwright.reconcile.model_status import group_status
from shardwright.reconcile.observed import KeptOut
from shardwright.reconcile.wording import waiting_sentence
from shardwright.reconcile.writes import Apply, DryRunPod, Patch, Why
from shardwright.rendering.bundle import ASKED_HASH
from shardwright.resolving.intent import RestartPolicy
from tests.support.builders_reconcile import (
    NOON,
    World,
    crashed,
    desired,
    no_place,
    pod,
    stateful_set,
)

WANTED = desired(stateful_set())


def seconds(count: float) -> datetime:
    return NOON + timedelta(seconds=count)


def running(rules: LifeRules | None = None) -> World:
    world = World()
    world.run(desired(stateful_set(), rules=rules))
    return world


def memory(world: World) -> GroupAnnotations:
    return read_annotations(world.objects["StatefulSet", "llama-0"])


def reconcile(world: World, now: datetime = NOON, rules: LifeRules | None = None) -> Decision:
    return decide(desired(stateful_set(), rules=rules), world.observed(), now)


def state(world: World, now: datetime = NOON, rules: LifeRules | None = None) -> GroupState:
    (group,) = reconcile(world, now, rules).groups
    return group


def unready(world: World, name: str, *, started: bool = True) -> None:
    """Let the engine of a pod run and fail its readiness probe, or its startup probe before."""
    container = {"name": "engine", "restartCount": 0, "state": {"running": {}}, "started": started}
    conditions = [{"type": "Ready", "status": "False"}]
    world.pods[name]["status"] |= {"conditions": conditions, "containerStatuses": [container]}


def fail_in_a_row(
    world: World, times: int, rules: LifeRules | None = None, now: datetime = NOON
) -> datetime:
    """Let the engine fail again and again as soon as it runs; return when it failed last."""
    for count in range(times):
        world.crash("llama-0-1")
        world.run(desired(stateful_set(), rules=rules), now=now)
        wake = reconcile(world, now, rules).wake_at
        if wake is None or count == times - 1:
            continue
        now = wake
        world.run(desired(stateful_set(), rules=rules), now=now)
    return now


def test_pauses_double_up_to_the_longest_one() -> None:
    policy = RestartPolicy(delay_seconds=30, max_delay_seconds=200, budget=10)
    rules = LifeRules(restart=policy)
    world, now, pauses = running(rules), NOON, []
    for _ in range(6):
        world.crash("llama-0-1")
        world.run(desired(stateful_set(), rules=rules), now=now)
        wake = reconcile(world, now, rules).wake_at
        pauses.append((wake - now).total_seconds() if wake else 0)
        now = wake or now
        world.run(desired(stateful_set(), rules=rules), now=now)

    assert pauses == [0, 30, 60, 120, 200, 200]


def test_a_group_that_does_not_serve_is_failing_after_a_failure_and_not_during_a_change() -> None:
    world = running()
    assert not state(world).failing
    world.crash("llama-0-1")
    assert state(world).failing
    world.run(WANTED)
    assert (state(world).ready, state(world).failing, state(world).last_failure is not None) == (
        True,
        False,
        True,
    )
    changed = desired(stateful_set(revision="r2"))
    (group,) = decide(changed, world.observed(), NOON).groups
    assert (group.ready, group.failing) == (False, False)


def test_a_group_that_serves_again_and_misses_a_probe_is_not_shown_with_its_old_failure() -> None:
    world = running()
    world.crash("llama-0-1")
    world.run(WANTED)
    unready(world, "llama-0-0")
    assert (state(world).ready, state(world).failing, state(world).restarts) == (False, False, 1)


def test_a_group_that_served_and_misses_a_probe_is_not_said_to_start() -> None:
    world = running()
    unready(world, "llama-0-0")
    assert (state(world).situation, waiting_sentence(state(world))) == (
        "Unready",
        "rank 0: runs, but its readiness probe fails",
    )


def test_a_group_that_has_not_been_ready_since_its_start_is_said_to_start() -> None:
    world = World()
    world.write(decide(WANTED, world.observed(), NOON).writes)
    world.settle()
    unready(world, "llama-0-0")
    assert (state(world).situation, waiting_sentence(state(world))) == (
        "Starting",
        "rank 0: starting",
    )


def test_ranks_that_have_not_met_say_so_until_the_engines_of_all_followers_have_started() -> None:
    world = World()
    world.write(decide(WANTED, world.observed(), NOON).writes)
    world.settle()
    for name in ("llama-0-0", "llama-0-1"):
        unready(world, name, started=False)
    apart = "runs, and has not met all ranks of its group"
    assert waiting_sentence(state(world)) == f"ranks 0, 1: {apart}"
    world.pods["llama-0-1"]["status"]["containerStatuses"][0]["state"] = {
        "waiting": {"reason": "ContainerCreating"}
    }
    assert waiting_sentence(state(world)) == f"rank 1: engine ContainerCreating; rank 0: {apart}"
    unready(world, "llama-0-1")
    assert waiting_sentence(state(world)) == "ranks 0, 1: starting"


def test_of_many_ranks_those_that_the_others_wait_for_are_named_first() -> None:
    world, wanted = World(), desired(stateful_set(pods=7))
    world.write(decide(wanted, world.observed(), NOON).writes)
    world.settle()
    for rank in range(7):
        unready(world, f"llama-0-{rank}", started=False)
    world.pods["llama-0-4"]["status"]["containerStatuses"][0]["state"] = {
        "waiting": {"reason": "ContainerCreating"}
    }
    world.pods["llama-0-6"]["status"]["conditions"].append(no_place("no GPU", NOON))

    (group,) = decide(wanted, world.observed(), NOON).groups

    assert waiting_sentence(group) == (
        "rank 6: Unschedulable: no GPU; rank 4: engine ContainerCreating; "
        "ranks 0, 1, 2, 3, 5: runs, and has not met all ranks of its group"
    )


def test_a_clock_that_ran_ahead_when_a_group_failed_does_not_hold_it_down() -> None:
    world = running()
    world.crash("llama-0-1")
    world.write(reconcile(world, seconds(3600)).writes)
    world.settle()
    assert state(world, seconds(5)).situation == "Starting"


def test_an_outage_that_began_by_a_clock_that_ran_ahead_has_no_length() -> None:
    world = running()
    world.crash("llama-0-1")
    world.write(reconcile(world, seconds(3600)).writes)
    world.settle()
    world.write(reconcile(world, seconds(5)).writes)
    world.settle()
    world.write(reconcile(world, seconds(60)).writes)
    remembered = memory(world)
    assert (remembered.stopped_at, remembered.outage_seconds) == (None, None)


def test_service_for_the_stable_time_ends_a_row_and_less_does_not() -> None:
    for served, in_a_row in ((599, 2), (600, 1)):
        world = running()
        world.crash("llama-0-1")
        world.run(WANTED, now=NOON)
        world.crash("llama-0-1")
        world.write(decide(WANTED, world.observed(), seconds(served)).writes)
        incident = memory(world).incident
        assert incident
        assert (incident.attempt, incident.restarts) == (in_a_row, 2)


def test_a_group_that_never_became_ready_again_goes_on_with_its_row_however_long_that_took() -> (
    None
):
    world = running()
    world.crash("llama-0-1")
    world.run(WANTED, now=NOON)
    for item in world.pods.values():
        item["status"]["conditions"][0]["status"] = "False"
    live: dict[str, Any] = world.objects["StatefulSet", "llama-0"]
    for annotation in ("shardwright.io/ready-since", "shardwright.io/members"):
        del live["metadata"]["annotations"][annotation]
    world.crash("llama-0-1")
    world.write(decide(WANTED, world.observed(), NOON + timedelta(hours=3)).writes)

    incident = memory(world).incident
    assert incident
    assert incident.attempt == 2


def test_when_the_budget_is_spent_it_is_tried_again_after_the_longest_pause_only() -> None:
    rules = LifeRules(restart=RestartPolicy(budget=2, delay_seconds=1))
    world = running(rules)
    last = fail_in_a_row(world, 3, rules)

    group = state(world, last, rules)
    assert (group.situation, group.budget_spent, group.look_at) == (
        "BackingOff",
        True,
        last + timedelta(seconds=600),
    )

    world.run(desired(stateful_set(), rules=rules), now=last + timedelta(seconds=600))
    assert len(world.pods) == 2


def test_a_spent_budget_stops_the_group_where_the_user_says_so() -> None:
    rules = LifeRules(restart=RestartPolicy(budget=2, stop_when_spent=True))
    world = running(rules)
    last = fail_in_a_row(world, 3, rules)

    group = state(world, last + timedelta(days=9), rules)
    assert (group.situation, waiting_sentence(group), group.look_at) == (
        "Stopped",
        "its engine has failed 3 times in a row",
        None,
    )


def test_a_stopped_group_starts_when_a_restart_is_asked_for_and_counts_anew() -> None:
    policy = RestartPolicy(budget=2, stop_when_spent=True)
    world = running(LifeRules(restart=policy))
    last = fail_in_a_row(world, 3, LifeRules(restart=policy))

    asked = LifeRules(restart=policy, restart_asked="2026-01-02T13:00:00Z")
    world.run(desired(stateful_set(), rules=asked), now=last)
    group = state(world, last, asked)
    assert (group.ready, group.budget_spent, group.restarts) == (True, False, 3)


def test_a_stopped_group_starts_when_its_template_changes() -> None:
    rules = LifeRules(restart=RestartPolicy(budget=2, stop_when_spent=True))
    world = running(rules)
    last = fail_in_a_row(world, 3, rules)

    world.run(desired(stateful_set(revision="r2"), rules=rules), now=last)
    assert len(world.pods) == 2


@pytest.mark.parametrize("times", [1, 9])
def test_an_eviction_is_never_counted(times: int) -> None:
    rules = LifeRules(restart=RestartPolicy(budget=0))
    world, now = running(rules), NOON
    for _ in range(times):
        world.pods["llama-0-1"]["status"] |= {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "low on memory",
        }
        world.run(desired(stateful_set(), rules=rules), now=now)
        now += timedelta(seconds=600)
        world.run(desired(stateful_set(), rules=rules), now=now)

    group = state(world, now, rules)
    assert (group.ready, group.budget_spent, group.restarts) == (True, False, times)
    assert group.last_failure == Failure(rank=1, reason="Evicted", message="low on memory")


def test_a_restart_that_is_asked_for_takes_the_group_through_zero_once() -> None:
    world = running()
    before = {item["metadata"]["uid"] for item in world.pods.values()}
    asked = desired(stateful_set(), rules=LifeRules(restart_asked="now"))

    (write,) = decide(asked, world.observed(), NOON).writes
    assert isinstance(write, Apply)
    assert (write.why, write.content["spec"]["replicas"]) == (Why.REQUESTED, 0)

    world.run(asked)
    assert before.isdisjoint(item["metadata"]["uid"] for item in world.pods.values())
    assert memory(world).restarted_for == "now"
    assert world.run(asked) == 0


def test_a_new_group_owes_no_restart_for_an_annotation_that_is_older() -> None:
    asked = LifeRules(restart_asked="yesterday")
    world = running(asked)
    assert reconcile(world, rules=asked).writes == ()


def test_an_annotation_that_is_taken_away_restarts_nothing() -> None:
    world = running(LifeRules(restart_asked="now"))
    assert reconcile(world).writes == ()


def unschedulable(name: str, since: datetime) -> dict[str, Any]:
    found = pod(name, ready=False)
    found["status"]["conditions"].append(no_place("0/3 nodes are available", since))
    del found["spec"]["nodeName"]
    return found


def halfway(since: datetime = NOON) -> World:
    """Return a group of which one rank holds its node and one finds none."""
    world = World()
    world.write(decide(WANTED, world.observed(), since).writes)
    world.put(pod("llama-0-0", ready=False))
    world.put(unschedulable("llama-0-1", since))
    return world


def test_a_rank_that_finds_no_place_makes_the_group_give_its_gpus_back_after_five_minutes() -> None:
    world = halfway()
    waiting = reconcile(world, seconds(299))
    assert (waiting.writes, waiting.wake_at) == ((), seconds(300))

    (write,) = reconcile(world, seconds(300)).writes
    assert isinstance(write, Patch)
    assert write.replicas == 0
    world.write((write,))
    world.settle()
    group = state(world, seconds(300))
    assert (group.situation, group.look_at, group.budget_spent) == (
        "BackingOff",
        seconds(330),
        False,
    )
    message = "Unschedulable: 0/3 nodes are available"
    assert group.last_failure == Failure(rank=1, reason="Unschedulable", message=message)


def test_a_group_that_holds_nothing_waits_for_a_place_without_limit() -> None:
    world = halfway()
    world.put(unschedulable("llama-0-0", NOON))
    decision = reconcile(world, NOON + timedelta(days=9))
    assert (decision.writes, decision.wake_at) == ((), None)


def gated(name: str, *gates: str) -> dict[str, Any]:
    """Return a pod that has been created and is held back from the scheduler."""
    item = pod(name, ready=False, phase="Pending")
    item["spec"] = {"schedulingGates": [{"name": gate} for gate in gates]}
    waiting = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked",
    }
    item["status"]["conditions"].append(waiting)
    return item


def held_back_by(*gates: str) -> World:
    world = World()
    world.write(decide(WANTED, world.observed(), NOON).writes)
    for name in ("llama-0-0", "llama-0-1"):
        world.put(gated(name, *gates))
    return world


def test_pods_that_a_queue_holds_back_have_not_failed_however_long_it_takes() -> None:
    world = held_back_by("kueue.x-k8s.io/admission", "example.com/other")
    state_after_a_day = state(world, seconds(86_400))
    assert (state_after_a_day.situation, state_after_a_day.last_failure) == (
        "WaitingForQuota",
        None,
    )
    assert waiting_sentence(state_after_a_day).startswith(
        "ranks 0, 1: held back by kueue.x-k8s.io/admission, example.com/other"
    )
    assert reconcile(world, seconds(86_400)).wake_at is None


def taken_by_the_queue(world: World, *names: str) -> None:
    """Let Kueue end pods of a group whose quota somebody else needs; their grace is 60 s."""
    for name in names:
        item = world.pods[name]
        item["metadata"] |= {
            "deletionTimestamp": seconds(60).isoformat(),
            "deletionGracePeriodSeconds": 60,
        }
        item["status"]["conditions"].append(
            {
                "type": "TerminationTarget",
                "status": "True",
                "reason": "WorkloadEvictedDueToPreempted",
                "message": "Preempted to accommodate a workload",
            }
        )


def test_a_group_that_its_queue_preempts_is_no_failure_and_waits_for_quota() -> None:
    world = running()
    taken_by_the_queue(world, "llama-0-0")
    assert reconcile(world, seconds(1)).writes == ()  # the other one follows at once
    for name in ("llama-0-0", "llama-0-1"):
        world.put(gated(name, "kueue.x-k8s.io/admission"))
    waiting = state(world, seconds(2))
    assert (waiting.situation, waiting.last_failure) == ("WaitingForQuota", None)
    world.write(reconcile(world, seconds(2)).writes)
    assert (memory(world).members, memory(world).stopped_at) == ("", seconds(2))
    assert reconcile(world, seconds(3)).writes == ()

    world.put(pod("llama-0-0", uid="new-0"))
    world.put(pod("llama-0-1", uid="new-1"))
    assert world.run(WANTED, now=seconds(62)) == 1  # it is noted that they are ready
    assert (state(world).restarts, memory(world).outage_seconds) == (0, 60)


def test_a_pod_that_its_queue_takes_and_that_stays_is_a_failure_after_its_grace() -> None:
    world = running()
    taken_by_the_queue(world, "llama-0-0", "llama-0-1")
    late = 60 + LOST_SECONDS
    assert reconcile(world, seconds(late - 1)).writes == ()
    (write,) = reconcile(world, seconds(late + 1)).writes
    assert isinstance(write, Patch)
    assert (write.why, write.replicas) == (Why.FAILURE, 0)


def test_a_preemption_says_nothing_of_a_failure_before_it() -> None:
    world = running()
    world.put(crashed("llama-0-1", 1))
    world.run(WANTED)
    taken_by_the_queue(world, "llama-0-0", "llama-0-1")
    for name in ("llama-0-0", "llama-0-1"):
        world.put(gated(name, "kueue.x-k8s.io/admission"))
    world.write(reconcile(world, seconds(2)).writes)
    assert not memory(world).since_failure
    assert not state(world, seconds(3)).failing


def queued(revision: str, nodes: Sequence[str] = ("a", "b")) -> dict[str, Any]:
    """Return a group that the operator has put into a queue."""
    item = stateful_set(revision=revision, nodes=nodes)
    item["spec"]["template"]["metadata"]["annotations"] = {"shardwright.io/queue": "serving"}
    return item


def test_a_group_that_waits_in_a_queue_gives_way_to_its_next_generation_for_a_change() -> None:
    world = held_back_by("kueue.x-k8s.io/admission")
    changed = stateful_set(revision="r2")
    (stop,) = decide(desired(changed), world.observed(), NOON).writes
    assert isinstance(stop, Apply)
    world.write((stop,))
    world.settle()
    assert following_generations([changed], [0], world.observed()) == (1,)


def test_a_restart_that_is_asked_for_stops_no_group_that_waits_in_a_queue() -> None:
    world = held_back_by("kueue.x-k8s.io/admission")
    asked = desired(stateful_set(), rules=LifeRules(restart_asked="now"))
    world.write(decide(asked, world.observed(), NOON).writes)
    assert memory(world).restarted_for == "now"
    assert len(world.pods) == 2
    assert decide(asked, world.observed(), NOON).writes == ()


def test_nodes_that_a_queue_fixes_make_the_next_generation_of_a_group_that_serves() -> None:
    world = World()
    world.run(desired(queued("r1")))
    moved = queued("r2", nodes=("a", "c"))
    decision = decide(desired(moved), world.observed(), NOON)
    (stop,) = decision.writes
    assert isinstance(stop, Patch)
    assert (stop.why, stop.replicas) == (Why.ROLLOUT, 0)
    assert [group.moving for group in decision.groups] == [True]
    world.write((stop,))
    world.settle()
    assert following_generations([moved], [0], world.observed()) == (1,)


def test_a_group_that_cannot_become_the_rendered_one_starts_as_what_it_was_made_for() -> None:
    """It rolls afterwards: noted as made for the new request, it never would."""
    before, moved = queued("r1"), queued("r2", nodes=("a", "c"))
    for item, asked in ((before, "q1"), (moved, "q2")):
        item["metadata"]["annotations"][ASKED_HASH] = asked
    world = World()
    world.run(desired(before))
    world.put(crashed("llama-0-1", 1))
    world.write(decide(desired(before), world.observed(), NOON).writes)
    world.settle()
    (start,) = decide(desired(moved), world.observed(), NOON).writes
    assert isinstance(start, Patch)
    assert start.replicas == 2
    world.write((start,))
    assert memory(world).asked == "q1"


def test_pods_with_gates_of_somebody_else_just_wait() -> None:
    world = held_back_by("example.com/quarantine")
    assert state(world).situation == "Starting"
    assert waiting_sentence(state(world)) == "ranks 0, 1: held back by example.com/quarantine"


def test_an_outage_lasts_from_the_first_stop_until_all_ranks_are_ready() -> None:
    world = running()
    assert state(world).outage_seconds is None
    world.crash("llama-0-1")
    for now in (seconds(10), seconds(20), seconds(97)):
        world.write(decide(WANTED, world.observed(), now).writes)
        world.settle()

    assert memory(world).outage_seconds == 87
    assert memory(world).stopped_at is None
    assert state(world, seconds(500)).outage_seconds == 87
    assert world.run(WANTED, now=seconds(500)) == 0


def members(*pods: dict[str, Any]) -> tuple[Member, ...]:
    return tuple(found for item in pods if (found := read_member(item)))


def taken(name: str, reason: str) -> dict[str, Any]:
    found = pod(name)
    found["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"
    found["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": reason}
    )
    return found


def test_what_was_done_to_a_pod_comes_before_the_engines_that_ended_because_of_it() -> None:
    found = find_failure(
        members(crashed("llama-0-0", 1), taken("llama-0-1", "EvictionByEvictionAPI")), 2, ""
    )
    assert found == Failure(rank=1, reason="EvictionByEvictionAPI")


@pytest.mark.parametrize("code", [76, 79, 137])
def test_a_rank_that_ended_because_of_another_one_is_not_the_cause(code: int) -> None:
    found = find_failure(members(crashed("llama-0-0", 77), crashed("llama-0-1", code)), 2, "")
    assert found == Failure(rank=1, reason="Error", container="engine", exit_code=code)


@pytest.mark.parametrize("code", [1, 77, 78, 79])
def test_a_rank_that_ended_while_the_node_of_another_is_silent_ended_because_of_that_node(
    code: int,
) -> None:
    ended, silent = members(crashed("llama-0-0", code), pod("llama-0-1"))
    found = find_failure((ended, replace(silent, node_answers=False)), 2, "")
    said = f"rank 0 ended with exit code {code}\nnode node-1 does not answer"
    assert found == Failure(rank=1, reason="NodeNotReady", message=said)


def test_the_engines_last_words_go_before_the_silent_node_and_the_message_is_cut_to_1024() -> None:
    failed = crashed("llama-0-0", 1)
    failed["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] = (
        "x" * 1000 + " CUDA out of memory"
    )
    ended, silent = members(failed, pod("llama-0-1"))
    found = find_failure((ended, replace(silent, node_answers=False)), 2, "")
    assert found
    assert len(found.message) == 1024
    assert found.message.endswith("x CUDA out of memory\nnode node-1 does not answer")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_pod_that_somebody_takes_is_taken_whether_its_node_or_another_one_answers_or_not(
    rank: int,
) -> None:
    both = members(pod("llama-0-0"), taken("llama-0-1", "EvictionByEvictionAPI"))
    seen = tuple(replace(member, node_answers=member.rank != rank) for member in both)
    assert find_failure(seen, 2, "") == Failure(rank=1, reason="EvictionByEvictionAPI")


def test_a_silent_node_alone_ends_nothing() -> None:
    first, second = members(pod("llama-0-0"), pod("llama-0-1"))
    assert find_failure((first, replace(second, node_answers=False)), 2, "") is None


def test_neither_a_rank_that_followed_another_nor_a_lost_node_counts_against_the_budget() -> None:
    causes = [
        Failure(rank=0, reason="Error", container="engine", exit_code=77),
        Failure(rank=0, reason="Unknown", container="engine", exit_code=255),
        Failure(rank=0, reason="ContainerStatusUnknown", container="engine", exit_code=137),
        Failure(rank=0, reason="NodeNotReady"),
        Failure(rank=0, reason="EvictionByEvictionAPI"),
    ]
    blamed = [
        Failure(rank=0, reason="Error", container="engine", exit_code=code) for code in (76, 78, 79)
    ]
    assert [
        new_incident(cause, (), None, NOON, stable=False).counted for cause in (*causes, *blamed)
    ] == [0] * 5 + [1] * 3


@pytest.mark.parametrize("code", [77, 78])
def test_a_node_that_is_found_dead_while_its_group_stops_was_the_cause(code: int) -> None:
    world = running()
    world.crash("llama-0-1", code)
    world.write(reconcile(world).writes)
    last = memory(world).incident
    assert last
    assert (last.failure.exit_code, last.counted) == (code, int(code == 78))

    late = world.observed().seen_from({"node-0"})
    decision = decide(WANTED, late, seconds(20))
    world.write(decision.writes)

    found = memory(world).incident
    assert found
    assert (found.failure, found.counted, found.id) == (
        Failure(
            rank=0,
            reason="NodeNotReady",
            message=f"rank 1 ended with exit code {code}\nnode node-0 does not answer",
        ),
        0,
        last.id,
    )
    assert decide(WANTED, world.observed().seen_from({"node-0"}), seconds(21)).writes == ()


def test_a_cause_that_shows_late_does_not_hide_that_somebody_has_changed_the_group() -> None:
    world = running()
    world.crash("llama-0-1")
    world.run(WANTED)
    world.crash("llama-0-1")  # the second in a row: there is a pause
    world.write(reconcile(world).writes)
    changed = desired(stateful_set(revision="r2"))

    assert decide(changed, world.observed().seen_from({"node-0"}), NOON).writes == ()
    world.settle()
    world.write(decide(changed, world.observed(), NOON).writes)
    assert world.objects["StatefulSet", "llama-0"]["spec"]["replicas"] == 2


def test_containers_of_an_evicted_pod_ended_but_did_not_fail() -> None:
    evicted = crashed("llama-0-1", 137)
    evicted["status"] |= {"phase": "Failed", "reason": "Evicted"}
    assert find_failure(members(pod("llama-0-0"), evicted), 2, "") == Failure(
        rank=1, reason="Evicted"
    )


def test_a_pod_that_the_kubelet_evicted_says_why_also_when_it_is_deleted_afterwards() -> None:
    evicted = crashed("llama-0-1", 137)
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    evicted["status"] |= {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "low on memory",
        "conditions": [taken],
    }
    evicted["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"
    assert find_failure(members(pod("llama-0-0"), evicted), 2, "") == Failure(
        rank=1, reason="Evicted", message="low on memory"
    )


def test_the_failure_of_a_deleted_pod_without_an_exit_code_is_its_deletion() -> None:
    deleted = pod("llama-0-1")
    deleted["status"] |= {"phase": "Failed"}
    deleted["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"
    assert find_failure(members(pod("llama-0-0"), deleted), 2, "") == Failure(
        rank=1, reason="PodDeleted"
    )


def test_the_end_of_what_a_container_said_is_kept() -> None:
    failed = crashed("llama-0-1", 1)
    ended = failed["status"]["containerStatuses"][0]["lastState"]["terminated"]
    ended["message"] = "x" * 3000 + "\nValueError: no kernel\n"
    found = find_failure(members(failed), 1, "")
    assert found
    assert len(found.message) == 1024
    assert found.message.endswith("\nValueError: no kernel")


@pytest.mark.parametrize("damage", ["yesterday", "2026-01-02T12:00:00", "-5", "\u00b2"])
def test_memory_that_somebody_has_damaged_is_forgotten(damage: str) -> None:
    names = ("incident", "ready-since", "stopped-at", "last-outage-seconds")
    annotations = {f"shardwright.io/{name}": damage for name in names}
    assert read_annotations({"metadata": {"annotations": annotations}}) == GroupAnnotations()


def kept_out(rules: LifeRules | None = None) -> World:
    """Return a group whose pods the API server has refused since noon."""
    world = World()
    world.write(reconcile(world, rules=rules).writes)
    world.kept_out["llama-0"] = KeptOut(said="exceeded quota: pods", since=NOON)
    return world


def test_a_group_whose_pods_are_refused_frees_its_gpus_after_five_minutes_and_tries_again() -> None:
    rules = LifeRules(restart=RestartPolicy(budget=0, delay_seconds=30))
    world = kept_out(rules)
    assert reconcile(world, seconds(REFUSED_SECONDS - 1), rules).writes == ()

    (write,) = reconcile(world, seconds(REFUSED_SECONDS), rules).writes
    assert isinstance(write, Patch)
    assert (write.why, write.replicas) == (Why.FAILURE, 0)
    world.write((write,))
    group = state(world, seconds(REFUSED_SECONDS), rules)
    assert group.last_failure == Failure(
        rank=0, reason="PodsRefused", message="exceeded quota: pods"
    )
    assert (group.situation, group.holds_nothing, group.budget_spent) == (
        Situation.BACKING_OFF,
        True,
        False,
    )
    assert group.look_at == seconds(REFUSED_SECONDS + 30)

    world.kept_out.clear()  # at zero nobody has asked yet
    ask, write = reconcile(world, seconds(REFUSED_SECONDS + 30), rules).writes
    assert isinstance(ask, DryRunPod)
    assert isinstance(write, Apply)
    assert (write.why, ("Pod", "llama-0-0") in write.needs) == (Why.START, True)


def test_a_group_that_serves_goes_on_although_a_further_pod_of_it_would_be_refused() -> None:
    world = running()
    world.kept_out["llama-0"] = KeptOut(said="exceeded quota: pods", since=NOON)
    assert reconcile(world, seconds(86_400)).writes == ()


def test_the_first_rank_that_is_missing_is_the_one_that_was_refused() -> None:
    world = kept_out()
    world.put(pod("llama-0-0", ready=False))
    world.write(reconcile(world, seconds(REFUSED_SECONDS)).writes)
    assert memory(world).incident
    assert state(world).last_failure == Failure(
        rank=1, reason="PodsRefused", message="exceeded quota: pods"
    )


A_FAILURE: dict[str, Any] = {
    "rank": 1,
    "reason": "Error",
    "container": "engine",
    "exit_code": 1,
    "message": "out of memory",
}
AN_INCIDENT: dict[str, Any] = {
    "id": "0123",
    "restarts": 3,
    "attempt": 2,
    "counted": 2,
    "time": "2026-01-02T12:00:00+00:00",
    "failure": A_FAILURE,
}


def remembered(incident: Any) -> GroupAnnotations:
    text = incident if isinstance(incident, str) else json.dumps(incident)
    return read_annotations({"metadata": {"annotations": {"shardwright.io/incident": text}}})


def test_an_incident_that_we_have_written_is_remembered() -> None:
    found = remembered(AN_INCIDENT).incident
    assert found is not None
    assert (found.restarts, found.attempt, found.counted, found.failure) == (
        3,
        2,
        2,
        Failure(**A_FAILURE),
    )


WRONG: dict[str, tuple[Any, ...]] = {
    "restarts": ("3", -1, 2**31, 1.5, True, None),
    "attempt": ("many", -1, 10**30),
    "counted": ([], -3),
    "id": (7, "x" * 65, None),
    "time": (
        "2026-01-02T12:00:00",
        "noon",
        5,
        "9999-12-31T23:59:59+00:00",
        "0001-01-01T00:00:00+00:00",
    ),
    "failure": (None, "Error", [], {"rank": 0}),
    "further": (1,),
}
WRONG_OF_FAILURE: dict[str, tuple[Any, ...]] = {
    "rank": (-1, 4096, "0", True),
    "reason": ("x" * 2048, None, 5),
    "container": ("x" * 254, 1),
    "exit_code": (2**31, "1", 1.0),
    "message": ("x" * 1025, None),
    "further": (1,),
}
DAMAGES = [
    *({field: wrong} for field, values in WRONG.items() for wrong in values),
    *(
        {"failure": A_FAILURE | {field: wrong}}
        for field, values in WRONG_OF_FAILURE.items()
        for wrong in values
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: str(damage)[:60])
def test_an_incident_that_somebody_has_damaged_is_forgotten(damage: dict[str, Any]) -> None:
    assert remembered(AN_INCIDENT | damage) == GroupAnnotations()


@pytest.mark.parametrize(
    "text",
    ["", "[" * 100_000, "{" * 9, '"text"', "[]", "null", "1e999", '{"time": ' + "1" * 5_000 + "}"],
)
def test_an_incident_that_is_no_record_is_forgotten(text: str) -> None:
    assert remembered(text) == GroupAnnotations()


def test_words_and_times_that_nobody_of_us_writes_are_forgotten() -> None:
    annotations = {
        "shardwright.io/stopped-for": "x" * 2048,
        "shardwright.io/restarted-for": "x" * 2048,
        "shardwright.io/members": "x" * 200_000,
        "shardwright.io/ready-since": "9999-12-31T23:59:59+00:00",
        "shardwright.io/stopped-at": "0001-01-01T00:00:00-12:00",
    }
    assert read_annotations({"metadata": {"annotations": annotations}}) == GroupAnnotations()


def test_a_group_whose_memory_somebody_has_damaged_goes_on() -> None:
    world = running()
    for damage in (
        {"time": "9999-12-31T23:59:59+00:00"},
        {"failure": A_FAILURE | {"rank": -1}},
        {"restarts": "three"},
    ):
        world.objects["StatefulSet", "llama-0"]["metadata"]["annotations"][
            "shardwright.io/incident"
        ] = json.dumps(AN_INCIDENT | damage)
        (group,) = reconcile(world).groups
        assert group_status(group)["name"] == "llama-0"
        assert "lastFailure" not in group_status(group)


@pytest.mark.parametrize("new_pods", [True, False])
def test_a_half_of_a_pair_never_comes_back_at_its_address(*, new_pods: bool) -> None:
    rules = LifeRules(new_pods=new_pods)
    wanted = desired(stateful_set(pods=1), rules=rules)
    world = World()
    world.run(wanted)
    world.crash("llama-0-0")

    decided = decide(wanted, world.observed(), NOON)

    stops = [write.why for write in decided.writes if isinstance(write, Patch)]
    assert (stops[:1], decided.groups[0].restarts) == (([Why.FAILURE], 1) if new_pods else ([], 1))
