"""What the API server is asked about who brings a token, and what each of its answers means."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import pytest

from shardwright.cluster.client import ApiError
from shardwright.cluster.permissions import AUDIENCE, may_read
from tests.support.scripted_api import Answer, serving

WHO = {"username": "prometheus", "uid": "u", "groups": ["monitoring"], "extra": {"pod": ["p"]}}
KNOWN = Answer(201, {"status": {"authenticated": True, "audiences": [AUDIENCE], "user": WHO}})


def test_whose_token_it_is_is_asked_first_and_then_whether_he_may_by_all_that_he_is() -> None:
    with serving(KNOWN, Answer(201, {"status": {"allowed": True}}), may_write=lambda: False) as (
        api,
        client,
    ):
        assert may_read(client, "t", "/metrics", 10) is HTTPStatus.OK

    assert api.requests == [
        (
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": "t", "audiences": [AUDIENCE]},
            },
        ),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": "prometheus",
                    "uid": "u",
                    "groups": ["monitoring"],
                    "extra": {"pod": ["p"]},
                    "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
                },
            },
        ),
    ]


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False},
        {"authenticated": "true", "audiences": [AUDIENCE]},
        {"authenticated": True, "user": WHO},  # an authenticator that does not know audiences
        {"authenticated": True, "audiences": ["https://kubernetes.default.svc"], "user": WHO},
    ],
)
def test_who_is_not_known_by_a_token_for_the_metrics_is_not_asked_about_further(
    status: dict[str, Any],
) -> None:
    with serving(Answer(201, {"status": status})) as (api, client):
        assert may_read(client, "t", "/metrics", 10) is HTTPStatus.UNAUTHORIZED
        assert len(api.requests) == 1


@pytest.mark.parametrize(
    "status", [{}, {"allowed": False}, {"allowed": "true"}, {"allowed": False, "denied": True}]
)
def test_only_a_plain_yes_admits(status: dict[str, Any]) -> None:
    with serving(KNOWN, Answer(201, {"status": status})) as (_, client):
        assert may_read(client, "t", "/metrics", 10) is HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(
    "answers", [(Answer(403),), (Answer(500),), (KNOWN, Answer(403)), (Answer(drop=True),)]
)
def test_no_answer_is_no_verdict(answers: tuple[Answer, ...]) -> None:
    with serving(*answers) as (_, client), pytest.raises(ApiError):
        may_read(client, "t", "/metrics", 10)
