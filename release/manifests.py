"""The objects without Helm: one manifest, the CRD alone, and a kustomize base."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from release.archive import packed
from release.places import CHART, ROOT, VERSION, WORK, epoch
from tests.harness import build
from tests.harness.errors import HarnessError
from tests.kind.shell import run

PLACEHOLDER: Final = "registry.example/shardwright/operator"
_NAMESPACE: Final = "shardwright-system"
_BASE: Final = f"shardwright-kustomize-{VERSION}.tar.gz"
_CRDS: Final = f"shardwright-crds-{VERSION}.yaml"


def write(out: Path) -> None:
    """Write the CRD, and the base: all objects, and the image as a name that an overlay
    replaces.
    """
    shutil.copy(ROOT / "crds" / "shardwright.io_shardedmodels.yaml", out / _CRDS)
    base = WORK / "kustomize"
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    for name in ("install.yaml", "kustomization.yaml"):
        shutil.copy(ROOT / "manifests" / name, base / name)
    (out / _BASE).write_bytes(packed(base, epoch(), "shardwright/"))


def prove(out: Path, image: str) -> str:
    """Build an overlay of the base, with the image by digest, and compare it with the chart; return
    what came of it.
    """
    home = WORK / "kustomize-try"
    shutil.rmtree(home, ignore_errors=True)
    shutil.unpack_archive(out / _BASE, home, filter="data")
    repository, _, digest = image.partition("@")
    overlay = {
        "resources": ["../shardwright"],
        "images": [{"name": PLACEHOLDER, "newName": repository, "digest": digest}],
    }
    (home / "overlay").mkdir()
    (home / "overlay" / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    tools = build.binaries()
    made = read(run([tools / "kubectl", "kustomize", home / "overlay"]))
    named = ["--set", f"image.repository={repository}", "--set", f"image.digest={digest}"]
    rendered = read(
        run(
            [
                tools / "helm",
                "template",
                "shardwright",
                CHART,
                "--namespace",
                _NAMESPACE,
                "--skip-tests",
                *named,
            ]
        )
    )
    rendered.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}})
    if differing := sorted(_differing(rendered, made)):
        raise HarnessError(
            f"the kustomize base is not what the chart renders: {', '.join(differing)}"
        )
    return f"an overlay of it is the {len(made)} objects that the chart renders"


def read(text: str) -> list[dict[str, Any]]:
    """Return the objects of a YAML stream."""
    return [item for item in yaml.safe_load_all(text) if item]


def crds(out: Path) -> Path:
    """Return the file of the CRD alone."""
    return out / _CRDS


def _differing(rendered: list[dict[str, Any]], made: list[dict[str, Any]]) -> Iterator[str]:
    ours, theirs = (
        {f"{item['kind']}/{item['metadata']['name']}": item for item in items}
        for items in (rendered, made)
    )
    return (name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
