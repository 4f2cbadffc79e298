"""The pods of a group as the rules of its life need them, projected from Pod objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardwright.rendering.hashing import TEMPLATE_HASH

REVISION_LABEL: Final = "controller-revision-hash"

LONGEST_REASON: Final = 256  # it is a word, but nobody bounds it, and it ends up in an annotation

FINISHED_PHASES: Final = frozenset({"Failed", "Succeeded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a member of a group failed; ``exit_code`` is None where no container of it exited."""

    rank: int
    reason: str
    container: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One pod of a group. ``waiting`` says what it waits for before its engine runs, or is empty."""

    name: str
    uid: str
    group: str  # name of its StatefulSet
    rank: int
    node: str | None
    ready: bool
    deleting: bool
    grace_seconds: int
    template_hash: str
    revision: str
    restarts: int = 0  # of its containers, in place
    waiting: str = ""
    failure: Failure | None = None


def read_member(pod: Mapping[str, Any]) -> Member | None:
    """Return the member that a pod is, or None for a pod that no StatefulSet controls, whatever its labels say."""
    metadata = pod["metadata"]
    group = next((o["name"] for o in metadata.get("ownerReferences", ()) if o["kind"] == "StatefulSet"), None)
    ordinal = metadata["name"].removeprefix(f"{group}-")
    if group is None or not (ordinal.isascii() and ordinal.isdecimal()):
        return None
    labels, rank = metadata.get("labels", {}), int(ordinal)
    return Member(
        name=metadata["name"],
        uid=metadata["uid"],
        group=group,
        rank=rank,
        node=pod.get("spec", {}).get("nodeName"),
        ready=_condition(pod, "Ready").get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        grace_seconds=int(metadata.get("deletionGracePeriodSeconds") or 0),
        template_hash=labels.get(TEMPLATE_HASH, ""),
        revision=labels.get(REVISION_LABEL, ""),
        restarts=sum(status.get("restartCount", 0) for status in pod.get("status", {}).get("containerStatuses") or ()),
        waiting=_waiting(pod),
        failure=_failure(pod, rank),
    )


def _condition(pod: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _waiting(pod: Mapping[str, Any]) -> str:
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}".rstrip(": ")
    for status in _container_statuses(pod):
        if waiting := status.get("state", {}).get("waiting"):
            return f"{status['name']} {waiting.get('reason', 'Waiting')}"
    return ""


def _container_statuses(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _failure(pod: Mapping[str, Any], rank: int) -> Failure | None:
    """Return how the pod or an engine container of it ended; init containers retry by themselves."""
    for status in pod.get("status", {}).get("containerStatuses") or ():
        ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated")
        if ended or status.get("restartCount", 0) > 0:
            reason, code = str((ended or {}).get("reason") or "Error")[:LONGEST_REASON], (ended or {}).get("exitCode")
            return Failure(rank=rank, reason=reason, container=status["name"], exit_code=code)
    if pod.get("status", {}).get("phase") in FINISHED_PHASES:
        return Failure(rank=rank, reason=str(pod["status"].get("reason") or "Failed")[:LONGEST_REASON])
    return None
