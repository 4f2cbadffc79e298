"""What there is: the objects of one ShardedModel as a fresh LIST saw them, and the pods of its groups."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from shardwright.reconcile.members import Member

ObjectKey = tuple[str, str]
"""Kind and name, see :func:`kind_of`; the namespace is always that of the resource."""


def kind_of(content: Mapping[str, Any]) -> str:
    """Return what tells the kind of an object from all others: with version and group where several groups have it.

    >>> kind_of({"apiVersion": "apps/v1", "kind": "StatefulSet"})
    'StatefulSet'
    >>> kind_of({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"})
    'PodGroup.v1alpha1.scheduling.x-k8s.io'
    """
    group, _, version = str(content.get("apiVersion", "")).rpartition("/")
    return f"{content['kind']}.{version}.{group}" if "." in group else str(content["kind"])


STATEFUL_SET: Final = "StatefulSet"
CONFIG_MAP: Final = "ConfigMap"


def object_key(content: Mapping[str, Any]) -> ObjectKey:
    """Return the key of an object."""
    return kind_of(content), content["metadata"]["name"]


def controller(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the owner reference that controls an object, empty where nobody does."""
    owners = content["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def controller_uid(content: Mapping[str, Any]) -> str | None:
    """Return the uid of the owner that controls an object, or None where nobody does."""
    return controller(content).get("uid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The objects that carry our label or a wanted name, ours or not, and all pods of our groups.

    ``absent_kinds`` are kinds of object that this cluster does not have.
    """

    objects: Mapping[ObjectKey, Mapping[str, Any]]
    members: Sequence[Member] = ()
    absent_kinds: frozenset[str] = frozenset()

    def without(self, key: ObjectKey) -> "Observed":
        """Return the rest, after an object has been written: what was read of it is out of date."""
        return replace(self, objects={other: item for other, item in self.objects.items() if other != key})

    def seen_from(self, silent_nodes: Collection[str]) -> "Observed":
        """Return the same with the pods of nodes that do not answer told apart."""
        members = tuple(replace(member, node_answers=member.node not in silent_nodes) for member in self.members)
        return replace(self, members=members)

    def members_of(self, group: str) -> tuple[Member, ...]:
        """Return the pods of a group in rank order."""
        return tuple(sorted((m for m in self.members if m.group == group), key=lambda m: m.rank))
