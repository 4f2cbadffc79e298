"""What a shell may offer next."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardwright.cli import completion
from shardwright.cli.completion import complete_for_kubectl, completions
from shardwright.cli.main import main

Capture = pytest.CaptureFixture[str]

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: prod
contexts: [{name: prod, context: {cluster: c, user: u}}, {name: test, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]
users: [{name: u, user: {}}]
"""


@pytest.fixture(autouse=True)
def _kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))


def test_commands_are_offered() -> None:
    assert completions(["st"]) == ["status"]
    assert {"plan", "status", "diff", "import"} <= set(completions([""]))


def test_the_rest_of_an_option_is_completed() -> None:
    assert completions(["diff", "--operator"]) == ["--operator-version"]


def test_contexts_of_the_kubeconfig_are_offered() -> None:
    assert sorted(completions(["status", "--context", ""])) == ["prod", "test"]


def test_ids_of_the_catalogue_are_offered() -> None:
    assert completions(["plan", "meta-llama/Llama-3.1-4"])[0].startswith(
        "meta-llama/Llama-3.1-405B"
    )


def test_gpus_are_offered_behind_their_count() -> None:
    assert "16xH100-SXM-80GB" in completions(["plan", "--gpus", "16xH1"])
    assert "8xL4-24GB,H100-SXM-80GB" in completions(["size", "--gpus", "8xL4-24GB,H1"])


def test_a_cluster_that_does_not_answer_offers_nothing() -> None:
    assert completions(["status", "l"]) == []


def test_kubectl_is_told_when_files_may_be_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-shardwright", "plan", "-f", ""])
    assert complete_for_kubectl() == 0
    assert capsys.readouterr().out.splitlines()[-1] == completion.ANY_FILES

    monkeypatch.setattr(sys, "argv", ["kubectl_complete-shardwright", "stat"])
    complete_for_kubectl()
    assert capsys.readouterr().out == "status\n:4\n"


@pytest.mark.parametrize("columns", [60, 80, 110])
def test_the_help_does_not_break_the_name_of_the_program_for_kubectl(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        main(["completion", "--help-all"])
    assert "kubectl_complete-shardwright" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_every_shell(shell: str, capsys: Capture) -> None:
    assert main(["completion", shell]) == 0
    assert "kubectl-shardwright" in capsys.readouterr().out


def test_bash_completes_a_command(capsys: Capture) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out + (
        'COMP_WORDS=(shardwright dif) COMP_CWORD=1 COMP_LINE="shardwright dif" COMP_POINT=15 '
        "COMP_TYPE=9\n"
        '_python_argcomplete shardwright\necho "${COMPREPLY[@]}"\n'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    said = subprocess.run(
        ["/bin/bash", "-c", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout.split() == ["diff"]


def test_the_engines_of_a_plan_that_need_no_image_are_offered() -> None:
    assert sorted(completions(["plan", "x", "--engine", ""])) == ["SGLang", "vLLM"]


def test_the_aims_of_a_plan_are_offered() -> None:
    offered = completions(["plan", "x", "--optimize-for", ""])

    assert sorted(offered) == ["Balanced", "Latency", "Throughput"]
