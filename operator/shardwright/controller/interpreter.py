"""How Python is set for a process that keeps many objects, most of them for long, and has several
threads.

No setting changes a result.
"""

import gc
import sys
from typing import Final

MADE_BETWEEN_SEARCHES: Final = (20_000, 20, 50)
"""Containers made, less those freed, before Python looks for cycles among the youngest; how many
such searches before it looks among the next ones, and among all. Python's own are 700, 10 and 10.
"""

SWITCH_SECONDS: Final = 0.0005
"""How long a thread keeps the interpreter while others wait for it; Python's own is 0.005."""


def keep_answering() -> None:
    """Let nothing hold the event loop up for long: no search for cycles among all objects, no
    thread that reads a watch.

    Basis: ``python -m benchmarks.neighbours --phases quiet flooding`` (40 crashes, two cores,
    2026-11-25). With Python's own settings 13 searches among all objects took 0.14 s each, all
    searches 2.3 s of 38 s of CPU, and the slowest repair beside the flood took 1.1 s. With 50,000
    containers and this pause it took 0.77 s, and the searches 0.15 s of 34 s, for 13 MiB more of
    memory, so fewer containers are allowed here.
    """
    gc.set_threshold(*MADE_BETWEEN_SEARCHES)
    sys.setswitchinterval(SWITCH_SECONDS)
