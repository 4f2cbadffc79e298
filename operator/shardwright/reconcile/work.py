"""Which questions go to the planner process, as users' input decides what they cost? Each comes
with the pure function that answers it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.scheduling import PodTerms
from shardwright.pipeline import Supply
from shardwright.planning.report import Plan, Report
from shardwright.planning.ways_out import Holder
from shardwright.reconcile import planner_answers
from shardwright.reconcile.snapshot import Ask
from shardwright.reconcile.waiting import Claim
from shardwright.replanning import Replanned, place_beside
from shardwright.resolving.stored import Administration, resolve_stored
from shardwright.resolving.subject import Subject

Answer_co = TypeVar("Answer_co", covariant=True)


class Work(Protocol[Answer_co]):
    """A question with all that its answer depends on."""

    def answer(self) -> Answer_co:
        """Return the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """The stock for a model: ``whole`` without ``lost`` nodes and GPUs ``taken`` by others."""

    whole: Inventory
    lost: frozenset[str] = frozenset()
    taken: Mapping[str, int]

    def inventory(self) -> Inventory:
        """Return the inventory that is left."""
        return self.whole.without_nodes(self.lost).without(self.taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """Which request does a resource make? As JSON, which is far smaller than Python values."""

    text: str
    config_text: str | None
    administration: Administration
    kept_version: str | None = None

    def answer(self) -> Subject | tuple[Problem, ...]:
        """Return the subject, or the problems for the user to correct."""
        return resolve_stored(
            json.loads(self.text), self.config_text, self.administration, self.kept_version
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What becomes of a plan of record, and the report of a new plan before it was settled."""

    replanned: Replanned
    report: Report | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MakePlan:
    """Does the plan of record of a model stand, or which plan is its first or next?"""

    subject: Subject
    ask: Ask
    stock: Stock

    def answer(self) -> Planned:
        """Return the planner's answer, and its report before the groups were settled on nodes."""
        # The cache of plans needs it unsettled.
        made: list[Report] = []

        def planned(subject: Subject, inventory: Inventory) -> Report:
            made.append(planner_answers.plan_within(self.ask.quotas, subject, inventory))
            return made[-1]

        replanned = planner_answers.answer(self.subject, self.ask, self.stock.inventory(), planned)
        return Planned(replanned=replanned, report=made[0] if made else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindPlaceBeside:
    """On which nodes could one more group of a plan start while all of them run?"""

    subject: Subject
    plan: Plan
    stock: Stock

    def answer(self) -> tuple[str, ...] | None:
        """Return the nodes for one more group, or None."""
        return place_beside(self.subject, self.plan, self.stock.inventory())


@dataclass(frozen=True, slots=True, kw_only=True)
class FindWaysOut:
    """What would make room for a model that has none by ``made``, and what do its own fields cost?

    ``beside`` is the stock for pods of other terms, that they would have without one of the fields.
    """

    subject: Subject
    ask: Ask
    stock: Stock
    made: Replanned
    holders: tuple[Holder, ...]
    beside: tuple[tuple[PodTerms, Stock], ...] = ()

    def answer(self) -> Replanned:
        """Return the planner's answer with the advice."""
        supply = Supply(inventory=self.stock.inventory(), restock=self._restock)
        return planner_answers.with_ways_out(
            self.subject, self.ask, supply, self.made, self.holders
        )

    def _restock(self, other: Subject) -> Inventory | None:
        stocks = (stock for terms, stock in self.beside if terms == other.terms)
        found = next(stocks, None)
        return found.inventory() if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseClaim:
    """Which nodes does a long-waiting model claim, after the ``claimed`` GPUs by node?"""

    subject: Subject
    ask: Ask
    stock: Stock
    claimed: Mapping[str, int]

    def answer(self) -> Claim:
        """Return the claim."""
        found = tuple(planner_answers.rooms(self.stock.whole, self.stock.taken, self.claimed))
        return planner_answers.claim(self.subject, self.ask, self.stock.whole, found)
