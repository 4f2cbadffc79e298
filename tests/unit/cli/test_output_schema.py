"""What the command line prints for programs is what docs/reference/output.schema.json says."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from shardwright.api.group_version import API_VERSION
from shardwright.cli.diff import difference_document
from shardwright.cli.doctor import document as diagnosis
from shardwright.cli.doctor_checks import examine
from shardwright.cli.main import main
from shardwright.cli.model_state import read_pods, standing_of
from shardwright.cli.operator_plan import document as plan_document
from shardwright.cli.rollout import print_history, shown_revisions
from shardwright.cli.status import document
from shardwright.cli.taking_stock import TakenStock
from shardwright.reconcile.members import Failure
from shardwright.reconcile.revisions import revisions_of
from tests.support.builders_cli import Files, a_listed_node, a_manifest
from tests.support.builders_live import a_live_model
from tests.support.builders_reconcile import NOON
from tests.support.builders_snapshot import ONE_NODE, TWO_NODES, Operator
from tests.support.small_cluster import SmallCluster
from tests.unit.cli.test_rehearsal import a_difference, serving

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "output.schema.json").read_text())
Capture = pytest.CaptureFixture[str]


def check(printed: Any, kind: str) -> None:
    """Fail where a document is not of a kind, as the schema has it."""
    schema = {**SCHEMA, "oneOf": [{"$ref": f"#/$defs/{kind}"}]}
    jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(printed)))


def as_list(kind: str, *items: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": f"{kind}List", "items": list(items)}


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_how_models_stand() -> None:
    cluster = SmallCluster()
    cluster.add_nodes(2)
    operator = Operator(cluster, TWO_NODES)
    operator.run(20)
    model = a_live_model(operator)
    standing = standing_of(
        model.content,
        read_pods(operator.cluster.sets().values(), model.pods or ()),
        operator.cluster.now,
    )
    hidden = standing_of(model.content, {}, NOON)
    failure = Failure(rank=1, reason="Evicted")
    groups = tuple(replace(group, failure=failure) for group in standing.groups)
    failed = replace(standing, groups=groups)

    check(
        as_list(
            "ModelStanding", *(document(item, "shardwright") for item in (standing, hidden, failed))
        ),
        "ModelStandingList",
    )
    check(as_list("PlanReport", plan_document(model)), "PlanReportList")


def test_differences() -> None:
    operator = serving({**ONE_NODE, "replicas": 2})

    check(
        as_list("ModelDiff", difference_document(a_difference(operator, replicas=1))),
        "ModelDiffList",
    )
    check(
        as_list(
            "ModelDiff", difference_document(a_difference(operator, parallelism={"pipeline": 4}))
        ),
        "ModelDiffList",
    )


def test_imports(capsys: Capture) -> None:
    assert main(["import", "-f", str(ROOT / "tests" / "data" / "imports"), "-o", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)

    check(printed, "ImportList")
    assert len(printed["items"]) == 13


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_revisions(form: str, capsys: Capture) -> None:
    shown = [a_revision(1, runs=False), a_revision(2, runs=True)]

    found = revisions_of({"revisions": shown})
    print_history(shown_revisions(shown, found, {}), form)

    printed = yaml.safe_load(capsys.readouterr().out)  # which reads JSON, too
    check(printed, "RevisionList")
    assert [(item["revision"], item["runs"]) for item in printed["items"]] == [
        (1, False),
        (2, True),
    ]


def a_revision(number: int, *, runs: bool) -> dict[str, Any]:
    return {
        "revision": number,
        "hash": "a",
        "digest": "b",
        "image": "i",
        "keptAt": "2026-11-24T12:00:00Z",
        "runs": runs,
    }


def test_a_diagnosis() -> None:
    stock = TakenStock(
        now=NOON,
        program="shardwright",
        version={"major": "1", "minor": "30"},
        served=False,
        operators=(),
    )

    printed = {"apiVersion": API_VERSION, "kind": "Diagnosis", **diagnosis(examine(stock))}

    check(printed, "Diagnosis")
    assert [one["result"] for one in printed["checks"]][:4] == ["Wrong", "Wrong", "Wrong", "Unread"]


@pytest.mark.parametrize(
    ("command", "kind", "least"), [("models", "ModelList", 200), ("gpus", "GpuList", 40)]
)
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_is_known_is_a_list_however_much_is_in_it(
    command: str, kind: str, least: int, form: str, capsys: Capture
) -> None:
    counts = []
    for search in (
        "",
        "b200-sxm" if command == "gpus" else "meta-llama/llama-3.1-405b-instruct",
        "no such thing",
    ):
        assert main([command, search, "-o", form]) == 0
        text = capsys.readouterr().out
        printed = json.loads(text) if form == "json" else yaml.safe_load(text)
        check(printed, kind)
        counts.append(len(printed["items"]))

    assert counts[0] >= least
    assert counts[1:] == [1, 0]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_version_names_what_it_knows(form: str, capsys: Capture) -> None:
    assert main(["version", "-o", form]) == 0

    printed = yaml.safe_load(capsys.readouterr().out)
    check(printed, "Version")
    assert [engine["name"] for engine in printed["engines"]] == ["vLLM", "TensorRT-LLM", "SGLang"]


def test_plans_and_problems(tmp_path: Path, capsys: Capture) -> None:
    files = Files(tmp_path)
    words = ["plan", "-f", files.manifests(a_manifest()), "-o", "json", "--nodes"]
    assert main([*words, files.cluster([a_listed_node("n1")])]) == 0
    check(json.loads(capsys.readouterr().out), "PlanReportList")
    assert main(["explain", *words[1:], files.cluster([a_listed_node("n1")])]) == 0
    check(json.loads(capsys.readouterr().out), "PlanExplanationList")
    assert main(["size", "Qwen/Qwen2.5-7B-Instruct", "--gpus", "L40S", "-o", "json"]) == 0
    check(json.loads(capsys.readouterr().out), "GpuSizes")

    assert main([*words, "none.yaml"]) == 2
    check(json.loads(capsys.readouterr().out), "ProblemList")


@pytest.mark.parametrize(("pipeline", "code"), [(8, 0), (64, 1)])
def test_plans_without_a_field_of_the_users_own(
    pipeline: int, code: int, tmp_path: Path, capsys: Capture
) -> None:
    pinned = Files(tmp_path).manifests(a_manifest(parallelism={"pipeline": pipeline}))

    assert main(["explain", "-f", pinned, "--gpus", "8xH100", "-o", "json"]) == code

    printed = json.loads(capsys.readouterr().out)
    assert printed["items"][0]["plan"]["without"]
    check(printed, "PlanExplanationList")
