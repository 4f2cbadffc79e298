"""A group of two pods, kept from its operator, its nodes and its peace: `make kind-test-full`."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for
from tests.kind import breaking, cluster, faults, release, serving
from tests.kind.breaking import FAILED, FOLLOWER, LEADER, PROMPT, QUICK, broken, kill, served_again
from tests.kind.cluster import Cluster
from tests.kind.faults import Fault
from tests.kind.grounds import docker_in_use
from tests.kind.load import load
from tests.kind.serving import NAMESPACE, PIPELINE, Served

pytestmark = pytest.mark.timeout(3600)

ENDS_SECONDS = 120
SATURATED_SECONDS = 300
LONG_SECONDS = 10
LOST_SECONDS = 600
DRAIN_SECONDS = 300
LATE_SECONDS = 60
"""How late a rank comes at least; as late as followers of vLLM alone were seen to bear
(engine-measurements.md 2).
"""


@pytest.fixture(scope="module")
def pipeline_alone(models: Cluster) -> Iterator[Served]:
    """Two pods on two of three nodes with a GPU each."""
    with serving.single_gpu_nodes(models):
        served = serving.serve(models, "pipeline", PIPELINE, further=QUICK)
        yield served
        served.delete()


@pytest.fixture
def group(pipeline_alone: Served) -> Served:
    """It, when it serves."""
    pipeline_alone.wait_ready()
    return pipeline_alone


@pytest.fixture(scope="module")
def long_tokens(pipeline_alone: Served) -> int:
    """The tokens of a request that takes twice LONG_SECONDS as fast as the cores are now."""
    began = time.monotonic()
    pipeline_alone.ask(PROMPT, 500)
    return int(500 * 2 * LONG_SECONDS / (time.monotonic() - began))


def test_a_killed_leader_takes_the_group_through_zero_and_it_serves_again(group: Served) -> None:
    broken(group, "a killed leader", lambda: kill(group, LEADER), first=[FAILED])

    assert group.failure()["rank"] == LEADER


@pytest.mark.parametrize("times", range(5))
def test_a_long_request_outlives_a_planned_restart(
    group: Served, long_tokens: int, times: int
) -> None:
    _outlives(
        group,
        long_tokens,
        f"a planned restart with a request in flight ({times + 1} of 5)",
        group.restart,
    )


@pytest.mark.parametrize("times", range(3))
def test_a_long_request_outlives_the_eviction_of_a_follower(
    group: Served, long_tokens: int, times: int
) -> None:
    pod = f"{group.name}-0-{FOLLOWER}"
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": NAMESPACE},
    }

    def evict() -> None:
        way = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
        group.cluster.kubectl("create", "--raw", way, "-f", "-", text=json.dumps(eviction))

    _outlives(
        group,
        long_tokens,
        f"an evicted follower with a request in flight ({times + 1} of 3)",
        evict,
    )


def test_a_saturated_group_stays_ready(group: Served) -> None:
    before = _readiness(group)
    until = time.monotonic() + SATURATED_SECONDS

    with load(group, threads=32, tokens=64) as sending:
        wait_for(lambda: time.monotonic() > until, SATURATED_SECONDS + 30, "five minutes", 5)
        tally = sending.end()

    assert (tally.failed, _readiness(group)) == ([], before)
    assert tally.answered > 32
    faults.seen.append(
        Fault(
            "5 minutes at saturation",
            "nothing: it stays ready",
            0,
            f"{tally.answered} of {tally.answered}",
        )
    )


@pytest.mark.parametrize("loaded", [False, True], ids=["idle", "loaded"])
def test_a_group_without_its_operator_ends_by_itself_when_a_follower_dies(
    group: Served, *, loaded: bool
) -> None:
    before, how = group.uids(), "loaded" if loaded else "idle"
    _operator(group.cluster, 0)
    try:
        with ThreadPoolExecutor() as asking:
            asked = asking.submit(group.ask, PROMPT, 50_000 - 8) if loaded else None
            if asked:
                wait_for(lambda: _running(group), 60, "the request to run", 0.2)
            began = time.monotonic()
            kill(group, FOLLOWER)
            wait_for(lambda: not _has_ready_endpoint(group), ENDS_SECONDS, "no ready endpoint", 0.2)
            ended = time.monotonic() - began
            if asked:
                with pytest.raises(HarnessError):
                    asked.result(timeout=ENDS_SECONDS)
                ended = time.monotonic() - began
    finally:
        _operator(group.cluster, 2)
    assert ended < ENDS_SECONDS
    served_again(group, before, "the operator is back")
    seconds = time.monotonic() - began
    faults.seen.append(
        Fault(
            f"a killed follower, no operator, {how}",
            "no endpoint is ready",
            ended,
            f"serves again after {seconds:.0f} s",
        )
    )


def test_ranks_wait_for_a_node_that_does_not_have_the_image_yet(group: Served) -> None:
    client, image = docker_in_use(), str(group.status()["engine"]["image"])
    before, failed = group.uids(), group.failure()
    cluster.remove_image(client, group.pods()[FOLLOWER]["spec"]["nodeName"], image)

    began = time.monotonic()
    try:
        group.restart()
        shown = wait_for(
            lambda: _one_waits(group), LOST_SECONDS, "one rank to wait for the other", 0.5
        )
        shown_seconds = time.monotonic() - began
        wait_for(
            lambda: _longest_run(group) > LATE_SECONDS,
            LOST_SECONDS,
            "a rank that has waited for a minute",
            1,
        )
        _one_waits(group)  # still
    finally:
        cluster.load(client, image)
    again = served_again(group, before, "the image is there") - began

    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in group.pods()] == [0, 0]
    assert group.failure() == failed
    faults.seen.append(
        Fault(
            "a node without the image",
            shown,
            shown_seconds,
            f"serves after {again:.0f} s, {LATE_SECONDS} s late",
        )
    )


def _one_waits(group: Served) -> str:
    """What Ready says while one rank runs and the other one has no image."""
    said = breaking.not_ready(group)
    assert "runs, and has not met all ranks of its group" in said, said
    assert "Image" in said, said
    return said


def _longest_run(group: Served) -> float:
    """For how many seconds the container runs that has done so longest."""
    running = [
        pod["status"]["containerStatuses"][0]["state"].get("running") for pod in group.pods()
    ]
    began = [datetime.fromisoformat(state["startedAt"]) for state in running if state]
    return max((datetime.now(UTC) - each).total_seconds() for each in began)


def test_a_group_leaves_a_drained_node(group: Served) -> None:
    node = group.pods()[FOLLOWER]["spec"]["nodeName"]

    try:
        broken(group, "a drained node", lambda: breaking.drain(group, node, DRAIN_SECONDS))
        assert node not in {pod["spec"]["nodeName"] for pod in group.pods()}
    finally:
        group.cluster.kubectl("uncordon", node)


def test_a_group_is_made_anew_beside_a_lost_node(group: Served) -> None:
    client, node = docker_in_use(), _node_without_client(group)
    began = time.monotonic()

    try:
        client("kill", node)
        shown = wait_for(
            lambda: breaking.not_ready(group), LOST_SECONDS, "a lost node: Ready to be False", 0.5
        )
        shown_seconds = time.monotonic() - began
        wait_for(lambda: _elsewhere(group, node), LOST_SECONDS, "pods on other nodes", 1)
        group.wait_ready()
        again = time.monotonic() - began
        assert len(group.ask(PROMPT)) == serving.TOKENS
        faults.seen.append(
            Fault("a lost node", shown, shown_seconds, f"serves again after {again:.0f} s")
        )
    finally:
        cluster.revive(client, group.cluster, node, gpus=1)
    wait_for(lambda: len(group.pods()) == 2, LOST_SECONDS, "the pod of the lost node to be gone", 1)


def _node_without_client(group: Served) -> str:
    """A node of the group that can be killed without the pod from which we ask."""
    client = group.cluster.get("pod", serving.CLIENT, "-n", NAMESPACE)["spec"]["nodeName"]
    return next(
        str(pod["spec"]["nodeName"]) for pod in group.pods() if pod["spec"]["nodeName"] != client
    )


def _outlives(group: Served, tokens: int, what: str, begin: Callable[[], None]) -> None:
    """Send a request, begin something while it runs, and read the whole answer; then wait for
    service by other pods.
    """
    before = group.uids()
    with ThreadPoolExecutor(1) as asking:
        asked, sent = asking.submit(group.ask, PROMPT, tokens), time.monotonic()
        wait_for(lambda: _running(group), 60, "the request to run", 0.2)
        begin()
        began = time.monotonic()
        assert len(asked.result()) == tokens
        taken = time.monotonic() - sent
    assert taken >= LONG_SECONDS
    again = served_again(group, before, what) - began
    faults.seen.append(
        Fault(
            what,
            f"its whole answer after {taken:.0f} s",
            taken,
            f"serves again after {again:.0f} s",
        )
    )


def _running(group: Served) -> bool:
    """Whether a request runs in the engine, by its own metrics."""
    read = (
        "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/metrics', "
        "timeout=10).read().decode())"
    )
    text = group.inside(LEADER, f'python3 -c "{read}"')
    return any(
        line.startswith("vllm:num_requests_running") and float(line.split()[-1]) > 0
        for line in text.splitlines()
    )


def _has_ready_endpoint(group: Served) -> bool:
    slices = group.cluster.get(
        "endpointslices", "-n", NAMESPACE, "-l", f"kubernetes.io/service-name={group.name}"
    )["items"]
    return any(
        endpoint["conditions"].get("ready")
        for each in slices
        for endpoint in each.get("endpoints") or []
    )


def _readiness(group: Served) -> list[tuple[str, str, int]]:
    """Since when each pod is ready, and how often its container was restarted."""
    return [
        (
            entry["status"],
            entry["lastTransitionTime"],
            pod["status"]["containerStatuses"][0]["restartCount"],
        )
        for pod in group.pods()
        for entry in pod["status"]["conditions"]
        if entry["type"] == "Ready"
    ]


def _operator(kind: Cluster, replicas: int) -> None:
    """Scale the operator and wait until it is so."""
    kind.kubectl(
        "-n", release.NAMESPACE, "scale", "deployment/shardwright", f"--replicas={replicas}"
    )
    wait_for(
        lambda: len(kind.get("pods", "-n", release.NAMESPACE)["items"]) == replicas,
        120,
        f"{replicas} operator pods",
        1,
    )


def _elsewhere(group: Served, node: str) -> bool:
    placed = [
        pod["spec"].get("nodeName")
        for pod in group.pods()
        if "deletionTimestamp" not in pod["metadata"]
    ]
    return len(placed) == 2 and None not in placed and node not in placed
