"""From a resource to serving pods, through changes, restarts and deletion; on the real control
plane.
"""

import json
from functools import partial
from typing import Any

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, SMALL, Models
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"


def test_the_smallest_resource_becomes_ready_on_one_gpu(models: Models, fleet: Fleet) -> None:
    fleet(H100, 1)
    models.create("llama")
    status = models.wait_ready("llama")["status"]

    assert status["plan"]["layout"]["gpusPerReplica"] == 1
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)
    assert status["endpoint"] == f"http://llama.{models.namespace}.svc.cluster.local:8000"
    models.wait_events("Planned", "Serving")


def test_a_model_for_two_nodes_gets_exactly_the_planned_nodes_and_status_names_them_by_rank(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 3)
    models.create("large", LARGE)
    status = models.wait_ready("large")["status"]

    bound = [pod["spec"]["nodeName"] for pod in models.pods()]
    assert sorted(bound) == status["plan"]["placement"]["nodes"]
    assert status["groups"] == [{"name": "large-0", "ready": True, "restarts": 0, "nodes": bound}]
    remembered = models.get("StatefulSet", "large-0")["metadata"]["annotations"]
    assert status["engine"]["startBudget"] == {
        "loadSeconds": 2104,
        "basis": remembered["shardwright.io/start-up-budget"],
    }


def test_a_crashed_rank_restarts_the_whole_group_and_status_remembers_why(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 2)
    models.create("large", LARGE)
    models.wait_ready("large")
    before = models.uids()

    control_plane.pods.crash(models.namespace, "large-0-1", exit_code=137)
    wait_for(
        lambda: before.isdisjoint(models.uids()) and len(models.pods()) == 2, 30, "two new pods"
    )
    group = models.wait_ready("large")["status"]["groups"][0]

    assert group["restarts"] == 1
    assert group["lastFailure"] == {
        "rank": 1,
        "container": "engine",
        "exitCode": 137,
        "reason": "Error",
    }
    models.wait_events("GroupFailed")


def test_other_claims_of_pods_make_the_group_anew_where_the_api_server_would_refuse_the_change(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models.create("llama")
    models.wait_ready("llama")

    for generation, size in ((1, "10Gi"), (2, "20Gi")):
        models.change("llama", model={"id": SMALL, "weights": {"cache": {"storage": size}}})
        name = f"llama-0-g{generation}"
        wait_for(partial(_names_are, models, "StatefulSet", name), 30, name)
        (claim,) = models.get("StatefulSet", name)["spec"]["volumeClaimTemplates"]
        assert claim["spec"]["resources"]["requests"]["storage"] == size
        wait_for(partial(_names_are, models, "Pod", f"{name}-0"), 30, f"a pod of {name}")
    assert models.condition("llama", "Stalled")["status"] == "False"


def _names_are(models: Models, kind: str, *names: str) -> bool:
    return {item["metadata"]["name"] for item in models.all(kind)} == {*names}


def test_a_model_that_is_only_to_be_planned_any_more_is_taken_down_and_keeps_its_plan(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models.create("llama")
    models.wait_ready("llama")

    models.change("llama", mode="PlanOnly")
    kinds = ("StatefulSet", "Pod", "Service", "PodDisruptionBudget")
    wait_for(
        lambda: [models.all(kind) for kind in kinds] == [[], [], [], []],
        30,
        "everything to be gone",
    )
    assert models.get("ShardedModel", "llama")["status"]["plan"]["layout"]["tensor"] == 1
    assert models.find("ConfigMap", "llama-plan") is not None


def test_a_paused_resource_keeps_its_pods_and_takes_up_the_change_when_it_goes_on(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models.create("llama")
    models.wait_ready("llama")
    before = models.uids()

    models.change("llama", paused=True, engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
    models.wait_reason("llama", "Paused")
    assert models.uids() == before

    models.change("llama", paused=False)
    models.wait_ready("llama")
    wait_for(lambda: before.isdisjoint(models.uids()), 30, "the new pod")


def test_deletion_leaves_nothing_behind(models: Models, fleet: Fleet) -> None:
    fleet(H100, 1)
    models.create("llama")
    models.wait_ready("llama")

    models.delete("ShardedModel", "llama")
    kinds = ("StatefulSet", "Pod", "Service", "PodDisruptionBudget")
    wait_for(
        lambda: [models.all(kind) for kind in kinds] == [[], [], [], []],
        60,
        "everything to be gone",
    )
    assert [item["metadata"]["name"] for item in models.all("ConfigMap")] == ["kube-root-ca.crt"]


def test_a_resource_that_is_replaced_by_another_of_its_name_starts_anew_and_never_stalls(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models.create("llama")
    models.wait_ready("llama")
    before = models.uids()

    models.delete("ShardedModel", "llama")
    models.create("llama")
    models.wait_ready("llama")

    assert before.isdisjoint(models.uids())
    owner = models.get("StatefulSet", "llama-0")["metadata"]["ownerReferences"][0]
    assert owner["uid"] == models.get("ShardedModel", "llama")["metadata"]["uid"]
    assert "NameConflict" not in models.reasons_of_events()


def test_a_model_that_was_orphaned_and_made_again_keeps_its_pods(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 1)
    models.create("llama")
    models.wait_ready("llama")
    before = models.uids()
    control_plane.kubectl(
        "delete", "smodel", "llama", "-n", models.namespace, "--cascade=orphan", "--wait"
    )
    assert not models.get("StatefulSet", "llama-0")["metadata"].get("ownerReferences")

    models.create("llama")
    uid = models.wait_ready("llama")["metadata"]["uid"]

    assert models.uids() == before
    assert {
        owner["uid"]
        for kind in RESTORED
        if kind != "Pod"
        for item in left(models, kind)
        for owner in item["metadata"]["ownerReferences"]
    } == {uid}


def test_a_model_that_a_backup_brings_back_serves_where_it_served(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 2)
    models.create("llama")
    nodes = models.wait_ready("llama")["status"]["groups"][0]["nodes"]
    saved = [(kind, item) for kind in RESTORED for item in left(models, kind)]
    models.delete("ShardedModel", "llama")
    wait_for(lambda: not any(left(models, kind) for kind in RESTORED), 60, "all of it to be gone")

    # As Velero does: kinds in this order, of the metadata what people write, the resource last.
    for kind, item in saved:
        kept = {part: item["metadata"].get(part, {}) for part in ("name", "labels", "annotations")}
        content: Manifest = {part: item[part] for part in ("spec", "data") if part in item}
        for assigned in ("clusterIP", "clusterIPs", "nodeName"):
            content.get("spec", {}).pop(assigned, None)
        models.post(kind, {"metadata": kept, **content})
    models.create("llama")
    resource = models.wait_ready("llama")

    assert resource["status"]["groups"][0]["nodes"] == nodes
    (stateful_set,) = left(models, "StatefulSet")
    assert stateful_set["metadata"]["ownerReferences"][0]["uid"] == resource["metadata"]["uid"]


RESTORED = ("ConfigMap", "Pod", "NetworkPolicy", "Service", "StatefulSet")


def left(models: Models, kind: str) -> list[Manifest]:
    """Return the objects of a kind that the operator has made."""
    return [
        item
        for item in models.all(kind)
        if (item["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by")
        == "shardwright"
    ]


def test_a_config_map_that_a_model_is_read_from_is_watched(models: Models, fleet: Fleet) -> None:
    fleet(H100, 1)
    models.create("mine", {"id": "me/mine", "configMapRef": {"name": "mine"}})
    models.wait_reason("mine", "ConfigMissing")

    models.post("ConfigMap", {"metadata": {"name": "mine"}, "data": {"config.json": tiny_config()}})
    models.wait_ready("mine", 15)
    layers = models.get("ShardedModel", "mine")["status"]["plan"]["memory"]["stages"][0]["layers"]
    assert layers == 16

    models.patch("ConfigMap", "mine", {"data": {"config.json": tiny_config(layers=8)}})
    wait_for(
        lambda: (
            models.get("ShardedModel", "mine")["status"]["plan"]["memory"]["stages"][0]["layers"]
            == 8
        ),
        15,
        "the new plan",
    )


def tiny_config(layers: int = 16) -> str:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": layers,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": True,
    }
    return json.dumps(config)


def test_metrics_show_the_plan_and_go_with_the_resource(
    models: Models, fleet: Fleet, operator: OperatorProcess
) -> None:
    fleet(H100, 1)
    models.create("llama", SMALL)
    models.wait_ready("llama")
    series = f'shardwright_plan_gpus{{name="llama",namespace="{models.namespace}"}} 1.0'
    assert series in operator.get("/metrics")[1]
    assert operator.get("/healthz") == (200, "ok")

    models.delete("ShardedModel", "llama")
    wait_for(lambda: series not in operator.get("/metrics")[1], 15, "the series to be gone")
