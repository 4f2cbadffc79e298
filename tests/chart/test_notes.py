"""What the chart says in the end: a model, and a request to it that fits what becomes of the
model.
"""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from shardwright.cli.main import main
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.support.builders_chart import CHART, ROOT

FLEET = ROOT / "examples" / "fleet" / "nodes.yaml"
SOME = "--set=watchNamespaces={models,others}"


@pytest.fixture(scope="module")
def notes(control_plane: ControlPlane) -> str:
    return _notes(control_plane)


def test_the_last_command_asks_the_service_that_the_model_gets_for_the_model_that_it_serves(
    notes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.yaml"
    model.write_text(re.findall(r"<<EOF\n(.*?)  EOF\n", notes, re.DOTALL)[0])
    forwarded, port = re.findall(
        r"^  kubectl port-forward service/(\S+) (\d+) &$", notes, re.MULTILINE
    )[0]
    *_, asked = notes.split("\n  curl ")

    assert main(["render", "-f", str(model), "--nodes", str(FLEET)]) == 0
    objects = list(yaml.safe_load_all(capsys.readouterr().out))

    (service,) = (
        item["spec"]
        for item in objects
        if (item["kind"], item["metadata"]["name"]) == ("Service", forwarded)
    )
    assert [entry["port"] for entry in service["ports"]] == [int(port)]
    words = shlex.split(asked)
    assert words[1] == f"localhost:{port}/v1/completions"
    (group,) = (item for item in objects if item["kind"] == "StatefulSet")
    assert json.loads(words[words.index("-d") + 1])["model"] in json.dumps(
        group["spec"]["template"]["spec"]
    )


def test_the_last_line_of_the_notes_ends_the_request(notes: str) -> None:
    assert notes.rstrip().splitlines()[-2].startswith("  curl ")


def test_the_notes_say_where_nothing_binds_the_operator(
    control_plane: ControlPlane, notes: str
) -> None:
    without = _notes(control_plane, "--set=admissionPolicies.enabled=false")

    assert "in any namespace but operators and those of the system:" in notes
    assert "which model you want to serve:" in without


def test_the_notes_name_the_namespaces_that_are_served_and_every_command_is_about_the_first(
    control_plane: ControlPlane,
) -> None:
    said = _notes(control_plane, SOME)

    assert "It serves the ShardedModels of models, others and of no other namespace." in said
    assert "which model you want to serve, in one of these namespaces:" in said
    assert "It sees the pods" not in said
    commands = re.findall(r"^  kubectl (.*)", said, re.MULTILINE)
    assert [command for command in commands if not command.startswith("-n ")] == [
        "get role,rolebinding -A --field-selector metadata.name=shardwright-operator",
        "explain shardedmodel.spec                      # every field, with its bounds",
    ]
    assert {command.split()[1] for command in commands if command.startswith("-n ")} == {
        "operators",
        "models",
    }
    assert re.search(
        r"^  kubectl -n models port-forward service/qwen 8000 &\n  curl ", said, re.MULTILINE
    )


def test_the_notes_say_what_is_not_seen_where_pods_of_other_namespaces_may_not_be_listed(
    control_plane: ControlPlane,
) -> None:
    said = [
        _notes(control_plane, SOME, "--set=clusterPods=false", *more)
        for more in ((), ("--set=nodeSet=a",))
    ]

    costs = (
        "GPUs that pods of other namespaces use count as free, and groups that are planned on "
        "them wait."
    )
    assert [costs in text for text in said] == [True, True]
    assert "Give it nodes that nobody else uses (nodeSet)." in said[0]
    assert (
        "Give it nodes that nobody else uses, with the label shardwright.io/node-set=a." in said[1]
    )


def _notes(control_plane: ControlPlane, *arguments: str) -> str:
    words = (
        "install",
        "shardwright",
        str(CHART),
        "--namespace",
        "operators",
        "--dry-run=client",
        *NAMED,
        *arguments,
    )
    return control_plane.helm(*words).partition("NOTES:\n")[2]
