"""Who may reach a model's pods and its router's, and whom may they reach?

One policy for all pods of a model, one for those of its router. Kubelets probe by programs inside
the pods, so probes need no way in.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from shardwright.costs.workload import Phase
from shardwright.rendering import halves
from shardwright.rendering.deployment import Deployment, NetworkRules
from shardwright.rendering.labels import model_selector
from shardwright.rendering.router_pods import METRICS_PORT, router_selector
from shardwright.rendering.scripts import HTTP_PORT

DNS_PORT: Final = 53
"""RFC 1035, section 4.2."""

OWN_NAMESPACE: Final[Mapping[str, object]] = {"podSelector": {}}
"""Who sends requests if nobody else is named: the pods of the model's own namespace."""

ANY_POD: Final[Mapping[str, object]] = {"namespaceSelector": {}}

_ANY_ADDRESS: Final[tuple[Mapping[str, object], ...]] = (
    {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}},
    {"ipBlock": {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::254/128"]}},
)
"""All but link-local addresses (RFC 3927, RFC 4291) and the IPv6 address of AWS's instance metadata
(AWS, "Use IMDS"): there nodes say who they are, with credentials.
"""


def of_model(deployment: Deployment, rules: NetworkRules) -> dict[str, Any]:
    """Return the ``spec`` of the policy over all pods of a model."""
    # All pods of the model and not of one group: they have the same token, image and user (ADR 18).
    members = _members(deployment)
    return {
        **_pods(model_selector(deployment.base)),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": members}, *_serving(deployment, rules)],
        # One rule for anybody covers all others.
        "egress": [{}]
        if _asks_the_node(deployment) and rules.egress is None
        else list(_egress(members, rules)),
    }


def _members(deployment: Deployment) -> list[dict[str, Any]]:
    own, pair = _pods(model_selector(deployment.base)), halves.member_labels(deployment.half)
    # K/V takes any free port, and the router of a pair is one of its members.
    return [own, _pods(pair)] if pair else [own]


def _serving(deployment: Deployment, rules: NetworkRules) -> Iterator[dict[str, Any]]:
    # Clients reach groups also beside a router: without it the Service leads there. Groups that
    # compute prompts alone answer nobody. Engines tell metrics at the port of requests: who may
    # read them may ask.
    clients = () if deployment.phase is Phase.PREFILL else rules.clients or (OWN_NAMESPACE,)
    routers = [_pods(router_selector(deployment.base))] if deployment.router else []
    if admitted := [*clients, *rules.metrics, *routers]:
        yield {"ports": [_port("TCP", HTTP_PORT)], "from": admitted}


def of_router(deployment: Deployment, rules: NetworkRules) -> dict[str, Any]:
    """Return the ``spec`` of the policy of a model's router: clients reach it as they reach
    engines.
    """
    return {
        **_pods(router_selector(deployment.base)),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "ports": [_port("TCP", port) for port in (HTTP_PORT, METRICS_PORT)],
                "from": [*(rules.clients or (OWN_NAMESPACE,)), *rules.metrics],
            }
        ],
        "egress": list(_egress(_members(deployment), rules)),
    }


def _pods(labels: Mapping[str, str]) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": dict(labels)}}


def _egress(
    members: Sequence[Mapping[str, Any]], rules: NetworkRules
) -> Iterator[Mapping[str, Any]]:
    # To anybody: where a cluster's resolvers are (a namespace, the node) differs.
    yield {"ports": [_port(protocol, DNS_PORT) for protocol in ("UDP", "TCP")]}
    # Egress is open until the administrator restricts it: only they know hubs, mirrors and stores
    # (ADR 18). Only the node's own answers are for nobody who does not need them.
    if rules.egress is None:
        yield {"to": [ANY_POD, *_ANY_ADDRESS]}
    else:
        yield {"to": members}
        yield from rules.egress


def _asks_the_node(deployment: Deployment) -> bool:
    # Without keys of a Secret a cloud's store is read as who the pod is, which the node says.
    store = deployment.weights.object_store
    return store is not None and store.secret is None


def _port(protocol: str, port: int) -> dict[str, Any]:
    return {"protocol": protocol, "port": port}
