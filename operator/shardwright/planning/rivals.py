"""Which layouts need no price, because they also stand on a pool that differs only in a faster
network?

Faster links never slow anything (``tests/property``), so a slower twin is never the best.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from shardwright.costs.workload import Workload
from shardwright.hardware.gpus import Link
from shardwright.planning.checks import Verdict

NOTICEABLE: Final = 0.001
"""Share by which a network must be faster to be better whatever else; else a tie is decided as any
other. Basis: assumed, far above what rounding hides.
"""

LONG_ANSWER_STEPS: Final = 16
"""Decode steps from which an answer's time is not that of its first tokens, in which a faster link
may count as a later start. Basis: assumed, several times the fitted ``answer_steps`` of every
engine.
"""


def without_slower_twins(feasible: Sequence[Verdict], load: Workload) -> Sequence[Verdict]:
    """Return the verdicts without those that have a twin on a faster network.

    Where links may count otherwise all are returned: a rate is searched in steps, and short answers
    are mostly their first tokens.
    """
    steps = load.output_tokens / load.tokens_per_step
    # A rate settles at another number in flight on each network, and in short answers a faster link
    # may count as a later start.
    if load.requests_per_second is not None or steps < LONG_ANSWER_STEPS:
        return feasible
    twins: dict[object, list[Verdict]] = defaultdict(list)
    for verdict in feasible:
        twins[_but_network(verdict)].append(verdict)
    return [verdict for alike in twins.values() for verdict in _unbeaten(alike)]


def _but_network(verdict: Verdict) -> tuple[object, ...]:
    layout, pool, placement = (
        verdict.candidate.layout,
        verdict.candidate.pool,
        verdict.candidate.placement,
    )
    links = (
        None if link == pool.network else link
        for link in (placement.tensor_link, placement.pipeline_link)
    )
    spread = placement.gpus_per_node, placement.nodes_per_replica, placement.one_domain
    return layout, pool.gpu, pool.domain_gpus, pool.gpu_hour_price, *spread, *links


def _unbeaten(twins: Sequence[Verdict]) -> Iterable[Verdict]:
    if (
        twins[0].candidate.placement.nodes_per_replica == 1
    ):  # no network is crossed: all are equally good
        # One of them is enough: which one is decided as select would.
        return [min(twins, key=_tie)]
    kept: list[Verdict] = []
    # Fastest first: a verdict can then be beaten by those before it alone.
    for verdict in sorted(twins, key=_by_network):
        if not any(_beats(faster, verdict) for faster in kept):
            kept.append(verdict)
    return kept


def _by_network(verdict: Verdict) -> tuple[object, ...]:
    network = verdict.candidate.pool.network
    return -network.bytes_per_second, network.latency_seconds, _tie(verdict)


def _beats(one: Verdict, other: Verdict) -> bool:
    mine = one.candidate.pool.network
    its = other.candidate.pool.network
    if _slower(mine, its):
        return False
    faster = _crosses_network(one) and mine.bytes_per_second > its.bytes_per_second * (
        1 + NOTICEABLE
    )
    return faster or _tie(one) < _tie(other)


def _crosses_network(verdict: Verdict) -> bool:
    """Return whether traffic surely crosses the network: nodes of one replica may share a scale-up
    link.
    """
    placement = verdict.candidate.placement
    return verdict.candidate.pool.network in (placement.tensor_link, placement.pipeline_link)


def _slower(mine: Link, its: Link) -> bool:
    return (
        mine.bytes_per_second < its.bytes_per_second or mine.latency_seconds > its.latency_seconds
    )


def _tie(verdict: Verdict) -> tuple[int, int, str]:
    """Return the key that orders equally good candidates, as in ``select``."""
    placement = verdict.candidate.placement
    return (
        placement.nodes_per_replica * len(placement.groups),
        placement.leftover_gpus,
        verdict.candidate.pool.name,
    )
