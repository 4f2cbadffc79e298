"""All layouts that were considered, ruled out or not, as points of the trade-off between tokens per
second per GPU and per user.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.planning.phrases import copies
from shardwright.planning.report import Plan, Report
from shardwright.planning.survey import Surveyed


@dataclass(frozen=True, slots=True, kw_only=True)
class Tradeoff:
    """How fast a layout would be: in seconds, and in output tokens per second of all replicas, per
    GPU and per request.
    """

    ttft_seconds: float
    tpot_seconds: float
    output_tokens_per_second: float
    output_tokens_per_second_per_gpu: float
    output_tokens_per_second_per_user: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCandidate:
    """A layout on a pool; ``rules`` are the reasons that rule it out (empty: it can run).

    ``speed`` is None if its degrees do not divide the model or its memory does not suffice.
    """

    layout: str
    pool: str
    gpus: int
    chosen: bool
    rules: tuple[str, ...]
    carries_load: bool
    speed: Tradeoff | None


def draw_candidates(surveyed: Sequence[Surveyed], report: Report) -> tuple[DrawnCandidate, ...]:
    """Return the candidates in the order of the survey, with the report's plan marked as chosen."""
    plan = report.outcome if isinstance(report.outcome, Plan) else None
    return tuple(
        _drawn(one, chosen=plan is not None and (one.layout, one.pool) == (plan.layout, plan.pool))
        for one in surveyed
    )


def _drawn(one: Surveyed, *, chosen: bool) -> DrawnCandidate:
    return DrawnCandidate(
        layout=copies(one.layout),
        pool=one.pool,
        gpus=one.layout.gpus,
        chosen=chosen,
        rules=one.codes,
        carries_load=one.carries_load,
        speed=tradeoff(one),
    )


def tradeoff(one: Surveyed) -> Tradeoff | None:
    """Return the speed of a layout as a point, None if it has none."""
    speed = one.performance
    if speed is None:
        return None
    return Tradeoff(
        ttft_seconds=speed.ttft_seconds,
        tpot_seconds=speed.tpot_seconds,
        output_tokens_per_second=speed.output_tokens_per_second,
        output_tokens_per_second_per_gpu=speed.output_tokens_per_second / one.layout.gpus,
        output_tokens_per_second_per_user=1 / speed.tpot_seconds,
    )
