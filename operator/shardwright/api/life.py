"""The fields of the spec for the life of groups, unknown to the planner: restarts and readiness."""

from typing import Annotated, Literal

from pydantic import Field

from shardwright.api.parts import Part


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
        "of more runs, and the rest waits in line. From spec.replicas on it means all or none. "
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
