"""A token bucket on a clock that only sleeping moves."""

import asyncio

from shardwright.cluster.throttle import TokenBucket


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


def test_a_burst_passes_at_once_and_the_rest_at_the_rate() -> None:
    time = Time()
    bucket = TokenBucket(per_second=10, burst=3, clock=time.clock, sleep=time.sleep)

    async def take(count: int) -> None:
        for _ in range(count):
            await bucket.take()

    asyncio.run(take(3))
    assert time.slept == []
    asyncio.run(take(2))
    assert time.slept == [0.1, 0.1]


def test_a_pause_fills_it_up_to_the_burst_and_no_further() -> None:
    time = Time()
    bucket = TokenBucket(per_second=10, burst=2, clock=time.clock, sleep=time.sleep)
    time.now = 1000

    async def take(count: int) -> None:
        for _ in range(count):
            await bucket.take()

    asyncio.run(take(3))
    assert time.slept == [0.1]
