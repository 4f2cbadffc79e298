"""The rendered scripts for TensorRT-LLM in a real shell; what needs ssh and Open MPI is in
tests/mpi.
"""

import json
import socket
import subprocess
from pathlib import Path

import pytest

from tests.harness.waiting import wait_for
from tests.support.builders_deployment import a_plan, a_small_plan, a_trtllm_deployment
from tests.support.ranks import STUBS, Rank, ranks_of


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder in which the stand-in for the engine is called trtllm-serve."""
    folder = tmp_path / "commands"
    folder.mkdir()
    (folder / "trtllm-serve").symlink_to(STUBS / "vllm")
    return folder


def with_commands(rank: Rank, folder: Path) -> Rank:
    rank.environment["PATH"] = f"{folder}:{rank.environment['PATH']}"
    return rank


def test_a_single_pod_starts_the_engine_alone_with_the_rendered_arguments(
    tmp_path: Path, commands: Path
) -> None:
    with ranks_of(a_small_plan(), a_trtllm_deployment(), tmp_path) as (rank,):
        with_commands(rank, commands).start()
        role = ["--host", "0.0.0.0", "--port", str(rank.settings.network.http_port)]  # noqa: S104
        assert rank.engine()["argv"] == [*rank.arguments, *role]
        assert rank.arguments[0] == "meta-llama/Llama-3.1-405B-Instruct"


def test_what_an_image_lacks_for_a_group_is_named_before_anybody_waits(
    tmp_path: Path, commands: Path
) -> None:
    with ranks_of(a_plan(), a_trtllm_deployment(), tmp_path) as (leader, _):
        for program in (
            "bash",
            "cat",
            "env",
            "find",
            "mkdir",
            "python3",
            "rm",
            "sleep",
            "tail",
            "tee",
        ):
            (commands / program).symlink_to(Path("/usr/bin") / program)
        leader.environment["PATH"] = f"{leader.root / 'bin'}:{commands}"
        (commands / "sshd").symlink_to("/bin/true")
        leader.start()
        assert leader.wait() == 127
        absent = "mpirun ssh trtllm-llmapi-launch"
        tail = (
            f"shardwright: rank 0: the image has no {absent}: a group of pods needs Open MPI, "
            "ssh and sshd in it\n"
        )
        assert leader.last_words == tail


def test_an_engine_is_ready_once_it_has_answered_and_stands_by_its_iterations(
    tmp_path: Path, commands: Path
) -> None:
    with ranks_of(
        a_small_plan(), a_trtllm_deployment(), tmp_path, silence_seconds=30, idle_seconds=30
    ) as (rank,):
        rank.tell("completion", "503")
        with_commands(rank, commands).start()
        assert rank.engine()["pid"]
        assert rank.run("probe.sh", "readiness").returncode == 1
        rank.tell("completion", "200")
        wait_for(lambda: rank.run("probe.sh", "readiness").returncode == 0, what="readiness")


def test_an_engine_that_iterates_is_never_asked_and_one_that_hangs_ends(
    tmp_path: Path, commands: Path
) -> None:
    with ranks_of(
        a_small_plan(), a_trtllm_deployment(), tmp_path, silence_seconds=0.5, idle_seconds=0.2
    ) as (rank,):
        rank.tell("metrics", json.dumps([{"iter": 7, "numActiveRequests": 3}]))
        rank.tell("completion", "hang")
        with_commands(rank, commands).start()
        assert rank.wait() == 78
        assert rank.last_words.endswith("shardwright: rank 0: the engine brings no tokens\n")


def test_a_drain_lasts_as_long_as_a_client_is_connected(tmp_path: Path, commands: Path) -> None:
    with ranks_of(a_small_plan(), a_trtllm_deployment(), tmp_path, drain_seconds=300) as (rank,):
        with_commands(rank, commands).start()
        assert rank.engine()["pid"]
        with socket.create_connection(("127.0.0.1", rank.settings.network.http_port)):
            drain = rank.begin("drain.sh")
            with pytest.raises(subprocess.TimeoutExpired):
                drain.wait(timeout=0.7)
        assert drain.wait(timeout=20) == 0
