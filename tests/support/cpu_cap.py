"""A plugin of pytest: what a test of the pure core may take, and who may take longer.

Who works on a module runs its tests all the time. So a test of these folders that takes longer than
``CAP_SECONDS`` says why: ``@pytest.mark.long("why")``. One that does not fails at ``ROOM`` times
that, because a busy machine is slow. Time is the CPU time of the process, without fixtures.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Final

import pytest

CAP_SECONDS: Final = 2.0
"""Unit: seconds of CPU a test. Basis: chosen; a person waits for the tests of one module."""

ROOM: Final = 3.0
"""How many times the cap fails a test. Basis: chosen; the same test took twice as long on cores that
others used as well.
"""

CAPPED: Final = ("tests/unit/", "tests/golden/", "tests/contracts/")
"""Folders of tests that need nothing but the process that they run in. Laws (``tests/property``) are
searches: each takes as long as its examples.
"""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test that takes too long and does not say why."""
    before = time.process_time()
    result = yield
    took = time.process_time() - before
    if too_long(pyfuncitem.nodeid, took, says_why=_says_why(pyfuncitem)):
        pytest.fail(
            f"took {took:.1f} s of CPU; {CAP_SECONDS:.0f} s are allowed, "
            f"{CAP_SECONDS * ROOM:.0f} s on a busy machine; make it smaller, or say why it takes "
            'so long: @pytest.mark.long("why")',
            pytrace=False,
        )
    return result


def too_long(test: str, cpu_seconds: float, *, says_why: bool) -> bool:
    """Return whether a test took longer than it may, by its address and the CPU time of its call.

    >>> (
    ...     too_long("tests/unit/test_a.py::test_b", 6.1, says_why=False),
    ...     too_long("tests/unit/test_a.py::test_b", 6.1, says_why=True),
    ...     too_long("tests/controlplane/test_a.py::test_b", 6.1, says_why=False),
    ... )
    (True, False, False)
    """
    return test.startswith(CAPPED) and not says_why and cpu_seconds > CAP_SECONDS * ROOM


def _says_why(test: pytest.Function) -> bool:
    mark = test.get_closest_marker("long")
    return mark is not None and any(mark.args)
