"""Breaking a group that serves, and waiting for what its status says, for new pods, and for
service.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from tests.harness.waiting import wait_for
from tests.kind import faults, serving
from tests.kind.faults import Fault
from tests.kind.serving import Served

NOTICED_SECONDS = 300
PROMPT = [1, 2, 3]
LEADER, FOLLOWER = 0, 1
ENGINE = "$(cat /run/shardwright/engine)"
"""The process group of the engine, in the shell of its pod."""

QUICK = ("readiness: {silenceSeconds: 20, idleSeconds: 10}", "restart: {delaySeconds: 1}")
"""A stopped engine is noticed sooner, and a second failure in a row waits less, than by default:
the tests take less time.
"""

FAILED, CHANGED = "GroupsNotReady", "RollingOut"
"""What Ready is False for, first: a group of which a rank has failed, or which restarts as a whole
because somebody wants it.
"""


def broken(
    group: Served,
    what: str,
    break_it: Callable[[], object],
    *,
    first: Collection[str] | None = None,
    then: str = "",
) -> None:
    """Break a group, wait for its condition, for new pods and for service; write the row of the
    table.

    first: the reasons that may be the first to be shown; None where the breaking takes so long that
    any may be. then: words that are shown before it serves again.
    """
    before, began = group.uids(), time.monotonic()
    break_it()
    ready = wait_for(lambda: not_ready(group), NOTICED_SECONDS, f"{what}: Ready to be False", 0.5)
    shown_seconds = time.monotonic() - began
    assert first is None or ready.partition(":")[0] in first, f"{what}: {ready}"
    if then:
        wait_for(
            lambda: then in not_ready(group),
            NOTICED_SECONDS,
            f"{what}: Ready to be False with {then!r}",
            0.5,
        )
    again = served_again(group, before, what) - began
    faults.seen.append(Fault(what, ready, shown_seconds, f"serves again after {again:.0f} s"))


def served_again(group: Served, before: set[str], what: str) -> float:
    """Wait until other pods than `before` serve; return when they did (monotonic)."""
    wait_for(
        lambda: not before & group.uids(), NOTICED_SECONDS, f"{what}: the old pods to be gone", 0.5
    )
    group.wait_ready()
    assert len(group.ask(PROMPT)) == serving.TOKENS
    return time.monotonic()


def not_ready(group: Served) -> str:
    """What Ready says while it is False."""
    ready = group.condition()
    assert ready.get("status") == "False", ready
    return f"{ready['reason']}: {ready['message']}"


def kill(group: Served, rank: int) -> None:
    """End the engine of a rank at once."""
    group.inside(rank, f"kill -KILL {ENGINE}")


def drain(group: Served, node: str, seconds: int) -> None:
    """Drain a node as an administrator does, of these pods only: the client that sends the requests
    is on one, too.
    """
    options = [
        "--delete-emptydir-data",
        f"--pod-selector=shardwright.io/model={group.name}",
        f"--timeout={seconds}s",
    ]
    group.cluster.kubectl("drain", node, *options)
