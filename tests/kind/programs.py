"""The programs of a kind node, built from pinned Go modules; those of the control plane are the
loopback harness's own.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.harness import build
from tests.kind import cache
from tests.kind.errors import UnavailableError
from tests.kind.shell import run, step

_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
_PLUGINS = "github.com/containernetworking/plugins/plugins"
_ROUTER, _ROUTER_VERSION = "github.com/cloudnativelabs/kube-router/v2", "v2.1.0"


@dataclass(frozen=True)
class Module:
    """A program that is its module's own: path, version, seconds of a cold build on two cores."""

    path: str
    version: str
    cold_seconds: int


_KUBERNETES = {
    "kubelet": 75,
    "kubeadm": 15,
    "kube-proxy": 15,
}  # cold seconds of a build after the control plane's
_MODULES = (
    Module("sigs.k8s.io/kind", "v0.33.0", 15),
    Module(f"{_CONTAINERD}/containerd", "v2.4.2", 60),
    Module(f"{_CONTAINERD}/containerd-shim-runc-v2", "v2.4.2", 10),
    Module(f"{_CONTAINERD}/ctr", "v2.4.2", 15),
    Module(f"{_PLUGINS}/main/ptp", "v1.9.1", 5),
    Module(f"{_PLUGINS}/main/loopback", "v1.9.1", 2),
    Module(f"{_PLUGINS}/ipam/host-local", "v1.9.1", 2),
    Module(f"{_PLUGINS}/meta/portmap", "v1.9.1", 2),
    Module(f"{_ROUTER}/cmd/kube-router", _ROUTER_VERSION, 60),
)
FIREWALL = "kube-router"
FIREWALL_IMAGE = f"shardwright-kind/{FIREWALL}:{_ROUTER_VERSION}"
"""What enforces NetworkPolicies on every node: kubeadm has no image for that."""

CNI = ("ptp", "loopback", "host-local", "portmap")
RUNTIME = "runc-unprivileged-limits"
_FOLDERS = {"coredns": "dns", RUNTIME: "runtime"}
_OURS = {"coredns": 45, RUNTIME: 2}
_STATIC = {"CGO_ENABLED": "0", "GOWORK": "off"}


def programs() -> Path:
    """The folder with all programs of a node, kind's own among them; built where it is not
    cached.
    """
    control_plane = build.binaries()
    key = cache.digest(
        *(cache.HERE / name for name in ("tools", "dns", "runtime")),
        cache.HERE / "node" / "pause.c",
        repr(_MODULES),
        repr(build._flags()),
    )
    return cache.made(f"programs-{key}", lambda target: _build(target, control_plane))


def _build(target: Path, control_plane: Path) -> None:
    go = build._go(Console(stderr=True))
    for name, seconds in _KUBERNETES.items():
        with step(f"building {name} {build.KUBERNETES_VERSION}", seconds):
            command = [
                go,
                "build",
                "-mod=readonly",
                *build._flags(),
                "-o",
                str(target / name),
                f"k8s.io/kubernetes/cmd/{name}",
            ]
            run(command, environment={**os.environ, **_STATIC}, folder=cache.HERE / "tools")
    for module in _MODULES:
        with step(f"building {module.path} {module.version}", module.cold_seconds):
            command = [
                go,
                "install",
                "-trimpath",
                "-ldflags",
                "-s -w",
                f"{module.path}@{module.version}",
            ]
            run(command, environment={**os.environ, **_STATIC, "GOBIN": str(target)})
    for name, seconds in _OURS.items():
        with step(f"building {name}", seconds):
            command = [go, "build", "-mod=readonly", *build._flags(), "-o", str(target / name), "."]
            run(command, environment={**os.environ, **_STATIC}, folder=cache.HERE / _FOLDERS[name])
    _compile_pause(target)
    for tool in build.TOOLS:
        shutil.copy2(control_plane / tool.name, target / tool.name)


def _compile_pause(target: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise UnavailableError(
            "kind needs a C compiler for the pause container (Debian: apt-get install gcc "
            "libc6-dev)"
        )
    run([compiler, "-static", "-Os", "-o", target / "pause", cache.HERE / "node" / "pause.c"])


def component_images(folder: Path) -> dict[str, str]:
    """The images that this kubeadm starts a control plane from, by the last part of their name:
    kube-proxy, etcd, pause, …
    """
    listed = run(
        [
            folder / "kubeadm",
            "config",
            "images",
            "list",
            "--kubernetes-version",
            build.KUBERNETES_VERSION,
        ]
    )
    return {
        image.rsplit("/", 1)[1].split(":")[0]: image for image in (*listed.split(), FIREWALL_IMAGE)
    }


def engine_spec(folder: Path, *seen: str) -> dict[str, Any]:
    """The base runtime specification of the handler `engine`: containerd's own, and folders of the
    node that only its pods see.
    """
    spec: dict[str, Any] = json.loads(run([folder / "ctr", "oci", "spec"]))
    spec["mounts"] += [
        {"destination": place, "type": "bind", "source": place, "options": ["rbind", "ro"]}
        for place in seen
    ]
    return spec
