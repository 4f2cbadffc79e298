"""Models whose rollouts are taken back: operators of them, and what their status and their pods say
of it.
"""

from __future__ import annotations

from functools import cache
from json import dumps, loads
from typing import Any

from shardwright.reconcile.group import ROLLBACK_TO
from tests.support.builders_snapshot import ONE_NODE, Operator
from tests.support.changed_engines import Cluster
from tests.support.said import condition_in
from tests.support.small_cluster import LOAD_SECONDS

SETTLED = 1300
"""Seconds in which three groups have taken their turns."""

ROLL_BACK = {"onFailure": "RollBack", "progressDeadlineSeconds": 300}
OTHER = {"env": [{"name": "NCCL_DEBUG", "value": "VERSION"}]}


def serving(nodes: int = 4, **spec: Any) -> Operator:
    """Return an operator whose model serves, with this release: a test that stands for another one
    changes it afterwards.
    """
    return _served(nodes, dumps(spec, sort_keys=True)).fork()


@cache  # most tests begin with one of a few
def _served(nodes: int, spec: str) -> Operator:
    cluster = Cluster()
    cluster.add_nodes(nodes)
    return until_it_serves(Operator(cluster, loads(spec)))


def until_it_serves(operator: Operator) -> Operator:
    operator.run(LOAD_SECONDS + 60)
    assert ready(operator) == ("True", "Serving")
    return operator


def three_groups(**rollout: Any) -> Operator:
    return serving(4, **ONE_NODE, replicas=3, rollout=rollout)


def condition(operator: Operator, name: str) -> dict[str, Any]:
    return condition_in(operator.status, name)


def ready(operator: Operator) -> tuple[str, str]:
    found = condition(operator, "Ready")
    return found["status"], found["reason"]


def rolled_back(operator: Operator) -> tuple[str, str]:
    found = condition(operator, "RolledBack")
    return found["status"], found["reason"]


def no_way_back(operator: Operator) -> tuple[str, str]:
    found = condition(operator, "NoWayBack")
    return found["status"], found["reason"]


def revisions(operator: Operator) -> list[tuple[int, bool]]:
    """Return the number of each revision, and whether it runs."""
    return [(item["revision"], item["runs"]) for item in operator.status.get("revisions", ())]


def variables(operator: Operator) -> dict[str, str | None]:
    """Return by name what each pod was told of NCCL_DEBUG."""
    found = {}
    for name, pod in operator.cluster.pods.items():
        env = {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
        found[name] = env.get("NCCL_DEBUG")
    return found


def uids(operator: Operator) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in operator.cluster.pods.items()}


def ask(operator: Operator, request: str | None) -> None:
    """Set the annotation, or take it away."""
    operator.annotations = {ROLLBACK_TO: request} if request else {}
    operator.cluster.version += 1
