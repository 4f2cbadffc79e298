"""A group of TensorRT-LLM over two restricted pods: real ssh, real mpirun; only `trtllm-serve` is a
stand-in.
"""

import os
import re

import pytest

from tests.harness.waiting import wait_for
from tests.kind import faults
from tests.kind.breaking import FOLLOWER, LEADER
from tests.kind.cluster import Cluster
from tests.kind.faults import Fault
from tests.kind.serving import Served

pytestmark = pytest.mark.timeout(1200)

IMAGE_VARIABLE = "SHARDWRIGHT_KIND_MPI_IMAGE"
"""An image with Open MPI, ssh, sshd and the stand-ins of tests/mpi/bin; `make kind-test` makes one.
"""

_RANK = re.compile(r"stub: rank (\d) of (\d) on (\S+)")


def test_mpirun_starts_every_rank_of_two_restricted_pods_over_ssh(models: Cluster) -> None:
    served = Served(models, "mpi")
    engine = f"engine: {{name: TensorRTLLM, image: '{os.environ[IMAGE_VARIABLE]}', version: 1.2.1}}"
    served.write("parallelism: {tensor: 2, pipeline: 2}", further=(engine,))
    try:
        wait_for(
            lambda: [_is_ready(pod) for pod in served.pods()] == [True, True],
            300,
            "two pods to be ready",
            1,
        )
        ranks = {int(rank): (int(of), host) for rank, of, host in _RANK.findall(served.log(LEADER))}
        nodes = {pod["spec"]["nodeName"] for pod in served.pods()}

        assert ranks == {0: (4, "mpi-0-0"), 1: (4, "mpi-0-0"), 2: (4, "mpi-0-1"), 3: (4, "mpi-0-1")}
        assert len(nodes) == 2
        assert _user(served, LEADER) == _user(served, FOLLOWER) == "10001"
        faults.seen.append(
            Fault(
                "TensorRT-LLM's launch over two pods",
                "4 ranks of one MPI world",
                0,
                "ready by the probes",
            )
        )
    finally:
        served.delete()


def _is_ready(pod: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    return any(
        entry["type"] == "Ready" and entry["status"] == "True"
        for entry in pod["status"].get("conditions", [])
    )


def _user(served: Served, rank: int) -> str:
    return served.inside(rank, "id -u").strip()
