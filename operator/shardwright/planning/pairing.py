"""Are prompts and answers better put on groups of their own? The best pair beside the best whole
plan, at the same load, limits and budget, and every reason not to take it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from shardwright.costs.pairs import PairEstimator, Unit, kv_bytes, transfer_seconds
from shardwright.costs.workload import Phase
from shardwright.hardware.inventory import Inventory
from shardwright.layouts.layout import Candidate, Placement
from shardwright.layouts.placing import Shelf
from shardwright.modelspec.model_spec import RecurrentAttention
from shardwright.planning.arrivals import estimator_of
from shardwright.planning.checks import LIMITS, limit_violations
from shardwright.planning.choice import not_yet
from shardwright.planning.numbers import smallest
from shardwright.planning.pair_offers import (
    PairOffer,
    PricedGroup,
    can_pair,
    counts_near,
    fewest_heads,
    gpus_of_unit,
    in_groups,
    taken_by,
    unit_within,
)
from shardwright.planning.planner import Considered, make_plan
from shardwright.planning.report import Half, NoPlan, Pair, PairChoice, PairCode, PairReason, Plan
from shardwright.planning.request import ALL_OF_A_RATE, MOST_GROUPS, Objective, PairMode, PairWish
from shardwright.planning.select import UTILISATION, FeasibleCandidate, assess

SURE_GAIN: Final = 1.4
"""Gain from which a pair is taken by itself. Basis: measured, published systems that were measured
whole and apart under one limit: of predicted gains above it most were gains, below it as many lost
(docs/decisions/0044-prompts-and-answers-apart.md).
"""

GAIN_FOR_TWO_HALVES: Final = 2.0
"""The same where one unit, of which either half stops all, replaces groups that stand in for each
other. Basis: chosen.
"""

MOST_IDLE: Final = 0.5
"""Share of a pair's GPU time without work that says why it does not pay. Basis: chosen, half."""

CHEAP_PROMPTS: Final = 0.15
"""Share of a token's time that prompts take of whole groups, below which nothing is gained by
taking them away. Basis: assumed.
"""

_OF_A_LOAD: Final = LIMITS | {"BudgetExceeded", "QuotaExceeded"}
"""What may speak against a whole layout whose groups would do for one half."""

_BUSY: Final = 0.9
"""Share of the time for which prompts may be computed, so that those that come together do not
queue for long. Basis: assumed.
"""

_COMPARED_AT: Final = 64
"""Requests in flight on one group at which layouts are compared for one half. Basis: assumed."""

_KEPT: Final = 5
"""Layouts of each half that are tried together, the best by themselves first. Basis: assumed."""

_ROUNDING: Final = 0.01


def pair_choice(considered: Considered, outcome: Plan | NoPlan, wish: PairWish) -> PairChoice:
    """Return the answer to who asks for a pair.

    Args:
        considered: The whole layouts, judged.
        outcome: The whole plan, or why there is none.
        wish: Who decides, and the groups of a unit if somebody says them.
    """
    whole = outcome if isinstance(outcome, Plan) else None
    return _Search(considered=considered, wish=wish).choice(whole)


def without_nodes(choice: PairChoice) -> PairChoice:
    """Return a choice whose halves hold no node."""
    best = choice.best
    if best is None:
        return choice
    prefill, decode = (
        replace(half, plan=replace(half.plan, groups=(), numbers=(), missing=0))
        for half in (best.prefill, best.decode)
    )
    return replace(choice, best=replace(best, prefill=prefill, decode=decode))


@dataclass(frozen=True, kw_only=True)
class _Search:
    considered: Considered
    wish: PairWish

    def choice(self, whole: Plan | None) -> PairChoice:
        model = self.considered.model
        stateful = any(isinstance(layer.attention, RecurrentAttention) for layer in model.layers)
        if not self.considered.traits.hands_over_kv or stateful or model.stated:
            return _none(PairCode.PAIR_UNSUPPORTED)
        if not self._groups:
            return _none(*self._without_halves())
        # The one that is best by its figures may have no place.
        for offer in sorted(self._offers(), key=lambda each: each.worth, reverse=True)[:_KEPT]:
            placed = self._placed(offer)
            pair = self._pair(offer, placed) if placed else None
            if pair is not None:
                return self._judged(offer, pair, whole)
        return _none(PairCode.PAIR_HAS_NO_ROOM, float(self._room()))

    @cached_property
    def prices(self) -> PairEstimator:
        considered, load = self.considered, self.considered.request.workload
        # The estimator of a number in flight, whatever the load: the pair has its own of a rate.
        closed = replace(load, requests_per_second=None)
        request = replace(considered.request, workload=closed)
        base = estimator_of(considered.model, request, considered.traits)
        return PairEstimator(base, load, considered.traits)

    @cached_property
    def halves(self) -> dict[Phase, list[Candidate]]:
        """Return the layouts of one group of each kind that run, the best by themselves first.

        How fast prompts and tokens are by themselves is known from the whole layouts' own times.
        """
        return {
            phase: [
                each.one
                for each in sorted(
                    self._groups,
                    key=lambda each: (-each.worth(phase), each.one.layout, each.one.pool.name),
                )[:_KEPT]
            ]
            for phase in (Phase.PREFILL, Phase.DECODE)
        }

    @cached_property
    def _groups(self) -> list[PricedGroup]:
        """Return every layout without stages that may be one half, priced."""
        load = self.considered.request.workload
        # Whatever the budget, so that more of it changes no order.
        at = replace(load, concurrency=_COMPARED_AT, requests_per_second=None)
        prices = self.considered.judge.prices.under(at)
        return [
            PricedGroup(one=one, speed=prices.estimate(one).performance, cost=self._cost(one))
            for one in self._candidates
            if one.layout.pipeline == 1
        ]

    @cached_property
    def _candidates(self) -> list[Candidate]:
        """Return every layout in one instance that runs, has a place and can be run."""
        deploy = self.considered.request.deploy
        found: dict[object, Candidate] = {}
        for verdict in self.considered.verdicts:
            placed = verdict.candidate
            one = replace(placed, layout=replace(placed.layout, replicas=1))
            key = one.layout, placed.pool.name
            if key in found or not placed.placement.groups:
                continue
            if verdict.codes <= _OF_A_LOAD and not (deploy and not_yet(one)):
                found[key] = one
        return list(found.values())

    def _in_time(self, candidate: Candidate) -> int:
        """Return the most requests in flight of a group within the limit, 1 at least."""
        most = self.prices.room(candidate)
        if self.considered.request.workload.requests_per_second is None:
            most = min(most, self.considered.request.workload.concurrency)
        limit = self.considered.request.objective.tpot_seconds
        if limit is None or self.prices.step(candidate, most) <= limit:
            return most
        late = smallest(lambda number: self.prices.step(candidate, number) > limit, 1, most)
        return max(1, (late or most) - 1)

    def _cost(self, candidate: Candidate) -> float:
        return self.considered.scale.total(candidate)

    def _offers(self) -> Iterator[PairOffer]:
        heads = fewest_heads(self.considered.model)
        for prefill in self.halves[Phase.PREFILL]:
            for decode in self.halves[Phase.DECODE]:
                alike = prefill.pool.name == decode.pool.name
                if alike and can_pair(prefill.layout, decode.layout, heads):
                    yield from self._in_numbers(prefill, decode)

    def _in_numbers(self, prefill: Candidate, decode: Candidate) -> Iterator[PairOffer]:
        """Yield the offers of two layouts: as many decode groups as the limit needs and a few more,
        and the prefill groups that keep them busy.
        """
        transfer = self._transfer(prefill, decode)
        unit = Unit(
            prefill=prefill,
            decode=decode,
            prefill_groups=1,
            decode_groups=1,
            transfer_seconds=transfer,
        )
        most = self._most_gpus(decode)
        for units, prefills, decodes in self._numbers(prefill, decode):
            asked = replace(unit, prefill_groups=prefills, decode_groups=decodes)
            if gpus_of_unit(asked) <= most:
                yield self._offer(asked, units)
            elif (fewer := unit_within(asked, most)) and not self._is_fixed:
                yield self._offer(fewer, math.gcd(fewer.prefill_groups, fewer.decode_groups))

    @property
    def _is_fixed(self) -> bool:
        """Return whether somebody says how many groups there are."""
        wish = self.wish.prefill_groups
        return wish is not None or self.considered.request.space.replicas is not None

    def _numbers(self, prefill: Candidate, decode: Candidate) -> Iterator[tuple[int, int, int]]:
        """Yield units, with the groups of all of them."""
        wish, fixed = self.wish, self.considered.request.space.replicas
        needed = self._decodes(decode)
        if wish.prefill_groups and wish.decode_groups:
            for units in (fixed,) if fixed else counts_near(needed / wish.decode_groups):
                yield units, units * wish.prefill_groups, units * wish.decode_groups
            return
        rate = self.prices.prompts(prefill).rate * _BUSY
        # Units in a number that somebody says have alike groups.
        each = fixed or 1
        for decodes in counts_near(needed / each):
            for prefills in counts_near(self._answered(decode, decodes * each) / rate / each):
                units = fixed or math.gcd(prefills, decodes)
                if max(prefills, decodes) * each <= units * MOST_GROUPS:
                    yield units, prefills * each, decodes * each

    def _decodes(self, decode: Candidate) -> float:
        """Return the decode groups that the load needs within the limit on a token's time."""
        load, in_flight = self.considered.request.workload, self._in_time(decode)
        if load.requests_per_second is None:
            return load.concurrency / in_flight
        return load.requests_per_second / UTILISATION / self._paced(decode, in_flight)

    def _answered(self, decode: Candidate, groups: int) -> float:
        """Return the requests a second of so many decode groups, at most those of the load."""
        load = self.considered.request.workload
        if load.requests_per_second is not None:
            return load.requests_per_second
        in_flight = max(1, min(self._in_time(decode), math.ceil(load.concurrency / groups)))
        return groups * self._paced(decode, in_flight)

    def _paced(self, decode: Candidate, in_flight: int) -> float:
        output = self.considered.request.workload.output_tokens
        return in_flight / (self.prices.step(decode, in_flight) * output)

    def _transfer(self, prefill: Candidate, decode: Candidate) -> float:
        held = self._held(decode)
        return transfer_seconds(held, prefill.layout, decode.layout, decode.pool.network)

    def _held(self, decode: Candidate) -> int:
        """Return the K/V of a prompt on one rank of a decode group."""
        considered = self.considered
        load = considered.request.workload
        return kv_bytes(considered.model, load, decode.layout, considered.traits)

    def _offer(self, unit: Unit, units: int) -> PairOffer:
        speed = self.prices.speed(unit)
        request = self.considered.request
        late = (item.miss for item in limit_violations(speed.performance, request))
        missed = max(late, default=0.0)
        rate = request.workload.requests_per_second
        if rate is not None:
            missed = max(missed, rate * ALL_OF_A_RATE / (speed.capacity * UTILISATION) - 1)
        else:
            room = self.prices.room(unit.decode)
            missed = max(missed, speed.in_flight / room - 1, speed.busy / _BUSY - 1 - _ROUNDING)
        cost = unit.prefill_groups * self._cost(unit.prefill)
        cost += unit.decode_groups * self._cost(unit.decode)
        return PairOffer(unit=unit, units=units, speed=speed, cost=cost, missed=missed)

    def _most_gpus(self, decode: Candidate) -> int:
        """Return how many GPUs a pair may have: those that are free, within the budget."""
        most = self.considered.request.space.most_gpus(decode.pool.resource)
        free = sum(node.free for node in decode.pool.nodes)
        return free if most is None else min(free, most)

    def _placed(self, offer: PairOffer) -> tuple[Placement, Placement] | None:
        """Return the places of both halves, none if one has none or they take too many nodes."""
        unit, space = offer.unit, self.considered.request.space
        first = Shelf(unit.prefill.pool).place(in_groups(unit.prefill.layout, unit.prefill_groups))
        rest = unit.decode.pool.without(taken_by(first))
        second = Shelf(rest).place(in_groups(unit.decode.layout, unit.decode_groups))
        if first.missing_nodes or second.missing_nodes:
            return None
        nodes = {name for place in (first, second) for group in place.groups for name in group}
        if space.max_nodes is not None and len(nodes | space.held_nodes) > space.max_nodes:
            return None
        return first, second

    def _room(self) -> int:
        """Return how many groups have room, of the layouts that are tried."""
        return max(self._room_for(each) for half in self.halves.values() for each in half)

    def _room_for(self, one: Candidate) -> int:
        most = min(self._most_gpus(one) // one.layout.gpus_per_replica, 2 * MOST_GROUPS)
        if not most:
            return 0
        space = self.considered.request.space
        nodes, room = set(space.held_nodes), 0
        for group in Shelf(one.pool).place(in_groups(one.layout, most)).groups:
            nodes.update(group)
            room += space.max_nodes is None or len(nodes) <= space.max_nodes
        return room

    def _pair(self, offer: PairOffer, placed: tuple[Placement, Placement]) -> Pair | None:
        """Return the pair with the plans of its halves, None if one of them has none."""
        considered, unit, speed = self.considered, offer.unit, offer.speed
        taken = taken_by(placed[0])
        performance = speed.performance
        pace = performance.requests_per_second
        # Until the K/V is on its way a request is with the prefill groups (Little's law).
        before = pace * (performance.ttft_seconds - unit.transfer_seconds)
        after = speed.in_flight * unit.decode_groups
        stock = considered.inventory
        prefill = self._half(Phase.PREFILL, unit.prefill, unit.prefill_groups, before, stock)
        decode = self._half(
            Phase.DECODE, unit.decode, unit.decode_groups, after, stock.without(taken)
        )
        if prefill is None or decode is None:
            return None
        return Pair(
            units=offer.units,
            prefill=Half(
                phase=Phase.PREFILL,
                groups=unit.prefill_groups // offer.units,
                plan=prefill,
                rate=speed.computed / unit.prefill_groups,
                in_flight=before / unit.prefill_groups,
            ),
            decode=Half(
                phase=Phase.DECODE,
                groups=unit.decode_groups // offer.units,
                plan=decode,
                rate=speed.decoded / unit.decode_groups,
                in_flight=speed.in_flight,
            ),
            transfer_bytes=self._held(unit.decode) * unit.decode.layout.tensor,
            transfer_seconds=unit.transfer_seconds,
            performance=performance,
            gain=self._gain(offer),
        )

    def _half(
        self, phase: Phase, candidate: Candidate, groups: int, in_flight: float, stock: Inventory
    ) -> Plan | None:
        """Return the plan of one half, in its layout and number, None if there is none."""
        request = self.considered.request
        load = request.workload.of_phase(phase)
        if load.requests_per_second is None:
            load = replace(load, concurrency=max(groups, math.ceil(in_flight)))
        asked = replace(
            request,
            workload=load,
            # The limits are the pair's.
            objective=Objective(optimize_for=request.objective.optimize_for),
            space=replace(
                request.space,
                replicas=groups,
                fill=False,
                tensor=candidate.layout.tensor,
                pipeline=candidate.layout.pipeline,
                expert=candidate.layout.expert,
                attention_data=candidate.layout.attention_data,
                context=candidate.layout.context,
            ),
            pair=None,
        )
        name = candidate.pool.name
        pools = tuple(pool for pool in stock.pools if name in (pool.name, pool.family))
        stock = replace(stock, pools=pools)
        outcome = make_plan(self.considered.model, stock, asked, self.considered.traits).outcome
        return outcome if isinstance(outcome, Plan) else None

    @cached_property
    def best_whole(self) -> FeasibleCandidate | None:
        """Return the whole layout that serves most for its cost, within limits and budget."""
        scale = self.considered.scale
        found = (
            assess(each.candidate, estimate, scale)
            for each in self.considered.feasible
            if (estimate := each.estimate)
        )
        return max(
            (each for each in found if each.carries_load), key=self._tokens_for_cost, default=None
        )

    def _tokens_for_cost(self, whole: FeasibleCandidate) -> float:
        speed = whole.estimate.performance
        return speed.output_tokens_per_second / self._cost(whole.candidate)

    def _gain(self, offer: PairOffer) -> float | None:
        whole = self.best_whole
        if whole is None:
            return None
        tokens = offer.speed.performance.output_tokens_per_second
        return tokens / offer.cost / self._tokens_for_cost(whole)

    def _judged(self, offer: PairOffer, pair: Pair, whole: Plan | None) -> PairChoice:
        against = tuple(self._against(offer, pair, whole))
        if self.wish.mode is PairMode.ON:
            slower = pair.gain is not None and pair.gain < 1
            cost = (PairReason(code=PairCode.PAIR_SLOWER, amount=pair.gain or 0),) if slower else ()
            return PairChoice(taken=True, best=pair, reasons=(*_said_of_taken(against), *cost))
        return PairChoice(taken=not against, best=pair, reasons=against)

    def _against(self, offer: PairOffer, pair: Pair, whole: Plan | None) -> Iterator[PairReason]:
        """Yield what speaks against a pair."""
        if offer.missed > 0:
            yield PairReason(code=PairCode.PAIR_MISSES_LIMITS, amount=offer.missed)
        slow = offer.unit.transfer_seconds / self.prices.prompts(offer.unit.prefill).seconds
        if slow > 1:
            yield PairReason(code=PairCode.TRANSFER_TOO_SLOW, amount=slow)
        if pair.gain is None or pair.gain >= GAIN_FOR_TWO_HALVES:
            return
        alone = max(pair.prefill.plan.layout.replicas, pair.decode.plan.layout.replicas) == 1
        if pair.gain >= SURE_GAIN:
            if alone and whole is not None and whole.layout.replicas > 1:
                yield PairReason(code=PairCode.PAIR_HALVES_FAIL, amount=pair.gain)
            return
        idle = self._idle(offer)
        if idle > MOST_IDLE:
            yield PairReason(code=PairCode.PAIR_WOULD_IDLE, amount=idle)
        if (prompts := self._prompts_share()) < CHEAP_PROMPTS:
            yield PairReason(code=PairCode.PROMPTS_ARE_CHEAP, amount=prompts)
        yield PairReason(code=PairCode.GAIN_UNCERTAIN, amount=pair.gain)

    def _idle(self, offer: PairOffer) -> float:
        """Return the share of the pair's GPU time that is idle, by cost."""
        unit, speed = offer.unit, offer.speed
        prefill = unit.prefill_groups * self._cost(unit.prefill)
        answering = min(1.0, speed.performance.requests_per_second / speed.decoded)
        busy = prefill * speed.busy + (offer.cost - prefill) * answering
        return 1 - busy / offer.cost

    def _prompts_share(self) -> float:
        """Return the share of a token's time that the prompts of others take of whole groups."""
        if self.best_whole is None:
            return 1.0
        speed = self.best_whole.estimate.performance
        taken = sum(each.seconds for each in speed.decode_shares if each.name == "Prefill")
        return taken / speed.tpot_seconds

    def _without_halves(self) -> tuple[PairCode, float]:
        """Return why no group of one kind runs: it needs stages, or there is no room at all."""
        stages = [each.layout.pipeline for each in self._candidates]
        if stages:
            return PairCode.PAIR_NEEDS_PIPELINE, float(min(stages))
        return PairCode.PAIR_HAS_NO_ROOM, 0.0


def _none(code: PairCode, amount: float = 0.0) -> PairChoice:
    return PairChoice(taken=False, best=None, reasons=(PairReason(code=code, amount=amount),))


_OF_AUTO: Final = frozenset({PairCode.PAIR_HALVES_FAIL, PairCode.GAIN_UNCERTAIN})


def _said_of_taken(against: Sequence[PairReason]) -> Iterator[PairReason]:
    """Yield what a pair that somebody wants costs, without what only Auto asks."""
    return (reason for reason in against if reason.code not in _OF_AUTO)
