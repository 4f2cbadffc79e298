"""What can be typed, and what the help says."""

import json

import pytest

from shardwright import __version__
from shardwright.cli.arguments import program_name
from shardwright.cli.main import main


@pytest.mark.parametrize("command", ["plan", "explain", "render", "models", "crd", "version"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])

    assert ended.value.code == 0
    assert f"shardwright {command}" in capsys.readouterr().out


def test_the_plugin_of_kubectl_calls_itself_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/kubectl-shardwright"])

    with pytest.raises(SystemExit):
        main(["plan", "--help"])

    out = capsys.readouterr().out
    assert out.startswith("usage: kubectl shardwright plan ")
    assert "| kubectl shardwright plan -f model.yaml --nodes -" in out


def test_a_windows_plugin_is_one_too() -> None:
    assert program_name("kubectl-shardwright.exe") == "kubectl shardwright"


def test_an_unknown_option_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--no-such-option"])

    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


def test_version_names_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"shardwright {__version__}\n"


def test_crd_prints_what_the_operator_installs(capsys: pytest.CaptureFixture[str]) -> None:
    from shardwright.api.schema import crd_yaml  # noqa: PLC0415 - where it is used

    assert main(["crd"]) == 0
    assert capsys.readouterr().out == crd_yaml()


def test_models_are_searched_in_any_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--search", "DEEPSEEK-V3"]) == 0

    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["ID", "ARCHITECTURE"]
    assert ["deepseek-ai/DeepSeek-V3", "DeepseekV3ForCausalLM"] in [row.split() for row in rows]
    assert all("deepseek-v3" in row.lower() for row in rows)


def test_models_name_their_source_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--search", "deepseek-ai/DeepSeek-V3", "-o", "json"]) == 0

    first = json.loads(capsys.readouterr().out)[0]
    assert first.keys() == {"id", "architecture", "source", "revision"}
    assert first["source"]


def test_a_search_without_a_hit_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--search", "no such model"]) == 0
    assert capsys.readouterr().out == ""
