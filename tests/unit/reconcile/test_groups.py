"""A group lives and dies as one."""

from datetime import timedelta
from typing import Any

import pytest

from shardwright.reconcile.annotations import INCIDENT, MEMBERS, READY_ONCE, STOPPED_FOR
from shardwright.reconcile.decide import decide
from shardwright.reconcile.members import Awaited, Failure, Wait, read_member
from shardwright.reconcile.wording import waiting_sentence
from shardwright.reconcile.writes import Apply, Create, Delete, Patch, Why
from tests.support.builders_reconcile import NOON, World, desired, pod, stateful_set


def running(pods: int = 2, revision: str = "r1") -> World:
    world = World()
    world.run(desired(stateful_set(pods=pods, revision=revision)))
    return world


def live(world: World) -> dict[str, Any]:
    return world.objects["StatefulSet", "llama-0"]


def test_a_new_group_is_created_and_is_ready_when_all_its_pods_are() -> None:
    world, wanted = World(), desired(stateful_set())
    first = decide(wanted, world.observed(), NOON)
    assert [type(write) for write in first.writes] == [Create]
    assert not first.groups[0].ready

    world.run(wanted)
    assert decide(wanted, world.observed(), NOON).groups[0].ready


def test_the_pods_that_were_ready_together_are_noted_once() -> None:
    world = running()
    assert live(world)["metadata"]["annotations"][MEMBERS].count(",") == 1
    assert world.run(desired(stateful_set())) == 0


def test_a_group_at_zero_still_knows_that_it_has_been_ready() -> None:
    world = running(revision="r1")
    world.write(decide(desired(stateful_set(revision="r2")), world.observed(), NOON).writes)
    assert live(world)["metadata"]["annotations"][READY_ONCE] == "true"
    assert MEMBERS not in live(world)["metadata"]["annotations"]


def test_a_new_template_is_written_only_together_with_zero_replicas() -> None:
    world = running(revision="r1")
    (write,) = decide(desired(stateful_set(revision="r2")), world.observed(), NOON).writes
    assert isinstance(write, Apply)
    assert write.content["spec"]["replicas"] == 0
    assert (
        write.content["spec"]["template"]["metadata"]["labels"]["shardwright.io/template-hash"]
        == "r2"
    )
    assert write.content["metadata"]["annotations"][STOPPED_FOR] == "Rollout"


def test_a_group_of_one_rolls_through_zero_too() -> None:
    world = running(pods=1, revision="r1")
    before = world.pods["llama-0-0"]["metadata"]["uid"]
    world.run(desired(stateful_set(pods=1, revision="r2")))
    assert world.pods["llama-0-0"]["metadata"]["uid"] != before
    assert not world.mixed


def test_a_group_at_zero_waits_until_every_pod_is_gone() -> None:
    world, wanted = running(), desired(stateful_set(revision="r2"))
    world.write(decide(wanted, world.observed(), NOON).writes)
    del world.pods["llama-0-1"]
    waiting = decide(wanted, world.observed(), NOON)
    assert waiting.writes == ()
    assert waiting.groups[0].situation == "Stopping"


def test_pods_of_another_revision_are_not_ready_for_us() -> None:
    world = running(revision="r1")
    assert not decide(desired(stateful_set(revision="r2")), world.observed(), NOON).groups[0].ready


def test_a_restarted_container_takes_the_whole_group_through_zero_and_is_remembered() -> None:
    world = running()
    world.crash("llama-0-1", 137)
    old = {item["metadata"]["uid"] for item in world.pods.values()}

    world.run(desired(stateful_set()))
    state = decide(desired(stateful_set()), world.observed(), NOON).groups[0]
    assert old.isdisjoint(item["metadata"]["uid"] for item in world.pods.values())
    assert (state.ready, state.restarts) == (True, 1)
    assert state.last_failure == Failure(rank=1, reason="Error", container="engine", exit_code=137)
    assert STOPPED_FOR not in live(world)["metadata"]["annotations"]


def test_a_pod_that_was_replaced_behind_our_back_takes_the_group_through_zero() -> None:
    world = running()
    world.put(pod("llama-0-0", uid="another"))
    (write,) = decide(desired(stateful_set()), world.observed(), NOON).writes
    assert isinstance(write, Patch)
    assert write.replicas == 0
    assert '"reason": "PodLost"' in str(write.annotations[INCIDENT])


def test_a_pod_that_is_being_deleted_takes_the_group_through_zero() -> None:
    world = running()
    world.pods["llama-0-1"]["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"
    (write,) = decide(desired(stateful_set()), world.observed(), NOON).writes
    assert isinstance(write, Patch)
    assert write.why is Why.FAILURE


def test_an_evicted_pod_takes_the_group_through_zero() -> None:
    world = running()
    world.pods["llama-0-1"]["status"] |= {"phase": "Failed", "reason": "Evicted"}
    (write,) = decide(desired(stateful_set()), world.observed(), NOON).writes
    assert isinstance(write, Patch)
    assert '"reason": "Evicted"' in str(write.annotations[INCIDENT])


def test_pods_of_two_control_plane_revisions_within_a_group_are_no_world() -> None:
    world = running()
    world.pods["llama-0-1"]["metadata"]["labels"]["controller-revision-hash"] = "other"
    (write,) = decide(desired(stateful_set()), world.observed(), NOON).writes
    assert isinstance(write, Patch)
    assert '"reason": "MixedRevisions"' in str(write.annotations[INCIDENT])


def test_another_revision_hash_for_all_pods_alike_disturbs_nothing() -> None:
    world = running()
    for item in world.pods.values():
        item["metadata"]["labels"]["controller-revision-hash"] = "after-an-upgrade"
    assert decide(desired(stateful_set()), world.observed(), NOON).writes == ()


def test_a_single_pod_restarts_in_place_and_is_only_reported() -> None:
    world = running(pods=1)
    world.crash("llama-0-0", 3)
    decision = decide(desired(stateful_set(pods=1)), world.observed(), NOON)
    assert decision.writes == ()
    assert decision.groups[0].restarts == 1
    assert decision.groups[0].last_failure == Failure(
        rank=0, reason="Error", container="engine", exit_code=3
    )


def test_waiting_pods_are_no_failure() -> None:
    world = World()
    world.write(decide(desired(stateful_set()), world.observed(), NOON).writes)
    pulling = {
        "name": "engine",
        "image": "a/b:1",
        "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff"}},
    }
    world.put(pod("llama-0-0", ready=False, containerStatuses=[pulling]))
    decision = decide(desired(stateful_set()), world.observed(), NOON)
    assert decision.writes == ()
    assert decision.groups[0].waits == (Wait(what=Awaited.PODS_CREATED, said="1 of 2"),)

    world.put(pod("llama-0-1"))
    (group,) = decide(desired(stateful_set()), world.observed(), NOON).groups
    assert waiting_sentence(group) == "rank 0: engine ImagePullBackOff of a/b:1"


def test_the_second_failure_in_a_row_waits_before_it_starts_again() -> None:
    world, wanted = running(), desired(stateful_set())
    for _ in range(2):
        world.crash("llama-0-1")
        world.run(wanted)
    backing_off = decide(wanted, world.observed(), NOON)
    assert backing_off.writes == ()
    assert backing_off.groups[0].situation == "BackingOff"
    assert backing_off.wake_at == NOON + timedelta(seconds=30)

    world.run(wanted, now=NOON + timedelta(seconds=30))
    assert len(world.pods) == 2


def test_a_failure_long_after_the_last_one_starts_again_at_once() -> None:
    world, wanted = running(), desired(stateful_set())
    for hours in range(3):
        world.crash("llama-0-1")
        world.run(wanted, now=NOON + timedelta(hours=hours))
        assert len(world.pods) == 2


def test_pods_of_a_broken_group_are_not_given_their_long_grace() -> None:
    world, wanted = running(), desired(stateful_set())
    world.crash("llama-0-1")
    world.write(decide(wanted, world.observed(), NOON).writes)
    for item in world.pods.values():
        item["metadata"] |= {
            "deletionTimestamp": "2026-01-02T12:00:00Z",
            "deletionGracePeriodSeconds": 105,
        }
    writes = decide(wanted, world.observed(), NOON).writes
    assert [(type(w), w.name, w.grace_seconds) for w in writes if isinstance(w, Delete)] == [
        (Delete, "llama-0-0", 5),
        (Delete, "llama-0-1", 5),
    ]


@pytest.mark.parametrize(
    ("reason", "hurried"),
    [
        ("EvictionByEvictionAPI", False),
        ("PreemptionByScheduler", False),
        ("", False),
        ("DeletionByTaintManager", True),
    ],
)
def test_pods_of_a_group_of_which_one_is_taken_away_end_their_requests(
    reason: str, *, hurried: bool
) -> None:
    world, wanted = running(), desired(stateful_set())
    ending = {"deletionTimestamp": "2026-01-02T12:00:00Z", "deletionGracePeriodSeconds": 105}
    world.pods["llama-0-1"]["metadata"] |= ending
    taken = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    world.pods["llama-0-1"]["status"]["conditions"] += [taken] if reason else []
    world.write(decide(wanted, world.observed(), NOON).writes)
    for item in world.pods.values():
        item["metadata"] |= ending

    writes = decide(wanted, world.observed(), NOON).writes
    assert [write.name for write in writes if isinstance(write, Delete)] == (
        ["llama-0-0", "llama-0-1"] if hurried else []
    )


def test_pods_that_roll_keep_their_grace() -> None:
    world, wanted = running(), desired(stateful_set(revision="r2"))
    world.write(decide(wanted, world.observed(), NOON).writes)
    for item in world.pods.values():
        item["metadata"] |= {
            "deletionTimestamp": "2026-01-02T12:00:00Z",
            "deletionGracePeriodSeconds": 105,
        }
    assert decide(wanted, world.observed(), NOON).writes == ()


def test_drift_of_the_template_alone_is_repaired_without_disturbing_a_pod() -> None:
    world = running()
    live(world)["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = "edited"
    (write,) = decide(desired(stateful_set()), world.observed(), NOON).writes
    assert isinstance(write, Apply)
    assert write.content["spec"]["replicas"] == 2
    assert write.why is Why.DRIFT
    assert write.fields == ("spec.template.spec.containers[engine].env[REVISION].value",)


def test_a_group_that_a_user_scaled_down_comes_back_as_a_whole() -> None:
    world = running()
    live(world)["spec"]["replicas"] = 1
    world.settle()
    world.run(desired(stateful_set()))
    assert len(world.pods) == 2
    assert decide(desired(stateful_set()), world.observed(), NOON).groups[0].ready


def test_a_stopping_group_that_a_user_scales_up_is_stopped_again_and_has_failed_once() -> None:
    world = running()
    world.crash("llama-0-1")
    world.write(decide(desired(stateful_set()), world.observed(), NOON).writes)
    live(world)["spec"]["replicas"] = 1

    (write,) = decide(desired(stateful_set()), world.observed(), NOON + timedelta(hours=1)).writes
    assert isinstance(write, Patch)
    assert (write.replicas, write.why, write.annotations) == (0, Why.STOP_AGAIN, {})


def test_a_stateful_set_that_was_deleted_is_made_again_when_its_pods_are_gone() -> None:
    world, wanted = running(), desired(stateful_set())
    del world.objects["StatefulSet", "llama-0"]
    assert decide(wanted, world.observed(), NOON).writes == ()
    world.settle()
    world.run(wanted)
    assert len(world.pods) == 2


def test_a_damaged_incident_annotation_is_no_reason_to_fail() -> None:
    world = running()
    live(world)["metadata"]["annotations"][INCIDENT] = "not json"
    assert decide(desired(stateful_set()), world.observed(), NOON).groups[0].restarts == 0


def test_a_changed_spec_does_not_wait_for_the_back_off_of_the_old_one() -> None:
    world, wanted = running(), desired(stateful_set())
    for _ in range(2):
        world.crash("llama-0-1")
        world.run(wanted)
    assert decide(wanted, world.observed(), NOON).groups[0].situation == "BackingOff"

    world.run(desired(stateful_set(revision="r2")))
    assert {
        item["metadata"]["labels"]["shardwright.io/template-hash"] for item in world.pods.values()
    } == {"r2"}


def test_a_rank_without_a_pod_leaves_its_place_among_the_nodes_empty() -> None:
    world = running(pods=3)
    del world.pods["llama-0-1"]
    assert decide(desired(stateful_set(pods=3)), world.observed(), NOON).groups[0].nodes == (
        "node-0",
        None,
        "node-2",
    )


@pytest.mark.parametrize("name", ["llama-0-x", "llama-0-", "other", "llama-0-\u00b2"])
def test_a_pod_that_no_stateful_set_could_have_made_is_no_member(name: str) -> None:
    stray = pod("llama-0-1")
    stray["metadata"]["name"] = name
    assert read_member(stray) is None


def test_the_rank_of_a_pod_is_in_its_name_whatever_has_become_of_its_labels() -> None:
    relabelled = pod("llama-0-1")
    relabelled["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = "first"
    member = read_member(relabelled)
    assert member
    assert member.rank == 1


def test_a_reason_that_nobody_bounds_is_cut() -> None:
    (failure,) = [read_member(pod("llama-0-0", phase="Failed", reason="x" * 5000))]
    assert failure
    assert failure.failure == Failure(rank=0, reason="x" * 256)


def test_a_broken_group_is_emptied_by_one_small_write_and_started_as_it_is_rendered() -> None:
    """An apply reads, may have to take over fields, and meets the StatefulSet's controller, which
    writes at the same moment.
    """
    world, wanted = running(), desired(stateful_set())
    world.crash("llama-0-1")
    (stop,) = decide(wanted, world.observed(), NOON).writes
    assert isinstance(stop, Patch)
    assert (stop.why, stop.replicas, stop.annotations[STOPPED_FOR]) == (Why.FAILURE, 0, "Failure")

    world.write((stop,))
    world.settle()
    (start,) = decide(wanted, world.observed(), NOON + timedelta(hours=1)).writes
    assert isinstance(start, Apply)
    assert (start.why, start.content["spec"]) == (Why.START, stateful_set()["spec"])
