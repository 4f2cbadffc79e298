"""Does a model run its spec or an earlier revision? The plan of record holds the decision, an
annotation of the resource may change it, and a new spec ends it. ``revisions`` keeps and reads
revisions; ``paused_groups`` says when a spec is given up.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from shardwright.api.record import Cause, PlanRecord, Rollback
from shardwright.errors import Problem
from shardwright.reconcile.decide import Decision
from shardwright.reconcile.disruption import Rejection
from shardwright.reconcile.group import ROLLBACK_TO
from shardwright.reconcile.revisions import (
    Course,
    Former,
    Revision,
    hash_of,
    revisions_of,
    unusable,
)
from shardwright.reconcile.snapshot import Snapshot
from shardwright.rendering.place import bare_pods, pods_hash
from shardwright.resolving.subject import Subject

SPEC: Final = "spec"

REQUEST_LENGTH: Final = 64
"""Characters that are read of the annotation. Basis: assumed; a number and a time."""

SAID_LENGTH: Final = 256
"""Characters that are kept of what an engine said last. Basis: assumed; a line of a log."""


def rollback_of(snapshot: Snapshot) -> Course:
    """Return the course of a model; a paused one stays on its own."""
    record, subject = (
        snapshot.record if isinstance(snapshot.record, PlanRecord) else None,
        snapshot.subject,
    )
    if not isinstance(subject, Subject):
        return _as_it_stood(record)
    before = _as_it_stood(record)
    # A rollback is from one spec. A new spec ends it without anybody's doing (ADR 25).
    if before.rollback and before.rollback.instead_of != hash_of(subject):
        before = replace(before, rollback=None)
    request = request_in(snapshot.resource.annotations)
    # The sentence is made anew in each reconcile, but the revision is not looked for again: a later
    # one of that number is not the one that was asked for.
    if request == before.answered and before.unknown:
        return replace(
            before, problem=_unknown(_number_in(request), revisions_of(snapshot.resource.status))
        )
    if request == before.answered or snapshot.resource.paused:
        return before
    return _asked(snapshot, subject, request, before.rollback)


def request_in(annotations: Mapping[str, str]) -> str:
    """Return the request for another revision in a model's annotations, as a plan of record keeps
    the answered one; empty if there is none.
    """
    return annotations.get(ROLLBACK_TO, "")[:REQUEST_LENGTH]


def _as_it_stood(record: PlanRecord | None) -> Course:
    return (
        Course(rollback=record.rollback, answered=record.answered, unknown=record.unknown)
        if record
        else Course()
    )


def _number_in(request: str) -> str:
    return request.partition("@")[0].strip()


def _asked(snapshot: Snapshot, subject: Subject, request: str, stands: Rollback | None) -> Course:
    """Return the course after a new request.

    One for a missing revision is answered, too: a later revision of that number is not the one that
    was asked for.
    """
    spec = hash_of(subject)
    wanted, revisions = _number_in(request), revisions_of(snapshot.resource.status)
    if not wanted:  # what somebody has asked for by it ends with it
        return Course(
            rollback=None if stands and stands.cause is Cause.ASKED else stands, answered=request
        )
    # Asking for the spec by name also ends a rollback that a failure began.
    if wanted == SPEC:
        return Course(answered=request)
    found = next((item for item in revisions if str(item.number) == wanted), None)
    if found is None:
        return Course(
            rollback=stands, answered=request, unknown=True, problem=_unknown(wanted, revisions)
        )
    # The spec is that revision again, so no restore is needed.
    if found.hash == spec:
        return Course(answered=request)
    rollback = Rollback(
        to=found.hash,
        # The spec's default version stands beside the decision: the running pods have another one,
        # and a release of the operator must not make this a new spec (ADR 25).
        instead_of=spec,
        cause=Cause.ASKED,
        engine_version=subject.default_version,
    )
    return Course(rollback=rollback, answered=request)


def former_of(snapshot: Snapshot, rollback: Rollback) -> Former | Revision:
    """Return the revision to restore, as it would run; unread, only which one it is."""
    if snapshot.former and snapshot.former.hash == rollback.to:
        return snapshot.former
    # By hash, not by number: a revision that serves again gets a new number.
    found = next(
        (item for item in revisions_of(snapshot.resource.status) if item.hash == rollback.to), None
    )
    return found or Former(
        hash=rollback.to, subject=(unusable(None, "is not among status.revisions any more"),)
    )


def given_up(
    snapshot: Snapshot, subject: Subject, record: PlanRecord | None, decision: Decision | None
) -> Course | None:
    """Return the course of a model whose groups do not come up with its spec, or None."""
    rejection = decision.rejection if decision else None
    if (
        decision is None
        or rejection is None
        or record is None
        or snapshot.course.rollback
        or snapshot.resource.paused
    ):
        return None
    newest, spec = (
        # The newest only: further back are pods that somebody has replaced on purpose.
        next(iter(revisions_of(snapshot.resource.status)[-1:]), None),
        hash_of(subject),
    )
    if newest is None:  # nothing was ever good
        return None
    waits = any(group.pending for group in decision.groups if group.name == rejection.group)
    if newest.hash == spec and (waits or not _is_of_another_release(newest, subject, record)):
        return None  # what fails now was good: no change of it is to blame
    rollback = replace(
        _because_of(rejection, newest.hash, spec), engine_version=subject.default_version
    )
    return replace(snapshot.course, rollback=rollback)


def _is_of_another_release(revision: Revision, subject: Subject, record: PlanRecord) -> bool:
    # This release makes other pods of the same than those that were good.
    return bool(revision.pods) and revision.pods != pods_hash(
        bare_pods(record.plan, subject.deployment)
    )


def _because_of(rejection: Rejection, to: str, instead_of: str) -> Rollback:
    failure = rejection.failure
    # A traceback names its error in the last line.
    said = (failure.message.splitlines() or [failure.reason])[-1] if failure else ""
    cause = Cause.PROGRESS_DEADLINE_EXCEEDED if rejection.late else Cause.ENGINE_FAILED
    return Rollback(
        to=to, instead_of=instead_of, cause=cause, group=rejection.group, said=said[:SAID_LENGTH]
    )


def _unknown(wanted: str, revisions: tuple[Revision, ...]) -> Problem:
    there = ", ".join(str(item.number) for item in revisions)
    return Problem(
        code="RevisionUnknown",
        what=f"{ROLLBACK_TO}: '{wanted}'",
        limit=f"names no revision that existed when it was set; there are {there}"
        if there
        else _NONE_YET,
        remedy="ask for an existing one with 'kubectl shardwright rollout undo NAME "
        f"--to-revision N', or for {SPEC}",
        path="metadata.annotations",
    )


_NONE_YET: Final = (
    "names no revision: there is none yet, as the model has never served with all groups"
)
