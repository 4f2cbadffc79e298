"""A token bucket: so many writes at once, so many a second after that."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic


class TokenBucket:
    """Lets ``burst`` calls pass at once and ``per_second`` afterwards, first come, first served."""

    def __init__(
        self,
        per_second: float,
        burst: int,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._sleep = sleep
        self._tokens = float(burst)
        self._filled_at = clock()

    async def take(self) -> None:
        """Take one token, waiting for it where none is left; later callers wait behind this one."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        self._tokens -= 1
        if self._tokens < 0:
            await self._sleep(-self._tokens / self._per_second)
