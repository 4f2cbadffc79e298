"""A model, its load and its GPUs typed instead of written as YAML."""

from __future__ import annotations

import io
import json
import re
import shlex
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.cli.commands import build_parser
from shardwright.cli.main import main
from shardwright.cli.named_gpus import AS_NEEDED, nodes_of, read_named_gpus
from shardwright.cli.size import ABOUT_SLICES, ABOUT_USUAL, USUAL
from shardwright.cli.surroundings import read_nodes
from shardwright.errors import InputError
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import catalogue_ids, load_gpus, search_ids
from shardwright.hardware.topology import DomainKind
from tests.support.builders_cli import Files, a_manifest

Capture = pytest.CaptureFixture[str]
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
QWEN = "Qwen/Qwen3-8B"


def _facts(
    *texts: str, gpus_per_node: int | None = None, network: float | None = None
) -> list[NodeFacts]:
    named = read_named_gpus(texts, gpus_per_node=gpus_per_node, network_gbps_per_gpu=network)
    return [facts for facts in read_nodes(nodes_of(named)) if isinstance(facts, NodeFacts)]


def _errors(capsys: Capture) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_model_and_gpus_are_enough_for_a_plan(capsys: Capture) -> None:
    assert main(["plan", LLAMA, "--gpus", "16xH100"]) == 0

    out, err = capsys.readouterr()
    assert out.startswith("llama-3-1-8b-instruct: TP1 on 1 H100-SXM-80GB of 1 node\n")
    assert "no pods are known" not in out, "GPUs that are named are free"
    assert err == ""


def test_the_plan_of_typed_words_is_that_of_the_manifest_which_they_print(
    capsys: Capture, tmp_path: Path
) -> None:
    words = [
        QWEN,
        "--gpus",
        "4xL40S",
        "--rps",
        "2",
        "--ttft",
        "2s",
        "--input-tokens",
        "1,000",
        "--output-tokens",
        "100",
    ]
    main(["plan", *words, "-o", "json"])
    typed = json.loads(capsys.readouterr().out)["items"][0]
    main(["plan", *words, "-o", "manifest"])
    manifest = tmp_path / "model.yaml"
    manifest.write_text(capsys.readouterr().out)

    main(["plan", "-f", str(manifest), "--gpus", "4xL40S", "-o", "json"])

    assert json.loads(capsys.readouterr().out)["items"] == [typed]
    assert yaml.safe_load(manifest.read_text())["spec"] == {
        "model": {"id": QWEN},
        "workload": {"inputTokens": 1000, "outputTokens": 100, "requestsPerSecond": 2.0},
        "objective": {"ttftMilliseconds": 2000},
    }


def test_slices_that_are_named_are_planned_on_and_stand_in_the_manifest(capsys: Capture) -> None:
    words = [LLAMA, "--gpus", "16xH100-MIG-3g.40gb"]

    assert main(["plan", *words]) == 0
    assert capsys.readouterr().out.startswith(
        "llama-3-1-8b-instruct: TP1 on 1 H100-SXM-80GB-MIG-3g.40gb of 1 node\n"
    )
    assert main(["plan", *words, "-o", "manifest"]) == 0
    manifest = yaml.safe_load(capsys.readouterr().out)
    assert manifest["spec"]["placement"] == {"migProfile": "3g.40gb"}


def test_a_model_without_a_plan_gets_no_manifest_and_a_plan_says_what_is_to_be_done_first(
    capsys: Capture,
) -> None:
    """A pipe into kubectl hides the exit code."""
    large = "meta-llama/Llama-3.1-405B-Instruct"
    assert main(["plan", large, "--gpus", "2xL40S", "-o", "manifest"]) == 1
    refused = capsys.readouterr()
    assert refused.out == ""
    assert refused.err.startswith("error[")

    assert main(["plan", LLAMA, "--gpus", "4xH100", "-o", "manifest"]) == 0
    planned = capsys.readouterr()
    secret = {"secretRef": {"name": "hub-token"}}
    assert yaml.safe_load(planned.out)["spec"]["model"] == {"id": LLAMA, "weights": secret}
    assert "create secret generic hub-token" in planned.err


def test_who_names_other_gpus_than_the_manifest_asks_for_is_told(
    capsys: Capture, tmp_path: Path
) -> None:
    words = ["plan", LLAMA, "--gpus", "16xH100-MIG-3g.40gb"]
    main([*words, "-o", "manifest"])
    manifest = tmp_path / "model.yaml"
    manifest.write_text(capsys.readouterr().out)

    assert main(["plan", "-f", str(manifest), "--gpus", "8xH100"]) == 0

    out, err = capsys.readouterr()
    assert out.startswith("llama-3-1-8b-instruct: TP1 on 1 H100-SXM-80GB of 1 node\n")
    assert " ".join(err.split()) == (
        "note: llama-3-1-8b-instruct: spec.placement.migProfile is 3g.40gb, and --gpus names "
        "whole GPUs: these are planned on"
    )


def test_slices_stand_in_the_nodes_of_their_gpus() -> None:
    nodes = _facts("60xH100-MIG-1g.10gb")

    assert [(node.gpu.id, node.gpus) for node in nodes] == [
        ("H100-SXM-80GB-MIG-1g.10gb", 56),
        ("H100-SXM-80GB-MIG-1g.10gb", 4),
    ]


def test_a_size_is_found_in_slices_and_in_whole_gpus_at_once(capsys: Capture) -> None:
    words = ["size", LLAMA, "--rps", "1", "--gpus", "H100", "--gpus"]
    assert main([*words, "H100-MIG-3g.40gb", "-o", "name"]) == 0

    assert sorted(capsys.readouterr().out.split()) == [
        "16xH100-SXM-80GB-MIG-3g.40gb",
        "8xH100-SXM-80GB",
    ]


def test_gpus_stand_in_nodes_as_their_instances_have_them() -> None:
    assert [(node.gpu.id, node.gpus) for node in _facts("20xH100", "8xGB200")] == [
        ("H100-SXM-80GB", 8),
        ("H100-SXM-80GB", 8),
        ("H100-SXM-80GB", 4),
        ("GB200-NVL-186GB", 4),
        ("GB200-NVL-186GB", 4),
    ]
    assert [node.gpus for node in _facts("8xL40S", gpus_per_node=4)] == [4, 4]


@pytest.mark.parametrize(
    ("named", "kind", "joined"),
    [
        ("4xH100", DomainKind.NODE, 4),
        ("8xH100", DomainKind.NODE, 8),
        ("1xH100", DomainKind.NONE, 1),
        ("2xMI300X", DomainKind.NODE, 2),
        ("2xH100-PCIE-80GB", DomainKind.NONE, 1),
        ("4xL40S", DomainKind.NONE, 1),
    ],
)
def test_some_gpus_of_a_board_are_joined_as_the_whole_board_is(
    named: str, kind: DomainKind, joined: int
) -> None:
    (node,) = _facts(named)

    assert (node.domain.kind, node.domain.gpus, node.domain.warning) == (kind, joined, "")


def test_a_rack_is_one_nvlink_domain_and_a_second_one_is_another() -> None:
    domains = {node.domain.name: node.domain.kind for node in _facts("144xGB200")}

    assert list(domains.values()) == [DomainKind.CLIQUE, DomainKind.CLIQUE]
    assert [node.gpus for node in _facts("144xGB200")] == [4] * 36


def test_the_network_is_what_was_typed() -> None:
    (node,) = _facts("8xH100", network=400)

    assert (node.network.bytes_per_second, node.network.basis) == (50e9, "stated")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "8*H100",
            (
                "'8*H100' must be a GPU, or a number, x and a GPU; write for example H100 or "
                "8xH100,16xB200"
            ),
        ),
        (
            "",
            "'' must be a GPU, or a number, x and a GPU; write for example H100 or 8xH100,16xB200",
        ),
        ("0xH100", "0 GPUs must be from 1 to 100,000"),
        ("-3xH100", "-3 GPUs must be from 1 to 100,000"),
        ("9999999xH100", "9,999,999 GPUs must be from 1 to 100,000"),
        ("H100x8", "'H100x8' is not a GPU that can be planned; did you mean 8xH100?"),
        (
            "A100",
            "'A100' may be A100-SXM4-40GB or A100-SXM4-80GB; write for example A100-SXM4-80GB",
        ),
        (
            "8xA100",
            "'A100' may be A100-SXM4-40GB or A100-SXM4-80GB; write for example 8xA100-SXM4-80GB",
        ),
        ("8xH1O0", "'H1O0' is not a GPU that can be planned; did you mean H100-SXM-80GB?"),
        (
            "8xGH200-96GB",
            "GH200-96GB stands in nodes of no known size; say how many a node has with --nodes-of",
        ),
        (
            "8xTPU-v5e",
            (
                "TPU-v5e of Google cannot be planned, only GPUs of NVIDIA and AMD; "
                "'shardwright gpus' lists those that can"
            ),
        ),
        (
            "8xL40S-MIG-1g.6gb",
            (
                "slices of L40S-48GB cannot be planned: their share of the GPU is not known; use "
                "whole GPUs of it: label the node nvidia.com/mig.config=all-disabled"
            ),
        ),
        (
            "8xH100-MIG-half",
            "'half' must be a MIG profile; write for example 8xH100-SXM-80GB-MIG-3g.40gb",
        ),
    ],
)
def test_gpus_that_are_not_named_well_are_refused_with_the_way_out(
    text: str, sentence: str
) -> None:
    with pytest.raises(InputError) as error:
        read_named_gpus([text])

    assert [problem.sentence() for problem in error.value.problems] == [f"--gpus: {sentence}"]


def test_what_is_wrong_is_said_of_the_option_that_was_typed(capsys: Capture) -> None:
    assert (
        main(
            ["plan", LLAMA, "--gpus", "8xH100", "--rps", "0", "--ttft", "2", "--concurrency", "2k"]
        )
        == 2
    )

    assert _errors(capsys) == [
        'error[WrongType]: --ttft: "2" must be a time; write for example 2s or 500ms',
        'error[WrongType]: --concurrency: "2k" must be an integer; write for example 64',
        (
            "error[OutOfRange]: --rps: 0 must be from 0.001 to 100,000, 0.001 too little; set it "
            "to 0.001 or more"
        ),
    ]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("--max-model-len", "1000"),
            (
                "error[RequestsExceedModelLength]: --max-model-len: 1,000 must be at least 2,560 "
                "(--input-tokens 2,048 + --output-tokens 512); raise --max-model-len or lower the "
                "other two"
            ),
        ),
        (
            ("--rps", "5", "--concurrency", "5"),
            (
                "error[ArrivalTwice]: --rps: --rps and --concurrency must not both be set: each says "
                "how requests arrive; remove one of them"
            ),
        ),
        (
            ("--optimize-for", "Speed"),
            (
                'error[NotAllowed]: --optimize-for: "Speed" must be Balanced, Latency or Throughput; '
                "write one of them"
            ),
        ),
        (
            ("--engine", "vlm"),
            (
                'error[NotAllowed]: --engine: "vlm" must be vLLM, TensorRTLLM or SGLang; '
                "did you mean vLLM?"
            ),
        ),
        (
            ("--optimize-for", "latency"),
            (
                'error[NotAllowed]: --optimize-for: "latency" must be Balanced, Latency or '
                "Throughput; did you mean Latency?"
            ),
        ),
    ],
)
def test_a_sentence_about_options_names_options_and_numbers(
    capsys: Capture, words: tuple[str, ...], line: str
) -> None:
    assert main(["plan", LLAMA, "--gpus", "8xH100", *words]) == 2

    assert _errors(capsys) == [line]


def test_all_named_gpus_together_are_bounded_and_each_bad_one_is_said() -> None:
    for texts, said in (
        (["60000xH100", "60000xB200"], ["--gpus: 120,000 GPUs must be from 1 to 100,000"]),
        (["0xH100", "0xB200"], ["--gpus: 0 GPUs must be from 1 to 100,000"] * 2),
    ):
        with pytest.raises(InputError) as error:
            read_named_gpus(texts)
        assert [problem.sentence() for problem in error.value.problems] == said


@pytest.mark.parametrize(
    "words",
    [
        ("--gpus", "16xB200,H100"),
        ("--gpus", " 16 x B200 , H100 "),
        ("--gpus", "16xb200", "--gpus", "H100"),
        ("--gpus=16XB200,H100",),
    ],
)
@pytest.mark.parametrize("command", ["plan", "explain", "report", "render", "size"])
def test_all_commands_read_gpus_alike(command: str, words: tuple[str, ...]) -> None:
    arguments = build_parser("shardwright").parse_args([command, LLAMA, *words])

    assert [(gpus.gpu.id, gpus.count) for gpus in read_named_gpus(arguments.gpus)] == [
        ("B200-SXM-180GB", 16),
        ("H100-SXM-80GB", AS_NEEDED),
    ]


def test_gpus_without_a_number_are_as_many_as_the_load_needs(capsys: Capture) -> None:
    """``plan`` takes a kind alone, and ``size`` goes no further than a number that is given."""
    assert main(["plan", LLAMA, "--gpus", "H100", "-o", "wide"]) == 0
    alone = capsys.readouterr().out
    assert main(["plan", LLAMA, "--gpus", "8xH100", "-o", "wide"]) == 0
    assert alone == capsys.readouterr().out

    assert main(["size", LLAMA, "--rps", "20", "--gpus", "2xH100,B200", "-o", "name"]) == 0
    assert capsys.readouterr().out == "8xB200-SXM-180GB\n"


@cache
def _too_slow() -> str:
    """Return what is said of a load that no number of H100 carries."""
    load = ("--rps", "20", "--ttft", "1ms", "--gpus", "H100")
    with redirect_stdout(io.StringIO()) as out:
        assert main(["size", LLAMA, *load]) == 1
    return out.getvalue()


def test_size_does_not_take_replicas_and_says_which_limit_is_not_met(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["size", LLAMA, "--replicas", "2"])
    assert "unrecognized arguments: --replicas" in capsys.readouterr().err

    out = " ".join(_too_slow().split())
    assert "1,024 H100-SXM-80GB are not enough. --ttft: time to first token of" in out
    assert "; relax the limit: one request alone exceeds it, too Load " in out


def test_a_size_that_does_not_do_has_its_reason_in_words_under_the_table_not_in_a_column(
    capsys: Capture,
) -> None:
    table = _too_slow().split("\n\n")[1].splitlines()
    main(["plan", LLAMA, "--gpus", "1xH100", "--ttft", "1ms", "-o", "wide"])
    header, row = capsys.readouterr().out.splitlines()

    assert table[1].split() == ["H100-SXM-80GB", *["-"] * 7]
    assert table[2:] == ["  H100-SXM-80GB: TTFT limit exceeded, 37 times as long"]
    assert (header.split()[-1], row.split()[-1]) == ("REASON", "TtftLimitExceeded")
    assert row.split()[1:-1] == ["-"] * 7


def test_the_value_behind_an_option_that_is_not_known_is_not_called_unknown(
    capsys: Capture,
) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--gpu", "16xH100", LLAMA])

    assert _errors(capsys) == [
        (
            "error[NotAllowed]: unrecognized arguments: --gpu (did you mean --gpus?); see "
            "'shardwright plan --help'"
        )
    ]


@pytest.mark.parametrize(
    "name", ["NVIDIA-H200", "nvidia h200", "H200-SXM-141GB", "h200sxm", "H200-MIG-1g.18gb"]
)
def test_gpus_are_listed_by_every_name_that_gpus_of_a_plan_take(capsys: Capture, name: str) -> None:
    main(["gpus", name, "-o", "name"])

    assert "H200-SXM-141GB" in capsys.readouterr().out.splitlines()


def test_every_product_that_can_be_named_is_found_by_its_name() -> None:
    names = {
        name
        for gpu in load_gpus().values()
        for name in (gpu.id, f"NVIDIA-{gpu.id}", gpu.id.split("-")[0])
    }

    assert [
        name for name in names for gpu_id in catalogue_ids(name) if gpu_id not in search_ids(name)
    ] == []


def test_a_gpu_that_is_not_listed_has_those_written_like_it(capsys: Capture) -> None:
    main(["gpus", "h101"])

    assert capsys.readouterr().err == (
        "no GPU that can be planned has a name with 'h101' in it; did you mean H100-SXM-80GB?\n"
    )


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["plan", "--gpus", "8xH100"], "error[NoShardedModel]: no model is named"),
        (
            ["plan", "model.yaml", "--gpus", "8xH100"],
            "error[NotAllowed]: MODEL: model.yaml is a file, not the id of a model;",
        ),
        (
            ["plan", LLAMA, "-f", "model.yaml", "--gpus", "8xH100"],
            "error[NotTogether]: MODEL: the model",
        ),
        (
            ["plan", "-f", "model.yaml", "--rps", "3", "--gpus", "8xH100"],
            "error[NotTogether]: --rps: describes a model",
        ),
        (
            ["plan", "-f", "model.yaml", "-o", "manifest", "--gpus", "8xH100"],
            "error[NotTogether]: -o manifest: is for",
        ),
        (
            ["plan", LLAMA, "--nodes-of", "8"],
            "error[NotTogether]: --nodes-of: describes GPUs that are not named",
        ),
        (["paln", LLAMA], "error[NotAllowed]: 'paln' is not a command; did you mean plan?"),
        (["plan", "", "--gpus", "8xH100"], "error["),
        (["plan", "x" * 300, "--gpus", "8xH100"], "error[TooLong]: MODEL: 300 characters"),
        (
            ["rollout", "retry", "llama", "--to-revision", "2"],
            "error[NotTogether]: --to-revision: retry takes no revision",
        ),
    ],
)
def test_words_that_do_not_go_together_are_refused_in_one_line(
    words: list[str], start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Files(tmp_path).manifests(a_manifest("llama"))

    assert main(words) == 2

    (line,) = _errors(capsys)
    assert line.startswith(start)


def test_an_option_is_written_out(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["plan", LLAMA, "--gpu", "8xH100"])

    (line,) = _errors(capsys)
    assert line == (
        "error[NotAllowed]: unrecognized arguments: --gpu (did you mean --gpus?); see "
        "'shardwright plan --help'"
    )


def test_what_a_command_does_not_take_is_one_line_and_names_its_help(capsys: Capture) -> None:
    for words in (
        ["rollout", "history"],
        ["models", "-o", "tablet"],
        ["--no-such-option"],
        ["rollout", "histroy", "x"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2

    errors = _errors(capsys)
    assert "; did you mean history?; " in errors[-1]
    assert [line.rpartition("; ")[2] for line in errors] == [
        "see 'shardwright rollout --help'",
        "see 'shardwright models --help'",
        "see 'shardwright --help'",
        "see 'shardwright rollout --help'",
    ]


def _sizes(capsys: Capture, *words: str) -> Any:
    main(["size", LLAMA, *words, "-o", "json"])
    return json.loads(capsys.readouterr().out)["sizes"]


@pytest.mark.parametrize(
    "load",
    [
        ("--rps", "12", "--ttft", "2s", "--gpus", "L40S"),
        ("--rps", "50", "--gpus", "H100"),
        ("--concurrency", "300", "--tpot", "20ms", "--gpus", "B200"),
        ("--rps", "50", "--optimize-for", "Throughput", "--gpus", "H100"),
        ("--rps", "5", "--optimize-for", "Latency", "--gpus", "H100"),
    ],
)
def test_size_and_plan_take_the_same_gpus_and_layout(
    capsys: Capture, load: tuple[str, ...]
) -> None:
    (found,) = _sizes(capsys, *load)
    whole_nodes = ("--gpus", f"{found['nodes']['gpus']}x{found['gpu']}")

    for gpus in (load[-2:], whole_nodes):
        main(["plan", LLAMA, *load[:-2], *gpus, "-o", "json"])
        plan = json.loads(capsys.readouterr().out)["items"][0]["plan"]
        assert plan["carriesLoad"]
        assert (plan["gpus"], plan["layout"]["replicas"]) == (found["gpus"], found["replicas"])


def test_gpus_are_bought_in_whole_nodes_which_stand_beside_them(capsys: Capture) -> None:
    """Eight of an SXM board are sold together."""
    ten, one = _sizes(capsys, "--rps", "50", "--gpus", "H100,16xL40S,100xL40S", "--nodes-of", "8")

    nodes = ten["nodes"]
    assert (ten["gpus"], nodes["count"], nodes["gpus"]) == (10, 2, 16)
    assert ten["relativePrice"]["h100Hours"] == 10
    assert nodes["relativePrice"]["h100Hours"] == 16
    assert one["gpu"] == "L40S-48GB", "GPUs of one kind are counted together"


def test_a_size_has_the_steps_of_its_instances_over_the_load_and_the_front_of_layouts(
    capsys: Capture,
) -> None:
    (found,) = _sizes(capsys, "--rps", "20", "--gpus", "H100")

    steps = found["overLoad"]
    (planned,) = [step for step in steps if step["replicas"] == found["replicas"]]
    before = [step for step in steps if step["replicas"] == found["replicas"] - 1]
    assert planned["gpus"] == found["gpus"]
    assert planned["requestsPerSecond"] >= 20
    assert [step["requestsPerSecond"] < 20 for step in before] == [True]
    front = [
        (point["outputTokensPerSecondPerUser"], point["outputTokensPerSecondPerGpu"])
        for point in found["overSpeed"]
    ]
    assert front == sorted(front, key=lambda point: (-point[0], point[1]))
    assert len(front) > 1


def test_what_is_equal_within_the_error_and_what_is_cheapest_in_whole_nodes_is_said(
    capsys: Capture, tmp_path: Path
) -> None:
    near = _stating(tmp_path, {"H100-SXM-80GB": 1.0, "H200-SXM-141GB": 1.05, "L40S-48GB": 0.6})
    words = ("--rps", "3", "--gpus", "H100,H200,L40S", *near)

    main(["size", LLAMA, *words])
    out = capsys.readouterr().out
    cheapest = {size["gpu"]: size["cheapest"] for size in _sizes(capsys, *words)}

    assert "  H200-SXM-141GB: costs the same within the error\n" in out
    assert "  L40S-48GB: cheapest in whole nodes\n" in out
    assert cheapest == {"H100-SXM-80GB": True, "H200-SXM-141GB": True, "L40S-48GB": False}


LOAD = ("--rps", "6", "--ttft", "2s")
"""More than one GPU of each product carries it, and few enough to be found soon."""


def _growth(text: str) -> list[list[str]]:
    """Return the rows of the table of more and less load, with its header."""
    rows = text.partition("\nMore and less load on ")[2].partition("\n\n")[0]
    return [re.split("  +", row.strip()) for row in rows.splitlines()[1:-1]]


def test_slices_are_called_slices_and_cost_as_whole_gpus(capsys: Capture) -> None:
    words = ("--rps", "20", "--gpus", "H100", "--gpus", "H100-MIG-3g.40gb")

    main(["size", LLAMA, *words])
    both = capsys.readouterr().out
    main(["size", LLAMA, *words[:2], *words[4:]])
    alone = capsys.readouterr().out
    sizes = {size["gpu"]: size for size in _sizes(capsys, *words)}

    assert ABOUT_SLICES in " ".join(both.split())
    assert ABOUT_SLICES in " ".join(alone.split())
    assert "9 x H100-SXM-80GB-MIG-3g.40gb, slices of 5 GPUs, are enough" in alone
    assert re.search(r"  9 slices .*  9 x TP1$", both, re.MULTILINE)
    assert _growth(alone)[0] == ["INSTANCES", "SLICES", "CARRY UP TO"]
    assert [row[1] for row in _growth(alone)[1:]][3] == "9"
    assert sizes["H100-SXM-80GB-MIG-3g.40gb"]["gpus"] == 9
    assert [size["relativePrice"]["h100Hours"] for size in sizes.values()] == [4, 5]


def test_names_of_sizes_are_what_plan_takes_and_wide_has_a_line_for_each(capsys: Capture) -> None:
    gpus = ("--gpus", "H100", "--gpus", "L40S")
    main(["size", LLAMA, *LOAD, *gpus, "-o", "name"])
    names = capsys.readouterr().out.splitlines()
    main(["size", LLAMA, *LOAD, *gpus, "-o", "wide"])
    header, *rows = capsys.readouterr().out.splitlines()

    found = _sizes(capsys, *LOAD, *gpus)
    assert names == [f"{size['nodes']['gpus']}x{size['gpu']}" for size in found]
    assert header.split()[:2] == ["GPU", "GPUS"]
    assert [row.split()[:2] for row in rows] == [[size["gpu"], str(size["gpus"])] for size in found]
    assert main(["plan", LLAMA, "--gpus", names[0], "-o", "name"]) == 0


def test_wide_tables_have_more_columns(capsys: Capture) -> None:
    for command, more in (
        ("models", ["ARCHITECTURE", "REVISION", "CONFIG", "FROM"]),
        ("gpus", ["VENDOR", "GPUS/NODE", "LINK", "GB/S"]),
    ):
        main([command])
        plain = capsys.readouterr().out.splitlines()[0].split()
        main([command, "-o", "wide"])
        assert capsys.readouterr().out.splitlines()[0].split() == [*plain, *more]


TWO = ("--gpus", "L40S", "--gpus", "H100")
BASES = {"L40S-48GB": "Listed", "H100-SXM-80GB": "Listed", "H20-96GB": "Assumed"}


def test_without_a_product_the_usual_ones_are_compared_and_the_table_says_so(
    capsys: Capture,
) -> None:
    assert main(["size", LLAMA, *LOAD]) == 0

    out = capsys.readouterr().out
    assert [gpu for gpu in USUAL if f"  {gpu} " not in out] == []
    assert " ".join(out.split()).count(ABOUT_USUAL) == 1
    main(["size", LLAMA, *LOAD, "--gpus", "H100"])
    assert ABOUT_USUAL not in " ".join(capsys.readouterr().out.split())


def _stating(folder: Path, prices: dict[str, float]) -> tuple[str, ...]:
    file = folder / "settings.json"
    file.write_text(json.dumps({"gpuHourPrices": prices}))
    return "--settings", str(file)


def _cheapest_first(capsys: Capture, *words: str) -> list[tuple[str, float | None, Any]]:
    return [
        (size["gpu"], size["hourPrice"], size["relativePrice"])
        for size in _sizes(capsys, *LOAD, *TWO, *words)
    ]


def test_the_cheapest_product_comes_first_by_prices_where_all_are_stated_else_beside_an_h100(
    capsys: Capture, tmp_path: Path
) -> None:
    """As ``plan`` compares them; what is relative is said, and what is assumed."""
    three = _sizes(capsys, *LOAD, *TWO, "--gpus", "H20-96GB")
    by_default = {size["gpu"]: size["relativePrice"] for size in three}
    by_some = _cheapest_first(capsys, *_stating(tmp_path, {"L40S-48GB": 1}))

    found = {size["gpu"]: size["gpus"] for size in three}
    l40s, h100 = found["L40S-48GB"], found["H100-SXM-80GB"]
    hours = {gpu: relative["h100Hours"] for gpu, relative in by_default.items()}
    assert (hours["L40S-48GB"], hours["H100-SXM-80GB"]) == (pytest.approx(0.35 * l40s), h100)
    assert list(hours.values()) == sorted(hours.values())
    assert {gpu: relative["basis"] for gpu, relative in by_default.items()} == BASES
    assert [gpu for gpu, *_ in by_some] == [gpu for gpu in by_default if gpu != "H20-96GB"]
    everything = _stating(tmp_path, {"L40S-48GB": 1.0, "H100-SXM-80GB": 0.1})
    assert _cheapest_first(capsys, *everything)[0][:2] == ("H100-SXM-80GB", 0.1 * h100)


def test_a_table_of_sizes_says_what_its_prices_are(capsys: Capture, tmp_path: Path) -> None:
    words = ("size", LLAMA, *LOAD, "--gpus", "H100")

    main([*words])
    assert "PRICE" not in capsys.readouterr().out  # one product is compared with nothing
    main([*words, "--gpus", "L40S"])
    relative = capsys.readouterr().out
    assert relative.splitlines()[0].endswith("are enough (cheapest by relative prices)")
    assert "PRICE" in relative
    assert "PRICE: an hour, one H100 = 1, by public lists" in " ".join(relative.split())
    main([*words, "--gpus", "L40S", *_stating(tmp_path, {"H100-SXM-80GB": 40, "L40S-48GB": 1})])
    stated = capsys.readouterr().out
    assert stated.splitlines()[0].endswith("x L40S-48GB are enough (cheapest)")
    assert "PER HOUR" in stated
    assert "PRICE" not in stated


def test_a_load_that_no_number_of_gpus_carries_ends_with_one_and_says_why(capsys: Capture) -> None:
    assert main(["size", LLAMA, "--tpot", "1ms", "--gpus", "T4"]) == 1

    assert "1,024 T4-16GB are not enough." in capsys.readouterr().out


LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"


def test_the_command_that_size_ends_with_plans_the_layout_that_it_has_found(
    capsys: Capture,
) -> None:
    words = ("--rps", "20", "--ttft", "2s", "--gpus", "B200")
    assert main(["size", LLAMA_70B, *words]) == 0
    out = capsys.readouterr().out
    _, _, said = out.partition("\nNext  ")
    command = shlex.split(said.replace("\\\n", " "))

    assert command[:3] == ["shardwright", "plan", LLAMA_70B]
    assert main([*command[1:], "-o", "json"]) == 0
    planned = json.loads(capsys.readouterr().out)["items"][0]["plan"]
    assert planned["carriesLoad"]
    assert f"{planned['gpus']} x B200-SXM-180GB are enough" in out


def test_the_command_that_size_ends_with_repeats_what_was_given(
    capsys: Capture, tmp_path: Path
) -> None:
    settings = tmp_path / "a `b` c.yaml"
    settings.write_text("policy: {requireRevision: Warn}\n")
    load = ["--rps", "1", "--nodes-of", "4", "--settings", str(settings)]
    assert main(["size", LLAMA, *load, "--gpus", "L40S"]) == 0
    _, _, said = capsys.readouterr().out.partition("\nNext  ")
    command = shlex.split(said.replace("\\\n", " "))

    for option, value in zip(load[::2], load[1::2], strict=True):
        assert command[command.index(option) + 1] == value


def test_size_says_the_load_and_the_objective_as_plan_does(capsys: Capture) -> None:
    load = ("--rps", "1", "--ttft", "2s")
    main(["size", LLAMA, *load, "--gpus", "L40S"])
    sized = capsys.readouterr().out.splitlines()
    main(["plan", LLAMA, *load, "--gpus", "1xL40S"])
    planned = [line.split() for line in capsys.readouterr().out.splitlines()]

    assert sized[1].split()[:5] == ["Load", "1", "request", "a", "second,"]
    assert sized[2].split()[0] == "Objective"
    assert [line for line in map(str.split, sized[1:3]) if line not in planned] == []


def test_the_document_of_size_has_the_request(capsys: Capture) -> None:
    main(["size", LLAMA, *LOAD, "--gpus", "L40S", "-o", "json"])

    request = json.loads(capsys.readouterr().out)["request"]
    assert request["workload"]["requestsPerSecond"] == 6
    assert request["objective"]["ttftMilliseconds"] == 2000


def test_gpus_that_do_not_carry_the_load_are_told_with_the_rate_that_they_serve(
    capsys: Capture,
) -> None:
    main(["size", LLAMA, "--rps", "20", "--gpus", "2xL40S"])

    assert re.search(
        r"serves [\d.]+ of 20 requests\s+a\s+second; \d+ x TP1 on \d+ GPUs\s+would\s+do",
        capsys.readouterr().out,
    )


def test_no_latency_is_told_of_a_layout_that_memory_rules_out(capsys: Capture) -> None:
    words = ("meta-llama/Llama-3.1-405B-Instruct", "--gpus", "8xH100", "--rps", "1")

    reasons = []
    for limit in ((), ("--ttft", "2s")):
        assert main(["plan", *words, *limit, "-o", "json"]) == 1
        (answer,) = json.loads(capsys.readouterr().out)["items"]
        reasons.append(answer["problem"]["code"])

    assert reasons == ["WeightsExceedMemory"] * 2


def test_a_model_that_is_only_shown_says_so_and_its_gpus_are_not_counted(
    tmp_path: Path, capsys: Capture
) -> None:
    models = [
        a_manifest(name="runs", model=LLAMA),
        a_manifest(name="shown", model=LLAMA, mode="PlanOnly"),
    ]
    file = tmp_path / "models.yaml"
    file.write_text(yaml.safe_dump_all(models))

    assert main(["plan", "-f", str(file), "--gpus", "2xH100"]) == 0

    out = capsys.readouterr().out
    assert out.count("PlanOnly: no pod is made, and no GPU is held") == 1
    assert re.search(r"2 models: 1 planned on [12] GPUs?, 1 only shown", out)


def test_a_column_of_the_list_of_models_that_says_nothing_is_left_out(capsys: Capture) -> None:
    main(["models", "llama-3.1-8b"])
    header, *rows = capsys.readouterr().out.splitlines()

    assert rows
    assert ("RELEASED" in header) == any(re.search(r"\d{4}-\d", row) for row in rows)


PINNED = ("--gpus", "8xH100", "--rps", "20", "--tp", "4", "--replicas", "2")


def test_a_pinned_layout_has_the_best_beside_it_in_text_and_as_data(capsys: Capture) -> None:
    assert main(["plan", LLAMA, *PINNED]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    main(["plan", LLAMA, *PINNED, "-o", "json"])
    (item,) = json.loads(capsys.readouterr().out)["items"]
    main(["plan", LLAMA, *PINNED[:4], "-o", "json"])
    (free,) = json.loads(capsys.readouterr().out)["items"]

    cut, gpus = "4 x TP1", free["plan"]["gpus"]
    assert any(line.startswith(f"Best {cut} on {gpus} H100-SXM-80GB by") for line in lines)
    best, pinned = (line for line in lines if line.endswith((" the best", " pinned")))
    assert (best.startswith(f"{cut} {gpus} "), pinned.startswith("2 x TP4 8 ")) == (True, True)
    assert item["best"]["standing"] == "Behind"
    assert item["best"]["cost"] == free["plan"]["gpus"] / 8
    assert item["best"]["plan"]["layout"] == free["plan"]["layout"]
    assert "best" not in free


def test_a_pinned_layout_without_a_plan_still_has_the_best_beside_it(capsys: Capture) -> None:
    assert main(["plan", LLAMA, "--gpus", "8xH100", "--tp", "16"]) == 1

    out = capsys.readouterr().out
    assert re.search(r"\n  Best +TP\d .* by Balanced;\s+the pinned layout has no\s+plan\n", out)


def test_a_layout_that_is_typed_takes_the_place_of_the_one_in_a_file(
    capsys: Capture, tmp_path: Path
) -> None:
    manifest = a_manifest("llama")
    manifest["spec"] |= {"parallelism": {"tensor": 8, "pipeline": 1}, "replicas": 1}
    Files(tmp_path).manifests(manifest)
    files = ["plan", "-f", str(tmp_path), "--gpus", "8xH100", "-o", "json"]

    assert main([*files, "--tp", "4", "--replicas", "2"]) == 0

    layout = json.loads(capsys.readouterr().out)["items"][0]["plan"]["layout"]
    assert (layout["tensor"], layout["pipeline"], layout["replicas"]) == (4, 1, 2)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("--tp", "0"),
            "error[OutOfRange]: --tp: 0 must be from 1 to 1,024, 1 too few; set it to 1 or more",
        ),
        (
            ("--pp", "-1"),
            "error[OutOfRange]: --pp: -1 must be from 1 to 1,024, 2 too few; set it to 1 or more",
        ),
        (
            ("--dp", "9999"),
            (
                "error[OutOfRange]: --dp: 9,999 must be from 1 to 1,024, 8,975 too many; set it to "
                "1,024 or less"
            ),
        ),
        (("--tp", "all"), 'error[WrongType]: --tp: "all" must be an integer; write for example 4'),
        (
            ("--ep", "3", "--tp", "2", "--dp", "2"),
            (
                "error[ExpertNotTensor]: --ep: --ep must be 1 or equal to --tp x --dp, with "
                "TensorRTLLM and SGLang also a divisor of that; set one of these, or remove --ep to "
                "have it planned"
            ),
        ),
    ],
)
def test_a_layout_that_cannot_be_is_refused_in_one_line(
    capsys: Capture, words: tuple[str, ...], line: str
) -> None:
    assert main(["plan", LLAMA, "--gpus", "8xH100", *words]) == 2

    assert _errors(capsys) == [line]


def test_an_engine_is_named_in_any_case(capsys: Capture) -> None:
    assert main(["plan", LLAMA, "--gpus", "8xH100", "--engine", "sglang"]) == 0

    assert "on SGLang 0.5.23" in capsys.readouterr().out
