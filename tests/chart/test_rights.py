"""What the chart lets the operator do: exactly this. That it uses all of it, and no more, is in the
audit log of the suite.
"""

import pytest

from shardwright.api.settings import read_settings
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.support.builders_chart import POLICIES, SYSTEM, WARNS, named, render

READS = {"get", "list", "watch"}
OWNED = {"get", "list", "watch", "create", "patch", "delete"}


@pytest.fixture(scope="module")
def objects(control_plane: ControlPlane) -> list[Manifest]:
    return render(control_plane)


def test_the_operator_has_exactly_these_rights(objects: list[Manifest]) -> None:
    assert _rights(named(objects, "ClusterRole", "shardwright")) == {
        "shardwright.io/shardedmodels": {"get", "list", "watch"},
        "shardwright.io/shardedmodels/status": {"patch"},
        "shardwright.io/shardedmodels/finalizers": {"update"},
        "nodes": {"get", "list", "watch"},
        "pods": {"get", "list", "watch", "create", "delete"},
        "services": OWNED,
        "configmaps": OWNED,
        "secrets": {"create"},
        "apps/statefulsets": OWNED,
        "apps/controllerrevisions": {"get", "create", "delete"},
        "batch/jobs": {"get", "create"},
        "policy/poddisruptionbudgets": OWNED,
        "networking.k8s.io/networkpolicies": OWNED,
        "resource.nvidia.com/computedomains": OWNED,
        "resource.k8s.io/resourceclaimtemplates": OWNED,
        "resource.k8s.io/resourceclaims": {"list", "watch"},
        "resource.k8s.io/resourceslices": {"list", "watch"},
        "resource.k8s.io/deviceclasses": {"list", "watch"},
        "scheduling.k8s.io/priorityclasses": {"list", "watch"},
        "resourcequotas": {"list", "watch"},
        "limitranges": {"list", "watch"},
        "events.k8s.io/events": {"create"},
        "rbac.authorization.k8s.io/clusterroles": {"list"},
    }


def test_each_right_to_write_is_bound_by_a_policy(control_plane: ControlPlane) -> None:
    """But for what is about ShardedModels themselves, and for the one Lease, whose name the right
    says.
    """
    objects = render(
        control_plane,
        "--set=schedulers={Native,Coscheduling}",
        "--set=prometheus.url=http://prometheus",
        "--set=router.image=registry.internal/vllm-router:0.1.17",
        "--set=inferencePools.enabled=true",
    )
    roles = [named(objects, "ClusterRole", "shardwright"), named(objects, "Role")]
    granted = {
        (name, verb)
        for role in roles
        for name, verbs in _rights(role).items()
        for verb in verbs - READS
    }

    unbound = {
        (name, verb)
        for name, verb in granted - _bound(objects)
        if not name.startswith("shardwright.io/")
    }
    assert unbound == {("coordination.k8s.io/leases", "update")}


def test_policies_are_about_the_operator_alone_and_refuse_what_they_cannot_judge(
    objects: list[Manifest],
) -> None:
    policies = [
        item["spec"]
        for item in objects
        if item["kind"] == "ValidatingAdmissionPolicy" and item["metadata"]["name"] != WARNS
    ]
    of_the_operator = f"request.userInfo.username == 'system:serviceaccount:{SYSTEM}:shardwright'"

    assert {policy["failurePolicy"] for policy in policies} == {"Fail"}
    assert [policy["matchConditions"] for policy in policies] == [
        [{"name": "of-the-operator", "expression": of_the_operator}] for _ in policies
    ]
    assert {
        item["spec"]["policyName"]: item["spec"]["validationActions"]
        for item in objects
        if item["kind"] == "ValidatingAdmissionPolicyBinding"
    } == {WARNS: ["Warn"]} | {name: ["Deny"] for name in POLICIES}


def test_each_scheduler_adds_the_right_to_its_groups_and_no_other(
    control_plane: ControlPlane,
) -> None:
    plain = _rights(named(render(control_plane), "ClusterRole", "shardwright"))
    groups = {"Native": "scheduling.k8s.io", "Coscheduling": "scheduling.x-k8s.io"}

    for name, group in groups.items():
        role = named(
            render(control_plane, f"--set=schedulers={{{name}}}"), "ClusterRole", "shardwright"
        )
        assert _rights(role) == plain | {f"{group}/podgroups": OWNED}


def test_without_dra_it_has_no_right_on_its_kinds(control_plane: ControlPlane) -> None:
    plain = _rights(named(render(control_plane), "ClusterRole", "shardwright"))
    without = named(render(control_plane, "--set=dra.enabled=false"), "ClusterRole", "shardwright")

    assert _rights(without) == {
        name: verbs for name, verbs in plain.items() if not name.startswith("resource.k8s.io/")
    }


def test_where_prometheus_is_named_it_writes_scaled_objects_and_a_number_and_no_more(
    control_plane: ControlPlane,
) -> None:
    plain = _rights(named(render(control_plane), "ClusterRole", "shardwright"))
    url = "http://prometheus.monitoring:9090"
    objects = render(control_plane, f"--set=prometheus.url={url}")

    assert _rights(named(objects, "ClusterRole", "shardwright")) == plain | {
        "keda.sh/scaledobjects": OWNED,
        "shardwright.io/shardedmodels/scale": {"patch"},
    }
    (settings,) = (item for item in objects if item["metadata"]["name"] == "shardwright-settings")
    assert read_settings(settings["data"]["settings.json"]).prometheus_url == url
    (*_, asked) = named(objects, "ValidatingAdmissionPolicy", "-scaledobjects")["spec"][
        "validations"
    ]
    assert f"t.metadata.serverAddress == '{url}'" in asked["expression"]


def test_where_a_router_is_named_it_writes_routers_of_that_image_and_so_with_pools(
    control_plane: ControlPlane,
) -> None:
    plain = _rights(named(render(control_plane), "ClusterRole", "shardwright"))
    image = "registry.internal/vllm-router:0.1.17"
    routed = render(control_plane, f"--set=router.image={image}")
    pooled = render(control_plane, "--set=inferencePools.enabled=true")

    assert _rights(named(routed, "ClusterRole", "shardwright")) == plain | {
        "apps/deployments": OWNED
    }
    assert f"c.image == '{image}'" in str(named(routed, "ValidatingAdmissionPolicy", "-routers"))
    (settings,) = (item for item in routed if item["metadata"]["name"] == "shardwright-settings")
    assert read_settings(settings["data"]["settings.json"]).router.image == image
    assert _rights(named(pooled, "ClusterRole", "shardwright")) == plain | {
        "inference.networking.k8s.io/inferencepools": OWNED
    }


def test_who_scrapes_is_asked_for_with_two_rights_more_and_no_other(
    control_plane: ControlPlane,
) -> None:
    plain = _rights(named(render(control_plane), "ClusterRole", "shardwright"))
    asking = named(
        render(control_plane, "--set=metrics.authentication=TokenReview"),
        "ClusterRole",
        "shardwright",
    )

    reviews = {
        "authentication.k8s.io/tokenreviews": {"create"},
        "authorization.k8s.io/subjectaccessreviews": {"create"},
    }
    assert _rights(asking) == plain | reviews


def test_the_lease_is_the_only_one_that_it_may_renew(objects: list[Manifest]) -> None:
    role = named(objects, "Role")

    assert role["metadata"]["namespace"] == SYSTEM
    assert role["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["shardwright"],
            "verbs": ["get", "update"],
        },
    ]


def test_only_the_operators_service_account_gets_them(objects: list[Manifest]) -> None:
    account = [{"kind": "ServiceAccount", "name": "shardwright", "namespace": SYSTEM}]
    api = "rbac.authorization.k8s.io"

    assert [
        (item["roleRef"], item["subjects"])
        for item in objects
        if item["kind"].endswith("RoleBinding")
    ] == [
        ({"apiGroup": api, "kind": "ClusterRole", "name": "shardwright"}, account),
        ({"apiGroup": api, "kind": "Role", "name": "shardwright-leader"}, account),
    ]


def test_no_role_reaches_for_more(objects: list[Manifest]) -> None:
    rules = [rule for item in objects if item["kind"].endswith("Role") for rule in item["rules"]]

    assert {
        part
        for rule in rules
        for key in ("apiGroups", "resources", "verbs")
        for part in rule[key]
        if "*" in part
    } == set()
    assert {verb for rule in rules for verb in rule["verbs"]} & {
        "escalate",
        "bind",
        "impersonate",
    } == set()
    assert {name for rule in rules for name in rule["resources"]} & {
        "pods/exec",
        "serviceaccounts/token",
    } == set()
    assert {verb for rule in rules if "secrets" in rule["resources"] for verb in rule["verbs"]} == {
        "create"
    }
    assert [rule for rule in rules if "nonResourceURLs" in rule] == []


def test_viewers_see_and_editors_write_sharded_models(objects: list[Manifest]) -> None:
    view, edit = (named(objects, "ClusterRole", suffix) for suffix in ("-view", "-edit"))

    assert _aggregated(view) == {"view", "edit", "admin"}
    assert _rights(view) == {
        "shardwright.io/shardedmodels": {"get", "list", "watch"},
        "shardwright.io/shardedmodels/status": {"get"},
        "shardwright.io/shardedmodels/scale": {"get"},
    }
    assert _aggregated(edit) == {"edit", "admin"}
    assert _rights(edit) == {
        "shardwright.io/shardedmodels": {"create", "update", "patch", "delete", "deletecollection"},
        "shardwright.io/shardedmodels/scale": {"update", "patch"},
    }


def _rights(role: Manifest) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault(f"{group}/{resource}".removeprefix("/"), set()).update(
                    rule["verbs"]
                )
    return found


def _bound(objects: list[Manifest]) -> set[tuple[str, str]]:
    """Return which writes some policy looks at, by what its right is called."""
    verbs = {"CREATE": ["create"], "UPDATE": ["update", "patch"], "DELETE": ["delete"]}
    rules = [
        rule
        for item in objects
        if item["kind"] == "ValidatingAdmissionPolicy"
        for rule in item["spec"]["matchConstraints"]["resourceRules"]
    ]
    return {
        (f"{group}/{resource}".removeprefix("/"), verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
        for verb in verbs[operation]
    }


def _aggregated(role: Manifest) -> set[str]:
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    return {
        key.removeprefix(prefix)
        for key, value in role["metadata"]["labels"].items()
        if key.startswith(prefix) and value == "true"
    }
