"""The engine's versions for all tests, each a process of its own that answers in the background."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import environment
from tests.engine.launches import VERSIONS
from tests.engine.questions import Engine

collect_ignore = ["backends.py", "guarded.py", "sglang_checker.py"]
"""What the engine's own Python runs, with what lies beside it."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the configs of the models are, and the caches of the pretended pods."""
    return tmp_path_factory.mktemp("engine")


@pytest.fixture(scope="session")
def engines(folder: Path) -> Iterator[dict[str, Engine]]:
    """Start every version."""
    installed = environment.installed()
    assert installed is not None, "the engine is not installed: run `make test-engine`"
    found = {version: Engine(installed, version, folder / f"{version}.log") for version in VERSIONS}
    try:
        yield found
    finally:
        for engine in found.values():
            engine.close()
