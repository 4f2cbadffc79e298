"""Which writes are there? Creations, applications, patches and deletions, as values that
``cluster`` carries out. A write to an existing object names its uid, so that no other of the same
name is hit. Each has the cause that it follows from; writes that differ in that alone are the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from shardwright.reconcile.write_cause import LEFT_BEHIND, WISHED, WriteCause
from shardwright.rendering.bundle import KubernetesObject

ObjectKey = tuple[str, str]
"""Kind and name, see ``observed.kind_of``; the namespace is always that of the resource."""


class Why(StrEnum):
    """Why an existing object is written."""

    DRIFT = "Drift"  #: fields of it differ from what is rendered
    ROLLOUT = "Rollout"  #: its pods are to be of another template
    FAILURE = "Failure"  #: a rank has failed, and all of the group starts again
    REQUESTED = "Requested"  #: somebody has asked for a restart
    START = "Start"  #: a group leaves zero
    CAUSE = "Cause"  #: what was behind a failure has become known
    STOP_AGAIN = "StopAgain"  #: somebody scaled a group up while it stopped
    NOTE = "Note"  #: what is remembered of a group has changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create an object; one of the same name that appears first is left alone.

    If one of the objects in ``needs`` was refused, this waits for the next reconcile.
    """

    content: KubernetesObject
    needs: frozenset[ObjectKey] = frozenset()
    cause: WriteCause = field(default=WISHED, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateKey:
    """Create a Secret with a new key; an existing one of its name is the key.

    If all of ``asked``, the dry runs of the pods that mount it, are refused, it is not needed yet.
    """

    content: KubernetesObject
    asked: frozenset[ObjectKey] = frozenset()
    cause: WriteCause = field(default=WISHED, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRevision:
    """Create a ControllerRevision named by its content; an existing one of its name is the same."""

    content: KubernetesObject
    cause: WriteCause = field(default=WISHED, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartJob:
    """Create a Job named by its work; an existing one of its name is the same."""

    content: KubernetesObject
    cause: WriteCause = field(default=WISHED, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRevision:
    """Delete a ControllerRevision, if there is one that the resource of this uid controls.

    ``needs`` as in a creation.
    """

    namespace: str
    name: str
    owner_uid: str
    needs: frozenset[ObjectKey] = frozenset()
    cause: WriteCause = field(default=WISHED, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Apply an object's full intent by force to the object with this uid."""

    content: KubernetesObject
    uid: str
    why: Why = Why.DRIFT
    fields: tuple[str, ...] = ()  # paths of those that differ
    needs: frozenset[ObjectKey] = frozenset()
    cause: WriteCause = field(default=WISHED, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Change annotations and perhaps the replicas of exactly the StatefulSet with this uid.

    An annotation whose value is None is removed. ``needs`` as in a creation.
    """

    name: str
    namespace: str
    uid: str
    annotations: Mapping[str, str | None]
    why: Why
    replicas: int | None = None
    needs: frozenset[ObjectKey] = frozenset()
    cause: WriteCause = field(default=WISHED, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunPod:
    """Ask whether a pod of the StatefulSet with this uid would be created, without creating one."""

    content: KubernetesObject
    set_uid: str
    cause: WriteCause = field(default=WISHED, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete exactly the object with this uid; its dependents follow in the background.

    ``needs`` as in a creation; ``why``: None if nobody wants it.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    grace_seconds: int | None = None
    why: Why | None = None
    needs: frozenset[ObjectKey] = frozenset()
    cause: WriteCause = field(default=WISHED, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Give exactly the object with this uid, which has no owner, this one; nothing else changes."""

    kind: str
    namespace: str
    name: str
    uid: str
    owner: Mapping[str, Any]
    cause: WriteCause = field(default=LEFT_BEHIND, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Set the number of groups of a ShardedModel of this ``version``, for its autoscaler."""

    name: str
    namespace: str
    version: str
    replicas: int
    cause: WriteCause = field(default=WISHED, compare=False)


HIDDEN_NAME: Final = "(name withheld)"
"""Instead of the name of a Secret that could not be made: who knew it could make that Secret,
and it would count as ours.
"""

Aside = DryRunPod | KeepRevision | DropRevision | HandOver
"""Writes that nothing that runs depends on: if they are not taken, the model is none the worse."""

Write = Create | CreateKey | StartJob | Apply | Patch | Delete | Adopt | Aside


def written_name(write: Write) -> str:
    """Return the name of a write's object."""
    return str(
        write.name
        if isinstance(write, Patch | Delete | Adopt | DropRevision | HandOver)
        else write.content["metadata"]["name"]
    )


def shown_name(write: Write) -> str:
    """Return the name of a write's object for people, without that of a Secret that somebody else
    could make before us.
    """
    return HIDDEN_NAME if isinstance(write, CreateKey) else written_name(write)


def written_kind(write: Write) -> str:
    """Return the kind of a write's object, as in its key."""
    if isinstance(write, Patch):
        return "StatefulSet"
    if isinstance(write, DropRevision):
        return "ControllerRevision"
    if isinstance(write, HandOver):
        return "ShardedModel"
    return write.kind if isinstance(write, Delete | Adopt) else kind_of(write.content)


def kind_of(content: KubernetesObject) -> str:
    """Return the name of an object's kind, with version and group if several groups have the kind.

    >>> kind_of({"apiVersion": "apps/v1", "kind": "StatefulSet"})
    'StatefulSet'
    >>> kind_of({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"})
    'PodGroup.v1alpha1.scheduling.x-k8s.io'
    """
    group, _, version = str(content.get("apiVersion", "")).rpartition("/")
    return (
        # PodGroup is a kind of Kubernetes and of Coscheduling: by kind alone they would overwrite
        # each other.
        f"{content['kind']}.{version}.{group}" if "." in group else str(content["kind"])
    )


def pod_of(stateful_set: KubernetesObject, rank: int = 0) -> dict[str, Any]:
    """Return a pod as the controller would make it, for a dry run; its claims are folders.

    It has the name of the pod: the API server quotes it, and a made one would be other words each
    time.
    """
    metadata, spec = stateful_set["metadata"], stateful_set["spec"]
    template, claims = spec["template"], spec.get("volumeClaimTemplates") or ()
    # The controller names the claims of a pod; one of a dry run has none to mount.
    folders = [{"name": claim["metadata"]["name"], "emptyDir": {}} for claim in claims]
    volumes = [*template["spec"].get("volumes", ()), *folders]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template["metadata"],
            "name": f"{metadata['name']}-{rank}",
            "namespace": metadata["namespace"],
        },
        "spec": {**template["spec"], "volumes": volumes},
    }


def asked_first(
    stateful_set: KubernetesObject, start: Apply | Patch
) -> tuple[DryRunPod, Apply | Patch]:
    """Return a dry run of one pod, and a StatefulSet's start that waits for its success."""
    ask = DryRunPod(content=pod_of(stateful_set), set_uid=start.uid)
    needs = frozenset({(written_kind(ask), written_name(ask))})
    return ask, replace(start, needs=needs)


def ended_groups(writes: Iterable[Write]) -> frozenset[str]:
    """Return the StatefulSets that writes take to zero or delete: their engines end."""
    return frozenset(written_name(write) for write in writes if _ends(write))


def broken_groups(writes: Iterable[Write]) -> frozenset[str]:
    """Return the StatefulSets that writes take to zero because they do not serve."""
    return ended_groups(
        write
        for write in writes
        if isinstance(write, Apply | Patch) and write.why in {Why.FAILURE, Why.CAUSE}
    )


def _ends(write: Write) -> bool:
    if isinstance(write, Delete):
        return write.kind == "StatefulSet"
    if isinstance(write, Patch):
        # None leaves the number of pods as it is, so it ends nothing.
        return write.replicas == 0
    return (
        isinstance(write, Apply)
        and write.content["kind"] == "StatefulSet"
        and write.content["spec"]["replicas"] == 0
    )
