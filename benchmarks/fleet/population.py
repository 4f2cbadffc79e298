"""The manifests of the measured fleet: nodes of real kinds, other people's pods on them, models
from the samples.
"""

from __future__ import annotations

import copy
import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.harness import demo, fleet
from tests.harness.api import Manifest

FOREIGN: Final = "research"
"""Namespace of the pods of other people; nothing plays kubelet there, their status is written here.
"""

PROBES: Final = "probes"
"""Namespace of the models to which things happen while the others are measured."""

TEAMS: Final = 10
"""So many namespaces share the models: a namespace of thousands is a case of its own."""

LEAF: Final = 32
"""Nodes behind one leaf switch."""

ONE_HALF_OF: Final = 9
"""One of so many nodes with foreign pods is taken by half; the others have no GPU left."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Nodes of one dump: which share of the fleet they are (percent), and what the dump leaves
    out.
    """

    dump: str
    prefix: str
    percent: int
    gpus: int | None = None
    labels: dict[str, str] = field(default_factory=dict)


KINDS: Final = (
    Kind("SYNTH-h100-8x-eks-p5", "h100", 60),
    Kind("SYNTH-gb200-4x-nvl72", "gb200", 15),
    Kind("SYNTH-h100-8x-gke-a3mega", "a3m", 15),
    Kind("mi300x-8x-azure-nd96isr-vf", "mi300x", 5),
    Kind("l40s-opennebula-vm", "l40s", 5, gpus=4, labels={"nvidia.com/gpu.count": "4"}),
)


def nodes(count: int) -> list[Manifest]:
    """Return so many nodes, the kinds well mixed, each Ready from the start so that nobody has to
    write that.
    """
    made = [_of_kind(kind, count * kind.percent // 100) for kind in KINDS]
    made[0] += _of_kind(KINDS[0], count - sum(map(len, made)), first=len(made[0]))
    mixed = sorted(
        itertools.chain.from_iterable(made),
        key=lambda node: zlib.crc32(node["metadata"]["name"].encode()),
    )
    for node in mixed:
        node["status"]["conditions"] = [_condition("Ready", "KubeletReady"), *_pressures()]
    return mixed


def _of_kind(kind: Kind, count: int, first: int = 0) -> list[Manifest]:
    if kind.prefix == "gb200":
        return fleet.make_nvl72(-(-count // fleet.NVL72_TRAYS), dump=kind.dump)[:count]
    made = fleet.make(
        kind.dump, count, kind.prefix, gpus=kind.gpus, labels=kind.labels, first=first
    )
    if kind.prefix == "h100":
        for index, node in enumerate(made):
            node["metadata"]["labels"]["topology.k8s.aws/network-node-layer-3"] = (
                f"nn-{(first + index) // LEAF:017x}"
            )
    return made


def _condition(kind: str, reason: str, status: str = "True") -> dict[str, str]:
    since = "2026-01-01T00:00:00Z"
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "lastHeartbeatTime": since,
        "lastTransitionTime": since,
    }


def _pressures() -> list[dict[str, str]]:
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    return [_condition(kind, f"KubeletHasNo{kind}", "False") for kind in kinds]


def foreign_pods(count: int, on: Sequence[Manifest]) -> Iterator[Manifest]:
    """Yield so many bound pods of one GPU; they fill node after node, every ninth of them by
    half.
    """
    free = ((node, index) for index, node in enumerate(on))
    places = (
        (node, resource)
        for node, index in free
        for resource in _taken(node, half=index % ONE_HALF_OF == ONE_HALF_OF - 1)
    )
    for number, (node, resource) in enumerate(itertools.islice(places, count)):
        yield _foreign_pod(f"train-{number:06}", node["metadata"]["name"], resource)


def _taken(node: Manifest, *, half: bool) -> list[str]:
    resource = next(name for name in node["status"]["allocatable"] if name.endswith("/gpu"))
    gpus = int(node["status"]["allocatable"][resource])
    return [resource] * (gpus // 2 if half else gpus)


def _foreign_pod(name: str, node: str, resource: str) -> Manifest:
    held = {resource: "1", "cpu": "8", "memory": "64Gi"}
    container = {
        "name": "trainer",
        "image": "registry.example/research/trainer:2026.1",
        "command": [
            "python",
            "-m",
            "torch.distributed.run",
            "--nnodes=1",
            "train.py",
            "--config=/etc/train/config.yaml",
        ],
        "env": [{"name": f"NCCL_SETTING_{index}", "value": "enabled"} for index in range(12)],
        "resources": {"limits": held, "requests": held},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "shm", "mountPath": "/scratch"},
        ],
    }
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}]
    labels = {"app.kubernetes.io/name": "trainer", "team": FOREIGN, "job": name}
    spec = {
        "nodeName": node,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": volumes,
        "tolerations": [{"operator": "Exists"}],
    }
    return {"metadata": {"name": name, "namespace": FOREIGN, "labels": labels}, "spec": spec}


def running_status(pod: Manifest) -> Manifest:
    """Return the status that a kubelet would report of a pod that runs."""
    began = "2026-01-01T00:00:00Z"
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    container = pod["spec"]["containers"][0]
    state = {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"{container['image']}@sha256:{'0' * 64}",
        "containerID": f"containerd://{pod['metadata']['name']:0>64}",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": began}},
    }
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": began} for kind in kinds]
    return {
        "phase": "Running",
        "startTime": began,
        "conditions": conditions,
        "containerStatuses": [state],
    }


def models(count: int) -> list[Manifest]:
    """Return so many models, a third each of one GPU, of GPUs of one node, and of two nodes, from
    the samples that are served.
    """
    shapes = [itertools.cycle(found) for found in by_shape(demo.samples()) if found]
    return [
        named(
            next(shapes[index % len(shapes)]).manifest, f"model-{index:05}", f"team-{index % TEAMS}"
        )
        for index in range(count)
    ]


def by_shape(
    samples: Sequence[demo.Sample],
) -> tuple[list[demo.Sample], list[demo.Sample], list[demo.Sample]]:
    """Return the samples that become Ready on one GPU, on GPUs of one node, on two nodes."""
    served = [sample for sample in samples if sample.expected["outcome"] == "Ready"]
    wide = [sample for sample in served if sample.expected["nodes"] == "2"]
    single = [
        sample
        for sample in served
        if (sample.expected["tensor"], sample.expected["pipeline"]) == ("1", "1")
    ]
    return (
        single,
        [sample for sample in served if sample not in wide and sample not in single],
        wide,
    )


def probes(count: int) -> list[Manifest]:
    """Return models of two nodes, to which things will happen."""
    sample = by_shape(demo.samples())[2][0]
    return [named(sample.manifest, f"probe-{index}", PROBES) for index in range(count)]


def with_groups(groups: int) -> Manifest:
    """Return one model of one GPU with so many groups."""
    manifest = named(by_shape(demo.samples())[0][0].manifest, "many-groups", PROBES)
    manifest["spec"]["replicas"] = groups
    return manifest


def singles(count: int) -> list[Manifest]:
    """Return models of one GPU that come one by one."""
    sample = by_shape(demo.samples())[0][0]
    return [named(sample.manifest, f"other-{index}", PROBES) for index in range(count)]


def named(manifest: Manifest, name: str, namespace: str) -> Manifest:
    made: dict[str, Any] = copy.deepcopy(manifest)
    made["metadata"] = {"name": name, "namespace": namespace}
    return made
