"""Which nodes would an autoscaler add, and how do pods ask for them?

Until pods are bound to a real node, a node to come stands in plans and in the ledger under a name
that no Node can have.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from shardwright.hardware.facts import NodeFacts

MARK: Final = "~"
"""How names of nodes to come begin. No Node may be named so, and it comes after all that a Node may
be named.
"""

KARPENTER: Final = "karpenter.sh/"
"""How the labels begin by which Karpenter tells its pools apart."""

HOSTNAME: Final = "kubernetes.io/hostname"


def is_provisioned_later(node: str) -> bool:
    """Return whether this is the name of a node that does not exist yet.

    >>> is_provisioned_later("~spot-0"), is_provisioned_later("spot-0")
    (True, False)
    """
    return node.startswith(MARK)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTerm:
    """Any node with these ``labels``, except the hostnames of ``apart_from``."""

    labels: tuple[tuple[str, str], ...]
    apart_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """How the pods of a planned group (by index) ask for nodes of which some were to come.

    They go to one of the ``named`` nodes, or to a node that one of the ``terms`` describes.
    ``number`` counts how often the group has sought nodes: pods that asked before are not those
    that ask now.
    """

    group: int
    named: tuple[str, ...] = ()
    terms: tuple[PoolTerm, ...]
    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaledPool:
    """At most ``max_nodes`` nodes like the ``pattern``; those with the labels of ``selector``
    belong to it.
    """

    name: str
    max_nodes: int
    selector: tuple[tuple[str, str], ...]
    pattern: NodeFacts

    def has(self, node: NodeFacts) -> bool:
        """Return whether an existing node is of this pool."""
        return all(node.labels.get(key) == value for key, value in self.selector)

    def names(self) -> Iterator[str]:
        """Return the names of all nodes that may come, in order."""
        digits = len(str(self.max_nodes - 1))
        yield from (f"{MARK}{self.name}-{number:0{digits}}" for number in range(self.max_nodes))

    def nodes(self) -> Iterator[NodeFacts]:
        """Return all nodes that may come; each ends its own scale-up domain."""
        domain = self.pattern.domain
        for name in self.names():
            own = replace(domain, name=name) if domain.name else domain
            yield replace(self.pattern, name=name, domain=own)

    def term(self, apart_from: Collection[str]) -> PoolTerm:
        """Return how pods ask for its nodes, apart from those with these hostnames.

        Karpenter passes over pods whose required terms say anything of hostnames or of fields of a
        Node (kubernetes-sigs/karpenter pkg/controllers/provisioning/provisioner.go,
        pkg/apis/v1/labels.go), so its pools are asked for by their labels alone.
        """
        return PoolTerm(
            labels=self.selector, apart_from=() if self.is_karpenters else tuple(sorted(apart_from))
        )

    @property
    def is_karpenters(self) -> bool:
        """Return whether Karpenter makes its nodes."""
        return any(key.startswith(KARPENTER) for key, _ in self.selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turnout:
    """One pool's nodes: existing by name, those of them with held GPUs, and ``booked`` ones to
    come, kept for somebody.
    """

    pool: AutoscaledPool
    there: Mapping[str, NodeFacts]
    held: frozenset[str]
    booked: frozenset[str]

    def withheld(self, late: Collection[str]) -> frozenset[str]:
        """Return the nodes to come that no model is planned on: existing nodes use up the pool's
        limit.

        A pool that makes one of the nodes too ``late`` for which the model waited gives it none.
        """
        if not set(self.pool.names()).isdisjoint(late):
            return frozenset(self.pool.names())
        unbooked = [name for name in self.pool.names() if name not in self.booked]
        return frozenset(
            unbooked[max(0, self.pool.max_nodes - len(self.there) - len(self.booked)) :]
        )

    def awaited(self) -> frozenset[str]:
        """Return the existing nodes that pods with booked nodes will have, as far as one can
        tell.
        """
        # An empty node may be the one that somebody's pods are about to be bound to (ADR 14).
        empty = sorted(self.there.keys() - self.held)
        return frozenset(empty[: len(self.booked)])

    def term(self, own: Collection[str], others: Collection[str]) -> PoolTerm:
        """Return how pods of a group ask for nodes: for its ``own``, not for any held or planned
        for ``others``.
        """
        kept = self.held.union(others).intersection(self.there).difference(own)
        return self.pool.term({self.there[name].labels.get(HOSTNAME, name) for name in kept})
