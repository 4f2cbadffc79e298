"""The install manifest is the chart as Helm renders it; test_pages.py compares the other generated
files.
"""

from pathlib import Path

import pytest
import yaml

from tests.generated import install_manifest
from tests.harness import build
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED

ROOT = Path(__file__).parent.parent.parent
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shardwright-system"}}


@pytest.mark.controlplane
def test_the_install_manifest_is_what_the_chart_renders(control_plane: ControlPlane) -> None:
    chart = str(ROOT / "charts" / "shardwright")
    rendered = control_plane.helm(
        "template",
        "shardwright",
        chart,
        "--namespace",
        "shardwright-system",
        "--skip-tests",
        *NAMED,
    )

    written = (ROOT / "manifests" / "install.yaml").read_text()

    assert list(yaml.safe_load_all(written)) == [NAMESPACE, *yaml.safe_load_all(rendered)]
    assert written == install_manifest()
    assert build.binaries() == control_plane.bin
