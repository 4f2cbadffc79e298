"""A load is planned, not a replica: models that state a load alone, on the fleet of the examples,
as the load changes and as GPUs run out and come back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import demo, fleet
from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for
from tests.support.models import Models

pytestmark = pytest.mark.controlplane

TRAY = "gb200-r0-t17"
Shape = tuple[int, int, int, str]


@pytest.fixture(scope="module", autouse=True)
def example_fleet(chart: ControlPlane) -> Iterator[None]:
    """The nodes and the foreign pods of the demo."""
    nodes, pods = demo.fleet()
    demo.create_fleet(chart, nodes, pods)
    yield
    chart.nodes.delete_with_pods(*(node["metadata"]["name"] for node in nodes))


@pytest.fixture(autouse=True)
def nobody_left(control_plane: ControlPlane) -> None:
    """Wait for the end of an earlier test's pods: its namespace is deleted in the background."""

    def left() -> list[dict[str, Any]]:
        mine = {"labelSelector": "app.kubernetes.io/managed-by=shardwright"}
        found: list[dict[str, Any]] = control_plane.api.get("/api/v1/pods", **mine)["items"]
        return found

    wait_for(lambda: not left(), 90, "the pods of earlier tests to be gone")


@pytest.fixture
def another_tray(control_plane: ControlPlane) -> Iterator[list[dict[str, Any]]]:
    """One more tray of the rack, not there yet."""
    nodes, _ = demo.fleet()
    (tray,) = (node for node in nodes if node["metadata"]["name"] == TRAY)
    more = fleet.make(copy.deepcopy(tray), 1, "gb200-r0-late")
    yield more
    control_plane.nodes.delete_with_pods(more[0]["metadata"]["name"])


def test_single_gpus_come_and_go_with_the_load_and_none_of_the_others_restarts(
    models: Models,
) -> None:
    models.create("llama", workload=_load(50))
    first = _serving(models, "llama", "10/10")
    assert _shape(models, "llama") == (10, 1, 1, "MI300X-192GB")

    models.change("llama", workload=_load(70))
    more = _serving(models, "llama", "14/14")
    assert more.items() > first.items()
    assert _said(models, "Planned").endswith(
        "6 x TP1 on gb200-nvl-186gb-4x-25g would be 31% better by Balanced, "
        "and spec.replan: Always restarts all groups for it."
    )

    models.change("llama", workload=_load(30))
    fewer = _serving(models, "llama", "6/6")
    assert fewer.items() < more.items()


def test_a_load_beyond_the_room_of_its_gpus_moves_a_model_once_and_not_back(models: Models) -> None:
    models.create("llama", workload=_load(50))
    small = _serving(models, "llama", "10/10")

    models.change("llama", workload=_load(150))
    large = _serving(models, "llama", "13/13")
    assert _shape(models, "llama") == (13, 1, 1, "NVIDIA-GB200")
    assert small.items().isdisjoint(large.items())

    models.change("llama", workload=_load(30))
    fewer = _serving(models, "llama", "3/3")
    assert fewer.items() < large.items()


def test_a_load_above_what_is_free_is_served_by_what_fits_and_grows_with_the_next_node(
    models: Models, control_plane: ControlPlane, another_tray: list[dict[str, Any]]
) -> None:
    models.create("llama", workload=_load(800))
    first = _serving(models, "llama", "65/65")
    assert _shape(models, "llama") == (65, 1, 1, "NVIDIA-GB200")

    models.change("llama", workload=_load(1000))
    full = _serving(models, "llama", "72/81")
    assert full.items() > first.items()
    assert _said(models, "PartlyPlaced").startswith("72 of 81 placed")

    control_plane.nodes.create(another_tray)
    grown = _serving(models, "llama", "76/81")
    assert grown.items() > full.items()
    assert _said(models, "PartlyPlaced").startswith("76 of 81 placed")


def test_models_that_once_got_a_plan_that_could_not_run_here_are_served(models: Models) -> None:
    models.create("e3", "meta-llama/Llama-3.1-70B-Instruct", workload=_load(10))
    _serving(models, "e3", "3/3")
    models.create("e2", "Qwen/Qwen2.5-7B-Instruct", workload=_load(60))
    _serving(models, "e2", "4/4")

    assert {name: _shape(models, name) for name in ("e3", "e2")} == {
        "e3": (3, 2, 1, "NVIDIA-GB200"),
        "e2": (4, 1, 1, "NVIDIA-GB200"),
    }


def _load(requests_per_second: int) -> dict[str, Any]:
    return {"requestsPerSecond": requests_per_second}


def _serving(models: Models, name: str, ready: str) -> dict[str, str]:
    """Return the pods, by name, once so many of the groups serve."""

    def reached() -> bool:
        status = models.get("ShardedModel", name)["status"]
        found = {item["type"]: item["status"] for item in status["conditions"]}
        assert found["Stalled"] == "False", status["conditions"]
        assert (status["ready"], found["Ready"]) == (ready, "True")
        return True

    wait_for(reached, 150, f"{ready} groups of {name} to serve", interval=0.5)
    return _pods(models)


def _pods(models: Models) -> dict[str, str]:
    found = (item["metadata"] for item in models.all("Pod"))
    return {item["name"]: item["uid"] for item in found if "deletionTimestamp" not in item}


def _shape(models: Models, name: str) -> Shape:
    plan = models.get("ShardedModel", name)["status"]["plan"]
    layout = plan["layout"]
    return layout["replicas"], layout["tensor"], layout["pipeline"], plan["product"]


def _said(models: Models, kind: str) -> str:
    return str(models.condition("llama", kind)["message"])
