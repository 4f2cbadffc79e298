"""What does a latency limit compare: the predicted mean, or a 95th percentile derived from it?"""

import math
from typing import Final

from shardwright.costs.estimates import Performance, TimeShare
from shardwright.planning.request import Statistic

ALL_OF_A_RATE: Final = 1 - 1e-6
"""Share of an offered rate that counts as all of it: rounding may leave this much."""

_EXPONENTIAL_P95: Final = math.log(20)
"""95th percentile of an exponential distribution over its mean. Basis: assumed: waiting times are
spread so.
"""

_NORMAL_P95: Final = 1.645
"""Standard deviations from the mean to the 95th percentile of a normal distribution. Basis:
assumed: the prompts that one answer meets are many and independent (a Poisson number, of which the
standard deviation is the root of the mean).
"""


def ttft_seconds(speed: Performance, statistic: Statistic) -> float:
    """Return the time to first token; P95 spreads waits (queue, others' prompts) exponentially."""
    if statistic is Statistic.MEAN:
        return speed.ttft_seconds
    # The mean has the queue once already, so its 95th percentile adds the rest.
    return speed.ttft_seconds + (_EXPONENTIAL_P95 - 1) * _share(speed.prefill_shares, "Queue")


def tpot_seconds(speed: Performance, statistic: Statistic) -> float:
    """Return the time per output token of a request; at P95 it meets more prompts of others."""
    if statistic is Statistic.MEAN:
        return speed.tpot_seconds
    # Without its own prompt, which is in the time to first token.
    prompts = max(1, speed.running_requests - 1)
    return speed.tpot_seconds + _share(speed.decode_shares, "Prefill") * _NORMAL_P95 / math.sqrt(
        prompts
    )


def running_requests(speed: Performance, offered: int, *, carries_load: bool) -> int:
    """Return how many of the requests offered to one replica run at once: not all if it does not
    carry them.
    """
    if carries_load:
        return speed.running_requests
    # Rounding may show all requests as running; if some queue, at least one is not.
    return min(speed.running_requests, max(1, offered - 1))


def _share(shares: tuple[TimeShare, ...], name: str) -> float:
    return sum(share.seconds for share in shares if share.name == name)
