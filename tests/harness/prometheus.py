"""Prometheus' own programs: those of the machine, or those of the distribution's package, unpacked and not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console

from tests.harness.build import cache_folder
from tests.harness.errors import HarnessError
from tests.harness.locking import locked

PACKAGE = "prometheus"  # Debian 12 and Ubuntu 24.04 have it; 19 MB


def promtool() -> Path:
    """Return promtool, downloaded once where the machine has none.

    Raises:
        HarnessError: there is none, and no package manager that has it.
    """
    found = shutil.which("promtool")
    if found:
        return Path(found)
    folder = cache_folder().parent / PACKAGE
    program = folder / "usr" / "bin" / "promtool"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock"), Console(stderr=True), "downloading promtool"):
        if not program.is_file():
            _unpack(folder)
    return program


def _unpack(folder: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise HarnessError("the alerts are tested with promtool, which this machine has not: install Prometheus")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        if _apt("download", PACKAGE, folder=scratch) != 0:  # the lists of packages are missing, or old
            _apt("update", folder=scratch)
            if _apt("download", PACKAGE, folder=scratch) != 0:
                raise HarnessError(f"`apt-get download {PACKAGE}` failed: install Prometheus, so that there is a promtool")
        (package,) = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", str(package), str(Path(scratch) / "found")], check=True, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
        (Path(scratch) / "found").rename(folder)


def _apt(*arguments: str, folder: str) -> int:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(["apt-get", "--quiet", *arguments], cwd=folder, env=quiet, capture_output=True, check=False).returncode
