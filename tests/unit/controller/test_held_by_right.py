"""GPUs are kept for those alone whose pods their namespace lets in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shardwright.cluster.resources import PODS, RESOURCE_QUOTAS, STATEFUL_SETS
from shardwright.controller.budget import Failed
from shardwright.controller.plan_broker import AdministratorFiles, PlanBroker
from shardwright.controller.planner_process import Memo
from shardwright.controller.queue import Key, Priority
from shardwright.controller.queue_workers import NotAllTakenError
from shardwright.hardware.inventory import KnownPods
from shardwright.reconcile.planner_work import Work
from shardwright.reconcile.publish import BARRED_SECONDS
from shardwright.reconcile.waiting import BACKFILL_SECONDS
from tests.support.builders_operator import LARGE, NAMESPACE, Parts, run, serving, synced
from tests.support.inline import Inline

Answer = TypeVar("Answer")

GPU = "requests.nvidia.com/gpu"
SMALL = {"id": "meta-llama/Llama-3.1-8B-Instruct"}


def allow(parts: Parts, gpus: int, used: int = 0, **spec: Any) -> None:
    """Let the namespace have so many GPUs."""
    status = {"hard": {GPU: str(gpus)}, "used": {GPU: str(used)}}
    spec = {"hard": {GPU: str(gpus)}, **spec}
    parts.api.put(
        RESOURCE_QUOTAS,
        {"metadata": {"namespace": NAMESPACE, "name": "team"}, "spec": spec, "status": status},
    )


def gpus_kept(parts: Parts) -> int:
    return sum(item.gpus for item in parts.cache.ledger.reservations())


def told(parts: Parts, key: Key, kind: str = "Ready") -> str:
    return str(parts.condition(key, kind)["reason"])


def test_a_model_whose_pods_are_never_let_in_holds_no_gpu_writes_nothing_and_names_the_quota() -> (
    None
):
    async def scenario() -> None:
        parts = await synced(nodes=4)
        allow(parts, 0)
        key = parts.add_model("hog", model=SMALL, replicas=20)
        await parts.reconcile(key)

        assert gpus_kept(parts) == 0
        assert not [
            place for place in parts.api.objects if place[0] in {"statefulsets", "configmaps"}
        ]
        condition = parts.condition(key)
        assert (condition["reason"], parts.condition(key, "Stalled")["status"]) == (
            "QuotaExceeded",
            "True",
        )
        assert condition["message"].startswith(
            f"ResourceQuota team allows 0 {GPU}, of which 0 are used"
        )
        assert parts.condition(key, "Planned")["status"] == "False"

    run(scenario())


@pytest.mark.long("95 models are planned")
def test_the_more_models_a_quota_keeps_out_the_later_each_is_looked_at_to_be_sure() -> None:
    async def scenario() -> None:
        parts = await synced()
        allow(parts, 0)
        keys = [parts.add_model(f"m{number}", model=SMALL) for number in range(95)]
        pauses = [again.seconds for key in keys if (again := await parts.reconcile(key))]
        assert (pauses[0], pauses[-1]) == (BARRED_SECONDS, 65.0)

    run(scenario())


def test_a_quota_that_is_raised_wakes_those_whom_it_kept_out_and_lets_them_run() -> None:
    async def scenario() -> None:
        parts = await synced()
        allow(parts, 8)
        key = parts.add_model("large", model=LARGE)
        await parts.reconcile(key)
        assert told(parts, key) == "QuotaExceeded"
        parts.queue.added.clear()

        allow(parts, 16)
        assert parts.asked == [key]
        await parts.reconcile(key)
        assert gpus_kept(parts) == 16
        assert parts.replicas("large") == [2]

    run(scenario())


def test_what_is_promised_to_one_model_no_other_of_the_namespace_gets() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=4)
        allow(parts, 24)
        first, second = (parts.add_model(name, model=LARGE) for name in ("first", "second"))
        await parts.reconcile(first)
        await parts.reconcile(second)
        assert (told(parts, second), gpus_kept(parts)) == ("QuotaExceeded", 16)

        parts.run_pods("first")
        allow(parts, 24, used=16)  # its pods are there now, and count once
        await parts.reconcile(second)
        assert told(parts, second) == "QuotaExceeded"
        allow(parts, 32, used=16)
        await parts.reconcile(second)
        assert gpus_kept(parts) == 32

    run(scenario())


def test_a_model_that_wants_more_replicas_than_the_quota_allows_goes_on_with_those_that_it_has() -> (
    None
):
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        allow(parts, 16, used=16)
        before = parts.groups("large")
        parts.change(key, replicas=2)
        await parts.reconcile(key)

        assert (told(parts, key), parts.groups("large"), gpus_kept(parts)) == (
            "Serving",
            before,
            16,
        )
        assert told(parts, key, "PartlyPlaced") == "QuotaExceeded"
        parts.change(key, replicas=1)
        await parts.reconcile(key)
        assert told(parts, key) == "Serving"

    run(scenario())


def test_a_quota_that_is_lowered_below_what_runs_ends_nothing_and_lets_a_group_move() -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        allow(parts, 0, used=16)
        await parts.reconcile(key)
        assert (told(parts, key), gpus_kept(parts)) == ("Serving", 16)

        parts.change_node("h100-1", unschedulable=True)
        parts.api.remove(PODS, NAMESPACE, "large-0-1")
        await parts.reconcile(key)
        assert "h100-1" not in parts.reserved_nodes()
        assert gpus_kept(parts) == 16

    run(scenario())


def test_a_quota_of_a_namespace_holds_up_nobody_elsewhere() -> None:
    async def scenario() -> None:
        parts = await synced()
        metadata = {"namespace": "elsewhere", "name": "none"}
        parts.api.put(RESOURCE_QUOTAS, {"metadata": metadata, "spec": {"hard": {GPU: "0"}}})
        key = parts.add_model("large", model=LARGE)
        await parts.reconcile(key)

        assert parts.replicas("large") == [2]
        assert parts.api.find(STATEFUL_SETS, NAMESPACE, "large-0")

    run(scenario())


def limited(**limits: int) -> str:
    """Return settings that let the namespace have no more than this."""
    return json.dumps({"policy": {"namespaceLimits": {NAMESPACE: limits}}})


async def with_limits(
    folder: Path, nodes: int = 4, worker: Inline | None = None, **limits: int
) -> Parts:
    """Return an operator whose administrator limits the namespace."""
    parts = await synced(nodes)
    parts.worker = worker or parts.worker
    file = folder / "settings.json"
    file.write_text(limited(**limits))
    parts.planner = PlanBroker(parts.cache, parts.worker, AdministratorFiles(settings=file))
    parts.planner.load_settings()
    parts.wire()
    return parts


def test_a_namespace_keeps_no_more_gpus_than_the_operator_lets_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        parts = await with_limits(tmp_path, gpus=24)
        first, second = (parts.add_model(name, model=LARGE) for name in ("first", "second"))
        await parts.reconcile(first)
        await parts.reconcile(second)

        assert (gpus_kept(parts), parts.replicas("second")) == (16, [])
        assert parts.condition(second)["message"] == (
            "policy.namespaceLimits.gpus of the operator allows this namespace 24, "
            "others keep 16, and the plan needs 16: 8 too many; "
            "ask for fewer replicas or GPUs, or have the limit raised in the chart"
        )
        parts.change(first, replicas=2)
        await parts.reconcile(first)
        assert (told(parts, first, "PartlyPlaced"), gpus_kept(parts)) == ("QuotaExceeded", 16)

    run(scenario())


QUOTAS: Mapping[str, Mapping[str, str]] = {
    "GPUs": {GPU: "0"},
    "GPUs, too few": {GPU: "8"},
    "pods": {"pods": "2"},
    "CPU": {"requests.cpu": "1"},
}


@pytest.mark.parametrize("limits", [{"gpus": 0}, {"gpus": 8, "waiting": 1, "models": 1}, *QUOTAS])
def test_a_model_whose_pods_are_never_let_in_claims_no_gpu_however_long_it_waits(
    tmp_path: Path, limits: Any
) -> None:
    async def scenario() -> None:
        if isinstance(limits, str):
            parts, hard = await synced(nodes=3), QUOTAS[limits]
            status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
            metadata = {"namespace": NAMESPACE, "name": "team"}
            quota = {"metadata": metadata, "spec": {"hard": hard}, "status": status}
            parts.api.put(RESOURCE_QUOTAS, quota)
        else:
            parts = await with_limits(tmp_path, nodes=3, **limits)
        parts.hold_gpus("h100-0", 1)
        key = parts.add_model("e", model=SMALL, parallelism={"tensor": 8, "pipeline": 3})
        await parts.reconcile(key)
        began = parts.cache.line[key].since
        parts.wait(BACKFILL_SECONDS + 1)
        await parts.reconcile(key)

        waiting = parts.cache.line[key]
        assert (told(parts, key), waiting.claim) == ("InsufficientCapacity", {})
        # Each try is several plans: for the next it waits anew.
        assert (waiting.since - began).total_seconds() > BACKFILL_SECONDS

    run(scenario())


def test_the_models_of_a_namespace_claim_together_what_it_may_have(tmp_path: Path) -> None:
    async def scenario() -> None:
        parts = await with_limits(tmp_path, nodes=4, gpus=16)
        for number in range(4):
            parts.hold_gpus(f"h100-{number}", 1, f"p{number}")
        keys = [parts.add_model(name, model=LARGE) for name in ("first", "second")]
        for _ in range(2):
            for key in keys:
                await parts.reconcile(key)
            parts.wait(BACKFILL_SECONDS + 1)

        assert [sum(parts.cache.line[key].claim.values()) for key in keys] == [16, 0]

    run(scenario())


def test_a_paused_model_keeps_the_gpus_of_those_groups_alone_that_are_there() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=4)
        new = parts.add_model("new", model=SMALL, replicas=16, paused=True)
        await parts.reconcile(new)
        assert (told(parts, new), gpus_kept(parts)) == ("Paused", 0)

        key = parts.add_model("begun", model=SMALL, replicas=32)
        await parts.reconcile(key)
        assert gpus_kept(parts) == 32
        for group in parts.groups("begun")[1:]:
            parts.api.remove(STATEFUL_SETS, NAMESPACE, group["metadata"]["name"])
        parts.change(key, paused=True)
        await parts.reconcile(key)
        assert (told(parts, key), gpus_kept(parts)) == ("Paused", 1)

        parts.change(key, paused=False)
        await parts.reconcile(key)
        assert gpus_kept(parts) == 32

    run(scenario())


def test_a_group_whose_name_somebody_has_keeps_no_gpu() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=4)
        name = {"namespace": NAMESPACE, "name": "large-0", "uid": "x", "labels": {}}
        parts.api.put(STATEFUL_SETS, {"metadata": name, "spec": {"replicas": 2}})
        key = parts.add_model("large", model=LARGE)
        with pytest.raises(NotAllTakenError):
            await parts.reconcile(key)
        await parts.reconcile(key)

        assert (told(parts, key), gpus_kept(parts)) == ("NameConflict", 0)

    run(scenario())


class Slow(Inline):
    """Answers in the next turn of the event loop, so that others look meanwhile."""

    async def ask(
        self,
        key: Key,
        priority: Priority,
        work: Work[Answer],
        memo: Memo[Answer | Failed],
        *,
        first: bool = False,
    ) -> Answer | Failed:
        await asyncio.sleep(0)
        return await super().ask(key, priority, work, memo, first=first)


@pytest.mark.parametrize("running", [0, 1])
def test_of_two_models_that_are_looked_at_together_one_finds_the_limit_of_gpus_used_up(
    tmp_path: Path, running: int
) -> None:
    async def scenario() -> None:
        limit = 16 * (2 * running + 1)
        parts = await with_limits(tmp_path, nodes=8, worker=Slow(), gpus=limit)
        keys = [
            parts.add_model(name, model=LARGE, replicas=running or 1)
            for name in ("first", "second")
        ]
        if running:
            for key in keys:
                await parts.reconcile(key)
                parts.run_pods(key[1])
                await parts.reconcile(key)
                parts.change(key, replicas=2)

        await asyncio.gather(*map(parts.reconcile, keys))

        assert sorted(len(parts.groups(name)) for _, name in keys) == [running, running + 1]
        assert gpus_kept(parts) == limit
        said = [said["reason"] for key in keys for said in parts.status(key)["conditions"]]
        assert "QuotaExceeded" in said

    run(scenario())


def test_of_more_models_than_the_operator_allows_a_namespace_the_younger_ones_are_not_planned(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        parts = await with_limits(tmp_path, models=1)
        young = parts.add_model("a", created="2026-01-02T13:00:00Z", model=SMALL)
        old = parts.add_model("b", created="2026-01-02T12:00:00Z", model=SMALL)
        await parts.reconcile(young)
        await parts.reconcile(old)

        assert (parts.replicas("a"), parts.replicas("b")) == ([], [1])
        assert parts.condition(young)["message"].startswith(
            "policy.namespaceLimits.models of the operator allows this namespace 1, 1 old"
        )

    run(scenario())


def test_no_more_plans_of_a_namespace_wait_for_gpus_than_the_operator_allows(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        parts = await with_limits(tmp_path, waiting=1)
        keys = [parts.add_model(name, model=LARGE) for name in ("a", "b", "c", "d")]
        for key in keys:
            await parts.reconcile(key)

        reasons = [told(parts, key) for key in keys]
        assert reasons[2:] == ["InsufficientCapacity", "QuotaExceeded"]
        assert parts.condition(keys[3])["message"].startswith(
            "policy.namespaceLimits.waiting of the operator allows"
        )

    run(scenario())


def test_pods_of_unwatched_namespaces_are_said_to_be_unknown_and_own_plans_count() -> None:
    async def scenario() -> None:
        parts = await synced()
        parts.cache.known_pods = KnownPods.WATCHED
        first, second = (parts.add_model(name, model=LARGE) for name in ("first", "second"))
        await parts.reconcile(first)
        await parts.reconcile(second)

        assert parts.condition(first, "Planned")["reason"] == "FreeCapacityUnknown"
        assert parts.condition(first, "Planned")["message"].startswith(
            "only pods of watched namespaces can be listed, so GPUs that"
        )
        assert "pods of namespaces that are not watched are not known" in " ".join(
            parts.status(first)["plan"]["warnings"]
        )
        assert parts.condition(second)["reason"] == "InsufficientCapacity"

    run(scenario())


@pytest.mark.parametrize(
    ("pods", "reason", "begins"),
    [
        (
            KnownPods.WATCHED,
            "FreeCapacityUnknown",
            (
                "namespace team-b of watchNamespaces cannot be read, so GPUs in use there count as "
                "free: give its Role back "
            ),
        ),
        (KnownPods.ALL, "Planned", ""),
    ],
)
def test_a_watched_namespace_that_was_never_read_is_named_and_stops_no_plan(
    pods: KnownPods, reason: str, begins: str
) -> None:
    async def scenario() -> None:
        parts = await synced()
        parts.cache.known_pods, parts.cache.unread = pods, frozenset({"team-b"})
        key = parts.add_model("first", model=LARGE)
        await parts.reconcile(key)

        planned = parts.condition(key, "Planned")
        assert (planned["status"], planned["reason"]) == ("True", reason)
        assert planned["message"].startswith(begins)
        assert ("team-b" in planned["message"]) is (pods is KnownPods.WATCHED)

    run(scenario())
