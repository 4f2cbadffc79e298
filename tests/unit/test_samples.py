"""Each sample gets, on the example fleet, the layout that it states in its ``# expect:`` line; all
together, too.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.cli.main import main
from tests.support import example_fleet

ROOT = Path(__file__).parents[2]
FLEET = ROOT / "examples" / "fleet" / "nodes.yaml"
SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
REASONS = {"Ready": "Planned", "PlanOnly": "PlanOnly", "NothingFits": "NothingFits"}
"""Outcome on a cluster (reason of Ready, or Ready itself) to the reason that the command line
gives.
"""


def _expected(sample: Path) -> dict[str, str]:
    line = next(
        line
        for line in sample.read_text().splitlines()
        if line.startswith("# expect: ")
    )
    return dict(word.split("=") for word in line.removeprefix("# expect: ").split())


def _shown(document: dict[str, Any]) -> dict[str, str]:
    plan = document["plan"]
    layout = plan.get("layout", {})
    shown = {
        name: str(layout[name]) for name in ("tensor", "pipeline") if name in layout
    }
    return (
        shown
        | ({"nodes": str(plan["nodes"])} if layout else {})
        | {"outcome": document["reason"]}
    )


def _stated(sample: Path) -> dict[str, str]:
    expected = _expected(sample)
    return expected | {"outcome": REASONS[expected["outcome"]]}


def _plan(capsys: pytest.CaptureFixture[str], *files: Path) -> list[dict[str, Any]]:
    named = [word for file in files for word in ("-f", str(file))]
    main(["plan", *named, "--nodes", str(FLEET), "-o", "json"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["items"]
    return found


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_sample_gets_the_layout_that_it_states(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [document] = _plan(capsys, sample)

    assert document["metadata"]["name"] == sample.stem
    assert _shown(document) == _stated(sample)
    assert document["plan"].get("carriesLoad", True)


def test_the_example_of_tensorrt_llm_gets_two_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [document] = _plan(capsys, ROOT / "examples" / "tensorrt-llm" / "llama-405b.yaml")

    assert _shown(document) == {
        "tensor": "8",
        "pipeline": "2",
        "nodes": "2",
        "outcome": "Planned",
    }


def test_all_samples_fit_the_fleet_together(capsys: pytest.CaptureFixture[str]) -> None:
    """What one keeps is not there for the next, as in the demo."""
    documents = _plan(capsys, *SAMPLES)

    assert [_shown(document) for document in documents] == [
        _stated(sample) for sample in SAMPLES
    ]


def _taints_of(node: str) -> Iterator[dict[str, str]]:
    nodes = {
        item["metadata"]["name"]: item
        for item in yaml.safe_load(FLEET.read_text())["items"]
        if item["kind"] == "Node"
    }
    yield from nodes[node]["spec"].get("taints", ())


def _tolerates(toleration: dict[str, str], taint: dict[str, str]) -> bool:
    same_key = toleration.get("key") in {None, taint["key"]}
    same_value = toleration.get("operator") == "Exists" or toleration.get(
        "value", ""
    ) == taint.get("value", "")
    return (
        same_key and same_value and toleration.get("effect") in {None, taint["effect"]}
    )


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_rendered_pods_tolerate_the_taints_of_their_nodes(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if _expected(sample)["outcome"] not in {"Ready", "PlanOnly"}:
        assert main(["render", "-f", str(sample), "--nodes", str(FLEET)]) == 1
        return
    [document] = _plan(capsys, sample)
    assert main(["render", "-f", str(sample), "--nodes", str(FLEET)]) == 0

    sets = [
        item
        for item in yaml.safe_load_all(capsys.readouterr().out)
        if item["kind"] == "StatefulSet"
    ]
    tolerations = sets[0]["spec"]["template"]["spec"]["tolerations"]
    taints = [
        taint
        for node in document["plan"]["placement"]["nodes"]
        for taint in _taints_of(node)
    ]
    assert [
        taint
        for taint in taints
        if not any(_tolerates(toleration, taint) for toleration in tolerations)
    ] == []


def test_the_example_fleet_is_current() -> None:
    """Regenerate it with: python -m tests.support.example_fleet > examples/fleet/nodes.yaml."""
    assert FLEET.read_text() == example_fleet.fleet_yaml()


def test_the_example_fleet_has_what_the_demo_shows() -> None:
    items = example_fleet.fleet()["items"]
    nodes = {item["metadata"]["name"]: item for item in items if item["kind"] == "Node"}
    pods = [
        item
        for item in items
        if item["kind"] == "Pod" and item["status"]["phase"] == "Running"
    ]

    assert nodes[example_fleet.CORDONED]["spec"]["unschedulable"]
    assert (
        nodes[example_fleet.NOT_READY]["status"]["conditions"][0]["status"] == "Unknown"
    )
    assert [pod["spec"]["nodeName"] for pod in pods] == [example_fleet.HALF_HELD]
    assert (
        sum(
            "nvidia.com/gpu.clique" in node["metadata"]["labels"]
            for node in nodes.values()
        )
        == 18
    )
