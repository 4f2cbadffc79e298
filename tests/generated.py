"""`python -m tests.generated`: write every generated file. `make generate` does so; nothing of it
needs a control plane.

`manifests/install.yaml` is the chart as Helm renders it, so Helm alone is built for it, where it is
not cached.
"""

import contextlib
import io
import os
import subprocess
from pathlib import Path

from charts.dashboards import documents as dashboards
from shardwright.cli.main import main as command
from tests.harness import build
from tests.support.chart_documents import documents as chart_documents
from tests.support.reference_pages import VARIABLES, pages
from tests.support.trtllm_table import documents as option_tables

ROOT = Path(__file__).parent.parent
CRD = "shardwright.io_shardedmodels.yaml"
NAMESPACE = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shardwright-system}\n"
IMAGE = "image.repository=registry.example/shardwright/operator"


def documents() -> dict[Path, str]:
    """Return what each generated file is to hold, but for what Helm renders."""
    for name in VARIABLES:
        os.environ.pop(name, None)
    crd = _crd()
    written = {ROOT / "docs" / name: text for name, text in pages().items()}
    return (
        written
        | {ROOT / "crds" / CRD: crd, ROOT / "charts/shardwright/files" / CRD: crd}
        | chart_documents()
        | dashboards()
        | option_tables()
    )


def _crd() -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        command(["crd"])
    return printed.getvalue()


def install_manifest() -> str:
    """Return the chart as Helm renders it, behind its namespace."""
    words = [
        "template",
        "shardwright",
        "charts/shardwright",
        "--namespace",
        "shardwright-system",
        "--skip-tests",
        "--set",
        IMAGE,
    ]
    done = subprocess.run(
        [build.helm(), *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return NAMESPACE + done.stdout


def main() -> None:
    """Write all of them; the chart's own files first, because Helm reads them."""
    for file, text in documents().items():
        file.write_text(text)
    (ROOT / "manifests" / "install.yaml").write_text(install_manifest())


if __name__ == "__main__":
    main()
