"""Whatever users, the cluster and faults do one after another: when all is repaired, every model
serves and every law holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from shardwright.cluster.client import ApiError
from shardwright.cluster.resources import (
    CONFIG_MAPS,
    NODES,
    PODS,
    SERVICES,
    SHARDED_MODELS,
    STATEFUL_SETS,
    Resource,
)
from tests.crash.points import Fate, StrikingCluster
from tests.harness.api import Manifest
from tests.support.builders_nodes import a_node
from tests.support.builders_operator import LARGE, NAMESPACE
from tests.support.builders_resource import a_sharded_model
from tests.support.examples import examples
from tests.support.invariants import at_any_moment, at_rest
from tests.support.memory_operator import MemoryOperator

NODES_THERE: Final = 6
NAMES: Final = ("large", "small", "other")
"""The first is of groups of two nodes, the others of one GPU: for two groups of each there is room
beside one another's.
"""

histories = examples(15)


@dataclass
class History:
    """A cluster with an operator, to which things happen; ``broken`` are the laws that were broken
    on the way.
    """

    cluster: StrikingCluster = field(default_factory=StrikingCluster)
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in range(NODES_THERE):
            self.cluster.put(NODES, a_node(f"h100-{number}"))
        self.operator = MemoryOperator(
            self.cluster, lambda: self.broken.extend(at_any_moment(self.objects()))
        )

    def objects(self) -> list[Manifest]:
        return list(self.cluster.objects.values())

    def one_of(self, resource: Resource, number: int) -> Manifest | None:
        found = [
            item
            for item in self.cluster.all(resource)
            if resource != CONFIG_MAPS or item["metadata"].get("ownerReferences")
        ]
        return found[number % len(found)] if found else None

    def edit(self, number: int, **spec: Any) -> None:
        if model := self.one_of(SHARDED_MODELS, number):
            with self.cluster.changing(
                SHARDED_MODELS, NAMESPACE, model["metadata"]["name"]
            ) as changed:
                changed["spec"] = changed["spec"] | spec

    def remove(self, resource: Resource, number: int) -> None:
        if item := self.one_of(resource, number):
            self.cluster.remove(
                resource, item["metadata"].get("namespace"), item["metadata"]["name"]
            )

    async def repair(self) -> None:
        """Have everything as it should be, and wait until all rests."""
        self.cluster.outage = None
        self.operator.hear()
        for number in range(NODES_THERE):
            node = self.cluster.find(NODES, None, f"h100-{number}")
            if node is None or node["spec"].get("unschedulable"):
                fresh = a_node(f"h100-{number}")
                self.cluster.put(
                    NODES, fresh | {"metadata": (node or {}).get("metadata", fresh["metadata"])}
                )
        for name in self.cluster.silent():
            self.cluster.heal(name)
        for number in range(len(NAMES)):
            self.edit(number, paused=False)
        await self.operator.rest()

    def not_well(self) -> list[str]:
        return [
            f"{model['metadata']['name']}: {condition['reason']}: {condition['message']}"
            for model in self.cluster.all(SHARDED_MODELS)
            for condition in model["status"]["conditions"]
            if condition["type"] == "Ready"
            and condition["reason"] not in ("Serving", "ScaledToZero")
        ]


def create(history: History, number: int) -> None:
    name = NAMES[number % len(NAMES)]
    if history.cluster.find(SHARDED_MODELS, NAMESPACE, name):
        return
    large = {"model": LARGE, "parallelism": {"tensor": 8, "pipeline": 2}}
    spec = large if name == "large" else {"parallelism": {"tensor": 1, "pipeline": 1}}
    manifest = a_sharded_model(name, NAMESPACE, **spec, replicas=1 + number % 2, mode="Deploy")
    manifest["metadata"]["creationTimestamp"] = f"2026-01-02T12:00:0{NAMES.index(name)}Z"
    history.cluster.put(SHARDED_MODELS, manifest)


def roll(history: History, number: int) -> None:
    variable = {"name": "NCCL_DEBUG", "value": ("INFO", "WARN", "TRACE")[number % 3]}
    history.edit(number, engine={"env": [variable]}, rollout={"maxSurge": number % 2})


def ask_for_restart(history: History, number: int) -> None:
    if model := history.one_of(SHARDED_MODELS, number):
        with history.cluster.changing(
            SHARDED_MODELS, NAMESPACE, model["metadata"]["name"]
        ) as changed:
            changed["metadata"]["annotations"] = {"shardwright.io/restart": str(number)}


def crash(history: History, number: int) -> None:
    pod = history.one_of(PODS, number)
    if pod and pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
        history.cluster.crash(pod["metadata"]["name"])


def end_pod(history: History, number: int) -> None:
    if pod := history.one_of(PODS, number):
        history.cluster.end(pod)


def scale_by_hand(history: History, number: int) -> None:
    if group := history.one_of(STATEFUL_SETS, number):
        with history.cluster.changing(
            STATEFUL_SETS, NAMESPACE, group["metadata"]["name"]
        ) as changed:
            changed["spec"]["replicas"] = number % 4


def silence(history: History, number: int) -> None:
    if node := history.one_of(NODES, number):
        history.cluster.silence(node["metadata"]["name"])


def cordon(history: History, number: int) -> None:
    if node := history.one_of(NODES, number):
        with history.cluster.changing(NODES, None, node["metadata"]["name"]) as changed:
            changed["spec"]["unschedulable"] = True


def lose_writes(history: History, number: int) -> None:
    history.cluster.outage = Fate.LOST_BEFORE if number % 2 else Fate.LOST_AFTER


def end_outage(history: History, _number: int) -> None:
    history.cluster.outage = None


HAPPENINGS: Final[dict[str, Callable[[History, int], None]]] = {
    "model created": create,
    "model deleted": lambda history, number: history.remove(SHARDED_MODELS, number),
    "scaled": lambda history, number: history.edit(number, replicas=number % 3),
    "rolled": roll,
    "restart asked": ask_for_restart,
    "paused": lambda history, number: history.edit(number, paused=True),
    "resumed": lambda history, number: history.edit(number, paused=False),
    "rank crashed": crash,
    "pod deleted": end_pod,
    "group deleted": lambda history, number: history.remove(STATEFUL_SETS, number),
    "service deleted": lambda history, number: history.remove(SERVICES, number),
    "configuration deleted": lambda history, number: history.remove(CONFIG_MAPS, number),
    "scaled by hand": scale_by_hand,
    "node silent": silence,
    "node cordoned": cordon,
    "node lost": lambda history, number: history.remove(NODES, number),
    "API server away": lose_writes,
    "API server back": end_outage,
    "watches cut": lambda history, _: history.operator.deafen(),
    "watches back": lambda history, _: history.operator.hear(),
}
KILL: Final = "operator killed"
CLOCKS_AHEAD_SECONDS: Final = (0.0, 1800.0, -1800.0)
"""How far the clock of an operator is ahead that starts in the place of one that was killed."""


async def live(happened: list[tuple[str, int, int]]) -> History:
    """Let all of this happen, each followed by some seconds, and repair it."""
    history = History()
    await history.operator.start()
    for name, number, seconds in happened:
        if name == KILL:
            history.cluster.outage = None
            ahead = CLOCKS_AHEAD_SECONDS[number % len(CLOCKS_AHEAD_SECONDS)]
            await history.operator.start(ahead)
        else:
            HAPPENINGS[name](history, number)
        with suppress(ApiError):
            await history.operator.run(seconds)
    await history.repair()
    return history


@histories
@given(
    happened=st.lists(
        st.tuples(
            st.sampled_from([*HAPPENINGS, KILL]),
            st.integers(0, 11),
            st.sampled_from([0, 1, 10, 70, 400]),
        ),
        min_size=4,
        max_size=24,
    )
)
def test_when_all_is_mended_every_model_serves_and_every_law_holds(
    happened: list[tuple[str, int, int]],
) -> None:
    first = [("model created", 0, 70), ("model created", 1, 70)]
    history = asyncio.run(live([*first, *happened]))
    assert (history.broken, at_rest(history.objects()), history.not_well()) == ([], [], [])
