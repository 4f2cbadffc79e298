"""Which questions go to the planner process, as users' input decides what they cost? Each comes
with the pure function that answers it.

Which answer does the planner give to a reconcile's question on the model's stock, and which
nodes does a waiting model claim? The pipeline makes plans; this
chooses between them. It runs in the planner process, so it gets values and asks nobody.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar

from shardwright.api.record import PlanRecord
from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.scheduling import PodTerms
from shardwright.layouts.layout import GpuQuota
from shardwright.pipeline.assembly import Supply, plan_serving, without_barring
from shardwright.pipeline.plan_upgrade import improve
from shardwright.pipeline.replanning import (
    Ground,
    Replanned,
    as_admitted,
    place_beside,
    plan_anew,
    relocate,
    rescaled,
    restore,
)
from shardwright.planning.report import Plan, Report, WaysOut
from shardwright.planning.ways_out import Holder, ways_out
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.snapshot import Ask
from shardwright.reconcile.waiting import Claim, Room, choose
from shardwright.resolving.subject import Administration, Subject, resolve_stored


def answer(
    subject: Subject,
    ask: Ask,
    inventory: Inventory,
    planned: Callable[[Subject, Inventory], Report] | None = None,
) -> Replanned:
    """Return what becomes of a plan of record, or a first plan, as it is ``planned`` (None: within
    the quotas, if that can be).

    An earlier plan gives way to a new one if its hardware is gone: its groups would wait for ever.
    """
    planned = planned or partial(plan_within, ask.quotas)
    made = _answer(subject, ask, inventory, planned)
    return made if ask.most is None else as_admitted(subject, made, ask.on, inventory, ask.most)


def _answer(
    subject: Subject,
    ask: Ask,
    inventory: Inventory,
    planned: Callable[[Subject, Inventory], Report],
) -> Replanned:
    if ask.choice is PlanChoice.RESCALE and ask.on:
        return rescaled(subject, ask.on, inventory, ask.worst)
    if ask.choice is PlanChoice.REHOUSE and ask.on:
        return relocate(subject, ask.on, inventory, ask.leaving)
    if ask.choice in {PlanChoice.COMPARE, PlanChoice.IMPROVE} and ask.on:
        ground = Ground(inventory=inventory, worst=ask.worst, same_pods=ask.same_pods)
        take = ask.choice is PlanChoice.IMPROVE
        return improve(subject, ask.on, ground, planned, take=take)
    ground = Ground(
        inventory=inventory,
        held=ask.held,
        worst=ask.worst,
        same_pods=ask.same_pods,
        serving=ask.serving,
    )
    if ask.choice is PlanChoice.RESTORE and ask.restored:
        restored = restore(subject, ask.on, ask.restored, ground)
        # A lack that passes is waited out, to restore the very plan that was good. Nodes that an
        # autoscaler could make are not waited for, as hardware that is gone may never come (ADR
        # 25).
        if restored.short is None or (
            restored.short.heals_by_itself and not restored.short.awaits_nodes
        ):
            return restored
    return plan_anew(subject, ask.on, ground, planned)


def plan_within(quotas: tuple[GpuQuota, ...], subject: Subject, inventory: Inventory) -> Report:
    """Return the plan within quotas; if none can be, the plan that they refuse, or why there is
    none.
    """
    if quotas:
        report = plan_serving(_within(quotas, subject), inventory)
        if isinstance(report.outcome, Plan):
            return report
    return plan_serving(subject, inventory)


def _within(quotas: tuple[GpuQuota, ...], subject: Subject) -> Subject:
    space = replace(subject.request.space, quotas=quotas)
    return replace(subject, request=replace(subject.request, space=space)) if quotas else subject


def dated(answer: Replanned, ask: Ask, now: datetime) -> Replanned:
    """Return an answer; if its plan replaces one that served, its record is dated."""
    if (
        # The hour between two improvements counts from here (ADR 24); a plan made for another
        # reason does not begin it.
        ask.choice is not PlanChoice.IMPROVE or answer.record is None or answer.record == ask.on
    ):
        return answer
    return replace(answer, record=replace(answer.record, improved_at=now))


def plans_anew(ask: Ask) -> bool:
    """Return whether :func:`answer` makes a new plan in any case."""
    return ask.on is None or ask.choice not in {
        PlanChoice.RESCALE,
        PlanChoice.REHOUSE,
        PlanChoice.RESTORE,
    }


def waits_for_itself(ask: Ask, made: Replanned) -> bool:
    """Return whether a model without room is answered once more, as if former generations of its
    own groups were gone.

    Only a plan that may run ends them: while there is none, they would be in its way for ever. If
    groups only come, go or move, the plan of record meanwhile goes on and ends them.
    """
    return made.waits_for is not None and ask.choice in {PlanChoice.REPLAN, PlanChoice.RESTORE}


def for_the_rest(ask: Ask, made: Replanned) -> Ask:
    """Return the question for the groups that have no place by an answer: that for more groups of
    its plan, else the same.
    """
    if made.record is None or made.short or made.homeless:
        return ask
    return replace(ask, on=made.record, choice=PlanChoice.RESCALE, leaving=frozenset(), worst=())


def with_ways_out(
    subject: Subject, ask: Ask, supply: Supply, made: Replanned, holders: Sequence[Holder]
) -> Replanned:
    """Return an answer; if there is no room, with ways to a plan."""
    waits_for = made.waits_for
    if waits_for is None:
        return made
    # A plan that only gets more groups, or moves them, asks for nothing anew.
    left_out = without_barring(subject, supply) if made.short and plans_anew(ask) else ()
    if waits_for.lack is None and not left_out:
        return made

    # The very question that failed, on other inventories: a rule of thumb could promise room that
    # the planner does not find.
    def fits(other: Inventory) -> bool:
        return answer(subject, ask, other).waits_for is None

    ways = WaysOut()
    if waits_for.lack:
        ways = ways_out(waits_for.lack, supply.inventory, fits, holders)
    return made.told(replace(waits_for, ways_out=replace(ways, without=left_out)))


def rooms(whole: Inventory, taken: Mapping[str, int], claimed: Mapping[str, int]) -> Iterator[Room]:
    """Yield the nodes that a model may claim.

    By node, ``taken`` are the GPUs that others hold, ``claimed`` those that models before it
    claim. ``whole`` is the inventory with every GPU free.
    """
    for pool in whole.pools:
        for node in pool.nodes:
            gpus = max(0, node.gpus - claimed.get(node.name, 0))
            yield Room(
                node=node.name,
                gpus=gpus,
                free=min(gpus, max(0, node.gpus - taken.get(node.name, 0))),
            )


def plan_to_claim(
    subject: Subject, ask: Ask, whole: Inventory, found: Sequence[Room]
) -> PlanRecord | None:
    """Return the plan of most groups that a model would get on these nodes within the quotas, to
    claim its GPUs; None if all of them would not do.
    """
    room_of = {room.node: room.gpus for room in found}
    blocked = {
        node.name: node.gpus - room_of.get(node.name, 0)
        for pool in whole.pools
        for node in pool.nodes
    }
    # With all GPUs of others free: a claim says where there would be room, and is filled as
    # they go (ADR 10).
    vacant = whole.without(blocked)

    # What no quota lets in is claimed from nobody.
    def within(subject: Subject, inventory: Inventory) -> Report:
        return plan_serving(_within(ask.quotas, subject), inventory)

    def made(nodes: Collection[str]) -> Replanned:
        return answer(subject, ask, vacant.of_nodes(frozenset(nodes)), within)

    most = made(room_of).placed

    def fit(near: Sequence[Room]) -> PlanRecord | None:
        found = made([room.node for room in near])
        return found.record if found.placed >= most and not found.short else None

    return choose(found, fit)


def claim_of(record: PlanRecord, ask: Ask) -> Claim:
    """Return the GPUs of a plan beyond those that its model has."""
    # A Counter's difference leaves out numbers below one: GPUs that it gives back are no claim.
    return _gpus(record.plan) - _gpus(ask.on.plan if ask.on else None)


def _gpus(plan: Plan | None) -> Counter[str]:
    gpus: Counter[str] = Counter()
    for node in (node for group in plan.groups for node in group) if plan else ():
        gpus[node] += plan.gpus_per_node if plan else 0
    return gpus


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
            made.append(plan_within(self.ask.quotas, subject, inventory))
            return made[-1]

        replanned = answer(self.subject, self.ask, self.stock.inventory(), planned)
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
    """Which changes would make room for a model that has none by ``made``?

    ``beside`` is the stock for pods of other terms, that they would have without one of the fields.
    """

    subject: Subject
    ask: Ask
    stock: Stock
    made: Replanned
    holders: tuple[Holder, ...]
    beside: tuple[tuple[PodTerms, Stock], ...] = ()

    def answer(self) -> Replanned:
        """Return the planner's answer with the ways out."""
        supply = Supply(inventory=self.stock.inventory(), restock=self._restock)
        return with_ways_out(self.subject, self.ask, supply, self.made, self.holders)

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

    def answer(self) -> PlanRecord | None:
        """Return the plan whose GPUs are to be claimed."""
        found = tuple(rooms(self.stock.whole, self.stock.taken, self.claimed))
        return plan_to_claim(self.subject, self.ask, self.stock.whole, found)
