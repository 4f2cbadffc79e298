"""The chart as an OCI artifact: packed, pushed to a registry, pulled from it, and installed as it
was pulled.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Final

import yaml

from release import notes, running
from release.archive import packed
from release.places import CHART, ROOT, VERSION, WORK, epoch
from tests.harness import build
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import DeployedOperator
from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for
from tests.kind.shell import run

NAME: Final = f"shardwright-{VERSION}.tgz"
_CRD: Final = "shardwright.io_shardedmodels.yaml"
_NAMESPACE: Final = "shardwright-system"
_MODELS: Final = "/apis/shardwright.io/v1alpha1/namespaces/default/shardedmodels"
_MODEL: Final = {
    "apiVersion": "shardwright.io/v1alpha1",
    "kind": "ShardedModel",
    "metadata": {"name": "released"},
    "spec": {"model": {"id": "Qwen/Qwen2.5-7B-Instruct"}, "mode": "PlanOnly"},
}
_PLAN_SECONDS: Final = 60


def write(out: Path) -> Path:
    """Write the chart's archive; the same bytes for the same chart."""
    folder = WORK / "chart"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(CHART, folder)
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    described["annotations"] |= hub_annotations()
    (folder / "Chart.yaml").write_text(yaml.safe_dump(described, sort_keys=False))
    file = out / NAME
    file.write_bytes(packed(folder, epoch(), "shardwright/"))
    _helm("lint", file, "--set", "image.repository=registry.example/shardwright/operator")
    return file


def hub_annotations() -> dict[str, str]:
    """Return what Artifact Hub shows of this version: its changes, the kind, and the samples of it.

    It has no images and no links: nobody has published an image or a page whose address could stand
    there.
    """
    crd = yaml.safe_load((CHART / "files" / _CRD).read_text())["spec"]
    (version,) = crd["versions"]
    kind = {
        "kind": crd["names"]["kind"],
        "version": version["name"],
        "name": f"{crd['names']['plural']}.{crd['group']}",
        "displayName": "Sharded model",
        "description": "A model that is cut over GPUs and served.",
    }
    samples = [
        yaml.safe_load(file.read_text())
        for file in sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
    ]
    listed: dict[str, list[Any]] = {
        "changes": _changes(notes.section(VERSION)),
        "crds": [kind],
        "crdsExamples": samples,
    }
    said = {name: yaml.safe_dump(value, sort_keys=False) for name, value in listed.items()}
    said["prerelease"] = str("alpha" in version["name"]).lower()
    return {f"artifacthub.io/{name}": value for name, value in said.items()}


def _changes(section: str) -> list[str]:
    """Return the items of a section of the changelog, links as their text."""
    items = re.findall(r"^- (.*(?:\n  .*)*)", section, re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", item) for item in items)
    return [" ".join(item.split()) for item in plain]


def push(file: Path, registry: str, *options: str) -> None:
    """Push the chart to a registry."""
    _helm("push", file, f"oci://{registry}/charts", *options)


def push_and_pull(file: Path, address: str) -> Path:
    """Push the chart to a registry and return what is pulled from it."""
    folder = WORK / "pulled"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    push(file, address, "--plain-http")
    _helm(
        "pull",
        f"oci://{address}/charts/shardwright",
        "--version",
        VERSION,
        "--plain-http",
        "--destination",
        folder,
    )
    pulled = folder / NAME
    if pulled.read_bytes() != file.read_bytes():
        raise HarnessError("what is pulled from the registry is not the chart that was pushed")
    return pulled


def refuses_without_image(chart: Path) -> str:
    """Return what the chart says where nobody has named an image; raise where it renders."""
    try:
        _helm("template", "shardwright", chart)
    except HarnessError as error:
        said = [line for line in str(error).splitlines() if "image.repository is empty" in line]
        if said:
            return said[0].strip()
        raise
    raise HarnessError("the chart renders without image.repository")


def install(control_plane: ControlPlane, chart: Path, image: str) -> None:
    """Install the chart with the image by digest."""
    repository, _, digest = image.partition("@")
    named = ["--set", f"image.repository={repository}", "--set", f"image.digest={digest}"]
    control_plane.helm(
        "install",
        "shardwright",
        str(chart),
        "--namespace",
        _NAMESPACE,
        "--create-namespace",
        *named,
    )
    deployed = control_plane.api.get(
        f"/apis/apps/v1/namespaces/{_NAMESPACE}/deployments/shardwright"
    )
    (container,) = deployed["spec"]["template"]["spec"]["containers"]
    if container["image"] != image:
        raise HarnessError(f"the chart deploys {container['image']}, not {image}")


def serve(control_plane: ControlPlane, root: Path) -> str:
    """Run the operator of an image's files as its Deployment says, until it has planned a model;
    return what it planned.
    """
    with DeployedOperator(control_plane, _NAMESPACE, "shardwright", running.Root(root)) as operator:
        operator.leader()
        control_plane.api.create(_MODELS, _MODEL)

        def planned() -> str:
            operator.check()
            conditions = (
                control_plane.api.get(f"{_MODELS}/released").get("status", {}).get("conditions", [])
            )
            found = next(
                (
                    item
                    for item in conditions
                    if item["type"] == "Planned" and item["status"] != "Unknown"
                ),
                None,
            )
            return f"Planned {found['status']}, {found['reason']}" if found else ""

        return wait_for(planned, _PLAN_SECONDS, "the model to be planned")


def _helm(*words: str | Path) -> str:
    return run([build.binaries() / "helm", *words])
