"""The rendered launch script, run in a real shell against a stub engine and stub DNS."""

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.layouts.layout import Layout
from shardwright.rendering.deployment import PodNetwork
from shardwright.rendering.place import pod_template
from tests.harness.waiting import wait_for
from tests.support.builders_deployment import a_deployment, a_plan, a_plan_of, a_small_plan
from tests.support.ranks import SHELL_NAMES, TOKEN, Rank, expanded, ranks_of, start

THREE_NODES = a_plan_of(Layout(tensor=8, pipeline=3), nodes=3)
LEADER = "llama-405b-0-0.llama-405b-0-peers.models.svc.cluster.local"

Names = Callable[[str], None]


@pytest.fixture
def dns(tmp_path: Path) -> Names:
    """Return a function that makes the leader's name resolve."""

    def publish(name: str = LEADER) -> None:
        partial = tmp_path / "hosts.partial"
        partial.write_text(f"{name} 127.0.0.1\n")
        partial.rename(tmp_path / "hosts")

    return publish


def says(rank: Rank, text: str) -> None:
    wait_for(lambda: text in rank.log, what=f"{text!r} in the log of rank {rank.rank}")


def environment_of(engine: Any) -> dict[str, str]:
    return {name: value for name, value in engine["environment"].items() if name not in SHELL_NAMES}


def test_a_single_pod_starts_the_engine_with_the_rendered_arguments_and_environment(
    tmp_path: Path,
) -> None:
    plan = a_small_plan()
    with ranks_of(
        plan, a_deployment(environment=(("NCCL_DEBUG", "a 'b' $(HF_TOKEN)"),)), tmp_path
    ) as (rank,):
        rank.start()
        engine = rank.engine()
        role = ["--host", "0.0.0.0", "--port", str(rank.settings.network.http_port)]  # noqa: S104
        assert engine["argv"] == ["serve", *rank.arguments, *role]
        assert environment_of(engine) == rank.environment | dict(rank.settings.variables)
        assert engine["environment"]["NCCL_DEBUG"] == "a 'b' $(HF_TOKEN)"


def test_all_ranks_start_with_the_same_arguments_but_for_rank_and_role(
    tmp_path: Path, dns: Names
) -> None:
    dns(LEADER)
    with ranks_of(THREE_NODES, a_deployment(), tmp_path) as ranks:
        start(*ranks)
        port = str(ranks[0].settings.network.http_port)
        roles = [
            [
                "--node-rank",
                "0",
                "--master-addr",
                "127.0.0.1",
                "--host",
                "0.0.0.0",  # noqa: S104
                "--port",
                port,
            ],
            ["--node-rank", "1", "--master-addr", "127.0.0.1", "--headless"],
            ["--node-rank", "2", "--master-addr", "127.0.0.1", "--headless"],
        ]
        shared = [
            expanded(word)
            for word in pod_template(THREE_NODES, a_deployment(), 0)["spec"]["containers"][0][
                "args"
            ]
        ]
        assert [rank.engine()["argv"] for rank in ranks] == [
            ["serve", *shared, *role] for role in roles
        ]
        sockets = {"GLOO_SOCKET_IFNAME": "net7", "NCCL_SOCKET_IFNAME": "=net7"}
        assert [environment_of(rank.engine()) for rank in ranks] == [
            rank.environment | dict(rank.settings.variables) | sockets for rank in ranks
        ]


def a_fabric(root: Path, **nics: tuple[str, dict[int, tuple[str, str]]]) -> str:
    """Write what the kernel shows of RDMA devices: state of the port, then type and address of each
    GID.
    """
    for nic, (state, gids) in nics.items():
        port = root / "infiniband" / nic / "ports" / "1"
        (port / "gid_attrs" / "types").mkdir(parents=True)
        (port / "gids").mkdir()
        (port / "state").write_text(f"{state}\n")
        for index, (kind, address) in gids.items():
            (port / "gid_attrs" / "types" / str(index)).write_text(f"{kind}\n")
            (port / "gids" / str(index)).write_text(f"{address}\n")
    return str(root / "infiniband")


def test_pods_with_attention_replicas_are_worlds_of_their_own_and_the_leader_answers_for_all(
    tmp_path: Path, dns: Names
) -> None:
    dns(LEADER)
    plan = a_plan_of(Layout(tensor=4, attention_data=6, expert=24), nodes=3)
    with ranks_of(plan, a_deployment(), tmp_path) as ranks:
        start(*ranks)
        port = str(ranks[0].settings.network.http_port)
        address = ["--data-parallel-address", "127.0.0.1"]
        roles = [
            [*address, "--host", "0.0.0.0", "--port", port],  # noqa: S104
            ["--data-parallel-start-rank", "2", *address, "--headless"],
            ["--data-parallel-start-rank", "4", *address, "--headless"],
        ]
        assert [rank.engine()["argv"][1 + len(rank.arguments) :] for rank in ranks] == roles


IPV4, IPV6 = ("0000:0000:0000:0000:0000:ffff:0a00:0001", "fe80:0000:0000:0000:0000:0000:0000:0001")
ROCE = {
    0: ("IB/RoCE v1", IPV6),
    1: ("RoCE v2", IPV6),
    2: ("IB/RoCE v1", IPV4),
    3: ("RoCE v2", IPV4),
}
OTHER_ROCE = {5: ("RoCE v2", IPV4)}
WITH_RDMA = a_plan(rdma=(("rdma/hca", 1),))


@pytest.mark.parametrize(
    ("nics", "told"),
    [
        pytest.param(
            {
                "mlx5_0": ("4: ACTIVE", ROCE),
                "mlx5_1": ("1: DOWN", {}),
                "mlx5_2": ("4: ACTIVE", ROCE),
                "x": ("4: ACTIVE", OTHER_ROCE),
            },
            {"NCCL_IB_HCA": "=mlx5_0,mlx5_2,x", "NCCL_IB_GID_INDEX": "3"},
            id="RoCE",
        ),
        pytest.param(
            {"mlx5_0": ("4: ACTIVE", {0: ("IB/RoCE v1", IPV6)})},
            {"NCCL_IB_HCA": "=mlx5_0"},
            id="InfiniBand",
        ),
        pytest.param({"mlx5_0": ("2: INIT", ROCE)}, {}, id="none active"),
        pytest.param({}, {}, id="none at all"),
    ],
)
def test_ranks_with_rdma_devices_tell_the_active_ones_and_their_usual_gid(
    nics: dict[str, Any], told: dict[str, str], tmp_path: Path, dns: Names
) -> None:
    dns(LEADER)
    fabric = a_fabric(tmp_path, **nics)
    with ranks_of(WITH_RDMA, a_deployment(), tmp_path, infiniband_dir=fabric) as ranks:
        start(*ranks)
        for rank in ranks:
            environment = environment_of(rank.engine())
            assert {
                key: value for key, value in environment.items() if key.startswith("NCCL_IB")
            } == told
            assert ("no RDMA device is active" in rank.log) is not bool(told)


def test_what_the_user_says_of_the_fabric_is_kept(tmp_path: Path, dns: Names) -> None:
    dns(LEADER)
    chosen = (("NCCL_IB_GID_INDEX", "7"), ("NCCL_IB_HCA", "mlx5"))
    fabric = a_fabric(tmp_path, mlx5_0=("4: ACTIVE", ROCE))
    with ranks_of(
        WITH_RDMA, a_deployment(environment=chosen), tmp_path, infiniband_dir=fabric
    ) as ranks:
        start(*ranks)
        assert [
            environment_of(rank.engine()).items() >= dict(chosen).items() for rank in ranks
        ] == [True, True]


def test_ranks_that_shall_use_tcp_are_told_to(tmp_path: Path, dns: Names) -> None:
    dns(LEADER)
    with ranks_of(a_plan(), a_deployment(network=PodNetwork(rdma=False)), tmp_path) as ranks:
        start(*ranks)
        assert [environment_of(rank.engine())["NCCL_IB_DISABLE"] for rank in ranks] == ["1", "1"]


def test_interfaces_that_the_user_names_are_kept(tmp_path: Path, dns: Names) -> None:
    dns(LEADER)
    chosen = (("GLOO_SOCKET_IFNAME", "ib0"), ("NCCL_SOCKET_IFNAME", "ib"))
    with ranks_of(a_plan(), a_deployment(environment=chosen), tmp_path) as ranks:
        start(*ranks)
        assert [environment_of(rank.engine()) for rank in ranks] == [
            rank.environment | dict(rank.settings.variables) for rank in ranks
        ]


def test_no_engine_starts_before_all_ranks_have_met(tmp_path: Path, dns: Names) -> None:
    with ranks_of(THREE_NODES, a_deployment(), tmp_path) as (leader, first, second):
        first.start()
        says(first, f"waiting: the leader {LEADER} does not resolve")
        dns(LEADER)
        says(first, f"waiting: the leader {LEADER} (127.0.0.1) does not answer")
        leader.start()
        says(first, "waiting: not all ranks have come")
        assert not any(rank.started() for rank in (leader, first, second))
        second.start()
        assert [rank.engine()["argv"][0] for rank in (leader, first, second)] == ["serve"] * 3


def test_ranks_that_wait_say_for_whom_in_their_logs_and_probes_until_they_have_met(
    tmp_path: Path, dns: Names
) -> None:
    dns(LEADER)
    with ranks_of(THREE_NODES, a_deployment(), tmp_path) as (leader, first, second):
        leader.start()
        says(leader, "waiting: these ranks have not come: 1, 2")
        assert (
            leader.run("probe.sh", "startup").stdout
            == "rank 0: startup: waiting: these ranks have not come: 1, 2\n"
        )
        first.start()
        says(leader, "waiting: these ranks have not come: 2")
        says(first, "waiting: not all ranks have come")
        assert (
            first.run("probe.sh", "startup").stdout
            == "rank 1: startup: waiting: not all ranks have come\n"
        )
        second.start()
        assert [rank.engine()["argv"][0] for rank in (leader, first, second)] == ["serve"] * 3
        assert not [
            rank.root for rank in (leader, first, second) if (rank.root / "run/waits").exists()
        ]


def test_waiting_for_the_others_takes_nothing_of_the_start_up_budget(
    tmp_path: Path, dns: Names
) -> None:
    dns(LEADER)
    with ranks_of(a_plan(), a_deployment(), tmp_path, start_seconds=0.1) as (leader, follower):
        leader.tell("health", "503")
        leader.start()
        says(leader, "waiting: these ranks have not come: 1")  # after two seconds
        assert not leader.started()
        follower.start()
        assert leader.wait() == 79
        assert leader.last_words.endswith(
            "shardwright: rank 0: the engine does not serve 0.1 s after its start\n"
        )
        assert follower.wait() == 77


def test_ranks_that_cannot_meet_fail(tmp_path: Path, dns: Names) -> None:
    dns(LEADER)
    with ranks_of(a_plan(), a_deployment(), tmp_path) as (leader, _), socket.socket() as taken:
        taken.bind(("", leader.settings.network.rendezvous_port))
        taken.listen()
        leader.start()
        assert leader.wait() == 76
        assert "Address already in use" in leader.last_words
        assert leader.last_words.endswith("shardwright: rank 0: the ranks could not meet\n")


def test_an_engine_that_does_not_serve_within_its_budget_is_a_failure(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path, start_seconds=2) as (rank,):
        rank.tell("health", "503")
        rank.start()
        assert rank.engine()["argv"][0] == "serve"
        assert rank.run("probe.sh", "startup").stdout == "rank 0: startup: /health is not 200\n"
        assert rank.wait() == 79
        assert rank.last_words.endswith(
            "shardwright: rank 0: the engine does not serve 2 s after its start\n"
        )


def start_serving(rank: Rank) -> None:
    rank.start()
    assert rank.engine()["argv"][0] == "serve"
    wait_for(lambda: rank.run("probe.sh", "startup").returncode == 0, what="the engine's answer")


def test_a_start_in_place_is_held_to_the_budget_anew(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path, start_seconds=2) as (rank,):
        start_serving(rank)
        rank.vanish()
        rank.tell("health", "503")
        rank.start()
        assert rank.wait() == 79


def test_an_engine_that_serves_and_was_not_probed_meanwhile_goes_on(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path, start_seconds=2) as (rank,):
        rank.start()
        wait_for((rank.root / "run/served").exists, what="the launch script's own question")
        rank.terminate()
        assert rank.wait() == 0


def test_an_engine_that_has_served_is_not_held_to_its_start_up_budget(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path, start_seconds=3) as (rank,):
        start_serving(rank)
        rank.tell("health", "503")
        wait_for(lambda: not rank.pids_with("sleep"), what="the end of the budget")
        assert rank.run("probe.sh", "readiness").stdout == "rank 0: readiness: /health is not 200\n"
        rank.terminate()
        assert rank.wait() == 0


def test_ranks_of_different_generations_do_not_meet(tmp_path: Path, dns: Names) -> None:
    dns(LEADER)
    with ranks_of(a_plan(), a_deployment(), tmp_path) as (leader, follower):
        follower.environment["SHARDWRIGHT_GENERATION"] = "older"
        leader.start()
        follower.start()
        says(follower, f"waiting: the leader {LEADER} is of another generation than this pod")
        assert not leader.started()
        assert not follower.started()


def test_a_rank_without_the_token_of_the_group_neither_joins_nor_is_joined(
    tmp_path: Path, dns: Names
) -> None:
    dns(LEADER)
    with ranks_of(a_plan(), a_deployment(), tmp_path) as (leader, follower):
        (follower.root / "token").write_text("8" * 64)
        start(leader, follower)
        says(
            follower,
            f"waiting: who answers at 127.0.0.1 for the leader {LEADER} does not have the token "
            "of this group",
        )
        says(leader, "waiting: these ranks have not come: 1")
        assert (leader.started(), follower.started()) == (False, False)


def test_a_rank_whose_secret_holds_no_token_says_so(tmp_path: Path) -> None:
    with ranks_of(a_plan(), a_deployment(), tmp_path) as (leader, _):
        (leader.root / "token").write_text("short")
        leader.start()
        assert leader.wait() == 76
        assert f"{leader.root / 'token'} holds no token: delete its Secret" in leader.last_words


def test_the_token_is_in_no_argument_variable_or_log_of_a_rank(tmp_path: Path, dns: Names) -> None:
    dns(LEADER)
    with ranks_of(a_plan(), a_deployment(), tmp_path) as (leader, follower):
        start(leader, follower)
        told = [(rank.engine(), rank.log) for rank in (leader, follower)]
        assert TOKEN not in str(told)


def test_a_follower_that_starts_anew_waits_for_the_next_start_of_the_leader(
    tmp_path: Path, dns: Names
) -> None:
    dns(LEADER)
    with ranks_of(a_plan(), a_deployment(), tmp_path, leader_gone_seconds=20) as (leader, follower):
        leader.start()
        follower.start()
        assert (leader.engine()["argv"][0], follower.engine()["argv"][0]) == ("serve", "serve")
        follower.vanish()
        follower.start()
        says(follower, "waiting: the group runs without this rank and has not started anew")
        assert not follower.started()
        leader.vanish()
        leader.start()
        assert follower.engine()["argv"] == [
            "serve",
            *follower.arguments,
            "--node-rank",
            "1",
            "--master-addr",
            "127.0.0.1",
            "--headless",
        ]
        assert leader.engine()["argv"][0] == "serve"


def test_a_follower_ends_when_its_leader_starts_anew(tmp_path: Path, dns: Names) -> None:
    dns(LEADER)
    with ranks_of(a_plan(), a_deployment(), tmp_path, leader_gone_seconds=20) as (leader, follower):
        leader.start()
        follower.start()
        assert follower.engine()["argv"][0] == "serve"
        leader.vanish()
        leader.start()
        assert follower.wait() == 77
        assert "the leader has started anew" in follower.last_words
        assert follower.last_words.endswith(
            "shardwright: rank 1: the group has ended around this rank\n"
        )


def test_a_follower_ends_when_its_leader_is_gone(tmp_path: Path, dns: Names) -> None:
    dns(LEADER)
    with ranks_of(a_plan(), a_deployment(), tmp_path, leader_gone_seconds=0.5) as (
        leader,
        follower,
    ):
        leader.start()
        follower.start()
        assert follower.engine()["argv"][0] == "serve"
        leader.vanish()
        assert follower.wait() == 77
        assert "the leader has been gone for 0.5 s" in follower.last_words


def test_an_end_with_code_0_that_nobody_asked_for_is_a_failure_with_the_last_words(
    tmp_path: Path,
) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path) as (rank,):
        rank.tell("exit", "0")
        rank.start()
        assert rank.wait() == 70
        tail = (
            "stub: the last words\nshardwright: rank 0: the engine ended with code 0 though "
            "nobody asked for it\n"
        )
        assert rank.last_words.endswith(tail)
        assert len(rank.last_words.encode()) == 2048
        assert rank.log == f"stub: started\n{'x' * 3000}\n{tail}"


def test_an_engine_that_fails_passes_its_code_on(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path) as (rank,):
        rank.tell("exit", "3")
        rank.start()
        assert rank.wait() == 3
        assert rank.last_words.endswith("shardwright: rank 0: the engine failed with code 3\n")


def test_an_engine_that_fails_with_less_shared_memory_than_planned_says_so(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path, shm_bytes=2**60) as (rank,):
        rank.tell("exit", "3")
        rank.start()
        assert rank.wait() == 3
        last = rank.last_words.splitlines()[-1]
        assert last.startswith(
            f"shardwright: rank 0: the engine failed with code 3; {rank.root / 'shm'} holds "
        )
        assert last.endswith(f" MiB, {2**40} MiB were planned")


def test_a_stop_that_was_asked_for_reaches_the_engine_and_ends_well(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path) as (rank,):
        rank.start()
        assert rank.engine()["argv"][0] == "serve"
        rank.terminate()
        assert rank.wait() == 0
        assert rank.log == (
            "stub: started\nstub: asked to stop\nshardwright: rank 0: the engine stopped with "
            "code 0, as asked\n"
        )


def test_a_script_that_was_started_with_its_signals_ignored_heeds_them(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path) as (rank,):
        rank.prefix = ["env", "--ignore-signal=TERM,INT,HUP,USR1,USR2"]
        rank.start()
        assert rank.engine()["argv"][0] == "serve"
        rank.terminate()
        assert rank.wait() == 0
        assert rank.log.splitlines()[1:] == [
            "stub: asked to stop",
            "shardwright: rank 0: the engine stopped with code 0, as asked",
        ]


def test_a_stop_is_heard_by_the_stub_engine_on_whichever_of_its_threads_it_arrives(
    tmp_path: Path,
) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path) as (rank,):
        rank.start()
        main = rank.engine()["pid"]
        server = wait_for(
            lambda: next(
                (
                    int(it.name)
                    for it in Path(f"/proc/{main}/task").iterdir()
                    if int(it.name) != main
                ),
                0,
            )
        )
        os.kill(
            server, signal.SIGTERM
        )  # the process is asked, by this thread first, as happens while it begins another
        assert rank.wait() == 70
        assert rank.log.startswith("stub: started\nstub: asked to stop\n")


def test_a_rank_that_still_waits_for_the_others_can_be_stopped(tmp_path: Path) -> None:
    with ranks_of(a_plan(), a_deployment(), tmp_path) as (leader, follower):
        follower.start()
        leader.start()
        says(follower, "waiting:")
        for rank in (leader, follower):
            rank.terminate()
        assert (leader.wait(), follower.wait()) == (0, 0)
        assert follower.log.endswith("asked to stop before the engine had started\n")


def test_what_a_killed_engine_left_in_shared_memory_is_removed(tmp_path: Path) -> None:
    with ranks_of(a_small_plan(), a_deployment(), tmp_path) as (rank,):
        (rank.root / "shm/psm_stale").write_text("x")
        rank.start()
        assert rank.engine()["argv"][0] == "serve"
        assert list((rank.root / "shm").iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["'; rm -rf /; '", '"$(id)"', "`id`", "a\nb", "{{ 7 * 7 }}", "$(HF_TOKEN)", "$$HOME", "*"],
)
def test_a_hostile_string_arrives_at_the_engine_as_it_was_written(
    tmp_path: Path, text: str
) -> None:
    deployment = a_deployment(
        model=text, environment=(("NCCL_DEBUG", text),), arguments={"response-role": text}
    )
    with ranks_of(a_small_plan(), deployment, tmp_path) as (rank,):
        rank.start()
        engine = rank.engine()
        assert engine["argv"][:4] == ["serve", text, "--served-model-name", text]
        assert f"--response-role={text}" in engine["argv"]
        assert engine["environment"]["NCCL_DEBUG"] == text
