"""After failures in a row a group starts at once, then after pauses that double; what is remembered
is aged, not waited for.
"""

import json
from datetime import datetime, timedelta

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
INCIDENT = "shardwright.io/incident"
READY_SINCE = "shardwright.io/ready-since"


def annotations_of(models: Models) -> dict[str, str]:
    """Return what is remembered of the group."""
    return dict(models.get("StatefulSet", "large-0")["metadata"]["annotations"])


def incident_of(models: Models) -> Manifest:
    """Return what is remembered of the last failure of the group."""
    return dict(json.loads(annotations_of(models)[INCIDENT]))


def wait_serving(models: Models, restarts: int) -> None:
    """Wait until the group serves after so many restarts, and that is remembered."""
    wait_for(lambda: READY_SINCE in annotations_of(models), 60, "all pods to be ready")
    wait_for(
        lambda: groups_of(models) == [(True, restarts)],
        60,
        f"the status to say {restarts} restarts",
    )


def groups_of(models: Models) -> list[tuple[bool, int]]:
    """Return of each group whether it is ready, and how often it has been restarted."""
    return [
        (group["ready"], group["restarts"])
        for group in models.get("ShardedModel", "large")["status"]["groups"]
    ]


def crash(models: Models, control_plane: ControlPlane, restarts: int) -> Manifest:
    """Let the engine of a group that serves fail, and return what is remembered of it when all pods
    of the group are gone.
    """
    before = models.uids()
    control_plane.pods.crash(models.namespace, "large-0-1", exit_code=1)
    wait_for(lambda: incident_of(models)["restarts"] == restarts, 30, f"failure {restarts}")
    wait_for(lambda: before.isdisjoint(models.uids()), 30, "the pods to be gone")
    return incident_of(models)


def wait_pause(models: Models, incident: Manifest, seconds: int) -> None:
    """Wait until the status says that the group stays at zero for so long after its failure."""
    restart = datetime.fromisoformat(incident["time"]) + timedelta(seconds=seconds)
    wait_for(
        lambda: (
            f"large-0: restarts at {restart.isoformat()}" in models.condition("large")["message"]
        ),
        30,
        f"{seconds} s",
    )
    assert models.pods() == []


def let_pass(models: Models, incident: Manifest, seconds: int) -> None:
    """Let the failure have been so long ago."""
    earlier = datetime.fromisoformat(incident["time"]) - timedelta(seconds=seconds)
    remembered = json.dumps({**incident, "time": earlier.isoformat()}, sort_keys=True)
    models.patch("StatefulSet", "large-0", {"metadata": {"annotations": {INCIDENT: remembered}}})


def test_pauses_between_failures_double_up_to_the_longest_which_is_repeated_for_ever(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 2)
    models.create("large", LARGE, restart={"maxDelaySeconds": 100, "budget": 4})
    wait_serving(models, 0)

    for number, pause in enumerate((0, 30, 60, 100, 100), 1):
        incident = crash(models, control_plane, number)
        assert (incident["attempt"], incident["counted"]) == (number, number)
        if number == 5:
            models.wait_reason("large", "RestartBudgetSpent")
            assert models.condition("large", "Stalled")["status"] == "False"
        if pause:
            wait_pause(models, incident, pause)
            let_pass(models, incident, pause)
        wait_serving(models, number)


def test_a_stretch_of_service_makes_the_next_failure_the_first_of_its_row(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 2)
    models.create("large", LARGE)
    wait_serving(models, 0)
    crash(models, control_plane, 1)
    wait_serving(models, 1)

    earlier = datetime.fromisoformat(annotations_of(models)[READY_SINCE]) - timedelta(seconds=600)
    models.patch(
        "StatefulSet", "large-0", {"metadata": {"annotations": {READY_SINCE: earlier.isoformat()}}}
    )
    incident = crash(models, control_plane, 2)

    assert (incident["restarts"], incident["attempt"], incident["counted"]) == (2, 1, 1)
    wait_serving(models, 2)
