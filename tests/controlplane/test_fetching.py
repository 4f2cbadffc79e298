"""A model by its id alone: a Job of its namespace reads its config from a hub on loopback, then it
is planned and served.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardwright.reconcile.fetched import SIGNATURE
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.builders_model import a_config
from tests.support.job_kubelet import run_pod_of
from tests.support.loopback_hub import COMMIT, LoopbackHub, Repository, a_hub
from tests.support.models import Models
from tests.support.operator import SYSTEM, OperatorProcess

pytestmark = pytest.mark.controlplane

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
OWN_POD = "operator-that-fetches"
INDEX = json.dumps(
    {"metadata": {"total_size": 16_060_522_496}, "weight_map": {"lm_head.weight": "a.safetensors"}}
).encode()
FILES = {"config.json": json.dumps(a_config()).encode(), "model.safetensors.index.json": INDEX}


@pytest.fixture(scope="module")
def hub() -> Iterator[LoopbackHub]:
    with a_hub(
        acme__ours=Repository(files=FILES, gated=True, readers=frozenset({"hf_reader"}))
    ) as served:
        yield served


@pytest.fixture(scope="module")
def operator(
    chart: ControlPlane, hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator with a pod, the settings that the chart has installed, and the hub as every
    engine's.
    """
    stored = chart.api.get(f"/api/v1/namespaces/{SYSTEM}/configmaps/shardwright-settings")["data"][
        "settings.json"
    ]
    env = [{"name": "HF_ENDPOINT", "value": hub.url}]
    file: Path = tmp_path_factory.mktemp("settings") / "settings.json"
    file.write_text(
        json.dumps(
            {**json.loads(stored), "engineDefaults": {"engine": {"name": "vLLM", "env": env}}}
        )
    )
    pods = f"/api/v1/namespaces/{SYSTEM}/pods"
    container = {"name": "operator", "image": "registry.example/shardwright/operator:0.1.0"}
    chart.api.create(
        pods,
        {"metadata": {"name": OWN_POD}, "spec": {"containers": [container], "nodeName": "nowhere"}},
    )
    with OperatorProcess(chart, f"--settings-file={file}", identity=OWN_POD) as running:
        yield running
    chart.api.delete(f"{pods}/{OWN_POD}", missing_ok=True)


def the_job(control_plane: ControlPlane, namespace: str, *others: str) -> str:
    """Return the name of the Job that is there beside others."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    def found() -> list[str]:
        return [
            job["metadata"]["name"]
            for job in control_plane.api.get(path)["items"]
            if job["metadata"]["name"] not in others
        ]

    (name,) = wait_for(found, 30, "a Job that reads the config")
    return name


def test_a_gated_model_is_read_with_a_token_and_served_and_an_edit_of_its_config_is_ignored(
    models: Models, control_plane: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    control_plane.api.patch(
        f"/api/v1/namespaces/{namespace}",
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
    )
    for node in fleet(
        "h100-8x-dell-xe9680", 1
    ):  # which only pods that want GPUs tolerate: nobody but this test runs the Job
        control_plane.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [TAINT]}})
    models.create("ours", {"id": "acme/ours"}, parallelism={"tensor": 1})

    first = the_job(control_plane, namespace)
    fetching = models.wait_reason("ours", "ConfigFetching")
    run_pod_of(control_plane, namespace, first)
    denied = models.wait_reason("ours", "HubAccessDenied")

    secret = {"metadata": {"name": "hub"}, "stringData": {"token": "hf_reader"}}
    control_plane.api.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
    models.change("ours", model={"weights": {"secretRef": {"name": "hub"}}})
    run_pod_of(control_plane, namespace, the_job(control_plane, namespace, first))
    models.wait_ready("ours")

    assert (
        fetching["message"]
        == f"spec.model.id: the config of acme/ours at its newest commit is read by Job {first}"
    )
    assert "'acme/ours' is gated on http://127.0.0.1:" in denied["message"]
    assert "name a Secret with a token that may read it" in denied["message"]
    (kept,) = (item for item in models.all("ConfigMap") if "-config-" in item["metadata"]["name"])
    annotations = {
        key: value for key, value in kept["metadata"]["annotations"].items() if key != SIGNATURE
    }
    assert annotations == {
        "shardwright.io/hub-model": "acme/ours",
        "shardwright.io/hub-commit": COMMIT,
    }
    assert {name: json.loads(text) for name, text in kept["data"].items()} == {
        "config.json": a_config(),
        "model.safetensors.index.json": {"metadata": {"total_size": 16_060_522_496}},
    }

    before, name = (models.get("ConfigMap", "ours-plan")["data"], kept["metadata"]["name"])
    models.patch(
        "ConfigMap", name, {"data": {"config.json": json.dumps(a_config(num_hidden_layers=2))}}
    )
    conflict = models.wait_reason("ours", "NameConflict")
    assert f"ConfigMap {name} is there and is not what the operator has read" in conflict["message"]

    control_plane.api.delete(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    models.wait_ready("ours")
    assert models.get("ConfigMap", name)["data"] == kept["data"]
    assert models.get("ConfigMap", "ours-plan")["data"] == before
