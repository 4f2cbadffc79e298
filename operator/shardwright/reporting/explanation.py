"""A report, sorted by a person's questions: what, where, does it fit, how fast, why, what else, why
not.

Text, terminal and page all show this value; none of them reads the report itself.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Final

from shardwright.costs.estimates import Performance, StageMemory
from shardwright.costs.workload import Workload
from shardwright.hardware.gpus import GpuPrice, PriceBasis
from shardwright.hardware.inventory import Inventory, NodeExclusion, Pool
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.planning.phrases import (
    PHRASES,
    UNKNOWN_PODS,
    as_h100s,
    copies,
    h100s,
    price,
    rate_of,
    spell,
)
from shardwright.planning.report import Alternative, Exclusion, NoPlan, Plan, Report
from shardwright.planning.request import Request, Statistic, tpot_seconds, ttft_seconds
from shardwright.planning.sentences import exclusions_sentence, ways_sentence, without_sentence
from shardwright.planning.survey import Surveyed
from shardwright.reporting.apart import only_apart, said_of_pair
from shardwright.reporting.drawings import (
    DrawnCandidate,
    DrawnLink,
    DrawnRank,
    TimeSplit,
    draw_candidates,
    draw_links,
    draw_ranks,
    expert_link,
    time_split,
)
from shardwright.reporting.figures import (
    format_count,
    format_limit,
    format_output,
    format_seconds,
    format_served,
    how_sure,
    served_at_most,
)
from shardwright.reporting.shortfall import Missed, behind, missed, serves_rate
from shardwright.units import format_plural

MOST_NAMES: Final = 3  #: per reason; the rest are counted
MOST_FACTS: Final = 3  #: per reason; the rest are counted
_BASES_OF_PRICES: Final = {
    PriceBasis.STATED: "as stated",
    PriceBasis.LISTED: "by public price lists",
    PriceBasis.ASSUMED: "assumed from its data sheet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line of the overview."""

    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnNode:
    """A node of a group; ``stages`` has for each of its GPUs the pipeline stage, None if it is not
    ours.

    ``held`` counts the GPUs that others hold. ``attention`` has each GPU's attention-data rank
    (empty: there is one for all), ``experts`` the first and the last rank that experts are dealt
    among (None: each has a slice of every expert).
    """

    group: int
    name: str
    stages: tuple[int | None, ...]
    held: int = 0
    attention: tuple[int | None, ...] = ()
    experts: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBar:
    """Bytes on the fullest GPU of one stage, or of neighbouring stages that are alike."""

    label: str
    layers: str
    weights_bytes: int
    activations_bytes: int
    overhead_bytes: int
    kv_cache_bytes: int
    budget_bytes: int
    band_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLayout:
    """A runner-up in words."""

    layout: str
    pool: str
    output: str
    per_token: str
    loses: str
    cost: str = ""  # of a million output tokens; empty if the nodes state no price
    price: str = ""  # of all its GPUs in H100s; empty if kinds of GPU were not compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything that is said about a report, in reading order.

    ``ruled_out`` counts all candidates that cannot run, ``exclusions`` gives the reasons one by
    one; ``unusable`` has a line for each reason why nodes cannot be used. ``costly`` says what the
    plan would gain without fields of the user's own. ``times`` compares the
    parts of a token's time, ``sure`` says how sure each figure is. ``pool`` is the plan's, empty
    without one; ``misses`` is what the plan does not do of what was asked for. ``ranks`` (each
    rank's share of the model), ``links`` (the traffic among ranks) and ``candidates`` are for
    pictures and programs; text leaves them out.
    """

    fits: bool
    headline: str
    facts: tuple[Fact, ...]
    nodes: tuple[DrawnNode, ...]
    memory: tuple[MemoryBar, ...]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    alternatives: tuple[OtherLayout, ...]
    ruled_out: str
    exclusions: tuple[Exclusion, ...]
    unusable: tuple[str, ...]
    costly: tuple[str, ...] = ()
    times: TimeSplit | None = None
    sure: tuple[str, ...] = ()
    pool: str = ""
    misses: tuple[Missed, ...] = ()
    ranks: tuple[DrawnRank, ...] = ()
    links: tuple[DrawnLink, ...] = ()
    candidates: tuple[DrawnCandidate, ...] = ()


def explain(
    report: Report, *, request: Request | None = None, inventory: Inventory | None = None
) -> Explanation:
    """Return the explanation of a report; request and inventory add facts to it."""
    if isinstance(report.outcome, Plan):
        return _explain_plan(report.outcome, report, request, inventory)
    return _explain_no_plan(report.outcome, report, request, inventory)


def with_drawings(
    explanation: Explanation,
    report: Report,
    *,
    model: ModelSpec,
    inventory: Inventory,
    surveyed: tuple[Surveyed, ...],
) -> Explanation:
    """Return an explanation with ranks, links and all candidates, for pictures and programs."""
    plan, candidates = report.outcome, draw_candidates(surveyed, report)
    if not isinstance(plan, Plan):
        return replace(explanation, candidates=candidates)
    ranks = draw_ranks(plan, model)
    links = draw_links(plan, pool_of(plan, inventory)) if plan.performance.promised else ()
    return replace(explanation, ranks=ranks, links=links, candidates=candidates)


def _explain_plan(
    plan: Plan, report: Report, request: Request | None, inventory: Inventory | None
) -> Explanation:
    misses, warned = missed(plan, request), plan.warnings
    if plan.undeployable:
        not_yet = f"planned, not yet deployed: {plan.undeployable.sentence()}"
        warned = (not_yet, *warned)
    if report.lacks:
        warned = (_rest(plan.missing, report.lacks), *warned)
    return Explanation(
        fits=True,
        headline="; it ".join((headline(plan), *misses)),
        facts=(
            *request_facts(_as_drafted(request, plan)),
            *_plan_facts(plan, request, pool_of(plan, inventory)),
            *(Fact(label=label, value=said) for label, said in said_of_pair(report.pair)),
        ),
        nodes=_draw(plan, pool_of(plan, inventory)),
        memory=_memory_bars(plan.stages),
        reasons=plan.reasons,
        warnings=warned,
        alternatives=tuple(_other(alternative) for alternative in report.alternatives),
        ruled_out=exclusions_sentence(report.considered, report.excluded),
        exclusions=tuple(item for item in report.excluded if item.code in PHRASES),
        unusable=_unusable(inventory),
        costly=tuple(map(without_sentence, report.costly)),
        times=time_split(plan, report) if plan.performance.promised else None,
        sure=how_sure(plan, request),
        pool=plan.pool,
        misses=misses,
    )


def _explain_no_plan(
    outcome: NoPlan, report: Report, request: Request | None, inventory: Inventory | None
) -> Explanation:
    unknown = inventory and UNKNOWN_PODS.get(inventory.known_pods)
    return Explanation(
        fits=False,
        headline=refusal_sentence(report, outcome),
        facts=(
            *request_facts(request),
            *why_none(outcome),
            *(Fact(label=label, value=said) for label, said in said_of_pair(report.pair)),
        ),
        nodes=(),
        memory=(),
        reasons=(),
        warnings=(unknown,) if unknown else (),
        alternatives=tuple(_other(alternative) for alternative in report.alternatives),
        ruled_out=exclusions_sentence(report.considered, report.excluded),
        exclusions=tuple(item for item in report.excluded if item.code in PHRASES),
        unusable=_unusable(inventory),
    )


def refusal_sentence(report: Report, outcome: NoPlan) -> str:
    """Return why there is no plan, and whether waiting helps, in one sentence; a pair may be taken
    all the same.
    """
    none = "no room now" if outcome.heals_by_itself else "nothing fits"
    return f"{only_apart(report.pair) or none}. {outcome.problem.sentence()}"


def why_none(outcome: NoPlan) -> Iterator[Fact]:
    """Yield the rule that failed, the outlook, and the ways to make room."""
    yield Fact(label="Reason", value=outcome.problem.code)
    yield Fact(label="Outlook", value=_outlook(outcome))
    ways = ways_sentence(outcome.ways_out)
    if ways:
        yield Fact(label="Way out", value=ways)


def _outlook(outcome: NoPlan) -> str:
    if outcome.awaits_nodes:
        return "waiting helps once GPU nodes are added, by an autoscaler too"
    if outcome.heals_by_itself:
        return "waiting helps: the hardware is there, but not free or not ready"
    ways = outcome.ways_out
    # Of what was tried nothing may help, though only nodes are missing.
    more = outcome.lack and (ways is None or ways.more_nodes or ways.gpus)
    return f"waiting {'helps only where nodes are added' if more else 'does not help'}"


def headline(plan: Plan) -> str:
    """Return the layout, its GPUs and the number of nodes."""
    cut = copies(plan.layout)
    if not plan.groups:
        return f"{cut} on {plan.product}; replicas is 0, nothing runs"
    nodes = {name for group in plan.groups for name in group}
    fit = f"; {len(plan.groups)} of {plan.wanted} replicas fit" if plan.missing else ""
    on = f"{plan.layout.gpus:,} {plan.product} of {format_plural(len(nodes), 'node')}"
    return f"{cut} on {on}{fit}"


def _rest(missing: int, lacks: NoPlan) -> str:
    said = f"no place for {format_plural(missing, 'more replica')}: {lacks.problem.sentence()}"
    return "; ".join(filter(None, (said, ways_sentence(lacks.ways_out))))


def pool_of(plan: Plan, inventory: Inventory | None) -> Pool | None:
    """Return the pool of a plan, None if it is not among those that are known."""
    return inventory.named(plan.pool) if inventory else None


def _as_drafted(request: Request | None, plan: Plan) -> Request | None:
    if request is None or not request.workload.draft_choices:
        return request
    workload = replace(request.workload, draft_tokens=plan.draft_tokens)
    return replace(request, workload=workload)


def request_facts(request: Request | None) -> tuple[Fact, ...]:
    """Return the load and the objective, nothing for an unknown request."""
    if request is None:
        return ()
    return (
        Fact(label="Load", value=", ".join(_load(request.workload))),
        Fact(label="Objective", value=_objective(request)),
    )


def _load(load: Workload) -> Iterator[str]:
    if load.requests_per_second is not None:
        yield rate_of(load.requests_per_second)
    else:
        yield f"{format_plural(load.concurrency, 'request')} in flight"
    yield f"{load.input_tokens:,} input + {load.output_tokens:,} output tokens each"
    if load.prefix_cache_hit_rate:
        yield f"{load.prefix_cache_hit_rate:.0%} of the input cached"
    if load.draft_tokens:
        yield f"{load.tokens_per_step:.2g} tokens a step by drafts"


def _objective(request: Request) -> str:
    objective = request.objective
    limits = (("first token", objective.ttft_seconds), ("each token", objective.tpot_seconds))
    which = "" if objective.statistic is Statistic.MEAN else f" ({objective.statistic})"
    said = [
        f"{name} within {format_limit(seconds)}{which}"
        for name, seconds in limits
        if seconds is not None
    ]
    return ", ".join([str(objective.optimize_for.value), *said])


def _plan_facts(plan: Plan, request: Request | None, pool: Pool | None) -> tuple[Fact, ...]:
    return (
        *speed_facts(plan, request),
        Fact(label="K/V cache", value=_cache(plan, request)),
        *_each(plan, request),
        *cost_facts(plan),
        *(_stages(plan) if plan.performance.promised else ()),
        Fact(label="Links", value=_links(plan, pool)),
        Fact(label="Pool", value=plan.pool),
    )


def speed_facts(plan: Plan, request: Request | None, label: str = "Can serve") -> tuple[Fact, ...]:
    """Return what a plan serves at most, under a ``label``, and its latency; that none is promised
    of a stated model.
    """
    return (
        (
            Fact(label=label, value=serves(plan, request)),
            Fact(label="Latency", value=latency(plan, request)),
        )
        if plan.performance.promised
        else (Fact(label="Speed", value="none is promised: the model is unproven"),)
    )


def serves(plan: Plan, request: Request | None) -> str:
    """Return the most that a plan serves, with the headroom that a rate leaves."""
    most = served_at_most(plan.performance, plan.capacity)
    tokens, requests = format_output(most), format_count(most.requests_per_second)
    if plan.capacity is None:
        return f"{tokens}, {requests} requests/s"
    rate = request.workload.requests_per_second if request else None
    room = f"; {_headroom(rate / plan.capacity)}" if rate else ""
    return f"{requests} requests/s, {tokens}{room}"


def _headroom(load: float) -> str:
    return f"headroom {1 - load:.0%}" if load <= 1 else "no headroom"


def latency(plan: Plan, request: Request | None) -> str:
    """Return the time to the first token and that of each token after it."""
    speed = plan.performance
    token = f"{format_seconds(speed.tpot_seconds)} per token"
    rate = request.workload.requests_per_second if request else None
    if rate is not None and not serves_rate(plan, request):
        return f"{token}; the queue grows without end"
    said = f"first token after {format_seconds(speed.ttft_seconds)}, then {token}"
    return f"{said}{_percentiles(speed, request)}"


def _percentiles(speed: Performance, request: Request | None) -> str:
    if (
        request is None
        or request.objective.statistic is Statistic.MEAN
        or not request.objective.limited
    ):
        return ""
    first = format_seconds(ttft_seconds(speed, Statistic.P95))
    token = format_seconds(tpot_seconds(speed, Statistic.P95))
    return f" (P95, assumed: {first} and {token})"


def cost_facts(plan: Plan) -> Iterator[Fact]:
    """Yield what a million tokens cost if nodes state prices, else the price in H100s."""
    each, gpus = plan.gpu_price, plan.layout.gpus
    if plan.million_tokens_price is not None:
        cost = price(plan.million_tokens_price)
        said = f"{cost} per million output tokens at this load"
        if each and each.basis is PriceBasis.STATED:
            said = f"{said}: {gpus} x {each.per_hour:g} an hour"
        yield Fact(label="Cost", value=said)
    elif each is not None:
        said = f"{as_h100s(gpus, each.per_hour)}, {_BASES_OF_PRICES[each.basis]}"
        yield Fact(label="Price", value=said)


def _stages(plan: Plan) -> Iterator[Fact]:
    stages, speed = plan.layout.pipeline, plan.performance
    if stages > 1:
        batches = min(stages, speed.running_requests)
        each = -(-speed.running_requests // batches)
        waits = sum(share.seconds for share in speed.decode_shares if share.name == "Bubble")
        bubble = waits / speed.tpot_seconds
        what = (
            f"{stages}, {batches} micro-batch{'es' if batches > 1 else ''} "
            f"of {format_plural(each, 'request')} in flight"
        )
        yield Fact(
            label="Stages", value=f"{what}; {bubble:.0%} of a token's time waits for other stages"
        )


def holds(plan: Plan) -> str:
    """Return how many tokens of K/V a replica holds, and how long a request may be."""
    kept = f"{format_count(plan.kv_tokens)} tokens per replica"
    return f"{kept}, longest request {plan.max_model_len:,}"


def _each(plan: Plan, request: Request | None) -> Iterator[Fact]:
    if plan.replica_requests:
        limited = request is not None and request.objective.limited
        how = "within the limits" if limited else "at once"
        said = f"{format_plural(plan.replica_requests, 'request')} in flight {how}"
        yield Fact(label="A replica holds", value=said)


def _cache(plan: Plan, request: Request | None) -> str:
    if plan.carries_load:
        return f"{holds(plan)}; carries the load"
    return f"{holds(plan)}; {behind(plan, request) if request else 'requests queue'}"


def _links(plan: Plan, pool: Pool | None) -> str:
    parts = []
    if plan.tensor_link:
        parts.append(f"tensor over {plan.tensor_link}")
    if plan.layout.attention_data > 1:
        parts.append(f"experts {_expert_link(plan, pool)}")
    if plan.layout.pipeline > 1:
        parts.append(f"pipeline over {plan.pipeline_link}")
    return ", ".join(parts) or "none: nothing is shared between GPUs"


def _expert_link(plan: Plan, pool: Pool | None) -> str:
    if pool is not None:
        return f"over {expert_link(plan, pool)}"
    return (
        "inside the node"
        if plan.nodes_per_replica == 1
        else f"between {plan.nodes_per_replica} nodes"
    )


def _draw(plan: Plan, pool: Pool | None) -> tuple[DrawnNode, ...]:
    most = max(plan.gpus_per_node, pool.gpus_per_node if pool else 0)
    gpus = {node.name: node.gpus for node in pool.nodes} if pool else {}
    held = {node.name: node.gpus - node.free for node in pool.nodes} if pool else {}
    drawn, before = [], Counter[str]()
    for index, group in enumerate(plan.groups):
        for position, name in enumerate(group):
            ranks = _ranks_of_a_node(plan, position)
            here = [plan.layout.position(rank) for rank in ranks]
            others: tuple[None, ...] = (None,) * before[name]
            rest: tuple[None, ...] = (None,) * (gpus.get(name, most) - before[name] - len(ranks))
            drawn.append(
                DrawnNode(
                    group=index,
                    name=name,
                    stages=(*others, *(at.stage for at in here), *rest),
                    held=held.get(name, 0),
                    attention=(*others, *(at.attention_data for at in here), *rest)
                    if plan.layout.attention_data > 1
                    else (),
                    experts=_expert_ranks_of(plan, ranks),
                )
            )
            before[name] += len(ranks)
    return tuple(drawn)


def _ranks_of_a_node(plan: Plan, position: int) -> range:
    first = position * plan.gpus_per_node
    end = min(first + plan.gpus_per_node, plan.layout.gpus_per_replica)
    return range(first, end)


def _expert_ranks_of(plan: Plan, ranks: range) -> tuple[int, int] | None:
    """Return the first and the last rank that experts are dealt among, None with pipeline stages:
    each stage counts its own ranks, so no node has a row of them.
    """
    if plan.layout.expert == 1 or plan.layout.pipeline > 1 or not ranks:
        return None
    return ranks[0], ranks[-1]


def _memory_bars(stages: tuple[StageMemory, ...]) -> tuple[MemoryBar, ...]:
    return tuple(_memory_bar(tuple(alike)) for _, alike in groupby(stages, key=_bytes_of))


def _bytes_of(stage: StageMemory) -> tuple[int, ...]:
    return (
        stage.weights_bytes,
        stage.activations_bytes,
        stage.overhead_bytes,
        stage.kv_cache_bytes,
        stage.budget_bytes,
    )


def _memory_bar(alike: tuple[StageMemory, ...]) -> MemoryBar:
    first, last = alike[0], alike[-1]
    return MemoryBar(
        label=_span(first.stage, last.stage),
        layers=_span(first.layers[0], last.layers[1] - 1),
        weights_bytes=first.weights_bytes,
        activations_bytes=first.activations_bytes,
        overhead_bytes=first.overhead_bytes,
        kv_cache_bytes=first.kv_cache_bytes,
        budget_bytes=first.budget_bytes,
        band_bytes=first.band_bytes,
    )


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}\N{EN DASH}{last}"


def _other(alternative: Alternative) -> OtherLayout:
    speed = alternative.performance
    return OtherLayout(
        layout=copies(alternative.layout),
        pool=alternative.pool,
        output=format_served(speed, alternative.capacity),
        per_token=format_seconds(speed.tpot_seconds),
        loses=alternative.loses,
        cost=""
        if alternative.million_tokens_price is None
        else price(alternative.million_tokens_price),
        price=_relative(alternative.gpu_price, alternative.layout.gpus),
    )


def _relative(each: GpuPrice | None, gpus: int) -> str:
    """Return the price of GPUs in H100s, empty if it is in the owner's currency.

    >>> _relative(GpuPrice(per_hour=0.35, basis=PriceBasis.LISTED), 2)
    '0.7 H100'
    """
    if each is None or each.basis is PriceBasis.STATED:
        return ""
    assumed = ", assumed" if each.basis is PriceBasis.ASSUMED else ""
    return f"{h100s(gpus * each.per_hour)}{assumed}"


def _unusable(inventory: Inventory | None) -> tuple[str, ...]:
    if inventory is None:
        return ()
    by_code: dict[str, list[NodeExclusion]] = defaultdict(list)
    for excluded in inventory.excluded:
        by_code[excluded.problem.code].append(excluded)
    ordered = sorted(by_code.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(f"{spell(code)}: {_names(nodes)} ({_facts(nodes)})" for code, nodes in ordered)


def _names(excluded: list[NodeExclusion]) -> str:
    named = ", ".join(node.node for node in excluded[:MOST_NAMES])
    others = len(excluded) - MOST_NAMES
    if others <= 0:
        return named
    return f"{named} and {others:,} {'other' if others == 1 else 'others'}"


def _facts(excluded: list[NodeExclusion]) -> str:
    by_fact: dict[tuple[str, str, str], list[NodeExclusion]] = defaultdict(list)
    for node in excluded:
        problem = node.problem
        by_fact[problem.what, problem.limit, problem.gap].append(node)
    if len(by_fact) == 1:
        return excluded[0].problem.sentence()
    said: list[str] = []
    remedies = {""}
    for nodes in islice(by_fact.values(), MOST_FACTS):
        problem = nodes[0].problem
        known = problem.remedy in remedies
        said.append(
            f"{_names(nodes)}: {(replace(problem, remedy='') if known else problem).sentence()}"
        )
        remedies.add(problem.remedy)
    more = len(by_fact) - len(said)
    return "; ".join((*said, f"and {more:,} more") if more else said)
