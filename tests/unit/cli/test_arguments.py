"""What can be typed, and what the help says."""

import json
import re

import pytest
import yaml

from shardwright import __version__
from shardwright.cli.cluster_arguments import FLAGS
from shardwright.cli.commands import program_name
from shardwright.cli.main import COMMANDS, main
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import load_gpus
from shardwright.hardware.nodes import read_node
from tests.support.builders_nodes import bare_node


@pytest.mark.parametrize(
    "command", ["plan", "explain", "render", "predict", "fetch", "models", "gpus", "crd", "version"]
)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])

    assert ended.value.code == 0
    assert f"shardwright {command}" in capsys.readouterr().out


def test_the_plugin_of_kubectl_calls_itself_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/kubectl-shardwright"])

    with pytest.raises(SystemExit):
        main(["plan", "--help-all"])

    out = capsys.readouterr().out
    assert out.startswith("usage: kubectl shardwright plan ")
    assert "| kubectl shardwright plan -f model.yaml --nodes -" in out


def _help(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_is_one_screen_and_leads_to_all_of_it(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    shown, whole = (_help(capsys, command, "--help"), _help(capsys, command, "--help-all"))

    assert len(shown) <= 50
    assert "\N{HORIZONTAL ELLIPSIS}" not in "".join(shown)
    assert [line for line in (*shown, *whole) if len(line) > 80] == []
    if shown != whole:
        assert shown[-1] == "all options, in full, and the exit codes: --help-all"


@pytest.mark.parametrize("command", COMMANDS)
def test_whether_help_is_short_does_not_depend_on_the_width_of_the_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = []
    for width in ("60", "80", "120", "200"):
        monkeypatch.setenv("COLUMNS", width)
        short.append(_help(capsys, command, "--help")[-1].startswith("all options"))

    assert len(set(short)) == 1


def test_the_first_screen_says_defaults_and_lists_what_every_command_has_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    shown = _help(capsys, "plan", "--help")

    options = shown.index("options:")
    assert shown[options + 1 : options + 4] == [
        "  -o, --output FORM       text, wide, name, json, yaml, manifest (default: text)",
        "  -h, --help              show this help message and exit",
        "  --debug                 show the traceback of a fault",
    ]
    assert [line.split("(default: ")[1] for line in shown if "(default: " in line] == [
        "text)",
        "2048)",
        "512)",
        "64)",
        "Balanced)",
        "vLLM)",
        *["planned)"] * 3,
    ]
    assert "  -s, --server [URL]      have the operator plan a copy of -f" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_the_words_about_options_begin_in_one_column(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    shown = _help(capsys, command, "--help")

    if shown[-1].startswith("all options"):
        rows = [re.match(r"  -\S.*?  +(?=\S)", line) for line in shown if line[:3] == "  -"]
        assert len({row.end() for row in rows if row}) == 1


def test_the_first_screen_has_every_option_but_those_of_kubectl(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    options = [
        set(re.findall(r"--[a-z][a-z-]+", "\n".join(_help(capsys, "plan", how))))
        for how in ("--help", "--help-all")
    ]

    left_out = {flag for flag, _, _ in FLAGS} | {
        "--kubeconfig",
        "--as-group",
        "--insecure-skip-tls-verify",
        "--request-timeout",
    }
    assert options[1] - options[0] == left_out


def test_a_plugin_with_the_ending_of_windows_is_named_kubectl_shardwright_too() -> None:
    assert program_name("kubectl-shardwright.exe") == "kubectl shardwright"


def test_an_unknown_option_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--no-such-option"])

    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("form", [["-o", "json"], ["-ojson"], ["--output=json"]])
def test_what_no_command_takes_is_a_document_for_a_program(
    form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--no-such-option", *form])

    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert json.loads(out)["items"][0]["message"] in err
    assert json.loads(out)["kind"] == "ProblemList"


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
    assert header.split() == ["ID", "PARAMS", "GIB", "FORMAT", "LONGEST", "RELEASED"]
    assert ["deepseek-ai/DeepSeek-V3", "671B", "626.8", "fp8", "163,840"] in [
        row.split() for row in rows
    ]
    assert all("deepseek-v3" in row.lower() for row in rows)


def test_ids_alone_are_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "--search", "h100-sxm", "-o", "name"]) == 0
    assert capsys.readouterr().out == "H100-SXM-80GB\n"

    assert main(["models", "--search", "llama-3.1-405b-instruct", "-o", "yaml"]) == 0
    (listed,) = yaml.safe_load_all(capsys.readouterr().out)
    assert (listed["kind"], listed["items"][0]["id"]) == (
        "ModelList",
        "meta-llama/Llama-3.1-405B-Instruct",
    )


def test_models_name_their_source_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--search", "deepseek-ai/DeepSeek-V3", "-o", "json"]) == 0

    first = json.loads(capsys.readouterr().out)["items"][0]
    assert first.keys() == {"id", "architecture", "source", "revision", "released"}
    assert first["source"]


@pytest.mark.parametrize(
    ("command", "said"),
    [("models", "no built-in model id"), ("gpus", "no GPU that can be planned")],
)
def test_a_search_without_a_hit_says_so_beside_the_output(
    command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--search", "no such thing"]) == 0

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(said)


def test_gpus_are_listed_by_the_id_that_a_node_may_state(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["gpus", "--search", "h100-sxm"]) == 0

    header, *rows, blank, about = capsys.readouterr().out.splitlines()
    assert (blank, about.split(": ")[0]) == ("", "TFLOP/S")
    assert header.split() == ["ID", "GIB", "GB/S", "TFLOP/S", "PRICE", "FORMATS", "JOINED", "BY"]
    assert rows == [
        (
            "H100-SXM-80GB  80   3,350  989      1      bf16, fp16, fp8, int8  NVLink4 "
            "NVSwitch, up to 8"
        )
    ]


def test_every_listed_gpu_is_understood_on_a_node_and_no_other_is_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["gpus", "-o", "json"]) == 0

    listed = json.loads(capsys.readouterr().out)["items"]
    for gpu in listed:
        resource = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}[gpu["vendor"]]
        facts = read_node(
            bare_node(
                "n", labels={"shardwright.io/gpu-model": gpu["id"]}, allocatable={resource: "1"}
            )
        )
        assert isinstance(facts, NodeFacts)
        assert facts.gpu.id == gpu["id"]
    assert {gpu["id"] for gpu in listed} == {
        row.id for row in load_gpus().values() if row.vendor in ("NVIDIA", "AMD")
    }


def test_without_a_command_the_commands_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "    plan      show how a model would be cut" in capsys.readouterr().out


def test_nodes_come_from_files_or_from_a_context(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "-f", "model.yaml", "--nodes", "nodes.yaml", "--context", "prod"])

    assert ended.value.code == 2
    assert "argument --context: not allowed with argument --nodes" in capsys.readouterr().err


@pytest.mark.parametrize("version", [__version__, f"v{__version__}"], ids=["plain", "v"])
def test_diff_answers_for_its_own_release(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["diff", "-f", "none.yaml", "--operator-version", version]

    assert main(words) == 2

    assert capsys.readouterr().err.startswith("error[FileUnreadable]: none.yaml: ")


def test_diff_refuses_to_answer_for_another_release_and_says_how_to_ask_that(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["diff", "llama", "--operator-version", "9.9.9"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"error[NotAllowed]: --operator-version: this program renders as release {__version__} "
        "does and as no other; install the command line of 9.9.9 beside it, for example into a "
        "virtual environment, and ask that\n"
    )
