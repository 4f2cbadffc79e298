"""A model whose config is to be read from the hub: what is written, what its user is told, and when
it is looked at again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shardwright.api.admission import NamespaceLimits
from shardwright.errors import Problem
from shardwright.modelspec.checkpoint_files import CheckpointFiles, handed_over, problem_handed_over
from shardwright.reconcile.decide import Desired, decide
from shardwright.reconcile.fetched import config_taken
from shardwright.reconcile.next_step import Step, next_step
from shardwright.reconcile.observed import Observed, object_key
from shardwright.reconcile.snapshot import (
    Cluster,
    Fetching,
    ModelResource,
    Outcome,
    Refusal,
    Snapshot,
)
from shardwright.reconcile.writes import Create, StartJob, written_name
from shardwright.rendering.deployment import Owner
from shardwright.rendering.fetch_job import config_map, fetch_job, job_name
from shardwright.resolving.model import Unread
from tests.support.builders_deployment import a_hub_fetch
from tests.support.builders_model import a_config

NOW = datetime(2026, 11, 25, tzinfo=UTC)
OWNER = Owner(name="ours", namespace="models", uid="9b1f")
FETCH = a_hub_fetch()
JOB = job_name(OWNER, FETCH)
FOUND = CheckpointFiles(
    files={"config.json": json.dumps(a_config(), indent=1)}, commit="1" * 40, tensor_bytes=5
)
SOON, LATER = 3.0, 60.0
AGAIN = f"it is tried again within 10 minutes, or at once when Job {JOB} is deleted"


def a_job(condition: str = "", reason: str = "", uid: str = OWNER.uid) -> dict[str, Any]:
    job = fetch_job(replace(OWNER, uid=uid), FETCH)
    ended = [{"type": condition, "status": "True", "reason": reason}] if condition else []
    return {**job, "status": {"conditions": [{"type": "FailureTarget", "status": "True"}, *ended]}}


def a_look(fetching: Fetching, **snapshot: Any) -> Snapshot:
    unknown = Unread(code="ModelUnknown", path="spec.model.id", what="'acme/llama'", fetch=FETCH)
    given: dict[str, Any] = {
        "cluster": Cluster(),
        "observed": Observed(objects={}),
        "record": None,
    } | snapshot
    resource = ModelResource(owner=OWNER, generation=1, paused=given.pop("paused", False))
    return Snapshot(resource=resource, subject=(unknown,), fetching=fetching, **given)


def step_of(fetching: Fetching, **snapshot: Any) -> Step:
    return next_step(a_look(fetching, **snapshot), NOW)


def said(step: Step) -> tuple[str, str, str, float]:
    """Return reason, sentence and whether it stalls, and in how many seconds it is looked at
    again.
    """
    published = step.published
    assert published
    assert published.again_at
    conditions = {item["type"]: item for item in published.status["conditions"]}
    assert conditions["Planned"]["reason"] == conditions["Ready"]["reason"]
    ready, stalled = conditions["Ready"], conditions["Stalled"]["status"]
    return (ready["reason"], ready["message"], stalled, (published.again_at - NOW).total_seconds())


def test_where_nobody_reads_it_yet_a_job_is_made() -> None:
    step = step_of(Fetching(fetch=FETCH))

    assert step.writes == (StartJob(content=fetch_job(OWNER, FETCH)),)
    sentence = f"spec.model.id: the config of acme/llama at its newest commit is read by Job {JOB}"
    assert said(step) == ("ConfigFetching", sentence, "False", SOON)


def test_a_job_that_runs_is_waited_for() -> None:
    step = step_of(Fetching(fetch=FETCH, job=a_job()))

    assert (step.writes, said(step)[0], said(step)[3]) == ((), "ConfigFetching", SOON)


def test_what_the_pod_has_read_becomes_a_config_map() -> None:
    step = step_of(Fetching(fetch=FETCH, job=a_job("Complete"), left=handed_over(FOUND)))

    assert step.writes == (Create(content=config_map(OWNER, FETCH, FOUND)),)
    assert said(step)[0] == "ConfigFetching"


PROBLEMS = {
    "gated": (
        Problem(code="HubAccessDenied", what="'acme/llama'", limit="is gated on HUB"),
        (
            "'acme/llama' is gated on HUB; accept its terms there, and name a Secret with a token "
            "that may read it in "
            "spec.model.weights.secretRef"
        ),
        "True",
    ),
    "not there": (
        Problem(code="HubModelMissing", what="'acme/llama'", limit="is not on HUB, or is private"),
        (
            "'acme/llama' is not on HUB, or is private; correct the id or the revision, or name a "
            "Secret with a token that may "
            "read it in spec.model.weights.secretRef"
        ),
        "True",
    ),
    "busy": (
        Problem(code="HubUnavailable", what="HUB", limit="answers 429: too many requests"),
        (
            "HUB answers 429: too many requests; see that pods here reach the hub: egress, and "
            "HTTPS_PROXY and HF_ENDPOINT of "
            "the engine"
        ),
        "False",
    ),
}


@pytest.mark.parametrize(("problem", "sentence", "stalled"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_the_pod_could_not_read_is_said_with_the_way_out_of_the_resource(
    problem: Problem, sentence: str, stalled: str
) -> None:
    step = step_of(
        Fetching(
            fetch=FETCH,
            job=a_job("Failed", "BackoffLimitExceeded"),
            left=problem_handed_over(problem),
        )
    )

    assert step.writes == ()
    assert said(step) == (problem.code, f"spec.model.id: {sentence}; {AGAIN}", stalled, LATER)


ENDED = {
    "no pod in time": (
        "DeadlineExceeded",
        "did not end in 300 s, its pod found no node, no image or no Secret",
    ),
    "no word": ("BackoffLimitExceeded", "ended without a word (BackoffLimitExceeded)"),
}


@pytest.mark.parametrize(("reason", "sentence"), ENDED.values(), ids=ENDED)
def test_a_job_that_ends_without_a_word_is_named(reason: str, sentence: str) -> None:
    step = step_of(Fetching(fetch=FETCH, job=a_job("Failed", reason)))

    assert said(step) == (
        "ConfigFetchFailed",
        f"spec.model.id: Job {JOB} {sentence}; {AGAIN}",
        "True",
        LATER,
    )


@pytest.mark.parametrize(
    "left", ["rubbish", problem_handed_over(Problem(code="Serving", what="all is well"))]
)
def test_of_what_a_stranger_may_have_left_nothing_is_believed_that_is_not_ours(left: str) -> None:
    step = step_of(Fetching(fetch=FETCH, job=a_job("Complete"), left=left))

    assert (step.writes, said(step)[0]) == ((), "ConfigFetchFailed")


def test_a_job_that_somebody_suspends_is_named() -> None:
    job = a_job() | {
        "status": {
            "conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]
        }
    }

    step = step_of(Fetching(fetch=FETCH, job=job))

    by_hand = (
        "make its ConfigMap with `shardwright fetch`, and name that in spec.model.configMapRef"
    )
    remedy = f"let the queue or the webhook that suspends it admit it, or {by_hand}"
    sentence = f"spec.model.id: Job {JOB} is suspended; {remedy}"
    assert (step.writes, said(step)) == ((), ("ConfigFetchFailed", sentence, "True", LATER))


def test_a_job_that_was_suspended_and_is_not_any_more_is_waited_for() -> None:
    job = a_job() | {
        "status": {"conditions": [{"type": "Suspended", "status": "False", "reason": "JobResumed"}]}
    }

    assert said(step_of(Fetching(fetch=FETCH, job=job)))[0] == "ConfigFetching"


@pytest.mark.parametrize(("age", "reason"), [(360, "ConfigFetching"), (361, "ConfigFetchFailed")])
def test_a_job_that_should_have_ended_is_named(age: int, reason: str) -> None:
    job = a_job()
    created = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")

    step = step_of(
        Fetching(
            fetch=FETCH, job=job | {"metadata": job["metadata"] | {"creationTimestamp": created}}
        )
    )

    assert (step.writes, said(step)[0]) == ((), reason)


def test_a_job_of_somebody_else_is_left_alone() -> None:
    step = step_of(
        Fetching(fetch=FETCH, job=a_job("Complete", uid="77aa"), left=handed_over(FOUND))
    )

    sentence = f"spec.model.id: Job {JOB} is not controlled by this ShardedModel; delete it"
    assert (step.writes, said(step)) == ((), ("NameConflict", sentence, "True", LATER))


def test_a_model_beyond_those_that_its_namespace_may_have_is_not_read() -> None:
    step = step_of(
        Fetching(fetch=FETCH), cluster=Cluster(limits=NamespaceLimits(models=1), older=1)
    )

    assert (step.writes, said(step)[0]) == ((), "QuotaExceeded")


@pytest.mark.parametrize(
    "unready", [{"paused": True}, {"cluster": None}], ids=["paused", "caches that are not full"]
)
def test_nothing_is_written_for_a_model_that_is_paused_or_before_all_is_known(
    unready: dict[str, Any],
) -> None:
    assert step_of(Fetching(fetch=FETCH), **unready).writes == ()


def test_a_paused_model_says_what_it_lacks_and_is_not_looked_at_again_for_a_job() -> None:
    reconcile = a_look(Fetching(fetch=FETCH), paused=True)
    paused, without = (
        next_step(replace(reconcile, fetching=item), NOW) for item in (reconcile.fetching, None)
    )

    assert paused == without
    assert paused.published
    conditions = {item["type"]: item["reason"] for item in paused.published.status["conditions"]}
    assert conditions["Planned"] == "ModelUnknown"


@pytest.mark.parametrize(
    "write",
    [StartJob(content=fetch_job(OWNER, FETCH)), Create(content=config_map(OWNER, FETCH, FOUND))],
)
def test_what_the_api_server_refuses_is_said(write: StartJob | Create) -> None:
    refused = Refusal(
        write=write, code=403, reason="Forbidden", message="exceeded quota: team", passes=False
    )
    job = None if isinstance(write, StartJob) else a_job("Complete")

    step = step_of(
        Fetching(fetch=FETCH, job=job, left=handed_over(FOUND)), outcome=Outcome(refused=(refused,))
    )

    assert said(step)[:2] == (
        "ObjectRefused",
        "the API server refuses an object exceeded quota: team",
    )


CONFIG = config_map(OWNER, FETCH, FOUND)["metadata"]["name"]
TAKEN = (
    f"spec.model.id: ConfigMap {CONFIG} is there and is not what the operator has read; delete it"
)


def test_a_config_map_that_turns_out_to_be_there_is_named() -> None:
    write = Create(content=config_map(OWNER, FETCH, FOUND))
    refused = Refusal(write=write, code=409, reason="AlreadyExists", message="exists", passes=True)

    step = step_of(
        Fetching(fetch=FETCH, job=a_job("Complete"), left=handed_over(FOUND)),
        outcome=Outcome(refused=(refused,)),
    )

    assert said(step)[:3] == ("NameConflict", TAKEN, "True")


def test_nothing_is_read_as_long_as_a_config_map_is_in_the_way() -> None:
    step = step_of(Fetching(fetch=FETCH, problem=config_taken(CONFIG)))

    assert (step.writes, said(step)) == ((), ("NameConflict", TAKEN, "True", LATER))


def test_of_what_was_read_that_stays_which_the_spec_has_its_config_from() -> None:
    kept = config_map(OWNER, FETCH, FOUND)
    earlier = config_map(OWNER, replace(FETCH, revision="0" * 40), FOUND)
    live = {
        object_key(item): {**item, "metadata": {**item["metadata"], "uid": "u"}}
        for item in (kept, earlier)
    }

    decision = decide(
        Desired(owner_uid=OWNER.uid, objects=(), config=CONFIG), Observed(objects=live), NOW
    )

    assert [written_name(write) for write in decision.writes] == [earlier["metadata"]["name"]]
