"""The plan of record lies where tenants write: what they make of it is not believed, and what runs goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shardwright.api.record import RECORD_KEY
from shardwright.cluster.resources import CONFIG_MAPS, SHARDED_MODELS
from shardwright.controller.queue import Key
from shardwright.reconcile.record_object import SIGNATURE_KEY
from shardwright.reconcile.signing import SigningKeys
from tests.harness.api import Manifest
from tests.support.builders_operator import NAMESPACE, Parts, run, serving

SMALL = {"id": "meta-llama/Llama-3.1-8B-Instruct"}
PLAN = "patch configmaps/large-plan"
Edit = Callable[[Manifest], None]


def stored(parts: Parts, name: str = "large") -> Manifest:
    found = parts.api.find(CONFIG_MAPS, NAMESPACE, f"{name}-plan")
    assert found
    return dict(found["data"])


def text_of(data: Manifest) -> Manifest:
    """Return the plan that the text of a record says."""
    plan: Manifest = json.loads(data[RECORD_KEY])["plan"]
    return plan


def edited(change: Edit) -> Edit:
    """Return an edit of what the text of a record says."""

    def edit(data: Manifest) -> None:
        record = json.loads(data[RECORD_KEY])
        change(record["plan"])
        data[RECORD_KEY] = json.dumps(record)

    return edit


def drop_signature(data: Manifest) -> None:
    del data[SIGNATURE_KEY]


EDITS: dict[str, Edit] = {
    "other nodes": edited(lambda plan: plan.update(groups=[["h100-2", "h100-3"]])),
    "more groups": edited(lambda plan: plan.update(groups=[*plan["groups"], ["h100-2", "h100-3"]])),
    "2,147,483,647 pods a group": edited(lambda plan: plan.update(nodes_per_replica=2**31 - 1)),
    "a device of somebody else": edited(lambda plan: plan.update(resource="vendor.example/anything")),
    "arguments of the engine": edited(lambda plan: plan.update(max_sequences=-1)),
    "10,000,000 ranks": edited(lambda plan: plan["layout"].update(tensor=10**7)),
    "no signature": drop_signature,
    "no text": lambda data: data.clear(),
    "no JSON": lambda data: data.update({RECORD_KEY: "[" * 100_000}),
    "a signature of nobody": lambda data: data.update({SIGNATURE_KEY: "0" * 64}),
}


async def settled(parts: Parts, key: Key) -> list[str]:
    """Look until nothing is written any more, and return what was: status and events apart."""
    written: list[str] = []
    while True:
        parts.api.written.clear()
        await parts.look(key)
        found = [item for item in parts.api.written if "shardedmodels/" not in item and "events/" not in item]
        if not found:
            return written
        written += found


def tamper(parts: Parts, edit: Edit, name: str = "large") -> None:
    with parts.api.changing(CONFIG_MAPS, NAMESPACE, f"{name}-plan") as content:
        edit(content["data"])


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_record_is_set_right_at_once_and_nothing_else_is_written(edit: Edit) -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        before, groups = stored(parts), parts.groups("large")
        tamper(parts, edit)

        assert set(await settled(parts, key)) == {PLAN}

        assert (stored(parts), parts.groups("large")) == (before, groups)
        condition = parts.condition(key, "RecordRefused")
        assert (condition["status"], condition["reason"]) == ("True", "PlanRecordRefused")
        assert condition["message"].startswith("ConfigMap large-plan ")
        assert parts.condition(key)["reason"] == "Serving"
        parts.wait(601)
        await settled(parts, key)
        assert parts.condition(key, "RecordRefused")["status"] == "False"

    run(scenario())


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_operator_that_starts_plans_an_edited_record_anew_around_what_runs(edit: Edit) -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        before, groups = stored(parts), parts.groups("large")
        tamper(parts, edit)

        after = Parts(api=parts.api)
        await after.sync()
        assert set(await settled(after, key)) == {PLAN}

        assert (text_of(stored(after)), after.groups("large")) == (text_of(before), groups)
        assert json.loads(stored(after)[RECORD_KEY])["serial"] == 2
        assert after.reserved_nodes() == {"h100-0", "h100-1"}

    run(scenario())


@pytest.mark.parametrize("starts_anew", [False, True])
def test_an_earlier_record_of_the_same_resource_that_is_put_back_is_not_believed(*, starts_anew: bool) -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        first = stored(parts)
        parts.change(key, replicas=2)
        await settled(parts, key)
        second = stored(parts)
        assert parts.status(key)["recordSerial"] == 2
        tamper(parts, lambda data: data.update(first))

        after = Parts(api=parts.api) if starts_anew else parts
        if starts_anew:
            await after.sync()
        await settled(after, key)

        assert text_of(stored(after))["groups"] == text_of(second)["groups"]
        assert "is number 1, and the newest is number 2" in after.condition(key, "RecordRefused")["message"]

    run(scenario())


def test_the_record_of_another_model_is_not_believed() -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        other = parts.add_model("small", model=SMALL)
        await settled(parts, other)
        before = stored(parts)
        tamper(parts, lambda data: data.update(stored(parts, "small")))
        await settled(parts, key)

        assert stored(parts) == before
        assert parts.condition(key, "RecordRefused")["status"] == "True"

    run(scenario())


def test_a_record_that_was_there_before_its_resource_is_planned_over() -> None:
    async def scenario() -> None:
        parts, _ = await serving(nodes=4)
        key = parts.add_model("late", model=SMALL)
        owner = {"apiVersion": "shardwright.io/v1alpha1", "kind": "ShardedModel", "name": "late", "controller": True}
        metadata = {"name": "late-plan", "namespace": NAMESPACE}
        owners = [{**owner, "uid": parts.model(key)["metadata"]["uid"]}]
        text = (Path(__file__).parents[2] / "data" / "records" / "v1" / "one_gpu.json").read_text()
        parts.api.put(CONFIG_MAPS, {"metadata": {**metadata, "ownerReferences": owners}, "data": {RECORD_KEY: text}})

        await settled(parts, key)

        assert text_of(stored(parts, "late"))["groups"][0][0].startswith("h100-")

    run(scenario())


def test_a_new_key_signs_all_records_anew_and_restarts_nothing() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        before, groups = stored(parts), parts.groups("large")
        parts.keys = SigningKeys((b"the new key", *parts.keys.secrets))
        assert set(await settled(parts, key)) == {PLAN}

        parts.keys = SigningKeys((b"the new key",))
        assert await settled(parts, key) == []
        after = stored(parts)
        assert (after[RECORD_KEY], parts.groups("large")) == (before[RECORD_KEY], groups)
        assert after[SIGNATURE_KEY] != before[SIGNATURE_KEY]
        assert parts.condition(key, "RecordRefused")["status"] == "False"

    run(scenario())


async def of_an_earlier_release(edit: Edit = lambda _: None) -> tuple[Parts, Key, Manifest]:
    """Return an operator that finds a model as a release without signatures has left it, and the record that it had."""
    parts, key = await serving(nodes=4)
    before = stored(parts)

    def unsign(data: Manifest) -> None:
        record = json.loads(data[RECORD_KEY])
        del record["serial"], data[SIGNATURE_KEY]
        data[RECORD_KEY] = json.dumps(record)
        edit(data)

    tamper(parts, unsign)
    with parts.api.changing(SHARDED_MODELS, *key) as model:
        del model["status"]["recordSerial"]
    after = Parts(api=parts.api)
    await after.sync()
    return after, key, before


def test_a_record_without_a_signature_is_taken_over_once_where_it_agrees_with_all_else() -> None:
    async def scenario() -> None:
        parts, key, before = await of_an_earlier_release()
        groups = parts.groups("large")
        assert parts.reserved_nodes() == {"h100-0", "h100-1"}
        assert set(await settled(parts, key)) == {PLAN}

        assert (stored(parts), parts.groups("large")) == (before, groups)
        assert parts.condition(key, "RecordRefused")["status"] == "False"
        tamper(parts, drop_signature)
        await settled(parts, key)
        assert "is not signed" in parts.condition(key, "RecordRefused")["message"]

    run(scenario())


DISAGREE = {
    name: edit for name, edit in EDITS.items() if name not in {"no signature", "no text", "no JSON", "arguments of the engine"}
}


@pytest.mark.parametrize("edit", DISAGREE.values(), ids=DISAGREE)
def test_a_record_without_a_signature_that_contradicts_anything_is_planned_anew_around_what_runs(edit: Edit) -> None:
    async def scenario() -> None:
        parts, key, before = await of_an_earlier_release(edit)
        groups = parts.groups("large")
        await settled(parts, key)

        assert (text_of(stored(parts)), parts.groups("large")) == (text_of(before), groups)
        assert parts.condition(key, "RecordRefused")["status"] == "True"

    run(scenario())


def test_without_a_key_a_record_is_believed_where_it_agrees_with_all_else() -> None:
    async def scenario() -> None:
        before, key = await serving(nodes=4)
        parts = Parts(api=before.api, keys=SigningKeys())
        await parts.sync()
        await settled(parts, key)
        kept = stored(parts)
        assert kept[SIGNATURE_KEY] == ""
        assert "recordSerial" not in parts.status(key)

        tamper(parts, EDITS["more groups"])
        await settled(parts, key)
        assert text_of(stored(parts)) == text_of(kept)

    run(scenario())


def test_a_key_that_comes_later_restarts_nothing() -> None:
    async def scenario() -> None:
        before, key = await serving(nodes=4)
        without = Parts(api=before.api, keys=SigningKeys())
        await without.sync()
        await settled(without, key)
        groups = without.groups("large")

        parts = Parts(api=before.api)
        await parts.sync()
        assert set(await settled(parts, key)) == {PLAN}
        assert parts.groups("large") == groups
        assert parts.condition(key, "RecordRefused")["status"] == "False"

    run(scenario())
