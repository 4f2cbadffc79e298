"""What are the fewest GPUs that carry a load within its limits?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shardwright.planning.report import NoPlan, Plan

MORE: Final = (1.25, 1.5, 2.0)
"""Times the fewest GPUs that are tried as well: what a little more brings. Basis: chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedOutcome:
    """The outcome with so many GPUs."""

    gpus: int
    outcome: Plan | NoPlan

    @property
    def carries(self) -> bool:
        """Return whether they carry the load within the limits."""
        return isinstance(self.outcome, Plan) and self.outcome.carries_load


def size(ask: Callable[[int], Plan | NoPlan], most: int) -> tuple[SizedOutcome, ...]:
    """Return every step that was tried, by rising number of GPUs; the first that carries is the
    fewest.

    Numbers double until one carries, the gap below it is halved, and a few above it are tried, up
    to ``most``. More GPUs are taken to carry whatever fewer do. ``ask`` plans for a number of GPUs.
    """
    steps: dict[int, SizedOutcome] = {}

    def carries(gpus: int) -> bool:
        steps[gpus] = SizedOutcome(gpus=gpus, outcome=ask(gpus))
        return steps[gpus].carries

    low, high = 0, 1
    # Each question plans for all of the GPUs, so a few must do.
    while not carries(high) and high < most:
        low, high = high, min(2 * high, most)
    # Between one that does not carry and one that does, if more GPUs never carry less.
    while steps[high].carries and high - low > 1:
        middle = (low + high) // 2
        if carries(middle):
            high = middle
        else:
            low = middle
    for gpus in (
        {math.ceil(high * share) for share in MORE} - steps.keys() if steps[high].carries else ()
    ):
        if gpus <= most:
            carries(gpus)
    return tuple(steps[gpus] for gpus in sorted(steps))


def fewest(steps: tuple[SizedOutcome, ...]) -> SizedOutcome | None:
    """Return the smallest step that carries the load, None if none does."""
    return next((step for step in steps if step.carries), None)
