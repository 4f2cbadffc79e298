"""Inline configs: read when they are to be resolved, one at a time, and never what is too large a
second time.
"""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest

from shardwright.api.free_form import CONFIG_MAX_BYTES, DEPTH_MAX, FREE_FORM
from shardwright.cluster.client import ApiError
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.cluster.sources import project_model
from shardwright.controller.cluster_cache import ClusterCache
from shardwright.controller.full_objects import ChangedError, FullModels
from shardwright.controller.plan_broker import PlanBroker
from shardwright.errors import InputError
from tests.support.builders_operator import NAMESPACE, Parts, run, synced
from tests.support.builders_resource import A_CONFIG, a_sharded_model
from tests.support.inline import Inline
from tests.support.memory_api import MemoryApi
from tests.support.scripted_api import Answer, serving

INLINE = {"id": "us/ours", "config": A_CONFIG}
TOO_LARGE = {"id": "us/ours", "config": {"note": "x" * CONFIG_MAX_BYTES}}
READ = "get shardedmodels/large"


LARGE_ARGS = {"compilation-config": {f"key-{number}": "x" * 4000 for number in range(64)}}


def test_arguments_and_variables_that_are_not_small_are_not_kept_and_read_where_they_count() -> (
    None
):
    async def scenario() -> None:
        parts = await synced()
        names = {"args": LARGE_ARGS, "env": [{"name": "A" * 100, "value": "\U0001f600" * 4096}]}
        for field, value in names.items():
            key = parts.add_model(field, engine={field: value})
            kept = project_model(parts.api.objects["shardedmodels", *key])["spec"]["engine"][field]
            assert not kept
            await parts.reconcile(key)
            assert parts.condition(key)["reason"] == "InvalidSpec"
            assert parts.api.requests.count(f"get shardedmodels/{field}") == 1

    run(scenario())


async def reconciled(model: Mapping[str, Any]) -> Parts:
    """Return what looks at a model of this kind twice have left."""
    parts = await synced()
    key = parts.add_model("large", model=model)
    for _ in range(2):
        await parts.reconcile(key)
    return parts


def asked(text: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(text)
    return content


def test_an_inline_config_is_read_once_and_the_cache_does_without_it() -> None:
    async def scenario() -> None:
        parts = await reconciled(INLINE)
        assert parts.cache.resources[NAMESPACE, "large"]["spec"]["model"] == {
            "id": "us/ours",
            "config": {},
        }
        assert parts.condition((NAMESPACE, "large"))["reason"] == "Progressing"
        assert parts.api.requests.count(READ) == 1

    run(scenario())


def test_a_config_that_is_too_large_is_named_without_the_worker_and_not_read_again() -> None:
    async def scenario() -> None:
        parts = await reconciled(TOO_LARGE)
        assert parts.condition((NAMESPACE, "large"))["reason"] == "InvalidSpec"
        assert parts.api.requests.count(READ) == 1

    run(scenario())


def test_a_model_of_the_catalogue_is_not_read_again() -> None:
    async def scenario() -> None:
        parts = await reconciled({"id": "meta-llama/Llama-3.1-8B-Instruct"})
        assert READ not in parts.api.requests

    run(scenario())


def test_whole_models_are_held_in_memory_one_at_a_time() -> None:
    async def scenario() -> None:
        api, there = MemoryApi(), 0

        async def take_time(verb: str, _plural: str) -> None:
            nonlocal there
            there += 1
            assert (verb, there) == ("get", 1)
            await asyncio.sleep(0)
            there -= 1

        kept = [
            api.put(SHARDED_MODELS, a_sharded_model(f"m-{number}", "models", model=INLINE))
            for number in range(3)
        ]
        api.before, whole = take_time, FullModels(api)
        found = await asyncio.gather(*(whole.of(project_model(item)) for item in kept))
        assert [asked(text)["spec"] for text in found] == [item["spec"] for item in kept]

    run(scenario())


class Busy(Inline):
    """Answers nobody; says when so many ask."""

    def __init__(self, many: int) -> None:
        super().__init__()
        self._missing = many
        self.asked_by_all = asyncio.Event()

    async def ask(self, *_: Any, **__: Any) -> Any:
        self._missing -= 1
        if not self._missing:
            self.asked_by_all.set()
        await asyncio.Event().wait()


def test_configs_that_wait_for_the_worker_wait_as_text() -> None:
    looks = 8
    config: dict[str, Any] = {
        "k": [{}] * 20_000
    }  # 80 KB of JSON, which are 1.4 MiB as Python values

    async def scenario() -> int:
        api, worker = MemoryApi(), Busy(looks)
        planner, whole = PlanBroker(ClusterCache(), worker), FullModels(api)
        stored = api.put(
            SHARDED_MODELS,
            a_sharded_model("m-0", "models", model={"id": "us/ours", "config": config}),
        )
        for number in range(1, looks):
            api.put(
                SHARDED_MODELS,
                {**stored, "metadata": {**stored["metadata"], "name": f"m-{number}"}},
            )
        tracemalloc.start()
        lives = [
            project_model(api.objects["shardedmodels", "models", f"m-{number}"])
            for number in range(looks)
        ]
        looking = [
            asyncio.create_task(planner.resolve(live, None, None, whole.of)) for live in lives
        ]
        await worker.asked_by_all.wait()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for task in looking:
            task.cancel()
        return held

    assert asyncio.run(scenario()) < looks * 100_000 + 2_000_000  # and one that has just been read


@pytest.mark.parametrize("change", ["changed", "gone"])
def test_a_model_that_has_changed_meanwhile_is_looked_at_again_instead(change: str) -> None:
    async def scenario() -> None:
        api = MemoryApi()
        live = project_model(api.put(SHARDED_MODELS, a_sharded_model("m", "models", model=INLINE)))
        if change == "gone":
            api.remove(SHARDED_MODELS, "models", "m")
        else:
            with api.changing(SHARDED_MODELS, "models", "m") as item:
                item["spec"] = {**item["spec"], "replicas": 2}
        with pytest.raises(ChangedError):
            await FullModels(api).of(live)

    run(scenario())


def test_a_read_that_fails_holds_up_no_other() -> None:
    async def scenario() -> None:
        api = MemoryApi()
        live = project_model(api.put(SHARDED_MODELS, a_sharded_model("m", "models", model=INLINE)))
        whole = FullModels(api)

        async def fail(_verb: str, _plural: str) -> None:
            api.before = MemoryApi().before
            raise ApiError(500, "", "no")

        api.before = fail
        with pytest.raises(ApiError):
            await whole.of(live)
        assert asked(await whole.of(live))["spec"]["model"] == INLINE

    run(scenario())


def nested(path: str, levels: int) -> bytes:
    """Return a model of which the field of a spec holds so many objects within each other, as the
    API server sends it.
    """
    metadata = {"namespace": "models", "name": "deep", "uid": "u", "generation": 1}
    spec: dict[str, Any] = {}
    inner = spec
    _, *steps, field = path.split(".")
    for step in steps:
        inner = inner.setdefault(step, {})
    inner[field] = "DEEP"
    text = json.dumps({"metadata": metadata, "spec": spec})
    return text.replace('"DEEP"', '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)).encode()


@pytest.mark.parametrize("path", FREE_FORM)
@pytest.mark.parametrize("levels", [DEPTH_MAX + 1, 900, 9_000])
def test_a_config_that_is_nested_too_deeply_is_named_however_deep_it_is_and_asked_for_once(
    path: str, levels: int
) -> None:
    async def scenario() -> None:
        with serving(Answer(body=nested(path, levels))) as (api, client):
            live = project_model(json.loads(nested(path, 1)))
            with pytest.raises(InputError) as error:
                await FullModels(client).of(live)
            assert [(item.code, item.path) for item in error.value.problems] == [("TooDeep", path)]
            assert len(api.requests) == 1

    run(scenario())


@pytest.mark.parametrize("path", FREE_FORM)
def test_a_config_of_the_deepest_nesting_allowed_is_read_whole_beside_deeper_fields(
    path: str,
) -> None:
    levels = DEPTH_MAX - path.count(".")  # a spec may have so many, with those above its config

    async def scenario() -> None:
        whole = nested(path, levels)
        fields = b'"managedFields":' + b"[" * 9_000 + b"]" * 9_000
        with serving(
            Answer(body=whole.replace(b'"generation": 1', b'"generation": 1,' + fields))
        ) as (_, client):
            found = await FullModels(client).of(project_model(json.loads(nested(path, 1))))
        assert asked(found)["spec"] == json.loads(whole)["spec"]

    run(scenario())
