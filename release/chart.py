"""The chart as an OCI artifact: packed, pushed to a registry, pulled from it, and installed as it
was pulled.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from release import running
from release.archive import packed
from release.places import CHART, VERSION, WORK, epoch
from tests.harness import build
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import DeployedOperator
from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for
from tests.kind.shell import run

NAME: Final = f"shardwright-{VERSION}.tgz"
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
    file = out / NAME
    file.write_bytes(packed(CHART, epoch(), "shardwright/"))
    _helm(
        "lint", file, "--set", "image.repository=registry.example/shardwright/operator"
    )
    return file


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
        raise HarnessError(
            "what is pulled from the registry is not the chart that was pushed"
        )
    return pulled


def refuses_without_image(chart: Path) -> str:
    """Return what the chart says where nobody has named an image; raise where it renders."""
    try:
        _helm("template", "shardwright", chart)
    except HarnessError as error:
        said = [
            line
            for line in str(error).splitlines()
            if "image.repository is empty" in line
        ]
        if said:
            return said[0].strip()
        raise
    raise HarnessError("the chart renders without image.repository")


def install(control_plane: ControlPlane, chart: Path, image: str) -> None:
    """Install the chart with the image by digest."""
    repository, _, digest = image.partition("@")
    named = [
        "--set",
        f"image.repository={repository}",
        "--set",
        f"image.digest={digest}",
    ]
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
    with DeployedOperator(
        control_plane, _NAMESPACE, "shardwright", running.Root(root)
    ) as operator:
        operator.leader()
        control_plane.api.create(_MODELS, _MODEL)

        def planned() -> str:
            operator.check()
            conditions = (
                control_plane.api.get(f"{_MODELS}/released")
                .get("status", {})
                .get("conditions", [])
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
