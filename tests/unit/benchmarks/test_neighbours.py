"""How much of a crash's time was the API server's."""

from __future__ import annotations

import pytest

from benchmarks.neighbours import Lasted, covered


@pytest.mark.parametrize(
    ("others", "seconds"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([(1, 3), (2, 4)], 3, id="what overlaps counts once"),
        pytest.param([(2, 4), (1, 9)], 8, id="in whichever order"),
        pytest.param([(-5, 1), (9, 12)], 2, id="within the span alone"),
        pytest.param([(-5, -1), (20, 30)], 0, id="and not beside it"),
    ],
)
def test_time_that_others_cover_counts_once_and_within_the_span_alone(
    others: list[tuple[float, float]], seconds: float
) -> None:
    spans = [Lasted(*other) for other in others]

    assert covered(Lasted(0, 10), spans) == seconds
