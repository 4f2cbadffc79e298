"""What the planner must know of an engine, handed down as values; planning never imports an
engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shardwright.layouts.layout import Layout
from shardwright.modelspec.spec import ModelSpec, Weight


class Remainder(StrEnum):
    """Which pipeline stages get the layers that do not divide."""

    BEFORE_LAST = "BeforeLast"  #: vLLM: the stages just before the last one
    FIRST = "First"  #: TensorRT-LLM: the first stages
    LAST = "Last"  #: SGLang: the last stages


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDefault:
    """The batch that an engine takes by itself on GPUs of so much memory and this compute
    capability, or more.
    """

    gpu_bytes: int
    compute_capability: tuple[int, int]  # GPUs that have none always qualify
    tokens: int
    sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOverrides:
    """What a user has told an engine that it would settle by itself; None: it does.

    ``batched_tokens`` and ``sequences`` are the limits of a batch, ``captured`` the sizes that
    graphs are captured for (empty: none are), ``largest_captured`` the largest of them where only
    that is said. ``uncounted`` are options that were told and of which no plan knows what they
    change.
    """

    batched_tokens: int | None = None
    sequences: int | None = None
    captured: tuple[int, ...] | None = None
    largest_captured: int | None = None
    uncounted: tuple[str, ...] = ()

    @property
    def eager(self) -> bool:
        """Return whether it is told to capture nothing, so that the host launches every kernel of
        every step.
        """
        return self.captured == ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSlots:
    """Room for adapters (LoRA) beside the weights: ``count`` of them in one batch, each of ``rank``
    at most.
    """

    count: int
    rank: int


class DraftMethod(StrEnum):
    """How tokens are drafted ahead of the model that verifies them."""

    PROMPT_LOOKUP = "PromptLookup"  #: what followed the same tokens in the prompt
    DRAFT_MODEL = "DraftModel"  #: a second model of the same vocabulary
    EAGLE3 = "EAGLE3"  #: a head that reads what layers of the model have computed
    MTP = "MTP"  #: layers for multi-token prediction in the model's own checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """What drafts beside the weights of the model that verifies, as the engine holds it.

    ``borrowed`` are weights of its target that its passes read: it has none of its own.
    """

    model: ModelSpec
    method: DraftMethod = DraftMethod.DRAFT_MODEL
    borrowed: tuple[Weight, ...] = ()

    @property
    def further_tokens(self) -> int:
        """Return by how many tokens of a request its first pass has more than the step before it.

        A draft model has seen no state of its target, so that it reads the newest token, too.
        Source: vLLM 0.33 ``config/speculative.py:max_num_new_slots_for_drafting``.
        """
        return 1 if self.method is DraftMethod.DRAFT_MODEL else 0

    def drafts(self, tokens: int) -> bool:
        """Return whether it drafts so many tokens a step: MTP layers take whole rounds alone beyond
        one pass of all of them.

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
        """Return the engine's layout for the drafter: MTP layers are cut as their target's, all
        else over tensor ranks.

        A draft model with experts deals them out whole where its target does. Source: vLLM 0.33
        ``v1/spec_decode/draft_model.py`` (one tensor degree for both), ``config/speculative.py``
        (``create_draft_parallel_config``).
        """
        if self.method is DraftMethod.MTP:
            return Layout(
                tensor=target.tensor,
                expert=target.expert,
                attention_data=target.attention_data,
            )
        whole = target.expert > 1 and self.model.experts > 0
        return Layout(tensor=target.tensor, expert=target.tensor if whole else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTraits:
    """An engine in one software version, as far as planning is concerned.

    ``without_pipeline`` are architectures that the engine refuses to cut into stages,
    ``architectures`` all that it knows (None: unknown, nothing is refused for it).
    ``memory_utilization`` is the share of the GPU's total memory it takes. ``kv_block_tokens`` is
    the page size. Byte figures are per rank. ``batch_defaults`` say what the engine takes by itself
    on which GPU, the first that qualifies; on other GPUs it is ``max_batched_tokens`` and
    ``max_sequences``. ``logit_copies`` are FP32 rows of the vocabulary per sequence while it
    samples. ``graph_bytes`` are those of one layer captured for one batch size, counted for up to
    ``graph_sequences``; ``counts_graphs`` says whether they are taken from the budget before the
    K/V cache. ``ends_on_every_stage`` are architectures whose class makes embedding, final norm and
    head on every pipeline stage, not only on the first and the last, ``embedding_on_every_stage``
    those that repeat the embedding alone. Where whole experts are spread over tensor and
    attention-data ranks, every rank repeats the shared experts of ``repeats_shared_experts`` and
    the dense layers of ``repeats_dense_layers``; ``pads_shared_experts`` fills their slices up to
    whole quantization blocks. ``experts_on_every_stage`` are architectures whose class demands a
    layer with experts on every pipeline stage. ``quantizations`` are the methods of
    ``quantization_config`` that it takes (None: not known). ``width_divides_replica`` are
    architectures whose class demands that the expert width divides by all ranks of a replica.
    ``runs_on`` are the resources (``nvidia.com/gpu``, ...) whose GPUs there are images for, the one
    to take first (None: the name of the image does not tell, the user answers for it). ``image`` is
    the one that the user named (empty: none). ``released`` is the month of the version
    (``2026-02``; empty: not known, taken as the newest). ``reserves_output`` says that a request
    starts only when its whole length fits the K/V cache, ``cache_follows_weights`` that the cache
    is kept in FP8 where the weights are quantized to floating point, ``refuses_long_requests`` that
    no request may be longer than the model states, ``mixes_prompts`` that one step computes prompts
    and decodes, ``mixes_expert_cuts`` that experts may be dealt to some of the ranks and sliced
    over the rest. ``kv_cache_bytes`` is what every rank is told to keep for K/V, whatever is free
    (None: what the budget leaves). ``adapters`` is the room for adapters that it is told to make
    (None: none). ``takes_adapters`` are the architectures that adapters can be applied to (None:
    not known, none is refused), ``adapters_leave_vocabulary`` those of them whose embedding and
    head take none; the others' vocabulary may have ``adapter_vocabulary`` tokens at most.
    ``drafter`` is what drafts ahead, where it is told to load that (None: nothing),
    ``becomes_predictor`` are architectures that it makes MTP layers of where a draft model is
    meant, ``takes_eagle3`` those that hand the states of their layers to an EAGLE-3 head.
    ``shares_context`` says that tensor ranks can share the tokens of a request,
    ``data_beside_tensor`` that replicas of the attention may each have several tensor ranks,
    ``deals_experts_evenly`` that every rank must get as many whole experts as the others.
    ``over_ray`` says that ranks on several nodes are joined by Ray. ``least_capability`` is the
    compute capability of the oldest NVIDIA GPUs that it runs on (None: not known),
    ``widens_fp8_from`` that of the oldest on which its kernels widen FP8 weights for want of a unit
    (None: it has none). ``oldest_for`` is the same by method of ``quantization_config`` and format
    of the weights (``Storage.product``), where it is newer than that. ``told`` is what a user has
    told it beside. ``warnings`` are what every plan for the engine says of what is not known of it.
    ``sources`` names where each figure comes from.
    """

    name: str  # vLLM
    version: str  # "0.33.0"
    remainder: Remainder
    vocabulary_padding: int
    memory_utilization: float
    kv_block_tokens: int
    max_batched_tokens: int
    max_sequences: int
    fixed_overhead_bytes: (
        int  # libraries and workspaces outside the framework's allocator
    )
    communication_overhead_bytes: (
        int  # NCCL and custom all-reduce buffers of ranks joined by a scale-up link
    )
    host_communication_overhead_bytes: (
        int  # the same of ranks joined by PCIe or in pairs
    )
    graph_bytes: int
    architectures: frozenset[str] | None
    without_pipeline: frozenset[str]
    experts_at_least_tensor: frozenset[
        str
    ]  # architectures that demand tensor <= experts
    sources: Mapping[str, str]
    ends_on_every_stage: frozenset[str] = frozenset()
    embedding_on_every_stage: frozenset[str] = frozenset()
    repeats_shared_experts: frozenset[str] = frozenset()
    repeats_dense_layers: frozenset[str] = frozenset()
    pads_shared_experts: frozenset[str] = frozenset()
    experts_on_every_stage: frozenset[str] = frozenset()
    quantizations: frozenset[str] | None = None
    width_divides_replica: frozenset[str] = frozenset()
    runs_on: tuple[str, ...] | None = None
    image: str = ""
    released: str = ""
    reserves_output: bool = False
    cache_follows_weights: bool = False
    refuses_long_requests: bool = True
    mixes_expert_cuts: bool = False
    mixes_prompts: bool = True
    batch_defaults: tuple[BatchDefault, ...] = ()
    logit_copies: float = 4.0
    graph_sequences: int = 512
    counts_graphs: bool = True
    chunks_prompts: bool = True
    kv_cache_bytes: int | None = None
    adapters: AdapterSlots | None = None
    takes_adapters: frozenset[str] | None = None
    adapters_leave_vocabulary: frozenset[str] = frozenset()
    adapter_vocabulary: int = 258_048
    drafter: Drafter | None = None
    becomes_predictor: frozenset[str] = frozenset()
    takes_eagle3: frozenset[str] = frozenset()
    shares_context: bool = True
    data_beside_tensor: bool = True
    deals_experts_evenly: bool = False
    over_ray: bool = False
    least_capability: tuple[int, int] | None = None
    widens_fp8_from: tuple[int, int] | None = None
    oldest_for: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    told: EngineOverrides = field(default_factory=EngineOverrides)
    warnings: tuple[str, ...] = ()

    @property
    def takes_first(self) -> str:
        """Return the resource whose GPUs go before others: the first that images are chosen for;
        empty where none does.
        """
        return self.runs_on[0] if self.runs_on and len(self.runs_on) > 1 else ""
