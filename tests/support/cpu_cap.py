"""A plugin of pytest: what a test of the pure core may take, and who may take longer.

Who works on a module runs its tests all the time. So a test of these folders that takes longer than
``CAP_SECONDS`` fails, unless it says why it must: ``@pytest.mark.long("why")``. Time is the CPU time
of the process, without fixtures.

A busy machine is slow, not wrong: the same test took 1.4 s on one machine and 6.3 s on another. So
the cap grows by as much as the machine is slower than the one it was chosen on. That is measured
when a test is over the cap, and not at the start of a run: machines grow busy in between.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Final

import pytest

CAP_SECONDS: Final = 2.0
"""Unit: seconds of CPU a test. Basis: chosen; a person waits for the tests of one module."""

PACE_SECONDS: Final = 0.020
"""Unit: seconds of CPU for :func:`pace`. Basis: measured on a quiet machine (November 2026)."""

CAPPED: Final = ("tests/unit/", "tests/programs/", "tests/golden/", "tests/contracts/")
"""Folders of tests that need nothing but the process that they run in, and processes that they
start. Laws (``tests/property``) are searches: each takes as long as its examples.
"""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test that takes too long and does not say why."""
    before = time.process_time()
    result = yield
    took = time.process_time() - before
    capped = pyfuncitem.nodeid.startswith(CAPPED) and not _says_why(pyfuncitem)
    if capped and took > CAP_SECONDS and took > (cap := cap_at(pace())):
        pytest.fail(sentence(took, cap), pytrace=False)
    return result


def pace() -> float:
    """Return how long this machine takes now for a fixed piece of work, in seconds of CPU.

    The slowest of three: the machine may have been busier while the test ran.
    """
    return max(_once() for _ in range(3))


def cap_at(pace_seconds: float) -> float:
    """Return how long a test may take on a machine of this pace, in seconds of CPU.

    >>> cap_at(0.010), cap_at(0.020), cap_at(0.040)
    (2.0, 2.0, 4.0)
    """
    return CAP_SECONDS * max(1.0, pace_seconds / PACE_SECONDS)


def sentence(took: float, cap: float) -> str:
    """Return what is wrong with a test, by its CPU time and its cap, in seconds.

    >>> sentence(5.02, 4.4)
    'took 5.0 s of CPU, more than 4.4 s: make it smaller, or say @pytest.mark.long("why")'
    """
    return (
        f"took {took:.1f} s of CPU, more than {cap:.1f} s: make it smaller, or say "
        '@pytest.mark.long("why")'
    )


def _once() -> float:
    before = time.process_time()
    sum(range(3_000_000))
    return time.process_time() - before


def _says_why(test: pytest.Function) -> bool:
    mark = test.get_closest_marker("long")
    return mark is not None and any(mark.args)
