"""Wheel and source distribution, and the wheel in a fresh environment: what `pipx install
shardwright` gives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from release import archive
from release.places import ROOT, WORK, epoch
from tests.harness.errors import HarnessError
from tests.kind.shell import run, say

_SAMPLE: Final = ("-f", str(ROOT / "manifests" / "samples" / "llama-405b.yaml"))
_FLEET: Final = ("--nodes", str(ROOT / "examples" / "fleet" / "nodes.yaml"))
_TYPED: Final = ("meta-llama/Llama-3.1-70B-Instruct", "--gpus", "16xH100")

COMMANDS: Final = (
    ("version",),
    ("plan", *_SAMPLE, *_FLEET),
    ("explain", *_SAMPLE, *_FLEET),
    ("render", *_SAMPLE, *_FLEET),
    ("plan", *_TYPED),
    ("models",),
    ("gpus",),
    ("crd",),
)
"""What must work without an extra."""


def build(out: Path) -> Path:
    """Write the source distribution into a folder, and the wheel that is built from it; return the
    wheel.
    """
    stamped = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch())}
    run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT],
        environment=stamped,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def prove(wheel: Path, kubeconfig: Path | None) -> str:
    """Install the wheel from nothing, as pipx does, and use it; return what came of it.

    kubeconfig: of a cluster to plan on once the client is there.
    """
    home = WORK / "pipx"
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    pip: list[str | Path] = [
        home / "bin" / "python",
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
    ]
    run([*pip, wheel])
    listed = run(
        [
            home / "bin" / "python",
            "-m",
            "pip",
            "list",
            "--format=freeze",
            "--exclude=pip",
            "--exclude=setuptools",
        ]
    ).split()
    for command in COMMANDS:
        _used(home, *command)
    _refused(home, ("shardwright", "plan", *_SAMPLE), "install 'shardwright[cluster]'")
    _refused(home, ("shardwright-operator",), "pip install 'shardwright[operator]'")
    size = _size(home)
    if kubeconfig:
        run([*pip, f"{wheel}[cluster]"])
        _used(home, "plan", *_TYPED[:1], "--kubeconfig", str(kubeconfig), accepted=(0, 1))
    return f"{len(listed)} packages, {size / 1e6:.0f} MB: {', '.join(sorted(listed))}"


def _size(home: Path) -> int:
    """Bytes of the packages, without pip's own."""
    (site,) = home.glob("lib/python*/site-packages")
    return sum(
        archive.size(folder)
        for folder in site.iterdir()
        if folder.is_dir() and not folder.name.startswith(("pip", "setuptools"))
    )


def _used(home: Path, *words: str, accepted: tuple[int, ...] = (0,)) -> None:
    done = _run(home, "shardwright", *words)
    if done.returncode not in accepted or not done.stdout:
        raise HarnessError(
            f"installed from its wheel, `shardwright {' '.join(words)}` ends with {done.returncode}"
            f": {done.stderr}"
        )


def _refused(home: Path, words: tuple[str, ...], remedy: str) -> None:
    done = _run(home, *words)
    if done.returncode == 0 or remedy not in done.stderr or done.stderr.count("\n") != 1:
        raise HarnessError(
            f"without its extra, `{' '.join(words)}` does not say in one line what to install: "
            f"{done.stderr}"
        )
    say(f"  {words[0]}: {done.stderr.strip()}")


def _run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    return subprocess.run(
        [str(home / "bin" / words[0]), *words[1:]],
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
