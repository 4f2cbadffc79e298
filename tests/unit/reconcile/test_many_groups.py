"""A reconcile of a model with many groups costs what that many groups must, and never their square."""

from __future__ import annotations

import sys
from datetime import datetime
from types import FrameType

from shardwright.reconcile.next_step import Step, next_step
from shardwright.reconcile.snapshot import Snapshot
from tests.support.many_groups import live

FEW, MORE, MANY = 8, 16, 32
SLACK = 1.05
"""By what a further group may cost more of many than of few: a sorted list takes its logarithm."""


def counted(groups: int) -> dict[str, int]:
    """Return how many functions each call of ``next_step`` has called."""
    counts: dict[str, int] = {}

    def count(what: str, snapshot: Snapshot, now: datetime) -> Step:
        calls = 0

        def note(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in {"call", "c_call"}

        sys.setprofile(note)
        try:
            return next_step(snapshot, now)
        finally:
            sys.setprofile(None)
            counts[what] = calls

    live(groups, count)
    return counts


def test_a_further_group_costs_a_look_as_much_among_many_as_among_few() -> None:
    counted(FEW)  # what is worked out once for a process
    few, more, many = counted(FEW), counted(MORE), counted(MANY)
    among_few = {what: (more[what] - few[what]) / (MORE - FEW) for what in few}
    among_many = {what: (many[what] - more[what]) / (MANY - MORE) for what in few}
    assert {
        what: calls for what, calls in among_many.items() if calls > SLACK * among_few[what]
    } == {}
