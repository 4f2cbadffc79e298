"""A clock that never jumps: the wall clock at the start, carried on by the monotonic one."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic


class SteadyClock:
    """The time of one process; other processes and nodes may be minutes off."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # Read once: whoever sets the wall clock later moves no time that this process compares.
        self._started = datetime.now(UTC)
        self._zero = clock()

    def now(self) -> datetime:
        """Return this clock's time."""
        # Begun with the wall clock, as its times are also written into annotations that people read
        # (ADR 8).
        return self._started + timedelta(seconds=self._clock() - self._zero)
