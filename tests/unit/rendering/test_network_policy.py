"""The NetworkPolicy of a model: what it opens, and what it leaves open."""

from typing import Any

import pytest

from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import NetworkRules, ObjectStore
from shardwright.rendering.render import render
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_small_plan,
    a_trtllm_deployment,
)
from tests.support.rendered import by_name

OURS = {"matchLabels": {"shardwright.io/model": "llama-405b"}}
MEMBERS = [{"podSelector": OURS}]
SERVING = [{"protocol": "TCP", "port": 8000}]
GATEWAY = {"podSelector": {"matchLabels": {"app": "gateway"}}}
MONITORING = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
STORE = {"to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "ports": [{"port": 443}]}


def spec_under(rules: NetworkRules) -> Any:
    (policy,) = of_kind(
        render(a_plan(), a_deployment(network_rules=rules)).objects, "NetworkPolicy"
    )
    return policy["spec"]


DNS = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
ELSEWHERE = {
    "to": [
        {"namespaceSelector": {}},
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}},
        {"ipBlock": {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::254/128"]}},
    ]
}


def test_as_delivered_clients_are_of_the_own_namespace_and_pods_reach_all_but_what_nodes_say() -> (
    None
):
    assert spec_under(NetworkRules()) == {
        "podSelector": OURS,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": MEMBERS}, {"ports": SERVING, "from": [{"podSelector": {}}]}],
        "egress": [DNS, ELSEWHERE],
    }


def test_clients_that_are_named_are_the_only_ones_but_for_who_reads_metrics() -> None:
    named = spec_under(NetworkRules(clients=(GATEWAY,), metrics=(MONITORING,)))
    assert named["ingress"] == [
        {"from": MEMBERS},
        {"ports": SERVING, "from": [GATEWAY, MONITORING]},
    ]


def test_who_reads_metrics_comes_beside_the_own_namespace() -> None:
    (_, serving) = spec_under(NetworkRules(metrics=(MONITORING,)))["ingress"]
    assert serving["from"] == [{"podSelector": {}}, MONITORING]


@pytest.mark.parametrize(
    ("secret", "egress"), [(None, [{}]), ("store", [DNS, ELSEWHERE])], ids=["the node", "a Secret"]
)
def test_a_store_whose_keys_the_node_hands_out_is_read_as_before(
    secret: str | None, egress: list[dict[str, Any]]
) -> None:
    store = ObjectStore(uri="gs://models/llama", secret=secret)
    bundle = render(a_plan(), a_deployment(object_store=store))
    (policy,) = of_kind(bundle.objects, "NetworkPolicy")
    assert policy["spec"]["egress"] == egress


@pytest.mark.parametrize("admitted", [(), (STORE,)])
def test_egress_that_is_restricted_leaves_members_dns_and_what_is_admitted(
    admitted: tuple[dict[str, Any], ...],
) -> None:
    bounded = spec_under(NetworkRules(egress=admitted))
    assert bounded["policyTypes"] == ["Ingress", "Egress"]
    assert bounded["egress"] == [DNS, {"to": MEMBERS}, *admitted]


@pytest.mark.parametrize("deployment", [a_deployment(), a_trtllm_deployment()])
@pytest.mark.parametrize("plan", [a_plan(), a_small_plan()])
def test_the_policy_selects_every_pod_of_the_model_whatever_the_engine_and_the_size(
    plan: Any, deployment: Any
) -> None:
    bundle = render(plan, deployment)
    (policy,), (group,) = (
        of_kind(bundle.objects, "NetworkPolicy"),
        of_kind(bundle.objects, "StatefulSet"),
    )
    labels = group["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["metadata"]["ownerReferences"][0]["controller"] is True


def test_there_is_none_where_it_is_turned_off_and_no_pod_is_another_for_it() -> None:
    without, restricted = (
        render(a_plan(), a_deployment(network_rules=rules))
        for rules in (None, NetworkRules(egress=()))
    )
    assert of_kind(without.objects, "NetworkPolicy") == ()
    key = ("StatefulSet", "llama-405b-0")
    assert by_name(without)[key] == by_name(restricted)[key]
