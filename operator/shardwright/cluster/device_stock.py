"""Nodes, their ResourceSlices and DeviceClasses, joined by node in whatever order they come.

GPUs held by ResourceClaims in the ledger; a claim of no model's pod counts as anybody's.

Many to one: the entries of a key, in the order they came.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from shardwright.cluster.handover import Change, Key
from shardwright.cluster.ledger import Ledger, OwnerKey
from shardwright.hardware.devices import DeviceClass, DeviceSlice, DeviceUsage, read_devices
from shardwright.hardware.facts import GpuUsage, NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import BareNode

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


A = TypeVar("A")
B = TypeVar("B")


class Index(Generic[A, B]):
    """Many to one: which ``B`` belong to an ``A``, in the order they came."""

    def __init__(self) -> None:
        # A dict and no set: it keeps the order, and so a reconcile finds the same order each time.
        self._sets: dict[A, dict[B, None]] = {}

    def get(self, key: A) -> tuple[B, ...]:
        """Return all values of a key."""
        return tuple(self._sets.get(key, ()))

    def move(self, item: B, before: A | None, now: A | None) -> None:
        """Move an item to another key; None: no key."""
        if before == now:
            return
        if before is not None:
            items = self._sets[before]
            del items[item]
            # Empty ones go: namespaces and models come and go for as long as the process runs.
            if not items:
                del self._sets[before]
        if now is not None:
            self._sets.setdefault(now, {})[item] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimingPod:
    """The model and group of the pod a claim is reserved for; ``owner`` is None without a model."""

    owner: OwnerKey | None = None
    group: str = ""


class HeldClaims:
    """All claims that hold GPUs; ``holder`` returns what is known of a pod, by key and uid."""

    def __init__(self, ledger: Ledger, holder: Callable[[Key, str], ClaimingPod]) -> None:
        self._ledger = ledger
        self._holder = holder
        self._claims: dict[Key, DeviceUsage] = {}
        self._by_pod: Index[Key, Key] = Index()

    def take(self, changes: Mapping[Key, Change[DeviceUsage]]) -> frozenset[str]:
        """Take over changes, and return the nodes on which they freed GPUs."""
        freed: set[str] = set()
        for key, change in changes.items():
            before, now = self._claims.pop(key, None), change.value
            # Claims and pods are watched apart and come in any order, so a claim is booked again
            # when its pod is known.
            self._by_pod.move(key, _pod_of(key, before), _pod_of(key, now))
            if now is not None:
                self._claims[key] = now
            freed |= self._bind(key)
        return frozenset(freed)

    def bind_of(self, pod: Key) -> frozenset[str]:
        """Book the claims of a pod newly known, and return the nodes on which that freed GPUs."""
        return frozenset().union(*map(self._bind, self._by_pod.get(pod)))

    def _bind(self, key: Key) -> frozenset[str]:
        claim = self._claims.get(key)
        return self._ledger.bind(_booked(key), self._usage(key, claim) if claim else None)

    def _usage(self, key: Key, claim: DeviceUsage) -> GpuUsage:
        # They stay that model's when its StatefulSet goes first.
        holder = self._holder((key[0], claim.pod), claim.pod_uid)
        known = self._ledger.bound(_booked(key)) if holder.owner is None else None
        owner, group = (known.owner, known.group) if known else (holder.owner, holder.group)
        return GpuUsage(node=claim.node, resource="", gpus=claim.gpus, owner=owner, group=group)


def _pod_of(key: Key, claim: DeviceUsage | None) -> Key | None:
    return (key[0], claim.pod) if claim and claim.pod else None


def _booked(claim: Key) -> Key:
    # No pod can have the same key.
    return claim[0], f"{claim[1]}/"
