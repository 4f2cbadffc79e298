"""What the command line says of the user's own fields: by their options if they were typed, by
their paths if they stand in a file.
"""

import json
from pathlib import Path

import pytest

from shardwright.cli.main import main
from tests.support.builders_cli import Files, a_manifest

Capture = pytest.CaptureFixture[str]

LLAMA = "meta-llama/Llama-3.1-70B-Instruct"
COSTLY = "without spec.parallelism.pipeline: TP4 on 4 H100-SXM-80GB, 50% cheaper"


def printed(capsys: Capture, *words: str) -> str:
    main(list(words))
    return " ".join(capsys.readouterr().out.split())


def test_a_typed_limit_is_named_by_its_option(capsys: Capture) -> None:
    out = printed(capsys, "plan", LLAMA, "--gpus", "8xH100", "--tpot", "3ms")

    assert "nothing fits. --tpot: time per output token of" in out
    assert "Way out it would fit without --tpot: TP4 on 4 H100-SXM-80GB" in out
    assert "spec." not in out


def test_a_limit_in_a_file_is_named_by_its_path(capsys: Capture, tmp_path: Path) -> None:
    file = Files(tmp_path).manifests(a_manifest(model=LLAMA, objective={"tpotMilliseconds": 3}))

    out = printed(capsys, "plan", "-f", file, "--gpus", "8xH100")

    assert "Way out it would fit without spec.objective.tpotMilliseconds: TP4 on 4" in out


@pytest.fixture
def pinned(tmp_path: Path) -> str:
    pins, budget = {"pipeline": 8}, {"gpus": 8}
    return Files(tmp_path).manifests(a_manifest(model=LLAMA, parallelism=pins, budget=budget))


def test_what_a_field_costs_is_in_explain_and_on_the_page(capsys: Capture, pinned: str) -> None:
    where = ("-f", pinned, "--gpus", "8xH100")

    assert f"What own fields cost • {COSTLY}" in printed(capsys, "explain", *where)
    assert COSTLY in printed(capsys, "report", *where)


def test_programs_read_the_field_the_gain_and_the_plan_without_it(
    capsys: Capture, pinned: str
) -> None:
    main(["plan", "-f", pinned, "--gpus", "8xH100", "-o", "json"])

    (found,) = json.loads(capsys.readouterr().out)["items"][0]["plan"]["without"]

    assert (found["fields"], found["gain"]) == (["spec.parallelism.pipeline"], "Cheaper")
    assert (found["layout"], found["gpus"], found["message"]) == ("TP4", 4, COSTLY)
    assert found["comparedWithPlan"]["price"] == 0.5
