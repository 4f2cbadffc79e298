"""The faults of an API server that the operator goes through with a model that serves, and what
each meets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.harness.fault_proxy import WATCH, Fault, FaultProxy, When

SERVICES: Final = "*/services"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Requests, and what happens to them while a Service of the model is deleted.

    ``anew``: all connections break first, so that watches are opened again; ``listed``: and the
    first of them is too old, so that a list is made. ``short``: it is over in seconds, and a test
    of every change.
    """

    method: str
    path: str
    does: Callable[[When], Fault]
    times: int | None = None
    anew: bool = False
    listed: bool = False
    short: bool = False

    def inject(self, proxy: FaultProxy) -> Fault:
        """Have it happen from now on."""
        fault = self.does(proxy.when(self.method, self.path, times=self.times))
        if self.listed:
            proxy.when(WATCH, self.path, times=1).watch_error(410)
        if self.anew or self.listed:
            proxy.cut().end()
        return fault


def _writes(does: Callable[[When], Fault], times: int, *, short: bool = False) -> Case:
    return Case(method="POST", path=SERVICES, does=does, times=times, short=short)


def _watches(does: Callable[[When], Fault], times: int | None = 1, *, short: bool = False) -> Case:
    return Case(method=WATCH, path=SERVICES, does=does, times=times, anew=True, short=short)


def _lists(does: Callable[[When], Fault], times: int) -> Case:
    return Case(method="GET", path=SERVICES, does=does, times=times, listed=True)


CASES: Final[dict[str, Case]] = {
    "F1 409 on a write": _writes(lambda when: when.answer(409), 3, short=True),
    "F2 410 on a watch": _watches(lambda when: when.watch_error(410), short=True),
    "F2 410 instead of a watch": _watches(lambda when: when.answer(410)),
    "F3 422 on a write": _writes(lambda when: when.answer(422), 1, short=True),
    "F4 429 with Retry-After": _writes(lambda when: when.answer(429, retry_after=1), 3, short=True),
    "F4 429 without": _writes(lambda when: when.answer(429), 6),
    "F5 500 on a write": _writes(lambda when: when.answer(500), 6),
    "F5 500 to 504 on a write": _writes(lambda when: when.answer_each(500, 501, 502, 503, 504), 5),
    "F5 503 on everything": Case(
        method="*", path="*", does=lambda when: when.answer(503), times=15, short=True
    ),
    "F6 a write is slow": _writes(lambda when: when.slow(5), 1),
    "F6 a write hangs": _writes(lambda when: when.hang(), 1),
    "F6 a list hangs": _lists(lambda when: when.hang(), 1),
    "F6 all is slow": Case(method="*", path="*", does=lambda when: when.slow(2), times=40),
    "F7 a write is lost": _writes(lambda when: when.drop_before(), 2),
    "F7 the answer to a write is lost": _writes(lambda when: when.drop_after(), 2, short=True),
    "F8 a watch falls silent": _watches(lambda when: when.silent()),
    "F9 a watch breaks off in an event": _watches(lambda when: when.truncate(100), 3, short=True),
    "F9 events come twice": Case(
        method=WATCH, path="*", does=lambda when: when.duplicate(), times=50, short=True
    ),
    "F9 events come out of order": Case(
        method=WATCH, path=SERVICES, does=lambda when: when.reorder(), times=2
    ),
    "F9 ERROR in a watch": _watches(lambda when: when.watch_error(500), 3),
    "F9 ERROR in the watch of models": Case(
        method=WATCH,
        path="*/shardedmodels",
        does=lambda when: when.watch_error(500),
        times=1,
        anew=True,
        short=True,
    ),
    "F11 a page of a load balancer": _writes(lambda when: when.html(502), 2, short=True),
    "F11 a page that says 200 to a write": _writes(lambda when: when.html(200), 2, short=True),
    "F11 a page that says 200 to a list": _lists(lambda when: when.html(200), 2),
    "F11 a page that says 200 to a watch": _watches(lambda when: when.html(200), 2),
    "F11 a list that breaks off": _lists(lambda when: when.truncate(100), 2),
    "F38 a token that has expired": Case(
        method="*", path="*", does=lambda when: when.answer(401), times=10, anew=True
    ),
}
"""By what they are called; each begins with the number of its row in docs/reference/faults.md."""
