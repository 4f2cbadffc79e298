"""The control plane starts, works like the real thing, and leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import COMPONENTS, ApiError, ControlPlane, HarnessError, build, wait_for

ROOT = Path(__file__).parents[2]

# Starts a control plane, says where it is, and waits.
CHILD = """
import json, signal, threading
from tests.harness import ControlPlane
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
with ControlPlane.start() as cp:
    state = {"folder": str(cp.kubeconfig.parent), "url": cp.url, "pids": list(cp.running().values())}
    print(json.dumps(state), flush=True)
    while not threading.Event().wait(0.1):  # a signal that comes just before a wait is seen when it ends
        pass
"""


def test_all_components_run_and_the_api_server_has_the_pinned_version(
    control_plane: ControlPlane, record_property: Callable[[str, object], None]
) -> None:
    assert sorted(control_plane.running()) == sorted(COMPONENTS)
    assert control_plane.api.get("/version")["gitVersion"] == build.KUBERNETES_VERSION
    record_property("start_seconds", round(control_plane.start_seconds, 1))


def test_kubectl_and_helm_use_this_cluster(control_plane: ControlPlane) -> None:
    assert (
        control_plane.kubectl("get", "namespace", "default", "-o", "name") == "namespace/default\n"
    )
    assert json.loads(control_plane.helm("list", "--all-namespaces", "-o", "json")) == []


def test_a_failing_kubectl_names_the_command_and_the_reason(control_plane: ControlPlane) -> None:
    with pytest.raises(HarnessError) as failure:
        control_plane.kubectl("get", "namespace", "no such")
    assert str(failure.value) == (
        "`kubectl get namespace 'no such'` failed with exit code 1: "
        'Error from server (NotFound): namespaces "no such" not found'
    )


def test_audit_log_says_who_did_what(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    control_plane.api.create(path, {"metadata": {"name": "audited"}})
    with pytest.raises(ApiError):
        control_plane.api.create(path, {"metadata": {"name": "audited"}})
    seen = [
        (
            event["verb"],
            event["user"]["username"],
            event["objectRef"]["resource"],
            event["responseStatus"]["code"],
        )
        for event in control_plane.audit_events()
        if event.get("objectRef", {}).get("namespace") == namespace
        and event["objectRef"].get("name") == "audited"
    ]
    assert seen == [("create", "admin", "configmaps", 201), ("create", "admin", "configmaps", 409)]


def test_blocking_an_owner_needs_the_permission_to_set_its_finalizers(
    control_plane: ControlPlane, namespace: str
) -> None:
    cp, rbac = (control_plane, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}")
    cp.api.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "writer"}}
    )
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}
    cp.api.create(f"{rbac}/roles", {"metadata": {"name": "writer"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "writer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
        "subjects": [{"kind": "ServiceAccount", "name": "writer", "namespace": namespace}],
    }
    cp.api.create(f"{rbac}/rolebindings", binding)
    owner = cp.api.create(
        f"/apis/apps/v1/namespaces/{namespace}/statefulsets",
        {
            "metadata": {"name": "owner"},
            "spec": {
                "replicas": 0,
                "serviceName": "owner",
                "selector": {"matchLabels": {"app": "owner"}},
                "template": {
                    "metadata": {"labels": {"app": "owner"}},
                    "spec": {"containers": [{"name": "c", "image": "none"}]},
                },
            },
        },
    )
    kubeconfig = str(cp.kubeconfig_for(namespace, "writer"))

    def create(name: str, *, blocks: bool) -> str:
        reference = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [reference]},
        }
        command = ("--kubeconfig", kubeconfig, "create", "--validate=false", "-f", "-")
        return cp.kubectl(*command, input=json.dumps(manifest), check=False)

    # RBAC reaches the authorizer through a watch, so the first request may come too early.
    wait_for(
        lambda: "created" in create("free", blocks=False),
        what="the service account to be allowed to create",
    )
    assert (
        create("blocking", blocks=True)
        .strip()
        .endswith(
            'configmaps "blocking" is forbidden: cannot set blockOwnerDeletion if an '
            "ownerReference refers to a resource "
            "you can't set finalizers on: , <nil>"
        )
    )


def test_api_server_comes_back_on_the_same_port_with_the_same_data(
    namespace: str, control_plane: ControlPlane
) -> None:
    with control_plane.without_api_server(), pytest.raises(ApiError) as refused:
        control_plane.api.get("/readyz")
    assert refused.value.reason == "NoAnswer"
    assert control_plane.api.get(f"/api/v1/namespaces/{namespace}")["metadata"]["name"] == namespace


def test_a_component_that_dies_is_named_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for binary in build.binaries().iterdir():
        (tmp_path / binary.name).symlink_to(binary)
    (tmp_path / "kube-scheduler").unlink()
    (tmp_path / "kube-scheduler").write_text("#!/bin/sh\necho no luck today\nexit 7\n")
    (tmp_path / "kube-scheduler").chmod(0o755)
    monkeypatch.setenv(build.BIN_VARIABLE, str(tmp_path))
    with pytest.raises(HarnessError) as failure, ControlPlane.start() as running:
        wait_for(running.check, what="the scheduler to be missed")
    assert (
        str(failure.value)
        == "kube-scheduler ended by itself with exit code 7; the end of its log:\nno luck today"
    )


def test_a_missing_binary_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for binary in build.binaries().iterdir():
        if binary.name != "kwok":
            (tmp_path / binary.name).symlink_to(binary)
    monkeypatch.setenv(build.BIN_VARIABLE, str(tmp_path))
    with pytest.raises(HarnessError) as failure:
        ControlPlane.start()
    assert str(failure.value) == (
        f"{build.BIN_VARIABLE}={tmp_path} has no executable kwok; it needs etcd, kube-apiserver, "
        "kube-controller-manager, "
        f"kube-scheduler, kubectl, kwok, helm. Put it there, or unset {build.BIN_VARIABLE} to "
        "build them from pinned sources."
    )


@pytest.mark.parametrize(
    "end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda end: end.name
)
def test_nothing_is_left_when_the_test_run_ends_by(end: signal.Signals) -> None:
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as child:
        try:
            assert child.stdout
            state = json.loads(child.stdout.readline())
            assert len(state["pids"]) == len(COMPONENTS)
            child.send_signal(end)
            child.wait(20)
        finally:
            child.kill()

    wait_for(lambda: not Path(state["folder"]).exists(), 20, "the temporary folder to be removed")
    assert [pid for pid in state["pids"] if Path(f"/proc/{pid}").exists()] == []
    host, port = state["url"].removeprefix("https://").split(":")
    with socket.socket() as listener:
        listener.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # closed connections may linger, a listener may not
        listener.bind((host, int(port)))


def test_all_feature_sets_are_known_gates() -> None:
    with ControlPlane.start(features=["gang-scheduling"]) as gated:
        gated.create_namespace("gangs")
        group = {
            "metadata": {"name": "pair"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        }
        created = gated.api.create(
            "/apis/scheduling.k8s.io/v1beta1/namespaces/gangs/podgroups", group
        )
        assert created["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
        assert sorted(gated.running()) == sorted(COMPONENTS)


def test_an_unknown_feature_set_is_refused_by_name() -> None:
    with pytest.raises(HarnessError) as failure:
        ControlPlane.start(features=["warp-drive"])
    assert (
        str(failure.value)
        == "unknown features ['warp-drive']; there are ['gang-scheduling', 'gang-scheduling-1.36']"
    )


def test_binaries_are_outside_the_checkout_and_follow_the_pinned_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(build.BIN_VARIABLE, raising=False)
    before = build.installed_folder()
    assert not before.is_relative_to(ROOT)
    tools = tmp_path / "tools"
    shutil.copytree(ROOT / "tests" / "harness" / "tools", tools)
    with (tools / "helm" / "go.sum").open("a") as sums:
        sums.write("another v1.0.0 h1:sum=\n")
    monkeypatch.setattr(build, "_TOOLS", tools)
    assert build.installed_folder() != before


def test_wait_for_reports_the_last_state_seen() -> None:
    with pytest.raises(AssertionError) as failure:
        wait_for(list, timeout=0, what="a pod")
    assert str(failure.value) == "waited 0 s for a pod; last seen: []"


def test_own_variables_keep_clients_out_of_the_home_folder(control_plane: ControlPlane) -> None:
    folder = str(control_plane.kubeconfig.parent)
    assert all(value.startswith(folder) for value in control_plane.environment().values())
    assert control_plane.kubeconfig.stat().st_mode & 0o777 == 0o600
