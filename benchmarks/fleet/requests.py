"""What was asked of the API server, from its audit log: by verb and resource, counted apart from
what the operator says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.support.models import WRITES

NOT_COUNTED: Final = {"", "leases", "selfsubjectaccessreviews"}
"""Resources of requests that every operator makes all the time, or at its start; the first is for
paths without one.
"""


class Audit:
    """The requests of one user, in the part of the log behind a mark."""

    def __init__(self, log: Path, user: str) -> None:
        self._log = log
        self._user = f'"username":"{user}"'

    def mark(self) -> int:
        """Return where the log ends now."""
        return self._log.stat().st_size

    def since(self, mark: int) -> list[dict[str, Any]]:
        """Return the events behind a mark."""
        with self._log.open() as lines:
            lines.seek(mark)
            return [
                json.loads(line) for line in lines if self._user in line and line.endswith("\n")
            ]


def count(events: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Count requests as "verb resource", subresources and dry runs named; leases, watches and
    self-reviews are left out.
    """
    found: Counter[str] = Counter()
    for event in events:
        reference = event.get("objectRef", {})
        resource = str(reference.get("resource", ""))
        if event["verb"] == "watch" or resource in NOT_COUNTED:
            continue
        subresource = f"/{reference['subresource']}" if reference.get("subresource") else ""
        dry = " (dry run)" if "dryRun=" in event["requestURI"] else ""
        found[f"{event['verb']} {resource}{subresource}{dry}"] += 1
    return found


def writes(counts: Mapping[str, int]) -> int:
    """Return how many of these requests have written something."""
    return sum(
        number
        for what, number in counts.items()
        if what.split()[0] in WRITES and "(dry run)" not in what
    )


def first_at(events: Iterable[Mapping[str, Any]]) -> float | None:
    """Return when the first of these requests came, in seconds since the epoch."""
    stamps = [
        datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp() for event in events
    ]
    return min(stamps, default=None)


def metric(text: str, name: str) -> float | None:
    """Return the sum of a metric's series in the Prometheus text format, None where it has none."""
    lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rpartition(" ")[2]) for line in lines) if lines else None
