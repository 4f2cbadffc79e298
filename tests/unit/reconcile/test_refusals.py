"""What the API server does not take or keep, as sentences."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.reconcile.drift import dropped_fields
from shardwright.reconcile.snapshot import Refusal
from shardwright.reconcile.wording import field_dropped, problem_of, scheduler_unavailable
from shardwright.reconcile.writes import Apply, Patch, Why, Write
from tests.support.builders_reconcile import stateful_set

DENIED = (
    'admission webhook "vstatefulset.kb.io" denied the request: spec.replicas: Forbidden: '
    "scaling down is still in progress"
)
START = Apply(content=stateful_set(), uid="u", why=Why.START)
ROLL = Apply(content=stateful_set(), uid="u", why=Why.ROLLOUT)


def refusal(write: Write, message: str = DENIED, **changes: Any) -> Refusal:
    return replace(
        Refusal(write=write, code=403, reason="Forbidden", message=message, passes=False), **changes
    )


def test_a_start_that_the_queue_refuses_is_waited_for() -> None:
    assert problem_of(refusal(START), queued=True).code == "WaitingForQuota"


def test_any_other_refusal_is_the_users_business() -> None:
    assert problem_of(refusal(START), queued=False).code == "ObjectRefused"
    assert problem_of(refusal(ROLL), queued=True).code == "ObjectRefused"
    assert problem_of(refusal(START, "exceeded quota: pods"), queued=True).code == "ObjectRefused"


def test_what_is_known_better_than_the_api_server_says_it_is_said() -> None:
    dropped = field_dropped({"kind": "PodGroup", "metadata": {"name": "a"}}, ["spec.a"])
    assert problem_of(refusal(ROLL, problem=dropped), queued=False) == dropped


@pytest.mark.parametrize(
    ("code", "reason", "said"), [(500, "InternalError", "HTTP 500"), (0, "Timeout", "Timeout")]
)
@pytest.mark.parametrize(
    "write",
    [ROLL, Patch(name="llama-0", namespace="models", uid="u", annotations={}, why=Why.NOTE)],
    ids=["apply", "patch"],
)
def test_an_api_server_that_fails_is_named_with_the_object_and_what_it_says(
    write: Write, code: int, reason: str, said: str
) -> None:
    problem = problem_of(
        refusal(write, "failed calling webhook x", code=code, reason=reason, passes=True),
        queued=False,
    )
    assert problem.code == "ApiUnavailable"
    assert problem.sentence() == (
        f"StatefulSet llama-0 could not be written {said}: failed calling webhook x; "
        "it is tried again; look at the webhook that is named, or at the API server"
    )


def test_a_stateful_set_that_takes_no_such_change_is_named_with_the_way_out() -> None:
    message = (
        'StatefulSet.apps "llama-0" is invalid: spec: Forbidden: updates to statefulset spec for '
        "fields other than "
        "'replicas', 'ordinals', 'template' are forbidden"
    )
    problem = problem_of(refusal(ROLL, message), queued=False)
    assert (problem.code, problem.remedy) == (
        "ObjectRefused",
        "delete StatefulSet llama-0, it is made anew",
    )


def test_many_dropped_fields_are_counted() -> None:
    problem = field_dropped(
        {"kind": "PodGroup", "metadata": {"name": "a"}},
        ["spec.a", "spec.b", "spec.c", "spec.d", "spec.e"],
    )
    assert problem.sentence() == (
        "PodGroup a must be stored as it is sent, but the API server drops spec.a, spec.b, spec.c "
        "and 2 more; turn on the "
        "feature gate behind it or upgrade the CustomResourceDefinition of that kind, or remove "
        "what asks for it"
    )


IMAGE_VOLUME = {
    "spec": {
        "volumes": [{"name": "models", "image": {"reference": "a"}}],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
}


def test_an_image_volume_that_is_dropped_names_the_gate_and_the_field() -> None:
    stored = {"spec": {"volumes": [{"name": "tmp"}], "volumeMounts": []}}
    fields = dropped_fields(IMAGE_VOLUME, stored)

    problem = field_dropped({"kind": "StatefulSet", "metadata": {"name": "a"}}, fields)
    assert (problem.code, problem.gap) == (
        "FieldDropped",
        "but the API server drops spec.volumes[models], spec.volumeMounts[/models]",
    )
    assert problem.remedy == (
        "turn on the feature gate ImageVolume (Kubernetes 1.35 has it on), or choose another "
        "source in spec.model.weights"
    )


def test_a_scheduler_that_is_not_there_names_the_field_and_the_way_out() -> None:
    problem = scheduler_unavailable(
        "Coscheduling",
        "needs podgroups of x/v1, which this API server does not serve",
        "install Coscheduling",
    )
    assert problem.sentence() == (
        "spec.placement.scheduler: Coscheduling needs podgroups of x/v1, which this API server does "
        "not serve; install Coscheduling, "
        "or choose another scheduler"
    )


def test_only_what_is_missing_is_dropped_not_what_somebody_changed() -> None:
    sent = {
        "image": "a",
        "replicas": 2,
        "list": [1],
        "map": {"x": {"y": 1}},
        "containers": [{"name": "a", "tty": True}],
    }
    stored = {"image": "mirror/a", "replicas": 0, "map": {}, "containers": [{"name": "a"}]}
    assert dropped_fields(sent, stored) == ("list", "map.x", "containers[a].tty")
    assert dropped_fields(sent, sent | {"defaulted": True}) == ()
