"""The rendered scripts of two pods with real ssh and real Open MPI: one world, one life."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardwright.layouts.layout import Layout
from shardwright.rendering.deployment import SecretKey
from tests.harness.waiting import wait_for
from tests.mpi import environment
from tests.mpi.pods import make_key, two_pods
from tests.support.builders_deployment import a_plan_of, a_trtllm_deployment
from tests.support.ranks import Rank

PLAN = a_plan_of(Layout(tensor=2, pipeline=2), nodes=2, memory_utilization=0.95)
HOSTILE = "a 'b' $(HF_TOKEN)"
DEPLOYMENT = a_trtllm_deployment(
    hub_token=SecretKey(name="hub", key="token"), environment=(("NCCL_DEBUG", HOSTILE),)
)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[list[Rank]]:
    assert environment.installed(), "Open MPI is not installed: run `make test-mpi`"
    with two_pods(PLAN, DEPLOYMENT, tmp_path) as ranks:
        yield ranks


def world(pods: list[Rank]) -> dict[int, dict[str, Any]]:
    """Return what every MPI rank said of itself, by rank, once all have."""

    def files() -> list[Path]:
        return sorted(file for pod in pods for file in (pod.root / "state").glob("mpi-*.json"))

    def all_are_there() -> bool:
        assert len(files()) == 4, "\n".join(pod.log for pod in pods)
        return True

    wait_for(all_are_there, 90, "four MPI ranks")
    said = [json.loads(file.read_text()) for file in files()]
    return {item["rank"]: item for item in said}


def test_the_leader_starts_every_rank_of_both_pods_as_the_pods_user(pods: list[Rank]) -> None:
    for pod in reversed(pods):
        pod.start()
    found = world(pods)
    assert {rank: (said["host"], said["size"], said["uid"]) for rank, said in found.items()} == {
        0: ("pod-0", 4, 10001),
        1: ("pod-0", 4, 10001),
        2: ("pod-1", 4, 10001),
        3: ("pod-1", 4, 10001),
    }
    port = str(pods[0].settings.network.http_port)
    assert pods[0].engine()["argv"] == [
        *pods[0].arguments,
        "--host",
        "0.0.0.0",  # noqa: S104
        "--port",
        port,
    ]
    assert not pods[1].started()
    assert (
        wait_for(
            lambda: pods[1].run("probe.sh", "liveness").returncode == 0, 20, "a follower that lives"
        )
        is True
    )


def test_every_rank_has_the_environment_of_its_own_pod_and_secrets_never_leave_one(
    pods: list[Rank],
) -> None:
    for index, pod in enumerate(pods):
        pod.environment["HF_TOKEN"] = f"of pod {index}"
        pod.start()
    found = world(pods)
    own = [pods[0], pods[0], pods[1], pods[1]]
    for rank, pod in enumerate(own):
        said = found[rank]["environment"]
        assert (said["HF_TOKEN"], said["HOME"]) == (f"of pod {pod.rank}", pod.environment["HOME"])
        assert (said["NCCL_DEBUG"], said["NCCL_SOCKET_IFNAME"]) == (HOSTILE, "=eth0")
    assert "of pod" not in "".join(pod.log for pod in pods)


def test_a_follower_ends_with_all_of_its_ranks_when_the_leader_is_gone(pods: list[Rank]) -> None:
    for pod in pods:
        pod.start()
    world(pods)
    pods[0].vanish()
    assert pods[1].wait() == 77
    assert pods[1].last_words.endswith(
        "shardwright: rank 1: the group has ended around this rank\n"
    )


def test_the_leader_ends_when_a_follower_is_gone(pods: list[Rank]) -> None:
    for pod in pods:
        pod.start()
    world(pods)
    pods[1].vanish()
    assert pods[0].wait() != 0
    assert "the engine failed with code" in pods[0].last_words


def test_a_pod_with_another_key_is_not_let_in_and_lets_nobody_in(
    pods: list[Rank], tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other")
    launch = pods[1].root / "scripts" / "launch.sh"
    launch.write_text(launch.read_text().replace(str(tmp_path / "keys"), str(other)))
    for pod in pods:
        pod.start()
    assert pods[0].wait() != 0
    assert not list((pods[1].root / "state").glob("mpi-*.json"))
