"""The planner's answer: a plan or that nothing fits, and why; only plain values, so it can be kept
as JSON.
"""

from dataclasses import dataclass
from enum import StrEnum

from shardwright.costs.estimates import Performance, StageMemory
from shardwright.costs.loading import LoadingTime
from shardwright.errors import Problem
from shardwright.hardware.devices import ClaimedDevices
from shardwright.hardware.prices import GpuPrice
from shardwright.layouts.layout import Layout
from shardwright.planning.offload import HostCache


class LossKind(StrEnum):
    """A way in which a layout is behind the chosen one."""

    NOT_DEPLOYABLE = "NotDeployable"
    TIGHT = "Tight"  #: it may not start
    FALLS_BEHIND = "FallsBehind"
    NO_HEADROOM = "NoHeadroom"
    QUEUES = "Queues"
    THROUGHPUT_PER_GPU = "ThroughputPerGpu"
    THROUGHPUT_FOR_PRICE = "ThroughputForPrice"
    TPOT = "TimePerToken"
    TTFT = "TimeToFirstToken"
    PART_OF_TPOT = "PartOfToken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One fact of a comparison with the chosen layout.

    ``amount`` is by kind: requests a second that are served at most, requests that run at once per
    replica, the figure as a multiple of the chosen layout's (which may be the better one), or the
    seconds by which ``part`` of a token's time grows.
    """

    kind: LossKind
    amount: float = 0.0
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A layout that would also run, and its losses against the chosen one, also in words."""

    layout: Layout
    pool: str
    performance: Performance
    loses: str  # one sentence
    million_tokens_price: float | None = None  # as in the plan
    gpu_price: GpuPrice | None = None  # as in the plan, without its source
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """How many candidates (or nodes) one reason ruled out; the nearest miss is the one to look
    at.
    """

    code: str
    count: int
    example: str
    nearest_miss: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The candidate that was chosen, complete enough to render it and to show it without planning
    again.

    ``groups`` are the planned nodes, one tuple per replica; they go by ``numbers`` (empty: 0, 1, 2,
    …), also if lower ones are free. ``tensor_link`` and ``pipeline_link`` name the slowest links
    that traffic crosses. ``undeployable`` is why this plan can be shown but not yet run (None: it
    can). ``tight`` says that one longest request fits by less than the uncertainty of the memory.
    ``million_tokens_price`` is the price of a million output tokens at the planned load, in the
    currency of the nodes' price (None: they state none). ``load`` is how long a node reads weights
    at start. ``rdma`` are the devices that every pod of a group over several nodes requests;
    ``compute_domain`` says that these pods share an NVLink domain. ``uncounted`` are options that
    the engine is told and whose effects no plan knows. ``host_cache`` is K/V that is kept in the
    memory of the nodes (None: none is). ``gpu_price`` is the price of one of its GPUs for an hour
    when layouts were compared (None: each counted as one). ``draft_tokens`` is how many tokens a
    step drafts, if the plan chose that (0: it did not). ``claimed`` are the devices that pods claim
    for their GPUs (None: they request ``resource``).
    """

    layout: Layout
    pool: str
    product: str
    resource: str
    architecture: str
    groups: tuple[tuple[str, ...], ...]
    nodes_per_replica: int
    gpus_per_node: int
    tensor_link: str
    pipeline_link: str
    stages: tuple[StageMemory, ...]
    kv_tokens: int
    max_model_len: int
    max_sequences: int
    max_batched_tokens: int
    memory_utilization: float
    load_bytes_per_node: int
    performance: Performance
    carries_load: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    undeployable: Problem | None = None
    tight: bool = False
    million_tokens_price: float | None = None
    load: LoadingTime | None = None
    rdma: tuple[tuple[str, int], ...] = ()
    compute_domain: bool = False
    numbers: tuple[int, ...] = ()
    uncounted: tuple[str, ...] = ()
    host_cache: HostCache | None = None
    gpu_price: GpuPrice | None = None
    draft_tokens: int = 0
    claimed: ClaimedDevices | None = None

    @property
    def group_numbers(self) -> tuple[int, ...]:
        """Return the number of each group: it is part of its name, and stays while others go."""
        return self.numbers or tuple(range(len(self.groups)))

    @property
    def deployable(self) -> bool:
        """Return whether the plan can be run, not only shown."""
        return self.undeployable is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """The gap of the layout that lacks least: nodes of a pool with so many free GPUs each, of all
    that it needs.
    """

    pool: str
    gpus_per_node: int
    missing_nodes: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysOut:
    """The ways to make room: so many more nodes of a pool (0: none would), or a model that goes, as
    it is shown (empty: none).
    """

    pool: str = ""
    more_nodes: int = 0
    moved: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlan:
    """Nothing can run; ``problem`` is the binding constraint with the closest layout.

    ``heals_by_itself`` is True when the hardware is there but not free (or not ready), or there is
    none yet at all: waiting helps. ``lack`` is the gap if only nodes are missing, and ``ways_out``
    the ways to make room, if somebody has worked them out.
    """

    problem: Problem
    heals_by_itself: bool
    lack: Lack | None = None
    ways_out: WaysOut | None = None

    @property
    def awaits_nodes(self) -> bool:
        """Return whether there are no nodes at all that could be planned on, and some may come."""
        return self.heals_by_itself and self.problem.code == "NoGpuNodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome with everything that was looked at on the way."""

    outcome: Plan | NoPlan
    alternatives: tuple[Alternative, ...]
    excluded: tuple[Exclusion, ...]
    considered: int
