"""Percentiles of latency are derived from predicted means, by an assumption that is written
down.
"""

import math

import pytest

from shardwright.costs.estimates import Performance, TimeShare
from shardwright.planning.request import Statistic, tpot_seconds, ttft_seconds


def _speed(*, waiting: float = 0.0, prompts: float = 0.0, running: int = 17) -> Performance:
    return Performance(
        ttft_seconds=1.0,
        tpot_seconds=0.04,
        output_tokens_per_second=1000,
        requests_per_second=2,
        low=1,
        high=2,
        basis="fitted",
        running_requests=running,
        decode_shares=(
            TimeShare(name="Weights", seconds=0.04 - prompts),
            TimeShare(name="Prefill", seconds=prompts),
        ),
        prefill_shares=(
            TimeShare(name="Compute", seconds=1.0 - waiting),
            TimeShare(name="Queue", seconds=waiting),
        ),
    )


def test_the_mean_is_what_is_predicted() -> None:
    speed = _speed(waiting=0.5, prompts=0.01)

    assert (ttft_seconds(speed, Statistic.MEAN), tpot_seconds(speed, Statistic.MEAN)) == (1.0, 0.04)


def test_where_nothing_waits_the_percentile_is_the_mean() -> None:
    assert ttft_seconds(_speed(), Statistic.P95) == 1.0
    assert tpot_seconds(_speed(), Statistic.P95) == 0.04


def test_waiting_is_spread_exponentially() -> None:
    assert ttft_seconds(_speed(waiting=0.5), Statistic.P95) == pytest.approx(
        0.5 + 0.5 * math.log(20)
    )


def test_an_answer_meets_a_poisson_number_of_prompts() -> None:
    """16 prompts on average, 95% of answers meet at most 16 + 1.645 x 4."""
    assert tpot_seconds(_speed(prompts=0.016), Statistic.P95) == pytest.approx(
        0.024 + 0.016 * (16 + 1.645 * 4) / 16
    )
