"""The cluster itself: one control plane and three workers, with the GPUs that their labels
pretend.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for
from tests.kind import cache, programs
from tests.kind.docker import INSIDE, RUN, Docker, count_as
from tests.kind.shell import run, step

NAME = "shardwright"
WORKERS = 3
GPUS_PER_NODE = 2
API_PORT = 6443
PODS, SERVICES = "10.244.0.0/16", "10.96.0.0/16"
MODELS_FOLDER = "/opt/models"
RUNTIME_CLASS = "engine"

_COUNT = "nvidia.com/gpu.count"

GPU_LABELS: Mapping[str, str] = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "Tesla-T4",
    "nvidia.com/gpu.memory": "15360",
    _COUNT: str(GPUS_PER_NODE),
    "nvidia.com/gpu.compute.major": "7",
    "nvidia.com/gpu.compute.minor": "5",
    "nvidia.com/mig.capable": "false",
}
"""What GPU feature discovery writes on a node with two T4, the smallest GPU of the catalogue."""

_MADE_OF = "made-of"  # a file with the digest of what the cluster was made from

_KUBELET = """\
kind: KubeletConfiguration
failCgroupV1: false
featureGates: {KubeletInUserNamespace: true}
"""
_NODE_SECONDS, _DNS_SECONDS = 180, 180


class Cluster:
    """A running cluster, seen through kubectl and helm; ours, or any other by its kubeconfig."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        self._folder = folder

    def kubectl(self, *words: str, text: str | None = None) -> str:
        """Run kubectl as the administrator and return what it prints."""
        return run(self.command(*words), data=None if text is None else text.encode())

    def command(self, *words: str) -> list[str]:
        """Return what runs kubectl as the administrator."""
        return [str(self._folder / "kubectl"), f"--kubeconfig={self.kubeconfig}", *words]

    def helm(self, *words: str, text: str | None = None) -> str:
        """Run helm as the administrator and return what it prints."""
        return run(
            [self._folder / "helm", f"--kubeconfig={self.kubeconfig}", *words],
            data=None if text is None else text.encode(),
        )

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(objects))

    def get(self, *words: str) -> Any:
        """Return an object, or a list of objects, as kubectl has it."""
        return json.loads(self.kubectl("get", *words, "--output=json"))

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes."""
        items: list[dict[str, Any]] = self.get("nodes")["items"]
        return items

    def addresses(self) -> list[str]:
        """Return the addresses of all nodes."""
        return [_address(node) for node in self.nodes()]


def kubeconfig() -> Path:
    """Where the kubeconfig of our cluster is while it is up."""
    return RUN / "kubeconfig"


def running(image: str, folders: Mapping[str, Path]) -> Cluster | None:
    """Our cluster, if it runs and is the one that `create` would make."""
    made = RUN / _MADE_OF
    if not made.exists() or made.read_text() != _made_of(image, folders):
        return None
    cluster = Cluster(kubeconfig(), programs.programs())
    with contextlib.suppress(HarnessError):
        return cluster if all(map(is_ready, cluster.nodes())) else None
    return None


def _made_of(image: str, folders: Mapping[str, Path]) -> str:
    return cache.digest(image, json.dumps(_settings(folders), sort_keys=True))


def create(docker: Docker, image: str, folders: Mapping[str, Path]) -> Cluster:
    """Create the cluster and return it when its nodes are Ready and its DNS answers.

    folders: what is mounted into every worker, by the path there.
    """
    folder = programs.programs()
    cluster = Cluster(kubeconfig(), folder)
    delete(docker)
    with step(f"creating the cluster: 1 control plane, {WORKERS} workers", 40):
        settings = yaml.safe_dump(_settings(folders)).encode()
        options = [
            "--name",
            NAME,
            "--image",
            image,
            "--kubeconfig",
            str(kubeconfig()),
            "--config",
            "-",
            "--retain",
        ]
        run(
            [folder / "kind", "create", "cluster", *options],
            data=settings,
            environment=docker.environment,
        )
        count_as(1 + WORKERS)
        _connect_pods(docker, cluster)
        pretend_gpus(cluster, GPUS_PER_NODE)
        _mend_dns(cluster)
        _guard(cluster)
        wait_for(
            lambda: all(map(is_ready, cluster.nodes())), _NODE_SECONDS, "the nodes to be Ready", 1
        )
        cluster.kubectl(
            "-n",
            "kube-system",
            "rollout",
            "status",
            "deployment/coredns",
            f"--timeout={_DNS_SECONDS}s",
        )
        cluster.kubectl(
            "-n",
            "kube-system",
            "rollout",
            "status",
            "daemonset/kube-router",
            f"--timeout={_NODE_SECONDS}s",
        )
    (RUN / _MADE_OF).write_text(_made_of(image, folders))
    return cluster


def require_pretended(cluster: Cluster) -> None:
    """Refuse a cluster whose nodes have other GPUs than ours pretend: the tests write labels and
    capacities of nodes.

    Raises:
        HarnessError: a node has.
    """
    for node in cluster.nodes():
        count = node["metadata"]["labels"].get(_COUNT, str(GPUS_PER_NODE))
        if count != str(GPUS_PER_NODE):
            raise HarnessError(
                f"node {node['metadata']['name']} says {_COUNT}={count}: the tests write labels "
                "and capacities of nodes, and are "
                f"for nodes that pretend {GPUS_PER_NODE} GPUs"
            )


def restore(cluster: Cluster) -> None:
    """Undo what a test that was killed has left on the nodes."""
    pretend_gpus(cluster, GPUS_PER_NODE)
    cluster.kubectl("uncordon", *(node["metadata"]["name"] for node in cluster.nodes()))


def revive(docker: Docker, cluster: Cluster, node: str, gpus: int) -> None:
    """Start a worker that was killed, with all that only its network and its kubelet's first start
    had.
    """
    docker("start", node)
    _connect_pods(docker, cluster)
    wait_for(lambda: all(map(is_ready, cluster.nodes())), _NODE_SECONDS, "the nodes to be Ready", 1)
    pretend_gpus(cluster, gpus)


def delete(docker: Docker) -> None:
    """Delete the cluster, if there is one."""
    (RUN / _MADE_OF).unlink(missing_ok=True)
    folder = programs.programs()
    run(
        [folder / "kind", "delete", "cluster", "--name", NAME, "--kubeconfig", kubeconfig()],
        environment=docker.environment,
    )


def load(docker: Docker, *images: str) -> None:
    """Give the workers these images."""
    missing = {
        node: _missing(docker, node, images)
        for node in _names(docker)
        if "control-plane" not in node
    }
    wanted = sorted({image for each in missing.values() for image in each})
    if not wanted:
        return
    with (
        step(f"loading {len(wanted)} images into the workers", 60),
        cache.scratch("images") as folder,
    ):
        docker("save", "--output", folder / "images.tar", *wanted)
        with (
            ThreadPoolExecutor() as nodes
        ):  # unpacking keeps a processor busy, and no node waits for another
            list(
                nodes.map(
                    lambda node: _import(docker, node, folder / "images.tar"),
                    filter(missing.get, missing),
                )
            )


def remove_image(docker: Docker, node: str, image: str) -> None:
    """Take an image from a worker, which then cannot start a container of it: there is no registry
    to pull it from.
    """
    docker(
        "exec", node, "ctr", "--namespace=k8s.io", "images", "rm", "--sync", f"docker.io/{image}"
    )


def make_folder(docker: Docker, folder: str) -> None:
    """Make a folder on every worker that pods of any user may write to: what a claim of a real
    cluster would be.
    """
    for node in _names(docker):
        docker("exec", node, "install", "-d", "-m", "0777", folder)


def remove_folder(docker: Docker, folder: str) -> None:
    """Remove a folder from every worker, with what pods have written there."""
    for node in _names(docker):
        docker("exec", node, "rm", "-rf", "--", folder)


def _import(docker: Docker, node: str, archive: Path) -> None:
    with archive.open("rb") as saved:
        words = [
            "ctr",
            "--namespace=k8s.io",
            "images",
            "import",
            "--all-platforms",
            "--digests",
            "-",
        ]
        docker("exec", "--interactive", node, *words, data=saved)


def _missing(docker: Docker, node: str, images: Iterable[str]) -> list[str]:
    held = docker("exec", node, "ctr", "--namespace=k8s.io", "images", "ls", "-q").split()
    return [image for image in images if f"docker.io/{image}" not in held]


def _names(docker: Docker) -> list[str]:
    listed = run(
        [programs.programs() / "kind", "get", "nodes", "--name", NAME],
        environment=docker.environment,
    )
    return sorted(listed.split())


def _settings(folders: Mapping[str, Path]) -> dict[str, Any]:
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {
            "apiServerAddress": INSIDE,
            "apiServerPort": API_PORT,
            "disableDefaultCNI": True,
            "podSubnet": PODS,
            "serviceSubnet": SERVICES,
        },
        "kubeadmConfigPatches": [_KUBELET],
        "nodes": [{"role": "control-plane"}, *(worker(folders) for _ in range(WORKERS))],
    }


def worker(folders: Mapping[str, Path]) -> dict[str, Any]:
    """What kind is told of a worker: labels of a node with GPUs, and folders of the machine by the
    path in the node.
    """
    mounts = [
        {"hostPath": str(outside), "containerPath": inside, "readOnly": True}
        for inside, outside in folders.items()
    ]
    return {"role": "worker", "labels": dict(GPU_LABELS), "extraMounts": mounts}


def _connect_pods(docker: Docker, cluster: Cluster) -> None:
    """Tell every node the way to the pods of every other: what a network plugin with a daemon would
    do.
    """
    ways = wait_for(lambda: _ways(cluster), _NODE_SECONDS, "the nodes to have pod networks", 1)
    for name in ways:
        for other, (network, address) in ways.items():
            if other != name:
                docker("exec", name, "ip", "route", "replace", network, "via", address)


def _ways(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Pod network and address of every node; nothing until all have both."""
    ways = {
        node["metadata"]["name"]: (node["spec"]["podCIDR"], _address(node))
        for node in cluster.nodes()
    }
    return ways if len(ways) == 1 + WORKERS else {}


def _address(node: Mapping[str, Any]) -> str:
    addresses = [
        entry["address"] for entry in node["status"]["addresses"] if entry["type"] == "InternalIP"
    ]
    if not addresses:
        raise HarnessError(f"node {node['metadata']['name']} has no address")
    return str(addresses[0])


def pretend_gpus(cluster: Cluster, per_node: int) -> None:
    """Write label and capacity as feature discovery and a device plugin would; the kubelet keeps it
    and fills allocatable.
    """
    patch = [{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": str(per_node)}]
    for node in cluster.nodes():
        if _COUNT in node["metadata"]["labels"]:
            name = node["metadata"]["name"]
            cluster.kubectl("label", "node", name, f"{_COUNT}={per_node}", "--overwrite")
            cluster.kubectl(
                "patch",
                "node",
                name,
                "--subresource=status",
                "--type=json",
                "-p",
                json.dumps(patch),
            )
    wait_for(
        lambda: (
            {node["status"]["allocatable"].get("nvidia.com/gpu") for node in cluster.nodes()}
            == {None, str(per_node)}
        ),
        60,
    )


def _mend_dns(cluster: Cluster) -> None:
    """Let CoreDNS answer for the cluster alone: the node's resolver is Docker's, and nothing
    outside is to be asked.
    """
    found = cluster.get("configmap", "coredns", "-n", "kube-system")
    patch = json.dumps({"data": {"Corefile": without_upstream(found["data"]["Corefile"])}})
    cluster.kubectl("-n", "kube-system", "patch", "configmap", "coredns", "-p", patch)
    cluster.kubectl("-n", "kube-system", "rollout", "restart", "deployment/coredns")


def _guard(cluster: Cluster) -> None:
    """Let every node enforce NetworkPolicies."""
    text = (cache.HERE / "node" / "kube-router.yaml").read_text()
    for mark, meant in (("@IMAGE@", programs.FIREWALL_IMAGE), ("@SERVICES@", SERVICES)):
        text = text.replace(mark, meant)
    cluster.kubectl("apply", "-f", "-", text=text)


def without_upstream(corefile: str) -> str:
    """A Corefile without `forward`, block and all, and without `loop`."""
    lines, depth = [], 0
    for line in corefile.splitlines():
        word = line.split()[:1]
        if word == ["forward"] or depth:
            depth += line.count("{") - line.count("}")
        elif word != ["loop"]:
            lines.append(line)
    return "\n".join(lines) + "\n"


def is_ready(node: Mapping[str, Any]) -> bool:
    """Say whether a node is Ready."""
    return any(
        entry["type"] == "Ready" and entry["status"] == "True"
        for entry in node["status"]["conditions"]
    )
