"""How does a plan grow with the load, and what would other layouts give a user for each GPU? The
two curves that ``size``, the page of a report and ``status.plan`` show.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shardwright.planning.report import FrontPoint, Plan
from shardwright.planning.select import FeasibleCandidate

STEPS: Final = 8
"""Points of a curve over the load, up to twice the planned instances. Basis: chosen."""

FRONT_MAX: Final = 8
"""Points of the curve of layouts, its ends and the plan among them. Basis: chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStep:
    """So many instances on so many GPUs carry up to ``load``: requests a second if a rate is
    offered, else requests in flight. ``price`` is that of the GPUs for an hour (None: each counts
    as one).
    """

    instances: int
    gpus: int
    load: float
    price: float | None = None


def steps_of(plan: Plan) -> tuple[LoadStep, ...]:
    """Return up to which load numbers of instances carry, by rising load; the planned number is
    among them. There are none if an instance holds not even one request.
    """
    if not plan.replica_requests:
        return ()
    number = max(1, plan.layout.replicas)
    numbers = sorted({math.ceil(2 * number * part / STEPS) for part in range(1, STEPS + 1)})
    return tuple(_step(plan, many) for many in numbers)


def _step(plan: Plan, instances: int) -> LoadStep:
    each = plan.replica_requests if plan.capacity is None else plan.replica_rate
    gpus = instances * plan.layout.gpus_per_replica
    price = None if plan.gpu_price is None else gpus * plan.gpu_price.per_hour
    return LoadStep(instances=instances, gpus=gpus, load=instances * each, price=price)


def front(ranked: Sequence[FeasibleCandidate]) -> tuple[FrontPoint, ...]:
    """Return the layouts that no other beats in tokens per user and per GPU, by falling speed of
    one user; the plan, first of ``ranked``, is among them even if it is beaten. A layout that does
    not carry the load beats none that does.
    """
    plan = ranked[0]
    points = [_point(each, plan) for each in ranked if each.carries_load or not plan.carries_load]
    points.sort(key=lambda point: (-point.tokens_per_user, -point.tokens_per_gpu))
    found: list[FrontPoint] = []
    most = 0.0
    for point in points:
        if point.tokens_per_gpu > most or point.planned:
            found.append(point)
        most = max(most, point.tokens_per_gpu)
    return _thinned(found)


def _point(each: FeasibleCandidate, plan: FeasibleCandidate) -> FrontPoint:
    candidate, speed = each.candidate, each.estimate.performance
    return FrontPoint(
        layout=candidate.layout,
        pool=candidate.pool.name,
        tokens_per_user=1 / speed.tpot_seconds,
        tokens_per_gpu=speed.output_tokens_per_second / candidate.layout.gpus,
        planned=each is plan,
    )


def _thinned(points: Sequence[FrontPoint]) -> tuple[FrontPoint, ...]:
    """Return at most as many points as are shown, evenly, with both ends and the plan."""
    most = FRONT_MAX - 1
    last = len(points) - 1
    if last < FRONT_MAX:
        return tuple(points)
    even = {round(last * part / (most - 1)) for part in range(most)}
    return tuple(point for index, point in enumerate(points) if index in even or point.planned)
