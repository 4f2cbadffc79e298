"""Which facts of a Node are kept? Small ones, equal as long as nothing that matters has changed.

Which GPUs do pods keep on a node, and for which model? A pod without a node, or finished, holds
none.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from shardwright.hardware.devices import ClaimedDevices, read_claim
from shardwright.hardware.gpus import Gpu, Link
from shardwright.hardware.suitability import RESOURCES, is_slice
from shardwright.hardware.taints import Taint
from shardwright.hardware.topology import Domain, NetworkWay
from shardwright.hardware.untrusted import mapping, mappings, quantity, text_or_empty, texts


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node with whole, known GPUs; a heartbeat does not change it.

    ``gpus`` are the healthy ones (allocatable), held or free. ``gpu`` is the catalogue row with
    the memory of this node's labels, ``host_bytes`` the node's memory for pods and
    ``disk_bytes`` its local disk for them (None: not said), ``gpu_hour_price`` the price of one
    GPU for an hour, ``rdma`` the RDMA devices that pods may request, ``network_way`` how the
    provider gives them. ``created`` is the creation time of the Node, as the API server wrote
    it. ``taints`` leave out those that ``schedulable``, ``ready`` and ``deleting`` stand for.
    ``sick`` are GPUs that the node has and that are not healthy. ``claimed`` are the devices
    that pods claim for its GPUs (None: they request ``resource``). ``published``:
    ResourceSlices have its GPUs, so claims alone hold them.
    """

    name: str
    resource: str
    gpus: int
    gpu: Gpu
    product: str
    architecture: str
    domain: Domain
    network: Link
    path: tuple[tuple[str, str], ...]
    labels: Mapping[str, str] = field(hash=False)
    taints: tuple[Taint, ...] = ()
    schedulable: bool = True
    ready: bool = True
    created: datetime | None = None
    deleting: bool = False
    warnings: tuple[str, ...] = ()
    gpu_hour_price: float | None = None
    rdma: tuple[tuple[str, int], ...] = ()
    network_way: NetworkWay = NetworkWay.RESOURCES
    host_bytes: int | None = None
    disk_bytes: int | None = None
    claimed: ClaimedDevices | None = None
    published: bool = False
    sick: int = 0


MODEL_LABEL: Final = "shardwright.io/model"
GROUP_LABEL: Final = "shardwright.io/group"
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """The GPUs that a pod requests of its node by a ``resource``, or that a claim holds (empty).

    ``owner`` is (namespace, ShardedModel), None for foreign pods.
    """

    node: str
    resource: str
    gpus: int
    owner: tuple[str, str] | None = None
    group: str = ""


def is_held(usage: GpuUsage, node: object) -> bool:
    """Return whether a usage holds GPUs of its node (anything but facts: it cannot be planned).

    A user who names a pod's node can request a resource that it does not offer: the kubelet then
    passes over the request (``removeMissingExtendedResources``), and so does this.
    """
    if not usage.resource or not isinstance(node, NodeFacts):
        return True
    return usage.resource == node.resource and not node.published


def read_pod(pod: object) -> tuple[GpuUsage, ...]:
    """Return the GPUs that a placed, unfinished pod requests, by resource; :func:`is_held` says
    which it holds.

    Terminating pods still hold theirs; a pod nominated to a node (after preemption) counts as
    placed.
    """
    whole = mapping(pod)
    metadata, spec, status = (mapping(whole.get(part)) for part in ("metadata", "spec", "status"))
    node = text_or_empty(spec.get("nodeName")) or text_or_empty(status.get("nominatedNodeName"))
    if not node or text_or_empty(status.get("phase")) in _FINISHED:
        return ()
    owner, group = _model_of(metadata)
    return tuple(
        GpuUsage(node=node, resource=resource, gpus=gpus, owner=owner, group=group)
        for resource in (*RESOURCES, *_slices_named(spec))
        if (gpus := _requested(spec, resource))
    )


def read_claimed(claims: Iterable[object], pods: Iterable[object]) -> Iterator[GpuUsage]:
    """Return the GPUs that ResourceClaims hold, for the models that labels of their pods name."""
    there = {(_text(pod, "namespace"), _text(pod, "name")): pod for pod in pods}
    for claim in claims:
        held = read_claim(claim)
        if held is None:
            continue
        # The scheduler writes the status; labels of a claim are its user's.
        pod = there.get((_text(claim, "namespace"), held.pod), {})
        owner, group = _model_of(mapping(mapping(pod).get("metadata")))
        yield GpuUsage(node=held.node, resource="", gpus=held.gpus, owner=owner, group=group)


def _text(content: object, name: str) -> str:
    return text_or_empty(mapping(mapping(content).get("metadata")).get(name))


def _model_of(metadata: Mapping[str, Any]) -> tuple[tuple[str, str] | None, str]:
    labels = texts(metadata.get("labels"))
    model = labels.get(MODEL_LABEL)
    owner = (text_or_empty(metadata.get("namespace")), model) if model else None
    return owner, labels.get(GROUP_LABEL, "")


def _slices_named(spec: Mapping[str, Any]) -> list[str]:
    return sorted(
        {
            resource
            for kind in ("initContainers", "containers")
            for container in mappings(spec.get(kind))
            for part in ("requests", "limits")
            for resource in map(str, mapping(mapping(container.get("resources")).get(part)))
            if is_slice(resource)
        }
    )


def _requested(spec: Mapping[str, Any], resource: str) -> int:
    """Return what the scheduler counts: the larger of the running containers and of each step of
    the start.
    """
    sidecars = peak = 0
    for container in mappings(spec.get("initContainers")):
        request = _request(container, resource)
        if text_or_empty(container.get("restartPolicy")) == "Always":
            # A sidecar goes on running beside each later step and the containers.
            sidecars += request
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + request)
    running = sidecars + sum(
        _request(container, resource) for container in mappings(spec.get("containers"))
    )
    overhead = quantity(mapping(spec.get("overhead")).get(resource)) or 0
    return max(running, peak) + overhead


def _request(container: Mapping[str, Any], resource: str) -> int:
    """Extended resources may state the limit only."""
    resources = mapping(container.get("resources"))
    stated = (
        quantity(mapping(resources.get(part)).get(resource)) for part in ("requests", "limits")
    )
    return next((amount for amount in stated if amount is not None), 0)
