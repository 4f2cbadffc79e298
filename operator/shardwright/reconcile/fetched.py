"""What is next for a model whose config must be read from the hub? A Job reads it, its pod hands it
over, a ConfigMap keeps it. The Job goes by itself some time after its end, and without a config it
starts again then: the hub may be back, or the user may have accepted the model's terms.

Does a ConfigMap hold a config that the operator read from the hub? Anybody can work out its name
and write an owner reference, so its content counts only with the operator's signature for this
resource and name. ``rendering.fetch_job`` makes the Job that reads it, ``fetched`` starts it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from shardwright.errors import Problem
from shardwright.modelspec.checkpoint_files import CheckpointFiles, read_handover
from shardwright.reconcile.annotations import read_time
from shardwright.reconcile.observed import controller_uid
from shardwright.reconcile.record_object import SigningKeys
from shardwright.reconcile.rights import too_many
from shardwright.reconcile.snapshot import Fetching, Snapshot
from shardwright.reconcile.wording import problem_of
from shardwright.reconcile.writes import Create, StartJob, Write, written_name
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner
from shardwright.rendering.fetch_job import (
    DEADLINE_SECONDS,
    KEPT_SECONDS,
    HubFetch,
    config_map,
    config_name,
    fetch_job,
    job_name,
)

SIGNATURE: Final = "shardwright.io/config-signature"
"""Annotation that holds the signature of name and content."""

KIND: Final = "FetchedConfig"
"""What kind of text it is, to the signature."""


def fetched_config(
    owner: Owner, fetch: HubFetch, found: CheckpointFiles, keys: SigningKeys
) -> dict[str, Any]:
    """Return the ConfigMap of a config, signed if there is a key."""
    content = config_map(owner, fetch, found)
    signature, metadata = (keys.sign(KIND, owner.uid, _text(content)), content["metadata"])
    if signature is None:
        return content
    return {
        **content,
        "metadata": {**metadata, "annotations": {**metadata["annotations"], SIGNATURE: signature}},
    }


def is_believed(content: KubernetesObject, owner_uid: str, keys: SigningKeys) -> bool:
    """Return whether the operator wrote a ConfigMap for the resource with this uid.

    Without keys nobody can tell who wrote it: then its owner reference is enough.
    """
    # Before the signature: a signed ConfigMap copied under another owner is not this model's.
    if controller_uid(content) != owner_uid:
        return False
    signature = (content["metadata"].get("annotations") or {}).get(SIGNATURE, "")
    return keys.verify(signature, KIND, owner_uid, _text(content)) if keys else True


def _text(content: KubernetesObject) -> str:
    # The name is signed too: it holds the hash of id and revision, so a config of another id cannot
    # be renamed into its place.
    return json.dumps([content["metadata"]["name"], content.get("data") or {}], sort_keys=True)


PATH: Final = "spec.model.id"

SOON_SECONDS: Final = 3.0
"""How soon to reconcile again while a Job runs: no cache shows Jobs. Basis: assumed; one takes
about as long.
"""

LATER_SECONDS: Final = 60.0
"""The same after a Job without a config: it is there for some minutes. Basis: assumed."""

OVERDUE_SECONDS: Final = DEADLINE_SECONDS + 60
"""The age at which a Job should have ended. Basis: its deadline, 30 s for its pod to end, the
rest assumed.
"""

ALREADY_EXISTS: Final = "AlreadyExists"
"""Reason of the API server against a second object of a name; another 409 passes, as with a
contended quota. Source: Kubernetes 1.36 ``apimachinery/pkg/apis/meta/v1``.
"""

_TOKEN: Final = "spec.model.weights.secretRef"  # noqa: S105 - a field's name
_BY_HAND: Final = (
    "make its ConfigMap with `shardwright fetch`, and name that in spec.model.configMapRef"
)
_REMEDIES: Final = {
    "HubAccessDenied": (
        f"accept its terms there, and name a Secret with a token that may read it in {_TOKEN}"
    ),
    "HubModelMissing": (
        "correct the id or the revision, or name a Secret "
        f"with a token that may read it in {_TOKEN}"
    ),
    "HubUnavailable": (
        "see that pods here reach the hub: egress, and HTTPS_PROXY and HF_ENDPOINT of the engine"
    ),
    "HubAnswerInvalid": f"look at HF_ENDPOINT and the proxy between, or {_BY_HAND}",
    "HubSettingInvalid": "correct the variable of the engine, or the Secret",
    "ConfigInvalid": "give the config in spec.model.config or spec.model.configMapRef",
    "ConfigNotHandedOver": _BY_HAND,
}
"""What a pod may say of a hub, and the way out; whatever else it says is none of our messages."""


class JobState(StrEnum):
    """How far a Job is that reads a config."""

    RUNNING = "Running"
    COMPLETE = "Complete"
    FAILED = "Failed"
    SUSPENDED = "Suspended"  #: by somebody else
    OVERDUE = "Overdue"  #: nobody has taken it up, or ended it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The next writes, the problem to show meanwhile, and when to reconcile again."""

    writes: tuple[Write, ...] = ()
    problem: Problem
    again_seconds: float


def fetched(snapshot: Snapshot, fetching: Fetching, now: datetime) -> Fetched:
    """Return the next write of a config fetch."""
    owner, fetch, job = snapshot.resource.owner, fetching.fetch, fetching.job
    name = job_name(owner, fetch)
    if against := _refused(snapshot, fetching) or (
        # A Job that exists may finish: the limit is for new ones.
        too_many(snapshot.cluster) if snapshot.cluster and job is None else None
    ):
        return Fetched(problem=against, again_seconds=LATER_SECONDS)
    # Its name follows from public facts, so it may be somebody else's, and is not believed.
    if job is not None and controller_uid(job) != owner.uid:
        return Fetched(problem=_in_the_way(name), again_seconds=LATER_SECONDS)
    state = None if job is None else state_of(job, now)
    # A failed Job may have left a message too: its pod says why before it ends.
    if job is not None and state in {JobState.COMPLETE, JobState.FAILED}:
        return _found(
            snapshot,
            fetch,
            read_handover(fetching.left)
            if fetching.left
            else _without_words(name, _why_ended(job)),
        )
    # Nobody ends such a Job, so it is named: waiting in silence would be for ever.
    if state is JobState.SUSPENDED or state is JobState.OVERDUE:
        return Fetched(problem=_stuck(name, state), again_seconds=LATER_SECONDS)
    start = (
        (StartJob(content=fetch_job(owner, fetch)),)
        # Without the cluster nobody knows how many models of the namespace there are.
        if job is None and snapshot.cluster
        else ()
    )
    return Fetched(
        writes=start,
        problem=_on_its_way(fetch, f"is read by Job {name}"),
        again_seconds=SOON_SECONDS,
    )


def _found(snapshot: Snapshot, fetch: HubFetch, found: CheckpointFiles | Problem) -> Fetched:
    owner = snapshot.resource.owner
    if isinstance(found, Problem):
        return Fetched(problem=_said(found, job_name(owner, fetch)), again_seconds=LATER_SECONDS)
    keep = Create(content=fetched_config(owner, fetch, found, snapshot.keys))
    return Fetched(
        writes=(keep,), problem=_on_its_way(fetch, "was read"), again_seconds=SOON_SECONDS
    )


def _refused(snapshot: Snapshot, fetching: Fetching) -> Problem | None:
    owner, fetch = snapshot.resource.owner, fetching.fetch
    config = config_name(owner.name, fetch.model, fetch.revision)
    ours = {job_name(owner, fetch), config}
    refused = snapshot.outcome.refused if snapshot.outcome else ()
    for item in refused:
        if (
            isinstance(item.write, Create)
            and written_name(item.write) == config
            # An object of this name that is not among our own was not signed by the operator.
            and item.reason == ALREADY_EXISTS
        ):
            return config_taken(config)
        if isinstance(item.write, Create | StartJob) and written_name(item.write) in ours:
            return problem_of(item, queued=False)
    return fetching.problem


def state_of(job: KubernetesObject, now: datetime) -> JobState:
    """Return the state of a Job."""
    holds, age = _holding(job), age_seconds(job, now)
    for state in (JobState.COMPLETE, JobState.FAILED, JobState.SUSPENDED):
        if state.value in holds:
            return state
    return JobState.OVERDUE if age is not None and age > OVERDUE_SECONDS else JobState.RUNNING


def age_seconds(job: KubernetesObject, now: datetime) -> float | None:
    """Return the age of a Job, or None if it does not state its creation."""
    created = read_time(job["metadata"].get("creationTimestamp"))
    return None if created is None else (now - created).total_seconds()


def _why_ended(job: KubernetesObject) -> str:
    failed = _holding(job).get("Failed")
    return str(failed.get("reason") or "Failed") if failed else ""


def _stuck(name: str, state: JobState) -> Problem:
    if state is JobState.SUSPENDED:
        limit, remedy = (
            "is suspended",
            f"let the queue or the webhook that suspends it admit it, or {_BY_HAND}",
        )
    else:
        limit = f"has not ended {OVERDUE_SECONDS} s after it was made"
        remedy = f"see that Kubernetes' Job controller runs, and delete the Job, or {_BY_HAND}"
    return Problem(
        code="ConfigFetchFailed", path=PATH, what=f"Job {name}", limit=limit, remedy=remedy
    )


def _holding(job: KubernetesObject) -> dict[str, Mapping[str, Any]]:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return {
        str(condition.get("type")): condition
        for condition in conditions
        if condition.get("status") == "True"
    }


def _said(problem: Problem, job: str) -> Problem:
    again = (
        f"it is tried again within {KEPT_SECONDS // 60} "
        f"minutes, or at once when Job {job} is deleted"
    )
    if problem.code == "ConfigFetchFailed":
        return replace(problem, path=PATH, remedy=again)
    # Whoever owns a pod of that name may have written the message: only known codes are passed on,
    # with words of our own (ADR 30).
    remedy = _REMEDIES.get(problem.code)
    return replace(problem, path=PATH, remedy=f"{remedy}; {again}") if remedy else _damaged(job)


def _on_its_way(fetch: HubFetch, how: str) -> Problem:
    at = fetch.revision or "its newest commit"
    return Problem(
        code="ConfigFetching", path=PATH, what=f"the config of {fetch.model} at {at}", limit=how
    )


def _without_words(job: str, reason: str) -> Problem:
    late = reason == "DeadlineExceeded"
    limit = (
        f"did not end in {DEADLINE_SECONDS} s"
        if late
        else f"ended without a word ({reason or 'its pod is gone'})"
    )
    gap = "its pod found no node, no image or no Secret" if late else ""
    return Problem(code="ConfigFetchFailed", what=f"Job {job}", limit=limit, gap=gap)


def _damaged(job: str) -> Problem:
    what, limit = (f"the pod of Job {job}", "has left something that is not one of our messages")
    return Problem(
        code="ConfigFetchFailed",
        path=PATH,
        what=what,
        limit=limit,
        remedy=f"delete the Job, or {_BY_HAND}",
    )


def config_taken(name: str) -> Problem:
    """Return the problem of a foreign ConfigMap under the config's name."""
    limit = "is there and is not what the operator has read"
    return Problem(
        code="NameConflict", path=PATH, what=f"ConfigMap {name}", limit=limit, remedy="delete it"
    )


def job_unread(name: str, message: str) -> Problem:
    """Return the problem of a Job whose state the API server does not tell."""
    return Problem(
        code="ApiUnavailable",
        path=PATH,
        what=f"Job {name} could not be read",
        limit=message,
        remedy="it is tried again",
    )


def _in_the_way(job: str) -> Problem:
    limit = "is not controlled by this ShardedModel"
    return Problem(
        code="NameConflict", path=PATH, what=f"Job {job}", limit=limit, remedy="delete it"
    )
