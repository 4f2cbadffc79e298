"""What the chart renders is valid, and fits the program that it starts."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

import shardwright
from shardwright.controller.http_server import HttpServer
from shardwright.controller.operator_options import Options, parse_options
from shardwright.controller.servers import Health
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.support.builders_chart import CHART, EVERY_POLICY, ROOT, named, render

OLDEST, NEWEST = "1.34.0", kubernetes_validate.latest_version()


@pytest.fixture(scope="module")
def objects(control_plane: ControlPlane) -> list[Manifest]:
    return render(control_plane)


@pytest.fixture(scope="module")
def container(objects: list[Manifest]) -> dict[str, Any]:
    (found,) = named(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.fixture
def health_url() -> Iterator[tuple[Health, str]]:
    health = Health()
    server = HttpServer(health.routes(), 0, "test")
    yield health, f"http://127.0.0.1:{server.port}"
    server.stop()


def test_helm_finds_nothing_to_mend(control_plane: ControlPlane) -> None:
    assert "1 chart(s) linted, 0 chart(s) failed" in control_plane.helm(
        "lint", "--strict", str(CHART)
    )


def test_chart_and_program_are_of_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (
        shardwright.__version__,
        shardwright.__version__,
    )


def test_a_kubernetes_that_is_too_old_is_refused(control_plane: ControlPlane) -> None:
    said = control_plane.helm("template", "x", str(CHART), "--kube-version", "1.33", check=False)
    assert "requires kubeVersion: >=1.34.0-0 which is incompatible with Kubernetes v1.33" in said


@pytest.mark.parametrize("kubernetes", [OLDEST, NEWEST])
def test_every_object_is_valid(objects: list[Manifest], kubernetes: str) -> None:
    for item in objects:
        kubernetes_validate.validate(item, kubernetes, strict=True)


def test_the_default_chart_installs_exactly_these_objects(objects: list[Manifest]) -> None:
    assert sorted((item["kind"], item["metadata"]["name"]) for item in objects) == [
        ("ClusterRole", "shardwright"),
        ("ClusterRole", "shardwright-edit"),
        ("ClusterRole", "shardwright-namespaces"),
        ("ClusterRole", "shardwright-nodes"),
        ("ClusterRole", "shardwright-view"),
        ("ClusterRoleBinding", "shardwright"),
        ("ConfigMap", "shardwright-catalogue"),
        ("ConfigMap", "shardwright-settings"),
        ("CustomResourceDefinition", "shardedmodels.shardwright.io"),
        ("Deployment", "shardwright"),
        ("NetworkPolicy", "shardwright"),
        ("PodDisruptionBudget", "shardwright"),
        ("Role", "shardwright-leader"),
        ("RoleBinding", "shardwright-leader"),
        ("Secret", "shardwright-signing"),
        ("Service", "shardwright-metrics"),
        ("ServiceAccount", "shardwright"),
        ("ServiceAccount", "shardwright-signing"),
        *(("ValidatingAdmissionPolicy", name) for name in EVERY_POLICY),
        *(("ValidatingAdmissionPolicyBinding", name) for name in EVERY_POLICY),
    ]


def test_the_crd_is_the_generated_one_and_is_kept(objects: list[Manifest]) -> None:
    generated = yaml.safe_load((ROOT / "crds" / "shardwright.io_shardedmodels.yaml").read_text())
    generated["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}

    assert named(objects, "CustomResourceDefinition") == generated


def test_the_operator_knows_every_flag_of_the_deployment(
    container: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)

    assert parse_options(container["args"]) == Options(
        kubeconfig=None,
        context=None,
        credentials_dir=Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        leader_elect=True,
        installation="shardwright-system/shardwright",
        watch_namespaces=(),
        lease_namespace="$(POD_NAMESPACE)",
        lease_name="shardwright",
        lease_duration_seconds=15,
        lease_renew_deadline_seconds=10.0,
        lease_retry_seconds=2.0,
        identity="$(POD_NAME)",
        catalogue_file=Path("/etc/shardwright/catalogue/models.json"),
        settings_file=Path("/etc/shardwright/settings/settings.json"),
        signing_keys_file=Path("/etc/shardwright/signing/keys"),
        cluster_domain="cluster.local",
        port=8080,
        health_port=8081,
        max_model_series=100_000,
        metrics_authentication="None",
        plans=False,
        resync_seconds=300.0,
        workers=16,
        max_moving_groups=5,
        kube_api_qps=500.0,
        kube_api_burst=500,
        question_cpu_seconds=10.0,
        worker_memory_mib=192,
        log_level="INFO",
    )


def test_every_variable_of_an_argument_is_in_the_environment(container: dict[str, Any]) -> None:
    assert container["env"] == [
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "MALLOC_ARENA_MAX", "value": "2"},
    ]


def test_the_files_of_the_arguments_are_mounted(
    objects: list[Manifest], container: dict[str, Any]
) -> None:
    options = parse_options(container["args"])
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {
        volume["name"]: volume
        for volume in named(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    }
    assert options.catalogue_file
    assert options.settings_file
    assert options.credentials_dir
    assert options.signing_keys_file

    catalogue = volumes[mounts[str(options.catalogue_file.parent)]]["configMap"]["name"]
    settings = volumes[mounts[str(options.settings_file.parent)]]["configMap"]["name"]
    credentials = volumes[mounts[str(options.credentials_dir)]]["projected"]["sources"]

    assert list(named(objects, "ConfigMap", catalogue)["data"]) == [options.catalogue_file.name]
    assert list(named(objects, "ConfigMap", settings)["data"]) == [options.settings_file.name]
    signing = volumes[mounts[str(options.signing_keys_file.parent)]]["secret"]
    assert signing["items"] == [{"key": "token", "path": options.signing_keys_file.name}]
    assert (
        named(objects, "Secret", signing["secretName"])["type"]
        == "kubernetes.io/service-account-token"
    )
    assert credentials[0] == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    assert credentials[1]["configMap"] == {
        "name": "kube-root-ca.crt",
        "items": [{"key": "ca.crt", "path": "ca.crt"}],
    }


def test_probes_and_service_reach_the_ports_on_which_the_operator_listens(
    objects: list[Manifest], container: dict[str, Any]
) -> None:
    options = parse_options(container["args"])

    assert container["ports"] == [
        {"name": "http", "containerPort": options.port},
        {"name": "health", "containerPort": options.health_port},
    ]
    assert {
        container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")
    } == {"health"}
    assert named(objects, "Service")["spec"]["ports"] == [
        {"name": "http", "port": options.port, "targetPort": "http"},
        {"name": "health", "port": options.health_port, "targetPort": "health"},
    ]


def test_the_operator_answers_the_paths_of_the_probes(
    container: dict[str, Any], health_url: tuple[Health, str]
) -> None:
    health, url = health_url
    live, ready = (
        url + container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")
    )

    assert (_status(live), _status(ready)) == (200, 503)
    health.ready = True
    assert (_status(live), _status(ready)) == (200, 200)


def test_selectors_find_the_pods_of_this_release_only(objects: list[Manifest]) -> None:
    deployment = named(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selector = {
        "app.kubernetes.io/name": "shardwright-operator",
        "app.kubernetes.io/instance": "shardwright",
    }

    assert selector.items() <= labels.items()
    assert deployment["spec"]["selector"] == {"matchLabels": selector}
    assert named(objects, "Service")["spec"]["selector"] == selector
    assert named(objects, "PodDisruptionBudget")["spec"] == {
        "minAvailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": selector},
    }


def test_the_pod_gets_no_more_than_it_needs(
    objects: list[Manifest], container: dict[str, Any]
) -> None:
    pod = named(objects, "Deployment")["spec"]["template"]["spec"]

    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert named(objects, "ServiceAccount", "shardwright")["automountServiceAccountToken"] is False


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
