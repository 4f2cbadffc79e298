"""The full comparison takes nothing away that came while it ran, and books first what runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shardwright.api.record import RECORD_KEY
from shardwright.cluster.client import ApiError
from shardwright.cluster.resources import CONFIG_MAPS, PODS, SHARDED_MODELS, Resource
from shardwright.reconcile.record_object import KIND, SIGNATURE_KEY, SigningKeys
from tests.support.builders_operator import LARGE, NAMESPACE, Parts, deployed, run, synced
from tests.support.builders_resource import a_sharded_model
from tests.support.memory_api import MemoryApi, nothing


def test_a_model_that_plans_while_everything_is_listed_keeps_its_gpus() -> None:
    async def scenario() -> None:
        parts = await synced()
        looks: list[asyncio.Task[Any]] = []

        async def create_a_model(verb: str, plural: str) -> None:
            if (verb, plural) == ("list", "shardedmodels"):
                looks.append(
                    asyncio.create_task(parts.reconcile(parts.add_model("large", model=LARGE)))
                )
                await looks[0]

        parts.api.before = create_a_model
        await parts.resync.run()

        assert parts.reserved_nodes() == {"h100-0", "h100-1"}
        assert parts.cache.interests((NAMESPACE, "large")).nodes == {"h100-0", "h100-1"}
        assert parts.cache.models == {(NAMESPACE, "large"): (NAMESPACE, "large")}

    run(scenario())


def test_a_list_that_is_older_than_an_event_undoes_nothing() -> None:
    async def scenario() -> None:
        parts, key = await deployed()

        async def change(verb: str, _plural: str) -> None:
            if verb == "list":
                parts.change(key, replicas=2)

        parts.api.before = change
        await parts.resync.run()
        assert parts.cache.resources[key]["spec"]["replicas"] == 2

    run(scenario())


def test_a_list_that_is_older_than_the_end_of_a_model_does_not_bring_it_back() -> None:
    async def scenario() -> None:
        parts, key = await deployed()
        pages = parts.api.pages

        async def old(*args: Any, **kwargs: Any) -> AsyncIterator[list[dict[str, Any]]]:
            async for page in pages(*args, **kwargs):
                parts.api.remove(SHARDED_MODELS, *key)
                yield page

        parts.api.pages = old  # type: ignore[method-assign]
        await parts.resync.run()
        assert parts.cache.resources == {}

    run(scenario())


def test_a_model_that_ends_while_the_plans_are_read_for_booking_is_not_booked() -> None:
    async def scenario() -> None:
        parts, key = await deployed()
        (plan,) = plans_of(parts, key)
        parts.snapshots.config_maps._drop(plan)

        async def end(verb: str, plural: str) -> None:
            if (verb, plural) == ("get", "configmaps"):
                parts.api.before = nothing
                parts.api.remove(SHARDED_MODELS, *key)

        parts.api.before = end
        await parts.resync.book()
        assert (parts.api.before, parts.reserved_nodes()) == (nothing, set())

    run(scenario())


def test_plans_that_are_not_signed_are_judged_one_in_a_turn_of_the_event_loop() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=8)
        keys = [
            parts.add_model(f"m{number}", model={"id": "meta-llama/Llama-3.1-8B-Instruct"})
            for number in range(8)
        ]
        for key in keys:
            await parts.reconcile(key)
        after = Parts(api=parts.api, keys=SigningKeys((b"another key",)))
        await after.resync.run()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await after.resync.book()
        counting.cancel()
        assert len(after.cache.ledger.owners()) == len(keys)
        assert turns >= len(keys)

    run(scenario())


def test_a_list_that_fails_takes_nothing_away() -> None:
    async def fail(verb: str, _plural: str) -> None:
        if verb == "list":
            raise ApiError(410, "Expired", "too old")

    async def scenario() -> None:
        parts, key = await deployed()
        parts.api.before = fail
        with pytest.raises(ApiError):
            await parts.resync.run()
        assert (set(parts.cache.resources), parts.reserved_nodes()) == ({key}, {"h100-0", "h100-1"})

    run(scenario())


def test_a_model_whose_end_no_event_has_told_gives_its_gpus_back_with_the_next_list() -> None:
    async def scenario() -> None:
        parts, key = await deployed()
        parts.watching = False
        parts.api.remove(SHARDED_MODELS, *key)
        await parts.resync.run()
        assert (parts.cache.resources, parts.cache.models, parts.asked[-1]) == ({}, {}, key)
        await parts.reconcile(key)
        assert parts.reserved_nodes() == set()
        assert parts.cache.freed == {"h100-0", "h100-1"}
        assert b'name="large"' not in parts.metrics.text()

    run(scenario())


def test_models_that_somebody_keeps_from_their_end_are_counted() -> None:
    async def scenario() -> None:
        parts, key = await deployed()
        parts.add_model("another")

        async def counted() -> float | None:
            await parts.resync.run()
            return parts.metrics.registry.get_sample_value("shardwright_models_being_deleted")

        assert await counted() == 0
        with parts.api.changing(SHARDED_MODELS, *key) as model:
            model["metadata"] |= {
                "deletionTimestamp": "2026-01-02T12:00:00Z",
                "finalizers": ["theirs.example/wait"],
            }
        await parts.reconcile(key)
        assert await counted() == 1
        parts.api.remove(SHARDED_MODELS, *key)
        assert await counted() == 0

    run(scenario())


def test_a_model_that_is_not_deployed_any_more_books_nothing() -> None:
    async def scenario() -> None:
        parts = await synced()
        first, second, third = (parts.add_model(name) for name in ("first", "second", "third"))
        for key in (first, second, third):
            await parts.reconcile(key)
        parts.change(first, mode="PlanOnly")
        parts.change(second, replicas=0)
        await parts.resync.book()
        assert parts.cache.ledger.owners() == {third}

    run(scenario())


def test_what_the_plans_of_record_keep_is_booked_anew_after_a_restart() -> None:
    async def scenario() -> None:
        before, _ = await deployed()
        before.run_pods("large")
        after = Parts(api=before.api)
        await after.sync()
        assert set(after.cache.ledger.reservations()) == set(before.cache.ledger.reservations())
        assert (
            after.cache.ledger.taken() == before.cache.ledger.taken() == {"h100-0": 8, "h100-1": 8}
        )

    run(scenario())


def test_a_plan_of_record_of_an_earlier_resource_of_the_name_books_nothing() -> None:
    async def scenario() -> None:
        parts, key = await deployed()
        parts.api.remove(SHARDED_MODELS, *key)
        parts.add_model("large", model=LARGE)
        after = Parts(api=parts.api)
        await after.sync()
        assert after.reserved_nodes() == set()

    run(scenario())


def test_a_standby_that_starts_to_lead_reads_no_plan_again_that_is_as_it_was() -> None:
    async def scenario() -> None:
        leader, key = await deployed()
        standby = Parts(api=leader.api)
        await standby.sync()
        read: list[str] = []

        async def note(verb: str, plural: str) -> None:
            if (verb, plural) == ("get", "configmaps"):
                read.append(plural)

        (plan,) = plans_of(standby, key)
        standby.snapshots.config_maps._drop(plan)
        standby.api.before = note
        await standby.resync.book()
        assert (read, standby.reserved_nodes()) == ([], {"h100-0", "h100-1"})

    run(scenario())


def test_a_standby_books_what_the_leader_has_planned_anew() -> None:
    async def scenario() -> None:
        leader = await synced(nodes=4)
        key = leader.add_model("large", model=LARGE)
        await leader.reconcile(key)
        standby = Parts(api=leader.api)
        await standby.sync()
        assert standby.reserved_nodes() == {"h100-0", "h100-1"}

        leader.change(key, replicas=2)
        await leader.reconcile(key)
        await standby.resync.book()
        assert standby.reserved_nodes() == {f"h100-{node}" for node in range(4)}

    run(scenario())


def test_a_standby_that_has_other_keys_now_judges_each_plan_anew() -> None:
    async def scenario() -> None:
        leader, key = await deployed()
        standby = Parts(api=leader.api)
        await standby.sync()
        (plan,) = plans_of(standby, key)
        standby.snapshots.config_maps._drop(plan)
        read: list[str] = []

        async def note(verb: str, plural: str) -> None:
            read.append(f"{verb} {plural}")

        standby.api.before = note
        standby.keys = SigningKeys((b"another key",))
        await standby.resync.book()
        assert "get configmaps" in read

    run(scenario())


def plans_of(parts: Parts, key: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the ConfigMaps with the plan of record of a model."""
    owned = parts.cache.store.config_maps((NAMESPACE, parts.model(key)["metadata"]["uid"]))
    return [item for item in owned if item[1] == f"{key[1]}-plan"]


@pytest.mark.parametrize(
    ("runs", "keeps", "nodes"),
    [(False, "old", {"h100-1": 8, "h100-2": 8}), (True, "young", {"h100-0": 8, "h100-1": 8})],
    ids=["none", "the younger one"],
)
def test_of_two_plans_for_one_node_the_older_models_counts_unless_only_the_younger_runs(
    keeps: str, nodes: dict[str, int], *, runs: bool
) -> None:
    """Of the younger one, planned on h100-0 and -1, a pod runs on h100-0; the older one is planned
    on h100-1 and -2.
    """

    async def scenario() -> None:
        parts = await synced(nodes=3)
        young = parts.add_model("young", created="2026-01-02T13:00:00Z", model=LARGE)
        await parts.reconcile(young)
        if runs:
            parts.run_pods("young")
            parts.api.remove(PODS, NAMESPACE, "young-0-1")
        old = parts.add_model("old", created="2026-01-02T12:00:00Z", model=LARGE)
        record = parts.api.find(CONFIG_MAPS, NAMESPACE, "young-plan")
        assert record
        uid = parts.model(old)["metadata"]["uid"]
        owner = {**record["metadata"]["ownerReferences"][0], "name": "old", "uid": uid}
        metadata = {"name": "old-plan", "namespace": NAMESPACE, "ownerReferences": [owner]}
        text = record["data"][RECORD_KEY].replace('["h100-0","h100-1"]', '["h100-1","h100-2"]')
        data = {RECORD_KEY: text, SIGNATURE_KEY: parts.keys.sign(KIND, uid, text)}
        parts.api.put(CONFIG_MAPS, {"metadata": metadata, "data": data})

        after = Parts(api=parts.api)
        await after.sync()

        assert after.cache.ledger.owners() == {(NAMESPACE, keeps)}
        assert after.cache.ledger.taken() == nodes

    run(scenario())


def test_a_plan_of_record_that_cannot_be_read_ends_the_booking_and_is_no_evidence() -> None:
    async def fail(verb: str, plural: str) -> None:
        if (verb, plural) == ("get", "configmaps"):
            raise ApiError(503, "", "away")

    async def scenario() -> None:
        before, _ = await deployed()
        after = Parts(api=before.api)
        before.api.before = fail
        with pytest.raises(ApiError):
            await after.sync()
        assert not after.cache.synced

    run(scenario())


def test_nothing_is_planned_before_the_plans_of_record_are_booked() -> None:
    async def scenario() -> None:
        parts = Parts()
        parts.add_nodes(2)
        key = parts.add_model("large", model=LARGE)
        again = await parts.reconcile(key)
        assert again is not None
        assert again.seconds == 1
        assert parts.condition(key)["reason"] == "ClusterReading"
        assert parts.groups("large") == []

    run(scenario())


def test_of_some_namespaces_one_that_is_not_ours_to_see_keeps_its_models_and_holds_up_no_other() -> (
    None
):
    class Closed(MemoryApi):
        """An API server that lets nobody list the models of one namespace."""

        async def pages(
            self, resource: Resource, namespace: str | None = None, **options: Any
        ) -> AsyncIterator[list[Any]]:
            if namespace == "closed":
                raise ApiError(403, "Forbidden", "not yours")
            async for page in super().pages(resource, namespace, **options):
                yield page

    async def scenario() -> None:
        parts = Parts(api=Closed())
        key, listed = (parts.add_model("large", model=LARGE), a_sharded_model("listed", "closed"))
        parts.api.put(SHARDED_MODELS, a_sharded_model("unwatched", "elsewhere"))
        parts.cache.resources.clear()
        parts.cache.take_resource(listed)
        parts.cache.namespaces = ("closed", NAMESPACE)

        await parts.resync.run()

        assert set(parts.cache.resources) == {key, ("closed", "listed")}
        assert parts.metrics.last_sync.labels("shardedmodels")._value.get() == 0

    run(scenario())
