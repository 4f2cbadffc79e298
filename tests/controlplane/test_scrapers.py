"""Who may read the operator's metrics, asked of a real API server with the rights that the chart
gives for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from shardwright.cluster.access import open_access
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.permissions import AUDIENCE, may_read
from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for
from tests.support.builders_chart import named, render

pytestmark = pytest.mark.controlplane

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def bound(
    control_plane: ControlPlane, namespace: str, account: str, rules: list[dict[str, object]]
) -> None:
    """Make a service account that has these rights everywhere."""
    name = f"{namespace}-{account}"
    control_plane.api.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": account}}
    )
    control_plane.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    control_plane.api.create(
        f"{RBAC}/clusterrolebindings",
        {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]},
    )


def token(control_plane: ControlPlane, namespace: str, account: str, *audiences: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    made: str = control_plane.api.create(path, {"spec": {"audiences": list(audiences)}})["status"][
        "token"
    ]
    return made


@pytest.fixture
def client(control_plane: ControlPlane, namespace: str) -> Iterator[Client]:
    """A client with the two rights that the chart adds for this, and no others, that does not
    lead.
    """
    role = named(
        render(control_plane, "--set=metrics.authentication=TokenReview"),
        "ClusterRole",
        "shardwright",
    )
    rules = [
        rule
        for rule in role["rules"]
        if {"tokenreviews", "subjectaccessreviews"} & set(rule["resources"])
    ]
    bound(control_plane, namespace, "operator", rules)
    found = Client(
        open_access(control_plane.kubeconfig_for(namespace, "operator")), may_write=lambda: False
    )
    yield found
    found.close()


def test_a_token_for_the_metrics_with_the_right_to_read_them_is_admitted_and_no_other_is(
    control_plane: ControlPlane, namespace: str, client: Client
) -> None:
    bound(
        control_plane,
        namespace,
        "prometheus",
        [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    )
    bound(control_plane, namespace, "stranger", [])
    good = token(control_plane, namespace, "prometheus", AUDIENCE)

    def said(text: str) -> HTTPStatus:
        return may_read(client, text, "/metrics", 10)

    def admitted() -> bool:
        try:
            return said(good) is HTTPStatus.OK
        except ApiError:  # of new rights the API server hears a moment later
            return False

    wait_for(admitted, 30, "the rights to be in force")
    assert said(token(control_plane, namespace, "stranger", AUDIENCE)) is HTTPStatus.FORBIDDEN
    assert (
        said(token(control_plane, namespace, "prometheus", "somebody-else"))
        is HTTPStatus.UNAUTHORIZED
    )
    assert (
        said(token(control_plane, namespace, "prometheus")) is HTTPStatus.UNAUTHORIZED
    )  # one for the API server
    assert said(f"{good}x") is HTTPStatus.UNAUTHORIZED
    assert said("x") is HTTPStatus.UNAUTHORIZED
    assert may_read(client, good, "/other", 10) is HTTPStatus.FORBIDDEN
    with pytest.raises(ApiError):
        may_read(client, good, "/metrics", 0)
