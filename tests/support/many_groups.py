"""The life of one model with many groups of two pods: each call of ``advance`` from a first look
until all of it serves.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from shardwright.reconcile.advance import Step
from shardwright.reconcile.publish import Kept
from shardwright.reconcile.rollout import planned_nodes
from shardwright.reconcile.seen import Seen
from tests.support.builders_seen import TWO_NODES, Operator
from tests.support.small_cluster import READY, SmallCluster

Advance = Callable[[str, Seen, datetime], Step]
"""Called for each step with what it is for."""


def live(groups: int, advance: Advance) -> None:
    """Look while nothing exists, all groups are made, all have just come to serve, all serve, and
    the spec has changed.
    """
    cluster = SmallCluster()
    cluster.add_nodes(2 * groups)
    operator = Operator(cluster, TWO_NODES | {"replicas": groups})
    _look("new", operator, advance)
    _look("made", operator, advance)
    _let_all_serve(cluster)
    _look("noted", operator, advance)
    _look("serve", operator, advance)
    operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
    _look("changed", operator, advance)


def _look(what: str, operator: Operator, advance: Advance) -> None:
    """Carry one look out as the shell does."""
    seen = operator.seen()
    while True:
        step = advance(f"{what}: {_stage(seen)}", seen, operator.cluster.now)
        if step.tell:
            seen = operator.read_on(seen, step)
        elif step.ask:
            seen = seen.answered(step.ask, operator.answer(seen, step.ask))
        elif step.records:
            operator.kept = Kept(record=step.records)
            seen = seen.put_down(step.records, operator.cluster.carry_out(step.writes))
        else:
            operator.cluster.carry_out(step.writes)
            assert step.published
            operator.since, operator.status = (step.published.since, step.published.status)
            return


def _stage(seen: Seen) -> str:
    return "is written" if seen.recorded else "is planned" if seen.answers else "begins"


def _let_all_serve(cluster: SmallCluster) -> None:
    """Let the pods of all groups run where they are planned, and be ready."""
    for name, item in cluster.sets().items():
        for rank, node in enumerate(sorted(planned_nodes(item))):
            made = cluster._pod(item, rank)
            made["spec"]["nodeName"] = node
            engine = {
                "name": "engine",
                "restartCount": 0,
                "state": {"running": {}},
                "started": True,
            }
            made["status"] = {
                "phase": "Running",
                "conditions": [READY],
                "containerStatuses": [engine],
            }
            cluster.pods[f"{name}-{rank}"] = made
