"""How many examples a law tries."""

from hypothesis import settings


def examples(number: int) -> settings:
    """Return settings with so many examples where the same ones are tried each time, and with as
    many as the profile says where new ones are looked for (``--hypothesis-profile=explore``).

    Few of the same tell at each run that nothing was broken; the search is the other run's.
    """
    return settings(max_examples=number) if settings().derandomize else settings()
