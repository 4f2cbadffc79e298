"""`python -m release`: all that a user installs, into dist/release/, each proved by installing it.

`image` makes only the image, `lock` pins Debian's packages anew, `sign` and `publish` take what was
made before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from release import (
    chart,
    debian,
    elf,
    image,
    manifests,
    notes,
    plugin,
    python,
    registry,
    running,
    sbom,
    signing,
    workflows,
)
from release.places import OUT, VERSION, WORK, check_one_version
from release.signing import KEY_VARIABLE
from tests.harness import fleet
from tests.harness.controlplane import ControlPlane
from tests.harness.errors import HarnessError
from tests.kind.shell import say

T = TypeVar("T")

_LARGEST_BYTES = 150_000_000
"""Of the packages and our own files in an image, unpacked, without Debian's below them."""


def main() -> int:
    """Do what is typed and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument(
        "command", nargs="?", choices=tuple(_COMMANDS), default="all", help="default: all"
    )
    options = parser.parse_args()
    try:
        _COMMANDS[options.command]()
    except (HarnessError, AssertionError) as error:  # the second: something was waited for in vain
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


@dataclass
class Log:
    """What was done, how it came out, and how long it took, as a person reads it at the end."""

    lines: list[str] = field(default_factory=list)

    def did(self, what: str, work: Callable[[], T], show: Callable[[T], str] = str) -> T:
        """Do something, note it, and return what came of it."""
        began = time.monotonic()
        came = work()
        line = f"{what}: {show(came)} ({time.monotonic() - began:.0f} s)"
        self.lines.append(line)
        say(line)
        return came


def _image_alone() -> None:
    """Only the image, for `make image`: built and started."""
    log = Log()
    _empty(OUT)
    wheel = log.did("wheel", lambda: python.build(WORK / "python"), lambda file: file.name)
    images, _ = _images(log, image.OPERATOR, wheel)
    routers, _ = _images(log, image.ROUTER, None)
    root = WORK / "root" / "amd64"
    log.did("operator started", lambda: running.prove(image.unpacked(images[0], root)))
    log.did("router started", lambda: running.prove_router(image.unpacked(routers[0], root)))


def _all() -> None:
    check_one_version()
    log = Log()
    _empty(OUT)
    log.did("workflows", workflows.check)
    wheel = log.did("wheel and sdist", lambda: python.build(OUT), lambda file: file.name)
    images, layout = _images(log, image.OPERATOR, wheel)
    routers, of_routers = _images(log, image.ROUTER, None)
    packed = log.did("chart", lambda: chart.write(OUT), lambda file: file.name)
    manifests.write(OUT)
    notes.write(OUT)
    log.did(
        "kubectl plugin",
        lambda: plugin.write(wheel, OUT),
        lambda _: "two archives and a manifest for krew",
    )
    with registry.serving(WORK / "registry") as address, ControlPlane.start() as control_plane:
        control_plane.nodes.create(fleet.make("h100-8x-dell-xe9680", 2, taints=[]))
        reference, roots = _pushed(log, address, image.OPERATOR, layout, images)
        _, router_roots = _pushed(log, address, image.ROUTER, of_routers, routers)
        pulled = log.did(
            "chart pushed and pulled",
            lambda: chart.push_and_pull(packed, address),
            lambda file: file.name,
        )
        log.did("chart without an image", lambda: chart.refuses_without_image(pulled))
        log.did("kustomize base", lambda: manifests.prove(OUT, reference))
        log.did("CRD alone", lambda: _crd(control_plane))
        log.did("amd64 started", lambda: running.prove(roots["amd64"]))
        log.did("arm64 started", lambda: running.prove_emulated(roots["arm64"]))
        log.did("router started", lambda: running.prove_router(router_roots["amd64"]))
        log.did(
            "chart installed",
            lambda: chart.install(control_plane, pulled, reference),
            lambda _: "image by digest",
        )
        log.did("operator of the image", lambda: chart.serve(control_plane, roots["amd64"]))
        log.did("plugin installed", lambda: plugin.prove(OUT, control_plane.kubeconfig))
        log.did("wheel installed", lambda: python.prove(wheel, control_plane.kubeconfig))
    signing.write_checksums(OUT)
    log.did("signature", lambda: signing.sign(OUT))
    files = [f"{file.stat().st_size / 1e6:8.1f} MB  {file.name}" for file in sorted(OUT.iterdir())]
    say("\n".join(["", f"shardwright {VERSION}, in {OUT}:", *files, "", *log.lines]))


def _images(
    log: Log, recipe: image.Recipe, wheel: Path | None
) -> tuple[tuple[image.Built, ...], Path]:
    layout = WORK / "layout" / recipe.name
    images = log.did(
        f"image of the {recipe.name}",
        lambda: image.build(recipe, wheel, layout),
        lambda built: "; ".join(map(_sized, built)),
    )
    for built in images:
        if (own := sum(built.sizes[1:])) > _LARGEST_BYTES:
            raise HarnessError(
                f"the {built.architecture} image has {own / 1e6:.0f} MB of ours, more than "
                f"{_LARGEST_BYTES / 1e6:.0f}"
            )
    image.save(layout, OUT / recipe.archive)
    return images, layout


def _sized(built: image.Built) -> str:
    base, *own = (size / 1e6 for size in built.sizes)
    return f"{built.architecture} {sum(own):.0f} MB on {base:.0f} MB of Debian"


def _pushed(
    log: Log, address: str, recipe: image.Recipe, layout: Path, images: tuple[image.Built, ...]
) -> tuple[str, dict[str, Path]]:
    reference = log.did(
        f"{recipe.name} pushed", lambda: registry.push_image(address, recipe.name, layout)
    )
    return reference, {item.architecture: _pulled(log, recipe, reference, item) for item in images}


def _pulled(log: Log, recipe: image.Recipe, reference: str, built: image.Built) -> Path:
    folder = WORK / "root" / recipe.name / built.architecture
    root = registry.pull_image(reference, built.architecture, folder)
    log.did(
        f"{recipe.name} for {built.architecture} pulled",
        lambda: elf.check(root, built.architecture),
        lambda count: f"{count} ELF files for it",
    )
    file = OUT / f"shardwright-{recipe.name}-{VERSION}-{built.architecture}.cdx.json"
    log.did(
        f"{recipe.name} for {built.architecture} SBOM",
        lambda: sbom.write(recipe.name, built.architecture, root, built.digest, file),
        lambda count: f"{count} components",
    )
    return root


def _crd(control_plane: ControlPlane) -> str:
    control_plane.kubectl("apply", "--server-side", "-f", str(manifests.crds(OUT)))
    control_plane.kubectl(
        "wait", "--for=condition=Established", "crd/shardedmodels.shardwright.io", "--timeout=30s"
    )
    control_plane.kubectl("delete", "-f", str(manifests.crds(OUT)))  # the chart brings its own
    return "established"


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)


def _sign() -> None:
    if KEY_VARIABLE not in os.environ:
        raise HarnessError(
            f"{KEY_VARIABLE} names no private key; make one with `cosign generate-key-pair`"
        )
    signing.write_checksums(OUT)
    say(signing.sign(OUT))


def _publish() -> None:
    """Push images and chart to the registry that the environment names."""
    where = os.environ.get("REGISTRY", "").strip("/")
    if not where:
        raise HarnessError("REGISTRY names no registry; write it as registry.example/owner")
    if user := os.environ.get("REGISTRY_USER"):
        registry.login(where.partition("/")[0], user, os.environ.get("REGISTRY_PASSWORD", ""))
    for recipe in (image.OPERATOR, image.ROUTER):
        layout = WORK / "published" / recipe.name
        with tarfile.open(OUT / recipe.archive) as archive:
            archive.extractall(layout, filter="data")
        say(f"image {registry.push_image(where, recipe.name, layout)}")
    if (OUT / chart.NAME).exists():  # `make image` makes none
        chart.push(OUT / chart.NAME, where)
        say(f"chart oci://{where}/charts/shardwright, {VERSION}")


_COMMANDS = {
    "all": _all,
    "image": _image_alone,
    "lock": debian.lock,
    "sign": _sign,
    "publish": _publish,
}


if __name__ == "__main__":
    sys.exit(main())
