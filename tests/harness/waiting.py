"""Waiting for a state instead of sleeping for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.harness.api import ApiError
from tests.harness.errors import HarnessError

T = TypeVar("T")

_LONGEST_PAUSE = 0.2
"""Unit: seconds between two looks, once it was waited for four. A look costs the API server and
etcd 3 ms of CPU (measured, November 2026).
"""


def wait_for(
    condition: Callable[[], T], timeout: float = 30.0, what: str = "", interval: float = 0.05
) -> T:
    """Poll `condition` until it returns something true, and return that; who has waited for long
    looks less often.

    A condition that raises AssertionError, KeyError, IndexError, ApiError or HarnessError counts as
    "not yet": tests may assert inside it, or look for an object that does not exist yet. After
    `timeout` seconds it fails with the last value or error seen, because "timed out" alone says
    nothing about what the cluster did instead.
    """
    began = time.monotonic()
    deadline = began + timeout
    while True:
        try:
            value = condition()
        except (AssertionError, KeyError, IndexError, ApiError, HarnessError) as error:
            seen = f"{type(error).__name__}: {error}"
        else:
            if value:
                return value
            seen = repr(value)
        now = time.monotonic()
        if now >= deadline:
            name = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"waited {timeout:g} s for {name}; last seen: {seen}")
        time.sleep(max(interval, min((now - began) / 20, _LONGEST_PAUSE)))
