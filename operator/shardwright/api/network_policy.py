"""Who may reach models' pods and whom they may reach, as an administrator describes it for all.

Addresses with bits beyond their length and rules without effect are refused.
"""

from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from shardwright.api.parts import LABEL_KEY, LabelValue, Part, unsaid
from shardwright.api.violations import read_part
from shardwright.errors import InputError, Problem

NETWORK_POLICY: Final = "networkPolicy"

ENTRIES_MAX: Final = 64
"""Entries of each list. Basis: assumed; every model's policy holds all of them."""

LabelKey = Annotated[str, StringConstraints(max_length=317, pattern=LABEL_KEY)]
Cidr = Annotated[str, StringConstraints(max_length=43)]
Port = Annotated[int, Field(ge=1, le=65535)]


class LabelRule(Part):
    """A condition on the value of a label."""

    key: LabelKey = Field(description="The label's key.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How it is compared with values."
    )
    values: list[LabelValue] = Field(
        default_factory=list, max_length=ENTRIES_MAX, description="With In and NotIn."
    )


class LabelSelector(Part):
    """Labels to select by; an empty selector selects everything."""

    match_labels: dict[str, LabelValue] = Field(
        default_factory=dict, max_length=ENTRIES_MAX, description="Labels by key."
    )
    match_expressions: list[LabelRule] = Field(
        default_factory=list, max_length=ENTRIES_MAX, description="Further rules."
    )


class IpBlock(Part):
    """Addresses; those of pods are usually not seen as such."""

    cidr: Cidr = Field(description="Network, as 10.0.0.0/8.")
    without: list[Cidr] = Field(
        default_factory=list, alias="except", max_length=ENTRIES_MAX, description="Parts of it."
    )


class Peer(Part):
    """Pods, or addresses, as Kubernetes writes them in a NetworkPolicy."""

    pod_selector: LabelSelector | None = Field(
        default=None, description="Pods of the policy's namespace, or of namespaceSelector."
    )
    namespace_selector: LabelSelector | None = Field(
        default=None, description="Namespaces of the pods."
    )
    ip_block: IpBlock | None = Field(
        default=None, description="Addresses, without either selector."
    )


class EgressPort(Part):
    """A port, or all from it to another."""

    protocol: Literal["TCP", "UDP", "SCTP"] = Field(default="TCP", description="Its protocol.")
    port: Port = Field(description="The port, or the first one.")
    end_port: Port | None = Field(default=None, description="The last one.")


class EgressRule(Part):
    """Whom pods may reach, at which ports; everybody, and all ports, if nothing is named."""

    to: list[Peer] = Field(default_factory=list, max_length=ENTRIES_MAX, description="Whom.")
    ports: list[EgressPort] = Field(
        default_factory=list, max_length=ENTRIES_MAX, description="At which ports."
    )


class Egress(Part):
    """Whom the pods of models may reach."""

    restricted: bool = Field(
        default=False, description="Whether they reach only each other, DNS and what rules name."
    )
    rules: list[EgressRule] = Field(
        default_factory=list, max_length=ENTRIES_MAX, description="What they may reach beside."
    )


class NetworkPolicies(Part):
    """The setting as a whole."""

    enabled: bool = Field(default=True, description="Whether every model has a policy.")
    clients: list[Peer] = Field(
        default_factory=list,
        max_length=ENTRIES_MAX,
        description="Who may send requests; empty: the pods of the model's own namespace.",
    )
    metrics: list[Peer] = Field(
        default_factory=list,
        max_length=ENTRIES_MAX,
        description="Who may read metrics, which the port of requests has, beside clients.",
    )
    egress: Egress = Field(
        default_factory=partial(unsaid, Egress), description="Whom pods may reach."
    )


class _Setting(Part):
    network_policy: NetworkPolicies = Field(alias=NETWORK_POLICY)


def read_network_policies(described: object) -> NetworkPolicies:
    """Return the setting ``networkPolicy``.

    Raises:
        InputError: every violation, with its path.
    """
    found = read_part(_Setting, {NETWORK_POLICY: described}).network_policy
    if problems := list(_broken_rules(found)):
        raise InputError(problems)
    return found


def _broken_rules(found: NetworkPolicies) -> Iterator[Problem]:
    named = {"clients": found.clients, "metrics": found.metrics}
    named |= {f"egress.rules[{index}].to": rule.to for index, rule in enumerate(found.egress.rules)}
    for where, peers in named.items():
        for index, peer in enumerate(peers):
            yield from _broken_peer(peer, f"{NETWORK_POLICY}.{where}[{index}]")
    for index, rule in enumerate(found.egress.rules):
        for number, one in enumerate(rule.ports):
            if one.end_port is not None and one.end_port < one.port:
                at = f"{NETWORK_POLICY}.egress.rules[{index}].ports[{number}].endPort"
                limit = f"must be at least port, which is {one.port}"
                yield Problem(
                    code="OutOfRange",
                    path=at,
                    what=str(one.end_port),
                    limit=limit,
                    remedy="swap the two",
                )
    if found.egress.rules and not found.egress.restricted:
        what, at = (
            "has an effect only where egress is restricted",
            f"{NETWORK_POLICY}.egress.rules",
        )
        yield Problem(
            code="UnknownField",
            path=at,
            what=what,
            remedy="set egress.restricted: true, or leave the rules out",
        )


def _broken_peer(peer: Peer, at: str) -> Iterator[Problem]:
    selectors = {"podSelector": peer.pod_selector, "namespaceSelector": peer.namespace_selector}
    if any(selectors.values()) == (peer.ip_block is not None):
        what = "must name podSelector, namespaceSelector or both, or ipBlock alone"
        yield Problem(
            code="MissingField", path=at, what=what, remedy="an empty selector ({}) stands for all"
        )
    for name, selector in selectors.items():
        for index, rule in enumerate(selector.match_expressions if selector else ()):
            if bool(rule.values) != (rule.operator in {"In", "NotIn"}):
                where = f"{at}.{name}.matchExpressions[{index}].values"
                limit = (
                    f"must {'name some' if not rule.values else 'be left out'} with {rule.operator}"
                )
                yield Problem(
                    code="BadFormat",
                    path=where,
                    what=f"{len(rule.values)} values",
                    limit=limit,
                    remedy="correct it",
                )
    if peer.ip_block:
        yield from _broken_block(peer.ip_block, f"{at}.ipBlock")


def _broken_block(block: IpBlock, at: str) -> Iterator[Problem]:
    whole = _network(block.cidr)
    if whole is None:
        yield _no_network(block.cidr, f"{at}.cidr")
    for index, text in enumerate(block.without):
        part = _network(text)
        if part is None or (whole is not None and not _is_part(part, whole)):
            yield _no_network(text, f"{at}.except[{index}]", f" inside {block.cidr}")


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text) if "/" in text else None
    except ValueError:
        return None


def _is_part(part: IPv4Network | IPv6Network, whole: IPv4Network | IPv6Network) -> bool:
    # The API server takes no exception that is as large as its network.
    same = part.version == whole.version and part.prefixlen > whole.prefixlen
    return same and part.network_address in whole


def _no_network(text: str, path: str, inside: str = "") -> Problem:
    limit = f"must be a network{inside} with its length and no bits beyond it, as 10.0.0.0/8"
    return Problem(code="BadFormat", path=path, what=text, limit=limit, remedy="correct it")
