"""The plugin of kubectl as krew installs it: one archive for each architecture, with all that it
needs but Python itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release import wheels
from release.archive import packed
from release.places import ARCHITECTURES, ROOT, VERSION, WORK, epoch
from tests.harness import build
from tests.harness.errors import HarnessError
from tests.kind.shell import run

URL_VARIABLE: Final = "RELEASE_URL"
_NOWHERE: Final = f"https://downloads.example/shardwright/v{VERSION}"
"""Where the archives would be; nobody has published them."""

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
BROUGHT_BY: Final = "cluster"
"""The extra whose libraries a plugin needs: it reads a cluster."""

_OF_AIO: Final = {"aiohttp", "aiohttp-retry"}
"""What the Kubernetes client asks for and only its part `aio` imports, which is left out
(`wheels.LEFT_OUT`).
"""

LAUNCHER: Final = """#!/usr/bin/env python3
import os
import sys

if not (3, 11) <= sys.version_info[:2] <= (3, 14):
    sys.exit(f"error: kubectl shardwright needs Python 3.11 to 3.14 as python3, this is {sys.version.split()[0]}")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))

from shardwright.cli.main import main

sys.exit(main())
"""  # noqa: E501


def write(wheel: Path, out: Path) -> None:
    """Write the archives, and the manifest with their digests."""
    for architecture in ARCHITECTURES:
        home = WORK / "plugin" / architecture
        shutil.rmtree(home, ignore_errors=True)
        (home / "lib").mkdir(parents=True)
        for needed in (wheel, *_needed(wheel, architecture)):
            wheels.unpack(needed, home / "lib")
        launcher = home / "kubectl-shardwright"
        launcher.write_text(LAUNCHER)
        launcher.chmod(0o755)
        shutil.copy(ROOT / "LICENSE", home / "LICENSE")
        _archive(out, architecture).write_bytes(packed(home, epoch()))
    (out / "shardwright-krew.yaml").write_text(
        yaml.safe_dump(_manifest(out), sort_keys=False, width=120)
    )


def prove(out: Path, kubeconfig: Path) -> str:
    """Have krew install the archive of this machine by the manifest, and kubectl start it; return
    what came of it.

    kubeconfig: of a cluster that it reads.
    """
    home = WORK / "krew"
    shutil.rmtree(home, ignore_errors=True)
    environment = {
        "PATH": f"{home / 'bin'}:{build.binaries()}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "KREW_ROOT": str(home),
        "HOME": str(home),
    }
    archive = _archive(out, "amd64")
    run(
        [
            build.krew(),
            "install",
            f"--manifest={out / 'shardwright-krew.yaml'}",
            f"--archive={archive}",
        ],
        environment=environment,
    )
    sample, fleet = (
        ROOT / "manifests" / "samples" / "llama-405b.yaml",
        ROOT / "examples" / "fleet" / "nodes.yaml",
    )
    said = run(
        ["kubectl", "shardwright", "plan", "-f", sample, "--nodes", fleet], environment=environment
    )
    live = run(
        ["kubectl", "shardwright", "plan", "-f", sample, "--kubeconfig", kubeconfig],
        environment=environment,
        accepted=(0, 1),
    )
    if "llama-405b: " not in live:
        raise HarnessError(f"the plugin does not read a cluster: {live}")
    size = sum(path.stat().st_size for path in (home / "store").rglob("*") if path.is_file())
    return f"{size / 1e6:.0f} MB installed by krew; {said.splitlines()[0]}"


def _archive(out: Path, architecture: str) -> Path:
    return out / f"kubectl-shardwright-{VERSION}-linux-{architecture}.tar.gz"


def _manifest(out: Path) -> dict[str, Any]:
    where = os.environ.get(URL_VARIABLE, _NOWHERE).rstrip("/")
    platforms = [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
            "uri": f"{where}/{_archive(out, architecture).name}",
            "sha256": hashlib.sha256(_archive(out, architecture).read_bytes()).hexdigest(),
            "bin": "kubectl-shardwright",
        }
        for architecture in ARCHITECTURES
    ]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "shardwright"},
        "spec": {
            "version": f"v{VERSION}",
            "shortDescription": "Plan sharded LLM serving, and say why",
            "description": (
                "Plans how a model is cut over the GPUs of a cluster, explains the plan, and "
                "renders its objects.\n"
            ),
            "caveats": "Needs Python 3.11 to 3.14 as python3.\n",
            "platforms": platforms,
        },
    }


def _needed(wheel: Path, architecture: str) -> Iterator[Path]:
    """The wheels that the command line needs, its client of a cluster too; compiled ones for every
    Python that is served.
    """
    names = set(_closure(wheel, wheels.download(architecture)))
    for python in PYTHONS:
        for found in sorted(wheels.download(architecture, python).glob("*.whl")):
            if _name(found) in names and (
                python == PYTHONS[0] or not found.name.endswith("-none-any.whl")
            ):
                yield found


def _closure(wheel: Path, folder: Path) -> Iterator[str]:
    """Names of the distributions that a wheel asks for with the extra `cluster`, and those that
    they ask for.
    """
    available = {_name(found): found for found in folder.glob("*.whl")}
    waiting, seen = [(wheel, BROUGHT_BY)], set[str]()
    while waiting:
        file, extra = waiting.pop()
        for text in _metadata(file).get_all("Requires-Dist") or ():
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            environment = {
                "extra": extra,
                "python_version": "3.11",
                "platform_system": "Linux",
                "sys_platform": "linux",
            }
            if name in seen | _OF_AIO or (
                requirement.marker and not requirement.marker.evaluate(environment)
            ):
                continue
            if name not in available:
                raise HarnessError(
                    f"{file.name} needs {name}, which requirements.lock does not have"
                )
            seen.add(name)
            waiting += [(available[name], each) for each in ("", *requirement.extras)]
            yield name


def _metadata(wheel: Path) -> Any:
    with ZipFile(wheel) as archive:
        (name,) = (
            name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)
        )
        return HeaderParser().parsestr(archive.read(name).decode())


def _name(wheel: Path) -> str:
    return canonicalize_name(wheel.name.partition("-")[0])
