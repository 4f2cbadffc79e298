"""The chart for some namespaces: rights there and no longer everywhere, and claims by which
installations know each other.
"""

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.support.builders_chart import CHART, GONE, NEW, SYSTEM, difference, named, read, render

SOME = "--set=watchNamespaces={models,others}"
ALL_PODS = {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}
CLASSES = {
    "apiGroups": ["scheduling.k8s.io"],
    "resources": ["priorityclasses"],
    "verbs": ["list", "watch"],
}
NAMESPACES = ("shardwright-namespace-models", "shardwright-namespace-others")
HELD = {
    "apiGroups": ["resource.k8s.io"],
    "resources": ["resourceclaims"],
    "verbs": ["list", "watch"],
}
DEVICES = {**HELD, "resources": ["resourceslices", "deviceclasses", "resourceclaims"]}
INSTALLATION = {"shardwright.io/installation": f"{SYSTEM}/shardwright"}


@pytest.fixture(scope="module")
def as_delivered(control_plane: ControlPlane) -> list[Manifest]:
    return render(control_plane)


@pytest.fixture(scope="module")
def some(control_plane: ControlPlane) -> list[Manifest]:
    return render(control_plane, SOME)


def test_of_all_namespaces_it_reads_nodes_pods_priorities_and_claims_and_writes_nothing(
    some: list[Manifest],
) -> None:
    claims = {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "resourceNames": [
            "shardwright-nodes",
            "shardwright-namespace-models",
            "shardwright-namespace-others",
            "shardwright-namespaces",
        ],
        "verbs": ["list"],
    }

    assert named(some, "ClusterRole", "shardwright")["rules"] == [
        ALL_PODS,
        CLASSES,
        claims,
        DEVICES,
    ]


def test_in_each_namespace_it_has_the_rights_that_it_had_everywhere(
    as_delivered: list[Manifest], some: list[Manifest]
) -> None:
    roles = [
        item
        for item in some
        if item["kind"] == "Role" and item["metadata"]["name"] == "shardwright-operator"
    ]
    bindings = [
        item
        for item in some
        if item["kind"] == "RoleBinding" and item["metadata"]["name"] == "shardwright-operator"
    ]
    pods = {**ALL_PODS, "resources": ["pods"]}
    (rules, *_) = (role["rules"] for role in roles)

    assert [role["metadata"]["namespace"] for role in roles] == ["models", "others"]
    assert [binding["metadata"]["namespace"] for binding in bindings] == ["models", "others"]
    assert all(
        binding["subjects"] == named(some, "ClusterRoleBinding")["subjects"] for binding in bindings
    )
    assert all(role["rules"] == rules for role in roles)
    assert [rule for rule in rules if rule not in (pods, HELD)] == named(
        as_delivered, "ClusterRole", "shardwright"
    )["rules"][4:]


def test_without_the_pods_of_all_it_sees_those_of_its_namespaces(
    some: list[Manifest], control_plane: ControlPlane
) -> None:
    blind = render(control_plane, SOME, "--set=clusterPods=false")

    assert difference(some, blind) == {
        "ClusterRole/shardwright rules.0.resources.1": GONE,
        "ClusterRole/shardwright rules.3.resources.2": GONE,
        "Role/shardwright-leader rules.2.apiGroups.0": "",  # its own pod
        "Role/shardwright-leader rules.2.resources.0": "pods",
        "Role/shardwright-leader rules.2.verbs.0": "get",
    }


def test_the_operator_is_told_its_namespaces_and_has_no_claim_on_all(
    as_delivered: list[Manifest], some: list[Manifest]
) -> None:
    changed = difference(as_delivered, some)
    arguments = {path: value for path, value in changed.items() if path.startswith("Deployment/")}

    assert arguments == {
        "Deployment/shardwright spec.template.spec.containers.0.args.22": "--watch-namespaces=models,others"
    }
    assert {
        path
        for path, value in changed.items()
        if value is GONE and path.startswith("ClusterRole/shardwright-")
    } == {"ClusterRole/shardwright-namespaces"}
    assert {path for path, value in changed.items() if value is NEW} == {
        "Role/shardwright-operator",
        "RoleBinding/shardwright-operator",
        *(f"ClusterRole/{name}" for name in NAMESPACES),
    }


@pytest.mark.parametrize(
    ("flags", "claims"),
    [
        ((), {"shardwright-nodes", "shardwright-namespaces"}),
        ((SOME,), {"shardwright-nodes", *NAMESPACES}),
        ((SOME, "--set=nodeSet=team"), {"shardwright-nodes-team", *NAMESPACES}),
    ],
)
def test_a_claim_says_whose_it_is_and_grants_nothing(
    control_plane: ControlPlane, flags: tuple[str, ...], claims: set[str]
) -> None:
    objects = [
        item
        for item in render(control_plane, *flags)
        if item["metadata"].get("annotations") == INSTALLATION
    ]
    told = named(render(control_plane, *flags), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ][0]["args"]

    assert {item["metadata"]["name"] for item in objects} == claims
    assert [(item["kind"], item["rules"]) for item in objects] == [("ClusterRole", [])] * len(
        claims
    )
    assert f"--installation={SYSTEM}/shardwright" in told


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "watchNamespaces={kube-system}",
            (
                "watchNamespaces: the operator writes nothing in kube-system, a namespace of the "
                "system"
            ),
        ),
        (
            "watchNamespaces={default}",
            (
                "watchNamespaces: the operator writes nothing in default, a namespace of the "
                "system "
                "or its own"
            ),
        ),
        (
            "clusterPods=false",
            (
                "clusterPods is false and watchNamespaces is empty: an operator of all namespaces "
                "sees all pods"
            ),
        ),
    ],
)
def test_what_cannot_work_is_refused(control_plane: ControlPlane, flags: str, message: str) -> None:
    assert message in control_plane.helm(
        "template", "shardwright", str(CHART), *NAMED, "--set", flags, check=False
    )


@pytest.mark.parametrize("flags", [(), (SOME,)])
def test_helm_test_asks_for_the_rights_in_the_namespaces_that_are_watched(
    control_plane: ControlPlane, flags: tuple[str, ...]
) -> None:
    only = ("--show-only", "templates/tests/installed.yaml")
    (pod,) = read(control_plane.helm("template", "shardwright", str(CHART), *only, *NAMED, *flags))

    watched = f"--watch-namespaces={'models,others' if flags else ''}"
    assert watched in pod["spec"]["containers"][0]["args"]
