"""The rendered probe and drain scripts, run in a real shell."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.waiting import wait_for
from tests.support.builders_deployment import a_deployment, a_plan, a_small_plan
from tests.support.ranks import Rank, ranks_of, start

PROBES = ("startup", "readiness", "liveness")
LEADER = "llama-405b-0-0.llama-405b-0-peers.models.svc.cluster.local"
BUSY = (
    'vllm:num_requests_running{engine="0",model_name="m"} '
    '2.0\nvllm:num_requests_waiting{engine="0",model_name="m"} 1.0\n'
)
IDLE = BUSY.replace("2.0", "0.0").replace("1.0", "0.0")


def verdicts(rank: Rank) -> list[tuple[int, str]]:
    results = [rank.run("probe.sh", probe) for probe in PROBES]
    assert [result.stderr for result in results] == [""] * 3
    return [(result.returncode, result.stdout) for result in results]


def started(*ranks: Rank) -> None:
    (ranks[0].root.parent / "hosts").write_text(f"{LEADER} 127.0.0.1\n")
    start(*ranks)
    for rank in ranks:
        assert rank.engine()["argv"][0] == "serve"
        wait_for((rank.root / "run/engine").exists)


def ended(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is not None


@pytest.mark.parametrize("plan", [a_small_plan(), a_plan()], ids=["one pod", "a group"])
def test_before_the_engine_starts_no_rank_is_ready_and_none_is_ended_for_it(
    tmp_path: Path, plan: object
) -> None:
    with ranks_of(plan, a_deployment(), tmp_path) as ranks:  # type: ignore[arg-type]
        for rank in ranks:
            unready = [
                (1, f"rank {rank.rank}: {probe}: the engine has not started\n")
                for probe in ("startup", "readiness")
            ]
            assert verdicts(rank) == [*unready, (0, "")]


@pytest.mark.parametrize(("health", "code"), [("200", 0), ("503", 1), ("404", 1)])
def test_a_single_pod_is_what_its_health_endpoint_says(
    tmp_path: Path, health: str, code: int
) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path) as (rank,):
        rank.tell("health", health)
        started(rank)
        text = "rank 0: {}: /health is not 200\n" if code else ""
        assert verdicts(rank) == [
            (code, text.format("startup")),
            (code, text.format("readiness")),
            (0, ""),
        ]


def test_an_engine_that_has_served_is_alive_for_as_long_as_it_is_healthy(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path) as (rank,):
        started(rank)
        wait_for(
            lambda: rank.run("probe.sh", "readiness").returncode == 0, what="the engine's answer"
        )
        rank.tell("health", "503")
        unwell = [
            (1, f"rank 0: {probe}: /health is not 200\n") for probe in ("readiness", "liveness")
        ]
        assert verdicts(rank) == [
            (0, ""),
            *unwell,
        ]  # a kubelet that was started anew asks whether it has started


def test_a_leader_answers_for_itself_and_a_follower_without_a_port_passes(tmp_path: Path) -> None:
    with ranks_of(a_plan(), a_deployment(), tmp_path) as (leader, follower):
        leader.tell("health", "503")
        started(leader, follower)
        assert [code for code, _ in verdicts(leader)] == [1, 1, 0]
        assert verdicts(follower) == [(0, "")] * 3


def test_a_follower_without_its_leader_is_alive_but_not_ready(tmp_path: Path) -> None:
    with ranks_of(a_plan(), a_deployment(), tmp_path, leader_gone_seconds=20) as (leader, follower):
        started(leader, follower)
        leader.vanish()
        assert verdicts(follower) == [
            (0, ""),
            (1, "rank 1: readiness: the leader does not answer\n"),
            (0, ""),
        ]


def test_a_rank_whose_engine_has_died_is_neither_ready_nor_alive(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path) as (rank,):
        started(rank)
        wait_for(
            lambda: rank.run("probe.sh", "startup").returncode == 0, what="the engine's answer"
        )
        rank.vanish()
        assert [code for code, _ in verdicts(rank)] == [0, 1, 1]


def test_a_leader_drains_until_nothing_runs_or_waits(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path, drain_seconds=300) as (rank,):
        rank.tell("metrics", BUSY)
        started(rank)
        drain = rank.begin("drain.sh")
        with pytest.raises(subprocess.TimeoutExpired):
            drain.wait(timeout=0.7)
        rank.tell("metrics", IDLE)
        assert drain.wait(timeout=20) == 0


def test_a_drain_that_does_not_end_by_itself_is_bounded(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path, drain_seconds=1) as (rank,):
        rank.tell("metrics", BUSY)
        started(rank)
        assert rank.run("drain.sh").returncode == 0


def test_a_drain_ends_when_the_engine_dies(tmp_path: Path) -> None:
    with ranks_of(
        a_plan(), a_deployment(), tmp_path, drain_seconds=300, leader_gone_seconds=20
    ) as (leader, follower):
        leader.tell("metrics", BUSY)
        started(leader, follower)
        drains = [rank.begin("drain.sh") for rank in (leader, follower)]
        with pytest.raises(subprocess.TimeoutExpired):
            drains[1].wait(timeout=0.5)
        os.kill(leader.engine()["pid"], signal.SIGKILL)
        assert [drain.wait(timeout=20) for drain in drains] == [0, 0]


def test_a_follower_is_held_until_the_leader_has_stopped_serving(tmp_path: Path) -> None:
    with ranks_of(a_plan(), a_deployment(), tmp_path, leader_gone_seconds=20) as (leader, follower):
        started(leader, follower)
        drain = follower.begin("drain.sh")
        with pytest.raises(subprocess.TimeoutExpired):
            drain.wait(timeout=0.5)
        leader.vanish()
        assert drain.wait(timeout=20) == 0


@pytest.mark.parametrize("plan", [a_small_plan(), a_plan()], ids=["one pod", "a group"])
def test_what_never_served_has_nothing_to_drain(tmp_path: Path, plan: object) -> None:
    with ranks_of(plan, a_deployment(), tmp_path) as ranks:  # type: ignore[arg-type]
        assert [rank.run("drain.sh").returncode for rank in ranks] == [0] * len(ranks)
