"""The operator, whose event loop is busy for so long when it is told to: ``-m tests.support.stalled
SECONDS`` and its options.

SIGUSR1 tells it. A handler runs on the thread of the event loop, in its place.
"""

import signal
import sys
from time import monotonic

from shardwright.controller.__main__ import main


def spin(seconds: float) -> None:
    """Keep the thread, and as much of the interpreter as it gets, busy for so long."""
    ends = monotonic() + seconds
    while monotonic() < ends:
        pass
    sys.stderr.write(f"was busy for {seconds:g} s\n")


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda *_: spin(float(sys.argv[1])))
    sys.exit(main(sys.argv[2:]))
