"""What can be said of the kind cluster without one."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.harness.errors import HarnessError
from tests.kind import cache
from tests.kind.__main__ import TESTS, main, said
from tests.kind.cluster import without_upstream
from tests.kind.docker import ENGINE_VARIABLE, RUN
from tests.kind.leftovers import Ours, require_none
from tests.kind.shell import run

COREFILE = """\
.:53 {
    errors
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
    }
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30
    loop
    loadbalance
}
"""


def test_without_root_it_says_so_in_one_line_and_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "argv", ["kind", "up"])

    assert main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "error: kind needs root, for a Docker daemon of its own: run it as root, or name an "
        "engine image in "
        "SHARDWRIGHT_ENGINE_IMAGE to use the Docker that this machine has, or give a cluster by "
        "--kubeconfig"
    )


def test_without_docker_and_without_permission_to_install_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        shutil,
        "which",
        lambda name: None if name in ("dockerd", "debootstrap") else f"/usr/bin/{name}",
    )
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "argv", ["kind", "up"])

    assert main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: kind needs dockerd, debootstrap, which this machine has not")


def test_an_engine_image_without_a_docker_to_run_it_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    monkeypatch.setenv(ENGINE_VARIABLE, "registry.example/vllm-cpu:v0.32.0")
    monkeypatch.setattr(sys, "argv", ["kind", "test"])

    assert main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "error: SHARDWRIGHT_ENGINE_IMAGE is for the Docker of this machine, which does not answer"
    )


def test_what_went_wrong_first_is_said_before_what_the_ending_could_not_do() -> None:
    def run_and_end() -> None:
        try:
            raise HarnessError("the nodes were not Ready")
        finally:
            require_none(Ours(interface="lo", folders=(), mounted=()), lambda: None, seconds=0)

    with pytest.raises(HarnessError) as caught:
        run_and_end()
    first, second = said(caught.value)
    assert first == "the nodes were not Ready"
    assert second.endswith("it has left: the network interface lo")


def test_a_program_that_is_not_there_is_said_in_one_line() -> None:
    with pytest.raises(
        HarnessError, match="`no-such-program --version` cannot be run: there is no no-such-program"
    ):
        run(["no-such-program", "--version"])


def test_every_test_on_the_cluster_is_run_by_one_of_the_commands() -> None:
    there = {
        file.name
        for pattern in ("test_running_*.py", "test_full_*.py")
        for file in cache.HERE.glob(pattern)
    }

    assert {file for files in TESTS.values() for file in files} - {"test_parts.py"} == there


def test_nothing_outside_is_asked_for_names() -> None:
    kept = [line.split()[0] for line in without_upstream(COREFILE).splitlines()]

    assert kept == [
        ".:53",
        "errors",
        "ready",
        "kubernetes",
        "pods",
        "}",
        "cache",
        "loadbalance",
        "}",
    ]


def test_a_digest_changes_with_a_files_content_and_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    first = cache.digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    renamed = cache.digest(tmp_path)
    (tmp_path / "b").write_text("2")

    assert len({first, renamed, cache.digest(tmp_path)}) == 3


def test_parts_of_a_digest_do_not_run_into_each_other() -> None:
    assert cache.digest("ab", "c") != cache.digest("a", "bc")


def test_what_could_not_be_made_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fails(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - any
        cache.made("thing", fails)

    assert list(cache.folder().iterdir()) == []


def test_the_sockets_path_is_short_enough_for_a_socket() -> None:
    assert len(str(RUN / "docker.sock")) < 107
