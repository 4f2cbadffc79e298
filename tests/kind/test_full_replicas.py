"""Two groups of one model that are scaled, rolled and drained while requests come."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.waiting import wait_for
from tests.kind import breaking, faults, serving
from tests.kind.cluster import Cluster
from tests.kind.faults import Fault
from tests.kind.load import load
from tests.kind.serving import READY_SECONDS, Served

pytestmark = pytest.mark.timeout(3600)

ONE = "parallelism: {tensor: 1, pipeline: 1}"
LEAST_REQUESTS = 200
DRAIN_SECONDS = 900


@pytest.fixture(scope="module")
def groups(models: Cluster) -> Iterator[Served]:
    """One process per group, on three nodes with a GPU each."""
    with serving.single_gpu_nodes(models):
        served = serving.serve(models, "groups", ONE, further=("replicas: 1",))
        yield served
        served.delete()


def test_scaling_and_a_roll_lose_no_request(groups: Served) -> None:
    with load(groups, threads=2) as sending:
        _written(groups, 2)
        _written(groups, 1)
        _written(groups, 2)
        before = groups.uids()
        groups.write(ONE, further=("replicas: 2", "engine: {args: {max-logprobs: 5}}"))
        wait_for(lambda: not before & groups.uids(), READY_SECONDS, "the old pods to be gone", 1)
        _serve(groups, 2)
        tally = sending.end()

    assert tally.failed == []
    assert tally.answered >= LEAST_REQUESTS
    faults.seen.append(
        Fault(
            "scaled 1, 2, 1, 2 and rolled under load", "nothing", 0, f"0 of {tally.answered} failed"
        )
    )


def test_two_nodes_drained_at_once_take_one_group_at_a_time(groups: Served) -> None:
    _written(groups, 2)
    nodes = [pod["spec"]["nodeName"] for pod in groups.pods()]
    assert len(set(nodes)) == 2

    try:
        with load(groups, threads=2) as sending, ThreadPoolExecutor(2) as draining:
            drains = [
                draining.submit(breaking.drain, groups, node, DRAIN_SECONDS) for node in nodes
            ]
            for drain in drains:
                drain.result()
            tally = sending.end()
    finally:
        groups.cluster.kubectl("uncordon", *nodes)
    _serve(groups, 2)

    assert tally.failed == []
    assert tally.answered >= LEAST_REQUESTS
    faults.seen.append(
        Fault(
            "two nodes drained at once", "one group at a time", 0, f"0 of {tally.answered} failed"
        )
    )


def _written(groups: Served, replicas: int) -> None:
    groups.write(ONE, further=(f"replicas: {replicas}",))
    _serve(groups, replicas)


def _serve(groups: Served, replicas: int) -> None:
    """Wait until so many groups are ready and no other pod is left."""

    def ready() -> bool:
        assert len(groups.pods()) == replicas
        assert [group["ready"] for group in groups.status()["groups"]] == [True] * replicas, (
            groups.status()["groups"]
        )
        return True

    wait_for(ready, READY_SECONDS, f"{replicas} groups to serve", 1)
