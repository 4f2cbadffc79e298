"""The caches before a real API server: what they hold is what there is, whatever has happened to it
or to the connection.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from shardwright.cluster.access import open_access
from shardwright.cluster.caches import Caches
from shardwright.cluster.client import Client
from shardwright.cluster.ledger import Ledger
from shardwright.cluster.reader import ReaderHealth, Timing
from shardwright.cluster.sources import project_config_map, project_node, project_pod
from shardwright.cluster.store import Store
from shardwright.reconcile.observed import STATEFUL_SET
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.fault_proxy import FaultProxy
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
IMPATIENT = Timing(proof=1, first_pause=0.1, longest_pause=0.5)


@dataclass
class Running:
    """Caches on a loop of their own, and what they should hold."""

    caches: Caches
    control_plane: ControlPlane
    ledger: Ledger

    def wait_until_true(self) -> None:
        wait_for(
            lambda: self.caches.synced and self.held() == self.truth(),
            60,
            "the caches to hold what there is",
        )

    def held(self) -> Any:
        store = self.caches.store
        return dict(store.nodes), dict(store._pods), dict(store._config_maps)

    def failing(self) -> dict[str, ReaderHealth]:
        return {
            kind: health
            for kind, health in self.caches.health.items()
            if health.failing_since is not None
        }

    def truth(self) -> Any:
        return (
            {name: facts for (_, name), facts in self._listed("nodes", project_node).items()},
            self._listed("pods", project_pod),
            self._listed("configmaps", project_config_map),
        )

    def _listed(self, plural: str, project: Any) -> dict[tuple[str, str], Any]:
        items = self.control_plane.api.get(f"/api/v1/{plural}")["items"]
        keys = [(item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in items]
        return {
            key: kept
            for key, item in zip(keys, items, strict=True)
            if (kept := project(item)) is not None
        }


@contextmanager
def running(control_plane: ControlPlane, kubeconfig: Path | None = None) -> Iterator[Running]:
    access = open_access(kubeconfig or control_plane.kubeconfig)
    client, loop, ledger = Client(access, threads=1), asyncio.new_event_loop(), Ledger()
    caches = Caches(client, Store(ledger), lambda _: None, timing=IMPATIENT)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    loop.call_soon_threadsafe(caches.start)
    try:
        yield Running(caches, control_plane, ledger)
    finally:
        caches.stop()
        caches.join(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        client.close()


def a_group(namespace: str, replicas: int) -> Manifest:
    labels = {
        "app.kubernetes.io/managed-by": "shardwright",
        "shardwright.io/model": "llama",
        "shardwright.io/group": "llama-0",
    }
    limits = {"nvidia.com/gpu": "8"}
    spec = {"containers": [{"name": "engine", "image": "engine", "resources": {"limits": limits}}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "llama-0", "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "serviceName": "llama",
            "selector": {"matchLabels": {"shardwright.io/group": "llama-0"}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def test_the_caches_hold_what_there_is_while_a_group_comes_changes_and_goes(
    control_plane: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    path, api = f"/apis/apps/v1/namespaces/{namespace}/statefulsets", control_plane.api
    with running(control_plane) as reading:
        store = reading.caches.store
        reading.wait_until_true()
        fleet(H100, 3)
        uid = api.create(path, a_group(namespace, 3))["metadata"]["uid"]
        wait_for(
            lambda: [member.ready for member in store.members((namespace, uid))] == [True] * 3,
            60,
            "three ready members",
        )
        reading.wait_until_true()
        assert sorted(reading.ledger.taken()[node] for node in fleet.names) == [8, 8, 8]

        api.patch(f"{path}/llama-0", {"spec": {"replicas": 1}})
        api.patch(f"/api/v1/nodes/{fleet.names[0]}", {"spec": {"unschedulable": True}})
        api.create(
            f"/api/v1/namespaces/{namespace}/configmaps",
            {"metadata": {"name": "new"}, "data": {"a": "b"}},
        )
        wait_for(
            lambda: [member.rank for member in store.members((namespace, uid))] == [0],
            60,
            "one member",
        )
        reading.wait_until_true()

        api.delete(f"{path}/llama-0")
        wait_for(
            lambda: not reading.ledger.taken().keys() & set(fleet.names), 60, "all GPUs to be free"
        )
        wait_for(
            lambda: store.child(STATEFUL_SET, namespace, "llama-0") is None,
            60,
            "the StatefulSet to be gone",
        )
        reading.wait_until_true()
        counts = reading.caches.counts
        assert {
            kind: counts[kind].failures for kind in ("Node", "Pod", "ConfigMap", STATEFUL_SET)
        } == dict.fromkeys(("Node", "Pod", "ConfigMap", STATEFUL_SET), 0)
    assert reading.caches.absent_kinds >= {"ComputeDomain.v1beta1.resource.nvidia.com"}


def forget_history(control_plane: ControlPlane) -> None:
    """Have etcd forget all versions but the present ones, as it does every five minutes: older
    watches have expired.
    """
    version = control_plane.api.get("/api/v1/configmaps", limit="1")["metadata"]["resourceVersion"]
    with socket.socket(socket.AF_UNIX) as etcd:
        etcd.connect(str(control_plane._folder / "etcd.sock"))
        connection = HTTPConnection("etcd")
        connection.sock = etcd
        connection.request(
            "POST", "/v3/kv/compaction", json.dumps({"revision": version, "physical": True})
        )
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()


def test_what_happened_while_nobody_could_see_it_is_seen_afterwards(tmp_path: Path) -> None:
    with (
        ControlPlane.start() as control_plane,
        FaultProxy(control_plane.url, control_plane.ca_file) as proxy,
    ):
        api, fleet = control_plane.api, Fleet(control_plane)
        fleet(H100, 2)
        namespace = control_plane.create_namespace("gap")
        by_proxy = (
            tmp_path / "kubeconfig"
        )  # the library reads it again and again, so that an address set beside it does not last
        by_proxy.write_text(
            control_plane.kubeconfig.read_text().replace(control_plane.url, proxy.url)
        )
        maps = f"/api/v1/namespaces/{namespace}/configmaps"
        api.create(maps, {"metadata": {"name": "goes"}})
        api.create(f"/apis/apps/v1/namespaces/{namespace}/statefulsets", a_group(namespace, 2))
        with running(control_plane, by_proxy) as reading:
            wait_for(lambda: len(reading.ledger.taken()) == 2, 60, "both nodes to be taken")
            reading.wait_until_true()
            outage = proxy.cut()
            api.delete(f"{maps}/goes")
            api.create(maps, {"metadata": {"name": "comes"}})
            api.delete(f"/apis/apps/v1/namespaces/{namespace}/statefulsets/llama-0")
            wait_for(
                lambda: not api.get(f"/api/v1/namespaces/{namespace}/pods")["items"],
                60,
                "the pods to be gone",
            )
            forget_history(control_plane)
            with control_plane.without_api_server():
                outage.end()
            wait_for(lambda: not reading.ledger.taken(), 60, "the caches to see it")
            reading.wait_until_true()
            wait_for(lambda: not reading.failing(), 30, "all readers to be well")
            counts = reading.caches.counts
            assert min(counts[kind].lists for kind in ("Pod", "ConfigMap", STATEFUL_SET)) >= 2, (
                "their versions had not expired"
            )


def test_an_object_that_is_nested_beyond_all_bounds_is_read_like_any_other(
    control_plane: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    """The API server takes managed fields of any depth from anybody who may write an object."""
    (node,) = fleet(H100, 1)
    fields = '{"f:a":' * 5000 + "{}" + "}" * 5000
    managed = (
        f'[{{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields}'
        "}]"
    )
    pod = a_group(namespace, 1)["spec"]["template"] | {"apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] |= {"name": "deep", "managedFields": "MANAGED"}
    pod["spec"]["nodeName"] = node
    path = f"/api/v1/namespaces/{namespace}/pods"
    deep = json.dumps(pod).replace('"MANAGED"', managed)
    with running(control_plane) as reading:
        wait_for(lambda: reading.caches.synced, 60, "the caches to be complete")
        control_plane.kubectl("create", "--raw", path, "-f", "-", input=deep)
        wait_for(lambda: reading.ledger.taken().get(node) == 8, 30, "the watch to have read it")
    try:
        with running(control_plane) as reading:
            wait_for(lambda: reading.ledger.taken().get(node) == 8, 30, "a list to have read it")
            assert reading.caches.counts["Pod"].unreadable == 0
    finally:
        control_plane.kubectl("delete", "pod", "deep", "-n", namespace, "--force", "--wait=false")
