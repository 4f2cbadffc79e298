"""What is a candidate? A layout (the degrees) and its placement (the nodes).

Nothing is checked here: ``planning.checks`` refuses degrees that do not divide the model.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from shardwright.hardware.gpus import Link
from shardwright.hardware.inventory import Pool


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Layout:
    """The degrees of one replica, and how many replicas (groups) there are.

    ``tensor`` is the engine's tensor-parallel size, ``attention_data`` its data-parallel size
    inside a replica, ``expert`` 1 (experts are sliced by tensor) or tensor x attention_data
    (experts are whole). ``context`` (decode context parallelism) adds no ranks: it shares the K/V
    cache among tensor ranks that would hold copies. ``partition`` is the number of layers of every
    stage (empty: the engine's).
    """

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    attention_data: int = 1
    context: int = 1
    replicas: int = 1
    partition: tuple[int, ...] = ()

    @property
    def gpus_per_replica(self) -> int:
        """Return the ranks of one replica."""
        return self.tensor * self.pipeline * self.attention_data

    @property
    def gpus(self) -> int:
        """Return the GPUs of all replicas."""
        return self.gpus_per_replica * self.replicas

    def position(self, rank: int) -> "RankPosition":
        """Return where a rank of a replica stands: tensor runs fastest, then pipeline, then
        attention data.

        Source: engine-measurements.md 1.

        >>> Layout(tensor=2, pipeline=2, attention_data=2).position(5)
        RankPosition(tensor=1, stage=0, attention_data=1)
        """
        return RankPosition(
            tensor=rank % self.tensor,
            stage=rank // self.tensor % self.pipeline,
            attention_data=rank // (self.tensor * self.pipeline),
        )


class RankPosition(NamedTuple):
    """The place of a rank in its replica, each counted from 0."""

    tensor: int
    stage: int
    attention_data: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The nodes of a layout's groups: one tuple of node names per replica, in rank order.

    ``groups`` may be fewer than the layout's replicas: then ``missing_nodes`` are short.
    ``leftover_gpus`` stay free on the nodes used. ``tensor_link`` and ``pipeline_link`` are the
    slowest links that the two kinds of traffic really cross (None if the degree is 1).
    ``one_domain``: the nodes of every replica share one scale-up domain.
    """

    groups: tuple[tuple[str, ...], ...]
    nodes_per_replica: int
    gpus_per_node: int
    missing_nodes: int = 0
    leftover_gpus: int = 0
    tensor_link: Link | None = None
    pipeline_link: Link | None = None
    one_domain: bool = False


Withheld = frozenset[tuple[str, int]]
"""GPUs that are free and of no use to pods, for they lack something beside them: node, number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout on a pool, with nothing placed on GPUs that are ``withheld`` from its pods."""

    layout: Layout
    pool: Pool
    placement: Placement
    withheld: Withheld = frozenset()

    @property
    def uses_network(self) -> bool:
        """Return whether traffic among the ranks of a replica crosses the network between nodes."""
        placement = self.placement
        if placement.nodes_per_replica == 1:
            return False
        # Its ranks exchange tokens before the experts, over all nodes of the replica.
        attention = self.layout.attention_data > 1 and not placement.one_domain
        return attention or self.pool.network in (placement.tensor_link, placement.pipeline_link)

    @property
    def hardware(self) -> tuple[object, ...]:
        """Return the GPUs and links that its price depends on, beside the layout."""
        pool, placement = self.pool, self.placement
        # Pools that differ by their network alone share the prices of all layouts inside a node.
        network = pool.network if placement.nodes_per_replica > 1 else None
        links = placement.tensor_link, placement.pipeline_link, placement.one_domain
        reach = pool.domain_gpus, network
        return (pool.gpu, *links, *reach, placement.gpus_per_node, placement.nodes_per_replica)

    @property
    def rdma_devices(self) -> tuple[tuple[str, int], ...]:
        """Return the RDMA devices that every pod requests: the pool's, if traffic crosses the
        network.
        """
        if not self.uses_network:
            return ()
        of_node = self.placement.gpus_per_node, self.pool.gpus_per_node
        return self.pool.reach.requested(*of_node)

    @property
    def needs_compute_domain(self) -> bool:
        """Return whether a ComputeDomain can open a scale-up domain to pods of one replica on
        several nodes.
        """
        return (
            self.placement.nodes_per_replica > 1
            and self.placement.one_domain
            and self.pool.joins_pods
        )


MOST_REPLICAS: Final = 1000
"""Replicas of one model at most, wished or planned. Basis: chosen: names of groups have three
digits.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuQuota:
    """How many GPUs of a resource (empty: of all) a quota leaves; ``name`` is what people call
    it.
    """

    name: str
    resource: str
    gpus: int

    def counts(self, resource: str) -> bool:
        """Return whether GPUs of a resource count."""
        return self.resource in ("", resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """What is enumerated: pins (None or empty: free), upper limits (None: unlimited), replicas.

    ``replicas`` None: their number is planned with the layout. With ``fill`` a layout gets as many
    as upper limits and free nodes allow, ``replicas`` at most. They are spread over the nodes'
    values of the label ``spread_over`` (empty: they are not); ``standing`` says how many of the
    model are there already, by value. ``quotas`` are limits that others have set, beside
    ``max_gpus``. ``held_nodes`` are those that the model has already, and that count in
    ``max_nodes``.
    """

    replicas: int | None = None
    fill: bool = False
    tensor: int | None = None
    pipeline: int | None = None
    expert: int | None = None
    attention_data: int | None = None
    context: int | None = None
    partition: tuple[int, ...] = ()
    max_gpus: int | None = None
    max_nodes: int | None = None
    spread_over: str = ""
    standing: tuple[tuple[str, int], ...] = ()
    quotas: tuple[GpuQuota, ...] = ()
    held_nodes: frozenset[str] = frozenset()

    def most_gpus(self, resource: str) -> int | None:
        """Return how many GPUs of a resource budget and quotas allow, None: any number."""
        left = [quota.gpus for quota in self.quotas if quota.counts(resource)]
        return min((*left, *(() if self.max_gpus is None else (self.max_gpus,))), default=None)

    @property
    def pins(self) -> dict[str, object]:
        """Return the pinned degrees and partition by name."""
        named = {
            "tensor": self.tensor,
            "pipeline": self.pipeline,
            "expert": self.expert,
            "attention data": self.attention_data,
            "context": self.context,
            "partition": ",".join(map(str, self.partition)) or None,
        }
        return {name: value for name, value in named.items() if value is not None}
