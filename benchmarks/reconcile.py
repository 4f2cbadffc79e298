"""Measure what a reconcile costs at one model with many groups: seconds of CPU of each pure call,
by what stands.

    python -m benchmarks.reconcile [--groups 10 100 1000] [--profile CALL]

Nothing but ``next_step`` is measured: from a first look at which nothing exists to one at which all
groups serve, and one after the spec has changed. ``--profile`` prints where the CPU time of one
call goes.
"""

import argparse
import cProfile
import pstats
import sys
import time
from datetime import datetime
from typing import Final

from shardwright.reconcile.next_step import Step, next_step
from shardwright.reconcile.snapshot import Snapshot
from tests.support.many_groups import live

GROUPS: Final = (10, 100, 1000)
SHOWN: Final = 25  # functions of a profile


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, nargs="*", default=GROUPS)
    parser.add_argument(
        "--profile",
        default="",
        metavar="CALL",
        help="as in the second column, for example 'serve: begins'",
    )
    given = parser.parse_args(arguments)
    for groups in given.groups:
        measure(groups, given.profile)


def measure(groups: int, profiled: str) -> None:
    """Print what each call costs, and a profile of those of one name."""

    def timed(what: str, snapshot: Snapshot, now: datetime) -> Step:
        profiler = cProfile.Profile() if what == profiled else None
        began = time.thread_time()
        step = profiler.runcall(next_step, snapshot, now) if profiler else next_step(snapshot, now)
        seconds = time.thread_time() - began
        print(
            f"{groups:5} groups  {what:20} {1e3 * seconds:9.1f} ms  {1e3 * seconds / groups:7.3f} "
            "ms a group",
            flush=True,
        )
        if profiler:
            pstats.Stats(profiler).sort_stats("cumulative").print_stats(SHOWN)
        return step

    live(groups, timed)


if __name__ == "__main__":
    main(sys.argv[1:])
