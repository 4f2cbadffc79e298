"""What is kept of a model so that a user can roll it back? Once all groups serve, a revision: the
spec, the config, the engine's version, the plan, and the pods that follow from these, bare of their
place.

It is a ControllerRevision: the stock role ``edit`` may not write one, and nobody can change one.
Its digest stands in the resource's status, which no user of the resource may write; one with
another digest is not believed.
"""

import hashlib
import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from shardwright.api.record import PlanRecord, Rollback, decode, encode
from shardwright.engines.vllm.releases import kept_default
from shardwright.errors import Problem
from shardwright.planning.report import Plan
from shardwright.reconcile.observed import controller_uid
from shardwright.reconcile.writes import DropRevision, KeepRevision, ObjectKey, Write
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import BarePods, Owner
from shardwright.rendering.labels import MANAGED_BY, MODEL, owned_metadata
from shardwright.rendering.names import base_name, revision_name
from shardwright.rendering.place import bare_pods, pods_from, pods_hash, pods_text
from shardwright.resolving.subject import Subject

REVISIONS: Final = "revisions"
"""Field of the status that says which revisions there are, the newest last."""

HISTORY_MAX: Final = 3
"""How many revisions are kept. Basis: chosen; the one that runs, and two to roll back to."""

SURPLUS: Final = "surplusRevisions"
"""Field of the status that names, by their digests, those that are no longer kept and could not be
deleted yet.
"""

SURPLUS_MAX: Final = 8
"""How many surplus ones there may be before no further revision is kept. Basis: assumed; whoever
may create one may delete one, so it is a webhook or a right of its own that keeps them.
"""

# Left out: a rollback must not scale the model, unpause it, or change how its groups restart.
OF_NOW: Final = ("paused", "mode", "replan", "restart", "rollout", "replicas")
"""Fields of the spec about the number and life of groups: a rollback leaves them."""

_HASH_DIGITS: Final = 16
_DATA_KEY: Final = "zlib"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One revision without its text, but with the facts that are shown of it.

    ``digest`` is that of the text. ``pods`` differs if releases make different pods of it (empty:
    its pods were not kept).
    """

    number: int
    hash: str
    digest: str
    image: str
    kept_at: str
    pods: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSpec:
    """The spec of a resource, as JSON, and the config that it refers to (None: to none)."""

    text: str
    config: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """The text of a revision: ``spec`` and ``config`` as in :class:`AskedSpec`, the engine's
    default version, and the plan.

    ``pods`` are those that served (None: those of two releases did).
    """

    spec: Mapping[str, Any]
    config: str | None
    engine_version: str | None
    plan: Plan
    pods: BarePods | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """The revision of this hash as it would run now: its subject, or the problems that prevent it,
    and its own plan and pods.
    """

    hash: str
    subject: Subject | tuple[Problem, ...]
    plan: Plan | None = None
    pods: BarePods | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The rollback of a model (None: the spec is run), the last answered request, and the problem
    why no request is followed.

    ``unknown``: the request named no revision that there was.
    """

    rollback: Rollback | None = None
    answered: str = ""
    unknown: bool = False
    problem: Problem | None = None

    def kept_in(self, record: PlanRecord) -> PlanRecord:
        """Return the record with this course stored."""
        return replace(record, rollback=self.rollback, answered=self.answered, unknown=self.unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The revisions of a model, and digests to delete, now or after ``writes``.

    ``keeps`` creates the newest one, each of ``drops`` deletes the one of its digest.
    """

    revisions: tuple[Revision, ...]
    surplus: tuple[str, ...] = ()
    keeps: KeepRevision | None = None
    drops: Mapping[str, DropRevision] = field(default_factory=dict)

    @property
    def writes(self) -> tuple[Write, ...]:
        """Return the writes in order."""
        return (*((self.keeps,) if self.keeps else ()), *self.drops.values())

    def after(self, before: "History", written: Sequence[Write]) -> "History":
        """Return the history after these writes; ``before`` if the newest was not written."""
        # The oldest is given up only when the newest is kept (ADR 25).
        if self.keeps and self.keeps not in written:
            return before
        return replace(
            self,
            surplus=tuple(
                digest for digest in self.surplus if self.drops.get(digest) not in written
            ),
        )


def hash_of(subject: Subject) -> str:
    """Return the hash of a revision, of everything that pods and plans follow from, without the
    rules of life of groups.
    """
    return hashlib.sha256(
        # Not the number of replicas: scaling makes no revision, and a rollback does not scale.
        f"{subject.cut_hash} {subject.deployment.groups.asked}".encode()
    ).hexdigest()[:_HASH_DIGITS]


def history_of(status: Mapping[str, Any]) -> History:
    """Return the revisions that a status names, and those still to be deleted."""
    named = status.get(SURPLUS)
    surplus = (
        (item for item in named or () if isinstance(item, str))
        if isinstance(named, list | tuple)
        else ()
    )
    # The status is read back, as its users may not write it (ADR 25), and bounded, as some may by a
    # right of their own.
    return History(revisions=revisions_of(status), surplus=tuple(surplus)[:SURPLUS_MAX])


def revisions_of(status: Mapping[str, Any]) -> tuple[Revision, ...]:
    """Return the revisions that a status names, oldest first, if of our writing."""
    found = (item for item in status.get(REVISIONS) or () if isinstance(item, Mapping))
    return tuple(revision for item in found if (revision := _read(item)))


def _read(item: Mapping[str, Any]) -> Revision | None:
    number, words = (
        item.get("revision"),
        [item.get(name) for name in ("hash", "digest", "image", "keptAt")],
    )
    # Not isinstance: true is an int to Python.
    if type(number) is not int or not all(isinstance(word, str) for word in words):
        return None
    hashed, digest, image, kept_at = map(str, words)
    pods = item.get("pods")
    return Revision(
        number=number,
        hash=hashed,
        digest=digest,
        image=image,
        kept_at=kept_at,
        pods=pods if isinstance(pods, str) else "",
    )


def revision_entries(history: History, runs: str) -> dict[str, Any]:
    """Return the revisions as the status shows them; ``runs`` is the hash of the wanted one."""
    revisions = [
        {
            "revision": item.number,
            "hash": item.hash,
            "digest": item.digest,
            "image": item.image,
            "keptAt": item.kept_at,
            "runs": item.hash == runs,
            **({"pods": item.pods} if item.pods else {}),
        }
        for item in history.revisions
    ]
    found = {REVISIONS: revisions, SURPLUS: list(history.surplus)}
    return {name: value for name, value in found.items() if value}


# No slots: cached_property keeps its value in the instance's __dict__.
@dataclass(frozen=True, kw_only=True)
class Served:
    """The state with which all groups serve: a subject, its plan of record, and the ``restored``
    pods (None: they are of this release).

    ``mixed``: some pods are still of another release.
    """

    subject: Subject
    record: PlanRecord
    restored: BarePods | None = None
    mixed: bool = False

    @cached_property
    def pods(self) -> BarePods | None:
        """Return the served revision's pods, or None if they are mixed."""
        if self.mixed:
            return None
        return self.restored or bare_pods(self.record.plan, self.subject.deployment)

    @property
    def mark(self) -> str:
        """Return the hash that tells its pods from another release's; empty if mixed."""
        return pods_hash(self.pods) if self.pods else ""


def renewed(
    before: History, served: Served, told: AskedSpec | None, now: datetime
) -> History | None:
    """Return the revisions once all groups serve; None if the request must be told first.

    One that was kept before becomes the newest under a new number, as with a Deployment; if another
    release has made its pods, it is kept anew. Surplus ones stay named until they are deleted.
    """
    subject, pods = served.subject, served.mark
    hashed, there = hash_of(subject), before.revisions
    number = max((item.number for item in there), default=0) + 1
    known = next((item for item in there if item.hash == hashed), None)
    others = tuple(item for item in there if item is not known)
    same = known is not None and pods in ("", known.pods)
    if (same and known is there[-1]) or (
        # With eight that cannot be deleted no further one is kept (ADR 25): they would grow in etcd
        # without an end.
        not same and len(before.surplus) >= SURPLUS_MAX
    ):
        return replace(before, drops=_drops(subject.owner, before.surplus))
    if known and same:
        return History(revisions=(*others, replace(known, number=number)), surplus=before.surplus)
    # Kept word for word, as defaults may change. Few reconciles need the text, so it is read only
    # here.
    if told is None:
        return None
    text = _text(told, served)
    made = _revision(served, text, number, now)
    old = others[: max(0, len(others) + 1 - HISTORY_MAX)]
    gone = (*old, *((known,) if known else ()))
    surplus = tuple(
        item for item in (*before.surplus, *(item.digest for item in gone)) if item != made.digest
    )
    keeps = KeepRevision(content=_object(subject.owner, text, made.digest, number))
    needs = frozenset({(keeps.content["kind"], keeps.content["metadata"]["name"])})
    drops = _drops(subject.owner, surplus, needs)
    return History(revisions=(*others[len(old) :], made), surplus=surplus, keeps=keeps, drops=drops)


def _revision(served: Served, text: str, number: int, now: datetime) -> Revision:
    deployment, plan = served.subject.deployment, served.record.plan
    return Revision(
        number=number,
        hash=hash_of(served.subject),
        digest=hashlib.sha256(text.encode()).hexdigest(),
        image=deployment.on(plan.resource).image,
        kept_at=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        pods=served.mark,
    )


def _drops(
    owner: Owner, digests: Sequence[str], needs: frozenset[ObjectKey] = frozenset()
) -> dict[str, DropRevision]:
    names = {digest: revision_name(base_name(owner.name), digest) for digest in digests}
    return {
        digest: DropRevision(namespace=owner.namespace, name=name, owner_uid=owner.uid, needs=needs)
        for digest, name in names.items()
    }


def _text(told: AskedSpec, served: Served) -> str:
    # Without the later fate of the record: the same spec with the same pods must have the same
    # digest, and so the same name.
    kept = replace(
        served.record,
        rollback=None,
        answered="",
        unknown=False,
        rejected="",
        improved_at=None,
        serial=0,
    )
    pods = {"pods": pods_text(made)} if (made := served.pods) else {}
    said = {
        "spec": json.loads(told.text)["spec"],
        "config": told.config,
        "record": encode(kept),
        **pods,
    }
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def _object(owner: Owner, text: str, digest: str, number: int) -> KubernetesObject:
    base = base_name(owner.name)
    labels = {MANAGED_BY[0]: MANAGED_BY[1], "app.kubernetes.io/component": "revision", MODEL: base}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": owned_metadata(revision_name(base, digest), owner, labels, {}),
        "revision": number,
        # Compressed: a revision takes 2.7 to 3.0 KB in etcd (ADR 25).
        "data": {_DATA_KEY: b64encode(zlib.compress(text.encode(), 9)).decode()},
    }


def read_revision(
    content: KubernetesObject | None, owner_uid: str, revision: Revision
) -> Saying | Problem:
    """Return the text of a ControllerRevision, or why it is not the one that was kept."""
    if content is None or controller_uid(content) != owner_uid:
        return unusable(revision.number, "is gone: its ControllerRevision does not exist")
    text = _unpacked((content.get("data") or {}).get(_DATA_KEY))
    if text is None or hashlib.sha256(text.encode()).hexdigest() != revision.digest:
        return unusable(
            revision.number,
            "is not what the operator has kept: somebody has put another in its place",
        )
    # Its digest is the one in the status, so the text is ours and as we write it.
    said = json.loads(text)
    record = decode(said["record"])
    if isinstance(record, Problem):
        return unusable(revision.number, f"cannot be read: {record.limit}")
    return Saying(
        spec=said["spec"],
        config=said["config"],
        engine_version=kept_default(record.engine_version),
        plan=record.plan,
        pods=pods_from(said["pods"]) if "pods" in said else None,
    )


def _unpacked(data: object) -> str | None:
    # Anybody may have written anything of any size in its place.
    unpacking = zlib.decompressobj()
    try:
        # zlib.decompress would unpack all of it first, and a few KiB can hold gigabytes.
        text = unpacking.decompress(b64decode(str(data), validate=True), TEXT_BYTES_MAX)
        return None if unpacking.unconsumed_tail else text.decode()
    except (ValueError, zlib.error):
        return None


TEXT_BYTES_MAX: Final = 8 * 1024 * 1024
"""The most that is unpacked of a revision. Basis: a spec of 1.5 MiB, a config of 1 MiB and a
plan of record of 1 MiB, escaped.
"""


def as_now(kept: Saying, live: KubernetesObject) -> str:
    """Return a revision's request as JSON, with the present number and rules of groups.

    The engine has the revision's version, whatever the spec says of upgrades: an upgrade may be the
    reason for the rollback.
    """
    now = live.get("spec") or {}
    spec = {name: value for name, value in kept.spec.items() if name not in OF_NOW}
    spec |= {name: now[name] for name in OF_NOW if name in now}
    # With Roll the newest version would be taken, so an upgrade that does not come up could not be
    # rolled back.
    spec["rollout"] = {**(spec.get("rollout") or {}), "onUpgrade": "Keep"}
    return json.dumps(
        {
            "apiVersion": live["apiVersion"],
            "kind": live["kind"],
            "spec": spec,
            "metadata": _named(live),
        }
    )


def _named(live: KubernetesObject) -> dict[str, Any]:
    return {field: live["metadata"][field] for field in ("name", "namespace", "uid", "generation")}


def as_kept(found: Former, revision: Revision) -> Former:
    """Return the former revision, with the problem if it resolves to something else by now."""
    # Refused rather than approximately the same (ADR 25).
    if isinstance(found.subject, tuple) or hash_of(found.subject) == revision.hash:
        return found
    why = (
        "means something else by now: the administrator's defaults, or a model's config in the "
        "catalogue, have changed"
    )
    return replace(found, subject=(unusable(revision.number, why),))


def unusable(number: int | None, limit: str) -> Problem:
    """Return the problem of a revision that cannot be restored."""
    return Problem(
        code="RevisionUnusable",
        what="the revision to go back to" if number is None else f"revision {number}",
        limit=limit,
        gap="and what runs is left as it is",
        remedy="go back to another one, or change the spec",
    )
