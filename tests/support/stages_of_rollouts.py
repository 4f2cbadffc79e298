"""Models that serve and are changed group after group, and what is to be seen of that on the way."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from itertools import pairwise
from json import dumps, loads
from typing import Any, Final

from shardwright.reconcile.annotations import read_annotations
from shardwright.reconcile.writes import Why
from shardwright.rendering.bundle import TEMPLATE_HASH
from tests.support.builders_snapshot import ONE_NODE, Operator
from tests.support.changed_engines import GOOD, Cluster
from tests.support.said import condition_in
from tests.support.small_cluster import LOAD_SECONDS

SETTLED = 1300
"""Seconds in which three groups have taken their turns, and less than a start may take."""


def serving(nodes: int = 4, **spec: Any) -> Operator:
    """Return an operator whose model serves."""
    return _served(nodes, dumps(spec, sort_keys=True)).fork()


@cache  # most tests begin with one of a few
def _served(nodes: int, spec: str) -> Operator:
    cluster = Cluster()
    cluster.add_nodes(nodes)
    operator = Operator(cluster, loads(spec))
    assert ready(operator.run(LOAD_SECONDS + 60).status) == ("True", "Serving")
    return operator


def three_groups(**rollout: Any) -> Operator:
    return serving(4, **ONE_NODE, replicas=3, rollout=rollout)


def ready(status: Mapping[str, Any]) -> tuple[str, str]:
    found = condition_in(status, "Ready")
    return found["status"], found["reason"]


def stopped(status: Mapping[str, Any]) -> tuple[str, str]:
    found = condition_in(status, "RolloutStopped")
    return found["status"], found["reason"]


GONE_ON: Final = (("False", "Idle"), ("True", "Serving"))
"""What is said of a rollout that is not stopped any more, once all groups serve."""


def standing(status: Mapping[str, Any]) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return what is said of a stop of the rollout, and of the model."""
    return stopped(status), ready(status)


def templates(operator: Operator) -> dict[str, str]:
    """Return by name the template of the pods of each group."""
    pods = operator.cluster.pods.items()
    return {name.rpartition("-")[0]: pod["metadata"]["labels"][TEMPLATE_HASH] for name, pod in pods}


def changed(operator: Operator, before: Mapping[str, str]) -> list[str]:
    """Return the groups whose pods are of another template than before."""
    return sorted(
        name for name, template in templates(operator).items() if before.get(name) != template
    )


def with_cache(groups: Mapping[str, Any], storage: str) -> dict[str, Any]:
    return {**groups["model"], "weights": {"cache": {"storage": storage}}}


def evict(operator: Operator, name: str) -> None:
    """Take a pod away, as a drain does: its StatefulSet makes it anew."""
    operator.cluster.end(operator.cluster.pods[name], taken_by="EvictionByEvictionAPI")


def stops(operator: Operator, seconds: float, step: float = 10) -> dict[str, datetime]:
    """Let time pass; return when each group was stopped on purpose."""
    found: dict[str, datetime] = {}
    for _ in operator.moments(seconds, step):
        for name, live in operator.cluster.sets().items():
            if read_annotations(live).stopped_for == Why.ROLLOUT:
                found.setdefault(name, operator.cluster.now)
    return found


def between_stops(**rollout: Any) -> list[float]:
    """Return the seconds between the stops of three groups that get another template."""
    operator = three_groups(**rollout)
    operator.edit(engine=GOOD)
    times = sorted(stops(operator, SETTLED).values())
    assert ready(operator.status) == ("True", "Serving")
    return [(after - before).total_seconds() for before, after in pairwise(times)]
