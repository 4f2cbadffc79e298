"""A change goes to the canary, from there to one group after another, and no further where it does not come up."""

import pytest

from shardwright.rendering.hashing import TEMPLATE_HASH
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import Models

pytestmark = pytest.mark.controlplane

CHANGED = {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}


def pods(models: Models) -> dict[str, tuple[str, str]]:
    """Return uid and template of the pods, by name."""
    found = (pod["metadata"] for pod in models.pods())
    return {metadata["name"]: (metadata["uid"], metadata["labels"][TEMPLATE_HASH]) for metadata in found}


def test_a_canary_is_alone_until_the_partition_is_lowered_and_a_change_that_does_not_come_up_goes_no_further(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet("h100-8x-dell-xe9680", 1)
    models.create("llama", replicas=3, rollout={"partition": 2})
    models.wait_ready("llama")
    before = pods(models)

    models.change("llama", engine=CHANGED)
    wait_for(lambda: pods(models)["llama-2-0"][1] != before["llama-2-0"][1], 60, "the canary")
    models.wait_ready("llama")
    canary = pods(models)
    assert {name for name in before if canary[name] != before[name]} == {"llama-2-0"}
    assert models.condition("llama", "RolloutPending")["reason"] == "HeldByPartition"

    models.delete("Pod", "llama-0-0")
    wait_for(lambda: pods(models)["llama-0-0"][0] != before["llama-0-0"][0], 60, "a new pod in its place")
    models.wait_ready("llama")
    assert pods(models)["llama-0-0"][1] == before["llama-0-0"][1]

    control_plane.pods.crash_loop(models.namespace, "llama-2-0", message="CUDA error: invalid argument")
    wait_for(lambda: models.condition("llama")["status"] == "False", 30, "the canary to fail")
    stood = pods(models)
    models.change("llama", rollout={"partition": 0})
    wait_for(lambda: models.condition("llama", "RolloutStopped")["reason"] == "EngineFailed", 30, "the rollout to stop")
    assert "CUDA error: invalid argument" in models.condition("llama", "RolloutStopped")["message"]
    models.wait_events("RolloutStopped")
    assert pods(models) == stood

    control_plane.pods.recover(models.namespace, "llama-2-0")
    others = {(name, before[name][1]) for name in ("llama-0-0", "llama-1-0")}
    wait_for(lambda: others.isdisjoint((name, pod[1]) for name, pod in pods(models).items()), 90, "the other groups")
    models.wait_ready("llama")
    assert pods(models)["llama-2-0"] == stood["llama-2-0"]
    assert models.condition("llama", "RolloutStopped")["status"] == "False"
