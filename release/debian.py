"""The root filesystem below the operator: Debian packages by their digests, unpacked; none of their
scripts run.

What Debian's own tools would add to such a root is a shell, a package manager and 100 MB. Without
them nothing is configured, and nothing needs to be: the image has one program, Python, and its
libraries are where the loader looks for them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from subprocess import PIPE
from typing import Final

from release.places import ARCHITECTURES, ROOT, downloads
from tests.harness.errors import HarnessError
from tests.kind.shell import run

LOCK: Final = ROOT / "release" / "debian.lock"
SUITE: Final = "bookworm"  # its Python is the one that requirements.lock was resolved for
MIRROR_VARIABLE: Final = "DEBIAN_MIRROR"

PACKAGES: Final = (
    *(
        "base-files",
        "ca-certificates",
        "libbz2-1.0",
        "libc6",
        "libcrypt1",
        "libexpat1",
        "libffi8",
        "libgcc-s1",
        "liblzma5",
    ),
    *(
        "libpython3.11-minimal",
        "libpython3.11-stdlib",
        "libssl3",
        "libstdc++6",
        "libuuid1",
        "python3.11-minimal",
        "zlib1g",
    ),
)
"""Python and what its standard library and our wheels are linked to."""

LEFT_OUT: Final = (
    *(
        "usr/share/doc/*/[!c]*",
        "usr/share/doc/*/changelog*",
        "usr/share/man",
        "usr/share/locale",
        "usr/share/lintian",
    ),
    *(
        "usr/share/binfmts",
        "usr/share/python3",
        "usr/share/base-files",
        "usr/share/menu",
        "usr/share/applications",
    ),
    *(
        "usr/lib/binfmt.d",
        "usr/share/dict",
        "usr/share/info",
        "usr/share/misc",
        "usr/games",
        "usr/include",
        "usr/src",
    ),
    *(
        "lib/*/gconv",
        "usr/lib/*/gconv",
        "usr/lib/python3.11/ensurepip",
        "usr/lib/python3.11/lib2to3",
        "usr/bin/pdb3.11",
    ),
    *(
        "usr/bin/pygettext*",
        "usr/lib/python3.11/pydoc_data",
        "usr/lib/python3.11/test",
        "usr/lib/python3.11/__phello__",
    ),
    *(
        "etc/*.d",
        "etc/skel",
        "etc/update-motd.d",
        "etc/issue*",
        "etc/ca-certificates*",
        "usr/sbin",
        "home",
        "root",
        "boot",
    ),
    *(
        "usr/lib/python3.11/lib-dynload/*_dbm.*",
        "usr/lib/python3.11/lib-dynload/_curses*",
        "usr/lib/python3.11/lib-dynload/nis.*",
    ),
    *("usr/lib/python3.11/lib-dynload/readline.*", "usr/lib/python3.11/lib-dynload/_sqlite3.*"),
)
"""Documents, programs that nobody starts, and modules whose libraries are not here; the licences
stay.
"""


@dataclass(frozen=True)
class Package:
    """One package as it is locked; ``path`` is where it lies below a mirror."""

    architecture: str
    name: str
    version: str
    sha256: str
    path: str


def locked(architecture: str) -> tuple[Package, ...]:
    """Return the locked packages of an architecture."""
    lines = [
        line.split() for line in LOCK.read_text().splitlines() if line and not line.startswith("#")
    ]
    return tuple(Package(*words) for words in lines if words[0] == architecture)


def lock() -> None:
    """Write the lock anew, with the newest versions that the machine's Debian mirror has, security
    updates too.
    """
    found = [package for architecture in ARCHITECTURES for package in _newest(architecture)]
    lines = [
        f"{item.architecture} {item.name} {item.version} {item.sha256} {item.path}"
        for item in found
    ]
    header = (
        f"# Debian {SUITE}: architecture, package, version, SHA-256, path below a mirror. "
        "`make lock-image` writes it.\n"
    )
    LOCK.write_text(header + "\n".join(lines) + "\n")


def unpack(architecture: str, root: Path) -> None:
    """Fill a folder with the locked packages of an architecture."""
    for package in locked(architecture):
        _unpack_one(_fetched(package), package, root)
    _trust(root)
    (root / "tmp").mkdir(exist_ok=True)
    for folder in sorted(root.rglob("*"), reverse=True):
        if (
            folder.is_dir()
            and not folder.is_symlink()
            and not any(folder.iterdir())
            and folder.name not in _KEPT_EMPTY
        ):
            folder.rmdir()


_KEPT_EMPTY: Final = ("tmp", "proc", "sys", "dev", "run", "etc")  # mount points


def _unpack_one(file: Path, package: Package, root: Path) -> None:
    command = ["dpkg-deb", "--fsys-tarfile", str(file)]
    with (
        subprocess.Popen(command, stdout=PIPE) as reading,
        tarfile.open(fileobj=reading.stdout, mode="r|") as archive,
    ):
        archive.extractall(root, members=_wanted(archive), filter="tar")
    if reading.returncode != 0:
        raise HarnessError(f"dpkg-deb cannot read {file}")
    described = run(["dpkg-deb", "--field", file])
    status = (
        root / "var" / "lib" / "dpkg" / "status.d" / package.name
    )  # where scanners look in images without dpkg
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text(described)


def _wanted(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for entry in archive:
        name = entry.name.removeprefix("./")
        parts = name.split("/")
        prefixes = ["/".join(parts[: end + 1]) for end in range(len(parts))]
        if not any(fnmatch(prefix, pattern) for prefix in prefixes for pattern in LEFT_OUT):
            yield entry


def _trust(root: Path) -> None:
    """Put Mozilla's certificates into one file, as the script of ca-certificates does."""
    sources = root / "usr" / "share" / "ca-certificates"
    bundle = root / "etc" / "ssl" / "certs" / "ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(file.read_text() for file in sorted(sources.rglob("*.crt"))))
    shutil.rmtree(sources)


# -- fetching
#
#
#
#
#
#
# ---------------------------------------------------------------------------------------------------------------  # noqa: E501


def _fetched(package: Package) -> Path:
    file = downloads() / f"{package.sha256}.deb"
    if file.exists():
        return file
    failures = []
    for mirror in _mirrors():
        part = file.with_suffix(f".part-{os.getpid()}")
        command = [
            "/usr/lib/apt/apt-helper",
            "download-file",
            f"{mirror}{package.path}",
            str(part),
            f"SHA256:{package.sha256}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return part.rename(file)
        failures.append(" ".join(done.stderr.split())[-200:])
    raise HarnessError(
        f"Debian package {package.name} {package.version} ({package.architecture}) is not on the "
        "mirror any more, or the "
        f"mirror does not answer ({'; '.join(failures)}); lock what is there now (make "
        "lock-image), "
        f"or name a snapshot that has it in {MIRROR_VARIABLE}"
    )


def _mirrors() -> list[str]:
    """The mirrors that are named, else those that apt is set up with; their addresses are written
    nowhere.
    """
    given = os.environ.get(MIRROR_VARIABLE, "").split()
    if given:
        return [f"{address.rstrip('/')}/" for address in given]
    listed = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])
    return list(dict.fromkeys(listed.split()))


def _newest(architecture: str) -> Iterator[Package]:
    with tempfile.TemporaryDirectory() as scratch:
        options = _apt_of(architecture, Path(scratch))
        run(["apt-get", *options, "update", "--quiet"])
        for name in PACKAGES:
            shown = run(["apt-cache", *options, "show", "--no-all-versions", name])
            fields = dict(re.findall(r"^(Version|SHA256|Filename): (\S+)$", shown, re.MULTILINE))
            yield Package(
                architecture, name, fields["Version"], fields["SHA256"], fields["Filename"]
            )


def _apt_of(architecture: str, scratch: Path) -> list[str]:
    """Options for an apt that knows the machine's mirrors, one architecture, and no installed
    package.
    """
    (scratch / "status").touch()
    for name in ("state/lists/partial", "cache/archives/partial"):
        (scratch / name).mkdir(parents=True)
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Dir::State": scratch / "state",
        "Dir::State::status": scratch / "status",
        "Dir::Cache": scratch / "cache",
        "APT::Sandbox::User": "root",
    }
    return [f"--option={key}={value}" for key, value in settings.items()]
