"""The operator with a clock that runs faster, for rules that wait for minutes: ``-m
tests.support.paced PACE`` and its options.

Only what the operator decides by its own clock comes sooner. Pauses after failed requests, the
Lease, the API server and the nodes keep their time.
"""

import sys
from time import monotonic
from unittest.mock import patch

from shardwright.controller import reconciler
from shardwright.controller.__main__ import main
from shardwright.controller.queue import Key, Queue, Requeue
from shardwright.controller.reconciler import SteadyClock


def run(pace: float, arguments: list[str]) -> int:
    """Run the operator with a clock ``pace`` times as fast as the monotonic one, and return its
    exit code.
    """
    add_after = Queue.add_after

    def sooner(queue: Queue, key: Key, requeue: Requeue) -> None:
        add_after(queue, key, Requeue(seconds=requeue.seconds / pace, priority=requeue.priority))

    def clock() -> SteadyClock:
        return SteadyClock(lambda: monotonic() * pace)

    with patch.object(reconciler, "SteadyClock", clock), patch.object(Queue, "add_after", sooner):
        return main(arguments)


if __name__ == "__main__":
    sys.exit(run(float(sys.argv[1]), sys.argv[2:]))
