"""``spec.workload``: the load that the plan is made for, in means of lengths and arrivals."""

from typing import Annotated

from pydantic import Field

from shardwright.api.parts import Part, Tokens


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
