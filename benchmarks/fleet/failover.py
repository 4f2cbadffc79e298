"""Another operator takes over, after a crash of the first and after its orderly end; then full
comparisons, again and again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from benchmarks.fleet.bench import Bench
from benchmarks.fleet.bring_up import CRASHES_AT, crash, start
from benchmarks.fleet.requests import count, writes
from tests.support.operator import OperatorProcess

TAKEOVER_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.05
"""Between two questions for the first reconcile; how exactly a takeover is timed."""
PERIODS: Final = 3
"""Full comparisons in the span that is measured; asking the operator how far it is would cost CPU
that is measured.
"""
OF_THE_CLUSTER: Final = {"list nodes", "list pods", "list computedomains"}
"""Requests that are not about a model: of a full comparison, and for a kind that may be installed
any time.
"""


def take_over(bench: Bench) -> None:
    """Kill the leader with a standby running; then let that one end in order with another standby
    running.
    """
    first, second = (bench.operators["first"], start(bench, "second", "--resync-seconds=360000"))
    mark, before = bench.audit.mark(), bench.read()
    _measure(bench, "failover_after_kill", first.kill, second, f"probe-{len(CRASHES_AT)}")
    bench.quiet(["second"], bench.size.limit_seconds)
    spent = bench.cpu["takeover"] = before.until(bench.read())
    bench.figures["takeover.cpu_seconds"] = spent["second"]
    requests = count(bench.audit.since(mark))
    bench.figures["takeover.requests_per_model"] = sum(requests.values()) / bench.size.models
    bench.figures["takeover.writes"] = writes(requests)
    third = start(bench, "third", f"--resync-seconds={bench.size.resync_seconds:g}")
    _measure(
        bench, "failover_after_term", lambda: second.stop(60), third, f"probe-{len(CRASHES_AT) + 1}"
    )


def _measure(
    bench: Bench, key: str, end: Callable[[], object], other: OperatorProcess, probe: str
) -> None:
    """End the leader while a probe crashes; measure until the other reconciles of a model, and
    until it empties the probe's group.
    """
    with bench.steps.step(f"{key.replace('_', ' ')}"):
        began = time.monotonic()
        ending = threading.Thread(target=end)
        ending.start()
        crash(bench, probe)
        looked = _first_look(bench, other)
        if looked is not None:
            bench.figures[f"{key}.first_look_seconds"] = looked - began
        if bench.seen.wait(lambda: probe in bench.seen.emptied, TAKEOVER_SECONDS):
            bench.figures[f"{key}.first_write_seconds"] = bench.seen.emptied[probe] - began
        ending.join()


def _first_look(bench: Bench, operator: OperatorProcess) -> float | None:
    """Return when an operator that had none has had its first reconcile."""
    deadline = time.monotonic() + TAKEOVER_SECONDS
    while not bench.looks(operator):
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_SECONDS)
    return time.monotonic()


def resync(bench: Bench) -> None:
    """Measure what a full comparison costs, with an operator that makes one often: by the CPU of
    one of its reconciles.
    """
    third, period = bench.operators["third"], bench.size.resync_seconds
    bench.quiet(["third"], TAKEOVER_SECONDS)  # else its taking over is measured, too
    looks, mark = bench.looks(third), bench.audit.mark()
    planned = bench.planning_seconds(third) or 0.0
    before = bench.read()
    with bench.steps.step(f"full comparisons every {period:g} s"):
        time.sleep(PERIODS * period)
    spent = bench.cpu["resync"] = before.until(bench.read())
    requests = count(bench.audit.since(mark))
    done = bench.looks(third) - looks
    at_rest = bench.figures["rest.cpu_percent_of_a_core"] / 100 * spent["seconds"]
    # what a new plan would be is worked out late, and may fall into this span
    planning = (bench.planning_seconds(third) or 0.0) - planned
    extra = max(spent["third"] - at_rest - planning, 0.0)
    models = bench.size.models + len(CRASHES_AT) + 2
    comparisons = done / models if done else PERIODS
    bench.figures["resync.cpu_seconds"] = extra / comparisons
    bench.figures["resync.comparisons"] = comparisons
    if planning:
        bench.note(f"Beside the full comparisons {planning:.2f} s of CPU were planning.")
    bench.figures["look.cpu_milliseconds"] = 1000 * extra / comparisons / models
    asked = sum(number for what, number in requests.items() if what not in OF_THE_CLUSTER)
    bench.figures["look.requests"] = asked / comparisons / models
