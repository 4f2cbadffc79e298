"""How many instances of a layout answer a load? The fewest that carry it within its limits, and a
few more where the objective may pay for them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from shardwright.layouts.layout import Candidate, Layout
from shardwright.planning.checks import Judge
from shardwright.planning.request import OptimizeFor
from shardwright.planning.select import BALANCED_SHARE, FeasibleCandidate, Scale, assess


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewest:
    """Chooses the fewest instances of a layout that carry the load within its limits."""

    judge: Judge
    scale: Scale

    def __call__(self, largest: Candidate) -> tuple[int]:
        """Return the number; if none does, as many as have room and are in time.

        Args:
            largest: The layout, in as many instances as have room within the budget.
        """
        most = largest.layout.replicas
        if most == 1 or not self.judge.runs(of(largest, 1)):
            return (1,)
        least = smallest(lambda number: self._does(of(largest, number)), self._guess(largest), most)
        return (self._most_in_time(largest) if least is None else least,)

    def _most_in_time(self, largest: Candidate) -> int:
        """Smaller batches leave more room for K/V: where requests wait for it more instances may
        run more at once, so that a token takes longer.
        """
        most = largest.layout.replicas
        if self._in_time(largest, most) or not self._in_time(largest, 1):
            return most
        late = smallest(lambda number: not self._in_time(largest, number), 1, most)
        return (late or most) - 1

    def _in_time(self, largest: Candidate, number: int) -> bool:
        return self.judge.in_time(of(largest, number))

    def _does(self, candidate: Candidate) -> bool:
        return self._assessed(candidate).carries_load and self.judge.in_time(candidate)

    def _guess(self, largest: Candidate) -> int:
        """One instance serves a share of the load: as many as make up all of it are the least."""
        share = self._assessed(of(largest, 1)).served_share
        return min(largest.layout.replicas, max(1, math.ceil(1 / share - _ROUNDING)))

    def _assessed(self, candidate: Candidate) -> FeasibleCandidate:
        return assess(candidate, self.judge.prices.estimate(candidate), self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """Chooses the larger numbers of instances that may pay: those on as many GPUs as the best
    layout so far, and what the objective pays for speed.
    """

    judge: Judge
    scale: Scale
    best: FeasibleCandidate
    least: Mapping[tuple[Layout, str], FeasibleCandidate]
    likely: frozenset[tuple[Layout, str]]

    @classmethod
    def beside(cls, ranked: Sequence[FeasibleCandidate], judge: Judge, scale: Scale) -> "More":
        """Return the choice beside ranked layouts in the fewest instances that do."""
        least = {layout_on_pool(each.candidate): each for each in ranked if each.carries_load}
        likely = frozenset(islice(least, _LIKELY))
        return cls(judge=judge, scale=scale, best=ranked[0], least=least, likely=likely)

    def __call__(self, largest: Candidate) -> Iterator[int]:
        """Yield the numbers, each above the fewest that do.

        Args:
            largest: The layout, in as many instances as have room within the budget.
        """
        fewest_that_do = self.least.get(layout_on_pool(largest))
        if fewest_that_do is None:
            return
        number = fewest_that_do.candidate.layout.replicas
        likely = layout_on_pool(largest) in self.likely
        paying = self._paying(fewest_that_do, largest) if likely else ()
        if likely or largest.pool is self.best.candidate.pool:
            paying = (*paying, self._for_as_much(fewest_that_do))
        yield from sorted(more for more in set(paying) if number < more <= largest.layout.replicas)

    def _for_as_much(self, least: FeasibleCandidate) -> int:
        """Return how many instances cost what the best layout does."""
        number = least.candidate.layout.replicas
        return math.floor(self.best.cost / (least.cost / number) * (1 + _ROUNDING))

    def _paying(self, least: FeasibleCandidate, largest: Candidate) -> Iterator[int]:
        number = least.candidate.layout.replicas
        match self.scale.request.objective.optimize_for:
            case OptimizeFor.THROUGHPUT:
                return
            case OptimizeFor.BALANCED:
                most = math.floor(number * BALANCED_SHARE * self._least_cost() / least.counted_cost)
                yield from (number + math.ceil((most - number) * share) for share in (0.5, 1))
            case OptimizeFor.LATENCY:
                yield from self._while_better(least, largest.layout.replicas)

    def _least_cost(self) -> float:
        return min(each.counted_cost for each in self.least.values())

    def _while_better(self, least: FeasibleCandidate, most: int) -> Iterator[int]:
        number, best = least.candidate.layout.replicas, least.score
        pool, each = least.candidate.pool, least.candidate.layout.gpus_per_replica
        joined = max(pool.domain_gpus, pool.gpus_per_node) // each
        while number < most:
            # More than an NVLink domain must halve the time: its last GPUs may be the best number.
            twice = joined if number < joined < 2 * number else 2 * number
            number = min(twice, most)
            more = of(least.candidate, number)
            score = assess(more, self.judge.prices.estimate(more), self.scale).score
            if score <= best:
                return
            yield number
            best = score


_ROUNDING: Final = 1e-9

_LIKELY: Final = 24
"""Layouts that are tried in more instances for speed, the best in the fewest first. Basis:
assumed.
"""


def layout_on_pool(candidate: Candidate) -> tuple[Layout, str]:
    """Return what a candidate is, in whatever number of instances: its layout and its pool."""
    return replace(candidate.layout, replicas=1), candidate.pool.name


def of(candidate: Candidate, instances: int) -> Candidate:
    """Return a candidate in another number of instances, for its price: its place is that of as
    many as before.
    """
    if candidate.layout.replicas == instances:
        return candidate
    return replace(candidate, layout=replace(candidate.layout, replicas=instances))


def smallest(does: Callable[[int], bool], guess: int, most: int) -> int | None:
    """Return the smallest number that does, from a guess on, or None if none up to the most does.

    >>> smallest(lambda number: number >= 37, 10, 100)
    37
    """
    short, enough, step = guess - 1, guess, 1
    while not does(enough):
        if enough == most:
            return None
        short, enough, step = enough, min(most, enough + step), 2 * step
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (short, middle) if does(middle) else (middle, enough)
    return enough
