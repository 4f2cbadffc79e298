"""The router's pods, and what leads to them: every number is the plan's, and nothing else changes."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.planning.report import Plan
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import (
    Autoscaling,
    ClusterTerms,
    Deployment,
    NetworkRules,
    RouterOptions,
    SecretKey,
    ServingOptions,
)
from shardwright.rendering.labels import leader_selector
from shardwright.rendering.pod import start_budget
from shardwright.rendering.render import render
from shardwright.rendering.router_pods import arguments, balance_threshold, router_selector
from tests.support.builders_deployment import a_deployment, a_plan

ROUTER = RouterOptions(account="shardwright-router", image="registry.internal/router:1", replicas=2)
SAYS_TOKENS = ServingOptions(gives_tokens=True)
KEYED = replace(SAYS_TOKENS, api_key=SecretKey(name="clients", key="key"))
CLIENTS = {"podSelector": {"matchLabels": {"app": "web"}}}
MONITORING = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}


def routed(**changes: Any) -> Deployment:
    return a_deployment(**({"router": ROUTER, "serving": SAYS_TOKENS} | changes))


def running(requests: int) -> Plan:
    plan = a_plan()
    return replace(plan, performance=replace(plan.performance, running_requests=requests))


def pod_of(deployment: Deployment) -> dict[str, Any]:
    [item] = of_kind(render(a_plan(), deployment).objects, "Deployment")
    return dict(item["spec"]["template"]["spec"])


@pytest.mark.parametrize(("requests", "apart"), [(1, 8), (32, 8), (33, 9), (256, 64)])
def test_a_replica_may_be_ahead_by_a_quarter_of_its_planned_requests(
    requests: int, apart: int
) -> None:
    assert balance_threshold(running(requests)) == apart


def test_the_router_is_told_the_plan_and_only_of_the_leaders_of_its_model() -> None:
    base = routed().base

    assert list(arguments(running(64), routed())) == [
        *("--host", "0.0.0.0", "--port", "8000"),  # noqa: S104
        *("--prometheus-host", "0.0.0.0", "--prometheus-port", "29000"),  # noqa: S104
        *("--service-discovery", "--service-discovery-port", "8000"),
        *("--service-discovery-namespace", "models"),
        *("--selector", f"shardwright.io/model={base}", "apps.kubernetes.io/pod-index=0"),
        *("--policy", "cache_aware"),
        *("--balance-abs-threshold", "16", "--balance-rel-threshold", "1.5"),
        *("--retry-max-retries", "1"),
        *("--health-check-interval-secs", "5", "--health-failure-threshold", "2"),
    ]


def test_engines_give_tokens_to_a_router_and_to_nobody_else() -> None:
    for deployment, told in ((routed(), True), (a_deployment(), False)):
        for item in of_kind(render(a_plan(), deployment).objects, "StatefulSet"):
            [engine] = item["spec"]["template"]["spec"]["containers"]
            assert ("--enable-scale-out" in engine["args"]) is told


def test_a_router_asks_for_the_key_that_engines_ask_for() -> None:
    [container] = pod_of(routed(serving=KEYED))["containers"]
    [open_to_all] = pod_of(routed())["containers"]

    key = {"secretKeyRef": {"name": "clients", "key": "key"}}
    assert container["env"] == [{"name": "VLLM_API_KEY", "valueFrom": key}]
    assert open_to_all["env"] == []


def scaled(least: int, **changes: Any) -> Deployment:
    scaling = Autoscaling(least=least, most=4, idle_seconds=60, prometheus="http://prometheus")
    return routed(autoscaling=scaling, **changes)


def test_a_router_whose_model_may_sleep_holds_a_request_for_as_long_as_a_start_may_take() -> None:
    told = list(arguments(running(64), scaled(0)))
    awake = list(arguments(running(64), scaled(1)))

    seconds = start_budget(running(64), scaled(0)).load_seconds
    at = told.index("--retry-max-retries")
    assert told[at : at + 6] == [
        *("--retry-max-retries", str(seconds)),
        *("--retry-initial-backoff-ms", "1000", "--retry-max-backoff-ms", "1000"),
    ]
    assert awake == list(arguments(running(64), routed()))


def test_only_a_router_lets_the_last_group_go_and_starts_one_by_what_it_holds() -> None:
    def asked(deployment: Deployment) -> tuple[int, list[str]]:
        [item] = of_kind(render(a_plan(), deployment).objects, "ScaledObject")
        spec = item["spec"]
        return spec["minReplicaCount"], [one["metadata"]["query"] for one in spec["triggers"]]

    awake, [load] = asked(scaled(1))
    asleep, [of_groups, of_router] = asked(scaled(0))
    of = '{namespace="models", name="llama-405b"}'
    known = f"max(vllm_router_active_workers{of})"
    assert (awake, asleep, of_groups) == (1, 0, f"{load} or {known} == 0")
    met = f'{{error_type="no_available_workers", {of[1:]}[120s]'
    held = f"sum(increase(vllm_router_request_errors_total{met}))"
    assert of_router == f"{held} > bool 0 or {known} * 0"
    assert asked(scaled(0, router=None)) == (1, [load])


def test_the_service_leads_to_the_groups_while_the_router_does_not_lead() -> None:
    waiting = routed(router=replace(ROUTER, leads=False))

    found = {
        item["metadata"]["name"]: item["spec"]["selector"]
        for item in of_kind(render(a_plan(), waiting).objects, "Service")
    }

    assert found[routed().base] == leader_selector(routed().base)


def test_pods_of_the_router_are_no_pods_of_the_model_and_restricted() -> None:
    [item] = of_kind(render(a_plan(), routed()).objects, "Deployment")
    pod = pod_of(routed())
    [container] = pod["containers"]

    assert "shardwright.io/model" not in item["spec"]["template"]["metadata"]["labels"]
    assert item["spec"]["replicas"] == 2
    assert (pod["serviceAccountName"], container["image"]) == (ROUTER.account, ROUTER.image)
    assert pod["securityContext"]["runAsNonRoot"]
    leaders = ",".join(f"{name}={value}" for name, value in leader_selector(routed().base).items())
    asked = ["python", "/etc/shardwright/router.py", "ready", "29000", leaders]
    assert container["readinessProbe"]["exec"]["command"] == asked
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def policies_under(rules: NetworkRules) -> dict[str, Any]:
    """The policies' specs, by what follows the base in their names."""
    deployment = routed(cluster=ClusterTerms(network_rules=rules))
    return {
        item["metadata"]["name"].removeprefix(deployment.base): item["spec"]
        for item in of_kind(render(a_plan(), deployment).objects, "NetworkPolicy")
    }


@pytest.mark.parametrize(
    ("rules", "admitted"),
    [
        (NetworkRules(), [{"podSelector": {}}]),
        (NetworkRules(metrics=(MONITORING,)), [{"podSelector": {}}, MONITORING]),
        (NetworkRules(clients=(CLIENTS,), metrics=(MONITORING,)), [CLIENTS, MONITORING]),
    ],
    ids=["nobody is named", "who reads metrics is", "clients are"],
)
def test_clients_reach_the_router_as_they_reach_engines_and_engines_admit_it_beside_them(
    rules: NetworkRules, admitted: list[dict[str, Any]]
) -> None:
    found = policies_under(rules)

    router = {"podSelector": {"matchLabels": router_selector(routed().base)}}
    assert found["-network"]["ingress"][1]["from"] == [*admitted, router]
    ports = [{"protocol": "TCP", "port": port} for port in (8000, 29000)]
    assert found["-router-network"]["ingress"] == [{"ports": ports, "from": admitted}]


@pytest.mark.parametrize("egress", [None, (), (CLIENTS,)])
def test_a_router_reaches_what_its_model_reaches(egress: tuple[Any, ...] | None) -> None:
    found = policies_under(NetworkRules(egress=egress))

    assert found["-router-network"]["egress"] == found["-network"]["egress"]
    assert found["-router-network"]["policyTypes"] == ["Ingress", "Egress"]


def test_a_pool_has_the_leaders_and_leaves_everything_else_as_it_is() -> None:
    plain = render(a_plan(), a_deployment()).objects
    pooled = render(a_plan(), a_deployment(picker=("epp", 9003))).objects

    [pool] = of_kind(pooled, "InferencePool")
    assert [item for item in pooled if item is not pool] == list(plain)
    assert pool["spec"] == {
        "selector": {"matchLabels": leader_selector(a_deployment().base)},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": "epp", "port": {"number": 9003}, "failureMode": "FailOpen"},
    }
