"""Each sample gets, on the example fleet, the layout that it states in its ``# expect:`` line; all
together, too.
"""

import io
import json
from contextlib import redirect_stdout
from functools import cache
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
    line = next(line for line in sample.read_text().splitlines() if line.startswith("# expect: "))
    return dict(word.split("=") for word in line.removeprefix("# expect: ").split())


def _shown(document: dict[str, Any]) -> dict[str, str]:
    plan = document["plan"]
    layout = plan.get("layout", {})
    shown = {name: str(layout[name]) for name in ("tensor", "pipeline") if name in layout}
    return (
        shown | ({"nodes": str(plan["nodes"])} if layout else {}) | {"outcome": document["reason"]}
    )


def _stated(sample: Path) -> dict[str, str]:
    expected = _expected(sample)
    return expected | {"outcome": REASONS[expected["outcome"]]}


@cache  # each sample is asked for twice
def _printed(*files: Path) -> str:
    named = [word for file in files for word in ("-f", str(file))]
    with redirect_stdout(io.StringIO()) as out:
        # The demo's cluster has no ComputeDomains.
        without = ("--without", "ComputeDomain")
        main(["plan", *named, "--nodes", str(FLEET), *without, "-o", "json"])
    return out.getvalue()


def _plan(*files: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_printed(*files))["items"]
    return found


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
@pytest.mark.long("plans on all nodes of the fleet, and without own fields")
def test_a_sample_gets_the_layout_that_it_states(sample: Path) -> None:
    [document] = _plan(sample)

    assert document["metadata"]["name"] == sample.stem
    assert _shown(document) == _stated(sample)
    assert document["plan"].get("carriesLoad", True)


def test_the_example_of_tensorrt_llm_gets_two_nodes() -> None:
    [document] = _plan(ROOT / "examples" / "tensorrt-llm" / "llama-405b.yaml")

    assert _shown(document) == {"tensor": "8", "pipeline": "2", "nodes": "2", "outcome": "Planned"}


@pytest.mark.long("plans all samples")
def test_all_samples_fit_the_fleet_together() -> None:
    """What one keeps is not there for the next, as in the demo."""
    documents = _plan(*SAMPLES)

    assert [_shown(document) for document in documents] == [_stated(sample) for sample in SAMPLES]


@cache
def _taints() -> dict[str, tuple[dict[str, str], ...]]:
    """Return the taints of all nodes of the fleet, by name."""
    items = yaml.load(FLEET.read_text(), yaml.CSafeLoader)["items"]
    return {
        item["metadata"]["name"]: tuple(item["spec"].get("taints", ()))
        for item in items
        if item["kind"] == "Node"
    }


def _tolerates(toleration: dict[str, str], taint: dict[str, str]) -> bool:
    same_key = toleration.get("key") in {None, taint["key"]}
    same_value = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get(
        "value", ""
    )
    return same_key and same_value and toleration.get("effect") in {None, taint["effect"]}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_rendered_pods_tolerate_the_taints_of_their_nodes(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if _expected(sample)["outcome"] not in {"Ready", "PlanOnly"}:
        assert main(["render", "-f", str(sample), "--nodes", str(FLEET)]) == 1
        return
    [document] = _plan(sample)
    assert main(["render", "-f", str(sample), "--nodes", str(FLEET)]) == 0

    sets = [
        item
        for item in yaml.load_all(capsys.readouterr().out, yaml.CSafeLoader)
        if item["kind"] == "StatefulSet"
    ]
    tolerations = sets[0]["spec"]["template"]["spec"]["tolerations"]
    taints = [taint for node in document["plan"]["placement"]["nodes"] for taint in _taints()[node]]
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
        item for item in items if item["kind"] == "Pod" and item["status"]["phase"] == "Running"
    ]

    assert nodes[example_fleet.CORDONED]["spec"]["unschedulable"]
    assert nodes[example_fleet.NOT_READY]["status"]["conditions"][0]["status"] == "Unknown"
    assert [pod["spec"]["nodeName"] for pod in pods] == [example_fleet.HALF_HELD]
    assert (
        sum("nvidia.com/gpu.clique" in node["metadata"]["labels"] for node in nodes.values()) == 18
    )
