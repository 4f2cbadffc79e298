"""etcd is put back to an earlier state under a running operator: its process ends, and the next
one tells the truth.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import Models
from tests.support.operator import SYSTEM, OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"


def test_a_process_that_meets_an_earlier_state_ends_and_the_next_one_says_what_is(
    operator: OperatorProcess, models: Models, control_plane: ControlPlane, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models.create("llama")
    models.wait_ready("llama")
    with put_back(control_plane):
        models.change("llama", replicas=2)
        models.wait_ready("llama")
        renewed = lease(control_plane)
        wait_for(lambda: lease(control_plane) != renewed, 15, "the Lease to be renewed")

    wait_for(lambda: operator.running() is None, 20, "the process to end")
    assert "has gone back to an earlier state" in operator.logs()
    operator.start()
    resource = models.wait_ready("llama")
    assert (resource["spec"].get("replicas", 1), resource["status"]["readyReplicas"]) == (1, 1)


def lease(control_plane: ControlPlane) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/shardwright"
    return str(control_plane.api.get(path)["metadata"]["resourceVersion"])


@contextmanager
def put_back(control_plane: ControlPlane) -> Iterator[None]:
    """Save etcd, and put it back at the end as it was: everything but the operator starts anew."""
    data = control_plane.kubeconfig.parent / "etcd"
    saved = data.with_name("saved")
    control_plane.stop_component("etcd")
    shutil.copytree(data, saved)
    control_plane.start_component("etcd")
    yield
    control_plane.put_back(saved)
