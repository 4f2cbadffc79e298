"""One disruption budget over all groups, asked through the real eviction API: a drain goes on, and
takes one group at a time.
"""

from http.client import TOO_MANY_REQUESTS

import pytest

from tests.harness.api import ApiError
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.stages import STOP_AFTER
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
EVICTED = {"rank": 1, "container": "", "reason": "EvictionByEvictionAPI"}


@pytest.fixture
def serving(models: Models, fleet: Fleet) -> Models:
    """A model in two groups of two pods each, large-0 and large-1, that serves and has its
    disruption budget.
    """
    fleet(H100, 4)
    models.create("large", LARGE, replicas=2)
    models.wait_ready("large")
    wait_allowed(models, 1)
    return models


def wait_allowed(models: Models, disruptions: int) -> None:
    """Wait until the disruption controller says how many pods may be evicted, for the budget as the
    operator wrote it.
    """

    def allowed() -> bool:
        budget = models.get("PodDisruptionBudget", "large")
        assert budget["spec"]["minAvailable"] == 3, budget["spec"]
        status = budget["status"]
        assert status["observedGeneration"] == budget["metadata"]["generation"]
        assert (status["expectedPods"], status["disruptionsAllowed"]) == (4, disruptions), status
        return True

    wait_for(allowed, 30, f"{disruptions} disruptions to be allowed")


def wait_not_ready(models: Models, pod: str) -> None:
    def not_ready() -> bool:
        (ready,) = (
            found
            for found in models.get("Pod", pod)["status"]["conditions"]
            if found["type"] == "Ready"
        )
        return str(ready["status"]) == "False"

    wait_for(not_ready, 30, f"{pod} not to be Ready")


def uids_of(models: Models, group: str) -> set[str]:
    return {
        pod["metadata"]["uid"]
        for pod in models.pods()
        if pod["metadata"]["labels"]["shardwright.io/group"] == group
    }


def assert_refused(models: Models, pod: str) -> None:
    with pytest.raises(ApiError) as refused:
        models.evict(pod)
    assert refused.value.status == TOO_MANY_REQUESTS
    assert "deletionTimestamp" not in models.get("Pod", pod)["metadata"]


def drain_long(models: Models, *pods: str) -> None:
    """Let these pods take longer to end than any test lasts: they have requests in flight."""
    for pod in pods:
        models.patch("Pod", pod, {"metadata": {"annotations": {STOP_AFTER: "600s"}}})


def evict_as_a_drain_does(models: Models, pod: str) -> None:
    """Ask again where the answer is 429: also what a pod is answered that changes, or is deleted,
    in that very moment.
    """

    def evicted() -> bool:
        models.evict(pod)
        return True

    wait_for(evicted, 30, f"{pod} to be evicted")


def end_drain(models: Models, control_plane: ControlPlane, *pods: str) -> None:
    for pod in pods:
        control_plane.api.delete(
            f"/api/v1/namespaces/{models.namespace}/pods/{pod}", grace_period_seconds=0
        )


def test_while_an_evicted_pod_has_its_group_down_no_pod_of_another_group_may_be_evicted(
    serving: Models, control_plane: ControlPlane
) -> None:
    drain_long(serving, "large-0-0", "large-0-1")
    other = uids_of(serving, "large-1")

    serving.evict("large-0-1")
    wait_for(
        lambda: "deletionTimestamp" in serving.get("Pod", "large-0-0")["metadata"],
        30,
        "the group to go down as one",
    )
    wait_for(
        lambda: serving.get("PodDisruptionBudget", "large")["status"]["disruptionsAllowed"] == 0,
        30,
        "no more disruptions",
    )
    assert_refused(serving, "large-1-0")
    assert_refused(serving, "large-1-1")

    wait_for(lambda: serving.condition("large")["status"] == "False", 30, "the status to say so")
    end_drain(serving, control_plane, "large-0-0", "large-0-1")
    first, second = serving.wait_ready("large")["status"]["groups"]
    assert (first["restarts"], first["lastFailure"]) == (1, EVICTED)
    assert (second["restarts"], uids_of(serving, "large-1")) == (0, other)

    wait_allowed(serving, 1)
    serving.evict("large-1-1")
    wait_for(
        lambda: other.isdisjoint(uids_of(serving, "large-1")),
        60,
        "the pods of the second group to be others",
    )
    serving.wait_ready("large")


def test_a_pod_that_is_not_ready_may_be_evicted_although_the_budget_allows_no_other(
    serving: Models, control_plane: ControlPlane
) -> None:
    first, second = uids_of(serving, "large-0"), uids_of(serving, "large-1")
    control_plane.pods.hang(serving.namespace, "large-0-0")
    control_plane.pods.hang(serving.namespace, "large-0-1")
    wait_not_ready(serving, "large-0-0")
    wait_not_ready(serving, "large-0-1")  # the budget allows nothing from the first of them on
    wait_allowed(serving, 0)
    assert_refused(serving, "large-1-0")
    drain_long(serving, "large-0-0", "large-0-1")

    serving.evict("large-0-1")
    evict_as_a_drain_does(serving, "large-0-0")
    end_drain(serving, control_plane, "large-0-0", "large-0-1")
    wait_for(
        lambda: first.isdisjoint(uids_of(serving, "large-0")),
        60,
        "the pods of the first group to be others",
    )
    serving.wait_ready("large")
    assert uids_of(serving, "large-1") == second
