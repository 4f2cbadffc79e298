"""What grows while nothing else does is a leak; what comes and goes is none."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.crash.footprint import LEAST_SAMPLES, WARM_UP, Footprint, footprint, leaks

STEADY = Footprint(rss_mebibytes=100, threads=20, sockets=12, files=20)


def test_what_comes_and_goes_is_no_leak() -> None:
    samples = [replace(STEADY, sockets=12 + 20 * (number % 5 == 0)) for number in range(60)]
    assert leaks(samples) == []


def test_connections_that_a_fault_has_cut_at_first_are_no_leak_when_they_are_back() -> None:
    cut, whole = replace(STEADY, sockets=3), replace(STEADY, sockets=23)
    samples = [whole] * WARM_UP + [cut, cut, cut, whole, cut] + [whole] * 10
    assert leaks(samples) == []


@pytest.mark.parametrize(
    ("field", "more"), [("rss_mebibytes", 1), ("threads", 1), ("sockets", 1), ("files", 1)]
)
def test_what_grows_with_every_sample_is_a_leak(field: str, more: int) -> None:
    samples = [
        replace(STEADY, **{field: getattr(STEADY, field) + more * number}) for number in range(60)
    ]
    assert [what.partition(":")[0] for what in leaks(samples)] == [field]


def test_what_a_process_takes_at_its_start_does_not_count() -> None:
    samples = [replace(STEADY, rss_mebibytes=10.0)] * WARM_UP + [STEADY] * LEAST_SAMPLES
    assert leaks(samples) == []


def test_a_process_of_few_samples_is_not_judged() -> None:
    growing = [
        replace(STEADY, rss_mebibytes=100.0 * number) for number in range(WARM_UP + LEAST_SAMPLES)
    ]
    assert leaks(growing[:-1]) == []
    assert leaks(growing) != []


def test_the_footprint_of_a_process_counts_what_it_has_open() -> None:
    before = footprint(os.getpid())
    reading, writing = os.pipe()
    after = footprint(os.getpid())
    os.close(reading)
    os.close(writing)
    assert (after.files - before.files, after.sockets - before.sockets) == (2, 0)
    assert after.rss_mebibytes > 1
