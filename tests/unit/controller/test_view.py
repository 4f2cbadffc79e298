"""Events to keys: who is looked at when something changes, and who is left in peace."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from shardwright.cluster.resources import NODES, PODS, SERVICES, SHARDED_MODELS
from shardwright.controller.intake import Intake
from shardwright.controller.queue import Key
from shardwright.controller.view import Interests, View
from shardwright.errors import Problem
from shardwright.rendering.names import base_name
from tests.harness import fleet
from tests.support.builders_deployment import a_plan
from tests.support.builders_reconcile import a_record

WAITING, PLANNED, OTHER = ("models", "waiting"), ("models", "planned"), ("models", "other")
NODE = fleet.make("h100-8x-dell-xe9680", 1, "node")[0]


@pytest.fixture
def added() -> list[Key]:
    return []


@pytest.fixture
def view(added: list[Key]) -> View:
    view = View(wake=added.append)
    view.interests = {
        WAITING: Interests(waits_for_capacity=True),
        PLANNED: Interests(nodes=frozenset({"node-0"})),
        OTHER: Interests(config_map=("models", "config")),
    }
    return view


@pytest.fixture
def intake(view: View, added: list[Key]) -> Intake:
    return Intake(view, added.append)


def gpu_pod(name: str = "p", **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    return {
        "metadata": {"namespace": "models", "name": name, **metadata},
        "spec": {"nodeName": "node-0", "containers": [container]},
        "status": {"phase": "Running"},
    }


def test_a_new_node_concerns_who_waits_and_who_is_planned_on_it(intake: Intake, added: list[Key]) -> None:
    intake.on_event(NODES, NODE, False)
    assert added == [WAITING, PLANNED]


def test_a_heartbeat_concerns_nobody(intake: Intake, added: list[Key]) -> None:
    intake.on_event(NODES, NODE, False)
    added.clear()
    beat = {**NODE, "metadata": {**NODE["metadata"], "resourceVersion": "99"}}
    intake.on_event(NODES, beat, False)
    assert added == []


@pytest.mark.parametrize(
    "more",
    [{}, {"nvidia.com/gpu.product": "unheard-of"}, {"nvidia.com/mig.config.state": "pending"}],
    ids=["nothing else", "labels", "MIG"],
)
def test_a_dead_node_is_not_ready_whatever_else_is_wrong_with_it(view: View, intake: Intake, more: dict[str, str]) -> None:
    dead = copy.deepcopy(NODE)
    dead["metadata"]["labels"] |= more
    dead["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-02T12:00:00Z"}]
    intake.on_event(NODES, dead, False)
    assert view.not_ready() == {"node-0": datetime(2026, 1, 2, 12, tzinfo=UTC)}
    intake.on_event(NODES, NODE, False)
    assert view.not_ready() == {}


def test_a_gpu_pod_that_ends_concerns_who_waits(intake: Intake, view: View, added: list[Key]) -> None:
    intake.on_event(PODS, gpu_pod(), False)
    assert [(usage.node, usage.gpus) for usage in view.usage.values()] == [("node-0", 4)]
    added.clear()
    intake.on_event(PODS, gpu_pod(), True)
    assert added == [WAITING]
    assert view.usage.values() == ()


def test_a_pod_of_a_model_concerns_that_model_whatever_its_name(intake: Intake, added: list[Key]) -> None:
    model = {"metadata": {"namespace": "models", "name": "qwen2.5"}}
    intake.on_event(SHARDED_MODELS, model, False)
    labels = {"shardwright.io/model": base_name("qwen2.5")}
    intake.on_event(PODS, {"metadata": {"namespace": "models", "name": "x", "labels": labels}}, False)
    assert added == [("models", "qwen2.5")] * 2


def test_an_object_that_lost_its_labels_still_has_its_owner(intake: Intake, added: list[Key]) -> None:
    owner = {"kind": "ShardedModel", "name": "llama", "uid": "u", "controller": True}
    intake.on_event(SERVICES, {"metadata": {"namespace": "models", "name": "llama", "ownerReferences": [owner]}}, True)
    assert added == [("models", "llama")]


def test_a_config_map_concerns_who_reads_it_and_after_a_gap_all_readers(intake: Intake, added: list[Key]) -> None:
    intake.on_config_map({"namespace": "models", "name": "config"})
    intake.on_config_map({"namespace": "models", "name": "another"})
    assert added == [OTHER]
    intake.on_config_map(None)
    assert added == [OTHER, OTHER]


def test_a_reservation_that_is_given_up_wakes_who_waits(view: View, added: list[Key]) -> None:
    view.reserve(PLANNED, a_record(generations=(1,)))
    assert added == []
    assert {(r.owner, r.group, r.node, r.gpus) for r in view.reserved()} == {
        (PLANNED, "planned-0-g1", "h100-a-01", 8),
        (PLANNED, "planned-0-g1", "h100-a-02", 8),
    }
    view.reserve(PLANNED, None)
    assert added == [WAITING]
    view.reserve(PLANNED, a_record(generations=(1,)))
    view.forget(PLANNED)
    assert added == [WAITING, WAITING]


def test_nothing_is_planned_before_every_cache_was_listed_once(view: View) -> None:
    assert not view.synced
    for cache in (view.nodes, view.usage):
        cache.begin_list()
        cache.finish_list({})
    assert not view.synced
    view.records_read = True
    assert view.synced


def test_a_plan_that_can_only_be_shown_keeps_no_gpus_from_others(view: View) -> None:
    shown_only = a_plan(undeployable=Problem(code="NotDeployable", what="tensor 32 over trays"))
    view.reserve(PLANNED, a_record(plan=shown_only))
    assert list(view.reserved()) == []
