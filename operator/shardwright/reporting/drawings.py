"""Each rank's share of the model, and the links among ranks with how busy they are.

One replica stands for all, which are alike.

All layouts that were considered, ruled out or not, as points of the trade-off between tokens per
second per GPU and per user.

The parts of an output token's time, for the chosen layout and the runners-up side by side.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shardwright.costs.estimates import Performance
from shardwright.hardware.gpus import Link
from shardwright.hardware.inventory import Pool
from shardwright.modelspec.model_spec import Attention, GroupedAttention, ModelSpec
from shardwright.planning.phrases import WORDS, copies
from shardwright.planning.report import Alternative, Plan, Report
from shardwright.planning.survey import Surveyed

KINDS: Final = MappingProxyType(
    {
        "TensorCommunication": "tensor",
        "ContextCommunication": "context",
        "ExpertCommunication": "experts",
        "PipelineCommunication": "pipeline",
    }
)
"""The kind of traffic of each part of a token's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRank:
    """A rank of a replica.

    ``node`` is an index among the replica's nodes. ``layers``, ``heads``, ``kv_heads`` and
    ``experts`` are the first and the last that it holds, counted from 0; None if the model has
    none, or a rank has only a slice of each. ``expert_slices`` is the number of slices that each
    expert is cut into (0: whole experts, or none).
    """

    rank: int
    node: int
    stage: int
    tensor: int
    attention_data: int
    layers: tuple[int, int]
    heads: tuple[int, int] | None
    kv_heads: tuple[int, int] | None
    experts: tuple[int, int] | None
    expert_slices: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLink:
    """Traffic of one kind among the ranks of a replica.

    ``name`` is the slowest link that it crosses, ``bytes_per_second`` that link's rate for one GPU
    in one direction (None: not known). ``seconds`` is the part of a token's time that it is busy,
    ``busy`` the same as a share.
    """

    kind: str  # tensor, context, experts, pipeline
    name: str
    bytes_per_second: float | None
    between_nodes: bool
    seconds: float
    busy: float


def draw_ranks(plan: Plan, model: ModelSpec) -> tuple[DrawnRank, ...]:
    """Return the ranks of one replica."""
    return tuple(_rank(rank, plan, model) for rank in range(plan.layout.gpus_per_replica))


def _rank(rank: int, plan: Plan, model: ModelSpec) -> DrawnRank:
    layout = plan.layout
    tensor, stage, attention_data = layout.position(rank)
    first, end = plan.stages[stage].layers
    attention = _usual_attention(model, first, end)
    experts = _experts_of(model, first, end)
    return DrawnRank(
        rank=rank,
        node=rank // plan.gpus_per_node,
        stage=stage,
        tensor=tensor,
        attention_data=attention_data,
        layers=(first, end - 1),
        heads=_dealt(attention.heads, layout.tensor, tensor) if attention else None,
        kv_heads=_kv_heads(attention, layout.tensor, tensor),
        experts=_dealt(experts, layout.expert, attention_data * layout.tensor + tensor)
        if layout.expert > 1
        else None,
        expert_slices=layout.tensor if experts and layout.expert == 1 else 0,
    )


def _usual_attention(model: ModelSpec, first: int, end: int) -> Attention | None:
    counted = Counter(
        layer.attention for layer in model.layers[first:end] if layer.attention is not None
    )
    return counted.most_common(1)[0][0] if counted else None


def _experts_of(model: ModelSpec, first: int, end: int) -> int:
    blocks = (layer.feed_forward for layer in model.layers[first:end])
    return max((getattr(block, "experts", 0) for block in blocks), default=0)


def _kv_heads(attention: Attention | None, ranks: int, rank: int) -> tuple[int, int] | None:
    """Return a tensor rank's K/V heads; if there are fewer heads than ranks, ranks share them."""
    if not isinstance(attention, GroupedAttention):
        return None
    if attention.kv_heads >= ranks:
        return _dealt(attention.kv_heads, ranks, rank)
    own = rank * attention.kv_heads // ranks
    return own, own


def _dealt(count: int, ranks: int, rank: int) -> tuple[int, int] | None:
    """Return a rank's first and last item if the first ranks take the remainder.

    >>> [_dealt(10, 4, rank) for rank in range(4)], _dealt(1, 2, 1)
    ([(0, 2), (3, 5), (6, 7), (8, 9)], None)
    """
    each, rest = divmod(count, ranks)
    first = rank * each + min(rank, rest)
    end = first + each + (rank < rest)
    return (first, end - 1) if end > first else None


def draw_links(plan: Plan, pool: Pool | None) -> tuple[DrawnLink, ...]:
    """Return each kind of traffic that takes time, those inside a stage first."""
    seconds = {share.name: share.seconds for share in plan.performance.decode_shares}
    return tuple(_links(plan, pool, seconds))


def _links(plan: Plan, pool: Pool | None, seconds: dict[str, float]) -> Iterator[DrawnLink]:
    for part, kind in KINDS.items():
        if part not in seconds:
            continue
        name = _crossed(kind, plan, pool)
        yield DrawnLink(
            kind=kind,
            name=name,
            bytes_per_second=next(
                (link.bytes_per_second for link in _links_of(pool) if link.name == name), None
            ),
            between_nodes=_between_nodes(kind, plan),
            seconds=seconds[part],
            busy=seconds[part] / plan.performance.tpot_seconds,
        )


def _crossed(kind: str, plan: Plan, pool: Pool | None) -> str:
    if kind == "pipeline":
        return plan.pipeline_link
    return expert_link(plan, pool) if kind == "experts" else plan.tensor_link


def expert_link(plan: Plan, pool: Pool | None) -> str:
    """Return the link between attention replicas and experts, empty if the pool is not known."""
    if pool is None:
        return ""
    group = plan.groups[0] if plan.groups else ()
    domains = {node.domain for node in pool.nodes if node.name in group}
    reaches = pool.domain_gpus >= plan.layout.gpus_per_replica and (
        plan.nodes_per_replica == 1 or len(domains) == 1
    )
    if pool.gpu.scale_up is not None and reaches:
        return pool.gpu.scale_up.name
    return pool.gpu.host.name if plan.nodes_per_replica == 1 else pool.network.name


def _between_nodes(kind: str, plan: Plan) -> bool:
    inside = (
        plan.layout.tensor <= plan.gpus_per_node
        if kind in {"tensor", "context"}
        else plan.nodes_per_replica == 1
    )
    return not inside


def _links_of(pool: Pool | None) -> tuple[Link, ...]:
    if pool is None:
        return ()
    scale_up = () if pool.gpu.scale_up is None else (pool.gpu.scale_up,)
    return (*scale_up, pool.gpu.host, pool.network)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tradeoff:
    """How fast a layout would be: in seconds, and in output tokens per second of all replicas, per
    GPU and per request.
    """

    ttft_seconds: float
    tpot_seconds: float
    output_tokens_per_second: float
    output_tokens_per_second_per_gpu: float
    output_tokens_per_second_per_user: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCandidate:
    """A layout on a pool; ``rules`` are the reasons that rule it out (empty: it can run).

    ``speed`` is None if its degrees do not divide the model or its memory does not suffice.
    """

    layout: str
    pool: str
    gpus: int
    chosen: bool
    rules: tuple[str, ...]
    carries_load: bool
    speed: Tradeoff | None


def draw_candidates(surveyed: Sequence[Surveyed], report: Report) -> tuple[DrawnCandidate, ...]:
    """Return the candidates in the order of the survey, with the report's plan marked as chosen."""
    plan = report.outcome if isinstance(report.outcome, Plan) else None
    return tuple(
        _drawn(one, chosen=plan is not None and (one.layout, one.pool) == (plan.layout, plan.pool))
        for one in surveyed
    )


def _drawn(one: Surveyed, *, chosen: bool) -> DrawnCandidate:
    return DrawnCandidate(
        layout=copies(one.layout),
        pool=one.pool,
        gpus=one.layout.gpus,
        chosen=chosen,
        rules=one.codes,
        carries_load=one.carries_load,
        speed=tradeoff(one),
    )


def tradeoff(one: Surveyed) -> Tradeoff | None:
    """Return the speed of a layout as a point, None if it has none."""
    speed = one.performance
    if speed is None:
        return None
    return Tradeoff(
        ttft_seconds=speed.ttft_seconds,
        tpot_seconds=speed.tpot_seconds,
        output_tokens_per_second=speed.output_tokens_per_second,
        output_tokens_per_second_per_gpu=speed.output_tokens_per_second / one.layout.gpus,
        output_tokens_per_second_per_user=1 / speed.tpot_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """One part of the time, in seconds, for every layout in order."""

    part: str
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSplit:
    """A token's time by its parts, the chosen layout's largest first; one column per layout."""

    layouts: tuple[str, ...]
    rows: tuple[TimeRow, ...]
    token: TimeRow
    first_token: TimeRow


def time_split(plan: Plan, report: Report) -> TimeSplit:
    """Return the times of a plan and of its report's alternatives."""
    speeds = [plan.performance, *(other.performance for other in report.alternatives)]
    return TimeSplit(
        layouts=(copies(plan.layout), *(_named(other, plan) for other in report.alternatives)),
        rows=tuple(TimeRow(part=WORDS[name], seconds=_of(name, speeds)) for name in _parts(speeds)),
        token=TimeRow(part="a token", seconds=tuple(speed.tpot_seconds for speed in speeds)),
        first_token=TimeRow(
            part="first token", seconds=tuple(speed.ttft_seconds for speed in speeds)
        ),
    )


def _named(other: Alternative, plan: Plan) -> str:
    elsewhere = f" on {other.pool}" if other.pool != plan.pool else ""
    return f"{copies(other.layout)}{elsewhere}"


def _parts(speeds: Sequence[Performance]) -> list[str]:
    """Return the parts of all layouts, the chosen layout's largest first."""
    largest: dict[str, tuple[float, ...]] = {
        share.name: _of(share.name, speeds) for speed in speeds for share in speed.decode_shares
    }
    return sorted(largest, key=lambda name: (*(-seconds for seconds in largest[name]), name))


def _of(name: str, speeds: Sequence[Performance]) -> tuple[float, ...]:
    return tuple(
        sum(share.seconds for share in speed.decode_shares if share.name == name)
        for speed in speeds
    )
