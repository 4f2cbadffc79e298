"""Debian as base images, from the package mirror that this machine's apt uses."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.harness.errors import HarnessError
from tests.kind import cache
from tests.kind.docker import Docker
from tests.kind.errors import UnavailableError
from tests.kind.shell import run, step

SUITE = "bookworm"

NODE = (
    *(
        "ca-certificates",
        "conntrack",
        "curl",
        "dbus",
        "ebtables",
        "ethtool",
        "hostname",
        "iproute2",
        "ipset",
        "iptables",
    ),
    *(
        "kmod",
        "libseccomp2",
        "mount",
        "nftables",
        "procps",
        "runc",
        "socat",
        "systemd",
        "systemd-sysv",
        "util-linux",
    ),
)
"""What a node needs beside the minimal system: systemd, the tools of kube-proxy and kubeadm, runc.
"""

PYTHON = ("ca-certificates", "python3", "python3-pip", "python3-venv")
"""What the operator's Dockerfile needs of its base."""

ENGINE = (
    "ca-certificates",
    "gcc",
    "g++",
    "libc6-dev",
    "libgomp1",
    "libnuma1",
    "libpython3.11-dev",
    "procps",
    "python3",
)
"""What an engine in a folder needs at run time: Python, and a compiler with Python's headers, or
requests hang.
"""

MPI = ("iproute2", "openmpi-bin", "openssh-client", "openssh-server", "procps", "python3")
"""What an image of TensorRT-LLM has beside the engine: Open MPI, ssh and its server."""


def root(docker: Docker, name: str, packages: tuple[str, ...]) -> str:
    """The name of an image with the minimal Debian and these packages; made where Docker has
    none.
    """
    image = f"shardwright-kind/{name}-root:{cache.digest(SUITE, *packages)}"
    if not docker.has(image):
        with step(f"making a Debian root for {name}", 45):
            _make(docker, image, packages)
    return image


def _make(docker: Docker, image: str, packages: tuple[str, ...]) -> None:
    folder = cache.folder() / f"root.building-{os.getpid()}"
    downloads = cache.folder() / "debs"
    downloads.mkdir(exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        options = [
            "--variant=minbase",
            f"--include={','.join(packages)}",
            f"--cache-dir={downloads}",
        ]
        run(["debootstrap", *options, SUITE, folder, _mirror()])
        shutil.rmtree(folder / "var/cache/apt/archives", ignore_errors=True)
        shutil.rmtree(folder / "usr/share/doc", ignore_errors=True)
        _import(docker, folder, image)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _import(docker: Docker, folder: Path, image: str) -> None:
    with subprocess.Popen(
        ["tar", "-C", str(folder), "--numeric-owner", "-c", "."], stdout=subprocess.PIPE
    ) as packing:
        docker("import", "-", image, data=packing.stdout)
    if packing.returncode != 0:
        raise HarnessError(f"packing {folder} failed with exit code {packing.returncode}")


def _mirror() -> str:
    """The mirror that apt is set up with for our suite; its address is written nowhere."""
    listed = run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(RELEASE) $(COMPONENT) $(REPO_URI)",
            "Created-By: Packages",
        ]
    )
    for line in listed.splitlines():
        release, component, address = line.split(maxsplit=2)
        if (release, component) == (SUITE, "main"):
            return address
    raise UnavailableError(
        f"kind makes its base images from Debian {SUITE}, which this machine's apt does not know"
    )
