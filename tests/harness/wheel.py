"""The project's wheel in a clean environment: what a user installs, not what stands in the
checkout.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from rich.console import Console

from tests.harness.build import cache_folder
from tests.harness.errors import HarnessError
from tests.harness.locking import locked

ROOT = Path(__file__).parent.parent.parent
_LOCK = ROOT / "requirements.lock"
_KEPT_WHEELS = 3


def environment() -> Path:
    """Return a virtual environment with the locked dependencies and this checkout's wheel; made
    where it is not cached.

    The dependencies are installed once per lock file, the wheel once per content of the source.
    """
    folder = cache_folder().parent / "operator"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(
        folder / "wheel.lock", Console(stderr=True), "installing the operator"
    ):  # tests run in several processes
        dependencies = _dependencies()
        home = folder / f"wheel-{_digest(_sources(), dependencies.name)}"
        if not (home / "complete").exists():
            _install_wheel(home, dependencies)
            _forget_old(folder)
    return home


def _sources() -> list[Path]:
    package = ROOT / "operator" / "shardwright"
    files = [
        path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    return sorted([*files, ROOT / "pyproject.toml"])


def _digest(files: list[Path], salt: str) -> str:
    digest = hashlib.sha256(f"{salt} {sys.version}".encode())
    for file in files:
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _dependencies() -> Path:
    """Return the environment that holds what the lock says, and nothing else."""
    home = cache_folder().parent / "operator" / f"dependencies-{_digest([_LOCK], '')}"
    if not (home / "complete").exists():
        Console(stderr=True).print(
            "Installing the operator's locked dependencies into a clean environment (about 30 s)"
        )
        venv.create(home, with_pip=True, clear=True)
        _pip(home, "install", "--require-hashes", "-r", str(_LOCK))
        (home / "complete").touch()
    return home


def _install_wheel(home: Path, dependencies: Path) -> None:
    """Build the wheel and install it into an environment that sees the dependencies through a path
    file.
    """
    venv.create(home, with_pip=True, clear=True)
    dist = home / "dist"
    # No build isolation: the build back end is in the development environment's lock.
    _run(
        [
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--wheel",
            "--outdir",
            str(dist),
            str(ROOT),
        ],
        "building the wheel",
    )
    (wheel,) = dist.glob("*.whl")
    _pip(home, "install", "--no-deps", str(wheel))
    (_site_packages(home) / "dependencies.pth").write_text(f"{_site_packages(dependencies)}\n")
    (home / "complete").touch()


def _site_packages(home: Path) -> Path:
    return (
        home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    )


def _pip(home: Path, *arguments: str) -> None:
    command = [
        str(home / "bin" / "python"),
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        *arguments,
    ]
    _run(command, f"pip {arguments[0]}")


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(
            f"{what} failed with exit code "
            f"{done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def _forget_old(folder: Path) -> None:
    """Keep the newest wheels: every change of the source makes one."""
    wheels = sorted(folder.glob("wheel-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in wheels[_KEPT_WHEELS:]:
        shutil.rmtree(old, ignore_errors=True)
