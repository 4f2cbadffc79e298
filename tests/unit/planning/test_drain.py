"""The drain: what running requests get to finish."""

import pytest

from shardwright.planning.drain import drain_seconds
from tests.support.builders_deployment import a_performance


@pytest.mark.parametrize(
    ("answer_tokens", "longest", "seconds"),
    [
        (1, 131_072, 60),
        (457, 131_072, 60),  # 3 x 0.8 s + 3 x 457 x 0.042 s = 59.98 s
        (458, 131_072, 120),
        (4_000, 131_072, 960),
        (4_000, 5_000, 240),  # none is longer than the longest request
        (32_000, 131_072, 3600),
    ],
)
def test_a_drain_covers_the_longest_usual_answer_in_steps(
    answer_tokens: int, longest: int, seconds: int
) -> None:
    speed = a_performance(output_tokens_per_second=2.0 * answer_tokens, requests_per_second=2.0)

    assert drain_seconds(speed, longest) == seconds
