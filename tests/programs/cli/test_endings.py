"""How commands end when the world around them fails: pipes, terminals, interrupts, clusters, and
ourselves.
"""

import io
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from shardwright.cli import main as entry
from shardwright.cli.main import main
from tests.support.builders_cli import Files, a_foreign_pod, a_listed_node, a_manifest

Capture = pytest.CaptureFixture[str]
SOURCES = Path(entry.__file__).parents[2]


class Terminal(io.StringIO):
    """A stream that calls itself a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    files = Files(tmp_path)
    files.manifests(a_manifest("llama"))
    files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)])
    return files


def _shown_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> str:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(["plan", "-f", "model.yaml", "--nodes", "nodes.yaml"]) == 0
    return terminal.getvalue()


def _python(*words: str, **environment: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCES), **environment},
    )


@pytest.mark.usefixtures("files")
def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)

    assert "\x1b[1;32m" in _shown_in_a_terminal(monkeypatch)


@pytest.mark.usefixtures("files")
def test_no_color_is_respected_and_a_pipe_gets_the_same_text(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    main(["plan", "-f", "model.yaml", "--nodes", "nodes.yaml"])
    piped = capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")

    assert _shown_in_a_terminal(monkeypatch) == piped
    assert "\x1b" not in piped


@pytest.mark.usefixtures("files")
def test_a_stream_that_knows_only_ascii_gets_ascii() -> None:
    words = ("-m", "shardwright.cli.main", "explain", "-f", "model.yaml", "--nodes", "nodes.yaml")
    process = _python(*words, PYTHONIOENCODING="ascii")

    out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, b"")
    assert b"n1  [ # . . . . . . . ]" in out


@pytest.mark.parametrize(
    "words", ["models -o json", "crd -o json", "plan Qwen/Qwen2.5-7B-Instrct --gpus 8xH100 -o json"]
)
def test_a_reader_that_goes_away_is_no_fault(words: str) -> None:
    process = _python("-m", "shardwright.cli.main", *words.split())
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.close()
        err = process.stderr.read()

    assert process.returncode == 141
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


def test_an_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def interrupted(_: Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "COMMANDS", {"version": interrupted})

    assert main(["version"]) == 130
    assert capsys.readouterr() == ("", "")


def _fail(_: Namespace) -> int:
    raise RuntimeError("the moon")


def test_a_fault_of_ours_asks_to_be_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(entry, "COMMANDS", {"version": _fail})

    assert main(["version"]) == 3
    assert capsys.readouterr().err == (
        "error: RuntimeError: the moon; this is an internal error: please report it with the output "
        "of --debug\n"
    )


def test_the_traceback_of_a_fault_is_shown_on_demand(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(entry, "COMMANDS", {"version": _fail})

    assert main(["version", "--debug"]) == 3
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.usefixtures("files")
def test_a_kubeconfig_that_is_not_there_is_no_fault_of_ours(capsys: Capture) -> None:
    assert main(["plan", "-f", "model.yaml", "--kubeconfig", "none.yaml"]) == 3

    err = capsys.readouterr().err
    assert err == (
        "error[NoKubeconfig]: no access to a cluster: there is no kubeconfig: none.yaml; give "
        "--nodes or --gpus to plan without a cluster\n"
    )


@pytest.mark.parametrize(
    "words",
    [["plan", "-f", "model.yaml"], ["status"], ["diff", "llama"], ["plan", "llama"]],
    ids=" ".join,
)
def test_a_cluster_that_does_not_answer_is_said(
    words: list[str], files: Files, capsys: Capture
) -> None:
    files.raw(
        "kubeconfig",
        b"apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        b"clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        b"users: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n",
    )

    assert main([*words, "--kubeconfig", "kubeconfig"]) == 3
    assert capsys.readouterr().err == (
        "error[NoAnswer]: http://127.0.0.1:9 does not answer: nobody listens there; "
        "check that the cluster runs, a VPN, and the server of context c; --context names another\n"
    )


@pytest.mark.usefixtures("files")
def test_planning_from_files_loads_nothing_but_the_planner() -> None:
    """A client of the cluster or of the hub, or making the CRD, takes long; and a plan leaves no
    garbage to search for.
    """
    program = (
        "import gc, sys; from shardwright.cli.main import main; searched = "
        "gc.get_stats()[0]['collections']; "
        "main(['plan', '-f', 'model.yaml', '--nodes', 'nodes.yaml']); "
        "print({'aiohttp', 'asyncio', 'cryptography', 'jinja2', 'kopf', 'kubernetes', 'rich', "
        "'shardwright.api.schema', "
        "'http.client', 'ssl', 'shardwright.hub.checkpoint', 'shardwright.cluster', "
        "'shardwright.controller'} "
        "& sys.modules.keys(), gc.get_stats()[0]['collections'] - searched, file=sys.stderr)"
    )
    _, err = _python("-c", program).communicate(timeout=60)

    assert err == b"set() 0\n"


_OF_EXTRAS = (
    "aiohttp",
    "certifi",
    "cryptography",
    "kopf",
    "kubernetes",
    "prometheus_client",
    "requests",
    "urllib3",
)
"""What an extra of the package brings, directly or not: a plain `pip install shardwright` has none
of it.
"""

_WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({_OF_EXTRAS})); "


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("command", ["plan", "explain", "render"])
def test_without_an_extra_everything_works_from_files(command: str) -> None:
    program = (
        f"from shardwright.cli.main import main; sys.exit(main(['{command}', '-f', "
        "'model.yaml', '--nodes', 'nodes.yaml']))"
    )
    process = _python("-c", _WITHOUT + program)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 0, err
    assert out


@pytest.mark.usefixtures("files")
def test_without_the_client_a_cluster_is_not_read_and_one_line_says_what_to_install() -> None:
    program = "from shardwright.cli.main import main; sys.exit(main(['plan', '-f', 'model.yaml']))"
    process = _python("-c", _WITHOUT + program)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 3
    assert err.decode() == (
        "error[ClientMissing]: reading a cluster needs the package kubernetes, which is not "
        "installed; "
        "install 'shardwright[cluster]', "
        "or give --nodes or --gpus to plan without a cluster\n"
    )


def test_without_its_libraries_the_operator_says_in_one_line_what_to_install() -> None:
    process = _python(
        "-c", _WITHOUT + "from shardwright.controller.__main__ import main; sys.exit(main())"
    )
    _, err = process.communicate(timeout=60)

    assert process.returncode == 2
    assert err.decode().startswith("error: the operator needs ")
    assert err.decode().endswith(", which is not installed: pip install 'shardwright[operator]'\n")
    assert err.decode().count("\n") == 1


@pytest.mark.parametrize("words", [["version"], ["models"], ["gpus", "-o", "json"]], ids=" ".join)
def test_lists_and_the_version_load_no_planner(words: list[str]) -> None:
    program = (
        f"import sys; from shardwright.cli.main import main; main({words!r}); "
        "print({'pydantic', 'yaml', 'rich', 'shardwright.pipeline.assembly', 'shardwright.planning'} "
        "& sys.modules.keys(), file=sys.stderr)"
    )
    _, err = _python("-c", program).communicate(timeout=60)

    assert err == b"set()\n"
