"""Nodes that do not exist yet, on a real API server and scheduler; the test plays the
autoscaler.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest

from tests.harness import fleet as fleets
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

PACE = 60
"""The 20 minutes in which nodes must come are 20 seconds."""

H100 = "h100-8x-dell-xe9680"
POOL = "example.com/pool"
MAX_NODES = 3
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def operator(
    chart: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One operator that knows of a pool of nodes as those of the fleet, of which none exists."""
    labels = fleets.load(H100)["metadata"]["labels"]
    pool = {
        "name": "spot",
        "maxNodes": MAX_NODES,
        "selector": {POOL: "spot"},
        "labels": {
            key: value for key, value in labels.items() if key.startswith("nvidia.com/gpu.")
        },
        "allocatable": {"nvidia.com/gpu": 8},
        "taints": [TAINT],
    }
    file = tmp_path_factory.mktemp("settings") / "settings.json"
    file.write_text(json.dumps({"autoscaledPools": [pool]}))
    with OperatorProcess(chart, f"--settings-file={file}", pace=PACE) as running:
        yield running


class Autoscaler:
    """Makes nodes of the pool for pods that the scheduler finds no place for, one for each."""

    def __init__(self, models: Models, fleet: Fleet) -> None:
        self._models = models
        self._fleet = fleet
        self.made: list[str] = []

    def pending(self) -> list[Manifest]:
        """Return the pods that a new node of the pool would help."""
        waiting = [pod for pod in self._models.pods() if _finds_no_place(pod)]
        return [
            pod for pod in waiting if any(_describes(term, {POOL: "spot"}) for term in _terms(pod))
        ]

    def wait_for_pods(self, count: int) -> None:
        wait_for(
            lambda: len(self.pending()) == count, 60, f"{count} pods to ask for nodes of the pool"
        )

    def add(self, count: int) -> list[str]:
        made = self._fleet(
            H100, count, "spot", labels={POOL: "spot"}, taints=[TAINT], first=len(self.made)
        )
        self.made += made
        return made


def _finds_no_place(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(
        item["type"] == "PodScheduled" and item.get("reason") == "Unschedulable"
        for item in conditions
    )


def _terms(pod: Manifest) -> list[Manifest]:
    affinity = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    terms: list[Manifest] = affinity["nodeSelectorTerms"]
    return terms


def _describes(term: Manifest, labels: Mapping[str, str]) -> bool:
    """Return whether a node with these labels, whatever its name, would do."""
    wanted = {"kubernetes.io/arch": "amd64", **labels}
    return "matchFields" not in term and all(
        (wanted.get(item["key"]) in item["values"]) == (item["operator"] == "In")
        for item in term["matchExpressions"]
    )


@pytest.fixture
def autoscaler(models: Models, fleet: Fleet) -> Autoscaler:
    return Autoscaler(models, fleet)


def record_of(models: Models, name: str) -> Manifest:
    record: Manifest = json.loads(models.get("ConfigMap", f"{name}-plan")["data"]["plan.json"])
    return record


def planned(models: Models, name: str) -> list[str]:
    return sorted(node for group in record_of(models, name)["plan"]["groups"] for node in group)


def test_a_group_planned_on_nodes_to_come_is_pinned_to_those_that_come_without_a_restart(
    models: Models, autoscaler: Autoscaler, control_plane: ControlPlane
) -> None:
    models.create("large", LARGE)
    autoscaler.wait_for_pods(2)
    waits = models.wait_reason("large", "WaitingForNodes")
    assert "waits for the autoscaler to make ~spot-0, ~spot-1" in waits["message"]
    assert planned(models, "large") == ["~spot-0", "~spot-1"]
    asked = models.uids()

    (first,) = autoscaler.add(1)
    wait_for(
        lambda: planned(models, "large") == [first, "~spot-1"],
        30,
        "the first node to be in the record",
    )
    (second,) = autoscaler.add(1)
    group = models.wait_ready("large", timeout=60)["status"]["groups"][0]

    assert (sorted(group["nodes"]), group["restarts"]) == ([first, second], 0)
    assert models.uids() == asked
    wait_for(
        lambda: planned(models, "large") == [first, second], 30, "the record to name both nodes"
    )
    fields = wait_for(lambda: _pins(models, "large-0"), 30, "the template to name both nodes")
    assert fields == [first, second]
    assert models.uids() == asked

    control_plane.nodes.delete_with_pods(first)  # its group stops as a whole, and asks for one more
    autoscaler.wait_for_pods(1)
    wait_for(
        lambda: planned(models, "large") == [second, "~spot-0"], 30, "the group to be planned anew"
    )
    (third,) = autoscaler.add(1)
    models.wait_ready("large", timeout=60)
    wait_for(
        lambda: planned(models, "large") == [second, third], 30, "the record to name the new node"
    )


def _pins(models: Models, name: str) -> list[str]:
    """Return the nodes that the template of a group names, all of its terms."""
    terms = _terms(models.get("StatefulSet", name)["spec"]["template"])
    assert all("matchFields" in term for term in terms), terms
    return sorted(term["matchFields"][0]["values"][0] for term in terms)
