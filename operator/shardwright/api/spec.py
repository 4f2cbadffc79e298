"""The spec of a ShardedModel, field by field: type, bound, default, description.

``kubectl explain`` prints these descriptions, and the API server enforces types and bounds:
``schema`` makes the CRD of them. Rules between fields are in ``rules``.
"""

from functools import partial
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shardwright.api.engine import Engine
from shardwright.api.life import Readiness, Restart, Rollout
from shardwright.api.model import Model
from shardwright.api.parts import (
    LABEL_KEY,
    Degree,
    LabelValue,
    MigProfile,
    ObjectName,
    Part,
    QueueName,
    unsaid,
)
from shardwright.api.pod import Pod
from shardwright.api.workload import Workload
from shardwright.layouts.layout import MOST_REPLICAS


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
    """Return whether experts are sliced, or dealt to all ranks (TensorRT-LLM: or to sets)."""
    pins = spec.parallelism
    if pins is None or pins.expert is None or pins.expert == 1:
        return True
    known = (pins.tensor or 1) * (pins.data_parallel_attention or 1)
    both = pins.tensor is not None and pins.data_parallel_attention is not None
    if spec.engine.name == "TensorRTLLM":
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
