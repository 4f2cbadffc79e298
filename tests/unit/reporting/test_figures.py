"""Numbers as a person reads them."""

import pytest

from shardwright.layouts.layout import Layout
from shardwright.planning.phrases import copies
from shardwright.reporting.figures import (
    format_count,
    format_output,
    format_seconds,
    format_seconds_between,
)
from tests.support.builders_reporting import a_reported_performance


def test_output_carries_its_band_and_its_basis() -> None:
    said = format_output(a_reported_performance(output=2314.2, low=1512, high=3090))

    assert said == "2,310 tok/s (1,500\N{EN DASH}3,100, modelled)"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (0.0004567, "0.000457"),
        (0.8431, "0.843"),
        (9.996, "10.0"),
        (999.6, "1,000"),
        (1_234_567, "1,230,000"),
    ],
)
def test_counts_keep_three_digits(value: float, said: str) -> None:
    assert format_count(value) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 ms"),
        (0.00424, "4.2 ms"),
        (0.0273, "27 ms"),
        (0.31, "310 ms"),
        (1.26, "1.3 s"),
        (41.3, "41 s"),
        (312.2, "312 s"),
    ],
)
def test_durations_have_the_unit_that_suits_them(seconds: float, said: str) -> None:
    assert format_seconds(seconds) == said


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (6720, 107_640, "1.9 to 29.9 h"),
        (200, 3600, "3.3 to 60 min"),
        (0.65, 1.2, "0.65 to 1.2 s"),
        (0.0042, 0.31, "4.2 to 310 ms"),
    ],
)
def test_both_ends_of_a_range_have_one_unit(low: float, high: float, said: str) -> None:
    assert format_seconds_between(low, high) == said


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (Layout(), "TP1"),
        (Layout(replicas=4), "4 x TP1"),
        (Layout(tensor=8, pipeline=2), "TP8·PP2"),
        (Layout(tensor=8, expert=8), "TP8·EP8"),
    ],
)
def test_layouts_name_the_degrees_that_are_not_one(layout: Layout, said: str) -> None:
    assert copies(layout) == said
