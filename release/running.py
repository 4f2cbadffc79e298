"""An image's files as a container's root: read-only, under the image's user, with the image's
environment.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from release import image
from tests.harness.errors import HarnessError
from tests.kind.shell import run

_EMULATOR: Final = "qemu-aarch64-static"
_IMPORT_ALL: Final = (
    "import importlib, pkgutil, shardwright\n"
    "names = [m.name for m in pkgutil.walk_packages(shardwright.__path__, 'shardwright.') if "
    "'.programs' not in m.name]\n"
    "[importlib.import_module(name) for name in names if not name.endswith('__main__')]\n"
    "print(len(names), 'modules')"
)


def contained(
    root: Path, words: list[str], environment: Mapping[str, str], writable: Path | None = None
) -> list[str]:
    """Return the command that runs a program of a root in it; the network is this machine's.

    writable: a folder of this machine that is at the same path inside.
    """
    user, group = image.RUN_AS.split(":")
    box = [
        "bwrap",
        "--unshare-user",
        "--unshare-ipc",
        "--unshare-uts",
        "--die-with-parent",
        "--uid",
        user,
        "--gid",
        group,
    ]
    box += [
        "--ro-bind",
        str(root),
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--clearenv",
        "--chdir",
        "/",
    ]
    box += ["--bind", str(writable), str(writable)] if writable else []
    for key, value in {**image.ENVIRONMENT, **environment}.items():
        box += ["--setenv", key, value]
    return [*box, *words]


@dataclass(frozen=True)
class Root:
    """An image's files as what a deployed operator runs in (`tests.harness.deployed.Container`)."""

    root: Path

    def command(self, argv: list[str], environment: Mapping[str, str], folder: Path) -> list[str]:
        """Return the command that runs a program of the image."""
        return contained(self.root, argv, environment, folder)


def prove(root: Path) -> str:
    """Start the programs of this machine's image, and import every module; return what they say."""
    said = [
        run(contained(root, list(words), {}))
        for words in (("shardwright", "version"), ("python", "-c", _IMPORT_ALL))
    ]
    run(contained(root, ["shardwright-operator", "--help"], {}))
    _without_tools(root)
    return ", ".join(text.strip() for text in said)


def _without_tools(root: Path) -> None:
    for gone in ("/bin/sh", "pip", "python -m pip"):
        if (
            subprocess.run(
                contained(root, [*gone.split(), "-c", "true"], {}), capture_output=True, check=False
            ).returncode
            == 0
        ):
            raise HarnessError(f"{gone} is in the image")


def prove_router(root: Path) -> str:
    """Start the router of this machine's image; return what it knows."""
    said = run(contained(root, list(image.ROUTER.command), {}))
    _without_tools(root)
    return f"{said.count('--')} words of options"


def prove_emulated(root: Path) -> str:
    """Do the same with an image for arm64 under QEMU, where this machine has it; return what came
    of it.
    """
    emulator = shutil.which(_EMULATOR)
    if emulator is None:
        return (
            f"not started: there is no {_EMULATOR} (Debian package qemu-user-static); ELF "
            "files and wheel tags are right"
        )
    box = contained(root, [], {})
    box += ["--ro-bind", emulator, "/dev/emulator", "--"]
    python = ["/dev/emulator", "/opt/shardwright/bin/python"]
    said = [
        run([*box, *python, *words])
        for words in (["/opt/shardwright/bin/shardwright", "version"], ["-c", _IMPORT_ALL])
    ]
    return f"under {_EMULATOR}: {', '.join(text.strip() for text in said)}"
