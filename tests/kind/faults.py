"""What was broken on purpose, as what it was shown, and when it served again: the table at the end
of a run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One row. Seconds count from the injection; `afterwards` is what became of it."""

    injected: str
    shown: str
    shown_seconds: float
    afterwards: str


seen: list[Fault] = []
"""What this run has broken so far, in order."""


def lines() -> list[str]:
    """The table as lines of text."""
    return [
        (
            f"{fault.injected}: shown after {fault.shown_seconds:.0f} s as {fault.shown}; "
            f"{fault.afterwards}"
        )
        for fault in seen
    ]
