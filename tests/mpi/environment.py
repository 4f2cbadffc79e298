"""Open MPI from its wheel and sshd from the machine, else from Debian's package, unpacked outside
the checkout.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.harness.build import cache_folder
from tests.harness.errors import HarnessError

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.lock"
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
SSHD_PACKAGES = ("openssh-server", "libwrap0")
NEEDED = ("ip", "unshare", "setpriv", "mount", "hostname", "ssh")


def path() -> str:
    """Return the PATH of a pod: the stand-ins for TensorRT-LLM, Open MPI, sshd and the system."""
    home = _home()
    return f"{HERE / 'bin'}:{home / 'bin'}:{home / 'sbin'}:{SYSTEM}"


def installed() -> bool:
    return (_home() / "complete").exists()


def install() -> None:
    """Install what is missing.

    Raises:
        HarnessError: this machine cannot run the tests.
    """
    absent = [program for program in NEEDED if shutil.which(program, path=SYSTEM) is None]
    if absent or os.geteuid() != 0:
        why = (
            f"{', '.join(absent)} are missing"
            if absent
            else "they make namespaces for two pods, which takes root"
        )
        raise HarnessError(f"the tests with Open MPI do not run here: {why}")
    if not installed():
        home = _home()
        venv.create(home, with_pip=True, clear=True)
        pip: list[str | Path] = [
            home / "bin" / "python",
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "--no-cache-dir",
        ]
        _run([*pip, "install", "--no-deps", "--require-hashes", "-r", REQUIREMENTS], home)
        if shutil.which("sshd", path=SYSTEM) is None:
            _unpack_sshd(home)
        (home / "complete").touch()


def _unpack_sshd(home: Path) -> None:
    """Debian's sshd with the one library that nothing else brings; nothing is installed on the
    machine.
    """
    _run(["apt-get", "update", "--quiet"], home)
    _run(["apt-get", "download", "--quiet", *SSHD_PACKAGES], home)
    for package in home.glob("*.deb"):
        _run(["dpkg", "--extract", package, home / "debian"], home)
    [library] = home.glob("debian/**/libwrap.so.0")
    wrapper = home / "sbin" / "sshd"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/bash\nLD_LIBRARY_PATH={library.parent} exec {home}/debian/usr/sbin/sshd "$@"\n'
    )
    wrapper.chmod(0o755)


def _home() -> Path:
    digest = hashlib.sha256(
        REQUIREMENTS.read_bytes() + f"{sys.version} {platform.machine()}".encode()
    )
    return cache_folder().parent / "mpi" / digest.hexdigest()[:16]


def _run(command: list[str | Path], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(
            f"{' '.join(map(str, command))} failed with exit code "
            f"{done.returncode}:\n{done.stderr[-2000:]}"
        )
