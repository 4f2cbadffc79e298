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

    def __call__(self, one: Candidate, most: Callable[[], int]) -> tuple[int]:
        """Return the number; if none does, as many as have room and are in time.

        Args:
            one: The layout, in one instance.
            most: Says how many instances have room within the budget.
        """
        if not self.judge.runs(one) or (room := most()) == 1:
            return (1,)
        guess = min(room, self._guess(one))
        least = smallest(lambda number: self._does(of(one, number)), guess, room)
        return (self._most_in_time(one, room) if least is None else least,)

    def _most_in_time(self, one: Candidate, most: int) -> int:
        """Smaller batches leave more room for K/V: where requests wait for it more instances may
        run more at once, so that a token takes longer.
        """
        if self._in_time(one, most) or not self._in_time(one, 1):
            return most
        late = smallest(lambda number: not self._in_time(one, number), 1, most)
        return (late or most) - 1

    def _in_time(self, one: Candidate, number: int) -> bool:
        return self.judge.in_time(of(one, number))

    def _does(self, candidate: Candidate) -> bool:
        return self._assessed(candidate).carries_load and self.judge.in_time(candidate)

    def _guess(self, one: Candidate) -> int:
        """One instance serves a share of the load: as many as make up all of it are the least."""
        return max(1, math.ceil(1 / self._assessed(one).served_share - _ROUNDING))

    def _assessed(self, candidate: Candidate) -> FeasibleCandidate:
        return assess(candidate, self.judge.prices.estimate(candidate), self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """Chooses the larger numbers of instances that may pay: those on as many GPUs as the best
    layout so far, and what the objective pays for speed; ``tried`` numbers not again.
    """

    judge: Judge
    scale: Scale
    best: FeasibleCandidate
    least: Mapping[tuple[Layout, str], FeasibleCandidate]
    likely: frozenset[tuple[Layout, str]]
    tried: frozenset[tuple[Layout, str]]

    @classmethod
    def beside(cls, ranked: Sequence[FeasibleCandidate], judge: Judge, scale: Scale) -> "More":
        """Return the choice beside ranked layouts, of which some may be in more instances."""
        least: dict[tuple[Layout, str], FeasibleCandidate] = {}
        for each in filter(lambda each: each.carries_load, ranked):
            fewest = least.setdefault(layout_on_pool(each.candidate), each)
            if each.candidate.layout.replicas < fewest.candidate.layout.replicas:
                least[layout_on_pool(each.candidate)] = each
        tried = frozenset((each.candidate.layout, each.candidate.pool.name) for each in ranked)
        likely = frozenset(islice(least, _LIKELY))
        return cls(
            judge=judge, scale=scale, best=ranked[0], least=least, likely=likely, tried=tried
        )

    def __call__(self, one: Candidate, most: Callable[[], int]) -> Iterator[int]:
        """Yield the numbers, each above the fewest that do.

        Args:
            one: The layout, in one instance.
            most: Says how many instances have room within the budget.
        """
        key = layout_on_pool(one)
        fewest_that_do = self.least.get(key)
        likely = key in self.likely
        if not fewest_that_do or not (likely or one.pool is self.best.candidate.pool):
            return
        number, room = fewest_that_do.candidate.layout.replicas, most()
        paying = {*self._paying(fewest_that_do, room)} if likely else set[int]()
        for more in sorted(paying | {self._for_as_much(fewest_that_do)}):
            again = (replace(one.layout, replicas=more), one.pool.name) in self.tried
            if number < more <= room and not again:
                yield more

    def _for_as_much(self, least: FeasibleCandidate) -> int:
        """Return how many instances cost what the best layout does."""
        number = least.candidate.layout.replicas
        return math.floor(self.best.cost / (least.cost / number) * (1 + _ROUNDING))

    def _paying(self, least: FeasibleCandidate, room: int) -> Iterator[int]:
        number = least.candidate.layout.replicas
        match self.scale.request.objective.optimize_for:
            case OptimizeFor.THROUGHPUT:
                return
            case OptimizeFor.BALANCED:
                most = math.floor(number * BALANCED_SHARE * self._least_cost() / least.counted_cost)
                yield from (number + math.ceil((most - number) * share) for share in (0.5, 1))
            case OptimizeFor.LATENCY:
                yield from self._while_better(least, room)

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
            # One over the network must halve all times inside, whatever they cost.
            if score <= best and not self.best.goes_over_nodes(self.scale.request):
                return
            yield number
            best = max(score, best)


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
