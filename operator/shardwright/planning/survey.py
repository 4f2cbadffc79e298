"""How did every considered layout fare: its violations, or its speed? The data for a picture of
all.

A layout without memory on a pool gets no speed rather than a guess.

How does a chosen layout grow with the load, and what would others give a user for each GPU?
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shardwright.costs.estimates import Performance
from shardwright.layouts.layout import Candidate, Layout
from shardwright.planning.checks import MEMORY
from shardwright.planning.numbers import carried_rate, layout_on_pool, of
from shardwright.planning.planner import Considered
from shardwright.planning.report import Plan
from shardwright.planning.request import Request
from shardwright.planning.select import assess


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """One candidate, the ``codes`` of its violations (empty: it can run), and its speed.

    ``performance`` is None if its degrees do not divide the model or its memory does not do; with
    any other violation it is priced as if it ran. ``carries_load`` is False if requests would wait.
    ``capacity`` is as in the plan.
    """

    layout: Layout
    pool: str
    product: str
    codes: tuple[str, ...]
    performance: Performance | None
    carries_load: bool
    capacity: float | None = None


def survey(considered: Considered) -> tuple[Surveyed, ...]:
    """Return all candidates in the order in which they were enumerated."""
    found = []
    for verdict in considered.verdicts:
        candidate, estimate = (
            verdict.candidate,
            # A layout that does not fit has an estimate too, of K/V that is not there.
            None if verdict.codes & MEMORY else verdict.estimate,
        )
        carries = (
            estimate is not None and assess(candidate, estimate, considered.scale).carries_load
        )
        found.append(
            Surveyed(
                layout=candidate.layout,
                pool=candidate.pool.name,
                product=candidate.pool.product,
                # A set has another order in each process, and equal questions must give equal
                # bytes.
                codes=tuple(sorted(verdict.codes)),
                performance=estimate.performance if estimate else None,
                carries_load=carries,
                capacity=estimate.capacity if estimate else None,
            )
        )
    return tuple(found)


STEPS: Final = 8
"""Points of a curve over the load, up to twice the planned instances. Basis: chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLoad:
    """What one instance of a layout just holds: ``requests`` in flight, all of them running and
    within the limits; ``rate`` are the requests a second that it carries with headroom.
    """

    requests: int
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStep:
    """So many instances on so many GPUs carry up to ``load``: requests a second if a rate is
    offered, else requests in flight.
    """

    instances: int
    gpus: int
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """A layout that no other beats in both: output tokens a second of one user, and of one GPU."""

    layout: Layout
    pool: str
    tokens_per_user: float
    tokens_per_gpu: float


def instance_of(plan: Plan, considered: Considered) -> InstanceLoad | None:
    """Return what one instance of a plan holds, None if not even one request."""
    requests = plan.replica_requests
    if requests == 0:
        return None
    candidate = of(_one(plan, considered), plan.layout.replicas)
    rate = carried_rate(candidate, considered.judge.prices, considered.request, requests)
    return InstanceLoad(requests=requests, rate=max(rate, _share(plan, considered.request)))


def steps_of(plan: Plan, instance: InstanceLoad, request: Request) -> tuple[LoadStep, ...]:
    """Return up to which load numbers of instances carry, by rising load; the planned number is
    among them.
    """
    each = instance.requests if request.workload.requests_per_second is None else instance.rate
    number, gpus = plan.layout.replicas, plan.layout.gpus_per_replica
    numbers = sorted({math.ceil(2 * number * part / STEPS) for part in range(1, STEPS + 1)})
    return tuple(LoadStep(instances=many, gpus=many * gpus, load=many * each) for many in numbers)


def front(surveyed: Sequence[Surveyed], request: Request) -> tuple[FrontPoint, ...]:
    """Return the layouts that can run and that no other beats in tokens per user and per GPU, by
    falling speed of one user.
    """
    points = sorted(_points(surveyed, request), key=lambda point: -point.tokens_per_gpu)
    points.sort(key=lambda point: -point.tokens_per_user)
    found: list[FrontPoint] = []
    for point in points:
        if not found or point.tokens_per_gpu > found[-1].tokens_per_gpu:
            found.append(point)
    return tuple(found)


def _one(plan: Plan, considered: Considered) -> Candidate:
    wanted = replace(plan.layout, replicas=1), plan.pool
    candidates = (verdict.candidate for verdict in considered.verdicts)
    return of(next(each for each in candidates if layout_on_pool(each) == wanted), 1)


def _share(plan: Plan, request: Request) -> float:
    """Return the part of an offered rate that each instance of a plan carries; 0 if it does not."""
    if not plan.carries_load:
        return 0.0
    return (request.workload.requests_per_second or 0.0) / plan.layout.replicas


def _points(surveyed: Sequence[Surveyed], request: Request) -> Iterator[FrontPoint]:
    for one in surveyed:
        if one.performance is None or one.codes:
            continue
        served = (
            one.performance.output_tokens_per_second
            if one.capacity is None
            else one.capacity * request.workload.output_tokens
        )
        yield FrontPoint(
            layout=one.layout,
            pool=one.pool,
            tokens_per_user=1 / one.performance.tpot_seconds,
            tokens_per_gpu=served / one.layout.gpus,
        )
