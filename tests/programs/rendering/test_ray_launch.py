"""The rendered scripts of a group that Ray joins, in a real shell against a stand-in for Ray and
the stub engine.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shardwright.layouts.layout import Layout
from tests.harness.waiting import wait_for
from tests.support.builders_deployment import a_deployment, a_plan_of
from tests.support.ranks import Rank, free_port, ranks_of, start

OVER_RAY = a_deployment(over_ray=True)
THREE_NODES = a_plan_of(Layout(tensor=8, pipeline=3), nodes=3)
LEADER = "llama-405b-0-0.llama-405b-0-peers.models.svc.cluster.local"


@contextmanager
def joined(root: Path, **settings: Any) -> Iterator[list[Rank]]:
    """Yield the ranks of a group of three pods that find each other, none started yet."""
    (root / "hosts").write_text(f"{LEADER} 127.0.0.1\n")
    with ranks_of(
        THREE_NODES, OVER_RAY, root, **({"ray": {"port": free_port()}} | settings)
    ) as ranks:
        yield ranks


def with_ray(rank: Rank, does: str) -> None:
    """Give a rank another stand-in for Ray."""
    program = rank.root / "bin/ray"
    program.write_text(f"#!/bin/bash\n{does}\n")
    program.chmod(0o755)


def head_of(leader: Rank) -> Mapping[str, Any]:
    """Return how the head of the cluster was started, once it is."""
    (file,) = wait_for(
        lambda: list((leader.root / "state").glob("head-*")), what="the head of the cluster"
    )
    found: Mapping[str, Any] = json.loads(file.read_text())
    return found


def lives(process: Mapping[str, Any]) -> bool:
    """Return whether a process that a stand-in told of still runs."""
    stat = Path(f"/proc/{process['pid']}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_leader_starts_the_engine_when_the_cluster_has_the_gpus_of_all_ranks(
    tmp_path: Path,
) -> None:
    with joined(tmp_path) as (leader, first, second):
        start(leader, first, second)
        port = str(leader.settings.ray.port)
        node = [
            *("start", "--node-ip-address=127.0.0.1", "--num-gpus=8", "--num-cpus=1"),
            *(
                "--object-store-memory=268435456",
                "--disable-usage-stats",
                "--log-color=false",
                "--block",
            ),
        ]
        assert head_of(leader)["argv"] == [
            *node,
            "--head",
            f"--port={port}",
            "--include-dashboard=false",
        ]
        assert [rank.engine()["argv"] for rank in (first, second)] == [
            [*node, f"--address=127.0.0.1:{port}"]
        ] * 2
        role = ["--host", "0.0.0.0", "--port", str(leader.settings.network.http_port)]  # noqa: S104
        assert leader.engine()["argv"] == ["serve", *leader.arguments, *role]
        assert leader.engine()["environment"]["RAY_ADDRESS"] == f"127.0.0.1:{port}"


def test_every_part_of_the_cluster_has_the_environment_of_its_pod(tmp_path: Path) -> None:
    with joined(tmp_path) as ranks:
        start(*ranks)
        told = {
            "GLOO_SOCKET_IFNAME": "net7",
            "NCCL_SOCKET_IFNAME": "=net7",
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        }
        parts = [head_of(ranks[0]), *(rank.engine() for rank in ranks)]
        for rank, part in zip((ranks[0], *ranks), parts, strict=True):
            assert part["environment"].items() >= (rank.environment | told).items()


def test_a_cluster_that_stays_too_small_is_given_up_with_what_it_has(tmp_path: Path) -> None:
    with joined(tmp_path, join_seconds=4) as (leader, first, second):
        with_ray(second, "exec sleep 60")
        start(leader, first, second)
        assert leader.wait() == 76
        assert leader.last_words.endswith(" of 24 GPUs after 4 s\n")
        assert not leader.started()


def test_a_head_that_ends_ends_the_leader(tmp_path: Path) -> None:
    with joined(tmp_path) as (leader, first, second):
        with_ray(leader, "echo no such port; exit 1")
        start(leader, first, second)
        assert leader.wait() == 76
        assert leader.last_words.endswith(
            "no such port\nshardwright: rank 0: the head of the Ray cluster ended while it waited "
            "for the other ranks\n"
        )


def test_a_follower_that_finds_no_head_says_so(tmp_path: Path) -> None:
    with joined(tmp_path, join_seconds=1) as (leader, first, second):
        with_ray(leader, "exec sleep 60")
        start(leader, first, second)
        assert first.wait() == 76
        assert (
            f"rank 1: no Ray cluster listens on 127.0.0.1:{first.settings.ray.port} after 1 s"
            in first.last_words
        )


def test_a_follower_whose_leader_goes_before_the_cluster_stands_ends_because_of_it(
    tmp_path: Path,
) -> None:
    with joined(tmp_path) as (leader, first, second):
        with_ray(leader, "exec sleep 60")
        start(leader, first, second)
        wait_for((first.root / "run/leader").exists, what="the ranks to have met")
        leader.vanish()
        assert first.wait() == 77


def test_an_image_without_ray_is_named_before_anybody_waits(tmp_path: Path) -> None:
    with joined(tmp_path) as (leader, _, _):
        leader.environment["PATH"] = f"{leader.root / 'bin'}:/usr/bin:/bin"  # no stand-ins
        leader.start()
        assert leader.wait() == 127
        assert leader.last_words == (
            "shardwright: rank 0: the image has no ray: executor Ray needs it, in the Python "
            "environment of the engine\n"
        )


def test_followers_end_with_their_leader(tmp_path: Path) -> None:
    with joined(tmp_path, leader_gone_seconds=0.5) as (leader, first, second):
        start(leader, first, second)
        assert leader.engine()["argv"][0] == "serve"
        node = first.engine()
        leader.vanish()
        assert (first.wait(), second.wait()) == (77, 77)
        assert first.last_words.endswith(
            "shardwright: rank 1: the group has ended around this rank\n"
        )
        assert not lives(node)


def test_a_leader_that_is_asked_to_stop_ends_its_engine_and_the_head_with_it(
    tmp_path: Path,
) -> None:
    with joined(tmp_path) as (leader, first, second):
        start(leader, first, second)
        engine, head = leader.engine(), head_of(leader)
        leader.terminate()
        assert leader.wait() == 0
        assert leader.last_words.endswith("the engine stopped with code 0, as asked\n")
        wait_for(lambda: not lives(engine) and not lives(head), what="the end of engine and head")


def test_ranks_can_be_stopped_while_the_cluster_is_incomplete(tmp_path: Path) -> None:
    with joined(tmp_path) as (leader, first, second):
        with_ray(second, "exec sleep 60")
        start(leader, first, second)
        head, node = head_of(leader), first.engine()
        for rank in (leader, first, second):
            rank.terminate()
        assert (leader.wait(), first.wait()) == (0, 0)
        wait_for(lambda: not lives(head) and not lives(node), what="the end of the cluster")


def test_a_cluster_that_does_not_answer_holds_up_no_stop(tmp_path: Path) -> None:
    with joined(tmp_path) as (leader, first, second):
        with_ray(leader, "touch $STUB_STATE/$1; exec sleep 600")
        start(leader, first, second)
        wait_for((leader.root / "state/status").exists, what="the question to the cluster")
        leader.terminate()
        assert leader.wait() == 0
        assert leader.last_words.endswith("asked to stop before the engine had started\n")


def test_what_an_earlier_start_left_of_ray_is_removed(tmp_path: Path) -> None:
    with joined(tmp_path) as (leader, first, second):
        old = leader.root / "ray/session_old"
        old.mkdir(parents=True)
        start(leader, first, second)
        assert leader.engine()["argv"][0] == "serve"
        assert not old.exists()
