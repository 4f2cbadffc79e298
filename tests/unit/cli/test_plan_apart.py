"""What is printed of a question for prompts and answers apart can be applied as it stands."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.cli.main import main
from tests.support.builders_cli import Files, a_manifest

Capture = pytest.CaptureFixture[str]
GPUS = ("--gpus", "16xH100", "--network", "400")
TYPED = ("Qwen/Qwen3-8B", *GPUS)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.chdir(tmp_path)
    return Files(tmp_path)


def asking(apart: str, **spec: Any) -> dict[str, Any]:
    fields = {"disaggregation": {"mode": apart}, "routing": {"mode": "Router"}}
    return a_manifest("llama", "Qwen/Qwen3-8B", **fields, **spec)


def printed(capsys: Capture, *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_the_manifest_of_a_pair_that_is_taken_is_that_of_its_halves(capsys: Capture) -> None:
    found = yaml.safe_load_all(
        printed(capsys, "plan", *TYPED, "--disaggregation", "on", "-o", "manifest")
    )

    assert [item["spec"]["phase"] for item in found] == ["Prefill", "Decode"]


def test_the_manifest_of_whole_groups_asks_for_no_pair(capsys: Capture) -> None:
    [item] = yaml.safe_load_all(
        printed(capsys, "plan", *TYPED, "--disaggregation", "Auto", "-o", "manifest")
    )

    assert item["spec"] == {"model": {"id": "Qwen/Qwen3-8B"}}


@pytest.mark.parametrize(
    ("asked", "following"),
    [
        (
            asking("On"),
            "Next shardwright render -f {} --gpus 16xH100 --network 400 | kubectl apply",
        ),
        (asking("Auto"), "Next shardwright explain -f {}"),
        (asking("On", mode="PlanOnly"), "Next kubectl apply -f {}"),
        (asking("Off"), "Next kubectl apply -f {}"),
    ],
    ids=["taken", "not taken", "only planned", "not asked"],
)
def test_a_file_that_the_operator_would_refuse_is_not_to_be_applied(
    asked: dict[str, Any], following: str, files: Files, capsys: Capture
) -> None:
    model = files.manifests(asked)

    told = printed(capsys, "plan", "-f", model, *GPUS)

    assert following.format(model) in " ".join(told.replace("\\", "").split())


def test_a_pair_without_whole_groups_is_a_plan(capsys: Capture) -> None:
    load = ("--input-tokens", "8192", "--output-tokens", "1024", "--concurrency", "512")
    gpus = ("--gpus", "64xB200", "--network", "400", "--tpot", "20ms")
    asked = ("meta-llama/Llama-3.1-70B-Instruct", *gpus, *load, "--disaggregation", "Auto")

    told = printed(capsys, "plan", *asked)

    assert "no whole groups fit, and a pair is taken. --tpot" in " ".join(told.split())
    assert " -o manifest | kubectl apply -f -" in " ".join(told.replace("\\", "").split())
