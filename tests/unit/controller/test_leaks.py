"""Nothing is kept for what is gone: models, nodes and pods come and go, and the operator stays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardwright.cluster.resources import NODES, PODS, SHARDED_MODELS
from shardwright.controller.queue import Key
from tests.support.builders_operator import LARGE, NAMESPACE, Parts, run, synced
from tests.support.census import places_of

MODELS = 80  # two of those that wait for GPUs; of every other kind there are ten
EACH = 8  # at a time: of every kind that is to be seen there is one
WAITS_EVERY = 5 * EACH


def roots(parts: Parts) -> dict[str, Any]:
    """Return all that outlives a reconcile."""
    names = (
        "cache",
        "queue",
        "metrics",
        "planner",
        "handlers",
        "snapshots",
        "resync",
        "reconciler",
    )
    return {name: getattr(parts, name) for name in names}


def kept_on_purpose(parts: Parts) -> tuple[object, ...]:
    """Return what is no memory of the operator, and what keeps a bounded number of texts."""
    recorder, plans = parts.reconciler._parts.recorder, parts.planner._plans
    return parts.api, parts.queue.added, recorder, plans, parts.planner._pooled


def remembered(parts: Parts, word: str) -> list[str]:
    return places_of(word, roots(parts), kept_on_purpose(parts))


async def lived(parts: Parts, number: int) -> Key:
    """Let a model live until it has nothing more to do: some serve, some wait for GPUs, some cannot
    be read.
    """
    kind = number % EACH
    spec: dict[str, Any] = {"model": {"id": "nobody/nothing"}} if kind == 1 else {}
    if number % WAITS_EVERY == 0:
        spec = {"model": LARGE, "replicas": 3}
    key = parts.add_model(f"mortal-{number}", **spec)
    await parts.reconcile(key)
    if kind in {2, 3}:
        parts.run_pods(f"mortal-{number}")
        await parts.reconcile(key)
    if kind == 2 and parts.groups(f"mortal-{number}"):
        parts.delete_pod(f"mortal-{number}-0-0")
        await parts.reconcile(key)
    return key


async def end(parts: Parts, key: Key, *, told: bool) -> None:
    """Delete a model, and everything that it owns; its watch tells of it, or misses it."""
    uid = parts.model(key)["metadata"]["uid"]
    parts.watching = told
    parts.api.remove(SHARDED_MODELS, *key)
    parts.watching = True
    parts.api.collect(uid)


async def reconciled(parts: Parts) -> None:
    """Look at all that was asked for, as workers would."""
    parts.wait(3600)
    while turn := parts.queue.take():
        again = await parts.reconcile(turn.key)
        parts.queue.forget(turn.key)
        parts.queue.done(turn.key)
        assert again is None or turn.key in parts.cache.resources


@pytest.mark.long("a hundred models come and go")
def test_of_models_that_came_and_went_nothing_is_left() -> None:
    """Of the ends of every other one its watch tells, of the others' the next LIST."""

    async def scenario() -> None:
        parts = await synced(nodes=1)
        for first in range(0, MODELS, EACH):
            parts.add_nodes(1, first=1 + first)
            keys = [await lived(parts, number) for number in range(first, first + EACH)]
            parts.hold_gpus(f"h100-{1 + first}", 1, f"mortal-pod-{first}")
            for number, key in enumerate(keys):
                await end(parts, key, told=number % 2 == 0)
            parts.api.remove(PODS, "them", f"mortal-pod-{first}")
            parts.api.remove(NODES, None, f"h100-{1 + first}")
        assert remembered(parts, "mortal")
        await parts.resync.run()
        await reconciled(parts)
        parts.handlers.wake_waiting()
        assert remembered(parts, "mortal") == []
        assert remembered(parts, "h100-1") == []

    asyncio.run(scenario())


def test_a_model_that_is_missed_while_it_is_looked_at_is_forgotten_all_the_same() -> None:
    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("mortal")

        async def miss_the_end(verb: str, plural: str) -> None:
            if (verb, plural) == ("create", "statefulsets") and parts.watching:
                await end(parts, key, told=False)
                await parts.resync.run()

        parts.api.before = miss_the_end
        await parts.reconcile(key)
        await reconciled(parts)
        for item in [place for place in parts.api.objects if place[1] == NAMESPACE]:
            parts.api.remove(parts.api._resources[item[0]], *item[1:])
        await reconciled(parts)
        assert remembered(parts, "mortal") == []

    run(scenario())
