"""What the readers found, by every key a reconcile asks for; for the event loop alone.

Each change updates indexes and counters once, so that no question needs a scan, and results in
:class:`Changes`. Models go by namespace and base name, which is the label on their pods.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from shardwright.cluster.device_stock import (
    ClaimingPod,
    DeviceStock,
    Entries,
    HeldClaims,
    Index,
    NodeEntry,
)
from shardwright.cluster.handover import Change, Key
from shardwright.cluster.kinds import BY_KIND
from shardwright.cluster.ledger import Ledger
from shardwright.cluster.sources import (
    Child,
    ConfigMapFacts,
    PodFacts,
    project_child,
    project_config_map,
)
from shardwright.hardware.devices import DeviceClass, DeviceSlice, DeviceUsage
from shardwright.hardware.facts import is_held
from shardwright.hardware.nodes import BareNode, GpuUsage, NodeFacts
from shardwright.reconcile.adoption import Orphan
from shardwright.reconcile.members import Member
from shardwright.reconcile.observed import CONFIG_MAP, STATEFUL_SET
from shardwright.reconcile.quotas import Allowance, Priorities, PriorityClass, Quota, Range
from shardwright.reconcile.writes import kind_of
from shardwright.rendering.names import base_name

ChildKey = tuple[str, str, str]
"""Kind (as ``kind_of`` says), namespace and name."""

Ref = tuple[str, str]
"""Namespace and uid of a controller: a reference has the uid alone, and anybody may write one of
another namespace.
"""

NOTHING: Final[frozenset[Any]] = frozenset()

B = TypeVar("B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The effect of a batch of changes.

    ``models`` have changed objects or pods; ``hurt`` are those with a pod that is gone, fails or is
    no longer ready. ``nodes`` have changed themselves, GPUs may have come free on ``freed``.
    ``config_maps`` are all that changed. ``priorities``: a PriorityClass changed. ``allowances``
    are namespaces with a changed ResourceQuota or LimitRange.
    """

    models: frozenset[Key] = NOTHING
    hurt: frozenset[Key] = NOTHING
    nodes: frozenset[str] = NOTHING
    freed: frozenset[str] = NOTHING
    config_maps: frozenset[Key] = NOTHING
    priorities: bool = False
    allowances: frozenset[str] = NOTHING

    def __bool__(self) -> bool:
        return bool(
            self.models
            or self.nodes
            or self.freed
            or self.config_maps
            or self.priorities
            or self.allowances
        )


class Store:
    """``node_version`` grows with each change of a node; ``priorities`` are all PriorityClasses."""

    def __init__(self, ledger: Ledger) -> None:
        self.node_version = 0
        self.priorities = Priorities()
        self._ledger = ledger
        self._versions: dict[Key, int] = {}  # of the models that there are
        self._nodes: dict[str, NodeEntry] = {}
        self._devices = DeviceStock()
        self._claims = HeldClaims(ledger, self._holder)
        self._pods: dict[Key, PodFacts] = {}
        self._by_set: Index[Ref, Key] = Index()
        self._by_node: Index[str, Key] = Index()  # pods that request GPUs
        self._by_model: Index[Key, Key] = Index()
        self._expecting: dict[tuple[str, str | None], Callable[[Key, int], None]] = {}
        self._children: dict[ChildKey, Child] = {}
        self._by_owner: Index[Ref, ChildKey] = Index()
        self._orphans: Index[Key, ChildKey] = Index()  # by the model of their label
        self._sets: dict[Ref, Child] = {}  # StatefulSets
        self._config_maps: dict[Key, ConfigMapFacts] = {}
        self._config_maps_by_owner: Index[Ref, Key] = Index()
        self._quotas: dict[str, dict[str, Quota]] = {}  # by namespace and name
        self._ranges: dict[str, dict[str, tuple[Range, ...]]] = {}

    @property
    def nodes(self) -> Mapping[str, NodeEntry]:
        """Return the nodes with GPUs by name: facts, or why they cannot be planned."""
        return MappingProxyType(self._nodes)

    def members(self, stateful_set: Ref) -> tuple[Member, ...]:
        """Return the pods a StatefulSet controls, in rank order."""
        found = (self._pods[key].member for key in self._by_set.get(stateful_set))
        return tuple(sorted((member for member in found if member), key=lambda member: member.rank))

    def members_of(self, model: Key) -> tuple[Member, ...]:
        """Return the pods with a model's label that any StatefulSet controls."""
        found = (self._pods[key].member for key in self._by_model.get(model))
        return tuple(member for member in found if member)

    def version_of(self, model: Key) -> int:
        """Return a number that grows with every change of a followed model's objects and pods."""
        return self._versions.get(model, 0)

    def follow(self, model: Key) -> None:
        """Count the changes of a model from now on."""
        # Only models that there are: pods with a label of none would grow the counts without an
        # end.
        self._versions.setdefault(model, 0)

    def unfollow(self, model: Key) -> None:
        """Stop counting the changes of a model."""
        self._versions.pop(model, None)

    def _count(self, models: Iterable[Key]) -> None:
        for model in self._versions.keys() & models:
            self._versions[model] += 1

    def strangers(self, model: Key) -> tuple[Key, ...]:
        """Return the pods with a model's label that belong to no ShardedModel's StatefulSet."""
        return tuple(
            key
            for key in self._by_model.get(model)
            if self._controlling(key[0], self._pods[key]) is None
        )

    def child(self, kind: str, namespace: str, name: str) -> Child | None:
        """Return the object of this name with our label, whoever owns it, None if there is none."""
        return self._children.get((kind, namespace, name))

    def children(self, owner: Ref) -> tuple[Child, ...]:
        """Return the objects a ShardedModel controls, without its ConfigMaps."""
        return tuple(self._children[key] for key in self._by_owner.get(owner))

    def orphans(self, model: Key) -> tuple[Orphan, ...]:
        """Return the objects with a model's label and without any owner."""
        return tuple(
            Orphan(
                key=(kind, name),
                uid=(
                    self._config_maps[namespace, name]
                    if kind == CONFIG_MAP
                    else self._children[kind, namespace, name]
                ).uid,
            )
            for kind, namespace, name in self._orphans.get(model)
        )

    def config_map(self, key: Key) -> ConfigMapFacts | None:
        """Return what is known of a ConfigMap, ours or not."""
        return self._config_maps.get(key)

    def config_maps(self, owner: Ref) -> Mapping[Key, ConfigMapFacts]:
        """Return the ConfigMaps a ShardedModel controls."""
        return {key: self._config_maps[key] for key in self._config_maps_by_owner.get(owner)}

    def take_nodes(self, changes: Mapping[Key, Change[NodeEntry | BareNode]]) -> Changes:
        """Take over changes of nodes."""
        return self._put_nodes(self._devices.take_nodes(changes))

    def take_slices(self, changes: Mapping[Key, Change[DeviceSlice]]) -> Changes:
        """Take over changes of ResourceSlices."""
        return self._put_nodes(self._devices.take_slices(changes))

    def take_device_classes(self, changes: Mapping[Key, Change[DeviceClass]]) -> Changes:
        """Take over changes of DeviceClasses."""
        return self._put_nodes(self._devices.take_classes(changes))

    def _put_nodes(self, entries: Entries) -> Changes:
        changed = {name: node for name, node in entries.items() if self._nodes.get(name) != node}
        for name, node in changed.items():
            if node is None:
                del self._nodes[name]
                continue
            self._nodes[name] = node
        # One number for all: a reconcile compares it, and need not compare thousands of nodes.
        self.node_version += bool(changed)
        freed = self._bind_pods_on(changed)
        usable = {name for name, node in changed.items() if isinstance(node, NodeFacts)}
        # A node that can be planned on is room as well: those that wait are woken as by GPUs that
        # come free.
        return Changes(nodes=frozenset(changed), freed=freed | usable)

    def _bind_pods_on(self, nodes: Iterable[str]) -> frozenset[str]:
        # Their nodes may now offer other resources.
        keys = [key for name in nodes for key in self._by_node.get(name)]
        return frozenset().union(*map(self._bind_again, keys))

    def _bind_again(self, pod: Key) -> frozenset[str]:
        return self._ledger.bind(pod, self._usage(pod, self._pods[pod], self._pods[pod]))

    def take_pods(self, changes: Mapping[Key, Change[PodFacts]]) -> Changes:
        """Take over changes of pods."""
        models: set[Key] = set()
        hurt: set[Key] = set()
        freed: set[str] = set()
        for key, change in changes.items():
            before = self._pods.get(key)
            now = change.value
            if before == now:
                continue
            self._index_pod(key, before, now)
            concerned = {
                model
                for facts in (before, now)
                if facts
                for model in self._models_of(key[0], facts)
            }
            models |= concerned
            # A change for the worse is urgent: a reconcile of a broken group goes before all
            # others.
            if before and before.member and is_worse(before.member, now.member if now else None):
                hurt |= concerned
            freed |= self._ledger.bind(key, self._usage(key, before, now)) | self._claims.bind_of(
                key
            )
        self._count(models)
        return Changes(models=frozenset(models), hurt=frozenset(hurt), freed=frozenset(freed))

    def take_claims(self, changes: Mapping[Key, Change[DeviceUsage]]) -> Changes:
        """Take over changes of ResourceClaims."""
        return Changes(freed=self._claims.take(changes))

    def take_children(self, kind: str, changes: Mapping[Key, Change[Child]]) -> Changes:
        """Take over changes of one kind's objects; those older than the known ones are skipped."""
        models: set[Key] = set()
        freed: set[str] = set()
        for (namespace, name), change in changes.items():
            key = (kind, namespace, name)
            before = self._children.get(key)
            now = change.value
            # Our own writes are taken over from their answers (wrote): an event from before would
            # put the past back.
            if before and _is_older(change.version, before.version):
                continue
            self._put_child(key, before, now)
            if before != now:
                models |= {_model(child) for child in (before, now) if child and child.owner}
                models.update(filter(None, (_orphaned(namespace, now),)))
            # Watches of two kinds are in no order: pods may come before the StatefulSet that names
            # their model.
            if now and kind == STATEFUL_SET:
                freed |= self._bind_pods_of(now)
        self._count(models)
        return Changes(models=frozenset(models), freed=frozenset(freed))

    def take_config_maps(self, changes: Mapping[Key, Change[ConfigMapFacts]]) -> Changes:
        """Take over changes of ConfigMaps; those older than the known ones are skipped."""
        models: set[Key] = set()
        changed: set[Key] = set()
        for key, change in changes.items():
            before = self._config_maps.get(key)
            now = change.value
            if before == now or (before and _is_older(change.version, _number(before.version))):
                continue
            self._put_config_map(key, before, now)
            changed.add(key)
            models |= {
                (key[0], base_name(facts.owner)) for facts in (before, now) if facts and facts.owner
            }
            models.update(filter(None, (_orphaned(key[0], now),)))
        self._count(models)
        return Changes(models=frozenset(models), config_maps=frozenset(changed))

    def take_priority_classes(self, changes: Mapping[Key, Change[PriorityClass]]) -> Changes:
        """Take over changes of PriorityClasses."""
        before = self.priorities
        self.priorities = before.changed(
            {name: change.value for (_, name), change in changes.items()}
        )
        return Changes(priorities=self.priorities != before)

    def allowance(self, namespace: str) -> Allowance:
        """Return the ResourceQuotas and LimitRanges of a namespace."""
        quotas, ranges = (self._quotas.get(namespace, {}), self._ranges.get(namespace, {}))
        return Allowance(
            quotas=tuple(quotas[name] for name in sorted(quotas)),
            ranges=tuple(item for name in sorted(ranges) for item in ranges[name]),
        )

    def take_quotas(self, changes: Mapping[Key, Change[Quota]]) -> Changes:
        """Take over changes of ResourceQuotas."""
        return Changes(allowances=_take(self._quotas, changes))

    def take_ranges(self, changes: Mapping[Key, Change[tuple[Range, ...]]]) -> Changes:
        """Take over changes of LimitRanges."""
        return Changes(allowances=_take(self._ranges, changes))

    def wrote(self, content: Mapping[str, Any]) -> None:
        """Take over an object as the API server stored it, so that the next reconcile sees it."""
        kind = kind_of(content)
        metadata = content["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if kind == CONFIG_MAP:
            facts = project_config_map(dict(content))
            self.take_config_maps({key: Change(facts, _number(facts.version))})
        elif kind in BY_KIND:
            child = project_child(BY_KIND[kind], dict(content))
            self.take_children(kind, {key: Change(child, child.version)})
        if expect := self._expecting.get((kind, None)) or self._expecting.get((kind, key[0])):
            # The reader must know of it: somebody may delete the object before its event comes, and
            # no LIST would miss it.
            expect(key, _number(metadata["resourceVersion"]))

    def tell_writes(
        self, kind: str, namespace: str | None, expect: Callable[[Key, int], None]
    ) -> None:
        """Set the callback of a kind's reader for changes it did not deliver: key and version."""
        self._expecting[kind, namespace] = expect

    def _controlling(self, namespace: str, facts: PodFacts) -> Child | None:
        controlling = self._sets.get((namespace, facts.set_uid))
        ours = controlling is not None and bool(controlling.owner_uid)
        return controlling if ours and facts.member is not None else None

    def _models_of(self, namespace: str, facts: PodFacts) -> Iterator[Key]:
        controlling = self._sets.get((namespace, facts.set_uid))
        if controlling and controlling.owner:
            yield _model(controlling)
        if facts.model:
            yield namespace, facts.model

    def _usage(self, key: Key, before: PodFacts | None, now: PodFacts | None) -> GpuUsage | None:
        # They stay a model's when its StatefulSet goes first.
        requested = now.usage if now else ()
        held = (item for item in requested if is_held(item, self._nodes.get(item.node)))
        usage = next(held, None)
        if now is None or usage is None:
            return None
        # Not by its label: whoever may create pods could book GPUs on another model.
        if controlling := self._controlling(key[0], now):
            return replace(usage, owner=_model(controlling), group=controlling.name)
        known = self._ledger.bound(key)
        # Pods outlive a deleted StatefulSet by their grace, and hold their GPUs until then.
        if known and known.owner and before and before.set_uid == now.set_uid:
            return replace(usage, owner=known.owner, group=known.group)
        return replace(usage, owner=None, group="")

    def _bind_pods_of(self, child: Child) -> frozenset[str]:
        """Book pods that came before their StatefulSet; return the nodes with freed GPUs."""
        keys = self._by_set.get((child.namespace, child.uid))
        return frozenset().union(*map(self._bind_again, keys), *map(self._claims.bind_of, keys))

    def _holder(self, pod: Key, uid: str) -> ClaimingPod:
        facts = self._pods.get(pod)
        if not facts or not facts.member or facts.member.uid != uid:
            return ClaimingPod()
        controlling = self._controlling(pod[0], facts)
        if controlling is None:
            return ClaimingPod()
        return ClaimingPod(owner=_model(controlling), group=controlling.name)

    def _index_pod(self, key: Key, before: PodFacts | None, now: PodFacts | None) -> None:
        if now is None:
            del self._pods[key]
        else:
            self._pods[key] = now
        self._by_set.move(key, _set_of(key, before), _set_of(key, now))
        self._by_node.move(key, _node(before), _node(now))
        self._by_model.move(key, _label(key, before), _label(key, now))

    def _put_child(self, key: ChildKey, before: Child | None, now: Child | None) -> None:
        self._by_owner.move(key, _owner_of(key[1], before), _owner_of(key[1], now))
        self._orphans.move(key, _orphaned(key[1], before), _orphaned(key[1], now))
        if key[0] == STATEFUL_SET and before:
            # By uid: a StatefulSet that was made again under its name has other pods.
            del self._sets[before.namespace, before.uid]
        if now is None:
            self._children.pop(key, None)
            return
        self._children[key] = now
        if key[0] == STATEFUL_SET:
            self._sets[now.namespace, now.uid] = now

    def _put_config_map(
        self, key: Key, before: ConfigMapFacts | None, now: ConfigMapFacts | None
    ) -> None:
        by_owner = self._config_maps_by_owner
        by_owner.move(key, _owner_of(key[0], before), _owner_of(key[0], now))
        self._orphans.move((CONFIG_MAP, *key), _orphaned(key[0], before), _orphaned(key[0], now))
        if now is None:
            del self._config_maps[key]
        else:
            self._config_maps[key] = now


def _take(known: dict[str, dict[str, B]], changes: Mapping[Key, Change[B]]) -> frozenset[str]:
    changed = set()
    for (namespace, name), change in changes.items():
        there = known.setdefault(namespace, {})
        if there.get(name) != change.value:
            changed.add(namespace)
        if change.value is None:
            there.pop(name, None)
        else:
            there[name] = change.value
        if not there:
            del known[namespace]
    return frozenset(changed)


def is_worse(before: Member, now: Member | None) -> bool:
    """Return whether a member's change may be why its group does not serve.

    It is gone or going, replaced under its name, failed anew, or no longer ready.
    """
    if now is None or now.uid != before.uid:
        return True
    ends = now.deleting and not before.deleting
    fails = now.failure is not None and now.failure != before.failure
    return ends or (before.ready and not now.ready) or fails or now.restarts > before.restarts


def _model(child: Child) -> Key:
    return child.namespace, base_name(child.owner)


def _set_of(key: Key, facts: PodFacts | None) -> Ref | None:
    return (key[0], facts.set_uid) if facts and facts.set_uid else None


def _owner_of(namespace: str, content: Child | ConfigMapFacts | None) -> Ref | None:
    return (namespace, content.owner_uid) if content and content.owner_uid else None


def _orphaned(namespace: str, content: Child | ConfigMapFacts | None) -> Key | None:
    return (namespace, content.orphan_of) if content and content.orphan_of else None


def _node(facts: PodFacts | None) -> str | None:
    return facts.usage[0].node if facts and facts.usage else None


def _label(key: Key, facts: PodFacts | None) -> Key | None:
    return (key[0], facts.model) if facts and facts.model else None


def _is_older(version: int, known: int) -> bool:
    return 0 < version < known


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdecimal() else 0
