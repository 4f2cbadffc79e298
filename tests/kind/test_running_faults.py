"""What goes wrong on real kubelets: each fault ends in a clear condition with the cause, and mostly serves again by itself."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.harness.waiting import wait_for
from tests.kind import release, serving
from tests.kind.cluster import Cluster
from tests.kind.serving import NAMESPACE, Layout, Served
from tests.kind.shell import say

pytestmark = pytest.mark.timeout(3600)

FOLLOWER = 1
NOTICED_SECONDS = 300
_ENGINE = "$(cat /run/shardwright/engine)"


@pytest.fixture(scope="module")
def engine_image(kind: Cluster) -> str:
    return serving.prepare(kind)


@pytest.fixture(scope="module")
def group(kind: Cluster, engine_image: str) -> Iterator[Served]:
    """Two pods, a pipeline stage in each."""
    with serving.single_gpu_nodes(kind):
        served = serving.serve(kind, "faulty", engine_image, Layout(1, 2))
        yield served
        served.delete()


def test_an_image_that_cannot_be_pulled_is_named(kind: Cluster, engine_image: str) -> None:
    served = Served(kind, "imageless")
    kind.apply(serving.model(served.name, f"{engine_image}-absent", Layout(1, 1)))

    ready = wait_for(lambda: _says(served, "ImagePull"), NOTICED_SECONDS, "the image in the condition", 2)

    assert ready["status"] == "False"
    served.delete()


def test_a_path_without_a_model_ends_in_the_engines_own_words(kind: Cluster, engine_image: str) -> None:
    served = Served(kind, "pathless")
    kind.apply(serving.model(served.name, engine_image, Layout(1, 1), path="nowhere"))

    failure = wait_for(lambda: _failure(served), serving.READY_SECONDS, "a failure in status", 2)

    assert (failure["rank"], failure["exitCode"]) == (0, 1)
    assert "/models/nowhere" in served.log(f"{served.name}-0-0", "--previous")
    served.delete()


def test_a_killed_follower_takes_the_group_through_zero_and_it_serves_again(group: Served) -> None:
    before = _uids(group)

    _in_engine(group, f"kill -KILL {_ENGINE}")

    assert _serves_again(group, before, "killed follower")["rank"] == FOLLOWER


def test_a_stopped_follower_ends_the_group_once_somebody_asks(group: Served) -> None:
    before = _uids(group)

    _in_engine(group, f"kill -STOP -- -{_ENGINE}")
    with ThreadPoolExecutor() as asking:
        asking.submit(group.ask, [1, 2, 3])
        _serves_again(group, before, "SIGSTOPped follower")


def test_a_restart_goes_on_when_the_operator_is_killed_in_the_middle(group: Served) -> None:
    before = _uids(group)

    _in_engine(group, f"kill -KILL {_ENGINE}")
    wait_for(lambda: _replicas(group) == 0, NOTICED_SECONDS, "the group to go to zero", 0.2)
    words = ["delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false"]
    group.cluster.kubectl("-n", release.NAMESPACE, *words)

    _serves_again(group, before, "operator killed in the middle of a restart")


def test_a_roll_puts_every_pod_on_the_new_revision(kind: Cluster, engine_image: str, group: Served) -> None:
    before = _uids(group)
    changed = serving.model(group.name, engine_image, Layout(1, 2))
    changed["spec"]["engine"]["args"] = {"max-logprobs": 5}

    kind.apply(changed)

    _wait_again(group, before, "roll")
    assert all("--max-logprobs=5" in pod["spec"]["containers"][0]["args"] for pod in group.pods())
    assert group.ask([1, 2, 3])["choices"]


def _in_engine(group: Served, command: str) -> None:
    """Run a command in the follower's container."""
    pod = f"{group.name}-0-{FOLLOWER}"
    group.cluster.kubectl("-n", NAMESPACE, "exec", pod, "--", "bash", "-c", command)


def _serves_again(group: Served, before: set[str], what: str) -> Mapping[str, Any]:
    """Wait until other pods serve; return the failure that status remembers."""
    _wait_again(group, before, what)
    assert group.ask([1, 2, 3])["choices"]
    return _failure(group)


def _wait_again(group: Served, before: set[str], what: str) -> None:
    began = time.monotonic()
    _timed(lambda: group.ready()["status"] != "True" or not before & _uids(group), NOTICED_SECONDS, f"{what}: shown")
    _timed(lambda: not before & _uids(group), NOTICED_SECONDS, f"{what}: all old pods gone")
    group.wait_ready()
    say(f"{what}: serves again after {time.monotonic() - began:.0f} s")


def _timed(condition: Callable[[], Any], seconds: float, what: str) -> None:
    began = time.monotonic()
    wait_for(condition, seconds, what, 0.5)
    say(f"{what} after {time.monotonic() - began:.0f} s")


def _uids(group: Served) -> set[str]:
    return {str(pod["metadata"]["uid"]) for pod in group.pods()}


def _replicas(group: Served) -> int:
    return int(group.cluster.get("statefulset", f"{group.name}-0", "-n", NAMESPACE)["spec"]["replicas"])


def _says(served: Served, word: str) -> Mapping[str, Any]:
    ready = served.ready()
    assert word in ready["message"] or word in ready["reason"], ready
    return ready


def _failure(served: Served) -> Mapping[str, Any]:
    (only,) = served.status()["groups"]
    failure: Mapping[str, Any] = only["lastFailure"]
    return failure
