"""The status of a ShardedModel, field by field, never read as input.

``plan_status`` fills it from a report; the reconciler adds conditions, groups and counts.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, StringConstraints
from pydantic.alias_generators import to_camel

from shardwright.sinks import in_status, in_status_lines

SENTENCE_MAX_LENGTH: Final = 1024
MESSAGE_MAX_LENGTH: Final = 4096
NODES_MAX_ITEMS: Final = 512
STAGES_MAX_ITEMS: Final = 256
REASONS_MAX_ITEMS: Final = 32
ALTERNATIVES_MAX_ITEMS: Final = 8
LOSSES_MAX_ITEMS: Final = 16
EXCLUSIONS_MAX_ITEMS: Final = 64
GROUPS_MAX_ITEMS: Final = 1000
GROUP_NODES_MAX_ITEMS: Final = 64
DEFAULTS_MAX_ITEMS: Final = 128
STEPS_MAX_ITEMS: Final = 8
FRONT_MAX_ITEMS: Final = 8
WITHOUT_MAX_ITEMS: Final = 3
FIELDS_MAX_ITEMS: Final = 8

_LIST: Final[dict[str, JsonValue]] = {"x-kubernetes-list-type": "atomic"}

Name = Annotated[str, StringConstraints(max_length=253)]
ShortWord = Annotated[str, StringConstraints(max_length=64)]


def _sentence(value: object) -> object:
    return in_status(value, SENTENCE_MAX_LENGTH) if isinstance(value, str) else value


def _quotation(value: object) -> object:
    return in_status_lines(value, SENTENCE_MAX_LENGTH) if isinstance(value, str) else value


Sentence = Annotated[
    str, BeforeValidator(_sentence), StringConstraints(max_length=SENTENCE_MAX_LENGTH)
]
Quotation = Annotated[
    str, BeforeValidator(_quotation), StringConstraints(max_length=SENTENCE_MAX_LENGTH)
]
Count = Annotated[int, Field(ge=0, le=2_147_483_647)]
Bytes = Annotated[int, Field(ge=-(2**53), le=2**53)]
Microseconds = Annotated[int, Field(ge=0, le=2**53)]
Quantified = Annotated[float, Field(ge=0, le=2**53)]
MoreOrLess = Annotated[int, Field(ge=-100, le=2_147_483_647)]


class Shown(BaseModel):
    """A piece of status, camelCase on the wire; its validator is built on first use, because most
    commands show none of it.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        extra="forbid",
        frozen=True,
        defer_build=True,
    )


class ShownCondition(Shown):
    """A condition as the Kubernetes API conventions define it."""

    type: Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Z][A-Za-z]*$")] = Field(
        description="Ready, Planned, Reconciling, Stalled, Degraded or PlanStale."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    observed_generation: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        default=None, description="Generation of the spec that it was found for."
    )
    last_transition_time: Annotated[
        str, StringConstraints(max_length=64), Field(json_schema_extra={"format": "date-time"})
    ] = Field(description="When its status last changed.")
    reason: Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Z][A-Za-z]*$")] = Field(
        description="Why, in one word; explained in the reference."
    )
    message: Annotated[str, StringConstraints(max_length=MESSAGE_MAX_LENGTH)] = Field(
        default="", description="Why, in a sentence: the fault, the limit, the gap, the way out."
    )


class ShownLayout(Shown):
    """The degrees."""

    tensor: Count = Field(description="Tensor-parallel degree.")
    pipeline: Count = Field(description="Pipeline stages.")
    expert: Count = Field(
        description="Expert-parallel degree: 1 when experts are sliced by tensor."
    )
    data_parallel_attention: Count = Field(
        description="Data-parallel degree of the attention inside a replica."
    )
    context: Count = Field(description="Context-parallel degree; adds no GPUs.")
    partition: list[Count] | None = Field(
        default=None,
        max_length=STAGES_MAX_ITEMS,
        description="Layers of every pipeline stage, if they are not the engine's own cut.",
        json_schema_extra=_LIST,
    )
    replicas: Count = Field(description="Groups, each a copy of the model.")
    gpus_per_replica: Count = Field(description="GPUs of one group.")
    nodes_per_replica: Count = Field(description="Nodes of one group.")


class ShownPlacement(Shown):
    """Nodes and links of the plan."""

    nodes: list[Name] = Field(
        max_length=NODES_MAX_ITEMS,
        description="Planned nodes of all groups, sorted; cut at 512.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    gpus_per_node: Count = Field(description="GPUs that each pod takes on its node.")
    tensor_link: Sentence = Field(description="Slowest link that tensor-parallel traffic crosses.")
    pipeline_link: Sentence = Field(description="Slowest link that pipeline traffic crosses.")


class ShownStage(Shown):
    """Memory of the fullest rank of a pipeline stage."""

    stage: Count = Field(description="Pipeline stage, from 0.")
    first_layer: Count = Field(description="First layer of the stage, from 0.")
    layers: Count = Field(description="Layers of the stage.")
    weights_bytes: Bytes = Field(
        description="Weights, with the slots of adapters and a draft model."
    )
    adapter_bytes: Bytes | None = Field(
        default=None, description="Of the weights, the slots of adapters."
    )
    draft_bytes: Bytes | None = Field(default=None, description="Of the weights, the draft model.")
    activations_bytes: Bytes = Field(description="Activations of one step.")
    overhead_bytes: Bytes = Field(description="Context, communication buffers and CUDA graphs.")
    kv_cache_bytes: Bytes = Field(description="Memory left for the K/V cache.")
    budget_bytes: Bytes = Field(description="Memory of the GPU that the engine may take.")


class ShownMemory(Shown):
    """Memory of the plan."""

    stages: list[ShownStage] = Field(
        max_length=STAGES_MAX_ITEMS,
        description="One entry per pipeline stage.",
        json_schema_extra=_LIST,
    )
    kv_cache_tokens: Annotated[int, Field(ge=0, le=2**53)] = Field(
        description="Tokens that one replica's K/V cache holds."
    )
    load_bytes_per_node: Bytes = Field(description="Bytes that each node reads at start.")


class ShownLimits(Shown):
    """Limits that the engine is started with."""

    max_model_len: Count = Field(description="Longest request in tokens.")
    max_sequences: Count = Field(description="Requests in one batch at most.")
    max_batched_tokens: Count = Field(description="Tokens of one step at most.")
    memory_utilization_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        description="Share of the GPU's memory that the engine takes, in percent; with "
        "TensorRT-LLM that of the K/V cache in what is free beside everything else."
    )


class ShownTime(Shown):
    """A part of the time of an output token."""

    part: ShortWord = Field(
        description="The part: Weights, KvCache, Compute, "
        "...Communication, Bubble, Prefill, Overhead."
    )
    microseconds: Count = Field(description="How long.")


class ShownPrediction(Shown):
    """Means at the planned load."""

    ttft_milliseconds: Count = Field(description="Time to first token.")
    tpot_milliseconds: Count = Field(
        description="Time per output token, rounded; see tpotMicroseconds."
    )
    tpot_microseconds: Microseconds | None = Field(
        default=None, description="Time per output token."
    )
    output_tokens_per_second: Count = Field(description="Output tokens per second of all replicas.")
    low: Count = Field(description="Lower end of the 80% band of the output tokens per second.")
    high: Count = Field(description="Upper end of the 80% band of the output tokens per second.")
    basis: ShortWord = Field(description="Basis of the figures: fitted or modelled.")
    requests_per_second_at_most: Quantified | None = Field(
        default=None,
        description="Requests a second that all replicas serve at most, where a rate is offered.",
    )
    token_time: list[ShownTime] | None = Field(
        default=None,
        max_length=16,
        description="Parts of the time of an output token.",
        json_schema_extra=_LIST,
    )
    million_output_tokens_price: ShortWord | None = Field(
        default=None,
        description="Cost of a million output tokens, in the currency of the nodes' "
        "gpu-hour-price.",
    )


class ShownLoss(Shown):
    """One fact of the comparison of a layout with the chosen one."""

    kind: ShortWord = Field(
        description="NotDeployable, Tight, FallsBehind, NoHeadroom, Queues, ThroughputPerGpu, "
        "ThroughputForPrice, TimePerToken, TimeToFirstToken or PartOfToken."
    )
    percent: MoreOrLess | None = Field(
        default=None,
        description="Of throughput and times: how much more it has than the chosen layout; less "
        "if negative.",
    )
    requests: Count | None = Field(
        default=None, description="Queues: requests that run at once per replica."
    )
    requests_per_second: ShortWord | None = Field(
        default=None,
        description="FallsBehind, NoHeadroom: requests a second that are served at most.",
    )
    part: ShortWord | None = Field(
        default=None, description="PartOfToken: the part, as in tokenTime."
    )
    microseconds: Microseconds | None = Field(
        default=None, description="PartOfToken: how much longer it takes."
    )


class ShownAlternative(Shown):
    """A layout that would also run."""

    tensor: Count = Field(description="Tensor-parallel degree.")
    pipeline: Count = Field(description="Pipeline stages.")
    expert: Count = Field(description="Expert-parallel degree.")
    data_parallel_attention: Count = Field(
        description="Data-parallel degree of the attention inside a replica."
    )
    replicas: Count = Field(description="Groups.")
    pool: Name = Field(description="Nodes it would run on.")
    ttft_milliseconds: Count = Field(description="Time to first token.")
    tpot_milliseconds: Count = Field(
        description="Time per output token, rounded; see tpotMicroseconds."
    )
    tpot_microseconds: Microseconds | None = Field(
        default=None, description="Time per output token."
    )
    output_tokens_per_second: Count = Field(description="Output tokens per second of all replicas.")
    million_output_tokens_price: ShortWord | None = Field(
        default=None, description="Cost of a million output tokens."
    )
    gpu_hour_price: ShortWord | None = Field(
        default=None,
        description="Price of one of its GPUs for an hour, in the unit of price.gpuHour.",
    )
    gpu_hour_price_basis: ShortWord | None = Field(
        default=None,
        description="Stated, or Listed or Assumed: then the price is in hours of an H100.",
    )
    loses: Sentence = Field(description="Its losses against the chosen one, in words.")
    losses: list[ShownLoss] | None = Field(
        default=None,
        max_length=LOSSES_MAX_ITEMS,
        description="The same for programs.",
        json_schema_extra=_LIST,
    )


class ShownExclusion(Shown):
    """One reason, with the layouts or nodes that it ruled out."""

    code: ShortWord = Field(description="The reason, in one word; explained in the reference.")
    count: Count = Field(description="Layouts or nodes that it ruled out.")
    example: Sentence = Field(description="One of them.")
    nearest_miss: Sentence = Field(description="The one that came closest.")


class ShownPrice(Shown):
    """The price of one GPU of the plan for an hour, as layouts were compared by it."""

    gpu_hour: ShortWord = Field(
        description="The price: hours of an H100, or the owner's currency if the price is stated."
    )
    basis: ShortWord = Field(
        description="Stated (gpuHourPrices, gpu-hour-price), "
        "Listed (public price lists) or Assumed (data sheet)."
    )
    source: Sentence = Field(default="", description="Source of the price; empty if it is stated.")


class ShownStep(Shown):
    """A number of replicas, and the load up to which they carry."""

    replicas: Count = Field(description="Replicas.")
    gpus: Count = Field(description="GPUs of these.")
    concurrency: Count | None = Field(
        default=None, description="Requests in flight up to which they carry the load."
    )
    requests_per_second: Quantified | None = Field(
        default=None, description="The same of a rate: with headroom, within the limits."
    )
    hour_price: Quantified | None = Field(
        default=None, description="Price of the GPUs for an hour, in the unit of price.gpuHour."
    )


class ShownFront(Shown):
    """A layout that no other beats in tokens per user and per GPU."""

    layout: ShortWord = Field(description="Degrees, with the number of replicas.")
    gpus: Count = Field(description="GPUs of all replicas.")
    pool: Name | None = Field(default=None, description="Its nodes, if not the plan's.")
    planned: bool | None = Field(
        default=None, description="True: it is the plan, which another may beat."
    )
    output_tokens_per_second_per_user: Quantified = Field(
        description="Output tokens a second that a request gets at the planned load."
    )
    output_tokens_per_second_per_gpu: Quantified = Field(
        description="Output tokens a second of each GPU at the planned load."
    )


class ShownRatios(Shown):
    """Figures of another plan as multiples of this one's."""

    price: Quantified = Field(description="Price of the GPUs.")
    output: Quantified = Field(description="Output tokens a second.")
    seconds: Quantified = Field(description="Time of an answer.")


class ShownWithout(Shown):
    """What there would be without fields of the user's own."""

    fields: list[Sentence] = Field(
        max_length=FIELDS_MAX_ITEMS,
        description="The fields, by their paths.",
        json_schema_extra=_LIST,
    )
    gain: ShortWord = Field(
        description="Fits (there is a plan at all), Deployable, CarriesLoad, Cheaper, Throughput "
        "or Sooner."
    )
    layout: ShortWord = Field(description="Degrees of the plan then.")
    replicas: Count = Field(description="Its replicas.")
    gpus: Count = Field(description="GPUs of these.")
    pool: Name = Field(description="Its nodes.")
    product: Name = Field(description="GPU product of these.")
    carries_load: bool = Field(description="Whether it carries the load.")
    compared_with_plan: ShownRatios | None = Field(
        default=None, description="Its figures as multiples of the plan's."
    )
    message: Sentence = Field(description="All of this in words.")


class ShownPlan(Shown):
    """The plan; without a layout when nothing fits."""

    layout: ShownLayout | None = Field(default=None, description="The degrees that were chosen.")
    missing: Count | None = Field(
        default=None,
        description="Replicas that are wanted beside these and have no place; all figures are of "
        "those that have one.",
    )
    nodes: Count | None = Field(default=None, description="Nodes of all replicas.")
    gpus: Count | None = Field(default=None, description="GPUs of all replicas.")
    replica_requests: Count | None = Field(
        default=None,
        description="Requests in flight that one replica just holds within the limits; if there "
        "are none, those that run at once.",
    )
    pool: Name | None = Field(
        default=None, description="Nodes that it runs on: alike in everything that is planned with."
    )
    product: Name | None = Field(default=None, description="GPU product of the nodes.")
    resource: Name | None = Field(
        default=None, description="Extended resource that the pods request."
    )
    placement: ShownPlacement | None = Field(
        default=None, description="Nodes and links of the plan."
    )
    memory: ShownMemory | None = Field(default=None, description="Memory per stage.")
    limits: ShownLimits | None = Field(
        default=None, description="Limits that the engine is started with."
    )
    predicted: ShownPrediction | None = Field(
        default=None, description="Predicted means at the planned load."
    )
    price: ShownPrice | None = Field(
        default=None,
        description="Price of its GPUs; left out if there was one kind of GPU, without a price.",
    )
    carries_load: bool | None = Field(
        default=None,
        description="Whether the K/V cache holds the whole planned load without queueing.",
    )
    tight: bool | None = Field(
        default=None,
        description="True: one longest request fits by less "
        "than the memory may be off, it may not start.",
    )
    reasons: list[Sentence] | None = Field(
        default=None,
        max_length=REASONS_MAX_ITEMS,
        description="Why this one.",
        json_schema_extra=_LIST,
    )
    warnings: list[Sentence] | None = Field(
        default=None,
        max_length=REASONS_MAX_ITEMS,
        description="Things to know before relying on it.",
        json_schema_extra=_LIST,
    )
    alternatives: list[ShownAlternative] | None = Field(
        default=None,
        max_length=ALTERNATIVES_MAX_ITEMS,
        description="The best others, then the best on each of up to 4 further kinds of GPU.",
        json_schema_extra=_LIST,
    )
    excluded: list[ShownExclusion] | None = Field(
        default=None,
        max_length=EXCLUSIONS_MAX_ITEMS,
        description="The ruled-out layouts and nodes, by reason.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["code"]},
    )
    considered: Count | None = Field(default=None, description="Layouts that were looked at.")
    waiting_helps: bool | None = Field(
        default=None,
        description="If all or some replicas have no place: whether they get one without a change "
        "of the spec or the hardware, as GPUs come free or nodes become ready.",
    )
    over_load: list[ShownStep] | None = Field(
        default=None,
        max_length=STEPS_MAX_ITEMS,
        description="GPUs and price over the load, up to twice the planned replicas.",
        json_schema_extra=_LIST,
    )
    over_speed: list[ShownFront] | None = Field(
        default=None,
        max_length=FRONT_MAX_ITEMS,
        description="Tokens per GPU over tokens per user: layouts that none beats in both, the "
        "fastest for a user first.",
        json_schema_extra=_LIST,
    )
    without: list[ShownWithout] | None = Field(
        default=None,
        max_length=WITHOUT_MAX_ITEMS,
        description="Fields of the user's own without which there is a plan, or one that is a "
        "third better.",
        json_schema_extra=_LIST,
    )


class ShownFailure(Shown):
    """Why a group failed last."""

    rank: Count = Field(description="Rank of the pod that failed.")
    container: Name = Field(
        default="", description="Container that failed; empty if it was the pod."
    )
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = Field(
        default=None, description="Its exit code, if it exited."
    )
    reason: Sentence = Field(description="Why, as the kubelet says it.")
    message: Quotation | None = Field(
        default=None, description="The end of its output, or of the message on its failure."
    )


class ShownGroup(Shown):
    """One copy of the model."""

    name: Name = Field(description="Name of its StatefulSet.")
    ready: bool = Field(
        description="Whether it serves: all its pods are ready together, whatever their revision."
    )
    nodes: list[Name] | None = Field(
        default=None,
        max_length=GROUP_NODES_MAX_ITEMS,
        description="Node of each rank's pod, in order; empty if the pod is not bound yet.",
        json_schema_extra=_LIST,
    )
    waiting: Sentence | None = Field(
        default=None,
        description="The cause of its wait, if it does not serve, or not yet as the spec says.",
    )
    restarts: Count | None = Field(default=None, description="Restarts of the group.")
    last_failure: ShownFailure | None = Field(default=None, description="Why it failed last.")
    last_outage_seconds: Count | None = Field(
        default=None,
        description="How long its last restart took, from its stop until all its ranks were ready.",
    )


class ShownStartBudget(Shown):
    """How long an engine may take until it serves; then its pod starts anew."""

    load_seconds: Count = Field(
        description="Seconds to start, load and compile, from when all ranks of the group have met."
    )
    basis: Sentence = Field(
        description="How they came about: bytes to load, at which speed, and the fixed times."
    )


class ShownEngine(Shown):
    """The engine as it was resolved."""

    name: ShortWord = Field(description="Engine that serves the model.")
    version: ShortWord = Field(
        description="Its version: the one that is stated, or that the image's tag tells."
    )
    image: Annotated[str, StringConstraints(max_length=SENTENCE_MAX_LENGTH)] = Field(
        description="Container image of the pods."
    )
    defaults: list[Sentence] | None = Field(
        default=None,
        max_length=DEFAULTS_MAX_ITEMS,
        description="Fields that were not set and came from the operator's engineDefaults, as "
        "engine.image; cut at 128.",
        json_schema_extra=_LIST,
    )
    start_budget: ShownStartBudget | None = Field(
        default=None,
        description="How long an engine may take until it "
        "serves, or it starts anew; if the plan is deployed.",
    )


class ShownRevision(Shown):
    """One set of spec, config, engine version and plan that all groups of the model have served
    with.
    """

    revision: Count = Field(
        description="Its number, for the annotation shardwright.io/rollback-to."
    )
    hash: ShortWord = Field(description="Tells one revision from another.")
    digest: ShortWord = Field(
        description="SHA-256 of the contents of its ControllerRevision: one with other contents is "
        "not believed."
    )
    image: Annotated[str, StringConstraints(max_length=SENTENCE_MAX_LENGTH)] = Field(
        description="Container image of its pods."
    )
    kept_at: ShortWord = Field(description="When all groups served with it.")
    runs: bool = Field(description="Whether groups run it, or are to run it, now.")
    pods: ShortWord | None = Field(
        default=None, description="Hash of its pods as this release of the operator renders them."
    )


class Status(Shown):
    """The plan, and the state of its groups."""

    observed_generation: Annotated[int, Field(ge=-1, le=2**53)] | None = Field(
        default=None,
        description="Generation of the spec that this status is about; -1: the operator has not "
        "looked at it yet.",
    )
    conditions: list[ShownCondition] | None = Field(
        default=None,
        max_length=24,
        description="Ready is the summary. Planned, Reconciling, Stalled, Degraded and PlanStale "
        "are always there, all others only while they are True.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    engine: ShownEngine | None = Field(
        default=None, description="The engine as it was resolved, with the operator's defaults."
    )
    plan: ShownPlan | None = Field(
        default=None, description="The plan, its reasons and the ruled-out layouts and nodes."
    )
    record_serial: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        default=None,
        description="Number of the newest plan of record: an "
        "earlier one that somebody puts back is not believed.",
    )
    revisions: list[ShownRevision] | None = Field(
        default=None,
        max_length=3,
        description="Revisions that all groups served with, newest last: each can be restored.",
        json_schema_extra=_LIST,
    )
    surplus_revisions: list[ShortWord] | None = Field(
        default=None,
        max_length=8,
        description="Digests of revisions that are no longer kept and that the API server has "
        "not deleted yet.",
        json_schema_extra=_LIST,
    )
    groups: list[ShownGroup] | None = Field(
        default=None,
        max_length=GROUPS_MAX_ITEMS,
        description="The groups that exist. If they would take more than 256 KiB, those "
        "that do not serve are shown whole first; of the rest only whether they serve.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    summary: list[Sentence] | None = Field(
        default=None,
        max_length=3,
        description="The status at a glance: the plan, its state, and the URL.",
        json_schema_extra=_LIST,
    )
    layout: ShortWord | None = Field(
        default=None,
        description="The layout of one replica in letters, as "
        "TP8·PP2 or DP32·EP32: tensor, pipeline, data, expert.",
    )
    ready: ShortWord | None = Field(
        default=None,
        description="Groups that serve, whatever their revision, of those that are wanted, as 1/2.",
    )
    gpus: Count | None = Field(
        default=None, description="GPUs of all replicas, by the plan that runs or is to run."
    )
    replicas: Count | None = Field(default=None, description="Groups that exist.")
    ready_replicas: Count | None = Field(
        default=None, description="Groups that serve, whatever their revision."
    )
    updated_replicas: Count | None = Field(
        default=None,
        description="Groups that serve as the spec says: 0 while it is refused or rolled back.",
    )
    selector: Annotated[str, StringConstraints(max_length=SENTENCE_MAX_LENGTH)] | None = Field(
        default=None, description="Label selector of one pod per group, for autoscalers."
    )
    endpoint: Annotated[str, StringConstraints(max_length=SENTENCE_MAX_LENGTH)] | None = Field(
        default=None, description="Its http URL inside the cluster."
    )
    clients: Sentence | None = Field(
        default=None, description="Who may send it requests, by its NetworkPolicy and API key."
    )
