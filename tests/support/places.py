"""Where the only group of the model `large` stands, and nodes that are taken from it."""

from __future__ import annotations

from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for
from tests.support.models import Models


def nodes_of(models: Models) -> list[str]:
    """Return the nodes of the only group, by rank."""
    (group,) = models.wait_ready("large")["status"]["groups"]
    assert group["name"] == "large-0"
    return list(group["nodes"])


def wait_stays(models: Models, node: str) -> None:
    """Wait until the group stands again where it was planned, all but the pod for a node that takes
    none.
    """

    def waits() -> bool:
        assert models.condition("large")["status"] == "False"
        assert [pod["spec"].get("nodeName") for pod in models.pods()].count(None) == 1
        return True

    wait_for(waits, 60, "the group to wait for its node")
    assert node in models.get("ShardedModel", "large")["status"]["plan"]["placement"]["nodes"]


def wait_stale(models: Models, node: str) -> None:
    """Wait until the status says that the plan stays although this node cannot be used."""

    def stale() -> bool:
        condition = models.condition("large", "PlanStale")
        assert (condition["status"], condition["reason"]) == ("True", "NodesChanged"), condition
        return node in condition["message"]

    wait_for(stale, 30, "PlanStale")


def lose(models: Models, control_plane: ControlPlane, node: str) -> None:
    """Let a node not answer any more, and its pod be gone by force."""
    control_plane.nodes.set_not_ready(node)
    (pod,) = (pod["metadata"]["name"] for pod in models.pods() if pod["spec"]["nodeName"] == node)
    control_plane.api.delete(
        f"/api/v1/namespaces/{models.namespace}/pods/{pod}", grace_period_seconds=0
    )
