"""Pods say whatever their tenant has written: what a reconcile reads because of it is bounded."""

from __future__ import annotations

import asyncio

import pytest

from shardwright.cluster.resources import PODS
from shardwright.controller.fetches import JOB_NAME, _left
from shardwright.controller.queue import Priority
from shardwright.controller.snapshots import NAMED_MAX
from tests.support.builders_operator import NAMESPACE, deployed, run
from tests.support.builders_reconcile import pod
from tests.support.memory_api import MemoryApi


def test_sets_that_pods_name_are_read_one_at_a_time_and_no_more_than_a_look_takes() -> None:
    """Whoever makes a StatefulSet of 1.4 MB has it read whole, which is 30 MB as Python values."""

    async def scenario() -> None:
        parts, key = await deployed()
        for number in range(NAMED_MAX + 50):
            forged = pod(f"forged{number}-0", set_uid=f"uid-{number}")
            forged["metadata"]["labels"]["shardwright.io/model"] = key[1]
            parts.api.put(PODS, forged)
        reads: list[int] = []
        under_way = 0

        async def read(verb: str, plural: str) -> None:
            nonlocal under_way
            if (verb, plural) == ("get", "statefulsets"):
                under_way += 1
                reads.append(under_way)
                await asyncio.sleep(0)
                under_way -= 1

        parts.api.before = read
        await parts.reconcile_again(key)
        assert reads == [1] * NAMED_MAX

    run(scenario())


def test_the_time_for_a_read_begins_with_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waited for slow reads of other namespaces would have none left."""

    async def scenario() -> None:
        parts, (namespace, _) = await deployed()
        begun: list[float] = []

        def until(deadline: float) -> MemoryApi:
            begun.append(deadline)
            return parts.api

        monkeypatch.setattr(parts.api, "until", until)
        async with parts.snapshots._naming.turn(("other", "x"), Priority.NEW):
            read = parts.snapshots._named(namespace, [("StatefulSet", "x")])
            task = asyncio.create_task(read)
            await asyncio.sleep(0)
            assert begun == []
        assert (await task, len(begun)) == ({}, 1)

    run(scenario())


def test_of_pods_that_carry_the_label_of_a_job_the_messages_of_its_own_are_kept() -> None:
    api = MemoryApi()
    for name, uid in (("forged", "other"), ("own", "job")):
        made = pod(f"{name}-0", set_uid=uid, containerStatuses=[_ended(name)])
        made["metadata"]["labels"][JOB_NAME] = "fetch"
        made["spec"]["containers"] = [{"env": [{}] * 10}]
        api.put(PODS, made)

    async def scenario() -> None:
        assert await _left(api, NAMESPACE, "fetch", "job") == "own"

    run(scenario())


def _ended(message: str) -> dict[str, object]:
    return {"state": {"terminated": {"message": message}}}
