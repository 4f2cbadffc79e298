"""Conditions as the Kubernetes API conventions want them; the clock is a parameter.

``Ready`` is the summary. ``Reconciling`` is True while work goes on that will end by itself,
``Stalled`` while nothing changes before the user acts (kstatus, Flux and Argo CD read both).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Self

from shardwright.api.published import MESSAGE_MAX_LENGTH
from shardwright.sinks import in_status


class Word(StrEnum):
    """A word of the wire format with its meaning, for the reference."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Self:
        """Return a member whose value is the word alone."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member


class ConditionType(Word):
    """The conditions that a ShardedModel carries, in the order in which they are shown."""

    READY = ("Ready", "all groups that have a place serve with the wanted revision")
    PLANNED = ("Planned", "there is a plan for the current spec")
    RECONCILING = ("Reconciling", "something is on its way; wait")
    STALLED = ("Stalled", "the user must act")
    PARTLY_PLACED = (
        "PartlyPlaced",
        "groups lack a place and wait in line for it, while the others run",
    )
    DEGRADED = (
        "Degraded",
        "a group has failed and does not serve, or a node is gone or does not give its pods back",
    )
    PLAN_STALE = ("PlanStale", "the plan stands, but the cluster has changed under it")
    FIELD_CONFLICT = ("FieldConflict", "somebody else keeps setting fields of our objects back")
    FOREIGN_PODS = ("ForeignPods", "pods that are not ours carry the labels of the model")
    RECORD_REFUSED = (
        "RecordRefused",
        "a plan of record was found that the operator has not signed last",
    )
    TURN_AWAITED = ("TurnAwaited", "groups wait to restart because groups of other models do")
    ROLLOUT_PENDING = (
        "RolloutPending",
        (
            "groups keep pods that would be rendered differently now: for "
            "another release, LimitRange or pull policy, or for a canary"
        ),
    )
    ROLLOUT_STOPPED = (
        "RolloutStopped",
        "a group with the changed pods does not come up: the others keep those that they have",
    )
    ROLLED_BACK = ("RolledBack", "an earlier revision runs in place of the spec")
    NO_WAY_BACK = (
        "NoWayBack",
        "a revision that was asked for is not restored, or what serves cannot be kept as one",
    )
    UNPROVEN = ("Unproven", "the model is planned by stated bytes, without its layers")
    REPLICAS_PLANNED = ("ReplicasPlanned", "the plan says how many groups run, not the spec")
    NOT_SCALED = (
        "NotScaled",
        "no autoscaler is told of the model, although spec.scaling asks for one",
    )
    NOT_ROUTED = (
        "NotRouted",
        "requests do not go the way that spec.routing asks for: the Service leads to the groups",
    )


ALWAYS: Final = frozenset(
    {
        ConditionType.READY,
        ConditionType.PLANNED,
        ConditionType.RECONCILING,
        ConditionType.STALLED,
        ConditionType.DEGRADED,
        ConditionType.PLAN_STALE,
    }
)
"""Conditions that are always there; all others only while they are True."""


class Reason(Word):
    """Why a condition has its status: one word, also the metric label and the anchor in the
    docs.
    """

    SERVING = ("Serving", "all groups are ready")
    PLANNED = ("Planned", "a plan was chosen")
    OPTIONS_NOT_COUNTED = (
        "OptionsNotCounted",
        "a plan was chosen, and the engine has options that no plan counts",
    )
    GROUPS_OF_ALPHA_API = (
        "GroupsOfAlphaApi",
        "a plan was chosen, and its PodGroups are of an API that Kubernetes 1.37 does not have",
    )
    ROUTER_STARTING = ("RouterStarting", "the router is not ready for 30 s yet")
    ROUTER_DOWN = (
        "RouterDown",
        "no pod of the router knows a group: the Service leads to the groups",
    )
    ROUTER_IMAGE_MISSING = (
        "RouterImageMissing",
        "the administrator names no image of a router: the Service leads to the groups",
    )
    ROUTER_NOT_PERMITTED = (
        "RouterNotPermitted",
        "the operator sees no Deployments: the Service leads to the groups",
    )
    POOL_UNAVAILABLE = (
        "PoolUnavailable",
        "the operator sees no InferencePools in this cluster: the Service leads to the groups",
    )
    BYTES_STATED = ("BytesStated", "spec.model.unproven stands for a model that is not counted")
    PLAN_ONLY = ("PlanOnly", "mode is PlanOnly: shown, not deployed")
    PAUSED = ("Paused", "paused is true: nothing is changed")
    REPLICAS_LEFT_OUT = (
        "ReplicasLeftOut",
        "spec.replicas is left out, and an autoscaler finds no number to change",
    )
    PROMETHEUS_NOT_NAMED = (
        "PrometheusNotNamed",
        "the administrator has not said whom KEDA asks for the load",
    )
    KEDA_UNAVAILABLE = ("KedaUnavailable", "the operator sees no ScaledObjects in this cluster")
    LOAD_NOT_PLANNED = ("LoadNotPlanned", "the plan does not say how many requests a group holds")
    SCALED_TO_ZERO = ("ScaledToZero", "replicas is 0: nothing is meant to run")
    ASLEEP = ("Asleep", "no group runs while nobody asks; a request starts one")
    PROGRESSING = ("Progressing", "objects are being written or pods are starting")
    ROLLING_OUT = (
        "RollingOut",
        "all pods of a group stop, then all start with the wanted revision",
    )
    GROUPS_NOT_READY = ("GroupsNotReady", "some group's pods are not ready")
    RESTART_BUDGET_SPENT = (
        "RestartBudgetSpent",
        "the engine of a group has failed too often in a row",
    )
    UNSCHEDULABLE = ("Unschedulable", "the scheduler finds no place for a pod")
    WAITING_FOR_NODES = (
        "WaitingForNodes",
        "an autoscaler makes the nodes that a group is planned on",
    )
    NODES_DID_NOT_COME = (
        "NodesDidNotCome",
        "an autoscaler has not made the nodes that a group is planned on, for 20 minutes",
    )
    WAITING_FOR_QUOTA = ("WaitingForQuota", "a queue has not admitted a group yet")
    SCHEDULER_UNAVAILABLE = (
        "SchedulerUnavailable",
        "the scheduler that was asked for cannot be told of groups here",
    )
    INSUFFICIENT_CAPACITY = (
        "InsufficientCapacity",
        "the hardware is there but not free; recovers automatically",
    )
    FREE_CAPACITY_UNKNOWN = (
        "FreeCapacityUnknown",
        "not all pods can be listed, so GPUs that others use count as free",
    )
    CLUSTER_READING = ("ClusterReading", "nodes and pods have not been listed yet")
    NOTHING_FITS = ("NothingFits", "no layout can run on this hardware")
    NOT_DEPLOYABLE = ("NotDeployable", "the plan can be shown but not run yet")
    COMPUTE_DOMAIN_UNAVAILABLE = (
        "ComputeDomainUnavailable",
        "the plan needs NVLink between nodes, which this cluster cannot share",
    )
    DEVICE_CLAIMS_UNAVAILABLE = (
        "DeviceClaimsUnavailable",
        "the plan's pods claim GPUs, and the operator sees no templates for that",
    )
    INVALID_SPEC = ("InvalidSpec", "a field or a rule between fields is violated")
    MODEL_UNKNOWN = ("ModelUnknown", "the id is not in the catalogue and no config is given")
    CONFIG_FETCHING = ("ConfigFetching", "a Job reads the model's config from the hub")
    CONFIG_FETCH_FAILED = (
        "ConfigFetchFailed",
        "the Job that reads the model's config has ended without one",
    )
    CONFIG_NOT_HANDED_OVER = (
        "ConfigNotHandedOver",
        "the model's config is larger than a pod can hand over",
    )
    HUB_ACCESS_DENIED = (
        "HubAccessDenied",
        "the hub does not let the token, or nobody without one, read the model",
    )
    HUB_MODEL_MISSING = ("HubModelMissing", "the hub has no such model or commit that may be seen")
    HUB_UNAVAILABLE = ("HubUnavailable", "the hub does not answer; it is asked again")
    HUB_ANSWER_INVALID = ("HubAnswerInvalid", "something other than a hub answers in its place")
    HUB_SETTING_INVALID = (
        "HubSettingInvalid",
        "a variable or the token with which the hub is asked cannot be one",
    )
    CONFIG_MISSING = ("ConfigMissing", "the ConfigMap or its key does not exist")
    CONFIG_INVALID = ("ConfigInvalid", "the model's config cannot be used")
    CONFIG_TOO_COSTLY = (
        "ConfigTooCostly",
        "to read the resource and its model's config takes more CPU time or memory than it may",
    )
    PLAN_TOO_COSTLY = (
        "PlanTooCostly",
        "planning the model takes more CPU time or memory than it may",
    )
    NAME_CONFLICT = ("NameConflict", "an object of our name belongs to somebody else")
    OBJECT_REFUSED = ("ObjectRefused", "the API server refused a rendered object")
    POD_SECURITY_FORBIDS = (
        "PodSecurityForbids",
        "the namespace's Pod Security level keeps the pods out",
    )
    FIELD_DROPPED = ("FieldDropped", "the API server would not keep a field of a rendered object")
    NOT_PERMITTED = (
        "NotPermitted",
        "the operator may not read objects of the model's namespace that it needs",
    )
    INTERNAL_ERROR = (
        "InternalError",
        "the operator failed on this model because of a bug of its own",
    )
    PLAN_VALID = ("PlanValid", "the plan still fits the cluster")
    NODES_CHANGED = ("NodesChanged", "a planned node is gone or can no longer hold its part")
    BETTER_PLAN = ("BetterPlan", "a plan made now would be better")
    API_UNAVAILABLE = (
        "ApiUnavailable",
        "the API server, or a webhook that it asks, fails; it is tried again",
    )
    PODS_REFUSED = (
        "PodsRefused",
        "the API server does not let the pods be created: a quota, a LimitRange, a webhook",
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        "a ResourceQuota or a LimitRange of the namespace does not let the pods of the plan in",
    )
    PLAN_RECORD_UNREADABLE = (
        "PlanRecordUnreadable",
        "the plan of record cannot be read: what runs is left as it is",
    )
    PLAN_RECORD_REFUSED = (
        "PlanRecordRefused",
        (
            "the plan of record that was found is not the newest that "
            "the operator has signed: what runs is left as it is"
        ),
    )
    NODE_LOST = ("NodeLost", "a node of pods is gone, or does not give pods back as it should")
    FIELD_CONTESTED = ("FieldContested", "a field is changed back again and again")
    OBJECT_OVERFULL = (
        "ObjectOverfull",
        (
            "somebody has made an object of ours larger than anything "
            "that the operator writes: only our part of it counts"
        ),
    )
    FOREIGN_PODS = ("ForeignPods", "pods of somebody else carry the labels of the model")
    OTHERS_RESTART = ("OthersRestart", "as many groups restart as the operator allows at once")
    OLDER_RENDERING = (
        "OlderRendering",
        (
            "pods are as rendered by another release, or for another "
            "LimitRange or image pull policy, until they restart"
        ),
    )
    GUARD_MISSING = (
        "GuardMissing",
        "pods are from before a guard of this release, and get it when they restart",
    )
    OLDER_ENGINE = (
        "OlderEngine",
        "the engine's default version is kept from an earlier release, until it is asked for",
    )
    HELD_BY_PARTITION = (
        "HeldByPartition",
        "groups below spec.rollout.partition keep the pods that they have",
    )
    ENGINE_FAILED = (
        "EngineFailed",
        "the engine of a group with the changed pods has failed, and the group does not serve",
    )
    PROGRESS_DEADLINE_EXCEEDED = (
        "ProgressDeadlineExceeded",
        "a group has had its nodes for longer than a start may take, and is not ready",
    )
    ASKED = ("Asked", "somebody has asked for an earlier revision")
    ROLLED_BACK = (
        "RolledBack",
        "the spec did not come up and was taken back: correct it, or retry it",
    )
    REVISION_UNKNOWN = ("RevisionUnknown", "there is no revision of the number that was asked for")
    REVISION_UNUSABLE = (
        "RevisionUnusable",
        "the revision to restore is gone, is not as it was kept, or may not run now",
    )
    REVISION_REFUSED = (
        "RevisionRefused",
        ("the API server refuses to store a revision, or to delete one that is no longer kept"),
    )
    IDLE = ("Idle", "nothing to do")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition, without its transition time."""

    type: ConditionType
    status: bool | None  # None: Unknown
    reason: str
    message: str = ""
    observed_generation: int = 0

    @property
    def status_word(self) -> str:
        """Return the status as on the wire and in metrics."""
        return _STATUS[self.status]


def set_condition(
    conditions: Iterable[Mapping[str, Any]], new: Condition, *, now: datetime
) -> tuple[Mapping[str, Any], ...]:
    """Return the conditions with ``new`` in place of the one of its type.

    ``lastTransitionTime`` changes exactly with the status. The order is that of
    :class:`ConditionType`; conditions of unknown type stay last, as they are.
    """
    by_type = {str(item["type"]): item for item in conditions}
    before = by_type.get(new.type)
    by_type[new.type] = _on_wire(new, since=_since(before, new, now))
    order = (*_ORDER, *sorted(by_type.keys() - _ORDER.keys()))
    return tuple(by_type[name] for name in order if name in by_type)


def _on_wire(condition: Condition, *, since: str) -> dict[str, Any]:
    return {
        "type": str(condition.type),
        "status": condition.status_word,
        "observedGeneration": condition.observed_generation,
        "lastTransitionTime": since,
        "reason": str(condition.reason),
        "message": in_status(condition.message, MESSAGE_MAX_LENGTH),
    }


def _since(before: Mapping[str, Any] | None, new: Condition, now: datetime) -> str:
    if (
        before is not None
        and before.get("status") == new.status_word
        and before.get("lastTransitionTime")
    ):
        return str(before["lastTransitionTime"])
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_ORDER: Final = dict.fromkeys(map(str, ConditionType))
_STATUS = {True: "True", False: "False", None: "Unknown"}
