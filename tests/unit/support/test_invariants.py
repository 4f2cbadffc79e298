"""The invariants hold of a model that serves, and each of them notices the harm that it is there
for.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.lives import add_variable, ask_for_restart, ask_to_go_back, create, fill, model_of
from tests.support.builders_operator import run, serving
from tests.support.invariants import (
    Snapshot,
    at_any_moment,
    at_rest,
    left_alone,
    of_lease,
    of_texts,
    of_writes,
)
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_operator import MemoryOperator

Objects = dict[str, dict[str, Any]]
"""A snapshot by kind and name."""


@pytest.fixture(scope="module")
def serves() -> Snapshot:
    """A model that serves on two nodes of 8 GPUs."""
    found: list[dict[str, Any]] = []

    async def scenario() -> None:
        parts, _ = await serving()
        found.extend(parts.api.objects.values())

    run(scenario())
    return found


def changed(objects: Snapshot, change: Callable[[Objects], Any]) -> Snapshot:
    """Return another snapshot in which something is otherwise."""
    by_name = {
        f"{item['kind']} {item['metadata']['name']}": copy.deepcopy(item) for item in objects
    }
    change(by_name)
    return list(by_name.values())


def newer(objects: Objects) -> None:
    objects["ShardedModel large"]["metadata"]["generation"] = 2


def another_revision(objects: Objects) -> None:
    objects["Pod large-0-1"]["metadata"]["labels"]["shardwright.io/template-hash"] = "another"


def fewer_gpus(objects: Objects) -> None:
    objects["Node h100-1"]["status"]["allocatable"]["nvidia.com/gpu"] = "7"


def not_ready(objects: Objects) -> None:
    objects["Pod large-0-1"]["status"]["conditions"] = []


def another_port(objects: Objects) -> None:
    objects["Service large"]["spec"]["ports"][0]["port"] = 9999


def one_more(objects: Objects) -> None:
    extra = copy.deepcopy(objects["Service large"])
    extra["metadata"] |= {"name": "large-more", "uid": "more"}
    objects["Service large-more"] = extra


def no_owner(objects: Objects) -> None:
    del objects["ShardedModel large"]


def deleted(objects: Objects) -> None:
    objects["Service large"]["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"


def without(name: str) -> Callable[[Objects], Any]:
    return lambda objects: objects.pop(name)


def test_nothing_is_broken_where_a_model_serves(serves: Snapshot) -> None:
    assert at_rest(serves) == []
    assert left_alone(serves, serves) == []


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (newer, ["I1 models/large: observed generation 1, not 2"]),
        (not_ready, ["I1 models/large: Ready, though large-0 do not serve"]),
        (without("Service large"), ["I2 models/large: Service large is missing"]),
        (one_more, ["I2 models/large: Service large-more is one too many"]),
        (another_port, ["I2 models/large: Service large: spec.ports[0].port is not as rendered"]),
        (deleted, ["I6 Service models/large: still being deleted"]),
    ],
)
def test_harm_that_stays_is_noticed(
    serves: Snapshot, harm: Callable[[Objects], Any], said: list[str]
) -> None:
    broken = changed(serves, harm)
    assert at_rest(broken) == said
    assert at_any_moment(broken) == []


def test_of_a_model_that_has_gone_back_what_runs_is_held_against_the_revision() -> None:
    cluster = MemoryCluster()

    async def scenario() -> None:
        fill(cluster)
        operator = MemoryOperator(cluster)
        await operator.start()
        for act in (create("vLLM"), ask_for_restart, add_variable("INFO"), ask_to_go_back("1")):
            act(cluster)
            await operator.rest()

    run(scenario())
    objects = [item for item in cluster.objects.values() if item["kind"] != "Event"]
    (back,) = [
        item for item in model_of(cluster)["status"]["conditions"] if item["type"] == "RolledBack"
    ]
    assert (back["status"], at_rest(objects)) == ("True", [])
    assert at_rest(changed(objects, another_port)) == [
        "I2 models/large: Service large: spec.ports[0].port is not as rendered"
    ]


def test_children_without_their_model_are_noticed(serves: Snapshot) -> None:
    found = at_rest(changed(serves, no_owner))
    assert "I3 StatefulSet models/large-0: its ShardedModel is gone" in found
    assert {line.partition(" ")[0] for line in found} == {"I3"}


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (another_revision, ["StatefulSet models/large-0: pods of 2 templates"]),
        (fewer_gpus, ["I7 Node h100-1: 8 GPUs held of 7", "I7 Node h100-1: 8 GPUs planned of 7"]),
    ],
)
def test_harm_that_must_not_be_for_a_moment_is_noticed(
    serves: Snapshot, harm: Callable[[Objects], Any], said: list[str]
) -> None:
    assert at_any_moment(changed(serves, harm)) == said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Pod large-0-1", ["I5 Pod models/large-0-1: is gone or going"]),
        (
            "StatefulSet large-0",
            ["I8 StatefulSet models/large-0: is gone, though large is there and unchanged"],
        ),
    ],
)
def test_what_nobody_asked_for_is_noticed(serves: Snapshot, name: str, said: list[str]) -> None:
    after = changed(serves, without(name))
    assert left_alone(serves, after) == said
    assert left_alone(serves, changed(after, newer)) == []


def test_a_plan_that_moves_by_itself_is_noticed(serves: Snapshot) -> None:
    def move(objects: Objects) -> None:
        data = objects["ConfigMap large-plan"]["data"]
        data["plan.json"] = data["plan.json"].replace("h100-1", "h100-7")

    (said,) = left_alone(serves, changed(serves, move))
    assert (
        said
        == "I8 models/large: planned on (('h100-0', 'h100-7'),), before on (('h100-0', 'h100-1'),)"
    )


def test_a_loop_of_writes_is_noticed() -> None:
    assert of_writes(["patch models/statefulsets/large-0"] * 20) == []
    assert of_writes(["patch a"] * 21 + ["patch b"]) == ["I4 patch a: written 21 times, at most 20"]


@pytest.mark.parametrize(
    ("holders", "said"),
    [
        (["a"], []),
        ([""], ["I9 Lease shardwright: held by [''], not by one of ['a', 'b']"]),
        (["by-hand"], ["I9 Lease shardwright: held by ['by-hand'], not by one of ['a', 'b']"]),
        ([], ["I9 Lease shardwright: held by nobody, not by one of ['a', 'b']"]),
    ],
)
def test_a_lease_of_nobody_who_runs_is_noticed(holders: list[str], said: list[str]) -> None:
    leases = [
        {"kind": "Lease", "metadata": {"name": "shardwright"}, "spec": {"holderIdentity": name}}
        for name in holders
    ]
    assert of_lease(leases, {"a", "b"}) == said


def test_a_secret_that_is_said_is_noticed() -> None:
    assert of_texts({"log": "all is well", "status": "token hunter2 refused"}, ["hunter2"]) == [
        "I10 status: says a secret"
    ]
