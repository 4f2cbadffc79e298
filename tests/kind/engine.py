"""A real engine in a folder of the machine, which pods of one runtime class see: the environment of
`make test-engine`.
"""

from __future__ import annotations

from pathlib import Path

from tests.engine import environment
from tests.kind import cache
from tests.kind.errors import UnavailableError
from tests.kind.shell import run, step

VERSION = environment.INSTALLED
PACKAGES = "lib/python3.11/site-packages"
"""Where the engine is in the folder: the pods run it on the Python of Debian 12."""


def folder() -> Path:
    """The environment with the engine, installed where it is not cached (7 GB)."""
    home = environment.install().home
    if not (home / PACKAGES).is_dir():
        raise UnavailableError(
            "the engine in the pods needs an environment of Python 3.11: run make with "
            "PYTHON=python3.11"
        )
    return home


def streamer(home: Path) -> Path:
    """What reads weights from object stores, and a server of such a store."""
    return environment.streamer(environment.Environment(home))


def models(home: Path) -> Path:
    """A folder with two tiny random models, `tiny` and `swapped`, made by the engine's own
    Python.
    """
    script = cache.HERE / "tiny_model.py"

    def make(target: Path) -> None:
        with step("making the tiny models", 10):
            run([home / "bin/python", "-I", script, target])

    return cache.made(f"models-{cache.digest(script, home.name)}", make)
