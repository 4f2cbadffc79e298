"""Python's settings for a process with many long-lived objects and several threads."""

import gc
import sys
from typing import Final

MADE_BETWEEN_SEARCHES: Final = (20_000, 20, 50)
"""Containers made, less those freed, before Python collects the youngest generation; how many
collections of it before one of the next, and of all. Python's own are 700, 10 and 10.
"""

SWITCH_SECONDS: Final = 0.0005
"""How long a thread keeps the interpreter while others wait for it; Python's own is 0.005."""


def keep_answering() -> None:
    """Keep the event loop responsive: no full garbage collections, no thread that holds it up.

    Basis: ``python -m benchmarks.neighbours --phases quiet flooding`` (40 crashes, two cores,
    2026-11-25). With Python's own settings 13 full collections took 0.14 s each, all collections
    2.3 s of 38 s of CPU, and the slowest repair beside the flood took 1.1 s. With 50,000 containers
    and this pause it took 0.77 s, and the collections 0.15 s of 34 s, for 13 MiB more of memory, so
    fewer containers are allowed here.
    """
    gc.set_threshold(*MADE_BETWEEN_SEARCHES)
    sys.setswitchinterval(SWITCH_SECONDS)
