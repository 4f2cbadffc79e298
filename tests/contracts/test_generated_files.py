"""Generated files agree with what they are generated from."""

from pathlib import Path

import pytest
import yaml

from shardwright.cli.main import main
from tests.harness import build
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED

ROOT = Path(__file__).parent.parent.parent
CRD = "shardwright.io_shardedmodels.yaml"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shardwright-system"}}


def test_the_crd_agrees_with_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd"]) == 0
    assert capsys.readouterr().out == (ROOT / "crds" / CRD).read_text()


def test_the_chart_carries_the_same_crd() -> None:
    assert (ROOT / "charts" / "shardwright" / "files" / CRD).read_text() == (ROOT / "crds" / CRD).read_text()


@pytest.mark.controlplane
def test_the_install_manifest_is_what_the_chart_renders(control_plane: ControlPlane) -> None:
    chart = str(ROOT / "charts" / "shardwright")
    rendered = control_plane.helm("template", "shardwright", chart, "--namespace", "shardwright-system", "--skip-tests", *NAMED)

    written = list(yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text()))

    assert written == [NAMESPACE, *yaml.safe_load_all(rendered)]
    assert build.binaries() == control_plane.bin
