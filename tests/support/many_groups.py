"""The life of one model with many groups of two pods: each call of ``next_step`` from a first reconcile
until all of it serves.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from shardwright.reconcile.disruption import planned_nodes
from shardwright.reconcile.next_step import Step
from shardwright.reconcile.publish import Kept
from shardwright.reconcile.snapshot import Snapshot
from tests.support.builders_snapshot import TWO_NODES, Operator
from tests.support.small_cluster import READY, SmallCluster

Advance = Callable[[str, Snapshot, datetime], Step]
"""Called for each step with what it is for."""


def live(groups: int, next_step: Advance) -> None:
    """Look while nothing exists, all groups are made, all have just come to serve, all serve, and
    the spec has changed.
    """
    cluster = SmallCluster()
    cluster.add_nodes(2 * groups)
    operator = Operator(cluster, TWO_NODES | {"replicas": groups})
    _look("new", operator, next_step)
    _look("made", operator, next_step)
    _let_all_serve(cluster)
    _look("noted", operator, next_step)
    _look("serve", operator, next_step)
    operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
    _look("changed", operator, next_step)


def _look(what: str, operator: Operator, next_step: Advance) -> None:
    """Carry one reconcile out as the shell does."""
    snapshot = operator.seen()
    while True:
        step = next_step(f"{what}: {_stage(snapshot)}", snapshot, operator.cluster.now)
        if step.tell:
            snapshot = operator.read_on(snapshot, step)
        elif step.ask:
            snapshot = snapshot.answered(step.ask, operator.answer(snapshot, step.ask))
        elif step.records:
            operator.kept = Kept(record=step.records)
            snapshot = snapshot.put_down(step.records, operator.cluster.carry_out(step.writes))
        else:
            operator.cluster.carry_out(step.writes)
            assert step.published
            operator.since, operator.status = (step.published.since, step.published.status)
            return


def _stage(snapshot: Snapshot) -> str:
    return "is written" if snapshot.recorded else "is planned" if snapshot.answers else "begins"


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
