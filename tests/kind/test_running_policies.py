"""NetworkPolicies that nodes enforce: who reaches a group that serves, and whom its pods reach."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kind import release, serving
from tests.kind.breaking import FOLLOWER, LEADER
from tests.kind.cluster import Cluster
from tests.kind.serving import CLIENT, NAMESPACE, Facts, Served

pytestmark = pytest.mark.timeout(600)

STRANGERS, STRANGER = "strangers", "stranger"
API_SERVER = "kubernetes.default.svc:443"
SERVING_PORT = 8000

_REACHED = """
import json, socket, sys
def answers(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError:
        return False
    return True
print(json.dumps([address for address in sys.argv[1:] if answers(address)]))
"""
"""Prints which of the addresses take a connection; a name that nobody knows takes none."""

_LISTENING = """
import json
def ports(name):
    for line in open("/proc/net/" + name).read().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        address, _, port = local.partition(":")
        if state == "0A" and not address.endswith(("7F", "01000000")):  # loopback
            yield int(port, 16)
print(json.dumps(sorted({*ports("tcp"), *ports("tcp6")})))
"""
"""Prints the ports of a pod at which others may find somebody."""


@pytest.fixture(scope="module")
def group(pipeline: tuple[Served, Facts]) -> Served:
    """Two pods on two nodes, that serve."""
    served, _ = pipeline
    served.wait_ready()
    return served


@pytest.fixture(scope="module")
def addresses(group: Served) -> dict[int, list[str]]:
    """Where the processes of each rank listen."""
    found = {}
    for rank, pod in enumerate(group.pods()):
        ports = json.loads(group.inside(rank, f"python3 -c '{_LISTENING}'"))
        found[rank] = [f"{pod['status']['podIP']}:{port}" for port in ports]
    return found


@pytest.fixture(scope="module")
def stranger(kind: Cluster) -> Iterator[None]:
    """A pod of another namespace."""
    pod = serving.plain_pod(STRANGER, release.image(kind))
    pod["metadata"]["namespace"] = STRANGERS
    kind.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STRANGERS}}, pod)
    try:
        kind.kubectl(
            *("-n", STRANGERS, "wait", f"pod/{STRANGER}"),
            *("--for=condition=Ready", "--timeout=120s"),
        )
        yield
    finally:
        kind.kubectl("delete", "namespace", STRANGERS, "--wait=false")


def test_doctor_measures_that_the_cluster_enforces_them(kind: Cluster) -> None:
    words = ["doctor", "--network-policies", f"--kubeconfig={kind.kubeconfig}", "--output=json"]
    shardwright = Path(sys.executable).with_name("shardwright")
    done = subprocess.run([shardwright, *words], capture_output=True, check=False, text=True)

    results = {one["check"]: one for one in json.loads(done.stdout)["checks"]}
    assert results["NetworkPolicies"]["result"] == "Fine", done.stdout


@pytest.mark.usefixtures("stranger")
def test_a_stranger_reaches_no_port_of_a_rank_and_a_client_the_serving_one(
    group: Served, addresses: dict[int, list[str]]
) -> None:
    every = [address for found in addresses.values() for address in found]
    (serving_one,) = (one for one in addresses[LEADER] if one.endswith(f":{SERVING_PORT}"))

    assert min(map(len, addresses.values())) > 0
    assert _reached(group.cluster, STRANGERS, STRANGER, *every) == []
    assert _reached(group.cluster, NAMESPACE, CLIENT, *every) == [serving_one]


@pytest.mark.usefixtures("stranger")
def test_a_rank_reaches_its_members_and_names_and_nobody_else(
    group: Served, addresses: dict[int, list[str]]
) -> None:
    metrics = f"shardwright-metrics.{release.NAMESPACE}.svc:8081"
    (leader,) = (one for one in addresses[LEADER] if one.endswith(f":{SERVING_PORT}"))
    member = f"{group.name}-0-{FOLLOWER}"

    assert _reached(group.cluster, STRANGERS, STRANGER, API_SERVER, metrics) == [
        API_SERVER,
        metrics,
    ]
    assert _reached(group.cluster, NAMESPACE, member, API_SERVER, metrics, leader) == [leader]
    assert group.inside(FOLLOWER, "getent hosts kubernetes.default.svc")


def _reached(cluster: Cluster, namespace: str, pod: str, *addresses: str) -> list[str]:
    words = ["-n", namespace, "exec", pod, "--", "python3", "-c", _REACHED, *addresses]
    found: list[str] = json.loads(cluster.kubectl(*words))
    return found
