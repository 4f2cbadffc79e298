"""The full comparison takes nothing away that came while it ran."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from shardwright.cluster.resources import CONFIG_MAPS, SHARDED_MODELS
from tests.support.builders_operator import LARGE, NAMESPACE, Parts


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


def test_a_model_that_may_plan_while_everything_is_listed_keeps_its_reservation() -> None:
    async def scenario() -> None:
        parts = Parts()
        parts.add_nodes(2)
        await parts.resync.run()
        looks: list[asyncio.Task[Any]] = []

        async def create_a_model(verb: str, plural: str) -> None:
            if (verb, plural) == ("list", "shardedmodels"):
                looks.append(asyncio.create_task(parts.look(parts.add_model("large", model=LARGE))))
                if not parts.planner.lock.locked():
                    await looks[0]

        parts.api.before = create_a_model
        await parts.resync.run()
        await looks[0]

        assert parts.reserved_nodes() == {"h100-0", "h100-1"}
        assert parts.view.interests[NAMESPACE, "large"].nodes == {"h100-0", "h100-1"}
        assert list(parts.view.models.values()) == [(NAMESPACE, "large")]

    run(scenario())


def test_a_record_that_is_not_found_takes_no_reservation_away() -> None:
    async def scenario() -> None:
        parts = Parts()
        parts.add_nodes(2)
        await parts.resync.run()
        key = parts.add_model("large", model=LARGE)
        await parts.look(key)
        record = parts.api.find(CONFIG_MAPS, NAMESPACE, "large-plan")
        assert record
        record["metadata"]["labels"] = {}  # somebody has removed what we list by

        await parts.resync.run()
        assert parts.reserved_nodes() == {"h100-0", "h100-1"}

    run(scenario())


def test_a_model_that_is_no_longer_deployed_or_gone_reserves_nothing() -> None:
    async def scenario() -> None:
        parts = Parts()
        parts.add_nodes(2)
        await parts.resync.run()
        first = parts.add_model("first")
        second = parts.add_model("second")
        for key in (first, second):
            await parts.look(key)
        assert len(list(parts.view.reserved())) == 2
        parts.change(first, mode="PlanOnly")
        parts.api.remove(SHARDED_MODELS, *second)

        assert await parts.resync.run() == [first]
        assert parts.reserved_nodes() == set()
        assert list(parts.view.models.values()) == [first]

    run(scenario())


def test_what_is_reserved_is_read_from_the_records_after_a_restart() -> None:
    async def scenario() -> None:
        before = Parts()
        before.add_nodes(2)
        await before.resync.run()
        await before.look(before.add_model("large", model=LARGE))

        after = Parts(api=before.api)
        await after.resync.run()
        assert set(after.view.reserved()) == set(before.view.reserved())

    run(scenario())
