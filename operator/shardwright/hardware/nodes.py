"""What do Nodes say? The way from Kubernetes objects to the inventory starts here.

Anyone may have written these objects: all functions answer with a value, and none raises.

Which nodes offer no GPUs by a device plugin, so that slices must say whether they have any?
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shardwright.errors import Problem
from shardwright.hardware.devices import (
    DeviceClass,
    DeviceSlice,
    NodeDevices,
    read_device_class,
    read_devices,
    read_slice,
)
from shardwright.hardware.facts import GpuUsage, NodeFacts, read_pod
from shardwright.hardware.gpus import NODE_SET, NONE, Gpu, Stated
from shardwright.hardware.identity import identify, identify_slice
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.pools import Reservation, build_inventory
from shardwright.hardware.suitability import (
    RESOURCES,
    NodeSlices,
    gpu_resource,
    has_accelerator,
    is_slice,
    printable,
    product_of,
    read_slices,
    unsuitable,
)
from shardwright.hardware.taints import TaintState, read_taints
from shardwright.hardware.topology import (
    DomainKind,
    Instance,
    find_instance,
    network_way,
    offered_rdma,
    rate_contradiction,
    read_domain,
    read_network,
    read_path,
    stated_path,
)
from shardwright.hardware.untrusted import (
    RawNode,
    is_node_name,
    mapping,
    mappings,
    positive_number,
    quantity,
    raw_node,
    text_or_empty,
)

__all__ = ["GpuUsage", "NodeFacts", "Reservation", "build_inventory", "read_node", "read_pod"]

PRICE: Final = "gpu-hour-price"
_COUNT_KEYS: Final = (
    "nvidia.com/gpu.count",
    "gpu.nvidia.com/count",
    "karpenter.k8s.aws/instance-gpu-count",
)
_SAID_APART: Final = frozenset({TaintState.NOT_READY, TaintState.CORDONED, TaintState.ENDS})
"""States that a node's facts say in fields of their own."""


def read_node(node: object, stated: Stated = NONE) -> NodeFacts | NodeExclusion | None:
    """Return a Node's facts, why its GPUs cannot be planned, or None for a node without GPUs.

    Cordoned, not ready and leaving nodes are facts, not exclusions: their running pods count on
    them. ``stated`` is the administrator's statement on GPUs and nodes.
    """
    return read_raw(raw_node(node, stated.label_prefix), stated)


def read_raw(
    raw: RawNode, stated: Stated = NONE, devices: NodeDevices | Problem | None = None
) -> NodeFacts | NodeExclusion | None:
    """Return what :func:`read_node` does; ``devices`` are the GPUs of a node that offers none
    itself, or why not.
    """
    if devices is None and not has_accelerator(raw):
        return None
    published = devices if isinstance(devices, NodeDevices) else None
    # All further checks are those of a node with a device plugin.
    raw = _offering(raw, published) if published else raw
    resource = published.resource if published else gpu_resource(raw)
    against = devices if isinstance(devices, Problem) else unsuitable(raw, resource)
    slices = _slices(raw, published)
    identified = (
        identify_slice(raw, slices, stated, published)
        if slices
        else identify(raw, resource, stated, published)
    )
    found = against or _of_others(raw, stated.node_set) or identified
    if isinstance(found, Problem):
        # The name goes into messages, and whoever writes a Node may put anything there.
        name = raw.name if is_node_name(raw.name) else printable(raw.name)
        # A node that is out of use may be waited for, by its product.
        product = "" if isinstance(identified, Problem) else identified[1]
        return NodeExclusion(node=name, problem=found, product=product, ready=_is_ready(raw))
    gpu, product = found
    facts = replace(
        _facts(raw, resource, gpu, product, stated), gpu_hour_price=_price(raw, gpu, stated)
    )
    return _published(facts, published) if published else facts


def _offering(raw: RawNode, devices: NodeDevices) -> RawNode:
    """The labels stay those that pods can select by."""
    resource = devices.resource
    return replace(
        raw,
        allocatable={**raw.allocatable, resource: devices.usable},
        capacity={**raw.capacity, resource: devices.gpus},
    )


def _slices(raw: RawNode, devices: NodeDevices | None) -> NodeSlices | None:
    if devices is None:
        return read_slices(raw)
    if not devices.profile:
        return None
    return NodeSlices(
        profile=devices.profile,
        resource=devices.resource,
        product=product_of(devices.product, devices.profile),
        memory_bytes=devices.memory_bytes,
    )


def _published(facts: NodeFacts, devices: NodeDevices) -> NodeFacts:
    warnings = facts.warnings
    if facts.domain.kind is DomainKind.NONE and devices.pcie_roots > 1:
        warnings += (
            f"GPUs on {devices.pcie_roots} PCIe roots: between them traffic crosses the CPU",
        )
    return replace(facts, claimed=devices.claimed, warnings=warnings, published=True)


def _of_others(raw: RawNode, node_set: str) -> Problem | None:
    said = raw.labels.get(NODE_SET, "")
    if said == node_set:
        return None
    return Problem(
        code="OtherNodeSet",
        what=f"label {NODE_SET} ({printable(said) if said else 'not set'})",
        limit=f"must be {printable(node_set)}" if node_set else "must not be set",
        remedy="leave the node to the installation that it is for, or move it here while no GPU "
        "of it is used",
    )


def _facts(raw: RawNode, resource: str, gpu: Gpu, product: str, stated: Stated) -> NodeFacts:
    # Allocatable, not the label gpu.count, which goes on counting GPUs that nobody can request
    # (NVIDIA/k8s-device-plugin#1501).
    gpus = quantity(raw.allocatable[resource]) or 0
    counts = (quantity(raw.labels.get(key)) or 0 for key in _COUNT_KEYS)
    # Capacity and labels go on counting GPUs that are not healthy any more.
    physical = max(gpus, quantity(raw.capacity.get(resource)) or 0, *counts)
    instance = _matching_instance(raw, gpu)
    domain = read_domain(raw, gpu, gpus, physical, instance)
    taints = read_taints(mappings(raw.spec.get("taints")), stated.taint_states)
    rates = rate_contradiction(raw, gpus, instance)
    unhealthy = f"{gpus} of {physical} GPUs are healthy" if gpus < physical else ""
    return NodeFacts(
        name=raw.name,
        resource=resource,
        gpus=gpus,
        gpu=gpu,
        product=product,
        architecture=_architecture(raw, gpu),
        domain=domain,
        network=read_network(raw, gpu, gpus, instance),
        path=stated_path(raw) or read_path(raw.labels),
        labels=raw.labels,
        taints=tuple(taint for taint in taints if taint.state not in _SAID_APART),
        schedulable=not raw.spec.get("unschedulable"),
        ready=_is_ready(raw),
        created=raw.created,
        # An autoscaler taints a node before it deletes it (Karpenter docs, "Disruption";
        # cluster-autoscaler utils/taints/taints.go).
        deleting=raw.deleting
        or any(taint.hard and taint.state is TaintState.ENDS for taint in taints),
        warnings=tuple(filter(None, (unhealthy, domain.warning, rates, *_no_numbers(raw)))),
        rdma=offered_rdma(raw, stated.rdma_resources),
        network_way=network_way(raw, instance),
        host_bytes=quantity(raw.allocatable.get("memory")),
        disk_bytes=quantity(raw.allocatable.get("ephemeral-storage")),
        sick=physical - gpus,
    )


def _price(raw: RawNode, gpu: Gpu, stated: Stated) -> float | None:
    """Return a GPU's price for an hour; one that the node may have given itself counts only if
    nobody else states one.
    """
    said, general = positive_number(raw.vouched(PRICE)), stated.price_of(gpu)
    said = said and said / gpu.slices
    return (said or general) if raw.label_prefix else (general or said)


def _no_numbers(raw: RawNode) -> Iterator[str]:
    for key in ("network-gbps-per-gpu", PRICE):
        said = raw.stated(key)
        if said and positive_number(said) is None:
            yield (
                f"shardwright.io/{key} {printable(said)} is "
                "not a number above 0 and counts as not set"
            )


def _matching_instance(raw: RawNode, gpu: Gpu) -> Instance | None:
    """Return the instance type's row, unless the labels show another GPU than it lists."""
    instance = find_instance(raw)
    return instance if instance and instance.gpu_id == gpu.id else None


def _architecture(raw: RawNode, gpu: Gpu) -> str:
    reported = text_or_empty(mapping(raw.status.get("nodeInfo")).get("architecture"))
    architecture = (
        raw.labels.get("kubernetes.io/arch")
        or raw.labels.get("beta.kubernetes.io/arch")
        or reported
        or gpu.host_architecture
    )
    return "arm64" if architecture == "arm64" else "amd64"


def _is_ready(raw: RawNode) -> bool:
    """A dump without conditions says nothing, which is ready."""
    unready = any(
        condition.get("type") == "Ready" and condition.get("status") != "True"
        for condition in mappings(raw.status.get("conditions"))
    )
    taints = read_taints(mappings(raw.spec.get("taints")), {})
    return not unready and not any(taint.state is TaintState.NOT_READY for taint in taints)


OUR_KEYS: Final = "shardwright.io/"
_OF_READINESS: Final = ("type", "status", "lastTransitionTime")


@dataclass(frozen=True, slots=True, kw_only=True)
class BareNode:
    """A node without allocatable GPUs; a heartbeat does not change it.

    ``entry`` is its facts without slices, or why its GPUs cannot be planned; None if it has none.
    """

    raw: RawNode
    entry: NodeFacts | NodeExclusion | None
    stated: Stated = field(compare=False)

    def having(self, devices: NodeDevices | Problem | None) -> NodeFacts | NodeExclusion | None:
        """Return the facts of the node with the devices of its slices (None: they have none)."""
        if devices is None:
            return self.entry
        return read_raw(self.raw, self.stated, devices)


def bare_node(raw: RawNode, stated: Stated) -> BareNode | None:
    """Return the kept parts of a node, None if a device plugin offers GPUs.

    Slices say nothing then, even while the plugin is away and no GPU is allocatable: the kubelet
    leaves them in the capacity for five minutes (``endpointStopGracePeriod``).
    """
    offered = (raw.allocatable, raw.capacity)
    if any(
        quantity(value) and (resource in RESOURCES or is_slice(resource))
        for of in offered
        for resource, value in of.items()
    ):
        return None
    return BareNode(raw=_kept(raw), entry=read_raw(raw, stated), stated=stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDevices:
    """What drivers publish: slices by node, and DeviceClasses by name."""

    slices: Mapping[str, tuple[DeviceSlice, ...]] = field(default_factory=dict)
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)

    def read(self, node: object, stated: Stated = NONE) -> NodeFacts | NodeExclusion | None:
        """Return what ``read_node`` does; a node that offers no GPUs itself gets its published
        devices.
        """
        raw = raw_node(node, stated.label_prefix)
        bare = bare_node(raw, stated)
        if bare is None:
            return read_raw(raw, stated)
        slices = self.slices.get(raw.name)
        return bare.having(read_devices(slices, self.classes) if slices else None)


NOTHING_PUBLISHED: Final = PublishedDevices()


def read_published(
    slices: Iterable[object], classes: Iterable[Mapping[str, Any]]
) -> PublishedDevices:
    """Return the devices that ResourceSlices and DeviceClasses publish."""
    of_node: defaultdict[str, tuple[DeviceSlice, ...]] = defaultdict(tuple)
    for item in slices:
        if found := read_slice(item):
            of_node[found.node] += (found,)
    named = {
        text_or_empty(mapping(item.get("metadata")).get("name")): read_device_class(item)
        for item in classes
    }
    return PublishedDevices(slices=dict(of_node), classes=named)


def _kept(raw: RawNode) -> RawNode:
    spec = {key: raw.spec[key] for key in ("taints", "unschedulable") if key in raw.spec}
    architecture = mapping(raw.status.get("nodeInfo")).get("architecture")
    conditions = [
        _parts(item, _OF_READINESS)
        for item in mappings(raw.status.get("conditions"))
        if item.get("type") == "Ready"
    ]
    annotations = {
        key: value for key, value in raw.annotations.items() if str(key).startswith(OUR_KEYS)
    }
    status = {"conditions": conditions, "nodeInfo": {"architecture": architecture}}
    return replace(raw, annotations=annotations, spec=spec, status=status)


def _parts(content: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: content[name] for name in names if name in content}
