"""Which objects of one ShardedModel, and pods of its groups, did a fresh LIST show? Foreign objects
are kept: that one is in the way must be seen, too.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from shardwright.reconcile.members import Member, Wait
from shardwright.reconcile.writes import ObjectKey, kind_of
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.names import generation_of

STATEFUL_SET: Final = "StatefulSet"
CONFIG_MAP: Final = "ConfigMap"
SERVICE: Final = "Service"
DEPLOYMENT: Final = "Deployment"
"""Of the router alone: groups are StatefulSets."""
SECRET: Final = "Secret"  # noqa: S105 - a kind


def object_key(content: KubernetesObject) -> ObjectKey:
    """Return the key of an object."""
    return kind_of(content), content["metadata"]["name"]


def controller(content: KubernetesObject) -> Mapping[str, Any]:
    """Return the owner reference that controls an object, or an empty mapping."""
    owners = content["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def controller_uid(content: KubernetesObject) -> str | None:
    """Return the uid of the owner that controls an object, or None."""
    return controller(content).get("uid")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOut:
    """The API server refuses the pods of a StatefulSet: its words, and since when."""

    said: str
    since: datetime


# No slots: cached_property keeps its value in the instance's __dict__.
@dataclass(frozen=True, kw_only=True)
class Observed:
    """The objects with our label or a wanted name, and all pods of StatefulSets.

    ``absent_kinds`` are kinds that this cluster lacks. ``strangers`` are names of pods with the
    model's labels that no StatefulSet controls. ``overfull`` are the oversized fields of objects
    that somebody has filled. By uid of StatefulSet: ``kept_out`` are refused pods, ``short_since``
    is since when pods are missing, ``ready_since`` since when all are ready, ``starting_since``
    since when all have nodes and it has not come up. By group without generation: ``crowded_out``
    are those on whose nodes others leave too few GPUs, ``nodes_in_provisioning`` the waits for
    nodes that an autoscaler is to make.
    """

    objects: Mapping[ObjectKey, KubernetesObject]
    members: Sequence[Member] = ()
    absent_kinds: frozenset[str] = frozenset()
    strangers: tuple[str, ...] = ()
    overfull: Mapping[ObjectKey, str] = field(default_factory=dict)
    kept_out: Mapping[str, KeptOut] = field(default_factory=dict)
    short_since: Mapping[str, datetime] = field(default_factory=dict)
    crowded_out: frozenset[str] = frozenset()
    nodes_in_provisioning: Mapping[str, Wait] = field(default_factory=dict)
    ready_since: Mapping[str, datetime] = field(default_factory=dict)
    starting_since: Mapping[str, datetime] = field(default_factory=dict)

    def having(self, content: KubernetesObject, uid: str) -> "Observed":
        """Return the observed objects after one has been written."""
        live = {**content, "metadata": {**content["metadata"], "uid": uid}}
        return replace(self, objects={**self.objects, object_key(content): live})

    def seen_from(self, silent_nodes: Collection[str], gone: Collection[str] = ()) -> "Observed":
        """Return the observed objects with pods on nodes that are silent or gone marked as such."""
        members = tuple(
            # Kept, not left out: a pod on a silent node still holds its GPUs and its name.
            replace(member, node_answers=False)
            if member.node in silent_nodes
            # Its status is the last one that its kubelet wrote, and it stays until it is collected.
            else replace(member, node_answers=False, node_gone=True, ready=False)
            if member.node in gone
            else member
            for member in self.members
        )
        return replace(self, members=members)

    def members_of(self, group: str) -> tuple[Member, ...]:
        """Return the pods of a group in rank order: those that its StatefulSet controls or, if
        there is none, once did.

        Pods of a StatefulSet with another uid are left to the garbage collector.
        """
        live = self.objects.get((STATEFUL_SET, group))
        named = self._by_group.get(group, ())
        return (
            named
            if live is None
            else tuple(m for m in named if m.set_uid == live["metadata"]["uid"])
        )

    @cached_property
    def sets(self) -> Mapping[str, KubernetesObject]:
        """Return all StatefulSets by name, in order: that of a cache would change messages."""
        found = {name: live for (kind, name), live in self.objects.items() if kind == STATEFUL_SET}
        return dict(sorted(found.items()))

    def sets_of(self, owner_uid: str) -> dict[str, KubernetesObject]:
        """Return the StatefulSets that this owner controls by name, in order."""
        return {name: live for name, live in self.sets.items() if controller_uid(live) == owner_uid}

    @cached_property
    def _by_group(self) -> Mapping[str, tuple[Member, ...]]:
        groups: dict[str, list[Member]] = {}
        for member in sorted(self.members, key=lambda m: m.rank):
            groups.setdefault(member.group, []).append(member)
        return {group: tuple(members) for group, members in groups.items()}

    @cached_property
    def generations(self) -> Mapping[str, Mapping[int, str | None]]:
        """Return each group's generations with the controllers of their StatefulSets; None for one
        that has only pods.
        """
        found: dict[str, dict[int, str | None]] = {}
        for name in self._by_group:
            root, number = generation_of(name)
            found.setdefault(root, {})[number] = None
        # After the pods, so that an existing StatefulSet decides who owns the generation.
        for name, live in self.sets.items():
            root, number = generation_of(name)
            found.setdefault(root, {})[number] = controller_uid(live)
        return found
