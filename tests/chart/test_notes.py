"""What the chart says in the end: a model, and a request to it that fits what becomes of the model."""

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


@pytest.fixture(scope="module")
def notes(control_plane: ControlPlane) -> str:
    return _notes(control_plane)


def test_the_last_command_asks_the_service_that_the_model_gets_for_the_model_that_it_serves(
    notes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.yaml"
    model.write_text(re.findall(r"<<EOF\n(.*?)  EOF\n", notes, re.DOTALL)[0])
    forwarded, port = re.findall(r"^  kubectl port-forward service/(\S+) (\d+) &$", notes, re.MULTILINE)[0]
    *_, asked = notes.split("\n  curl ")

    assert main(["render", "-f", str(model), "--nodes", str(FLEET)]) == 0
    objects = list(yaml.safe_load_all(capsys.readouterr().out))

    (service,) = (item["spec"] for item in objects if (item["kind"], item["metadata"]["name"]) == ("Service", forwarded))
    assert [entry["port"] for entry in service["ports"]] == [int(port)]
    words = shlex.split(asked)
    assert words[1] == f"localhost:{port}/v1/completions"
    (group,) = (item for item in objects if item["kind"] == "StatefulSet")
    assert json.loads(words[words.index("-d") + 1])["model"] in json.dumps(group["spec"]["template"]["spec"])


def test_the_last_line_of_the_notes_ends_the_request(notes: str) -> None:
    assert notes.rstrip().splitlines()[-2].startswith("  curl ")


def test_the_notes_say_where_nothing_binds_the_operator(control_plane: ControlPlane, notes: str) -> None:
    without = _notes(control_plane, "--set=admissionPolicies.enabled=false")

    assert "in any namespace but operators and those of the system:" in notes
    assert "which model you want to serve:" in without


def _notes(control_plane: ControlPlane, *arguments: str) -> str:
    words = ("install", "shardwright", str(CHART), "--namespace", "operators", "--dry-run=client", *NAMED, *arguments)
    return control_plane.helm(*words).partition("NOTES:\n")[2]
