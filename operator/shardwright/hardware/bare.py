"""Which nodes offer no GPUs by a device plugin, so that slices must say whether they have any?"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
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
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import read_raw
from shardwright.hardware.slices import is_slice
from shardwright.hardware.stated import NONE, Stated
from shardwright.hardware.suitability import RESOURCES
from shardwright.hardware.untrusted import (
    RawNode,
    mapping,
    mappings,
    quantity,
    raw_node,
    text_or_empty,
)

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
