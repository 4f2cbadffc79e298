"""What the chart grants is what the operator uses: the audit log of all control plane tests against the ClusterRole.

This module runs last in its folder. "Nothing left over" is only asked when the whole folder was collected.
"""

from pathlib import Path

import pytest
import yaml

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane

FOLDER = Path(__file__).parent
CHART = FOLDER.parent.parent / "charts" / "shardwright"
OPERATOR = "system:serviceaccount:shardwright-system:shardwright"
# The API server grants these to every authenticated user.
FOR_EVERYBODY = {("create", "authorization.k8s.io/selfsubjectaccessreviews")}
# Admission asks for this one when an owner reference blocks deletion (OwnerReferencesPermissionEnforcement): no request shows it,
# without it each create of a child is refused.
ASKED_BY_ADMISSION = {("update", "shardwright.io/shardedmodels/finalizers")}
Right = tuple[str, str]


def test_no_request_of_the_operator_was_forbidden(control_plane: ControlPlane) -> None:
    refused = [event for event in control_plane.audit_events() if _by_operator(event) and _code(event) == 403]

    assert [event["requestURI"] for event in refused if not _whatever_the_rights(event)] == []


def test_the_operator_used_only_what_the_chart_grants(control_plane: ControlPlane) -> None:
    assert sorted(_used(control_plane) - _granted(control_plane)) == []


def test_the_chart_grants_nothing_that_was_never_used(control_plane: ControlPlane, request: pytest.FixtureRequest) -> None:
    collected = {item.path.name for item in request.session.items}
    if not {path.name for path in FOLDER.glob("test_*.py")} <= collected:
        pytest.skip("only a part of the control plane tests was run")

    assert _granted(control_plane) - _used(control_plane) == ASKED_BY_ADMISSION


def _by_operator(event: Manifest) -> bool:
    return bool(event["user"]["username"] == OPERATOR)


def _code(event: Manifest) -> int:
    return int(event.get("responseStatus", {}).get("code", 0))


def _whatever_the_rights(event: Manifest) -> bool:
    """Nobody could create it: tests delete their namespaces with models in them, and one has a quota."""
    message = event["responseStatus"].get("message", "")
    return "because it is being terminated" in message or "exceeded quota" in message


def _used(control_plane: ControlPlane) -> set[Right]:
    found = set()
    for event in control_plane.audit_events():
        reference = event.get("objectRef")
        if _by_operator(event) and reference and _code(event) != 403:
            resource = "/".join(part for part in (reference.get("resource"), reference.get("subresource")) if part)
            found.add((event["verb"], "/".join(part for part in (reference.get("apiGroup"), resource) if part)))
    return found - FOR_EVERYBODY


def _granted(control_plane: ControlPlane) -> set[Right]:
    text = control_plane.helm("template", "shardwright", str(CHART), "--namespace", "shardwright-system")
    objects = [item for item in yaml.safe_load_all(text) if item]
    roles = [item for item in objects if item["kind"] in ("ClusterRole", "Role") and "-view" not in item["metadata"]["name"]]
    rules = [rule for role in roles if not role["metadata"]["name"].endswith("-edit") for rule in role["rules"]]
    return {
        (verb, "/".join(part for part in (group, resource) if part))
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
