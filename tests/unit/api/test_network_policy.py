"""The setting ``networkPolicy``: typed as Kubernetes has it, so that no model ever gets a policy
that the API server refuses.
"""

import json
from typing import Any

import pytest

from shardwright.api.settings import read_settings
from shardwright.errors import InputError
from shardwright.rendering.deployment import NetworkRules
from shardwright.resolving.intent import network_rules_of

GATEWAY = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "gateway"}}}
NOT_TESTS = {
    "podSelector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["test"]}]}
}
OFFICE = {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.9.0.0/16"]}}
STORE = {
    "to": [OFFICE],
    "ports": [{"port": 443}, {"protocol": "UDP", "port": 9000, "endPort": 9100}],
}


def rules(**setting: Any) -> NetworkRules | None:
    return network_rules_of(read_settings(json.dumps({"networkPolicy": setting})).network_policy)


def paths(**setting: Any) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as raised:
        rules(**setting)
    return [
        (problem.code, problem.path.removeprefix("networkPolicy."))
        for problem in raised.value.problems
    ]


def test_what_is_said_of_peers_reaches_rendering_as_it_was_written() -> None:
    assert rules(clients=[GATEWAY, NOT_TESTS], metrics=[OFFICE]) == NetworkRules(
        clients=(GATEWAY, NOT_TESTS), metrics=(OFFICE,)
    )


def test_egress_is_open_until_it_is_restricted() -> None:
    assert rules() == NetworkRules()
    assert rules(egress={"restricted": True}) == NetworkRules(egress=())
    assert rules(egress={"restricted": True, "rules": [STORE]}) == NetworkRules(egress=(STORE,))


def test_policies_are_there_unless_they_are_turned_off() -> None:
    assert network_rules_of(read_settings("").network_policy) == NetworkRules()
    assert rules(enabled=False, clients=[GATEWAY]) is None


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ({}, ("MissingField", "clients[0]")),
        (GATEWAY | OFFICE, ("MissingField", "clients[0]")),
        ({"pods": {}}, ("UnknownField", "clients[0].pods")),
        ({"ipBlock": {"cidr": "10.0.0.1"}}, ("BadFormat", "clients[0].ipBlock.cidr")),
        ({"ipBlock": {"cidr": "10.0.0.1/8"}}, ("BadFormat", "clients[0].ipBlock.cidr")),
        (
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["192.0.2.0/24"]}},
            ("BadFormat", "clients[0].ipBlock.except[0]"),
        ),
        (
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}},
            ("BadFormat", "clients[0].ipBlock.except[0]"),
        ),
        (
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["fd00::/16"]}},
            ("BadFormat", "clients[0].ipBlock.except[0]"),
        ),
        (
            {"podSelector": {"matchLabels": {"app": "a b"}}},
            ("BadFormat", "clients[0].podSelector.matchLabels.app"),
        ),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            ("BadFormat", "clients[0].podSelector.matchExpressions[0].values"),
        ),
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]
                }
            },
            ("BadFormat", "clients[0].namespaceSelector.matchExpressions[0].values"),
        ),
    ],
)
def test_a_peer_that_the_api_server_would_refuse_is_refused_with_its_path(
    peer: Any, expected: tuple[str, str]
) -> None:
    assert paths(clients=[peer]) == [expected]


def test_rules_that_contradict_themselves_are_refused() -> None:
    backwards = {"ports": [{"port": 90, "endPort": 80}]}
    assert paths(egress={"restricted": True, "rules": [backwards]}) == [
        ("OutOfRange", "egress.rules[0].ports[0].endPort")
    ]
    assert paths(egress={"rules": [STORE]}) == [("UnknownField", "egress.rules")]
    assert paths(enabled="yes") == [("WrongType", "enabled")]
