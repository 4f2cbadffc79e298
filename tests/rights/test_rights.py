"""What the chart grants is what the operator uses: the requests of all control plane tests against
the ClusterRole.

Run after them, over what they have kept (make test does both).
"""

from pathlib import Path

import pytest

from tests.harness.controlplane import ControlPlane
from tests.support import rights
from tests.support.operator import SYSTEM
from tests.support.requests_kept import Request, Run, kept
from tests.support.rights import Right

MODULES = Path(__file__).parents[1] / "controlplane"
# The API server grants these to every authenticated user.
FOR_EVERYBODY = {("create", "authorization.k8s.io/selfsubjectaccessreviews")}
# Admission asks for this one when an owner reference blocks deletion
# (OwnerReferencesPermissionEnforcement): no request shows it,
# without it each create of a child is refused.
ASKED_BY_ADMISSION = {("update", "shardwright.io/shardedmodels/finalizers")}


@pytest.fixture(scope="module")
def run() -> Run:
    """The last run, which must have been one of the whole folder."""
    last = kept()
    assert last.modules >= {path.name for path in MODULES.glob("test_*.py")}, (
        "only a part of the control plane tests was run"
    )
    return last


@pytest.fixture(scope="module")
def granted(control_plane: ControlPlane) -> set[Right]:
    return rights.granted(control_plane)


def test_no_request_of_the_operator_was_forbidden(run: Run) -> None:
    taken = _used(run) | FOR_EVERYBODY
    refused = {
        request
        for request in run.requests
        if request.code == 403 and not _before_rights_are_known(request, taken)
    }

    assert sorted(request.uri for request in refused if not _whatever_the_rights(request)) == []


def test_the_operator_used_only_what_the_chart_grants(run: Run, granted: set[Right]) -> None:
    assert sorted(_used(run) - granted) == []


def test_the_chart_grants_nothing_that_was_never_used(run: Run, granted: set[Right]) -> None:
    assert granted - _used(run) == ASKED_BY_ADMISSION


def _whatever_the_rights(request: Request) -> bool:
    """Nobody could create it: tests delete their namespaces with models in them, one has a quota,
    and just after the CRD came the API server does not know yet who may own objects.
    """
    reasons = ("because it is being terminated", "exceeded quota", "cannot find RESTMapping")
    return any(reason in request.message for reason in reasons)


def _before_rights_are_known(request: Request, taken: set[Right]) -> bool:
    """An API server that has just started, as after a restore of etcd, knows no role for a moment.

    Only of what a ClusterRole or the operator's own namespace grants, and what it takes otherwise.
    """
    everywhere = "/namespaces/" not in request.uri or f"/namespaces/{SYSTEM}/" in request.uri
    return everywhere and (request.verb, request.resource) in taken


def _used(run: Run) -> set[Right]:
    found = {
        (request.verb, request.resource)
        for request in run.requests
        if request.resource and request.code != 403
    }
    return found - FOR_EVERYBODY
