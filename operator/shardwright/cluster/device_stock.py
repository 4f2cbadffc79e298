"""Nodes, their ResourceSlices and DeviceClasses, joined by node in whatever order they come."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from shardwright.cluster.handover import Change, Key
from shardwright.hardware.bare import BareNode
from shardwright.hardware.devices import DeviceClass, DeviceSlice, read_devices
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion

NodeEntry = NodeFacts | NodeExclusion
Entries = Mapping[str, NodeEntry | None]
"""What nodes are now, by name; None: of no interest."""


class DeviceStock:
    """The nodes that slices may turn into GPUs; every method returns the nodes it has changed."""

    def __init__(self) -> None:
        self._bare: dict[str, BareNode] = {}
        self._slices: dict[str, DeviceSlice] = {}  # by their own names
        self._of_node: defaultdict[str, dict[str, DeviceSlice]] = defaultdict(dict)
        self._classes: dict[str, DeviceClass] = {}

    def take_nodes(self, changes: Mapping[Key, Change[NodeEntry | BareNode]]) -> Entries:
        """Take over changes of nodes."""
        entries: dict[str, NodeEntry | None] = {}
        for (_, name), change in changes.items():
            if isinstance(change.value, BareNode):
                self._bare[name] = change.value
                entries[name] = self._joined(name)
            else:
                # A node whose plugin offers GPUs by itself is none of those that slices complete.
                self._bare.pop(name, None)
                entries[name] = change.value
        return entries

    def take_slices(self, changes: Mapping[Key, Change[DeviceSlice]]) -> Entries:
        """Take over changes of ResourceSlices."""
        nodes = {
            node for (_, name), change in changes.items() for node in self._put(name, change.value)
        }
        return self._all_joined(nodes)

    def take_classes(self, changes: Mapping[Key, Change[DeviceClass]]) -> Entries:
        """Take over changes of DeviceClasses."""
        for (_, name), change in changes.items():
            if change.value is None:
                self._classes.pop(name, None)
            else:
                self._classes[name] = change.value
        # All nodes with slices: a class may select devices of any of them, and classes hardly ever
        # change.
        return self._all_joined(self._of_node)

    def _put(self, name: str, now: DeviceSlice | None) -> set[str]:
        before = self._slices.pop(name, None)
        if before is not None:
            del self._of_node[before.node][name]
            if not self._of_node[before.node]:
                del self._of_node[before.node]
        if now is not None:
            self._slices[name] = self._of_node[now.node][name] = now
        # Both: a slice may move to another node under its name.
        return {item.node for item in (before, now) if item is not None}

    def _all_joined(self, nodes: Iterable[str]) -> Entries:
        return {name: self._joined(name) for name in nodes if name in self._bare}

    def _joined(self, name: str) -> NodeEntry | None:
        slices = self._of_node.get(name, {})
        return self._bare[name].having(
            read_devices(slices.values(), self._classes) if slices else None
        )
