"""Refusals and dropped fields of the API server, said as problems."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from shardwright.errors import Problem
from shardwright.reconcile.seen import Refusal
from shardwright.reconcile.writes import (
    Apply,
    DropRevision,
    DryRunPod,
    Patch,
    Why,
    shown_name,
    written_kind,
    written_name,
)
from shardwright.rendering.bundle import KubernetesObject

SHOWN_FIELDS: Final = 3
"""How many dropped fields a message names; assumed: the first ones tell which feature it is."""

POD_SECURITY: Final = "violates PodSecurity"
"""What the API server says of a pod that the namespace's Pod Security level keeps out. Source:
Kubernetes 1.36 ``plugin/pkg/admission/security/podsecurity``.
"""

WEBHOOK: Final = "admission webhook"
POLICY: Final = "ValidatingAdmissionPolicy"

FIXED_FIELDS: Final = "updates to statefulset spec for fields other than"
"""What the API server says of a change that a StatefulSet does not take (its claims, its selector).
Source: Kubernetes 1.36 ``pkg/apis/apps/validation``.
"""

_IMAGE_VOLUMES: Final = (
    "turn on the feature gate ImageVolume (Kubernetes 1.35 has it on), or choose another "
    "source in spec.model.weights"
)
_REMEDIES: Final[Mapping[str, str]] = {
    "schedulingGroup": "turn on the feature gate GenericWorkload (in Kubernetes 1.36 "
    "GangScheduling, too), "
    "or choose another "
    "spec.placement.scheduler",
    "volumes[models]": _IMAGE_VOLUMES,  # with its mounts
}
"""Field to what brings it back."""

_REMEDY: Final = (
    "turn on the feature gate behind it or upgrade the CustomResourceDefinition of that kind, "
    "or remove what asks for it"
)


def field_dropped(content: KubernetesObject, fields: Sequence[str]) -> Problem:
    """Return the problem of an object that would be stored without some of its fields: it would not
    carry out the plan.
    """
    more = (
        f" and {len(fields) - SHOWN_FIELDS} more" if len(fields) > SHOWN_FIELDS else ""
    )
    # The last part of the path is the field; all before it is the place in the pod.
    remedies = (_REMEDIES.get(field.rsplit(".", 1)[-1]) for field in fields)
    return Problem(
        code="FieldDropped",
        what=f"{content['kind']} {content['metadata']['name']}",
        limit="must be stored as it is sent",
        gap=f"but the API server drops {', '.join(fields[:SHOWN_FIELDS])}{more}",
        remedy=next((remedy for remedy in remedies if remedy), _REMEDY),
    )


def pod_of(stateful_set: KubernetesObject) -> dict[str, Any]:
    """Return a pod as the controller would make it, to be tried; its claims are folders."""
    template, claims = (
        stateful_set["spec"]["template"],
        stateful_set["spec"].get("volumeClaimTemplates") or (),
    )
    # The controller names the claims of a pod; a pod that is tried alone has none to mount.
    folders = [{"name": claim["metadata"]["name"], "emptyDir": {}} for claim in claims]
    metadata = stateful_set["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template["metadata"],
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
        },
        "spec": {
            **template["spec"],
            "volumes": [*template["spec"].get("volumes", ()), *folders],
        },
    }


def asked_first(
    stateful_set: KubernetesObject, start: Apply | Patch
) -> tuple[DryRunPod, Apply | Patch]:
    """Return a dry run of one pod, and the write that starts the StatefulSet's pods after it. If
    the pod would not be created, the start waits.
    """
    ask = DryRunPod(content=pod_of(stateful_set), set_uid=start.uid)
    return ask, replace(
        start, needs=frozenset({(written_kind(ask), written_name(ask))})
    )


def forbids_pods(message: str) -> bool:
    """Return whether Pod Security has kept a pod out."""
    return POD_SECURITY in message


def pod_security_forbids(stateful_set: KubernetesObject, message: str) -> Problem:
    """Return the problem of pods that the namespace does not let in, in the API server's words."""
    said = message[message.index(POD_SECURITY) :]
    namespace = stateful_set["metadata"]["namespace"]
    return Problem(
        code="PodSecurityForbids",
        what=f"a pod of StatefulSet {stateful_set['metadata']['name']}",
        limit=said,
        gap=f"which namespace {namespace} enforces",
        remedy="use a namespace with the level privileged, or leave out what needs it "
        "(spec.pod.network.lockMemory)",
    )


def problem_of(refusal: Refusal, *, queued: bool) -> Problem:
    """Return the problem of a write that was not taken.

    If groups are ``queued``, their start may be refused as long as their former GPUs are being
    given back.
    """
    if refusal.problem:
        return refusal.problem
    if refusal.passes:
        return _unavailable(refusal)
    message, write = refusal.message, refusal.write
    starts = isinstance(write, Apply) and write.why is Why.START
    # Kueue's webhook refuses the start while the quota of the former pods is being given back. It
    # passes by itself, so it must not say Stalled.
    if queued and starts and (WEBHOOK in message or POLICY in message):
        return Problem(
            code="WaitingForQuota",
            what="the queue does not let the group start yet",
            limit=message,
        )
    fixed = FIXED_FIELDS in message and isinstance(write, Apply)
    remedy = (
        f"delete StatefulSet {written_name(write)}, it is made anew" if fixed else ""
    )
    return Problem(
        code="ObjectRefused",
        what="the API server refuses an object",
        limit=message,
        remedy=remedy,
    )


def _unavailable(refusal: Refusal) -> Problem:
    """Return the problem of an API server, or of a webhook that it asks, that does not answer as it
    should.
    """
    code = f"HTTP {refusal.code}" if refusal.code else refusal.reason
    return Problem(
        code="ApiUnavailable",
        what=f"{written_kind(refusal.write)} {shown_name(refusal.write)} could not be written",
        limit=f"{code}: {refusal.message}",
        remedy="it is tried again; look at the webhook that is named, or at the API server",
    )


def revision_refused(refusal: Refusal, newest: int | None) -> Problem:
    """Return the problem of a revision that is not taken, or that does not go; ``newest`` is the
    last one that was kept.
    """
    if isinstance(refusal.write, DropRevision):
        what, limit = (
            f"ControllerRevision {refusal.write.name}",
            f"is no longer kept and cannot be deleted: {refusal.message}",
        )
        return Problem(
            code="RevisionRefused",
            what=what,
            limit=limit,
            remedy="fix the cause that is named; it is tried again",
        )
    gap = (
        "there is nothing to go back to"
        if newest is None
        else f"a rollback would restore revision {newest}"
    )
    return Problem(
        code="RevisionRefused",
        what="what all groups serve with",
        limit=f"cannot be kept as a revision: {refusal.message}",
        gap=gap,
        remedy="fix the cause that is named; it is tried again",
    )


def pods_refused(stateful_set: str, message: str) -> Problem:
    """Return the problem of pods that are not created, in the words of the API server."""
    return Problem(
        code="PodsRefused",
        what=f"the pods of StatefulSet {stateful_set}",
        limit=f"are not created: {message}",
        remedy="raise the quota or fix the policy that is named; the group gives its GPUs back "
        "meanwhile",
    )


def place_taken(content: KubernetesObject, *, leftover: bool) -> Problem:
    """Return the problem of an object whose name somebody else uses; ``leftover``: it will go by
    itself.
    """
    if leftover:
        what = (
            f"{content['kind']} {content['metadata']['name']} of an earlier ShardedModel of "
            "this name is still to be deleted"
        )
        return Problem(code="Progressing", what=what)
    return Problem(
        code="NameConflict",
        what=f"{content['kind']} {content['metadata']['name']}",
        limit="is needed for this model",
        gap="but is controlled by something else",
        remedy="delete or rename it, or give the ShardedModel another name",
        path="metadata.name",
    )


def not_permitted(message: str, namespace: str) -> Problem:
    """Return the problem of a namespace that cannot be read: the present objects are not known, so
    nothing is written.
    """
    return Problem(
        code="NotPermitted",
        what=f"the operator may not read namespace {namespace}",
        limit=message,
        remedy="give its service account the rights of the chart's ClusterRole, there or "
        "everywhere; it goes on by itself then",
    )


def internal_error(raised: str) -> Problem:
    """Return the problem of a model on which the operator has failed because of a bug of its own.

    ``raised`` is the class of the exception. Only that is told: its message may quote a Secret.
    """
    return Problem(
        code="InternalError",
        what=f"the operator failed on this model because of a bug of its own ({raised})",
        remedy="running groups are kept, and the operator tries again; "
        "please report it, the log has the details",
    )


def scheduler_unavailable(scheduler: str, what: str, remedy: str) -> Problem:
    """Return the problem of a scheduler that cannot be told of groups here."""
    return Problem(
        code="SchedulerUnavailable",
        path="spec.placement.scheduler",
        what=scheduler,
        limit=what,
        remedy=f"{remedy}, or choose another scheduler",
    )
