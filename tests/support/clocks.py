"""A clock that stands still until a test moves it on."""

from dataclasses import dataclass


@dataclass
class Clock:
    """Answers ``now`` (seconds) whenever it is asked."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now
