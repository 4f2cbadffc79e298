"""``spec.disaggregation``: groups that compute prompts apart from those that answer."""

from typing import Annotated, Literal

from pydantic import Field

from shardwright.api.parts import Part
from shardwright.planning.request import MOST_GROUPS

GroupsOfUnit = Annotated[int, Field(ge=1, le=MOST_GROUPS)]


class Disaggregation(Part):
    """Whether prompts are computed by groups of their own, and by how many."""

    mode: Literal["Off", "Auto", "On"] = Field(
        default="Off",
        description="Off: each group computes prompts and answers. Auto: prompts and answers are "
        "apart if the plan says that this serves more for the same GPUs, by more than the "
        "prediction may be wrong. On: they are apart in any case, and the plan says what that "
        "costs. Quote it: YAML reads Off and On as false and true.",
    )
    prefill_groups: GroupsOfUnit | None = Field(
        default=None,
        description="Groups that compute prompts in one unit. Default: as the plan says.",
    )
    decode_groups: GroupsOfUnit | None = Field(
        default=None, description="Groups that answer in one unit. Default: as the plan says."
    )


def groups_go_together(pair: Disaggregation) -> bool:
    """Return whether both numbers of groups are set or none, and none without a pair."""
    given = pair.prefill_groups is not None, pair.decode_groups is not None
    return given == (False, False) or (given == (True, True) and pair.mode != "Off")
