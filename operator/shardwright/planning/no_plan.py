"""If nothing stands, which constraint binds, and does waiting help? Reasons are counted, each with
its nearest miss.

What helps where every layout was tried? A check knows one layout, and what would help that one;
what helps none of them is not said.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Final

from shardwright.costs.estimates import StageMemory
from shardwright.costs.memory import ReplicaMemory
from shardwright.costs.workload import Workload
from shardwright.errors import Problem
from shardwright.hardware.gpus import load_gpus
from shardwright.hardware.inventory import Inventory, NodeExclusion, Pool
from shardwright.layouts.layout import MOST_REPLICAS, Candidate, EngineTraits, Layout
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.planning.arrivals import Prices, estimator_of
from shardwright.planning.checks import (
    LIMITS,
    MEMORY,
    Judge,
    Verdict,
    Violation,
    falls_behind,
    limit_violations,
)
from shardwright.planning.held import InstanceLoad, held_within, with_in_flight
from shardwright.planning.numbers import Fewest, of
from shardwright.planning.phrases import copies, degrees, rate_of
from shardwright.planning.report import Exclusion, Lack, NearMiss, NoPlan
from shardwright.planning.request import Request
from shardwright.planning.select import FeasibleCandidate, Scale, assess, rank
from shardwright.planning.sentences import time_shares
from shardwright.units import format_plural

_SAVED: Final = {8: 0.45, 4: 0.7}
"""Share of 16-bit weights that fewer bits save at least. Basis: assumed; half and three quarters of
the matrices, less scales, embedding and norms.
"""


_NEAR: Final = 12
"""Layouts that are asked what load they carry within a limit, those that miss it by least. Basis:
chosen, so that a refusal takes no longer than a plan.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerQuestion:
    """What was asked of the planner, beside the inventory."""

    model: ModelSpec
    request: Request
    traits: EngineTraits


def remedy(
    asked: PlannerQuestion, problem: Problem, closest: Verdict, tried: Iterable[Verdict]
) -> str:
    """Return what would help against the problem of the layout that misses by least, of all that
    were ``tried``.
    """
    if problem.code in LIMITS:
        return _relief(asked, tried)
    # Where the K/V is pinned, the pin is to blame.
    if closest.prices is None or asked.traits.options.kv_cache_bytes is not None:
        return problem.remedy
    memory = closest.prices.memory(closest.candidate)
    larger = _larger(closest.candidate.pool, memory)
    if problem.code == "WeightsExceedMemory":
        return f"use {_either((larger, *_lighter(asked.model, memory)))}"
    if problem.code == "KvCacheTooSmall":
        return _either((_shorter(asked.request.workload, memory.kv_tokens), f"use {larger}"))
    return problem.remedy


def _relief(asked: PlannerQuestion, tried: Iterable[Verdict]) -> str:
    """A limit that one request alone exceeds is met at no load; none is met behind a queue that
    grows without end.
    """
    alone = with_in_flight(asked.request, 1)
    prices = estimator_of(asked.model, alone, asked.traits)
    late = [verdict for verdict in tried if verdict.codes and verdict.codes <= LIMITS]
    met = [each for each in late if not any(limit_violations(prices.speed(each.candidate), alone))]
    if not met:
        return "relax the limit: one request alone exceeds it, too"
    near = sorted(met, key=_largest_miss)[:_NEAR]
    keeps_up = any(not falls_behind(_served_at_most(each), asked.request) for each in late)
    relax = "relax the limit" if keeps_up else ""
    return _either((relax, _lower_load(asked.request, near), _more_gpus(asked, near)))


def _largest_miss(verdict: Verdict) -> tuple[float, Layout]:
    return max(violation.miss for violation in verdict.violations), verdict.candidate.layout


def _served_at_most(verdict: Verdict) -> float | None:
    return verdict.estimate.capacity if verdict.estimate else None


def _lower_load(request: Request, near: Iterable[Verdict]) -> str:
    """Return the greatest load that one of these layouts carries within the limits."""
    held = [
        (one.candidate.layout.replicas, _held(one.candidate, one.prices, request))
        for one in near
        if one.prices
    ]
    if request.workload.requests_per_second is None:
        most = max(replicas * each.requests for replicas, each in held)
        return f"lower the concurrency to {most:,}" if most else ""
    rate = _rounded_down(max((replicas * each.rate for replicas, each in held), default=0.0))
    return f"lower the rate to {rate_of(rate)}" if rate else ""


def _held(candidate: Candidate, prices: Prices, request: Request) -> InstanceLoad:
    return held_within(candidate, prices.estimate(candidate).capacity, prices, request)


def _rounded_down(rate: float) -> float:
    """Return a rate with two digits.

    >>> _rounded_down(5.19), _rounded_down(0.0787), _rounded_down(1234.0), _rounded_down(0.0)
    (5.1, 0.078, 1200.0, 0.0)
    """
    if rate <= 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return round(math.floor(rate / step) * step, 12)


def _more_gpus(asked: PlannerQuestion, near: Iterable[Verdict]) -> str:
    """Return the layout that carries the load within the limits on the fewest GPUs, whatever is
    free; empty if none does.
    """
    many = [
        wanted
        for one in near
        if one.prices and (wanted := _enough(asked, one.candidate, one.prices))
    ]
    if not many:
        return ""
    least = min(many, key=lambda each: (each.layout.gpus, each.layout, each.pool.name))
    product = least.pool.product.removeprefix("NVIDIA-")
    return f"use {copies(least.layout)} on {least.layout.gpus:,} {product}"


def _enough(asked: PlannerQuestion, candidate: Candidate, prices: Prices) -> Candidate | None:
    judge = Judge(asked.model, asked.request, asked.traits, prices)
    scale = Scale(request=asked.request, by_price=False)
    (number,) = Fewest(judge=judge, scale=scale)(of(candidate, 1), lambda: MOST_REPLICAS)
    return of(candidate, number) if number < MOST_REPLICAS else None


def _lighter(model: ModelSpec, memory: ReplicaMemory) -> Iterator[str]:
    stage = _fullest(memory)
    short = _short(stage)
    if stage.adapter_bytes > short:
        yield "fewer adapters"
    if model.stated:
        yield "larger degrees in spec.parallelism"
        return
    stored = stage.weights_bytes - stage.adapter_bytes - stage.draft_bytes
    enough = (bits for bits, saved in _SAVED.items() if saved * stored > short)
    bits = None if model.quantization else next(enough, None)
    if bits:
        yield f"{bits}-bit weights"


def _shorter(load: Workload, kv_tokens: int) -> str:
    if load.open_model_len is None and load.input_tokens + load.output_tokens <= kv_tokens:
        return f"lower maxModelLen to {kv_tokens:,}"
    if kv_tokens < 2:  # noqa: PLR2004 - one token in and one out
        return ""
    return f"plan for inputTokens and outputTokens of {kv_tokens:,} together"


def _fullest(memory: ReplicaMemory) -> StageMemory:
    return min(memory.stages, key=lambda stage: stage.kv_cache_bytes)


def _short(stage: StageMemory) -> float:
    return stage.request_bytes - stage.kv_cache_bytes


def _larger(pool: Pool, memory: ReplicaMemory) -> str:
    """Slices are never joined, so there a larger slice helps, too; beyond the largest GPU only more
    of them do.
    """
    if pool.gpu.mig_profile:
        return "a larger migProfile"
    largest = max(gpu.memory_bytes for gpu in load_gpus().values())
    enough = pool.gpu.memory_bytes + _short(_fullest(memory)) <= largest
    return "GPUs with more memory" if enough else "more GPUs per replica"


def _either(ways: Iterable[str]) -> str:
    *first, last = filter(None, ways)
    return f"{', '.join(first)} or {last}" if first else last


_BUSY: Final = frozenset({"InsufficientCapacity"})
_SHORT: Final = frozenset({"InsufficientCapacity", "PoolTooSmall"})

_BUDGETS: Final = frozenset({"BudgetExceeded", "QuotaExceeded"})

_HARDWARE: Final = _SHORT | MEMORY | {"AttentionNotSupported", "DtypeNotSupported", "GpuTooOld"}
"""Problems that other hardware may not have; the rest is up to the user."""

_NODES_COME: Final = (
    "add GPU nodes, or state in autoscaledPools which ones an autoscaler adds; it goes on "
    "when they join"
)

RETURNING: Final = frozenset(
    {
        "NotReady",
        "NodeStarting",
        "Cordoned",
        "NodeLeaving",
        "MigReconfiguring",
        "DriverUpgrading",
        "GpuUnhealthy",
        "NoAllocatableGpus",
    }
)
"""Reasons for which a node is out of use that pass by themselves, or with a node in its place."""


def no_plan(verdicts: Sequence[Verdict], inventory: Inventory, asked: PlannerQuestion) -> NoPlan:
    """Return the binding constraint: of the layout that only lacks free room, else of the one that
    misses by least.
    """
    scale = Scale.of(asked.request, inventory)
    # By how little must happen: GPUs come free, nodes return, then somebody must act.
    waiting = _best_waiting(verdicts, _BUSY, scale)
    if waiting is not None:
        return NoPlan(problem=_capacity(waiting), heals_by_itself=True, lack=_lack(waiting))
    returning = _best_waiting(_when_returned(verdicts, inventory), _SHORT, scale)
    if returning is not None:
        return NoPlan(
            problem=_returning(returning, inventory), heals_by_itself=True, lack=_lack(returning)
        )
    # A node that is away is no help where the user's own limits rule every layout out.
    hopeful = not inventory.pools or any(
        item.prices and item.codes <= _HARDWARE for item in verdicts
    )
    known = {pool.product for pool in inventory.pools}
    if hopeful and (_away(inventory).keys() - known or _may_do_when_well(verdicts)):
        return NoPlan(problem=_unknown_away(inventory), heals_by_itself=True)
    if not verdicts:
        return NoPlan(
            problem=_nothing_to_try(inventory, asked.request), heals_by_itself=inventory.empty
        )
    short = _best_waiting(verdicts, _SHORT, scale)
    return NoPlan(
        problem=_binding(verdicts, short, scale, asked),
        heals_by_itself=False,
        lack=_lack(short) if short else None,
    )


def _lack(verdict: Verdict) -> Lack:
    placement, replicas = verdict.candidate.placement, verdict.candidate.layout.replicas
    return Lack(
        pool=verdict.candidate.pool.name,
        gpus_per_node=placement.gpus_per_node,
        missing_nodes=placement.missing_nodes,
        nodes=placement.nodes_per_replica * replicas,
    )


def _binding(
    verdicts: Sequence[Verdict], short: Verdict | None, scale: Scale, asked: PlannerQuestion
) -> Problem:
    if short is not None and any(violation.replicas_possible for violation in short.violations):
        return _capacity(short)
    over = _best_over_budget(verdicts, scale)
    if over is None:
        return _closest(verdicts, short, asked)
    problem = max(over.violations, key=_miss).problem
    return replace(problem, what=f"{problem.what} for {copies(over.candidate.layout)}")


def _best_over_budget(verdicts: Sequence[Verdict], scale: Scale) -> Verdict | None:
    only = [item for item in verdicts if item.prices and item.codes and item.codes <= _BUDGETS]
    # The message names the smallest budget that would do.
    least = min(map(_worst, only), default=0.0)
    near = {id(item.candidate): item for item in only if _worst(item) == least}
    ranked = _ranked(near.values(), scale)
    return near[id(ranked[0].candidate)] if ranked else None


def _away(inventory: Inventory) -> Counter[str]:
    return Counter(item.product for item in inventory.excluded if item.problem.code in RETURNING)


def _when_returned(verdicts: Sequence[Verdict], inventory: Inventory) -> list[Verdict]:
    away = _away(inventory)
    return [
        verdict
        for verdict in verdicts
        if 0
        < max((item.absent_nodes for item in verdict.violations), default=0)
        # Of a node that is away only the label is known.
        <= away[verdict.candidate.pool.product] + _well_again(verdict.candidate.pool, inventory)
    ]


def _well_again(pool: Pool, inventory: Inventory) -> int:
    """Return how many nodes of other pools would be as those of a pool without their sick GPUs."""
    others = (other for other in inventory.pools if other.product == pool.product)
    return sum(
        node.gpus < pool.gpus_per_node <= node.gpus + node.sick
        for other in others
        for node in other.nodes
    )


def _may_do_when_well(verdicts: Iterable[Verdict]) -> bool:
    """Return whether a layout lacks no more than the sick GPUs of its pool could give."""
    return any(
        item.prices and item.codes <= _HARDWARE and _gpus_lacking(item) <= _sick(item) > 0
        for item in verdicts
    )


def _gpus_lacking(verdict: Verdict) -> float:
    return _worst(verdict) * verdict.candidate.layout.gpus


def _sick(verdict: Verdict) -> int:
    pool = verdict.candidate.pool
    idle = sum(node.gpus for node in pool.nodes) - verdict.candidate.layout.gpus
    sick = sum(node.sick for node in pool.nodes)
    return sick and sick + idle


def _best_waiting(
    verdicts: Sequence[Verdict], codes: frozenset[str], scale: Scale
) -> Verdict | None:
    only = {
        id(item.candidate): item
        for item in verdicts
        if item.prices and item.codes and item.codes <= codes
    }
    ranked = _ranked(only.values(), scale)
    # The most replicas that have room at all, then the fewest missing nodes: those come free
    # soonest.
    ranked = tuple(sorted(ranked, key=lambda feasible: _lacking(only[id(feasible.candidate)])))
    return only[id(ranked[0].candidate)] if ranked else None


def _ranked(verdicts: Iterable[Verdict], scale: Scale) -> tuple[FeasibleCandidate, ...]:
    return rank(
        (
            assess(item.candidate, estimate, scale)
            for item in verdicts
            if (estimate := item.estimate)
        ),
        scale,
    )


def _lacking(verdict: Verdict) -> tuple[int, int]:
    possible = max((violation.replicas_possible for violation in verdict.violations), default=0)
    return -possible, verdict.candidate.placement.missing_nodes


def _capacity(verdict: Verdict) -> Problem:
    problem = next(item.problem for item in verdict.violations if item.problem.code in _SHORT)
    return replace(problem, what=f"{degrees(verdict.candidate.layout)} {problem.what}")


def _returning(verdict: Verdict, inventory: Inventory) -> Problem:
    problem = _capacity(verdict)
    away = ", ".join(_out_of_use(inventory, verdict.candidate.pool.product))
    remedy = f"{away}; it goes on by itself when they return"
    return replace(problem, code="InsufficientCapacity", remedy=remedy)


def _unknown_away(inventory: Inventory) -> Problem:
    return Problem(
        code="InsufficientCapacity",
        what="no layout",
        limit="can run on the GPU nodes that are there now",
        gap=", ".join(_out_of_use(inventory)),
        remedy="it goes on by itself when they return, if they suffice",
    )


def _out_of_use(inventory: Inventory, product: str | None = None) -> Iterator[str]:
    """Yield what is out of use for a while: nodes by product (None: of all) and reason, and sick
    GPUs.
    """
    away: defaultdict[tuple[str, str], list[NodeExclusion]] = defaultdict(list)
    for item in inventory.excluded:
        if item.problem.code in RETURNING and product in {None, item.product}:
            away[item.product, item.problem.code].append(item)
    for (kind, _), nodes in sorted(away.items()):
        first = min(nodes, key=lambda item: item.node)
        those = f"{format_plural(len(nodes), 'node')} of {kind or 'an unknown kind'}"
        yield f"{those} out of use ({first.problem.what})"
    sick = Counter[str]()
    for pool in inventory.pools:
        sick[pool.product] += sum(node.sick for node in pool.nodes)
    for kind, count in sorted(sick.items()):
        if count and product in {None, kind}:
            yield f"{format_plural(count, 'GPU')} of {kind} not healthy"


def _nothing_to_try(inventory: Inventory, request: Request) -> Problem:
    if not inventory.pools:
        return _no_gpu_nodes(inventory)
    space = request.space
    pinned = ", ".join(f"{name} {degree}" for name, degree in space.pins.items())
    return Problem(
        code="PinsLeaveNothing",
        what=f"parallelism pinned to {pinned}",
        limit="must be possible on equal nodes; expert is 1 or tensor x attention data, and 1 for "
        "a dense model; a partition "
        "has one number per stage",
        remedy="remove or change the pins",
        path="spec.parallelism",
    )


def _no_gpu_nodes(inventory: Inventory) -> Problem:
    excluded = inventory.excluded
    if not excluded:
        return Problem(
            code="NoGpuNodes", what="no node has GPUs", remedy=_NODES_COME, path="spec.placement"
        )
    # By name among equals: the message must not alternate from reconcile to reconcile.
    counts = Counter(item.problem.code for item in excluded)
    code = min(counts, key=lambda code: (-counts[code], code))
    first = min(
        (item for item in excluded if item.problem.code == code), key=lambda item: item.node
    )
    of_all = f"{counts[code]} of {len(excluded)}" if len(counts) > 1 else "all"
    why = replace(first.problem, path="", remedy="").sentence()
    ways = filter(None, (first.problem.remedy, "add GPU nodes"))
    return Problem(
        code="NoGpuNodes",
        what=f"of {len(excluded)} node{'s' if len(excluded) > 1 else ''} with GPUs",
        limit="none can be used",
        gap=f"{of_all} by {code}, as {first.node}: {why}",
        remedy=", or ".join(ways),
        path=first.problem.path or "spec.placement",
    )


def _closest(
    verdicts: Sequence[Verdict], larger: Verdict | None, asked: PlannerQuestion
) -> Problem:
    """Return the worst violation of the layout that misses by least, and what more nodes would
    gain.
    """
    closest = min(verdicts, key=_distance)
    causes = _causes(closest)
    # More nodes are no help to a layout that would not run on them either.
    lasting = [each for each in causes if each.problem.code not in _SHORT]
    problem = max(lasting or causes, key=_miss).problem
    if problem.code in _SHORT:
        return _capacity(closest)
    hints = [
        f"closest is {copies(closest.candidate.layout)} on {closest.candidate.pool.name}",
        *_where_time_goes(closest, problem, asked.request),
    ]
    beyond = larger is not None and larger is not closest
    if larger is not None and beyond:
        hints.append(_capacity(larger).sentence())
    if helps := remedy(asked, problem, closest, verdicts):
        hints.append(f"or {helps}" if beyond else helps)
    return replace(problem, remedy="; ".join(hints))


def _where_time_goes(closest: Verdict, problem: Problem, request: Request) -> Iterator[str]:
    estimate = closest.estimate
    # Behind a queue that grows without end all time is waited.
    if estimate is None or falls_behind(estimate.capacity, request):
        return
    speed = estimate.performance
    if problem.code == "TtftLimitExceeded":
        yield f"its time to first token goes to {time_shares(speed.prefill_shares)}"
    elif problem.code == "TpotLimitExceeded":
        yield f"a token's time goes to {time_shares(speed.decode_shares)}"


def _distance(verdict: Verdict) -> tuple[object, ...]:
    """Return a key: a layout that runs too slowly is nearer than one that cannot run."""
    layout = verdict.candidate.layout
    short, runs = "PoolTooSmall" in verdict.codes, verdict.codes <= LIMITS
    # A pool that is too small when idle is no help, however little else is missing.
    return (
        short,
        verdict.prices is None,
        not runs,
        _worst(verdict),
        len(verdict.violations),
        layout.gpus,
        layout,
    )


def _worst(verdict: Verdict) -> float:
    return max(map(_miss, _causes(verdict)))


def _causes(verdict: Verdict) -> Sequence[Violation]:
    """Return what is said of a layout: one without room in memory never starts, so it has no
    latency.
    """
    if not verdict.codes & MEMORY:
        return verdict.violations
    return [item for item in verdict.violations if item.problem.code not in LIMITS]


def _miss(violation: Violation) -> float:
    return violation.miss


def count_exclusions(verdicts: Sequence[Verdict], inventory: Inventory) -> tuple[Exclusion, ...]:
    """Return the reasons that ruled out layouts, then those that ruled out nodes, each most
    frequent first. A layout counts once, for the first that speaks against it.
    """
    layouts: dict[str, list[tuple[Verdict, Violation]]] = defaultdict(list)
    for verdict in verdicts:
        for first in verdict.violations[:1]:
            layouts[first.problem.code].append((verdict, first))
    nodes: dict[str, list[str]] = defaultdict(list)
    for item in sorted(inventory.excluded, key=lambda item: item.node):
        nodes[item.problem.code].append(f"node {item.node}: {item.problem.sentence()}")
    return (
        *(_excluded(*item) for item in sorted(layouts.items(), key=_frequency)),
        *(
            Exclusion(code=code, count=len(said), example=said[0], nearest_miss="")
            for code, said in sorted(nodes.items(), key=_frequency)
        ),
    )


def _frequency(item: tuple[str, Sized]) -> tuple[int, str]:
    # The code decides among equals, so that one question always has the same answer.
    return -len(item[1]), item[0]


def _excluded(code: str, entries: Sequence[tuple[Verdict, Violation]]) -> Exclusion:
    # A layout that only this reason rules out is nearer than one that breaks other rules too.
    nearest = min(
        entries,
        key=lambda entry: (len(entry[0].codes), entry[1].miss, entry[0].candidate.layout.gpus),
    )
    return Exclusion(
        code=code,
        count=len(entries),
        example=_example(*entries[0]),
        nearest_miss=_example(*nearest) if nearest[1].miss < float("inf") else "",
        nearest=_near(*nearest),
    )


def _near(verdict: Verdict, violation: Violation) -> NearMiss | None:
    if verdict.prices is None:
        return None
    gap = violation.problem.gap if violation.miss < float("inf") else ""
    return NearMiss(layout=verdict.candidate.layout, gap=gap)


def _example(verdict: Verdict, violation: Violation) -> str:
    candidate = verdict.candidate
    # The field and the way out are said once, for the outcome.
    said = replace(violation.problem, path="", remedy="").sentence()
    return f"{degrees(candidate.layout)} on {candidate.pool.name}: {said}"
