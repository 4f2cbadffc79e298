"""Which installation of the operator the nodes and the namespaces of a cluster are for, as
ClusterRoles say by their names.

Tenants write no ClusterRoles, and no two have one name: Helm refuses the second release that would
plan on the same nodes. If nobody refuses it, the later claim is written over the earlier. The
installation that it names goes on.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from shardwright.cluster.client import Client
from shardwright.cluster.handover import Change, Handover, Key
from shardwright.cluster.reader import Reader, Source, Timing
from shardwright.cluster.resources import CLUSTER_ROLES
from shardwright.hardware.stated import NODE_SET
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
"""How the claim on the nodes of a set is called, the set after a dash; without one that on nodes
that are of no set.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The scope of one installation: the nodes of a set (empty: those of none) and namespaces (none
    named: all).
    """

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
        """Return the names of the claims that state its scope."""
        return (
            self.nodes_claim,
            NAMESPACES,
            *(f"{NAMESPACE}{name}" for name in self.namespaces),
        )

    def complaint(self, owners: Mapping[str, str]) -> str:
        """Return why it may not go on, empty if it may; ``owners`` are the installations that
        claims are for, by claim.
        """
        nodes = owners.get(self.nodes_claim)
        if nodes != self.name:
            which = (
                f"nodes with the label {NODE_SET}={self.node_set}"
                if self.node_set
                else f"nodes without the label {NODE_SET}"
            )
            whose = _said(self.nodes_claim, nodes)
            return (
                f"{which} are not for {self.name}: {whose}; give it nodes of its own with "
                "nodeSet, or uninstall one of the two"
            )
        everywhere = owners.get(NAMESPACES)
        # An installation for all namespaces needs that claim itself; one for some needs only that
        # nobody else has it.
        if not self.namespaces and everywhere != self.name:
            return _of_others(
                f"the namespaces are not for {self.name}", NAMESPACES, everywhere
            )
        if everywhere not in {None, self.name}:
            return _of_others(
                "another installation watches all namespaces", NAMESPACES, everywhere
            )
        return ""

    def left(self, owners: Mapping[str, str]) -> dict[str, str]:
        """Return of which of its namespaces claims say another installation, with why it leaves
        them to that.
        """
        found = {}
        # Only the namespace is left, as ending would stop all others for a list that two teams have
        # written differently (ADR 34).
        for namespace in self.namespaces:
            claim = f"{NAMESPACE}{namespace}"
            # nobody has it while a namespace is taken out of watchNamespaces, or comes into it
            if (owner := owners.get(claim, self.name)) != self.name:
                what = f"namespace {namespace} is not for {self.name}"
                found[namespace] = _of_others(what, claim, owner)
        return found


def _of_others(what: str, claim: str, owner: str | None) -> str:
    said = _said(claim, owner)
    return f"{what}: {said}; have each installation watch its own with watchNamespaces"


def _said(claim: str, owner: str | None) -> str:
    return (
        f"there is no ClusterRole {claim}"
        if owner is None
        else f"ClusterRole {claim} says {owner or 'nobody'}"
    )


class Claims:
    """Reads the claims that matter to an installation, from :meth:`start` on; tells of each change
    of their words to it.
    """

    def __init__(
        self,
        client: Client,
        installation: Installation,
        on_change: Callable[[str, Mapping[str, str]], object],
        timing: Timing | None = None,
    ) -> None:
        """``on_change`` is called on the event loop with the complaint, empty if there is none any
        more, and the namespaces that are left to others, with why.
        """
        self._client = client
        self._installation = installation
        self._on_change = on_change
        self._timing = timing
        self._owners: dict[str, str] = {}
        self._listed: set[str] = set()
        self._readers: list[Reader[str]] = []
        self._told: tuple[str, dict[str, str]] = ("", {})
        self.read = asyncio.Event()

    def start(self) -> None:
        """Begin to read; called on the event loop."""
        for name in self._installation.claims:
            reader = self._reader(name)
            self._readers.append(reader)
            reader.start()

    def stop(self) -> None:
        """Read nothing more."""
        for reader in self._readers:
            reader.stop()

    def _reader(self, name: str) -> Reader[str]:
        def take_over(changes: Mapping[Key, Change[str]], listed: bool) -> None:  # noqa: FBT001  # a fact
            for (_, claim), change in changes.items():
                self._owners.pop(claim, None)
                if change.value is not None:
                    self._owners[claim] = change.value
            if listed:
                self._listed.add(name)
            # Not before all have been read: a claim that is still on its way would look as if it
            # were not there.
            if len(self._listed) == len(self._readers):
                self._judge()

        handover: Handover[str] = Handover(asyncio.get_running_loop(), take_over)
        source = Source(
            resource=CLUSTER_ROLES,
            project=owner_of,
            # By name: so the right to list is one on these names alone, and no other ClusterRole is
            # read.
            query=(("fieldSelector", f"metadata.name={name}"),),
            metadata_only=True,
        )
        return Reader(self._client, source, handover.put, self._timing)

    def _judge(self) -> None:
        complaint = self._installation.complaint(self._owners)
        before, self._told = (
            self._told,
            (complaint, self._installation.left(self._owners)),
        )
        # The same words are told once: the end of a process follows from them.
        if before != self._told:
            self._on_change(*self._told)
        self.read.set()


def owner_of(content: KubernetesObject) -> str:
    """Return the installation that a claim is for, empty if it says none."""
    return str((content["metadata"].get("annotations") or {}).get(INSTALLATION) or "")
