"""A registry on loopback, for the time of a `with`: what is released is pushed there, and pulled
again.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from release import image
from release.places import VERSION
from tests.harness import build
from tests.harness.controlplane import free_port
from tests.harness.waiting import wait_for
from tests.kind.shell import run


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve an OCI registry that keeps what is pushed in a folder; give its host and port."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    with subprocess.Popen(
        [build.crane(), "registry", "serve", "--address", address, "--disk", folder],
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            wait_for(lambda: _answers(address), 30, "the registry on loopback")
            yield address
        finally:
            server.kill()


def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=2):
        return True
    return False


def push_image(address: str, name: str, layout: Path) -> str:
    """Push an image of both architectures and return it by digest, as a chart names it: repository
    and digest.
    """
    repository = f"{address}/shardwright/{name}"
    crane("push", str(layout), f"{repository}:{VERSION}")
    return f"{repository}@{crane('digest', f'{repository}:{VERSION}').strip()}"


def login(host: str, user: str, password: str) -> None:
    """Let crane and helm push to a registry as somebody; the password is on no command line."""
    given = ("login", host, "--username", user, "--password-stdin")
    run([build.crane(), "auth", *given], data=password.encode())
    run([build.binaries() / "helm", "registry", *given], data=password.encode())


def pull_image(reference: str, architecture: str, folder: Path) -> Path:
    """Pull one architecture of an image by digest and return its files, as a container would see
    them.
    """
    command = [str(build.crane()), "export", "--platform", f"linux/{architecture}", reference, "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=_direct()) as exporting:
        image.unpack_tar(exporting.stdout, folder)
    return folder


def crane(*words: str) -> str:
    """Run crane and return what it prints."""
    return run([build.crane(), *words], environment=_direct())


def _direct() -> dict[str, str]:
    """The environment without a proxy: the registry is on loopback."""
    return {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
