"""A real control plane for tests and demos: Kubernetes' own binaries on loopback, kubelets played
by kwok.

from tests.harness import ControlPlane, fleet, wait_for

with ControlPlane.start() as cp:
    cp.nodes.create(fleet.make("h100-8x-dell-xe9680", count=4, prefix="h100"))
    cp.kubectl("apply", "-f", "-", input=manifests)
    wait_for(lambda: cp.pods.list("default"), what="a pod")
    cp.pods.crash("default", "model-0", exit_code=3)
"""

from tests.harness import fleet
from tests.harness.api import Api, ApiError
from tests.harness.controlplane import COMPONENTS, ControlPlane
from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for

__all__ = ["COMPONENTS", "Api", "ApiError", "ControlPlane", "HarnessError", "fleet", "wait_for"]
