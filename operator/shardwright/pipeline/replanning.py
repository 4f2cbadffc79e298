"""How does a plan change with the number of replicas or the cluster? Groups come, go or move, and
the cut stays. A group that can stay is never moved to a better place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Final

from shardwright.api.record import PlanRecord
from shardwright.hardware.inventory import Inventory
from shardwright.pipeline.assembly import plan_serving, record_of, without_groups
from shardwright.pipeline.changed_load import arrangement, as_it_runs
from shardwright.pipeline.extra_groups import (
    as_placed,
    differences,
    extra_groups,
    in_chosen_number,
    pinned,
    places,
    pools_of,
    predicted,
    with_room,
    without,
)
from shardwright.planning.gain import Better, Prospect
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.resolving.intent import Replan
from shardwright.resolving.subject import Subject

KEPT: Final = "The replicas keep the cut that they have: a new number of them cuts nothing anew."


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An existing group, by number, and its nodes."""

    number: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The inventory in which the model's own GPUs are free, for planning it anew.

    ``held`` are existing groups whose nodes no plan of record says: those of a model without one,
    and those below the partition. If there are to be fewer groups, the ``worst`` go first, by
    number. ``same_pods``: groups have the pods that the spec asks for beside a plan; with ``moves``
    another layout replaces theirs however little better. ``serving`` is how many groups there are
    while any serves: no new plan ends one of these for want of room.
    """

    inventory: Inventory
    held: tuple[Held, ...] = ()
    worst: tuple[int, ...] = ()
    same_pods: bool = False
    moves: bool = False
    serving: int = 0

    def suffices(self, subject: Subject, plan: Plan) -> bool:
        """Return whether a plan in place of the current one has no fewer groups than serve."""
        return len(plan.groups) >= min(self.serving, subject.intent.wants(plan))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned:
    """The record that now counts and the report to show.

    ``short`` is why there is no plan for what is asked for, so that the record is as it was;
    ``lacks`` is why groups are missing from the plan that there is, or are ``homeless``: by number,
    they wait where they were for another place. ``better`` is a plan better than the record's,
    ``anew`` the layout and the pool of a plan made now.
    """

    record: PlanRecord | None
    report: Report
    short: NoPlan | None = None
    lacks: NoPlan | None = None
    homeless: frozenset[int] = frozenset()
    better: Better | None = None
    anew: Prospect | None = None

    @property
    def waits_for(self) -> NoPlan | None:
        """Return what the model waits in line for, or None if it does not."""
        return self.short or self.lacks

    def told(self, waits_for: NoPlan | None) -> "Replanned":
        """Return the answer with more to say of what the model waits for."""
        if self.short and waits_for and isinstance(self.report.outcome, NoPlan):
            return replace(self, short=waits_for, report=replace(self.report, outcome=waits_for))
        if self.short:
            return replace(self, short=waits_for)
        return replace(self, lacks=waits_for)

    @property
    def placed(self) -> int:
        """Return how many groups have a place by this answer."""
        if self.record is None or self.short:
            return 0
        return len(self.record.plan.groups) - len(self.homeless)


def plan_anew(
    subject: Subject,
    record: PlanRecord | None,
    ground: Ground,
    planned: Callable[[Subject, Inventory], Report] = plan_serving,
) -> Replanned:
    """Return a new plan, as it is ``planned``; if there is none, the current plan is kept.

    Groups keep their nodes as far as the new plan can run there, and their pods if the new plan
    has their cut and the spec asks for no others. A load that changes only adds or drops groups
    while their cut carries it, unless another is better by ``MOVE_GAIN``.
    """
    inventory = ground.inventory
    report = planned(subject, inventory)
    if record and ground.same_pods:
        runs = as_it_runs(subject, record.plan, report, ground.inventory, moves=ground.moves)
        scaled = runs is not report and subject.intent.bounds is not None
        report = in_chosen_number(subject, inventory, runs) if scaled else runs
    report = _sufficing(subject, report, ground)
    if isinstance(report.outcome, Plan):
        # Without a record the groups that run are all that is known: a model that lost its record
        # moves as little as one that has it.
        stood = _standing(record.plan) if record else ground.held
        stay = _staying(stood, ground.worst, len(report.outcome.groups))
        nodes, before = (tuple(item.nodes for item in stay), record.plan if record else None)
        groups = settled(subject, report.outcome, inventory, nodes, before)
        made = _numbered(report.outcome, [item.number for item in stay], groups)
        report = replace(
            report,
            outcome=_clear_of(
                subject, made, inventory, _holding(subject, stood, ground.held), before
            ),
        )
    return _recorded(subject, record, report)


def _sufficing(subject: Subject, report: Report, ground: Ground) -> Report:
    plan = report.outcome
    if isinstance(plan, Plan) and report.lacks and not ground.suffices(subject, plan):
        return replace(report, outcome=report.lacks, lacks=None)
    return report


def _standing(plan: Plan) -> tuple[Held, ...]:
    return tuple(
        Held(number=number, nodes=nodes)
        for number, nodes in zip(plan.group_numbers, plan.groups, strict=True)
    )


def _staying(groups: Sequence[Held], worst: Sequence[int], most: int) -> tuple[Held, ...]:
    """Return at most ``most`` groups, in order: the worst go first, then the highest numbers.

    >>> one, two, three = (Held(number=number, nodes=()) for number in range(3))
    >>> [[item.number for item in _staying((one, two, three), worst, 2)] for worst in ((1,), ())]
    [[0, 2], [0, 1]]
    """
    rank = {number: at for at, number in enumerate(worst)}
    # The highest number goes among equals, so that the names that stay are the low ones (ADR 3).
    order = sorted(groups, key=lambda item: (rank.get(item.number, len(rank)), -item.number))
    return tuple(sorted(order[max(0, len(groups) - most) :], key=lambda item: item.number))


def _holding(subject: Subject, stood: Sequence[Held], held: Sequence[Held]) -> tuple[Held, ...]:
    # Groups below the partition keep their pods until it is lowered.
    return tuple(
        {
            item.number: item
            # Held ones last, so that they win: where pods are counts more than where a plan has
            # them.
            for item in (*stood, *held)
            if item.number < subject.intent.partition
        }.values()
    )


def _clear_of(
    subject: Subject, plan: Plan, inventory: Inventory, holding: Sequence[Held], before: Plan | None
) -> Plan:
    """Return the plan with its other groups moved off the nodes of the ``holding`` groups, as far
    as there is room.

    They first take the free places of groups that wait, then free nodes outside the plan.
    """
    if not holding:
        return plan
    left = without(inventory, replace(before or plan, groups=tuple(item.nodes for item in holding)))
    room = {node.name: node.free for pool in left.pools for node in pool.nodes}
    places = list(plan.groups)
    crowded = set[int]()
    later = [
        index
        for index, number in enumerate(plan.group_numbers)
        if any(number == item.number for item in holding)
    ]
    for index in (index for index in range(len(places)) if index not in later):
        free = (
            at
            for at in (index, *later)
            if all(room.get(node, 0) >= plan.gpus_per_node for node in places[at])
        )
        # Its pods could not start beside those that hold the nodes.
        if (at := next(free, None)) is None:
            crowded.add(index)
            continue
        # Swapped, so that the plan has no node twice and the waiting group has a place for later.
        places[index], places[at] = places[at], places[index]
        room |= {node: room[node] - plan.gpus_per_node for node in places[index]}
    return rehouse(subject, replace(plan, groups=tuple(places)), left, frozenset(crowded))[0]


def _numbered(plan: Plan, kept: Sequence[int], groups: Sequence[tuple[str, ...]]) -> Plan:
    """Return a plan with these groups: the first have the ``kept`` numbers, others free ones.

    A group's name has three digits, and a monitor that watches a model by these names finds them
    again.
    """
    free = (number for number in count() if number not in kept)
    numbers = (*kept, *islice(free, len(groups) - len(kept)))
    ordered = sorted(zip(numbers, groups, strict=True))
    said = tuple(number for number, _ in ordered)
    return replace(
        plan,
        groups=tuple(nodes for _, nodes in ordered),
        numbers=() if said == tuple(range(len(said))) else said,
    )


def settled(
    subject: Subject,
    plan: Plan,
    inventory: Inventory,
    held: Sequence[tuple[str, ...]],
    before: Plan | None,
) -> tuple[tuple[str, ...], ...]:
    """Return the nodes of each group of a new plan with the fewest moves.

    ``plan`` may have its groups anywhere in its pool. In ``inventory`` the GPUs of the groups count
    as free. ``held`` are the groups' present nodes, by index, and ``before`` is the plan that put
    them there (None: unknown).
    """
    usable = _usable(plan, inventory, held, before)
    kept = {index: held[index] for index in usable}
    missing = len(plan.groups) - len(kept)
    # No group can stay: they choose among the new places, each the one most like its own.
    if not kept or missing < 0:
        return _matched(plan.groups, held)
    stand = replace(plan, groups=tuple(kept.values()))
    more = (
        extra_groups(subject, stand, without(pools_of(inventory, plan), stand), missing).outcome
        if missing
        else None
    )
    # No room for all beside the groups that would stay, but the plan has room: so some must move.
    if isinstance(more, NoPlan):
        return _matched(plan.groups, held)
    others = iter(more.groups if more else ())
    return tuple(
        kept[index] if index in kept else next(others) for index in range(len(plan.groups))
    )


def _usable(
    plan: Plan, inventory: Inventory, held: Sequence[tuple[str, ...]], before: Plan | None
) -> tuple[int, ...]:
    # By index, and no more than the new plan has groups.
    alone = plan.nodes_per_replica == 1
    # The order of nodes decides which link joins which ranks, so it is right only for the same
    # shape.
    if not alone and (before is None or arrangement(before) != arrangement(plan)):
        return ()
    pool = inventory.named(plan.pool)
    room = {node.name: node.free for node in pool.nodes} if pool else {}
    found = []
    for index, nodes in enumerate(held[: len(plan.groups)]):
        fits = len(nodes) == plan.nodes_per_replica and all(
            room.get(name, 0) >= plan.gpus_per_node for name in nodes
        )
        if fits:
            found.append(index)
            # Two groups may be on one node: the second must fit beside the first.
            room |= {name: room[name] - plan.gpus_per_node for name in nodes}
    return tuple(found)


def _matched(
    places: Sequence[tuple[str, ...]], held: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], ...]:
    """Return the places so ordered that groups share most nodes with their own.

    >>> _matched((("a",), ("b",), ("c",)), (("b",), ("c",), ("d",)))
    (('b',), ('c',), ('a',))
    """
    pairs = sorted(
        (
            (-len(set(place).intersection(nodes)), index, at)
            for index, nodes in enumerate(held[: len(places)])
            for at, place in enumerate(places)
        )
    )
    chosen: dict[int, int] = {}
    for shared, index, at in pairs:
        if shared and index not in chosen and at not in chosen.values():
            chosen[index] = at
    free = iter(at for at in range(len(places)) if at not in chosen.values())
    order = [chosen[index] if index in chosen else next(free) for index in range(len(places))]
    return tuple(
        _as_held(places[at], held[index] if index < len(held) else ())
        for index, at in enumerate(order)
    )


def _as_held(place: tuple[str, ...], nodes: tuple[str, ...]) -> tuple[str, ...]:
    # The order counts: with the same nodes nothing has changed.
    return nodes if len(place) == len(nodes) and set(place) == set(nodes) else place


def rescaled(
    subject: Subject, record: PlanRecord, inventory: Inventory, worst: Sequence[int] = ()
) -> Replanned:
    """Return the plan with the number of replicas wanted now, as far as they have a place."""
    report = rescale(subject, record.plan, inventory, worst)
    if record.input_hash == subject.input_hash and _is_placed_as(report.outcome, record.plan):
        # Predictions alone are no reason to write it anew each time that it is asked for more.
        return Replanned(record=record, report=record.report(), lacks=report.lacks)
    return _recorded(subject, record, report)


def _is_placed_as(outcome: Plan | NoPlan, plan: Plan) -> bool:
    return isinstance(outcome, Plan) and (outcome.groups, outcome.missing) == (
        plan.groups,
        plan.missing,
    )


def restore(subject: Subject, record: PlanRecord | None, plan: Plan, ground: Ground) -> Replanned:
    """Return an earlier plan, its cut on its pool, for the groups wanted now.

    Held groups stay on their nodes as far as the plan can run there; others keep clear of those
    below the partition, as in a new plan. If not all have room, the record is as it is.
    """
    wanted = subject.intent.wants(plan)
    if wanted == 0:  # as of any plan: the next group has a new one
        said = Report(outcome=plan, alternatives=(), excluded=(), considered=0)
        return _recorded(subject, record, without_groups(said))
    # Its own pool: pods are made again as they were, and they name GPUs of that kind.
    own = pools_of(ground.inventory, plan)
    stay = _staying(ground.held, ground.worst, wanted)
    report = _sufficing(subject, _restored(subject, plan, own, stay, wanted), ground)
    if isinstance(report.outcome, Plan):
        holding = _holding(subject, (), ground.held)
        before = record.plan if record else None
        report = replace(
            report, outcome=_clear_of(subject, report.outcome, ground.inventory, holding, before)
        )
    return _recorded(subject, record, report)


def _restored(
    subject: Subject, plan: Plan, own: Inventory, stay: Sequence[Held], wanted: int
) -> Report:
    usable = [stay[index] for index in _usable(plan, own, tuple(item.nodes for item in stay), plan)]
    stands = _numbered(plan, [item.number for item in usable], [item.nodes for item in usable])
    return _grown(subject, stands, own, wanted)


def relocate(
    subject: Subject, record: PlanRecord, inventory: Inventory, leaving: frozenset[int]
) -> Replanned:
    """Return the plan with ``leaving`` groups elsewhere, then with the wanted number of replicas.

    Existing groups come first: while some wait for a place the record goes on answering its earlier
    question. If not all have room of this kind, and no group stays or ``spec.replan`` lets those
    that stay move too, the model is planned anew, where that gives all groups a place, or more of
    them.
    """
    plan = record.plan
    found, short = _elsewhere(subject, plan, inventory, leaving)
    none_stays = len(leaving) == len(plan.groups)
    if short and (none_stays or subject.intent.replan is Replan.ALWAYS):
        anew = plan_anew(subject, record, Ground(inventory=inventory))
        if anew.waits_for is None or (none_stays and anew.placed > len(found)):
            return anew
    if short and none_stays and not found:
        return Replanned(record=record, report=record.report(), short=short)
    moved = replace(record, plan=_moved(plan, leaving, found))
    if short:
        homeless = frozenset(plan.group_numbers[index] for index in sorted(leaving)[len(found) :])
        return Replanned(record=moved, report=moved.report(), lacks=short, homeless=homeless)
    if record.input_hash == subject.input_hash and not plan.missing:
        return Replanned(record=moved, report=moved.report())
    return rescaled(subject, moved, inventory)


def with_most(record: PlanRecord, before: PlanRecord | None, most: int) -> PlanRecord:
    """Return the record with at most so many groups, those of the record ``before`` first.

    The others are missing.
    """
    plan, stood = record.plan, before.plan.group_numbers if before else ()
    kept = sorted(plan.group_numbers, key=lambda number: (number not in stood, number))[:most]
    places_of = dict(zip(plan.group_numbers, plan.groups, strict=True))
    stay = sorted(kept)
    fewer = _numbered(plan, stay, [places_of[number] for number in stay])
    fewer = replace(
        fewer, layout=replace(plan.layout, replicas=len(stay)), missing=plan.wanted - len(stay)
    )
    return replace(record, plan=fewer, generations=_generations(record, fewer))


def as_admitted(
    subject: Subject, made: Replanned, before: PlanRecord | None, inventory: Inventory, most: int
) -> Replanned:
    """Return the answer for at most so many groups, with predictions of these."""
    if made.record is None or len(made.record.plan.groups) <= most:
        return made
    record = with_most(made.record, before, most)
    own = pools_of(inventory, record.plan)
    report = predicted(subject, record.plan, own, next(iter(record.plan.reasons), ""))
    return replace(_recorded(subject, record, report), lacks=None)


def _recorded(subject: Subject, record: PlanRecord | None, report: Report) -> Replanned:
    if isinstance(report.outcome, NoPlan):
        return Replanned(
            record=record, report=record.report() if record else report, short=report.outcome
        )
    made = record_of(subject, report)
    if made and record:
        # The hour since the last better plan is counted from improved_at: a new number of replicas
        # must not shorten it (ADR 24).
        made = replace(
            made, generations=_generations(record, made.plan), improved_at=record.improved_at
        )
    return Replanned(record=made, report=report, lacks=report.lacks)


def _generations(record: PlanRecord, plan: Plan) -> tuple[int, ...]:
    # Shorter where no group of the plan ever had a next generation.
    least = dict(zip(record.plan.group_numbers, record.generations, strict=False))
    # a surge goes on under its generation
    return tuple(least.get(number, 0) for number in plan.group_numbers) if least else ()


def planned_again(subject: Subject, plan: Plan, inventory: Inventory) -> Plan | None:
    """Return a plan of the same layout on the same pool, on nodes that are free now, or None."""
    pool = inventory.named(plan.pool)
    pools = replace(inventory, pools=(pool,) if pool else (), excluded=())
    found = make_plan(
        subject.model,
        with_room(subject, plan, pools),
        as_placed(subject.request, plan),
        subject.traits,
    ).outcome
    if (
        isinstance(found, NoPlan)
        or replace(found.layout, partition=plan.layout.partition) != plan.layout
    ):
        return None
    return None if any(differences(found, plan)) else found


def rescale(
    subject: Subject, plan: Plan, inventory: Inventory, worst: Sequence[int] = ()
) -> Report:
    """Return the plan with the wished number of replicas, or as many as its cut needs by now, or as
    many of these as have a place; none moves.

    A replica stays as it is, its engine's limits included, so that no group restarts for a new
    number; only predictions and reasons are new. Groups are dropped, the ``worst`` first, by
    number, even if missing nodes prevent a prediction. An added group takes the lowest free number.
    """
    if not plan.groups:
        return plan_serving(subject, inventory)
    own = pools_of(inventory, plan)
    wanted = _wanted(subject, plan, own)
    if wanted > len(plan.groups):
        return _grown(subject, plan, own, wanted)
    stay = _staying(_standing(plan), worst, wanted)
    fewer = _numbered(plan, [item.number for item in stay], [item.nodes for item in stay])
    return predicted(subject, replace(fewer, missing=0), own, KEPT)


def _wanted(subject: Subject, plan: Plan, own: Inventory) -> int:
    """A number that is open is planned for the cut that there is."""
    if subject.intent.replicas is not None:
        return subject.intent.replicas
    found = make_plan(subject.model, own, pinned(subject.request, plan), subject.traits).outcome
    return subject.intent.chosen((plan if isinstance(found, NoPlan) else found).wanted)


def _grown(subject: Subject, plan: Plan, own: Inventory, wanted: int) -> Report:
    more, why = places(subject, plan, own, wanted - len(plan.groups))
    # Where fewer are of no use, none is added.
    if why and len(plan.groups) + len(more) < subject.intent.least(plan):
        more = ()
    grown = _numbered(plan, plan.group_numbers, (*plan.groups, *more))
    if why and not grown.groups:
        return Report(outcome=why, alternatives=(), excluded=(), considered=0)
    grown = replace(grown, missing=wanted - len(grown.groups))
    return replace(predicted(subject, grown, own, KEPT), lacks=why)


def rehouse(
    subject: Subject, plan: Plan, inventory: Inventory, leaving: frozenset[int]
) -> tuple[Plan, NoPlan | None]:
    """Return the plan with ``leaving`` groups on other nodes as far as possible, and why not all.

    Every group keeps its index, and the others stay on their nodes.
    """
    found, short = _elsewhere(subject, plan, inventory, leaving)
    return _moved(plan, leaving, found), short


def _moved(plan: Plan, leaving: frozenset[int], found: Sequence[tuple[str, ...]]) -> Plan:
    others = iter(found)
    groups = tuple(
        # A group without another place stays planned where it was: its node may come back.
        next(others, group) if index in leaving else group
        for index, group in enumerate(plan.groups)
    )
    return replace(plan, groups=groups)


def _elsewhere(
    subject: Subject, plan: Plan, inventory: Inventory, leaving: frozenset[int]
) -> tuple[tuple[tuple[str, ...], ...], NoPlan | None]:
    kept = tuple(group for index, group in enumerate(plan.groups) if index not in leaving)
    own = pools_of(inventory, plan)
    return places(subject, replace(plan, groups=kept), own, len(plan.groups) - len(kept))


def place_beside(subject: Subject, plan: Plan, inventory: Inventory) -> tuple[str, ...] | None:
    """Return nodes for a surge of one of the plan's groups, or None; the inventory is
    ``take_stock``'s with ``OwnGpus(beside=…)``.

    A claim that only one node has mounted so far may be one that no second node can mount.
    """
    outcome = extra_groups(subject, plan, pools_of(inventory, plan), 1).outcome
    if isinstance(outcome, NoPlan):
        return None
    (place,) = outcome.groups
    mounted_on = {node for group in plan.groups for node in group}
    return (
        place
        # A claim that two nodes have mounted can be mounted by a third.
        if len(mounted_on) > 1 or not subject.intent.shares_claim or mounted_on.issuperset(place)
        else None
    )
