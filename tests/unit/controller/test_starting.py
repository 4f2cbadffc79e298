"""The first step of the operator behind its options."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardwright.controller import starting
from shardwright.controller.__main__ import main
from shardwright.controller.operator_options import parse_options
from shardwright.controller.process_settings import MADE_BETWEEN_SEARCHES, SWITCH_SECONDS

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def python() -> Iterator[None]:
    """Leave Python as it was set before."""
    before = sys.getrecursionlimit(), gc.get_threshold(), sys.getswitchinterval()
    yield
    sys.setrecursionlimit(before[0])
    gc.set_threshold(*before[1])
    sys.setswitchinterval(before[2])


@pytest.mark.usefixtures("python")
def test_python_is_set_for_deep_objects_and_many_threads_before_the_cluster_is_asked(
    tmp_path: Path,
) -> None:
    options = parse_options(["--kubeconfig", str(tmp_path / "none")])

    code = asyncio.run(starting.serve(options))

    assert code == starting.NO_ACCESS_EXIT_CODE
    assert sys.getrecursionlimit() >= 2 * starting.DEEPEST_OBJECT
    assert gc.get_threshold() == MADE_BETWEEN_SEARCHES
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)


def test_a_module_that_is_missed_by_a_running_operator_is_a_fault_and_no_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(_options: object) -> int:
        raise ModuleNotFoundError(name="a_plugin")

    monkeypatch.setattr(starting, "serve", serve)

    with pytest.raises(ModuleNotFoundError):
        main(["--kubeconfig", str(tmp_path / "none")])
