"""What is a candidate? A layout (the degrees) and its placement (the nodes).

Nothing is checked here: ``planning.checks`` refuses degrees that do not divide the model.

What must the planner know of an engine? Values are handed down; planning never imports an
engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from shardwright.hardware.gpus import ComputeCapability, Gpu, Link
from shardwright.hardware.inventory import Pool
from shardwright.layouts.captures import Captures
from shardwright.modelspec.model_spec import ModelSpec, Weight


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
    ``max_gpus``. ``held_nodes`` and ``held_gpus`` are those that the model has already, and that
    count in ``max_nodes`` and ``max_gpus``.
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
    held_gpus: int = 0

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


class Remainder(StrEnum):
    """Which pipeline stages get the layers that do not divide."""

    BEFORE_LAST = "BeforeLast"  #: vLLM: the stages just before the last one
    FIRST = "First"  #: TensorRT-LLM: the first stages
    LAST = "Last"  #: SGLang: the last stages


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDefault:
    """The batch that an engine takes on GPUs of this memory and compute capability, or more."""

    gpu_bytes: int
    compute_capability: ComputeCapability  # GPUs that have none always qualify
    tokens: int
    sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOverrides:
    """A user's settings of what an engine would settle by itself; None: it does.

    ``batched_tokens`` and ``sequences`` limit a batch, ``captured`` are the sizes that graphs are
    captured for (empty: none), ``largest_captured`` the largest of them if only that is set.
    ``uncounted`` are options whose effect no plan knows.
    """

    batched_tokens: int | None = None
    sequences: int | None = None
    captured: tuple[int, ...] | None = None
    largest_captured: int | None = None
    uncounted: tuple[str, ...] = ()

    @property
    def eager(self) -> bool:
        """Return whether nothing is captured, so that the host launches every kernel of every
        step.
        """
        return self.captured == ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSlots:
    """Room for adapters (LoRA) beside the weights: ``count`` in one batch, each of ``rank`` at
    most.
    """

    count: int
    rank: int


class DraftMethod(StrEnum):
    """How tokens are drafted ahead of the model that verifies them."""

    PROMPT_LOOKUP = "PromptLookup"  #: tokens that followed the same ones in the prompt
    DRAFT_MODEL = "DraftModel"  #: a second model of the same vocabulary
    EAGLE3 = "EAGLE3"  #: a head that reads the states of some layers of the model
    MTP = "MTP"  #: layers for multi-token prediction in the model's own checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """The weights that draft, as the engine holds them beside those of the model that verifies.

    ``borrowed`` are weights of its target that its passes read: it has none of its own.
    ``embedding`` is its target's: a copy of its own stands on the last of several stages.
    """

    model: ModelSpec
    method: DraftMethod = DraftMethod.DRAFT_MODEL
    borrowed: tuple[Weight, ...] = ()
    embedding: tuple[Weight, ...] = ()

    def held(self, target: Layout) -> ModelSpec:
        """Return what the ranks that draft hold of it.

        Source: vLLM 0.33 ``v1/worker/gpu/spec_decode/eagle/utils.py:maybe_share_target_embed``.
        """
        if target.pipeline == 1 or not self.embedding:
            return self.model
        return _with_embedding(self.model, self.embedding)

    @property
    def further_tokens(self) -> int:
        """Return by how many tokens of a request its first pass has more than the step before it.

        A draft model has seen no state of its target, so it reads the newest token, too. Source:
        vLLM 0.33 ``config/speculative.py:max_num_new_slots_for_drafting``.
        """
        return 1 if self.method is DraftMethod.DRAFT_MODEL else 0

    def drafts(self, tokens: int) -> bool:
        """Return whether it can draft so many tokens a step: beyond one pass, MTP layers take whole
        rounds.

        Source: vLLM 0.33 ``config/speculative.py`` (``num_speculative_tokens`` must be divisible by
        ``n_predict``).
        """
        layers = len(self.model.layers)
        mtp = self.method is DraftMethod.MTP
        return not mtp or tokens <= layers or tokens % layers == 0

    @property
    def steps_with_replicas(self) -> bool:
        """Return whether its passes agree on their tokens with other replicas of the attention.

        Source: vLLM 0.33 ``v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py``
        (``dispatch_cg_and_sync_dp``), which ``standalone_ar/speculator.py`` has not.
        """
        return self.method is not DraftMethod.DRAFT_MODEL

    def layout(self, target: Layout) -> Layout:
        """Return the drafter's layout: MTP layers are cut like their target, all else over tensor
        ranks.

        A draft model with experts deals them out whole if its target does. Source: vLLM 0.33
        ``v1/spec_decode/draft_model.py`` (one tensor degree for both), ``config/speculative.py``
        (``create_draft_parallel_config``).
        """
        if self.method is DraftMethod.MTP:
            return Layout(
                tensor=target.tensor, expert=target.expert, attention_data=target.attention_data
            )
        whole = target.expert > 1 and self.model.experts > 0
        return Layout(tensor=target.tensor, expert=target.tensor if whole else 1)


@lru_cache(maxsize=64)
def _with_embedding(model: ModelSpec, embedding: tuple[Weight, ...]) -> ModelSpec:
    # Results are kept per model by the hash of its config.
    own = f"{model.config_hash}+embedding"
    return replace(model, config_hash=own, weights=(*embedding, *model.weights))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """How an engine fills the batch of one step.

    A GPU that qualifies for none of ``batch_defaults`` gets ``max_batched_tokens`` and
    ``max_sequences``.
    """

    max_batched_tokens: int
    max_sequences: int
    batch_defaults: tuple[BatchDefault, ...] = ()  # the first that qualifies counts
    chunks_prompts: bool = True  # a long prompt is computed in several steps
    mixes_prompts: bool = True  # one step computes prompts and decodes
    reserves_output: bool = False  # a request starts when its whole length fits the K/V
    refuses_long_requests: bool = True  # none may be longer than the model states
    # Tokens of the longest image or video, of architectures where a batch must hold it whole.
    uncut_inputs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """How an engine divides the memory of a GPU; bytes are per rank."""

    # The share of the GPU's memory that it takes; with ``cache_of_free`` that of the K/V cache in
    # what is free beside everything else.
    memory_utilization: float
    kv_block_tokens: int  # the page size of the K/V cache
    vocabulary_padding: int  # rows of the vocabulary are filled up to a multiple of it
    fixed_overhead_bytes: int  # libraries and workspaces that no allocator counts
    communication_overhead_bytes: int  # NCCL and all-reduce over a scale-up link
    host_communication_overhead_bytes: int  # the same over PCIe or in pairs
    graph_bytes: int  # of one layer, captured for one batch size
    graph_sequences: int = 512  # the largest batch that graphs are counted for
    captures: Captures = Captures.EIGHTS_AND_SIXTEENS  # the batches that graphs are captured for
    counts_graphs: bool = True  # graphs are taken from the budget before the K/V cache
    # With recurrent states, graphs are captured for as many sequences as there are blocks.
    block_of_every_sequence: bool = False
    logit_copies: float = 4.0  # FP32 rows of the vocabulary per sequence that samples
    # FP8 K/V beside weights in floating point of fewer bits.
    cache_follows_weights: bool = False
    cache_of_free: bool = False


class PromptSharing(StrEnum):
    """Why no ranks share the tokens of a prompt."""

    REFUSED = "Refused"  #: vLLM: its usual runner takes it for no model
    UNSIZED = "Unsized"  #: TensorRT-LLM: it sizes no K/V cache beside it
    NOT_READ = "NotRead"  #: not looked into


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRules:
    """Which layouts an engine can run; sets name architectures."""

    remainder: Remainder
    without_pipeline: frozenset[str] = frozenset()  # cannot be cut into stages
    experts_at_least_tensor: frozenset[str] = frozenset()  # demand tensor <= experts
    experts_on_every_stage: frozenset[str] = frozenset()  # no stage may be dense
    width_divides_replica: frozenset[str] = frozenset()  # expert width over all ranks
    # Methods of ``quantization_config`` whose FP8 experts get a finer grid where a slice needs it;
    # None: not known, taken as all.
    refines_blocks: frozenset[str] | None = None
    shares_context: bool = True  # tensor ranks can share the tokens of a request
    prompts: PromptSharing = PromptSharing.NOT_READ
    data_beside_tensor: bool = True  # a replica of the attention may have several ranks
    # Experts may be dealt to some ranks, sliced over others.
    mixes_expert_cuts: bool = False
    deals_experts_evenly: bool = False  # every rank must get as many whole experts
    two_shot_sums: bool = True  # its all-reduce for large messages has two steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Weights that an engine keeps on more ranks than hold a share of them; sets name
    architectures.
    """

    ends_on_every_stage: frozenset[str] = frozenset()  # embedding, final norm and head
    embedding_on_every_stage: frozenset[str] = frozenset()  # the embedding alone
    # if whole experts are spread over tensor and attention-data ranks:
    repeats_shared_experts: frozenset[str] = frozenset()
    repeats_dense_layers: frozenset[str] = frozenset()
    pads_shared_experts: frozenset[str] = frozenset()  # up to whole quantization blocks


class AttentionKind(StrEnum):
    """Kinds of attention that an engine has kernels of their own for."""

    DENSE = "Dense"  #: every token sees all before it
    SLIDING = "Sliding"  #: a window
    SINKS = "Sinks"  #: with or without a window, and a logit of every head that no token gives
    LATENT = "Latent"  #: one compressed vector per token
    SELECTED_LATENT = "SelectedLatent"  #: the same, of tokens that an indexer selects
    COMPRESSED_LATENT = "CompressedLatent"  #: the same, of a window and of a compressed context
    SELECTED_BLOCKS = "SelectedBlocks"  #: keys and values of blocks that an indexer selects
    STATE = "State"  #: a state of fixed size in place of K/V


class AttentionNeed(NamedTuple):
    """What a layer asks of a backend: the width of a head as it is cached, K/V as the model has it
    (``auto``) or in ``fp8``, and how many tokens are selected (0: all).
    """

    kind: AttentionKind
    head: int
    cache: str
    selected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBackends:
    """Where a backend serves a need, by what kernels are compiled for (``Gpu.target``).

    A need or a target that was not asked about is not known, and nothing is refused for it.
    """

    targets: frozenset[str]
    serving: Mapping[AttentionNeed, frozenset[str]]

    def refuses(self, need: AttentionNeed, target: str) -> bool:
        """Return whether it is known that no backend serves a need on a target."""
        return target in self.targets and target not in self.serving.get(need, self.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSupport:
    """Which models and GPUs an engine takes. None: not known, and nothing is refused for it.

    ``runs_on`` are the resources (``nvidia.com/gpu``, ...) whose GPUs there are images for, the
    first one preferred if ``proven_first``; images for the ``unproven`` ones have never been run.
    ``oldest_for`` is ``least_capability`` by method of ``quantization_config``
    and format of the weights (``Storage.product``), if it is newer than that.
    """

    architectures: frozenset[str] | None = None
    quantizations: frozenset[str] | None = None  # methods of ``quantization_config``
    takes_adapters: frozenset[str] | None = None  # architectures
    # None on embedding and head.
    adapters_leave_vocabulary: frozenset[str] = frozenset()
    # Tokens at most, of those whose vocabulary takes them.
    adapter_vocabulary: int = 258_048
    # Loaded as MTP layers, never as a draft model.
    becomes_predictor: frozenset[str] = frozenset()
    # Whose MTP layers draft on the last of several stages.
    predicts_over_stages: frozenset[str] = frozenset()
    takes_eagle3: frozenset[str] = frozenset()  # hand out the states of their layers
    # Drafted for by MTP layers of their own.
    takes_predictor: frozenset[str] | None = None
    # Drafts out of the prompt only without stages and replicas of the attention.
    looks_up_alone: bool = False
    runs_on: tuple[str, ...] | None = None  # None: the name of the image does not tell
    unproven: frozenset[str] = frozenset()
    proven_first: bool = False
    least_capability: ComputeCapability | None = None  # the oldest NVIDIA GPUs it runs on
    # The oldest whose kernels widen FP8 weights.
    widens_fp8_from: ComputeCapability | None = None
    oldest_for: Mapping[tuple[str, str], ComputeCapability] = field(default_factory=dict)
    backends: AttentionBackends | None = None  # of attention

    def widens_fp8(self, gpu: Gpu) -> bool:
        """Return whether FP8 weights run on a GPU that has no unit for them."""
        oldest, capability = self.widens_fp8_from, gpu.compute_capability
        new_enough = oldest is not None and (capability is None or capability >= oldest)
        return new_enough and gpu.vendor == "NVIDIA"

    @property
    def takes_first(self) -> str:
        """Return the resource whose GPUs go first, as images are chosen for it; empty if none
        does.
        """
        several = self.runs_on is not None and len(self.runs_on) > 1
        return self.runs_on[0] if self.runs_on and several and self.proven_first else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How a user wants an engine to run, as far as a plan depends on it; by default as it runs by
    itself.
    """

    image: str = ""  # the one that the user named; empty: none
    over_ray: bool = False  # ranks on several nodes are joined by Ray
    kv_cache_bytes: int | None = None  # on every rank; None: the rest of the budget
    adapters: AdapterSlots | None = None
    drafter: Drafter | None = None
    looks_up: bool = False  # drafts are looked up in the prompt
    told: EngineOverrides = field(default_factory=EngineOverrides)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTraits:
    """An engine in one software version, as far as planning is concerned.

    ``released`` is the month of the version (``2026-02``; empty: not known, taken as the newest).
    ``warnings`` of every plan name what is not known of the engine. ``sources`` has the source of
    each figure, by the name of its field.
    """

    name: str  # vLLM
    version: str  # "0.33.0"
    released: str = ""
    batching: BatchRules
    memory: MemoryRules
    cuts: CutRules
    repeats: Repeats = field(default_factory=Repeats)
    support: EngineSupport = field(default_factory=EngineSupport)
    options: EngineOptions = field(default_factory=EngineOptions)
    hands_over_kv: bool = False  # from groups that compute prompts to those that answer
    warnings: tuple[str, ...] = ()
    sources: Mapping[str, str]
