"""How did every considered layout fare: its violations, or its speed? The data for a picture of
all.

A layout without memory on a pool gets no speed rather than a guess.
"""

from dataclasses import dataclass

from shardwright.costs.estimates import Performance
from shardwright.layouts.layout import Layout
from shardwright.planning.checks import MEMORY
from shardwright.planning.planner import Considered
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
                performance=estimate.performance
                if estimate and estimate.performance.promised
                else None,
                carries_load=carries,
                capacity=estimate.capacity if estimate else None,
            )
        )
    return tuple(found)
