"""How long may the running requests of a group need to finish? A plan keeps that time, so that no
new prediction changes the pods of a group that stands.
"""

from typing import Final

from shardwright.costs.estimates import Performance

LEAST_SECONDS: Final = 60
"""What running requests get at least to finish when a group is stopped; assumed. Longer drains
double, so that a plan that predicts a little more has pods that are the same.
"""

MOST_SECONDS: Final = 3600
"""What they get at most if nobody states it; assumed: longer, a node would not come free."""

LONGEST_ANSWER: Final = 3
"""The longest usual answer over the mean one; assumed: lengths are spread exponentially, of which
19 in 20 stay below ln 20 = 3.0 means. What is left of a running answer is then spread as a whole
one.
"""


def drain_seconds(speed: Performance, longest: int) -> int:
    """Return the time of the longest usual answer, rounded up to ``LEAST_SECONDS`` doubled.

    Args:
        speed: The prediction at the planned load.
        longest: The longest request in tokens: no answer is longer.
    """
    # Means of one load: so many tokens of output for each request.
    mean = speed.output_tokens_per_second / speed.requests_per_second
    tokens = min(LONGEST_ANSWER * mean, longest)
    return step_of(LONGEST_ANSWER * speed.ttft_seconds + tokens * speed.tpot_seconds)


def step_of(seconds: float) -> int:
    """Return the drain that covers so many seconds, or the longest.

    >>> step_of(61), step_of(10_000)
    (120, 3600)
    """
    found = LEAST_SECONDS
    while found < min(seconds, MOST_SECONDS):
        found *= 2
    return min(found, MOST_SECONDS)
