"""``spec.scaling``: how many groups an autoscaler may choose, and when it goes back."""

from typing import Annotated

from pydantic import Field

from shardwright.api.parts import Part
from shardwright.layouts.layout import MOST_REPLICAS

IDLE_SECONDS_MAX = 3600
"""Unit: seconds. Source: autoscaling/v2, ``stabilizationWindowSeconds``."""


class Scaling(Part):
    """The numbers of groups between which KEDA chooses by the load."""

    min_replicas: Annotated[int, Field(ge=0, le=MOST_REPLICAS)] = Field(
        default=1, description="Fewest groups."
    )
    max_replicas: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] = Field(
        description="Most groups; those without a place wait for one."
    )
    idle_seconds: Annotated[int, Field(ge=1, le=IDLE_SECONDS_MAX)] = Field(
        default=1800, description="How long fewer groups would do before one is taken away."
    )


def bounds_are_in_order(scaling: Scaling) -> bool:
    """Return whether there is a number between the bounds."""
    return scaling.min_replicas <= scaling.max_replicas


def keeps_a_group(scaling: Scaling) -> bool:
    """Return whether some group is always there to take a request."""
    return scaling.min_replicas > 0
