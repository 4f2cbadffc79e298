"""Two installations on one cluster, with the rights that the chart gives them: each has its
namespaces and its nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shardwright.cli.main import main
from tests.harness.api import Api, ApiError
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.builders_chart import CHART, SYSTEM
from tests.support.models import LARGE, Models
from tests.support.operator import OperatorProcess, operator_of

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
NODE_SET = "shardwright.io/node-set"
CLAIMS = (
    "shardwright-nodes-a",
    "shardwright-namespaces",
    "shardwright-namespace-team-a",
    "shardwright-namespace-team-d",
)
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
OF_A = ("watchNamespaces={team-a,team-d}", "nodeSet=a")
OF_B = (
    "watchNamespaces={team-b}",
    "nodeSet=b",
    "clusterPods=false",
    "crds.enabled=false",
    "rbac.aggregate=false",
)
CRD = "CustomResourceDefinition"
REFUSED = {
    "all namespaces, where some are watched": (
        (),
        "installation shardwright-system/shardwright is there, too: name the namespaces",
    ),
    "the same nodes": (
        ("watchNamespaces={team-b}", "nodeSet=a"),
        "installation shardwright-system/shardwright plans on the same nodes",
    ),
    "the same namespace": (
        ("watchNamespaces={team-a}", *OF_B[1:]),
        (
            "installation shardwright-system/shardwright watches namespace team-a: have each watch "
            "its own"
        ),
    ),
    "the same CRD": (
        (*OF_B[:2], "crds.enabled=true"),
        f'{CRD} "shardedmodels.shardwright.io" in namespace "" exists and cannot',
    ),
}


def _install(
    cluster: ControlPlane, release: str, values: tuple[str, ...], *, check: bool = True
) -> str:
    flags = [word for value in values for word in ("--set", value)]
    return cluster.helm(
        "install", release, str(CHART), "--namespace", SYSTEM, *NAMED, *flags, check=check
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """A control plane of its own with an installation for team-a and team-d, on nodes of set a."""
    with ControlPlane.start() as running:
        for name in (SYSTEM, "team-a", "team-b", "team-d"):
            running.create_namespace(name)
        _install(running, "shardwright", OF_A)
        yield running


@pytest.fixture(scope="module")
def second(cluster: ControlPlane) -> ControlPlane:
    """The same with an installation for team-b, which sees no pods but those of team-b."""
    _install(cluster, "b", OF_B)
    return cluster


@pytest.fixture(scope="module")
def nodes(second: ControlPlane) -> Iterator[Fleet]:
    """A node for each."""
    fleet = Fleet(second)
    for name in ("a", "b"):
        (node,) = fleet(H100, 1, prefix=f"{name}-")
        second.kubectl("label", "node", node, f"{NODE_SET}={name}")
    yield fleet
    fleet.delete()


@pytest.fixture(scope="module")
def operators(
    second: ControlPlane, nodes: Fleet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, OperatorProcess]]:
    """Both at work."""
    folder, running = tmp_path_factory.mktemp("settings"), nodes.names
    assert len(running) == 2
    with (
        operator_of(second, folder, "shardwright") as of_a,
        operator_of(second, folder, "shardwright-b") as of_b,
    ):
        yield {"a": of_a, "b": of_b}


@pytest.mark.parametrize("what", REFUSED)
def test_helm_says_why_a_second_installation_is_refused(cluster: ControlPlane, what: str) -> None:
    values, said = REFUSED[what]

    assert said in _install(cluster, "c", values, check=False)


def test_each_plans_for_its_namespace_on_its_nodes_and_for_no_other(
    second: ControlPlane, operators: dict[str, OperatorProcess], nodes: Fleet
) -> None:
    """No request is refused for want of a right, and none is about a namespace of the other."""
    a, b = Models(second, "team-a"), Models(second, "team-b")
    others = second.create_namespace("team-c")
    Models(second, others).create("nobodys")
    assert all(operator.running() for operator in operators.values())
    for models in (a, b):
        models.create("small")
        models.wait_ready("small")
        models.create("more", LARGE)

    # Each wants 16 GPUs, and there are 16.
    assert [{pod["spec"]["nodeName"] for pod in models.pods()} for models in (a, b)] == [
        {name} for name in nodes.names
    ]
    for models in (a, b):
        said = models.wait_reason("more", "NothingFits")["message"]
        assert "needs 2 nodes" in said
        assert "1 there, 1 of them not free, 2 short" in said
    assert Models(second, others).get("ShardedModel", "nobodys")["status"] == {
        "observedGeneration": -1
    }
    assert a.condition("small", "Planned")["reason"] == "Planned"
    assert b.condition("small", "Planned")["reason"] == "FreeCapacityUnknown"
    assert (
        "only pods of watched namespaces can be listed"
        in b.condition("small", "Planned")["message"]
    )
    events = {account: _of_account(second, account) for account in ("shardwright", "shardwright-b")}
    assert [said for account in events for said in _refused(second, account)] == []
    assert not any("/team-b/" in uri for uri, _ in events["shardwright"])
    assert not any(
        "/team-a/" in uri or re.match(r"/api/v1/pods", uri) for uri, _ in events["shardwright-b"]
    )


def _refused(cluster: ControlPlane, account: str) -> list[str]:
    """Return what was said of requests for which a right was wanting."""
    user = f"system:serviceaccount:{SYSTEM}:{account}"
    said = [
        event["responseStatus"].get("message", "")
        for event in cluster.audit_events(user)
        if event.get("responseStatus", {}).get("code") == 403
    ]
    # Just after the CRD came the API server does not know yet who may own objects.
    return [message for message in said if "RESTMapping" not in message]


def _of_account(cluster: ControlPlane, account: str) -> set[tuple[str, int]]:
    user = f"system:serviceaccount:{SYSTEM}:{account}"
    return {
        (event["requestURI"], int((event.get("responseStatus") or {}).get("code", 0)))
        for event in cluster.audit_events(user)
    }


@pytest.mark.parametrize("path", ["configmaps", "pods", "secrets"])
def test_the_token_of_one_is_worth_nothing_in_the_namespace_of_the_other(
    second: ControlPlane, path: str
) -> None:
    account = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/shardwright/token"
    token = second.api.create(account, {"spec": {"expirationSeconds": 3600}})["status"]["token"]

    with (
        closing(Api(second.url, second.ca_file, token)) as api,
        pytest.raises(
            ApiError,
            match=f'cannot create resource "{path}" in API group "" in the namespace "team-b"',
        ),
    ):
        api.create(f"/api/v1/namespaces/team-b/{path}?dryRun=All", {"metadata": {"name": "mine"}})


def test_a_namespace_that_goes_holds_up_no_other(second: ControlPlane) -> None:
    """Its Role is gone with it; an operator that starts then serves the other namespaces all the
    same.
    """
    words = ("--watch-namespaces=gone,team-a", "--lease-name=apart", "--no-leader-elect")
    with OperatorProcess(second, *words, identity="operator-apart") as running:
        assert (
            "namespace gone is not watched: shardedmodels.shardwright.io is forbidden"
            in running.logs()
        )


def _diagnosed(
    cluster: ControlPlane, capsys: pytest.CaptureFixture[str], check: str
) -> list[tuple[str, list[str]]]:
    """Return what the doctor finds in a check, and of what."""
    main(["doctor", "--kubeconfig", str(cluster.kubeconfig), "-o", "json"])
    (found,) = (
        one for one in json.loads(capsys.readouterr().out)["checks"] if one["check"] == check
    )
    return [(finding["reason"], finding["objects"]) for finding in found["findings"]]


def test_whoever_begins_to_lead_or_starts_without_its_claim_ends_and_does_not_come_back(
    second: ControlPlane,
    operators: dict[str, OperatorProcess],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As where the manifests of another installation are applied without Helm; the doctor says how
    the two stand.
    """
    leader, claim = operators["a"], CLAIMS[0]
    assert _diagnosed(second, capsys, "Installations") == []
    with operator_of(second, tmp_path, "shardwright", "standby") as standby:
        _give(second, claim, "other/installation")
        assert _diagnosed(second, capsys, "Installations") == [("ClaimNotHeld", list(CLAIMS))]
        assert leader.stop() == 0
        wait_for(lambda: standby.running() is None, 30, "the one that leads to end")
        leader.launch()
        wait_for(lambda: leader.running() is None, 90, "the one that starts to end")
        assert [
            json.loads(line)["message"].partition(";")[0]
            for ended in (standby, leader)
            for line in ended.logs().splitlines()
            if '"critical"' in line
        ] == [
            (
                "ending, for two installations must share neither nodes nor namespaces: nodes with "
                "the label shardwright.io/node-set=a are not for shardwright-system/shardwright: "
                f"ClusterRole {claim} says other/installation"
            )
        ] * 2
    assert operators["b"].running() is not None
    _give(second, claim, f"{SYSTEM}/shardwright")
    leader.start()


def _give(cluster: ControlPlane, claim: str, installation: str) -> None:
    cluster.api.patch(
        f"{CLUSTER_ROLES}/{claim}",
        {"metadata": {"annotations": {"shardwright.io/installation": installation}}},
    )
