"""Which installation of the operator nodes and namespaces belong to, by the names of ClusterRoles.

Tenants write no ClusterRoles, and no two have one name: Helm refuses a second release for the same
nodes. Where nobody does, the later claim replaces the earlier, and the installation it names goes
on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from shardwright.cluster.client import Client
from shardwright.cluster.resources import CLUSTER_ROLES
from shardwright.hardware.gpus import NODE_SET
from shardwright.rendering.bundle import KubernetesObject

INSTALLATION: Final = "shardwright.io/installation"
"""Annotation of a claim: namespace and name of the release that it is for."""

NAMESPACES: Final = "shardwright-namespaces"
"""The claim on all namespaces; an installation that watches some of them has none, and works where
nobody has it.
"""

NAMESPACE: Final = "shardwright-namespace-"
"""How the claim on a namespace is called, its name behind it, where some are watched."""

NODES: Final = "shardwright-nodes"
"""The name of the claim on nodes of no set; a set's name follows after a dash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An installation's scope: a set's nodes (empty: nodes of none), namespaces (empty: all)."""

    name: str
    node_set: str = ""
    namespaces: tuple[str, ...] = ()

    @property
    def nodes_claim(self) -> str:
        """Return the name of the claim on its nodes.

        >>> Installation(name="a/a", node_set="team").nodes_claim
        'shardwright-nodes-team'
        """
        return f"{NODES}-{self.node_set}" if self.node_set else NODES

    @property
    def claims(self) -> tuple[str, ...]:
        """Return the names of all its claims."""
        return (self.nodes_claim, NAMESPACES, *(f"{NAMESPACE}{name}" for name in self.namespaces))

    def complaints(self, owners: Mapping[str, str]) -> Iterator[str]:
        """Yield why it may not go on; ``owners`` are installations by claim."""
        if (nodes := owners.get(self.nodes_claim)) != self.name:
            label = f"{NODE_SET}={self.node_set}" if self.node_set else NODE_SET
            yield (
                f"nodes {'with' if self.node_set else 'without'} the label {label} are not for "
                f"{self.name}: {_said(self.nodes_claim, nodes)}; give it nodes of its own with "
                "nodeSet, or uninstall one of the two"
            )
        everywhere = owners.get(NAMESPACES)
        # An installation for all namespaces needs that claim itself; one for some needs only that
        # nobody else has it.
        if not self.namespaces and everywhere != self.name:
            yield _of_others(f"the namespaces are not for {self.name}", NAMESPACES, everywhere)
        elif everywhere not in {None, self.name}:
            yield _of_others("another installation watches all namespaces", NAMESPACES, everywhere)
        for namespace in self.namespaces:
            claim = f"{NAMESPACE}{namespace}"
            # Nobody has it while a namespace is taken out of watchNamespaces, or comes into it.
            if (owner := owners.get(claim, self.name)) != self.name:
                yield _of_others(f"namespace {namespace} is not for {self.name}", claim, owner)


def _of_others(what: str, claim: str, owner: str | None) -> str:
    said = _said(claim, owner)
    return f"{what}: {said}; have each installation watch its own with watchNamespaces"


def _said(claim: str, owner: str | None) -> str:
    return (
        f"there is no ClusterRole {claim}"
        if owner is None
        else f"ClusterRole {claim} says {owner or 'nobody'}"
    )


async def read_complaint(client: Client, installation: Installation) -> str:
    """Return why an installation may not go on, empty if it may.

    Raises:
        ApiError: the API server did not say.
    """
    owners = {
        name: owner_of(role)
        for name in installation.claims
        # By name: so the right to list is one on these names alone.
        for role in await client.list(CLUSTER_ROLES, fieldSelector=f"metadata.name={name}")
    }
    return next(installation.complaints(owners), "")


def owner_of(content: KubernetesObject) -> str:
    """Return the installation a claim is for, empty if it says none."""
    return str((content["metadata"].get("annotations") or {}).get(INSTALLATION) or "")
