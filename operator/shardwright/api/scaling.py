"""What becomes of more load than was planned?

``spec.scaling``: how many groups an autoscaler may choose, and when it goes back.

``spec.serving``: which requests wait, and which are refused.
"""

from typing import Annotated, Literal

from pydantic import Field

from shardwright.api.parts import Part
from shardwright.layouts.layout import MOST_REPLICAS

IDLE_SECONDS_MAX = 3600
"""Unit: seconds. Source: autoscaling/v2, ``stabilizationWindowSeconds``."""


class Scaling(Part):
    """The numbers of groups between which KEDA chooses by the load."""

    min_replicas: Annotated[int, Field(ge=0, le=MOST_REPLICAS)] = Field(
        default=1,
        description="Fewest groups. 0, with routing.mode Router: none runs while nobody asks, and "
        "the router holds requests until one serves.",
    )
    max_replicas: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] = Field(
        description="Most groups; those without a place wait for one."
    )
    idle_seconds: Annotated[int, Field(ge=1, le=IDLE_SECONDS_MAX)] = Field(
        default=1800, description="How long fewer groups would do before one is taken away."
    )


class ServingRules(Part):
    """What becomes of requests that an engine has no room for."""

    overload: Literal["Queue", "Refuse"] = Field(
        default="Queue",
        description="Queue: they wait, any number of them. Refuse: they are answered with 503 "
        "while a group has twice as many requests as the plan says that it holds. For vLLM.",
    )
    order: Literal["Arrival", "Priority"] = Field(
        default="Arrival",
        description="Which of the waiting requests is next. Priority: the one with the lowest "
        "priority in its body, which clients set themselves (0 if they do not). For vLLM.",
    )


def bounds_are_in_order(scaling: Scaling) -> bool:
    """Return whether there is a number between the bounds."""
    return scaling.min_replicas <= scaling.max_replicas


def may_sleep(scaling: Scaling | None) -> bool:
    """Return whether the last group may go, too."""
    return scaling is not None and scaling.min_replicas == 0
