"""What costs nothing, and what comes again and again: looks at rest, our own events, flaps, fights,
faults of the API server.
"""

from __future__ import annotations

import pytest

from shardwright.cluster.client import ApiError
from shardwright.cluster.resources import PODS, SERVICES, SHARDED_MODELS, STATEFUL_SETS
from shardwright.cluster.sources import CHILD_MAX_BYTES
from shardwright.controller.cluster_cache import NOTHING, Dependencies
from shardwright.controller.event_handlers import TURN_SECONDS
from shardwright.controller.queue import Key, Priority, Requeue
from shardwright.controller.queue_workers import NotAllTakenError
from shardwright.controller.snapshots import Snapshots
from shardwright.reconcile.group import RESTART
from tests.support.builders_operator import LARGE, NAMESPACE, Parts, run, serving, synced
from tests.support.memory_api import nothing

STATUS = "patch shardedmodels/large/status"


def test_a_look_where_nothing_has_changed_asks_for_nothing_and_writes_nothing() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        parts.wait(3600)
        assert await parts.reconcile(key) is None
        assert parts.api.requests == []

    run(scenario())


def test_a_look_where_nothing_has_changed_does_not_even_read_the_caches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        parts, key = await serving()
        monkeypatch.delattr(Snapshots, "read")
        assert await parts.reconcile(key) is None
        parts.api.remove(PODS, NAMESPACE, "large-0-1")
        with pytest.raises(AttributeError):
            await parts.reconcile(key)

    run(scenario())


def test_what_changes_around_a_model_and_does_not_concern_it_costs_no_request_either() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        parts.add_nodes(1, first=7)
        parts.hold_gpus("h100-7", 8)
        assert parts.asked == []
        assert await parts.reconcile(key) is None
        assert parts.api.requests == []

    run(scenario())


def test_a_plan_that_was_just_written_is_not_read_again() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        parts.change(key, engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
        for _ in range(3):
            await parts.reconcile(key)
        plan = [item for item in parts.api.requests if "configmaps/large-plan" in item]
        assert plan == ["get configmaps/large-plan", "patch configmaps/large-plan"]

    run(scenario())


def test_our_own_status_is_no_news() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=1)
        key = parts.add_model("large", model=LARGE)
        parts.queue.added.clear()
        await parts.reconcile(key)
        assert parts.api.written[0] == STATUS
        assert parts.asked == []

    run(scenario())


def test_a_model_starts_until_a_group_of_it_has_served() -> None:
    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("large", model=LARGE)
        await parts.reconcile(key)
        assert parts.cache.interests(key).starting
        parts, key = await serving()
        assert not parts.cache.interests(key).starting

    run(scenario())


def test_what_its_user_writes_is_news_before_all_that_waits() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        with parts.api.changing(SHARDED_MODELS, *key) as model:
            model["metadata"]["annotations"] = {RESTART: "now"}
        parts.change(key, replicas=2)
        assert parts.queue.added == [(key, Priority.NEW)] * 2

    run(scenario())


def test_what_comes_free_wakes_those_that_wait_the_oldest_first_and_once() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=2)
        for node in ("h100-0", "h100-1"):
            parts.hold_gpus(node, 8, name=node)
        ages = {
            "b": "2026-01-02T12:00:00Z",
            "c": "2026-01-02T11:00:00Z",
            "a": "2026-01-02T13:00:00Z",
        }
        keys = {
            name: parts.add_model(name, created=created, model=LARGE)
            for name, created in ages.items()
        }
        for key in keys.values():
            await parts.reconcile(key)
        parts.handlers.wake_waiting()
        for key in (*keys.values(), *keys.values(), *keys.values()):
            parts.handlers.reconciled(key)  # whoever's turn it was
        parts.queue.added.clear()

        parts.api.remove(PODS, "them", "h100-0")
        for _ in range(2):
            parts.handlers.wake_waiting()
        for name in ("c", "b", "a"):
            parts.handlers.reconciled(keys[name])

        assert parts.queue.added == [(keys[name], Priority.WAITING) for name in ("c", "b", "a")]

    run(scenario())


def test_each_free_turn_to_restart_wakes_one_model_and_the_next_if_it_is_not_taken() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=1)
        rolls, *waiting = [parts.add_model(name) for name in ("rolls", "a", "b", "c", "d")]
        parts.cache.note(rolls, Dependencies(moving=2))
        for key in waiting:
            parts.cache.note(key, Dependencies(waits_for_turn=True))
        parts.queue.added.clear()

        parts.cache.note(rolls, NOTHING)
        parts.handlers.wake_waiting()
        assert parts.asked == waiting[:2]
        parts.cache.note(waiting[0], Dependencies(moving=1))
        for key in waiting[:2]:
            parts.handlers.reconciled(key)  # the second one did not want its turn
        assert parts.asked == waiting[:3]

        parts.wait(TURN_SECONDS)  # the reconcile of the third one hangs
        for _ in range(2):
            parts.handlers.wake_waiting()
        assert parts.asked == waiting

    run(scenario())


def test_a_probe_that_flaps_sixty_times_in_a_minute_costs_a_handful_of_writes() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        requeue: Requeue | None = None
        for flip in range(60):
            parts.wait(1)
            _set_ready(parts, "large-0-1", ready=flip % 2 == 1)
            requeue = await parts.reconcile(key)
        assert parts.api.written.count(STATUS) <= 8
        assert {line.partition("/")[0] for line in parts.api.written} == {
            "patch shardedmodels",
            "create events",
        }

        while requeue:
            parts.wait(requeue.seconds)
            requeue = await parts.reconcile(key)
        assert parts.condition(key)["reason"] == "Serving"

    run(scenario())


def _set_ready(parts: Parts, pod: str, *, ready: bool) -> None:
    with parts.api.changing(PODS, NAMESPACE, pod) as item:
        item["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]


async def _set_back(parts: Parts, key: Key, seconds: int) -> None:
    """Let somebody set a field of the Service back each second, and look each time."""
    for _ in range(seconds):
        parts.wait(1)
        with parts.api.changing(SERVICES, *key) as service:
            service["spec"]["ports"][0]["port"] = 9
        await parts.reconcile(key)


def test_a_contested_field_is_repaired_now_and_then_and_shown_as_a_condition() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        repair = "patch services/large"
        await _set_back(parts, key, 20)
        assert parts.api.written.count(repair) == 3
        contested = parts.condition(key, "FieldConflict")
        assert (contested["status"], contested["reason"]) == ("True", "FieldContested")
        assert "spec.ports[0].port of Service large" in contested["message"]
        assert parts.condition(key)["reason"] == "Serving"

        await _set_back(parts, key, 300)
        assert parts.api.written.count(repair) == 4

        parts.wait(300)
        await parts.reconcile(key)
        found = parts.api.find(SERVICES, *key)
        assert found
        assert found["spec"]["ports"][0]["port"] == 8000
        parts.wait(300)
        await parts.reconcile(key)
        assert parts.condition(key, "FieldConflict")["status"] == "False"

    run(scenario())


@pytest.mark.parametrize(
    "refused",
    [("create", "services"), ("create", "configmaps")],
    ids=["an object", "the plan of record"],
)
def test_a_write_that_the_api_server_cannot_answer_is_in_the_status_and_is_tried_again(
    refused: tuple[str, str],
) -> None:
    async def away(verb: str, plural: str) -> None:
        if (verb, plural) == refused:
            raise ApiError(500, "InternalError", "failed calling webhook: connection refused")

    async def scenario() -> None:
        parts = await synced()
        parts.api.before = away
        key = parts.add_model("large", model=LARGE)
        with pytest.raises(ApiError, match="failed calling webhook"):
            await parts.reconcile(key)
        assert parts.status(key)["observedGeneration"] == 1
        ready = parts.condition(key)
        assert (ready["status"], ready["reason"]) == ("False", "ApiUnavailable")
        assert "failed calling webhook" in ready["message"]
        assert parts.condition(key, "Stalled")["status"] == "False"

        parts.api.before = nothing
        await parts.reconcile(key)
        assert [group["metadata"]["name"] for group in parts.groups("large")] == ["large-0"]

    run(scenario())


@pytest.mark.parametrize(
    ("code", "least", "most"),
    [(500, 0.05, 0.2), (403, 1.2, 2.0)],
    ids=["passes", "is refused for good"],
)
def test_what_is_refused_for_good_is_tried_again_later_than_what_passes(
    code: int, least: float, most: float
) -> None:
    async def refuse(verb: str, plural: str) -> None:
        if (verb, plural) == ("create", "configmaps"):
            raise ApiError(code, "Reason", "not now")

    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("large", model=LARGE)
        parts.api.before = refuse
        with pytest.raises(NotAllTakenError) as raised:
            await parts.reconcile(key)
        assert least < raised.value.again.seconds < most

    run(scenario())


def test_a_refusal_whose_words_vary_is_one_status_and_no_event_of_ours_comes_of_it() -> None:
    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("large", model=LARGE)

        async def refuse(verb: str, plural: str) -> None:
            if (verb, plural) == ("create", "statefulsets"):
                raise ApiError(
                    403, "Forbidden", f"request {len(parts.api.requests)} is denied by policy"
                )

        parts.api.before = refuse
        with pytest.raises(ApiError):
            await parts.reconcile(key)
        parts.queue.added.clear()
        parts.api.written.clear()
        for _ in range(9):
            with pytest.raises(ApiError):
                await parts.reconcile(key)
        assert STATUS not in parts.api.written
        assert parts.asked == []

    run(scenario())


def test_no_more_groups_of_all_models_restart_at_once_than_the_operator_allows() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=2, most_moving=1)
        keys = [parts.add_model(name) for name in ("first", "second")]
        for key in keys:
            await parts.reconcile(key)
            parts.run_pods(key[1])
            await parts.reconcile(key)
        for key in keys:
            parts.change(key, readiness={"silenceSeconds": 90})
            await parts.reconcile(key)
        assert (parts.replicas("first"), parts.replicas("second")) == ([0], [1])
        assert parts.cache.moving == 1
        awaited = parts.condition(keys[1], "TurnAwaited")
        assert (awaited["status"], awaited["reason"]) == ("True", "OthersRestart")
        assert parts.condition(keys[0], "TurnAwaited")["status"] == "False"

        parts.run_pods("first")
        await parts.reconcile(keys[0])
        parts.run_pods("first")
        await parts.reconcile(keys[0])
        assert parts.cache.moving == 0
        requeue = await parts.reconcile(keys[1])
        assert (parts.replicas("first"), parts.replicas("second")) == ([1], [0])
        assert requeue is not None

    run(scenario())


def test_a_group_that_awaits_its_turn_is_looked_at_again_by_itself() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=1, most_moving=0)
        key = parts.add_model("first")
        await parts.reconcile(key)
        parts.run_pods("first")
        await parts.reconcile(key)
        parts.change(key, readiness={"silenceSeconds": 90})
        assert await parts.reconcile(key) is not None
        assert parts.condition(key, "TurnAwaited")["status"] == "True"

    run(scenario())


def pods_of(parts: Parts) -> set[str]:
    """Return the uids of all pods."""
    return {
        item["metadata"]["uid"]
        for (plural, *_), item in parts.api.objects.items()
        if plural == PODS.plural
    }


def test_a_group_that_others_have_filled_stays_ours_is_said_and_is_repaired_on() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        before = pods_of(parts)
        with parts.api.changing(STATEFUL_SETS, NAMESPACE, "large-0") as live:
            live["metadata"]["annotations"] |= {"others.example/notes": "x" * CHILD_MAX_BYTES}
        await parts.reconcile(key)
        said = parts.condition(key, "FieldConflict")
        assert (said["status"], said["reason"]) == ("True", "ObjectOverfull")
        assert said["message"].startswith(
            "StatefulSet large-0 is larger than anything that the operator writes: 262,"
        )
        assert [parts.condition(key, kind)["status"] for kind in ("Ready", "ForeignPods")] == [
            "True",
            "False",
        ]

        with parts.api.changing(STATEFUL_SETS, NAMESPACE, "large-0") as live:
            engine = live["spec"]["template"]["spec"]["containers"][0]
            engine["image"] = "somebody/else:1"
        await parts.reconcile(key)
        assert "patch statefulsets/large-0" in parts.api.written
        assert pods_of(parts) == before

        with parts.api.changing(STATEFUL_SETS, NAMESPACE, "large-0") as live:
            live["metadata"]["annotations"].pop("others.example/notes", None)
        parts.wait(60)  # what was said a moment ago is no news
        await parts.reconcile(key)
        assert parts.condition(key, "FieldConflict")["status"] == "False"

    run(scenario())
