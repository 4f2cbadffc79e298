"""The timings of a Lease and its holder's name, which the command line needs without the client."""

import socket
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

LONGEST_LEASE_SECONDS: Final = 600
"""What a holder may ask the others to wait; a longer duration in the record was not written by an
operator.
"""


def unique_holder() -> str:
    """Return a name for the Lease that no other process has: the host's, and something random."""
    return f"{socket.gethostname()}_{uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimings:
    """How long a Lease lasts, and when and how often it is renewed; client-go's defaults.

    Raises:
        ValueError: they contradict each other; the message says how.
    """

    duration_seconds: int = 15
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not 1 < self.duration_seconds <= LONGEST_LEASE_SECONDS:
            raise ValueError(
                f"the Lease must last 2 to {LONGEST_LEASE_SECONDS} s, not {self.duration_seconds} s"
            )
        if not self.renew_deadline_seconds < self.duration_seconds:
            raise ValueError(
                "a leader must stop before others may start: its deadline to renew "
                f"({self.renew_deadline_seconds:g} s) "
                f"must be shorter than the Lease lasts ({self.duration_seconds} s)"
            )
        if not 0 < 2 * self.retry_seconds <= self.renew_deadline_seconds:
            raise ValueError(
                "a leader must be able to try twice before its deadline: the time between tries "
                f"({self.retry_seconds:g} s) "
                "must be more than 0 and at most half of the deadline to renew "
                f"({self.renew_deadline_seconds:g} s)"
            )
