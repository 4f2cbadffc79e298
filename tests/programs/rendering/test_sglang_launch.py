"""The rendered scripts for SGLang in a real shell, with a stand-in for the engine."""

import os
from pathlib import Path

import pytest

from shardwright.layouts.layout import Layout
from shardwright.rendering.deployment import SecretKey
from tests.harness.waiting import wait_for
from tests.support.builders_deployment import a_plan_of, a_small_plan, an_sglang_deployment
from tests.support.ranks import STUBS, Rank, ranks_of, start

MAIN = """\
import runpy, sys
def main():
    print("server_args=", {"api_key": sys.argv[-1].partition("=")[2]}, flush=True)
    runpy.run_path(STAND_IN, run_name="__main__")
"""


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder in which the stand-in is called sglang, and is imported by that name."""
    folder = tmp_path / "commands"
    (folder / "sglang/cli").mkdir(parents=True)
    (folder / "sglang/cli/main.py").write_text(f"STAND_IN = {str(folder / 'bin/sglang')!r}\n{MAIN}")
    (folder / "bin").mkdir()
    (folder / "bin/sglang").symlink_to(STUBS / "vllm")
    return folder


def with_commands(rank: Rank, folder: Path) -> Rank:
    rank.environment["PATH"] = f"{folder / 'bin'}:{rank.environment['PATH']}"
    rank.environment["PYTHONPATH"] = f"{folder}:{rank.environment['PYTHONPATH']}"
    return rank


def test_every_pod_of_a_group_starts_the_engine_as_a_node_and_only_the_leader_has_a_server(
    tmp_path: Path, commands: Path
) -> None:
    plan = a_plan_of(Layout(tensor=8, pipeline=2), nodes=2)
    with ranks_of(plan, an_sglang_deployment(), tmp_path) as ranks:
        leader = ranks[0].environment["SHARDWRIGHT_LEADER"]
        (tmp_path / "hosts").write_text(f"{leader} 127.0.0.1\n")
        start(*(with_commands(rank, commands) for rank in ranks))
        found = [rank.engine()["argv"][1 + len(rank.arguments) :] for rank in ranks]
        port = str(ranks[0].settings.network.http_port)

    served = ["--host", "0.0.0.0", "--port", port]  # noqa: S104
    store = ["--dist-init-addr", f"{found[1][-1].rpartition(':')[0]}:29501"]
    assert found[0] == ["--node-rank", "0", "--dist-init-addr", "127.0.0.1:29501", *served]
    assert found[1] == ["--node-rank", "1", *store]


def test_the_key_is_in_no_list_of_processes_and_in_no_log_and_the_watcher_has_it(
    tmp_path: Path, commands: Path
) -> None:
    deployment = an_sglang_deployment(api_key=SecretKey(name="keys", key="key"), silence_seconds=60)
    watched = {"silence_seconds": 60, "idle_seconds": 60}
    with ranks_of(a_small_plan(), deployment, tmp_path, **watched) as (rank,):
        with_commands(rank, commands).environment["SHARDWRIGHT_API_KEY"] = "-a'secret\\"
        rank.start()
        engine = rank.engine()
        shown = Path(f"/proc/{engine['pid']}/cmdline").read_bytes()
        wait_for(
            lambda: rank.run("probe.sh", "readiness").returncode == 0, what="an engine with tokens"
        )
        log = rank.log

    assert engine["argv"][-1] == "--api-key=-a'secret\\"
    assert b"secret" not in shown
    assert ("secret" in log, "'api_key'" in log) == (False, True)
    assert os.environ.get("SHARDWRIGHT_API_KEY") is None
