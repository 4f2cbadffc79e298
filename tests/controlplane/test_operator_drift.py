"""What is rendered stays as rendered; what is right is not written; what is foreign is not
touched.
"""

from collections.abc import Iterator

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import Models, lists_of_models, writes_of_operator
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"


@pytest.fixture(scope="module")
def operator(chart: ControlPlane) -> Iterator[OperatorProcess]:
    """An operator that compares everything every few seconds."""
    with OperatorProcess(chart, "--resync-seconds=2") as running:
        yield running


def test_nothing_is_written_when_nothing_has_changed(
    serving: Models, control_plane: ControlPlane
) -> None:
    wait_for(
        lambda: serving.get("PodDisruptionBudget", "large")["spec"]["minAvailable"] == 1,
        15,
        "the disruption budget",
    )
    _wait_for_comparisons(control_plane, 1)
    before = writes_of_operator(control_plane)

    _wait_for_comparisons(control_plane, 3)

    assert writes_of_operator(control_plane) == before


def test_an_edited_environment_is_repaired_without_disturbing_a_pod(serving: Models) -> None:
    before = serving.uids()
    template = serving.get("StatefulSet", "large-0")["spec"]["template"]
    _edited_environment(template)
    serving.patch("StatefulSet", "large-0", {"spec": {"template": template}})

    wait_for(
        lambda: "SABOTAGED" not in str(serving.get("StatefulSet", "large-0")["spec"]),
        15,
        "the environment to be repaired",
    )
    assert serving.uids() == before
    serving.wait_events("Repaired")


def test_a_changed_image_is_repaired_without_disturbing_a_pod(serving: Models) -> None:
    before = serving.uids()
    template = serving.get("StatefulSet", "large-0")["spec"]["template"]
    image = template["spec"]["containers"][0]["image"]
    template["spec"]["containers"][0]["image"] = "somebody/elses:image"
    serving.patch("StatefulSet", "large-0", {"spec": {"template": template}})

    wait_for(lambda: _image(serving) == image, 15, "the image to be repaired")
    assert serving.uids() == before


def test_a_removed_label_comes_back(serving: Models) -> None:
    serving.patch(
        "Service",
        "large",
        {
            "metadata": {
                "labels": {"app.kubernetes.io/managed-by": None, "shardwright.io/model": None}
            }
        },
    )
    wait_for(lambda: _labels(serving)["shardwright.io/model"] == "large", 15, "the label")
    assert _labels(serving)["app.kubernetes.io/managed-by"] == "shardwright"


def test_a_deleted_service_comes_back(serving: Models) -> None:
    before = serving.get("Service", "large")["metadata"]["uid"]
    serving.delete("Service", "large")
    wait_for(
        lambda: serving.get("Service", "large")["metadata"]["uid"] != before, 15, "another Service"
    )


def test_a_damaged_plan_of_record_is_repaired_and_a_deleted_one_made_anew_around_what_runs(
    serving: Models,
) -> None:
    before, nodes, kept = (
        serving.uids(),
        _planned_nodes(serving),
        serving.get("ConfigMap", "large-plan")["data"],
    )
    serving.patch("ConfigMap", "large-plan", {"data": {"plan.json": "{}"}})
    wait_for(
        lambda: serving.get("ConfigMap", "large-plan")["data"] == kept,
        15,
        "the plan of record to be set right",
    )
    assert (serving.uids(), _planned_nodes(serving)) == (before, nodes)

    serving.delete("ConfigMap", "large-plan")
    serving.wait_ready("large")
    assert (serving.uids(), _planned_nodes(serving)) == (before, nodes)


def test_a_field_that_is_no_longer_rendered_is_removed(serving: Models) -> None:
    serving.change("large", engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
    serving.wait_ready("large")
    wait_for(lambda: "NCCL_DEBUG" in _names_of_environment(serving), 15, "the variable")

    serving.change("large", engine={"env": []})
    wait_for(
        lambda: "NCCL_DEBUG" not in _names_of_environment(serving), 15, "the variable to be gone"
    )
    serving.wait_ready("large")


def test_better_nodes_that_appear_move_nothing(
    serving: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    before = serving.uids()
    fleet("SYNTH-h200-8x-coreweave", 2, "better")
    _wait_for_comparisons(control_plane, 2)
    assert serving.uids() == before
    assert serving.wait_ready("large")["status"]["plan"]["product"] == "NVIDIA-H100-80GB-HBM3"


def test_labels_that_vanish_and_a_cordon_disturb_no_running_model(
    serving: Models, control_plane: ControlPlane
) -> None:
    before = serving.uids()
    node = f"/api/v1/nodes/{_planned_nodes(serving)[0]}"
    control_plane.api.patch(
        node,
        {"metadata": {"labels": {"nvidia.com/gpu.product": None}}, "spec": {"unschedulable": True}},
    )

    wait_for(lambda: serving.condition("large", "PlanStale")["status"] == "True", 15, "PlanStale")
    _wait_for_comparisons(control_plane, 2)
    assert serving.uids() == before
    assert serving.condition("large")["status"] == "True"


@pytest.mark.parametrize("kind", ["Service", "ConfigMap", "StatefulSet"])
def test_a_foreign_object_of_our_name_stays_untouched_and_stalls_us(
    models: Models, fleet: Fleet, kind: str
) -> None:
    fleet(H100, 1)
    name = {"Service": "llama", "ConfigMap": "llama-plan", "StatefulSet": "llama-0"}[kind]
    models.post(kind, FOREIGN[kind] | {"metadata": {"name": name}})
    before = models.get(kind, name)["metadata"]["resourceVersion"]

    models.create("llama")
    condition = models.wait_reason("llama", "NameConflict")

    assert f"{kind} {name}" in condition["message"]
    assert models.condition("llama", "Stalled")["status"] == "True"
    assert _without_status_writes(models, kind, name) == before or kind == "StatefulSet"
    assert "ownerReferences" not in models.get(kind, name)["metadata"]

    models.delete(kind, name)
    models.wait_ready("llama")


FOREIGN: dict[str, Manifest] = {
    "Service": {"spec": {"ports": [{"port": 80}], "selector": {"app": "other"}}},
    "ConfigMap": {"data": {"mine": "yes"}},
    "StatefulSet": {
        "spec": {
            "replicas": 0,
            "serviceName": "other",
            "selector": {"matchLabels": {"app": "other"}},
            "template": {
                "metadata": {"labels": {"app": "other"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        }
    },
}


def _without_status_writes(models: Models, kind: str, name: str) -> str:
    return str(models.get(kind, name)["metadata"]["resourceVersion"])


def _wait_for_comparisons(control_plane: ControlPlane, count: int) -> None:
    """Wait until the operator has compared everything so many times from now on, begun and
    ended.
    """
    goal = lists_of_models(control_plane) + count + 1
    wait_for(
        lambda: lists_of_models(control_plane) >= goal,
        60,
        f"{count} full comparisons",
        interval=0.2,
    )


def _edited_environment(template: Manifest) -> None:
    entry = next(item for item in template["spec"]["containers"][0]["env"] if item.get("value"))
    entry["value"] = "SABOTAGED"


def _image(models: Models) -> str:
    return str(
        models.get("StatefulSet", "large-0")["spec"]["template"]["spec"]["containers"][0]["image"]
    )


def _labels(models: Models) -> dict[str, str]:
    return dict(models.get("Service", "large")["metadata"]["labels"])


def _names_of_environment(models: Models) -> set[str]:
    container = models.get("StatefulSet", "large-0")["spec"]["template"]["spec"]["containers"][0]
    return {entry["name"] for entry in container["env"]}


def _planned_nodes(models: Models) -> list[str]:
    return list(models.get("ShardedModel", "large")["status"]["plan"]["placement"]["nodes"])
