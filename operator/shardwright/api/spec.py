"""The spec of a ShardedModel, field by field: type, bound, default, description.

``kubectl explain`` prints these descriptions, and the API server enforces types and bounds:
``schema`` makes the CRD of them. Rules between fields are in ``rules``.

``spec.engine``: the engine, its requests and K/V, drafts, options, environment and executor.

``engines.options`` checks which options an engine has and who may set them.

The fields of the spec for the life of groups, unknown to the planner: restarts and readiness.

``spec.model``: the model to serve, the address of its weights, and adapters.

``spec.workload``: the load that the plan is made for, in means of lengths and arrivals.
"""

from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shardwright.api.disaggregation import Disaggregation
from shardwright.api.parts import (
    IMAGE,
    LABEL_KEY,
    ArgumentValue,
    DataKey,
    Degree,
    LabelValue,
    MigProfile,
    ObjectName,
    Part,
    QueueName,
    Tokens,
    unsaid,
)
from shardwright.api.pod_spec import Pod
from shardwright.api.routing import Routing
from shardwright.api.scaling import Scaling, ServingRules
from shardwright.api.weights_source import (
    BUCKETS,
    CLAIM,
    COMMIT,
    HUB,
    IMAGE_VOLUME,
    MODEL_ID,
    PartUri,
    Weights,
    place_of,
    scheme_of,
)
from shardwright.engines.environment import is_admissible
from shardwright.engines.launch import DEFAULT_ADAPTER_RANK
from shardwright.engines.registry import ENGINES
from shardwright.layouts.layout import MOST_REPLICAS

Executor = Literal["Native", "Ray"]
"""Who joins the ranks of a group over several nodes."""


OF_ONE_MODEL: Final = ("maxModelLen", "kvCacheQuantization", "kvOffload", "speculation")
"""Fields of ``spec.engine`` that have no default for all models: they go with one, and its load."""


class EnvironmentVariable(Part):
    """One environment variable of the engine container."""

    name: Annotated[str, StringConstraints(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = (
        Field(
            description="Name of the variable: a setting of the engine "
            "or its libraries that is listed, or that the administrator "
            "admits. Those that the operator sets itself are refused."
        )
    )
    value: Annotated[str, StringConstraints(max_length=4096, pattern=r"^[^\x00]*$")] = Field(
        default="", description="Value, taken literally: $(NAME) is not expanded."
    )


class ApiKeyReference(Part):
    """A key of a Secret in the same namespace, whose value clients must bring."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: ObjectName = Field(description="Name of the Secret, in the namespace of this resource.")
    key: DataKey = Field(
        default="api-key",
        description="Key that holds the API key: ASCII without spaces or line breaks.",
    )


class DraftHead(Part):
    """A model or a head beside the served model: its config, and the address of its weights."""

    id: Annotated[str, StringConstraints(max_length=193, pattern=MODEL_ID)] = Field(
        description="Hugging Face id of the draft model or head. The architecture of a draft "
        "model comes from the built-in catalogue unless config gives it."
    )
    config: dict[str, Any] | None = Field(
        default=None,
        max_length=256,
        description="Its config.json itself.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    uri: PartUri = Field(
        description="Address of its weights. hf://ID@COMMIT is downloaded from the hub before the "
        "engine starts, with the token of weights.secretRef, if any. pvc://CLAIM/PATH is read from "
        "a PersistentVolumeClaim of the namespace."
    )


class Speculation(Part):
    """Tokens that are drafted ahead, and verified by the model in one step."""

    method: Literal["MTP", "EAGLE3", "DraftModel", "PromptLookup"] = Field(
        description="The drafter. MTP: layers of the model's own "
        "checkpoint. EAGLE3: a head that was trained for it. DraftModel: "
        "a small model of the same vocabulary. PromptLookup: the prompt."
    )
    tokens: Annotated[int, Field(ge=1, le=16)] | None = Field(
        default=None,
        description="Tokens that are drafted and verified in every step. Default: what serves "
        "most at the load.",
    )
    acceptance_percent: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="Chance that a drafted token is accepted, after all before it were; planned "
        "with, measure it. Default: assumed by method, with a wider band.",
    )
    head: DraftHead | None = Field(
        default=None, description="The head or model that drafts, of EAGLE3 and DraftModel."
    )


class KvOffload(Part):
    """K/V of prompts that were computed before, kept in the memory of the node beside the K/V cache
    of the GPUs.
    """

    host_memory: Annotated[
        str, StringConstraints(max_length=16, pattern=r"^(Auto|[1-9][0-9]{0,5}(Gi|Ti))$")
    ] = Field(
        default="Auto",
        description="Memory of its node for each pod, as 256Gi, besides that of the engine's "
        "processes. Auto: the memory that the nodes of the plan have left for a pod.",
    )


MediaHost = Annotated[
    str,
    StringConstraints(
        max_length=253, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"
    ),
]


class Engine(Part):
    """The inference engine."""

    name: Literal["vLLM", "TensorRTLLM", "SGLang"] = Field(
        default="vLLM",
        description="Engine that serves the model. TensorRTLLM needs an image; it and SGLang "
        "need NVIDIA GPUs.",
    )
    image: Annotated[str, StringConstraints(max_length=512, pattern=IMAGE)] | None = Field(
        default=None,
        description="Container image. Default: vLLM's own release image "
        "of the version, for AMD's GPUs vllm/vllm-openai-rocm. One of "
        "TensorRT-LLM must hold sshd for a model on several nodes.",
    )
    version: (
        Annotated[str, StringConstraints(max_length=32, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] | None
    ) = Field(
        default=None,
        description="Engine version in the image, as 0.33.0. Plans and arguments "
        "are checked against its rules. Default: the newest version that is known.",
    )
    args: dict[str, ArgumentValue] = Field(
        default_factory=dict,
        max_length=64,
        description="Engine options without leading dashes, with typed values, as "
        "enable-prefix-caching: false. Options that "
        "the plan decides, or that open the server or the node, are refused; true sets a switch "
        "and false its negative.",
        json_schema_extra={"x-kubernetes-map-type": "granular"},
    )
    family_defaults: Literal["Auto", "None"] | None = Field(
        default=None,
        description="With vLLM: whether it is told the parsers of tool calls and of reasoning that "
        "the model's family wants, "
        "if args do not set them. Auto: it is, if the family is known; None: it is not. "
        "Default: Auto.",
    )
    executor: Executor | None = Field(
        default=None,
        description="With vLLM: who joins the ranks of a group over several nodes. Native: the "
        "engine itself. Ray: a Ray cluster of the group's own, for those who need one; the "
        "image must have Ray in it. Groups of one node are the same with both. Default: Native.",
    )
    max_model_len: Tokens | None = Field(
        default=None,
        description="Longest request, prompt and answer together, in tokens; longer ones "
        "are refused. Default: as long as model and K/V cache hold where that costs no GPU and "
        "keeps none of the load waiting, at least workload.inputTokens + outputTokens.",
    )
    kv_cache_quantization: Literal["Auto", "FP8"] | None = Field(
        default=None,
        description="How the K/V cache is held. Auto: as "
        "the model computes. FP8: one byte per element. Default: Auto.",
    )
    kv_offload: KvOffload | None = Field(
        default=None,
        description="Keep K/V that the GPUs have no room for in the memory of the nodes, so that "
        "prompts that come again are not "
        "computed again. Pods request it. For vLLM.",
    )
    speculation: Speculation | None = Field(
        default=None,
        description="Speculative decoding; the engine is started with it, and the plan counts the "
        "weights, K/V and passes of the drafter. For vLLM.",
    )
    api_key_secret_ref: ApiKeyReference | None = Field(
        default=None,
        description="With vLLM: Secret with the API key that clients must send "
        "(Authorization: Bearer ...). Only the kubelet reads it, never the operator; pods "
        "get it when they start. Default: everybody who reaches the Service is served.",
    )
    media_domains: list[MediaHost] | None = Field(
        default=None,
        max_length=32,
        description="With vLLM and SGLang: hosts from which requests may have images, sound and "
        "video fetched, as images.example.com; no redirect leads to another. Default: none, "
        "requests bring them.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    env: list[EnvironmentVariable] = Field(
        default_factory=list,
        max_length=64,
        description="Environment variables of the engine.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


def may_be_set(variable: EnvironmentVariable) -> bool:
    """Return whether an administrator may at least admit a variable."""
    return is_admissible(variable.name)


def routed_is_vllm(spec: "Spec") -> bool:
    """Return whether a router is asked only for the engine whose requests it reads."""
    return spec.routing is None or spec.routing.mode != "Router" or spec.engine.name == "vLLM"


def is_half(spec: "Spec") -> bool:
    """Return whether groups do a part of each request only."""
    return spec.phase not in (None, "Whole")


def half_has_plain_kv(spec: "Spec") -> bool:
    """Return whether a half has nothing whose K/V the other half would not find."""
    beside = (spec.engine.speculation, spec.engine.kv_offload, spec.model.adapters or None)
    return not is_half(spec) or beside == (None, None, None)


def half_is_by_itself(spec: "Spec") -> bool:
    """Return whether no autoscaler moves one half alone, and none is made of a half."""
    return not is_half(spec) or (spec.scaling, spec.disaggregation) == (None, None)


def half_is_one_stage(spec: "Spec") -> bool:
    """Return whether a half is asked for no pipeline."""
    return not is_half(spec) or _is_one_stage(spec.parallelism)


def half_is_routed_where_it_answers(spec: "Spec") -> bool:
    """Return whether of two halves only the one that answers has a routing, by a router."""
    mode = spec.routing.mode if spec.routing else "Service"
    return not is_half(spec) or mode == "Service" or (spec.phase, mode) == ("Decode", "Router")


def is_paired(spec: "Spec") -> bool:
    """Return whether prompts and answers may be put apart."""
    return spec.disaggregation is not None and spec.disaggregation.mode != "Off"


def a_pair_has_a_router(spec: "Spec") -> bool:
    """Return whether prompts and answers are put apart only behind a router, which joins them."""
    return not is_paired(spec) or (spec.routing is not None and spec.routing.mode == "Router")


def a_pair_has_no_stages(spec: "Spec") -> bool:
    """Return whether no pipeline is pinned where prompts and answers may be put apart."""
    return not is_paired(spec) or _is_one_stage(spec.parallelism)


def _is_one_stage(pins: "Parallelism | None") -> bool:
    return pins is None or max(pins.pipeline or 1, len(pins.partition)) == 1


def ray_is_for_vllm(engine: Engine) -> bool:
    """Return whether Ray is asked only of an engine that it is rendered for."""
    return engine.executor != "Ray" or ENGINES[engine.name].over_ray


def has_a_head_where_one_drafts(speculation: Speculation) -> bool:
    """Return whether a head is given if the method has one, and none if it has not."""
    return (speculation.head is not None) == (speculation.method in ("EAGLE3", "DraftModel"))


class Restart(Part):
    """How a group of several pods that failed starts again; a single pod is restarted in place by
    the kubelet.
    """

    delay_seconds: Annotated[int, Field(ge=0, le=3600)] = Field(
        default=30,
        description="Pause before the second restart in a row, "
        "doubling with every further one. The first is at once.",
    )
    max_delay_seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(
        default=600,
        description="Longest pause, and the pause between tries when the budget is spent.",
    )
    stable_seconds: Annotated[int, Field(ge=0, le=86_400)] = Field(
        default=600, description="Service without a failure after which failures are counted anew."
    )
    budget: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=6,
        description="Failures of the engine in a row after which the resource is "
        "Degraded. Evictions, drains, preemption and lost nodes are not counted.",
    )
    on_budget_spent: Literal["Retry", "Stop"] = Field(
        default="Retry",
        description="Retry: go on, one try every maxDelaySeconds. Stop: the group stays "
        "stopped until the spec or the annotation shardwright.io/restart changes.",
    )


class Readiness(Part):
    """When a group counts as serving."""

    tokens: bool = Field(
        default=True,
        description="True: ready means that tokens come out. An engine that nobody asks "
        "is asked for one token now and then. False: the engine's /health is enough.",
    )
    silence_seconds: Annotated[int, Field(ge=5, le=3600)] = Field(
        default=60,
        description="Not ready after so long without a token while one is due; after twice as long "
        "the group restarts. Must "
        "exceed the time of the longest prompt.",
    )
    idle_seconds: Annotated[int, Field(ge=5, le=3600)] = Field(
        default=30, description="Asked for one token after so long without a request."
    )


class Rollout(Part):
    """How groups are restarted on purpose."""

    max_unavailable: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1,
        description="Groups that may be down at once because of "
        "a changed template or a restart that was asked for.",
    )
    max_surge: Annotated[int, Field(ge=0, le=1)] = Field(
        default=0,
        description="Groups that may exist beside the wanted ones while pods change. 0: a "
        "group stops before it starts anew. 1: if GPUs of the same kind are free and "
        "the budget allows it, it starts anew on them and takes over when it is ready.",
    )
    min_ready_seconds: Annotated[int, Field(ge=0, le=86_400)] = Field(
        default=0,
        description="How long a group must have been ready without a break before the next one is "
        "stopped or, with maxSurge, its "
        "former self. Ready means that tokens have come out (spec.readiness.tokens).",
    )
    drain_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = Field(
        default=None,
        description="How long running requests may take to finish when a group is stopped, moved "
        "or scaled down; what runs longer is cut. The group stops as soon as none runs. Running "
        "pods keep theirs until they restart. Default: three times the plan's mean answer, 60 s at "
        "least, in steps that double, at most one hour.",
    )
    progress_deadline_seconds: Annotated[int, Field(ge=60, le=604_800)] | None = Field(
        default=None,
        description="How long a group may take to become ready once all its pods have nodes: pull, "
        "download, load. After that "
        "Stalled is True (ProgressDeadlineExceeded), and no further group takes the changed pods "
        "until this one serves. Default: "
        "15 minutes for the image, and the start-up budget with the download.",
    )
    min_groups: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1,
        description="Groups that must have a place before the first one starts; what has a place "
        "of more runs, and the rest waits in line. From spec.replicas on it means all or nothing. "
        "Groups that run are kept, however few they become.",
    )
    partition: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=0,
        description="Groups with a number below it keep the pods that they have, also when they "
        "restart, until it is lowered: "
        "a canary. Groups that are added get the pods of the present spec.",
    )
    on_failure: Literal["Pause", "RollBack"] = Field(
        default="Pause",
        description="Reaction to a group that does not come up with the changed pods. Pause: "
        "the others keep theirs, and it is tried on. RollBack: when its deadline is over, or "
        "its engine has failed three times in a row, all groups go back to the last revision "
        "with which all of them served; the spec is not tried again before it changes.",
    )
    on_upgrade: Literal["Keep", "Roll"] | None = Field(
        default=None,
        description="How a release of the operator treats groups whose pods it would render "
        "otherwise, or whose default engine version is another. Keep: nothing, their next "
        "restart takes it on. Roll: restart them one after another. Default: as the operator's "
        "rollout.onUpgrade says, which is Keep unless the administrator says otherwise.",
    )


def delays_grow(restart: Restart) -> bool:
    """Return whether the longest delay is at least the first."""
    return restart.max_delay_seconds >= restart.delay_seconds


SERVED_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"

ServedName = Annotated[str, StringConstraints(max_length=193, pattern=SERVED_NAME)]


class ConfigMapReference(Part):
    """A key of a ConfigMap in the same namespace."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: ObjectName = Field(
        description="Name of the ConfigMap, in the namespace of this resource."
    )
    key: DataKey = Field(
        default="config.json", description="Key whose text is the model's config.json."
    )


class Adapter(Part):
    """A LoRA adapter that is served under its own name."""

    name: ServedName = Field(description="Name that clients ask for; not that of the model.")
    uri: PartUri = Field(
        description="Address of the adapter. hf://ID@COMMIT is downloaded from the hub before the "
        "engine starts, with the token of weights.secretRef if there is one. pvc://CLAIM/PATH is "
        "read from a PersistentVolumeClaim of the namespace."
    )


class Unproven(Part):
    """What is known of a model that cannot be counted: it is planned by bytes alone, at the degrees
    of spec.parallelism, and no speed is promised.
    """

    weight_bytes: Annotated[int, Field(ge=1, le=10**15)] | None = Field(
        default=None,
        description="Bytes of all weights. Default: total_size of its "
        "model.safetensors.index.json, if there is one.",
    )
    kv_bytes_per_token: Annotated[int, Field(ge=1, le=2**30)] | None = Field(
        default=None,
        description="Bytes of K/V that each GPU keeps of a token, at the pinned degrees: 2 x "
        "layers of a stage x K/V heads of a tensor rank x head dimension x 2; latent vectors are "
        "whole on every rank. Required.",
    )


class Model(Part):
    """The model to serve."""

    id: Annotated[str, StringConstraints(max_length=193, pattern=MODEL_ID)] = Field(
        description="Hugging Face id of the model; also the name under which it "
        "is served. Its architecture comes from the built-in catalogue unless "
        "config or configMapRef gives it, or a Job has read it from the hub."
    )
    served_name: ServedName | None = Field(
        default=None, description="Name that clients ask for. Default: the id."
    )
    config: dict[str, Any] | None = Field(
        default=None,
        max_length=256,
        description="The model's config.json itself. Excludes configMapRef.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    config_map_ref: ConfigMapReference | None = Field(
        default=None,
        description="ConfigMap that holds the model's config.json; watched. Excludes config.",
    )
    unproven: Unproven | None = Field(
        default=None,
        description="Serve a model that cannot be counted, with less promise: its bytes, at pinned "
        "degrees. The condition Unproven says what is not known.",
    )
    revision: Annotated[str, StringConstraints(max_length=40, pattern=COMMIT)] | None = Field(
        default=None, description="Commit of the model repository to serve: 40 hexadecimal digits."
    )
    weights: Weights | None = Field(
        default=None,
        description="Address of the weights. Default: the Hugging Face hub, without a token.",
    )
    load_format: Literal[
        "Auto", "Safetensors", "FastSafetensors", "RunAIStreamer", "ShardedState"
    ] = Field(
        default="Auto",
        description="How the engine reads the weights. Auto: as it sees fit. FastSafetensors, "
        "RunAIStreamer: by these packages, "
        "which the image must have. ShardedState: files that were written by the same tensor "
        "degree, on a claim or in an image.",
    )
    quantization: Literal["Auto", "BF16", "FP16", "FP8"] = Field(
        default="Auto",
        description="How the engine holds the weights. Auto: as they are stored. "
        "BF16, FP16: computed and held in that type. FP8: quantized while loading.",
    )
    adapters: list[Adapter] = Field(
        default_factory=list,
        max_length=32,
        description="LoRA adapters that are served beside the model, "
        "each with a slot in GPU memory that the plan counts.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    max_adapter_rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] | None = Field(
        default=None,
        description="Largest rank of an adapter: every slot is as large as one of this rank. "
        f"Default with adapters: {DEFAULT_ADAPTER_RANK}.",
    )


def has_one_source_of_config(model: Model) -> bool:
    """Return whether the config is given once."""
    return model.config is None or model.config_map_ref is None


def revision_is_of_the_hub(model: Model) -> bool:
    """Return whether a commit is named only of weights from the hub."""
    return model.revision is None or scheme_of(model.weights) == HUB


def hub_has_the_model(model: Model) -> bool:
    """Return whether an address on the hub is the model's."""
    uri = model.weights.uri if model.weights else None
    return not uri or scheme_of(model.weights) != HUB or place_of(uri) == model.id


def shards_lie_where_they_can(model: Model) -> bool:
    """Return whether files of single ranks come from a claim or an image, which alone have them."""
    scheme = scheme_of(model.weights)
    return model.load_format != "ShardedState" or scheme in (CLAIM, IMAGE_VOLUME)


def store_is_streamed(model: Model) -> bool:
    """Return whether an object store is read by a loader that can."""
    stored = scheme_of(model.weights) in BUCKETS
    return not stored or model.load_format in ("Auto", "RunAIStreamer")


def adapters_have_names_of_their_own(model: Model) -> bool:
    """Return whether no adapter has the name of the model."""
    return all(adapter.name != (model.served_name or model.id) for adapter in model.adapters)


def rank_is_of_adapters(model: Model) -> bool:
    """Return whether a rank is given only beside adapters."""
    return model.max_adapter_rank is None or bool(model.adapters)


class Workload(Part):
    """The load that the plan is made for."""

    input_tokens: Tokens = Field(default=2048, description="Mean prompt length in tokens.")
    output_tokens: Tokens = Field(default=512, description="Mean answer length in tokens.")
    concurrency: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description="Requests in flight at once, over all replicas. Default: 64, unless "
        "requestsPerSecond is set.",
    )
    requests_per_second: (
        Annotated[float, Field(ge=0.001, le=100_000, allow_inf_nan=False)] | None
    ) = Field(
        default=None,
        description="Requests that arrive per second, over all replicas, instead of concurrency: a "
        "plan carries them when it "
        "serves as many.",
    )
    prefix_cache_hit_percent: Annotated[int, Field(ge=0, le=99)] = Field(
        default=0,
        description="Share of the input tokens whose K/V the prefix cache still has, in percent.",
    )
    expert_imbalance_percent: Annotated[int, Field(ge=100, le=1000)] | None = Field(
        default=None,
        description="Work of the busiest rank of an expert-parallel group, in percent of the mean. "
        "Default: as the cost model assumes.",
    )


def one_way_of_arrival(workload: Workload) -> bool:
    """Return whether requests' arrival is given once."""
    return workload.concurrency is None or workload.requests_per_second is None


class Objective(Part):
    """The objective that the plan is chosen for."""

    optimize_for: Literal["Balanced", "Latency", "Throughput"] = Field(
        default="Balanced",
        description="Latency: the least time per request. Throughput: the most output tokens per "
        "second per GPU. Balanced: "
        "throughput per GPU, weighed against the time per output token.",
    )
    ttft_milliseconds: Annotated[int, Field(ge=1, le=3_600_000)] | None = Field(
        default=None,
        description="Limit on the time to first token that a plan must meet, in milliseconds.",
    )
    tpot_milliseconds: Annotated[int, Field(ge=1, le=60_000)] | None = Field(
        default=None,
        description="Limit on the time per output token that a plan must meet, in milliseconds.",
    )
    statistic: Literal["Mean", "P95"] = Field(
        default="Mean",
        description="Statistic of the limits. Mean: the predicted means. P95: 95th percentiles, "
        "derived from the means by an "
        "assumption about waiting times, not predicted.",
    )


class Budget(Part):
    """Upper limits of the GPUs and nodes of the plan, over all replicas."""

    gpus: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description="Most GPUs, over all replicas. Default: no limit."
    )
    nodes: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="Most nodes, over all replicas. Default: no limit."
    )
    fill: bool = Field(
        default=False,
        description="True: use the budget up. Layout and number of replicas are chosen together; "
        "spec.replicas is left out.",
    )


class Parallelism(Part):
    """Pinned degrees of one replica: validated, never trusted. Other degrees are planned."""

    tensor: Degree | None = Field(default=None, description="Tensor-parallel degree.")
    pipeline: Degree | None = Field(default=None, description="Pipeline-parallel degree: stages.")
    expert: Degree | None = Field(
        default=None,
        description="Expert-parallel degree: 1 slices every expert over all "
        "ranks of a stage; tensor x dataParallelAttention places whole experts on them.",
    )
    data_parallel_attention: Degree | None = Field(
        default=None,
        description="Replicas of the attention that share one set of experts. Above 1 for "
        "mixture-of-experts models only.",
    )
    context: Degree | None = Field(
        default=None,
        description="Decode-context-parallel degree: tensor ranks that "
        "would hold copies of K/V heads share their tokens. Adds no GPUs.",
    )
    partition: list[Annotated[int, Field(ge=1, le=1024)]] = Field(
        default_factory=list,
        max_length=256,
        description="Layers of every pipeline stage, in "
        "order; as many numbers as stages. Default: planned.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


def experts_are_cut_as_the_engine_can(spec: "Spec") -> bool:
    """Return whether experts are sliced, or dealt to all ranks; some engines deal to sets, too."""
    pins = spec.parallelism
    if pins is None or pins.expert is None or pins.expert == 1:
        return True
    known = (pins.tensor or 1) * (pins.data_parallel_attention or 1)
    both = pins.tensor is not None and pins.data_parallel_attention is not None
    if ENGINES[spec.engine.name].mixes_expert_cuts:
        return not both or known % pins.expert == 0
    return pins.expert == known if both else pins.expert % known == 0


def context_divides_tensor(pins: Parallelism) -> bool:
    """Return whether the ranks that share K/V are a part of the tensor ranks."""
    return pins.context is None or pins.tensor is None or pins.tensor % pins.context == 0


def partition_has_every_stage(pins: Parallelism) -> bool:
    """Return whether every stage has its number of layers."""
    return not pins.partition or pins.pipeline is None or len(pins.partition) == pins.pipeline


class Toleration(Part):
    """A Kubernetes toleration."""

    key: Annotated[str, StringConstraints(max_length=317, pattern=LABEL_KEY)] | None = Field(
        default=None, description="Taint key. Default: every key, which needs operator Exists."
    )
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="How the taint's value is compared."
    )
    value: LabelValue | None = Field(default=None, description="Taint value, for operator Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Taint effect. Default: every effect."
    )
    toleration_seconds: Annotated[int, Field(ge=0, le=2_147_483_647)] | None = Field(
        default=None,
        description="How long a NoExecute taint is tolerated, in seconds. Default: for ever.",
    )


def exists_has_no_value(toleration: Toleration) -> bool:
    """Return whether no value is given if none is compared."""
    return toleration.operator != "Exists" or toleration.value is None


def every_key_needs_exists(toleration: Toleration) -> bool:
    """Return whether a taint of any key is tolerated by its existence alone."""
    return toleration.key is not None or toleration.operator == "Exists"


def seconds_need_no_execute(toleration: Toleration) -> bool:
    """Return whether a time is given only for taints that evict."""
    return toleration.toleration_seconds is None or toleration.effect == "NoExecute"


class PlacementRules(Part):
    """Which nodes may be used, and who makes the pods of a group start together."""

    node_selector: dict[str, LabelValue] = Field(
        default_factory=dict,
        max_length=32,
        description="Labels that a node must carry to be planned on.",
    )
    tolerations: list[Toleration] = Field(
        default_factory=list,
        max_length=32,
        description="Taints that do not keep a node out of the "
        "plan. The taint of the GPU vendor is always tolerated.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    mig_profile: MigProfile | None = Field(
        default=None,
        description="Slices of NVIDIA GPUs (MIG) of this profile are planned on instead of whole "
        "GPUs: one for each replica, on nodes whose slices are all of it. For example "
        "3g.40gb; +me is written .me, as in the labels of nodes.",
    )
    scheduler: Literal["None", "Native", "Kueue", "Coscheduling"] = Field(
        default="None",
        description="Gang scheduling: who is told that the pods of a group belong "
        "together, so that all of them are placed, or none. Native: kube-scheduler "
        "(scheduling.k8s.io). Kueue: admits groups by quota. Coscheduling: "
        "a scheduler with that plugin. The nodes are those of the plan with each of them.",
    )
    queue: QueueName | None = Field(
        default=None, description="Queue of the groups with Kueue: a LocalQueue of this namespace."
    )
    scheduler_name: ObjectName | None = Field(
        default=None,
        description="With Coscheduling: the scheduler that the pods ask for. Default: "
        "scheduler-plugins-scheduler, the name in "
        "that project's chart.",
    )


def kueue_has_a_queue(placement: PlacementRules) -> bool:
    """Return whether Kueue is given a queue."""
    return placement.scheduler != "Kueue" or placement.queue is not None


def queue_has_a_scheduler(placement: PlacementRules) -> bool:
    """Return whether only Kueue is given a queue."""
    return placement.queue is None or placement.scheduler == "Kueue"


def scheduler_is_a_plugin(placement: PlacementRules) -> bool:
    """Return whether a scheduler is named only where its name is open."""
    return placement.scheduler_name is None or placement.scheduler == "Coscheduling"


def scheduler_is_not_kai(placement: PlacementRules) -> bool:
    """Return whether the scheduler counts all pods of a group."""
    return placement.scheduler_name != "kai-scheduler"


class Spec(Part):
    """The desired state."""

    model_config = ConfigDict(
        defer_build=False  # built once: as part of a resource and by itself it is the same
    )

    model: Model = Field(description="The model to serve.")
    engine: Engine = Field(
        default_factory=partial(unsaid, Engine), description="The inference engine."
    )
    workload: Workload = Field(
        default_factory=partial(unsaid, Workload), description="The load that the plan is made for."
    )
    objective: Objective = Field(
        default_factory=partial(unsaid, Objective),
        description="The objective that the plan is chosen for.",
    )
    replicas: Annotated[int, Field(ge=0, le=MOST_REPLICAS)] | None = Field(
        default=None,
        description="Copies of the model (groups). Left out: the plan says how many, as the load "
        "needs. A number, set by a person or an autoscaler, is kept to. 0: nothing runs "
        "and no GPU is held; status shows the plan.",
    )
    scaling: Scaling | None = Field(
        default=None,
        description="KEDA chooses the number of groups, by requests in flight over what the plan "
        "says that a group holds. replicas is then the autoscaler's. For vLLM.",
    )
    serving: ServingRules | None = Field(
        default=None, description="What becomes of requests that an engine has no room for."
    )
    budget: Budget | None = Field(
        default=None,
        description="Upper limits of the GPUs and nodes of the plan, over all replicas.",
    )
    parallelism: Parallelism | None = Field(
        default=None, description="Pinned degrees of one replica; the others are planned."
    )
    placement: PlacementRules | None = Field(
        default=None,
        description="Which nodes may be used, and who makes the pods of a group start together.",
    )
    pod: Pod | None = Field(default=None, description="Typed overrides of the engine's pods.")
    routing: Routing | None = Field(
        default=None,
        description="Who brings requests to the groups. Default: a Service, at random.",
    )
    disaggregation: Disaggregation | None = Field(
        default=None,
        description="Prompts and answers on groups of their own, in units of some of both; "
        "replicas are then units. Default: each group does both. For vLLM.",
    )
    restart: Restart = Field(
        default_factory=partial(unsaid, Restart),
        description="How a group that failed starts again.",
    )
    readiness: Readiness = Field(
        default_factory=partial(unsaid, Readiness), description="When a group counts as serving."
    )
    rollout: Rollout = Field(
        default_factory=partial(unsaid, Rollout), description="How groups are restarted on purpose."
    )
    phase: Literal["Whole", "Prefill", "Decode"] | None = Field(
        default=None,
        description="What the groups do of each request. Whole: all of it. Prefill and Decode: the "
        "halves of a pair, two models of one name that end in -prefill and -decode: the one "
        "computes prompts, the other fetches their K/V and answers, and whole requests where it "
        "is alone; it has the routing. For vLLM. Default: Whole.",
    )
    replan: Literal["Never", "WhenInvalid", "Always"] = Field(
        default="WhenInvalid",
        description="Effect of a change of the cluster. Never: the plan stands. "
        "WhenInvalid: a new plan when the old one cannot run any more. Always: "
        "also when another is better by 10 percent of the objective, while all "
        "groups serve, and at most once an hour. A changed spec always plans anew.",
    )
    mode: Literal["Deploy", "PlanOnly"] = Field(
        default="Deploy",
        description="PlanOnly: plan and show it in status; no pod is made and no GPU is held.",
    )
    paused: bool = Field(
        default=False,
        description="True: change nothing that exists; status stays up to date and deletion works.",
    )
