"""What fits, serves: models with room for some of their groups, on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import Models

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
A_NODE: dict[str, Any] = {"parallelism": {"tensor": 8, "pipeline": 1}}  # all 8 GPUs of one node


def wait_placed(models: Models, name: str, said: str) -> None:
    """Wait until so many groups of a model are placed, and all of these serve."""

    def placed() -> bool:
        found = models.get("ShardedModel", name).get("status", {})
        conditions = {item["type"]: item for item in found.get("conditions", ())}
        partly = conditions.get("PartlyPlaced", {}).get("message", "")
        ready = int(said.partition(" ")[0])
        return bool(
            partly.startswith(said)
            and conditions["Ready"]["status"] == conditions["Reconciling"]["status"] == "True"
            and found["readyReplicas"] == ready
        )

    wait_for(placed, 120, f"{name} to be {said}")
    assert models.condition(name, "Stalled")["status"] == "False"


def types(models: Models, name: str) -> list[str]:
    status = models.get("ShardedModel", name)["status"]
    return [item["type"] for item in status["conditions"]]


def test_what_fits_serves_and_the_rest_comes_with_the_next_node(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 3)
    models.create("llama", replicas=4, **A_NODE)
    wait_placed(models, "llama", "3 of 4 placed")
    status = models.get("ShardedModel", "llama")["status"]
    assert (status["replicas"], status["readyReplicas"], status["ready"]) == (4, 3, "3/4")
    assert status["plan"]["layout"]["replicas"] == 3
    told = control_plane.kubectl("get", "smodel", "llama", "-n", models.namespace)
    assert "3/4" in told
    before = models.uids()

    fleet(H100, 1, prefix="late")

    models.wait_ready("llama", timeout=120)
    wait_for(lambda: "PartlyPlaced" not in types(models, "llama"), 120, "the fourth to be placed")
    found = models.wait_ready("llama", timeout=120)["status"]
    assert (found["replicas"], found["readyReplicas"], found["ready"]) == (4, 4, "4/4")
    assert models.uids() > before
    assert "PartlyPlaced" in models.reasons_of_events()
