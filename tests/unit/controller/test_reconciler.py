"""One reconcile of a model, with its faults: what comes between, what is refused, what there is no room
for.
"""

import asyncio
import threading
from typing import Any

import pytest

from shardwright.cluster.client import ApiError, Urgency
from shardwright.cluster.handover import Change
from shardwright.cluster.resources import (
    CONFIG_MAPS,
    NODES,
    SERVICES,
    SHARDED_MODELS,
    STATEFUL_SETS,
    Resource,
)
from shardwright.controller import reconciler
from shardwright.controller.cluster_cache import Dependencies
from shardwright.controller.observations import Observation
from shardwright.controller.planner_process import WorkError
from shardwright.controller.queue import Priority, Requeue
from shardwright.controller.reconciler import GROUPS_AT_ONCE
from shardwright.reconcile.group import ROLLBACK_TO
from shardwright.reconcile.next_step import Step, next_step
from tests.support.builders_operator import LARGE, NAMESPACE, deployed, run, serving, synced
from tests.support.memory_api import nothing

FAILED = {
    "name": "engine",
    "restartCount": 1,
    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
}


def test_a_model_is_planned_recorded_and_deployed_in_one_look() -> None:
    async def scenario() -> None:
        parts, _ = await deployed()
        assert parts.api.written[0] == "create configmaps/large-plan"
        assert parts.api.written[-1].startswith("create events/")
        assert [group["metadata"]["name"] for group in parts.groups("large")] == ["large-0"]
        assert parts.reserved_nodes() == {"h100-0", "h100-1"}

    run(scenario())


def test_a_fault_of_ours_is_told_by_its_class_alone_and_goes_with_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: Any) -> None:
        raise ZeroDivisionError("the token is hf_canary")

    async def scenario() -> None:
        parts, key = await serving()
        groups = parts.status(key)["groups"]
        parts.change(key, rollout={"minReadySeconds": 5})
        with monkeypatch.context() as patched:
            patched.setattr(reconciler, "next_step", failing)
            with pytest.raises(ZeroDivisionError) as caught:
                await parts.reconcile_again(key)
        await parts.reconciler.say_fault(key, caught.value)
        ready = parts.condition(key)
        assert (ready["status"], ready["reason"], ready["message"]) == (
            "Unknown",
            "InternalError",
            (
                "the operator failed on this model because of a bug of its own (ZeroDivisionError); "
                "running groups are kept, and the operator tries again; please report it, the log has "
                "the details"
            ),
        )
        assert parts.status(key)["groups"] == groups
        assert "canary" not in str(parts.api.objects)

        await parts.reconcile_again(key)
        ready = parts.condition(key)
        assert (ready["status"], ready["reason"]) == ("True", "Serving")

    run(scenario())


def test_of_a_fault_in_the_worker_the_class_is_told_that_was_raised_there() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        await parts.reconciler.say_fault(key, WorkError("Traceback ...", "KeyError"))
        message = parts.condition(key)["message"]
        assert message.startswith(
            "the operator failed on this model because of a bug of its own (KeyError); "
        )

    run(scenario())


def test_nothing_is_written_for_a_scheduler_that_is_not_there_and_what_serves_goes_on() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        before = len([line for line in parts.api.written if "statefulsets" in line])

        parts.change(key, placement={"scheduler": "Native"})
        assert await parts.reconcile(key) == Requeue(
            seconds=0.5, priority=Priority.RESYNC
        )  # the plan of record says the new question
        assert await parts.reconcile(key) == Requeue(seconds=30, priority=Priority.RESYNC)
        assert parts.status(key)["groups"][0]["ready"]
        assert parts.condition(key)["reason"] == "SchedulerUnavailable"
        assert "choose another scheduler" in parts.condition(key, "Stalled")["message"]
        assert len([line for line in parts.api.written if "statefulsets" in line]) == before

    run(scenario())


def test_a_change_of_the_spec_that_is_seen_before_the_answer_to_a_status_is_not_lost() -> None:
    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("large", model=LARGE)

        async def change(_verb: str, plural: str) -> None:
            parts.api.after = nothing
            assert plural == SHARDED_MODELS.plural
            parts.change(key, replicas=0)

        parts.api.after = change
        await parts.reconcile(key)
        await parts.reconcile(key)
        assert parts.condition(key)["reason"] == "ScaledToZero"

    run(scenario())


def test_a_model_without_its_scheduler_can_be_scaled_to_zero() -> None:
    async def scenario() -> None:
        parts, key = await deployed()
        parts.change(key, placement={"scheduler": "Native"}, replicas=0)
        await parts.reconcile(key)
        await parts.reconcile(key)
        assert parts.groups("large") == []
        assert parts.condition(key)["reason"] == "ScaledToZero"

    run(scenario())


def test_status_says_which_engine_runs_and_how_long_it_may_take_to_start() -> None:
    async def scenario() -> None:
        parts, key = await deployed()
        basis = (
            "2104 s: 180 s start, 378.0 GiB read from its volume at 500 MB/s (assumed) x 2, 300 s "
            "compilation; at least 600 s; "
            "from when all ranks have met, for which there is no limit"
        )
        assert parts.status(key)["engine"] == {
            "name": "vLLM",
            "version": "0.33.0",
            "image": "vllm/vllm-openai:v0.33.0",
            "startBudget": {"loadSeconds": 2104, "basis": basis},
        }
        (group,) = parts.groups("large")
        assert group["metadata"]["annotations"]["shardwright.io/start-up-budget"] == basis

    run(scenario())


def test_a_plan_that_is_only_shown_has_no_start_up_budget() -> None:
    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("large", model=LARGE, mode="PlanOnly")
        await parts.reconcile(key)
        assert parts.status(key)["plan"]["nodes"] == 2
        assert set(parts.status(key)["engine"]) == {"name", "version", "image"}

    run(scenario())


def test_a_model_that_serves_keeps_its_address_when_there_is_no_room_for_more_of_it() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        before = parts.status(key)

        parts.change(key, replicas=2)
        await parts.reconcile(key)

        assert parts.condition(key, "PartlyPlaced")["reason"] == "InsufficientCapacity"
        assert {field: parts.status(key)[field] for field in ("selector", "endpoint")} == {
            "selector": before["selector"],
            "endpoint": before["endpoint"],
        }

    run(scenario())


def test_a_model_that_serves_keeps_its_address_when_its_spec_becomes_wrong() -> None:
    async def scenario() -> None:
        parts, key = await deployed()
        parts.run_pods("large")
        parts.change(key, model={"id": "nobody/nothing"})
        await parts.reconcile(key)
        assert parts.condition(key)["reason"] == "ModelUnknown"
        assert parts.status(key)["endpoint"] == "http://large.models.svc.cluster.local:8000"

    run(scenario())


def test_a_group_is_looked_after_while_there_is_no_room_for_another() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        parts.change(key, replicas=2)
        parts.run_pods("large", containerStatuses=[FAILED])

        await parts.reconcile(key)

        assert parts.condition(key)["reason"] == "GroupsNotReady"
        assert parts.condition(key, "PartlyPlaced")["reason"] == "InsufficientCapacity"
        assert [group["spec"]["replicas"] for group in parts.groups("large")] == [
            0
        ]  # through zero, as ever

    run(scenario())


def test_what_is_read_right_before_a_group_ends_waits_for_no_other_request_than_a_repair() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        parts.run_pods("large", containerStatuses=[FAILED])
        urgent_at: dict[str, list[Urgency]] = {}

        async def note(verb: str, plural: str) -> None:
            urgent_at.setdefault(f"{verb} {plural}", list(parts.api.urgencies))

        parts.api.urgencies.clear()
        parts.api.before = note
        await parts.reconcile(key)

        assert parts.replicas("large") == [0]
        reads = ("get shardedmodels", "get statefulsets", "get pods")
        assert {read: urgent_at[read] for read in reads} == {
            read: [Urgency.REPAIR] for read in reads
        }

    run(scenario())


def test_what_is_read_right_before_a_group_ends_is_asked_for_at_once() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        parts.run_pods("large", containerStatuses=[FAILED])
        awaited, all_asked = {"shardedmodels", "statefulsets", "pods"}, asyncio.Event()

        async def answer(verb: str, plural: str) -> None:
            if verb == "get":
                awaited.discard(plural)
                if not awaited:
                    all_asked.set()
                await asyncio.wait_for(all_asked.wait(), 5)

        parts.api.before = answer
        await parts.reconcile(key)
        assert parts.replicas("large") == [0]

    run(scenario())


def test_a_model_is_scaled_down_while_its_nodes_are_away() -> None:
    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("small", replicas=2)
        await parts.reconcile(key)
        assert len(parts.groups("small")) == 2
        for name in ("h100-0", "h100-1"):
            parts.change_node(name, unschedulable=True)

        parts.change(key, replicas=0)
        await parts.reconcile(key)

        assert parts.groups("small") == []
        assert parts.reserved_nodes() == set()

    run(scenario())


def test_a_node_that_comes_when_the_planner_has_answered_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        parts = await synced(nodes=1)
        key = parts.add_model("large", model=LARGE)
        answer = parts.planner.answer

        async def too_early(*arguments: Any) -> Any:
            answered = await answer(*arguments)
            parts.add_nodes(1, first=1)
            return answered

        monkeypatch.setattr(parts.planner, "answer", too_early)
        await parts.reconcile(key)
        assert parts.condition(key)["reason"] == "NothingFits"

        parts.queue.added.clear()
        parts.handlers.wake_waiting()
        assert parts.queue.added == [(key, Priority.WAITING)]

    run(scenario())


def test_a_record_that_is_refused_is_shown_deploys_nothing_and_reserves_nothing() -> None:
    async def refuse(verb: str, plural: str) -> None:
        if (verb, plural) == ("create", "configmaps"):
            raise ApiError(403, "Forbidden", "exceeded quota: count/configmaps")

    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("large", model=LARGE)
        parts.api.before = refuse
        with pytest.raises(ApiError, match="exceeded quota"):
            await parts.reconcile(key)
        assert parts.condition(key)["reason"] == "ObjectRefused"
        assert "exceeded quota" in parts.condition(key)["message"]
        assert (parts.groups("large"), parts.reserved_nodes()) == ([], set())

    run(scenario())


def test_a_change_that_the_api_server_refuses_leaves_the_scripts_of_running_pods_alone() -> None:
    """What pods mount is created before the StatefulSet is tried, under another name."""

    async def refuse(verb: str, plural: str) -> None:
        if (verb, plural) == ("patch", "statefulsets"):
            raise ApiError(422, "Invalid", "field is immutable")

    async def scenario() -> None:
        parts, key = await serving()
        before = parts.scripts()
        parts.change(key, readiness={"silenceSeconds": 90})
        parts.api.before = refuse

        with pytest.raises(ApiError):
            await parts.reconcile(key)

        assert parts.condition(key)["reason"] == "ObjectRefused"
        assert len(before) == 1
        assert {name: parts.scripts().get(name) for name in before} == before
        assert len(parts.scripts()) == 2

        parts.change(key, readiness={})
        await parts.reconcile(key)
        assert parts.scripts() == before

    run(scenario())


def test_a_plan_that_can_only_be_shown_keeps_no_gpus_from_others() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=4)
        over_nodes = {"tensor": 16, "dataParallelAttention": 2}
        key = parts.add_model(
            "wide", model={"id": "deepseek-ai/DeepSeek-V3"}, parallelism=over_nodes
        )
        await parts.reconcile(key)
        assert parts.condition(key)["reason"] == "NotDeployable"
        assert (parts.groups("wide"), parts.reserved_nodes()) == ([], set())

    run(scenario())


def test_a_foreign_object_in_the_place_of_the_record_lets_nothing_be_reserved() -> None:
    async def scenario() -> None:
        parts = await synced()
        parts.api.put(
            CONFIG_MAPS,
            {"metadata": {"name": "large-plan", "namespace": NAMESPACE}, "data": {"mine": "yes"}},
        )
        key = parts.add_model("large", model=LARGE)
        await parts.reconcile(key)
        assert parts.condition(key)["reason"] == "NameConflict"
        assert parts.reserved_nodes() == set()

    run(scenario())


def test_what_an_earlier_resource_of_the_name_left_is_waited_for_and_stalls_nobody() -> None:
    async def scenario() -> None:
        parts, key = await deployed()
        former = parts.model(key)["metadata"]["uid"]
        parts.api.remove(SHARDED_MODELS, *key)
        parts.add_model("large", model=LARGE)

        assert await parts.reconcile(key) == Requeue(seconds=30.0)
        ready = parts.condition(key)
        assert (ready["status"], ready["reason"]) == ("False", "Progressing")
        assert "of an earlier ShardedModel of this name" in ready["message"]
        assert [parts.condition(key, kind)["status"] for kind in ("Stalled", "Reconciling")] == [
            "False",
            "True",
        ]

        parts.api.collect(former)
        await parts.reconcile(key)
        owner = parts.groups("large")[0]["metadata"]["ownerReferences"][0]
        assert owner["uid"] == parts.model(key)["metadata"]["uid"]

    run(scenario())


def test_a_model_that_is_gone_is_forgotten_with_everything_about_it() -> None:
    async def scenario() -> None:
        parts, key = await deployed()
        assert b'shardwright_plan_gpus{name="large"' in parts.metrics.text()
        assert parts.reconciler._observations.of(key) != Observation()

        parts.api.remove(SHARDED_MODELS, *key)
        assert await parts.reconcile(key) is None

        assert parts.cache.interests(key) == Dependencies()
        assert (parts.cache.models, parts.cache.resources, parts.reserved_nodes()) == (
            {},
            {},
            set(),
        )
        assert parts.cache.freed == {"h100-0", "h100-1"}
        assert parts.reconciler._observations.of(key) == Observation()
        assert len(parts.planner._subjects) == 0
        assert b'name="large"' not in parts.metrics.text()

    run(scenario())


def test_a_model_that_is_being_deleted_keeps_nothing_and_nothing_is_written_for_it() -> None:
    async def scenario() -> None:
        parts, key = await deployed()
        with parts.api.changing(SHARDED_MODELS, *key) as model:  # somebody's finalizer holds it
            model["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"
        parts.api.requests.clear()
        assert await parts.reconcile(key) is None
        assert (parts.reserved_nodes(), parts.api.requests) == (set(), [])

    run(scenario())


@pytest.mark.parametrize(
    ("groups", "aside"), [(GROUPS_AT_ONCE, False), (GROUPS_AT_ONCE + 1, True)], ids=["some", "many"]
)
def test_what_is_worked_out_for_many_groups_holds_up_no_look_at_another_model(
    monkeypatch: pytest.MonkeyPatch, groups: int, *, aside: bool
) -> None:
    """A pure call for one group takes a millisecond, and on the event loop everybody would wait for
    it.
    """
    threads: set[bool] = set()

    def noting(*arguments: Any) -> Step:
        threads.add(threading.current_thread() is not threading.main_thread())
        return next_step(*arguments)

    monkeypatch.setattr("shardwright.controller.reconciler.next_step", noting)

    async def scenario() -> None:
        parts = await synced(nodes=3)
        key = parts.add_model("many", replicas=groups)
        await parts.reconcile(key)
        assert len(parts.groups("many")) == groups

    run(scenario())
    assert threads == {aside}


@pytest.mark.parametrize("kind", [STATEFUL_SETS, SERVICES], ids=["a group", "its Service"])
def test_an_object_that_has_lost_our_label_is_taken_back(kind: Resource) -> None:
    """No watch shows it any more, and its pods run on: whatever makes it anew is told that there is
    one.
    """

    async def scenario() -> None:
        parts, key = await serving()
        name = "large-0" if kind is STATEFUL_SETS else "large"
        uid = parts.api.objects[kind.plural, NAMESPACE, name]["metadata"]["uid"]
        with parts.api.changing(kind, NAMESPACE, name) as live:
            del live["metadata"]["labels"]["app.kubernetes.io/managed-by"]
        assert parts.cache.store.child(kind.kind, NAMESPACE, name) is None
        for _ in range(3):
            await parts.reconcile_again(key)
        child = parts.cache.store.child(kind.kind, NAMESPACE, name)
        assert child
        assert (child.uid, child.owner_uid) == (uid, parts.model(key)["metadata"]["uid"])
        assert (parts.condition(key)["reason"], parts.replicas("large")) == ("Serving", [2])

    run(scenario())


def test_an_object_of_somebody_else_in_our_place_is_said_for_as_long_as_it_is_there() -> None:
    async def scenario() -> None:
        parts = await synced()
        parts.api.put(SERVICES, {"metadata": {"namespace": NAMESPACE, "name": "small"}, "spec": {}})
        key = parts.add_model("small")
        await parts.reconcile_again(key)  # is told that there is one
        reasons = []
        for _ in range(4):
            await parts.reconcile_again(key)
            reasons.append(parts.condition(key, "Stalled")["reason"])
        assert reasons == ["NameConflict"] * 4
        parts.api.remove(SERVICES, NAMESPACE, "small")
        await parts.reconcile_again(key)
        assert parts.condition(key, "Stalled")["status"] == "False"

    run(scenario())


def test_what_a_revision_resolves_to_is_read_once_and_kept_as_long_as_it_is_run() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        parts.change(key, engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
        requests = parts.api.requests
        for request in ("1", None):
            with parts.api.changing(SHARDED_MODELS, *key) as model:
                model["metadata"]["annotations"] = {ROLLBACK_TO: request} if request else {}
            for _ in range(3):
                await parts.reconcile(key)
            kept = parts.reconciler._recalling._subjects
            assert (parts.condition(key, "RolledBack")["status"], len(kept)) == (
                ("True", 1) if request else ("False", 0)
            )
        assert (
            sum(
                "controllerrevisions" in str(item) and "get" in str(item).lower()
                for item in requests
            )
            == 1
        )

    run(scenario())


def test_a_node_is_gone_by_the_word_of_the_api_server_not_of_a_cache() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        node = parts.status(key)["groups"][0]["nodes"][0]
        parts.cache.store.take_nodes({("", node): Change(None, 0)})
        await parts.reconcile(key)
        assert (parts.condition(key)["status"], parts.condition(key)["reason"]) == (
            "True",
            "Serving",
        )

        parts.api.remove(NODES, None, node)
        await parts.reconcile(key)
        assert (parts.condition(key)["status"], parts.condition(key)["reason"]) == (
            "False",
            "NodeLost",
        )
        assert parts.status(key)["ready"] == "0/1"

    run(scenario())
