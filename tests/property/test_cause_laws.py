"""Laws of what is said and sent: nobody is blamed who did nothing, a second writer is named, no
state sends requests for ever, an eviction takes no second group, and no move touches what serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.cluster.client import ApiError
from shardwright.cluster.resources import (
    DISRUPTION_BUDGETS,
    NODES,
    PODS,
    SERVICES,
    SHARDED_MODELS,
    STATEFUL_SETS,
)
from tests.harness.api import Manifest
from tests.support.builders_nodes import a_node
from tests.support.builders_operator import LARGE, NAMESPACE
from tests.support.builders_resource import a_sharded_model
from tests.support.examples import examples
from tests.support.memory_cluster import LOAD_SECONDS, READY, MemoryCluster
from tests.support.memory_operator import MemoryOperator

histories = examples(6)

SHAPES: Final[dict[int, dict[str, Any]]] = {
    1: {"parallelism": {"tensor": 8, "pipeline": 1}},
    2: {"model": LARGE, "parallelism": {"tensor": 8, "pipeline": 2}},
}
"""By nodes of a group."""

MODEL: Final = (NAMESPACE, "m")
REQUESTS_A_MINUTE: Final = 4


class Stage:
    """A model that serves, and everything that can happen to it."""

    def __init__(self, nodes: int, spare: int = 1, **spec: Any) -> None:
        self.cluster = MemoryCluster()
        self.operator = MemoryOperator(self.cluster, self._look)
        self.most = 3
        for number in range((self.most + spare) * nodes):
            self.cluster.put(NODES, a_node(f"h100-{number}"))
        manifest = a_sharded_model("m", NAMESPACE, **SHAPES[nodes] | spec, mode="Deploy")
        manifest["metadata"]["creationTimestamp"] = "2026-01-02T12:00:00Z"
        self.cluster.put(SHARDED_MODELS, manifest)
        self.blamed: set[str] = set()
        self.allowed = 0

    def _look(self) -> None:
        # After each thing that happens, and before anybody could see it and write.
        self.allowed = max(self.allowed, len(self.evictable()))

    async def begin(self) -> None:
        await self.operator.start()
        await self.run(2 * LOAD_SECONDS + 20)

    async def run(self, seconds: float) -> None:
        await self.operator.run(seconds)
        conflict = self.condition("FieldConflict")
        if conflict.get("status") == "True":
            self.blamed.add(conflict["message"])

    def condition(self, kind: str) -> Manifest:
        model = self.cluster.find(SHARDED_MODELS, *MODEL)
        assert model
        said = model["status"]["conditions"]
        return next((item for item in said if item["type"] == kind), {})

    def edit(self, **spec: Any) -> None:
        with self.cluster.changing(SHARDED_MODELS, *MODEL) as model:
            model["spec"] = model["spec"] | spec

    def serving(self) -> set[str]:
        """Return the groups all of whose pods are ready, by name of StatefulSet."""
        return {
            item["metadata"]["name"]
            for item in self.cluster.all(STATEFUL_SETS)
            if (pods := self.cluster.members(item))
            if len(pods) == item["spec"]["replicas"]
            if all(READY in pod["status"]["conditions"] for pod in pods)
        }

    def evictable(self) -> list[Manifest]:
        """Return the pods that serve and that the API server would let anybody evict at once."""
        budget = self.cluster.find(DISRUPTION_BUDGETS, *MODEL)
        least = budget["spec"]["minAvailable"] if budget else 0
        healthy = [pod for pod in self.cluster.all(PODS) if READY in pod["status"]["conditions"]]
        return healthy[: max(0, len(healthy) - int(str(least).strip("%")))]

    def evict_all(self) -> set[str]:
        """Evict all pods at once, as the API server lets that be done; return their groups."""
        taken = self.evictable()
        for pod in taken:
            self.cluster.end(pod, taken_by="EvictionByEvictionAPI")
        return {pod["metadata"]["name"].rpartition("-")[0] for pod in taken}


def run(coroutine: Awaitable[Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


OUR_OWN: Final[dict[str, Callable[[Stage, int], object]]] = {
    "scaled": lambda stage, number: stage.edit(replicas=1 + number % stage.most),
    "rolled": lambda stage, number: stage.edit(
        engine={"env": [{"name": "NCCL_DEBUG", "value": ("INFO", "WARN", "TRACE")[number % 3]}]},
        rollout={"maxSurge": number % 2},
    ),
    "evicted": lambda stage, _: stage.evict_all(),
    "silent": lambda stage, number: stage.cluster.silence(f"h100-{number % 3}"),
    "back": lambda stage, number: stage.cluster.heal(f"h100-{number % 3}"),
}
"""What happens without anybody who writes what we write."""


@histories
@given(
    nodes=st.integers(1, 2),
    happened=st.lists(
        st.tuples(
            st.sampled_from(["scaled", "scaled", *OUR_OWN]),
            st.integers(0, 5),
            st.sampled_from([13, 70, 90]),
        ),
        min_size=6,
        max_size=12,
    ),
)
def test_where_nobody_else_writes_nobody_is_blamed_and_at_most_one_group_is_evicted(
    nodes: int, happened: list[tuple[str, int, int]]
) -> None:
    async def history() -> None:
        stage = Stage(nodes, replicas=3)
        await stage.begin()
        for what, number, seconds in happened:
            OUR_OWN[what](stage, number)
            await stage.run(seconds)
        assert stage.blamed == set()
        assert stage.allowed <= 1

    run(history())


CHANGES: Final[list[dict[str, Any]]] = [
    {"replicas": 2},
    {"replicas": 3},
    {"engine": {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}},
    {"replicas": 1},
]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("wait", [1, LOAD_SECONDS - 5, LOAD_SECONDS + 1])
def test_at_no_moment_of_scaling_and_rolling_do_evictions_of_all_take_two_groups(
    nodes: int, wait: float
) -> None:
    async def history() -> None:
        for number, change in enumerate(CHANGES):
            stage = Stage(nodes, replicas=1 + number % 3)
            await stage.begin()
            stage.edit(**change)
            await stage.run(wait)
            before = stage.serving()
            assert len(stage.evict_all() & before) <= 1
            await stage.run(2 * LOAD_SECONDS)
            assert stage.allowed <= 1

    run(history())


def a_field(stage: Stage, number: int) -> None:
    with stage.cluster.changing(SERVICES, *MODEL) as service:
        service["spec"]["ports"][0]["port"] = 9 + number


def a_budget(stage: Stage, number: int) -> None:
    with stage.cluster.changing(DISRUPTION_BUDGETS, *MODEL) as budget:
        budget["spec"]["minAvailable"] = 0 if number % 2 else "50%"


def without_our_annotations(stage: Stage, number: int) -> None:
    a_field(stage, number)
    with stage.cluster.changing(SERVICES, *MODEL) as service:
        service["metadata"]["annotations"] = {}


def an_older_copy(stage: Stage, number: int) -> None:
    a_field(stage, number)
    with stage.cluster.changing(SERVICES, *MODEL) as service:
        service["metadata"]["annotations"]["shardwright.io/content-hash"] = "older"


def gone(stage: Stage, _number: int) -> None:
    stage.cluster.remove(SERVICES, *MODEL)


@pytest.mark.parametrize("scaled", [False, True], ids=["", "while it is scaled"])
@pytest.mark.parametrize(
    ("undo", "kind"),
    [
        (a_field, "Service"),
        (a_budget, "PodDisruptionBudget"),
        (without_our_annotations, "Service"),
        (an_older_copy, "Service"),
        (gone, "Service"),
    ],
)
def test_a_second_writer_is_named_within_three_repairs(
    undo: Callable[[Stage, int], None], kind: str, *, scaled: bool
) -> None:
    async def history() -> None:
        stage = Stage(1, replicas=2)
        await stage.begin()
        for number in range(3):
            assert stage.blamed == set()
            if scaled:
                stage.edit(replicas=2 + number % 2)
                await stage.run(LOAD_SECONDS + 10)
            undo(stage, number)
            await stage.run(10)
        (message,) = stage.blamed
        assert f"{kind} m;" in message

    run(history())


def test_what_we_render_otherwise_is_written_at_once_to_what_is_contested() -> None:
    async def history() -> None:
        stage = Stage(1, replicas=2)
        await stage.begin()
        for number in range(4):
            a_budget(stage, number)
            await stage.run(10)
        budget = stage.cluster.find(DISRUPTION_BUDGETS, *MODEL)
        assert budget
        assert budget["spec"]["minAvailable"] == 0
        stage.edit(replicas=3)
        await stage.run(20)
        budget = stage.cluster.find(DISRUPTION_BUDGETS, *MODEL)
        assert budget
        assert budget["spec"]["minAvailable"] == 2

    run(history())


REFUSED: Final = [
    "create services",
    "create configmaps",
    "create secrets",
    "create poddisruptionbudgets",
    "create networkpolicies",
    "create statefulsets",
    "create controllerrevisions",
    "dry-run pods",
    "patch statefulsets",
    "patch poddisruptionbudgets",
    "patch services",
]


@pytest.mark.parametrize("refused", REFUSED)
def test_a_state_that_is_refused_becomes_silent(refused: str) -> None:
    async def answer(verb: str, plural: str) -> None:
        if f"{verb} {plural}" == refused:
            raise ApiError(403, "Forbidden", f"{plural} is forbidden: exceeded quota")

    async def history() -> None:
        stage = Stage(2, replicas=2)
        await stage.begin()
        stage.cluster.before = answer
        stage.cluster.keeps_out = refused == "dry-run pods"
        if "create services" in refused:
            stage.cluster.remove(SERVICES, *MODEL)
        stage.edit(replicas=3, engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}, port=8001)
        await stage.run(1000)
        stage.cluster.requests.clear()
        changes = stage.cluster.changes
        await stage.run(600)
        sent = [item for item in stage.cluster.requests if not item.startswith("list ")]
        assert len(sent) <= REQUESTS_A_MINUTE * 10, sent
        # The key is there, and no pod that needs it may come.
        assert refused != "dry-run pods" or not [one for one in sent if "secrets" in one]
        assert stage.cluster.changes == changes, sent

    run(history())


@pytest.mark.parametrize("fault", ["silent", "degraded"])
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("spare", [0, 1])
def test_a_group_that_is_down_goes_at_once_where_a_place_is_free_and_no_other_is_touched(
    nodes: int, fault: str, spare: int
) -> None:
    async def history() -> None:
        stage = Stage(nodes, spare=spare, replicas=3)
        await stage.begin()
        (pod,) = (one for one in stage.cluster.all(PODS) if one["metadata"]["name"] == "m-0-0")
        others = stage.serving() - {"m-0"}
        pods = {
            one["metadata"]["uid"]
            for one in stage.cluster.all(PODS)
            if not one["metadata"]["name"].startswith("m-0-")
        }
        node = pod["spec"]["nodeName"]
        if fault == "silent":
            stage.cluster.silence(node)
        else:
            with stage.cluster.changing(NODES, None, node) as changed:
                for name in ("allocatable", "capacity"):
                    changed["status"][name]["nvidia.com/gpu"] = "7"
            stage.cluster.crash("m-0-0")
        await stage.run(15)
        begun = {item["metadata"]["name"] for item in stage.cluster.all(STATEFUL_SETS)}
        assert ("m-0-g1" in begun) is bool(spare)
        for _ in range(10):
            assert others <= stage.serving()
            await stage.run(10)
        if fault == "silent":
            assert ("m-0-g1" in stage.serving()) is bool(spare)
        assert pods <= {one["metadata"]["uid"] for one in stage.cluster.all(PODS)}

    run(history())


@pytest.mark.parametrize("taken_by", ["EvictionByEvictionAPI", "OfTheirOwn", ""])
def test_a_group_that_is_taken_away_again_and_again_starts_at_once_each_time(taken_by: str) -> None:
    async def history() -> None:
        stage = Stage(2, replicas=1)
        await stage.begin()
        for _ in range(5):
            pods = {pod["metadata"]["name"]: pod for pod in stage.cluster.all(PODS)}
            stage.cluster.end(pods["m-0-1"], taken_by=taken_by)
            await stage.run(LOAD_SECONDS + 20)
            assert stage.serving() == {"m-0"}

    run(history())


@pytest.mark.parametrize("nodes", [1, 2])
def test_no_rollout_says_that_another_release_rendered_anything(nodes: int) -> None:
    async def history() -> None:
        stage = Stage(nodes, replicas=2)
        await stage.begin()
        stage.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
        for _ in range(180):
            await stage.run(1)
            assert stage.condition("RolloutPending") == {}

    run(history())
