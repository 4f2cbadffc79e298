"""The planner's answer: a plan, or why nothing fits; plain values that can be kept as JSON."""

from dataclasses import dataclass
from enum import StrEnum

from shardwright.costs.estimates import Performance, StageMemory
from shardwright.costs.host import LoadingTime
from shardwright.costs.workload import Phase
from shardwright.errors import Problem
from shardwright.hardware.devices import ClaimedDevices
from shardwright.hardware.gpus import GpuPrice
from shardwright.layouts.layout import Layout
from shardwright.planning.node_storage import HostCache


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

    ``amount`` is by kind: requests served a second, requests that run at once per replica, a
    multiple of the chosen layout's figure (which may be the better one), or seconds by which
    ``part`` of a token's time grows.
    """

    kind: LossKind
    amount: float = 0.0
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A layout that would also run, and its losses against the chosen one, also in words.

    ``capacity`` is as in the plan.
    """

    layout: Layout
    pool: str
    performance: Performance
    loses: str  # one sentence
    million_tokens_price: float | None = None  # as in the plan
    gpu_price: GpuPrice | None = None  # as in the plan, without its source
    losses: tuple[Loss, ...] = ()
    product: str = ""
    capacity: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """A layout that no other beats in both: output tokens a second of one user, and of one GPU, at
    the planned load. ``planned``: it is the plan's, which may be beaten.
    """

    layout: Layout
    pool: str
    tokens_per_user: float
    tokens_per_gpu: float
    planned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A layout that was ruled out, and its gap (empty: it is no matter of degree)."""

    layout: Layout
    gap: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """How many candidates (or nodes) one reason ruled out, with the nearest miss.

    A candidate counts once, for the first reason against it. ``nearest`` is None for nodes, and for
    degrees that do not divide the model: more memory or time would not help those.
    """

    code: str
    count: int
    example: str
    nearest_miss: str
    nearest: NearMiss | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """What would carry a rate that the plan does not: a layout with its replicas, on a pool with so
    many free GPUs.
    """

    layout: Layout
    pool: str
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The chosen candidate, complete enough to render and show it without planning again.

    ``groups`` are the planned nodes, one tuple per replica, called by ``numbers`` (empty: 0, 1, 2,
    …). ``tensor_link`` and ``pipeline_link`` name the slowest links that traffic crosses.
    ``undeployable`` is why this plan cannot be run yet (None: it can). ``tight``: one longest
    request fits by less than the uncertainty of the memory. ``million_tokens_price`` is of output
    tokens at the planned load, in the currency of the nodes' price (None: they state none).
    ``load`` is how long a node reads weights at start. ``rdma`` are the devices that every pod of a
    group over several nodes requests; ``compute_domain`` says that these pods share an NVLink
    domain. ``uncounted`` are engine options whose effects no plan knows. ``host_cache`` is K/V in
    the memory of the nodes. ``gpu_price`` is the price of a GPU hour when layouts were compared
    (None: each counted as one). ``draft_tokens`` is how many tokens a step drafts if the plan chose
    that. ``claimed`` are the devices that pods claim for their GPUs (None: they request
    ``resource``). ``capacity`` is how many requests a second are served at most (None: no rate is
    offered). ``missing`` is how many groups are wanted beside these and have no place: it predicts
    what these do alone. ``enough`` is what would carry a rate that this plan does not.
    ``drain_seconds`` is what running requests get to finish, ``disk_bytes`` the local disk that a
    pod requests for its downloads (0: not planned). ``replica_requests`` is how many requests in
    flight one group just holds within the limits; if there are none, how many run at once (0: not
    one, or not worked out). ``replica_rate`` are the requests a second that it carries then, with
    headroom.
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
    capacity: float | None = None
    missing: int = 0
    enough: Enough | None = None
    drain_seconds: int = 0
    disk_bytes: int = 0
    replica_requests: int = 0
    replica_rate: float = 0.0

    @property
    def group_numbers(self) -> tuple[int, ...]:
        """Return the number of each group, which is part of its name and stays while others go."""
        return self.numbers or tuple(range(len(self.groups)))

    @property
    def wanted(self) -> int:
        """Return how many groups were wanted when it was made."""
        return len(self.groups) + self.missing

    @property
    def deployable(self) -> bool:
        """Return whether the plan can be run, not only shown."""
        return self.undeployable is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What the layout that lacks least needs: nodes of a pool with so many free GPUs each."""

    pool: str
    gpus_per_node: int
    missing_nodes: int
    nodes: int


class Benefit(StrEnum):
    """What leaving out fields of the user's own brings."""

    FITS = "Fits"  #: there is a plan at all
    DEPLOYABLE = "Deployable"  #: the plan can be run, not only shown
    CARRIES_LOAD = "CarriesLoad"
    CHEAPER = "Cheaper"
    THROUGHPUT = "Throughput"
    SOONER = "Sooner"


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutFields:
    """The plan without some of the user's own ``fields``, which are named by their paths.

    Price of the GPUs, output and time of an answer are multiples of the present plan's (1: there is
    none).
    """

    fields: tuple[str, ...]
    gain: Benefit
    layout: Layout
    pool: str
    product: str
    price: float = 1.0
    output: float = 1.0
    seconds: float = 1.0
    carries_load: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysOut:
    """How to get a plan: without fields of the user's own, with so many more nodes of a pool (0:
    none would do), with other ``gpus`` than somebody named, or if a model went (empty: none).
    ``claimed`` are GPUs that are free and kept for models that wait before this one.
    """

    pool: str = ""
    more_nodes: int = 0
    gpus: str = ""
    moved: str = ""
    claimed: int = 0
    without: tuple[WithoutFields, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlan:
    """Nothing can run; ``problem`` is the binding constraint with the closest layout.

    ``heals_by_itself``: waiting helps, as the hardware is there but not free or not ready, or not
    there yet. ``lack`` is set if only nodes are missing, ``ways_out`` if somebody has worked them
    out.
    """

    problem: Problem
    heals_by_itself: bool
    lack: Lack | None = None
    ways_out: WaysOut | None = None

    @property
    def awaits_nodes(self) -> bool:
        """Return whether there are no nodes at all that could be planned on, and some may come."""
        return self.heals_by_itself and self.problem.code == "NoGpuNodes"


class PairCode(StrEnum):
    """Why prompts and answers are not put apart, or what it costs if they are."""

    PAIR_WOULD_IDLE = "PairWouldIdle"  #: amount: share of the pair's GPUs without work
    PROMPTS_ARE_CHEAP = "PromptsAreCheap"  #: share of the whole plan's GPU time
    TRANSFER_TOO_SLOW = "TransferTooSlow"  #: of K/V, over the time to compute it
    PAIR_HALVES_FAIL = "PairHalvesFail"  #: gain, where one unit replaces two whole groups
    PAIR_NEEDS_PIPELINE = "PairNeedsPipeline"  #: fewest stages that have room
    PAIR_HAS_NO_ROOM = "PairHasNoRoom"  #: groups that have room
    PAIR_MISSES_LIMITS = "PairMissesLimits"  #: share by which limit or load is missed
    GAIN_UNCERTAIN = "GainUncertain"  #: gain, inside the error of the prediction
    PAIR_SLOWER = "PairSlower"  #: gain, of a pair that is taken all the same
    PAIR_UNSUPPORTED = "PairUnsupported"  #: by the engine, or for models with recurrent states


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReason:
    """A reason with its number, as its code says."""

    code: PairCode
    amount: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """The groups of one phase, of all units: ``groups`` of one unit, and their plan.

    ``plan.layout`` has the degrees of one group, ``plan.groups`` the nodes of all units. One group
    serves ``rate`` requests a second at most, with ``in_flight`` at once.
    """

    phase: Phase
    groups: int
    plan: Plan
    rate: float
    in_flight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Prompts and answers apart, in ``units``; ``performance`` is of all of them.

    The K/V of a prompt, ``transfer_bytes``, takes ``transfer_seconds``. ``gain`` is
    output tokens a second for the price of the GPUs, over that of the best whole plan (None: no
    whole plan meets the limits).
    """

    units: int
    prefill: Half
    decode: Half
    transfer_bytes: int
    transfer_seconds: float
    performance: Performance
    gain: float | None

    @property
    def gpus(self) -> int:
        """Return the GPUs of all units."""
        return self.prefill.plan.layout.gpus + self.decode.plan.layout.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class PairChoice:
    """The answer to who asks for a pair: the best one (None: there is none), whether it is
    ``taken`` instead of the whole plan, and why not, or what it costs.
    """

    taken: bool
    best: Pair | None
    reasons: tuple[PairReason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome, with everything considered on the way.

    ``lacks`` is why groups are missing from the plan (None: none is, or nobody asked why).
    ``costly`` is what a plan would gain without fields of the user's own, if somebody has worked it
    out. ``front`` are the layouts that none beats in tokens per user and per GPU. ``pair`` is the
    answer to who asks for one (None: nobody does); the outcome is the whole plan all the same.
    """

    outcome: Plan | NoPlan
    alternatives: tuple[Alternative, ...]
    excluded: tuple[Exclusion, ...]
    considered: int
    lacks: NoPlan | None = None
    costly: tuple[WithoutFields, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    pair: PairChoice | None = None

    @property
    def unplaced(self) -> NoPlan | None:
        """Return why all or some replicas have no place, None if all have one."""
        return self.outcome if isinstance(self.outcome, NoPlan) else self.lacks

    @property
    def without(self) -> tuple[WithoutFields, ...]:
        """Return the plans without some of the user's own fields, as far as they are worked out."""
        if isinstance(self.outcome, Plan):
            return self.costly
        return self.outcome.ways_out.without if self.outcome.ways_out else ()
