"""The plan of record lies where tenants write: what they make of it is not believed, and what runs
goes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from shardwright.api.record import RECORD_KEY
from shardwright.cluster.handover import Change
from shardwright.cluster.resources import CONFIG_MAPS, NODES, PODS, SHARDED_MODELS, STATEFUL_SETS
from shardwright.controller.queue import Key
from shardwright.reconcile.record_object import SIGNATURE_KEY, SigningKeys
from tests.harness.api import Manifest
from tests.support.builders_operator import NAMESPACE, Parts, run, serving

SMALL = {"id": "meta-llama/Llama-3.1-8B-Instruct"}
PLAN = "patch configmaps/large-plan"
SOUGHT = {
    "group": 0,
    "named": [],
    "terms": [{"labels": [["pool", "theirs"]], "apart_from": []}],
    "number": 7,
}
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


def edited_around(change: Edit) -> Edit:
    """Return an edit of what a record says beside the plan."""

    def edit(data: Manifest) -> None:
        record = json.loads(data[RECORD_KEY])
        change(record)
        data[RECORD_KEY] = json.dumps(record)

    return edit


def drop_signature(data: Manifest) -> None:
    del data[SIGNATURE_KEY]


EDITS: dict[str, Edit] = {
    "other nodes": edited(lambda plan: plan.update(groups=[["h100-2", "h100-3"]])),
    "more groups": edited(lambda plan: plan.update(groups=[*plan["groups"], ["h100-2", "h100-3"]])),
    "2,147,483,647 pods a group": edited(lambda plan: plan.update(nodes_per_replica=2**31 - 1)),
    "a device beside the GPUs": edited(
        lambda plan: plan.update(rdma=[["vendor.example/anything", 8]])
    ),
    "a claim": edited(lambda plan: plan.update(compute_domain=True)),
    "a device of somebody else": edited(
        lambda plan: plan.update(resource="vendor.example/anything")
    ),
    "arguments of the engine": edited(lambda plan: plan.update(max_sequences=1)),
    "10,000,000 ranks": edited(lambda plan: plan["layout"].update(tensor=10**7)),
    "a later generation": edited_around(lambda record: record.update(generations=[5])),
    "nodes that were sought": edited_around(lambda record: record.update(sought=[SOUGHT])),
    "no signature": drop_signature,
    "no text": lambda data: data.clear(),
    "no JSON": lambda data: data.update({RECORD_KEY: "[" * 100_000}),
    "a signature of nobody": lambda data: data.update({SIGNATURE_KEY: "0" * 64}),
}


ANOTHER_SECRET = {"create secrets/large-token", "patch statefulsets/large-0"}
"""What another key has written beside the record: the token under a name that follows from it, for
the next restart.
"""


def plain(written: Iterable[str]) -> set[str]:
    """Return what was written, the names of Secrets without what nobody can foresee."""
    return {re.sub("-[0-9a-f]{32}$", "", item) for item in written}


def running(parts: Parts) -> tuple[list[int], list[str]]:
    """Return the replicas of the groups, and the uids of the pods."""
    pods = [
        item["metadata"]["uid"]
        for (plural, *_), item in parts.api.objects.items()
        if plural == PODS.plural
    ]
    return parts.replicas("large"), sorted(pods)


async def settled(parts: Parts, key: Key) -> list[str]:
    """Look until nothing is written any more, and return what was: status and events apart."""
    written: list[str] = []
    while True:
        parts.api.written.clear()
        await parts.reconcile(key)
        found = [
            item
            for item in parts.api.written
            if "shardedmodels/" not in item and "events/" not in item
        ]
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


CONTENT = {
    name: edit
    for name, edit in EDITS.items()
    if name not in {"no signature", "a signature of nobody"}
}


@pytest.mark.parametrize("edit", CONTENT.values(), ids=CONTENT)
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
def test_an_earlier_record_of_the_same_resource_that_is_put_back_is_not_believed(
    *, starts_anew: bool
) -> None:
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
        assert (
            "is number 1, and the newest is number 2"
            in after.condition(key, "RecordRefused")["message"]
        )

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


async def lost_key(parts: Parts) -> Parts:
    """Return an operator that starts with another key than the one that has signed everything."""
    after = Parts(api=parts.api, keys=SigningKeys((b"another key",)))
    await after.sync()
    return after


def test_with_a_key_that_is_lost_what_runs_stays_as_it_is_and_its_record_is_signed_anew() -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        before, pods = stored(parts), running(parts)
        after = await lost_key(parts)
        assert after.reserved_nodes() == {"h100-0", "h100-1"}

        assert plain(await settled(after, key)) == {PLAN} | ANOTHER_SECRET

        assert (stored(after)[RECORD_KEY], running(after)) == (before[RECORD_KEY], pods)
        assert stored(after)[SIGNATURE_KEY] != before[SIGNATURE_KEY]
        condition = after.condition(key, "RecordRefused")
        assert (condition["status"], condition["reason"]) == ("True", "PlanRecordRefused")
        assert "has a signature that is not the operator's" in condition["message"]
        assert after.condition(key)["reason"] == "Serving"

    run(scenario())


@pytest.mark.parametrize("edit", CONTENT.values(), ids=CONTENT)
def test_with_a_key_that_is_lost_nothing_that_runs_ends_for_a_record_that_contradicts_anything(
    edit: Edit,
) -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        groups = parts.groups("large")
        tamper(parts, edit)
        lose_a_gpu(parts, "h100-1")  # so that a plan made anew would be another one
        edited_record = stored(parts)
        after = await lost_key(parts)

        assert await settled(after, key) == []

        assert (stored(after), after.groups("large")) == (edited_record, groups)
        assert after.condition(key, "RecordRefused")["status"] == "True"
        assert (
            "a plan made anew would end 1 groups that run, the first one large-0"
            in after.condition(key)["message"]
        )
        after.api.remove(CONFIG_MAPS, NAMESPACE, "large-plan")
        await settled(after, key)
        assert "h100-1" not in text_of(stored(after))["groups"][0]

    run(scenario())


def lose_a_gpu(parts: Parts, node: str) -> None:
    with parts.api.changing(NODES, None, node) as item:
        item["status"]["allocatable"]["nvidia.com/gpu"] = "7"


def test_a_plan_of_record_that_the_caches_show_late_is_read_afresh_before_it_is_refused() -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        after = Parts(api=parts.api)
        await after.sync()  # as the one that does not lead
        after.unheard = {CONFIG_MAPS}
        parts.change(key, replicas=2)
        await settled(parts, key)
        parts.run_pods("large")
        await settled(parts, key)
        assert parts.status(key)["recordSerial"] == 2

        await after.sync()
        assert after.reserved_nodes() == {"h100-0", "h100-1", "h100-2", "h100-3"}
        assert await settled(after, key) == []
        assert after.condition(key, "RecordRefused")["status"] == "False"

    run(scenario())


def test_a_plan_of_record_missing_from_the_caches_is_read_by_name_before_it_counts_as_gone() -> (
    None
):
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        after = Parts(api=parts.api)
        after.cache.store.take_config_maps({(NAMESPACE, "large-plan"): Change(None, 10**9)})
        await after.sync()

        assert after.reserved_nodes() == {"h100-0", "h100-1"}
        assert await settled(after, key) == []

    run(scenario())


def test_a_record_that_is_newer_than_the_status_is_believed_and_the_status_follows() -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        parts.change(key, replicas=2)
        await settled(parts, key)
        with parts.api.changing(SHARDED_MODELS, *key) as model:
            model["status"]["recordSerial"] = 1  # the process ended before it wrote the status

        after = Parts(api=parts.api)
        await after.sync()
        assert await settled(after, key) == []
        assert after.status(key)["recordSerial"] == 2
        assert after.condition(key, "RecordRefused")["status"] == "False"

    run(scenario())


def test_what_another_leader_has_written_counts_more_than_what_this_process_remembers() -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=3)
        other = Parts(api=parts.api)
        await other.sync()
        other.change_node("h100-1", unschedulable=True)
        other.api.remove(PODS, NAMESPACE, "large-0-1")
        await settled(other, key)
        other.run_pods("large")
        await settled(other, key)
        other.run_pods("large")
        await settled(other, key)
        other.change_node("h100-1", unschedulable=False)
        groups, newest = other.groups("large"), text_of(stored(other))
        assert newest["groups"] == [["h100-0", "h100-2"]]
        tamper(parts, drop_signature)

        assert set(await settled(parts, key)) == {PLAN}
        assert (parts.groups("large"), text_of(stored(parts))) == (groups, newest)

    run(scenario())


def test_a_record_that_was_there_before_its_resource_is_planned_over() -> None:
    async def scenario() -> None:
        parts, _ = await serving(nodes=4)
        key = parts.add_model("late", model=SMALL)
        owner = {
            "apiVersion": "shardwright.io/v1alpha1",
            "kind": "ShardedModel",
            "name": "late",
            "controller": True,
        }
        metadata = {"name": "late-plan", "namespace": NAMESPACE}
        owners = [{**owner, "uid": parts.model(key)["metadata"]["uid"]}]
        text = (Path(__file__).parents[2] / "data" / "records" / "v1" / "one_gpu.json").read_text()
        parts.api.put(
            CONFIG_MAPS,
            {"metadata": {**metadata, "ownerReferences": owners}, "data": {RECORD_KEY: text}},
        )

        await settled(parts, key)

        assert text_of(stored(parts, "late"))["groups"][0][0].startswith("h100-")

    run(scenario())


def test_a_new_key_signs_all_records_anew_and_restarts_nothing() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        before, groups = stored(parts), parts.groups("large")
        parts.keys = SigningKeys((b"the new key", *parts.keys.secrets))
        assert (set(await settled(parts, key)), parts.groups("large")) == ({PLAN}, groups)

        pods, parts.keys = running(parts), SigningKeys((b"the new key",))
        assert plain(await settled(parts, key)) == ANOTHER_SECRET
        after = stored(parts)
        assert (after[RECORD_KEY], running(parts)) == (before[RECORD_KEY], pods)
        assert after[SIGNATURE_KEY] != before[SIGNATURE_KEY]
        assert parts.condition(key, "RecordRefused")["status"] == "False"

    run(scenario())


async def of_an_earlier_release(
    edit: Edit = lambda _: None,
    happens: Callable[[Parts], None] = lambda _: None,
    nodes: int = 4,
    replicas: int = 1,
) -> tuple[Parts, Key, Manifest]:
    """Return an operator that finds a model as a release without signatures has left it, and the
    record that it had.

    ``happens`` is done while no operator runs.
    """
    parts, key = await serving(nodes)
    parts.change(key, replicas=replicas)
    await settled(parts, key)
    parts.run_pods("large")
    await settled(parts, key)
    before = stored(parts)

    def unsign(data: Manifest) -> None:
        record = json.loads(data[RECORD_KEY])
        del record["serial"], data[SIGNATURE_KEY]
        data[RECORD_KEY] = json.dumps(record)
        edit(data)

    tamper(parts, unsign)
    with parts.api.changing(SHARDED_MODELS, *key) as model:
        del model["status"]["recordSerial"]
    parts.watching = False
    happens(parts)
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


def pause(parts: Parts) -> None:
    with parts.api.changing(SHARDED_MODELS, NAMESPACE, "large") as model:
        model["spec"]["paused"] = True


def test_an_unsigned_record_of_a_paused_model_is_no_refusal() -> None:
    async def scenario() -> None:
        parts, key, _ = await of_an_earlier_release(happens=pause)
        for after in (parts, Parts(api=parts.api)):
            await after.sync()
            assert await settled(after, key) == []
            assert "recordSerial" not in after.status(key)
            assert after.condition(key, "RecordRefused")["status"] == "False"

    run(scenario())


def test_a_record_of_an_earlier_release_that_would_end_what_runs_is_held_up() -> None:
    async def scenario() -> None:
        later = edited_around(lambda record: record.update(generations=[5]))
        parts, key, _ = await of_an_earlier_release(later)
        groups = parts.groups("large")
        assert set(await settled(parts, key)) == {PLAN}

        assert parts.groups("large") == groups
        assert parts.condition(key)["reason"] == "Serving"

    run(scenario())


def test_a_new_leader_leaves_a_group_where_it_serves_although_its_node_has_lost_a_gpu() -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=4)
        before, groups = stored(parts), parts.groups("large")
        lose_a_gpu(parts, "h100-1")
        after = Parts(api=parts.api)
        await after.sync()

        assert await settled(after, key) == []
        assert (stored(after), after.groups("large")) == (before, groups)
        assert after.condition(key)["reason"] == "Serving"

    run(scenario())


def test_an_unsigned_record_keeps_a_group_on_a_node_that_lost_a_gpu() -> None:
    async def scenario() -> None:
        parts, key, before = await of_an_earlier_release(
            happens=lambda parts: lose_a_gpu(parts, "h100-1")
        )
        groups = parts.groups("large")
        assert set(await settled(parts, key)) == {PLAN}

        assert (stored(parts), parts.groups("large")) == (before, groups)
        assert parts.condition(key, "RecordRefused")["status"] == "False"

    run(scenario())


def test_a_group_that_is_on_its_way_to_other_nodes_says_nothing_against_an_unsigned_record() -> (
    None
):
    def at_zero(parts: Parts) -> None:
        with parts.api.changing(STATEFUL_SETS, NAMESPACE, "large-1") as live:
            live["spec"]["replicas"] = 0
        for rank in range(2):
            parts.api.remove(PODS, NAMESPACE, f"large-1-{rank}")

    async def scenario() -> None:
        elsewhere = edited(
            lambda plan: plan.update(groups=[plan["groups"][0], ["h100-4", "h100-5"]])
        )
        parts, key, _ = await of_an_earlier_release(elsewhere, at_zero, nodes=6, replicas=2)
        first = parts.groups("large")[0]
        await settled(parts, key)

        assert text_of(stored(parts))["groups"] == [["h100-0", "h100-1"], ["h100-4", "h100-5"]]
        assert parts.groups("large")[0] == first
        assert parts.condition(key, "RecordRefused")["status"] == "False"

    run(scenario())


@pytest.mark.parametrize("nodes", [["h100-4", "h100-5"], ["h100-4", "h100-9"]])
def test_stateful_sets_at_zero_alone_bear_no_record_out_that_has_other_nodes(
    nodes: list[str],
) -> None:
    def at_zero(parts: Parts) -> None:
        with parts.api.changing(STATEFUL_SETS, NAMESPACE, "large-0") as live:
            live["spec"]["replicas"] = 0

    async def scenario() -> None:
        parts, key, before = await of_an_earlier_release(
            edited(lambda plan: plan.update(groups=[nodes])), at_zero, nodes=6
        )
        await settled(parts, key)

        assert text_of(stored(parts)) == text_of(before)
        assert parts.condition(key, "RecordRefused")["status"] == "True"

    run(scenario())


DISAGREE = {
    name: edit
    for name, edit in EDITS.items()
    if name not in {"no signature", "no text", "no JSON", "arguments of the engine"}
}


@pytest.mark.parametrize("edit", DISAGREE.values(), ids=DISAGREE)
def test_an_unsigned_record_that_contradicts_the_cluster_is_planned_anew_around_what_runs(
    edit: Edit,
) -> None:
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
        pods = running(without)

        parts = Parts(api=before.api)
        await parts.sync()
        assert plain(await settled(parts, key)) == {PLAN} | ANOTHER_SECRET
        assert running(parts) == pods
        assert parts.condition(key, "RecordRefused")["status"] == "False"

    run(scenario())
