"""Who may reach a model's pods and whom they may reach: one NetworkPolicy for all its groups.

Kubelets probe by programs inside the pods, so probes need no way in.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardwright.rendering.deployment import NetworkRules
from shardwright.rendering.labels import model_selector

DNS_PORT: Final = 53
"""RFC 1035, section 4.2."""


def policy_spec(base: str, rules: NetworkRules, http_port: int) -> dict[str, Any]:
    """Return the ``spec`` of the policy of a model that serves at ``http_port``."""
    # All pods of the model and not of one group: they have the same token, image and user (ADR 18).
    members = [{"podSelector": {"matchLabels": model_selector(base)}}]
    policy = {
        "podSelector": {"matchLabels": model_selector(base)},
        # Egress is open until the administrator restricts it: only they know hubs, mirrors and
        # stores (ADR 18).
        "policyTypes": ["Ingress"] if rules.egress is None else ["Ingress", "Egress"],
        "ingress": [
            {"from": members},
            {"ports": [_port("TCP", http_port)], **_from_clients(rules)},
        ],
    }
    return (
        policy
        if rules.egress is None
        else {**policy, "egress": list(_egress(members, rules.egress))}
    )


def _from_clients(rules: NetworkRules) -> dict[str, Any]:
    # Metrics are read at the port of requests: if everybody may ask, everybody may read them.
    return {"from": [*rules.clients, *rules.metrics]} if rules.clients else {}


def _egress(
    members: list[dict[str, Any]], admitted: tuple[Mapping[str, Any], ...]
) -> Iterator[Mapping[str, Any]]:
    yield {"to": members}
    # To anybody: where a cluster's resolvers are (a namespace, the node) differs.
    yield {"ports": [_port(protocol, DNS_PORT) for protocol in ("UDP", "TCP")]}
    yield from admitted


def _port(protocol: str, port: int) -> dict[str, Any]:
    return {"protocol": protocol, "port": port}
