"""A plugin of pytest: what a test of the pure core may take, and who may take longer.

Who works on a module runs its tests all the time. So a test of these folders that takes longer than
``CAP_SECONDS`` says why: ``@pytest.mark.long("why")``. One that does not is listed at the end of a
run; with ``--cap`` (``make test-unit``) it fails. Without, nothing fails for a time: the same test
took 1.4 s on one machine and 6.3 s on another that was busy. Time is the CPU time of the process,
without fixtures.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Final

import pytest

CAP_SECONDS: Final = 2.0
"""Unit: seconds of CPU a test. Basis: chosen; a person waits for the tests of one module."""

CAPPED: Final = ("tests/unit/", "tests/programs/", "tests/golden/", "tests/contracts/")
"""Folders of tests that need nothing but this machine. Laws (``tests/property``) are searches: each
takes as long as its examples.
"""


_TOOK: Final = "cpu_seconds"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that makes the cap a failure."""
    parser.addoption(
        "--cap",
        action="store_true",
        help=f"fail tests that take over {CAP_SECONDS:.0f} s of CPU and do not say why",
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Keep what a test took that takes too long and does not say why; fail it if that is wanted."""
    before = time.process_time()
    result = yield
    took = time.process_time() - before
    if too_long(pyfuncitem.nodeid, took, says_why=_says_why(pyfuncitem)):
        pyfuncitem.user_properties.append((_TOOK, took))
        if pyfuncitem.config.getoption("--cap"):
            pytest.fail(sentence(took), pytrace=False)
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that took too long, the longest first."""
    found = sorted(
        (took, report.nodeid)
        for report in terminalreporter.getreports("passed")
        if report.when == "call"
        for name, took in report.user_properties
        if name == _TOOK
    )
    if found:
        terminalreporter.section("took long and do not say why")
    for took, test in reversed(found):
        terminalreporter.write_line(f"{test}: {sentence(took)}")


def sentence(took: float) -> str:
    """Return what is wrong with a test, by its CPU time in seconds.

    >>> sentence(2.51)
    'took 2.5 s of CPU, more than 2 s: make it smaller, or say @pytest.mark.long("why")'
    """
    return (
        f"took {took:.1f} s of CPU, more than {CAP_SECONDS:.0f} s: make it smaller, or say "
        '@pytest.mark.long("why")'
    )


def too_long(test: str, cpu_seconds: float, *, says_why: bool) -> bool:
    """Return whether a test took longer than it may, by its address and the CPU time of its call.

    >>> (
    ...     too_long("tests/unit/test_a.py::test_b", 2.1, says_why=False),
    ...     too_long("tests/unit/test_a.py::test_b", 2.1, says_why=True),
    ...     too_long("tests/controlplane/test_a.py::test_b", 2.1, says_why=False),
    ... )
    (True, False, False)
    """
    return test.startswith(CAPPED) and not says_why and cpu_seconds > CAP_SECONDS


def _says_why(test: pytest.Function) -> bool:
    mark = test.get_closest_marker("long")
    return mark is not None and any(mark.args)
