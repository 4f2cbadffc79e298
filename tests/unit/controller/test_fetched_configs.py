"""A config that was read from the hub lies where tenants write: what they make of it is not
believed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shardwright.cluster.client import ApiError
from shardwright.cluster.resources import CONFIG_MAPS, JOBS
from shardwright.controller.plan_broker import AdministratorFiles, PlanBroker
from shardwright.controller.queue import Key
from shardwright.modelspec.checkpoint_files import CheckpointFiles
from shardwright.reconcile.fetched import LATER_SECONDS, SIGNATURE, fetched_config
from shardwright.reconcile.record_object import SigningKeys
from shardwright.rendering.deployment import Owner
from tests.harness.api import Manifest
from tests.support.builders_deployment import a_hub_fetch
from tests.support.builders_model import a_config
from tests.support.builders_operator import NAMESPACE, Parts, run, synced
from tests.support.keys import KEYS

FETCH = a_hub_fetch("acme/ours")
NO_KEYS = SigningKeys()
BUILT_IN = "meta-llama/Llama-3.1-8B-Instruct"
TEXT = json.dumps(a_config())
Edit = Callable[[Manifest], None]


def owner_of(parts: Parts, key: Key) -> Owner:
    return Owner(name=key[1], namespace=NAMESPACE, uid=parts.model(key)["metadata"]["uid"])


def kept(parts: Parts, key: Key, keys: SigningKeys = KEYS, model: str = FETCH.model) -> Manifest:
    """Return the ConfigMap of a config as the operator has written it."""
    found = CheckpointFiles(files={"config.json": TEXT}, commit="1" * 40, tensor_bytes=None)
    return fetched_config(owner_of(parts, key), replace(FETCH, model=model), found, keys)


async def believed(parts: Parts, key: Key) -> str | None:
    return await parts.snapshots.config_text(key, parts.model(key))


def no_signature(content: Manifest) -> None:
    del content["metadata"]["annotations"][SIGNATURE]


def another_config(content: Manifest) -> None:
    content["data"]["config.json"] = json.dumps(a_config(num_hidden_layers=2))


def a_file_beside(content: Manifest) -> None:
    content["data"]["model.safetensors.index.json"] = '{"metadata": {"total_size": 1}}'


def nobody_controls_it(content: Manifest) -> None:
    del content["metadata"]["ownerReferences"]


def another_controls_it(content: Manifest) -> None:
    content["metadata"]["ownerReferences"][0]["uid"] = "another"


FORGED = (no_signature, another_config, a_file_beside, nobody_controls_it, another_controls_it)


def test_what_the_operator_has_signed_is_the_config_even_where_a_catalogue_has_the_id() -> None:
    async def scenario() -> None:
        parts = await synced()
        for name, model in (("ours", FETCH.model), ("known", BUILT_IN)):
            key = parts.add_model(name, model={"id": model})
            parts.api.put(CONFIG_MAPS, kept(parts, key, model=model))
            assert await believed(parts, key) == TEXT

    run(scenario())


@pytest.mark.parametrize("forge", FORGED)
def test_what_somebody_else_has_written_is_no_config(forge: Edit) -> None:
    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("ours", model={"id": FETCH.model})
        content = kept(parts, key)
        forge(content)
        parts.api.put(CONFIG_MAPS, content)

        assert await believed(parts, key) is None

    run(scenario())


def test_a_config_that_was_signed_for_another_resource_or_name_is_none_of_this_one() -> None:
    async def scenario() -> None:
        parts = await synced()
        key, other = (
            parts.add_model(name, model={"id": FETCH.model}) for name in ("ours", "theirs")
        )
        mine, theirs = kept(parts, key), kept(parts, other)
        of_another_id = kept(parts, key, model="acme/other")
        for signed in (theirs, of_another_id):
            content = {
                **signed,
                "metadata": {**mine["metadata"], "annotations": signed["metadata"]["annotations"]},
            }
            parts.api.put(CONFIG_MAPS, content)
            assert await believed(parts, key) is None

    run(scenario())


def test_without_keys_its_owner_counts_and_the_catalogue_goes_before_it() -> None:
    async def scenario() -> None:
        parts = await synced()
        parts.keys = NO_KEYS
        ours, known = (
            parts.add_model("ours", model={"id": FETCH.model}),
            parts.add_model("known", model={"id": BUILT_IN}),
        )
        for key, model in ((ours, FETCH.model), (known, BUILT_IN)):
            parts.api.put(CONFIG_MAPS, kept(parts, key, NO_KEYS, model))
        assert (await believed(parts, ours), await believed(parts, known)) == (TEXT, None)

        stranger = kept(parts, ours, NO_KEYS)
        another_controls_it(stranger)
        parts.api.put(CONFIG_MAPS, stranger)
        assert await believed(parts, ours) is None

    run(scenario())


def test_a_config_map_that_the_spec_names_is_input_whoever_wrote_it() -> None:
    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("ours", model={"id": FETCH.model, "configMapRef": {"name": "mine"}})
        parts.api.put(
            CONFIG_MAPS,
            {"metadata": {"namespace": NAMESPACE, "name": "mine"}, "data": {"config.json": TEXT}},
        )

        assert await believed(parts, key) == TEXT

    run(scenario())


def test_a_config_map_of_somebody_else_plans_no_running_model_anew() -> None:
    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("known", model={"id": BUILT_IN})
        await parts.reconcile(key)
        before = parts.api.find(CONFIG_MAPS, NAMESPACE, "known-plan")
        forged = kept(parts, key, NO_KEYS, BUILT_IN)
        another_config(forged)
        parts.api.put(CONFIG_MAPS, forged)

        await parts.reconcile_again(key)

        assert parts.api.find(CONFIG_MAPS, NAMESPACE, "known-plan") == before

    run(scenario())


async def that_reads(folder: Path) -> Parts:
    """Return an operator that has configs read from the hub."""
    parts = await synced()
    file = folder / "settings.json"
    file.write_text(json.dumps({"configFetch": {"enabled": True}}))
    parts.planner = PlanBroker(parts.cache, parts.worker, AdministratorFiles(settings=file))
    parts.planner.fetcher = FETCH.fetcher
    parts.planner.reload()
    parts.wire()
    return parts


def test_a_config_map_that_is_no_config_of_ours_is_said_and_no_hub_is_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        parts = await that_reads(tmp_path)
        key = parts.add_model("ours", model={"id": FETCH.model})
        stranger = kept(parts, key)
        no_signature(stranger)
        parts.api.put(CONFIG_MAPS, stranger)

        await parts.reconcile(key)

        name = stranger["metadata"]["name"]
        sentence = (
            f"spec.model.id: ConfigMap {name} is there and is not what the operator has read; "
            "delete it"
        )
        assert (parts.condition(key)["reason"], parts.condition(key)["message"]) == (
            "NameConflict",
            sentence,
        )
        assert [item for item in parts.api.written if "jobs/" in item] == []

    run(scenario())


async def with_a_job(folder: Path) -> tuple[Parts, Key]:
    """Return an operator with a model whose config a Job has read for some time."""
    parts = await that_reads(folder)
    key = parts.add_model("ours", model={"id": FETCH.model})
    await parts.reconcile(key)
    (place,) = (place for place in parts.api.objects if place[0] == JOBS.plural)
    with parts.api.changing(JOBS, place[1], place[2]) as job:
        job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    parts.api.requests.clear()
    return parts, key


REFUSED = {
    "jobs forbidden": ("get", "jobs", 403, "ModelUnknown"),
    "pods forbidden": ("list", "pods", 403, "ModelUnknown"),
    "jobs not answered": ("get", "jobs", 500, "ApiUnavailable"),
    "pods not answered": ("list", "pods", 500, "ApiUnavailable"),
}


@pytest.mark.parametrize(("verb", "plural", "code", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_job_that_cannot_be_looked_at_costs_no_look(
    verb: str, plural: str, code: int, reason: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        parts, key = await with_a_job(tmp_path)

        async def refuse(asked: str, of: str) -> None:
            if (asked, of) == (verb, plural):
                raise ApiError(code, "Refused", "no")

        parts.api.before = refuse
        await parts.reconcile(key)

        assert parts.condition(key)["reason"] == reason

    run(scenario())


def test_no_job_of_a_paused_model_is_looked_at(tmp_path: Path) -> None:
    async def scenario() -> None:
        parts, key = await with_a_job(tmp_path)
        parts.change(key, paused=True)

        again = await parts.reconcile(key)

        assert [item for item in parts.api.requests if "jobs" in item] == []
        assert parts.condition(key, "Planned")["reason"] == "ModelUnknown"
        assert again is None or again.seconds > LATER_SECONDS

    run(scenario())


def test_a_config_of_an_earlier_spec_goes_once_the_spec_as_it_is_has_a_plan() -> None:
    async def scenario() -> None:
        parts = await synced()
        key = parts.add_model("ours", model={"id": FETCH.model})
        for model in (FETCH.model, "acme/other"):
            parts.api.put(CONFIG_MAPS, kept(parts, key, model=model))
        await settled(parts, key)
        assert configs(parts) == [kept(parts, key)["metadata"]["name"]]

        parts.change(key, model={"id": "acme/other"})
        await settled(parts, key)
        assert configs(parts) == [
            kept(parts, key)["metadata"]["name"]
        ]  # nobody has read the other one

        parts.api.put(CONFIG_MAPS, kept(parts, key, model="acme/other"))
        await settled(parts, key)
        assert configs(parts) == [kept(parts, key, model="acme/other")["metadata"]["name"]]

    run(scenario())


def configs(parts: Parts) -> list[str]:
    names = (name for plural, _, name in parts.api.objects if plural == CONFIG_MAPS.plural)
    return [name for name in names if "-config-" in name]


async def settled(parts: Parts, key: Key) -> None:
    for _ in range(3):
        await parts.reconcile_again(key)
