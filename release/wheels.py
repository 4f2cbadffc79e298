"""The operator's Python environment, put together from wheels of any architecture; nothing of it
runs here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, Literal
from zipfile import ZipFile

import installer
from installer.destinations import SchemeDictionaryDestination
from installer.records import RecordEntry
from installer.sources import WheelFile
from installer.utils import Scheme

from release.places import ROOT, downloads
from tests.harness.errors import HarnessError
from tests.kind import cache as cached
from tests.kind.shell import run

HOME: Final = PurePosixPath("/opt/shardwright")
PYTHON: Final = "3.11"
_SITE: Final = HOME / "lib" / f"python{PYTHON}" / "site-packages"
LOCK: Final = ROOT / "requirements.lock"
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC: Final = (
    "manylinux2014",
    "manylinux_2_17",
    "manylinux_2_24",
    "manylinux_2_26",
    "manylinux_2_28",
    "manylinux_2_31",
    "manylinux_2_34",
)
"""Tags of wheels that run on the C library of the root filesystem (2.36)."""

LEFT_OUT: Final = (
    "kubernetes/aio/*",
    "kubernetes/client/api/[!_]*",
    "kubernetes/client/models/[!_]*",
)
"""What of the Kubernetes client its generated functions need, nearly all of it: loaded when asked
for, and nobody asks.
"""


def download(architecture: str, python: str = PYTHON, *, lock: Path = LOCK) -> Path:
    """Return a folder with the locked wheels for an architecture and a Python, downloaded once per
    lock file.
    """
    folder = downloads() / f"wheels-{cached.digest(lock)}-{architecture}-{python}"
    if not (folder / "complete").exists():
        platforms = [f"--platform={tag}_{_MACHINES[architecture]}" for tag in _GLIBC]
        chosen = [
            "--only-binary=:all:",
            "--no-deps",
            "--require-hashes",
            f"--python-version={python}",
            "--implementation=cp",
        ]
        quiet = ["--quiet", "--disable-pip-version-check"]
        run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                *quiet,
                *chosen,
                *platforms,
                "--dest",
                folder,
                "-r",
                lock,
            ]
        )
        (folder / "complete").touch()
    return folder


def make_environment(root: Path, system_python: PurePosixPath) -> None:
    """Make an empty virtual environment below a root, of the Python that the root has at this
    path.
    """
    home = root / HOME.relative_to("/")
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(system_python)
    settings = {
        "home": system_python.parent,
        "include-system-site-packages": "false",
        "version": PYTHON,
    }
    (home / "pyvenv.cfg").write_text(
        "".join(f"{key} = {value}\n" for key, value in settings.items())
    )


def install(wheels: Iterable[Path], root: Path, *, programs: bool) -> None:
    """Install wheels into the environment below a root; without ``programs`` only what is
    imported.
    """
    schemes = {
        "purelib": str(_SITE),
        "platlib": str(_SITE),
        "scripts": str(HOME / "bin"),
        "data": str(HOME),
        "headers": str(HOME),
    }
    kind = SchemeDictionaryDestination if programs else _Modules
    place = kind(
        schemes, interpreter=str(HOME / "bin" / "python"), script_kind="posix", destdir=str(root)
    )
    for wheel in sorted(wheels):
        with _Needed.open(wheel) as source:
            installer.install(source, place, {"INSTALLER": b"shardwright release\n"})


def unpack(wheel: Path, folder: Path) -> None:
    """Put the modules of a wheel into a folder, without its programs and without what is left
    out.
    """
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not left_out(name) and not name.split("/")[0].endswith(".data"):
                archive.extract(name, folder)


def compile_all(root: Path, folder: PurePosixPath) -> None:
    """Compile the modules in a folder of a root, as the files of a read-only filesystem: never
    compared with their sources.
    """
    if sys.version_info[:2] != tuple(map(int, PYTHON.split("."))):
        raise HarnessError(
            f"modules for Python {PYTHON} are compiled by {PYTHON}, this is "
            f"{sys.version.split()[0]}"
            f": make PYTHON=python{PYTHON}"
        )
    options = ["-q", "-j", "1", "--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/"]
    done = subprocess.run(
        [sys.executable, "-m", "compileall", *options, str(root / folder.relative_to("/"))],
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise HarnessError(f"{folder} does not compile:\n{done.stdout[-2000:]}")


def environment(root: Path) -> Path:
    """Return where the packages are below a root."""
    return root / _SITE.relative_to("/")


class _Needed(WheelFile):
    """A wheel without what is left out: its RECORD names what is there."""

    def get_contents(self) -> Iterator[tuple[tuple[str, str, str], BinaryIO, bool]]:
        for record, stream, executable in super().get_contents():
            if not left_out(record[0]):
                yield record, stream, executable


class _Modules(SchemeDictionaryDestination):
    """A place for modules: the programs that a wheel brings are not written."""

    def write_script(
        self, name: str, module: str, attr: str, section: Literal["console", "gui"]
    ) -> RecordEntry:
        del module, attr, section
        return _unwritten(name)

    def write_file(
        self,
        scheme: Scheme,
        path: str | os.PathLike[str],
        stream: BinaryIO,
        is_executable: bool,  # noqa: FBT001 - as installer has it
    ) -> RecordEntry:
        return (
            _unwritten(str(path))
            if scheme == "scripts"
            else super().write_file(scheme, path, stream, is_executable)
        )

    def finalize_installation(
        self, scheme: Scheme, record_file_path: str, records: Iterable[tuple[Scheme, RecordEntry]]
    ) -> None:
        written = [(where, record) for where, record in records if where != "scripts"]
        super().finalize_installation(scheme, record_file_path, written)


def _unwritten(name: str) -> RecordEntry:
    return RecordEntry(name, None, None)


def left_out(name: str) -> bool:
    """Say whether a file of a wheel is not part of the image."""
    return any(fnmatch(name, pattern) for pattern in LEFT_OUT)
