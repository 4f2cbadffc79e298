"""Plans as pages: real tokens, real rights, and the numbers that ``explain -o json`` prints of the
same cluster.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from shardwright.cli.main import main
from shardwright.cluster.permissions import PLANS_AUDIENCE
from tests.controlplane.test_scrapers import bound, token
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.builders_chart import SYSTEM, named, render
from tests.support.builders_cli import Files, a_manifest
from tests.support.models import Models
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

RBAC = "/apis/rbac.authorization.k8s.io/v1"
READS = [
    {"apiGroups": ["shardwright.io"], "resources": ["shardedmodels"], "verbs": ["get", "list"]}
]


@pytest.fixture(scope="module")
def pages(chart: ControlPlane) -> Iterator[OperatorProcess]:
    """An operator that serves plans, under an account of its own with the rights that the chart
    gives for that.
    """
    asked = ("--set=metrics.authentication=TokenReview", "--set=plans.enabled=true")
    bound(
        chart, SYSTEM, "pages", named(render(chart, *asked), "ClusterRole", "shardwright")["rules"]
    )
    options = ("--no-leader-elect", "--metrics-authentication=TokenReview", "--plans")
    with OperatorProcess(chart, *options, identity="pages", account="pages") as running:
        yield running


@pytest.fixture
def model(
    pages: OperatorProcess, control_plane: ControlPlane, namespace: str, fleet: Fleet
) -> Iterator[dict[str, Any]]:
    """A model that is planned and shown, on a node of the test's own."""
    del pages
    fleet("SYNTH-h100-8x-eks-p5", 1, "plans")
    found = Models(control_plane, namespace)
    manifest = a_manifest("shown", mode="PlanOnly", parallelism={"tensor": 8})
    control_plane.api.create(
        f"/apis/shardwright.io/v1alpha1/namespaces/{namespace}/shardedmodels", manifest
    )
    yield manifest
    found.delete_all("ShardedModel")


def fetch(pages: OperatorProcess, path: str, bearer: str) -> tuple[int, str]:
    _, port = re.findall(r"listening on port (\d+) for probes, (\d+) for scrapes", pages.logs())[-1]
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if bearer:
        request.add_header("Authorization", f"Bearer {bearer}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _in_namespace(control_plane: ControlPlane, namespace: str, account: str) -> str:
    """Make an account that may read ShardedModels in one namespace alone, and return a token of it
    for the pages.
    """
    control_plane.api.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": account}}
    )
    control_plane.api.create(
        f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": account}, "rules": READS}
    )
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    binding = {"metadata": {"name": account}, "roleRef": role, "subjects": [subject]}
    control_plane.api.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    return token(control_plane, namespace, account, PLANS_AUDIENCE)


def test_a_page_is_shown_to_whom_its_namespace_is_and_says_what_explain_says(
    control_plane: ControlPlane,
    namespace: str,
    pages: OperatorProcess,
    model: dict[str, Any],
    tmp_path: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = _in_namespace(control_plane, namespace, "mine")
    other = f"{namespace}-other"
    control_plane.create_namespace(other)
    theirs = _in_namespace(control_plane, other, "theirs")
    path = f"/plans/{namespace}/shown"
    wait_for(lambda: fetch(pages, path, mine)[0] == 200, 30, "the plan, and the rights to see it")

    status, page = fetch(pages, path, mine)
    embedded = re.search(
        r'<script type="application/json" id="explanation">(.*?)</script>', page, re.DOTALL
    )
    assert embedded
    document = json.loads(embedded.group(1))
    manifest = Files(tmp_path).manifests(model)
    code = main(
        [
            "explain",
            "-f",
            manifest,
            "-n",
            namespace,
            "--kubeconfig",
            str(control_plane.kubeconfig),
            "-o",
            "json",
        ]
    )
    (explained,) = json.loads(capsys.readouterr().out)["items"]

    assert (status, code) == (200, 0)
    planned = {name: said for name, said in explained["plan"].items() if name != "without"}
    assert document["plan"] == planned
    assert document["request"] == explained["request"]
    # What else there is, what of a node others hold, and what an operator does not search for.
    apart = ("candidates", "nodes", "links", "unusable", "facts", "costly")
    assert _without(document["explanation"], apart) == _without(explained["explanation"], apart)

    assert f'href="/plans/{namespace}/shown"' in fetch(pages, "/plans", mine)[1]
    assert "shown" not in fetch(pages, "/plans", theirs)[1]
    assert fetch(pages, path, theirs) == (403, f"you may not get ShardedModels in {namespace}\n")
    assert fetch(pages, f"/plans/{namespace}", theirs)[0] == 403
    assert fetch(pages, f"/plans/{namespace}/none", mine)[0] == 404
    assert [
        fetch(pages, path, bearer)[0]
        for bearer in ("", "x", token(control_plane, namespace, "mine"))
    ] == [401, 401, 401]
    control_plane.api.delete(f"/api/v1/namespaces/{other}")


def _without(explanation: dict[str, Any], apart: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in explanation.items() if name not in apart}
