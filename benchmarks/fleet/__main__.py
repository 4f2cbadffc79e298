"""Measure the operator with a fleet of models on the control plane of the tests.

    python -m benchmarks.fleet [--size short|standard|large] [--check] [--write] [--groups 1000]

Run it from the root of the repository. The result goes to build/bench-operator-SIZE.json; --check
fails where a figure is above its limit in benchmarks/fleet/ranges.yaml.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console

from benchmarks.fleet import report
from benchmarks.fleet.bench import Steps
from benchmarks.fleet.bring_up import bring_up, memory, start
from benchmarks.fleet.failover import resync, take_over
from benchmarks.fleet.figures import excesses, ranges, suggested
from benchmarks.fleet.groups import many_groups
from benchmarks.fleet.prepare import prepared
from benchmarks.fleet.rest import events, rest, scrape
from benchmarks.fleet.sizes import SIZES, Size
from tests.support.wrapping import wrapped

ROOT: Final = Path(__file__).parents[2]
PIPE_WIDTH: Final = 170
PAGE: Final = ROOT / "docs" / "benchmarks" / "operator.md"


def main() -> int:
    """Run the command; the exit code says whether every figure is in its range, where that was
    asked.
    """
    options = _parser().parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # not at once: the operators are to end with us
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
    if options.show:
        found = json.loads(options.show.read_text())
    else:
        found = measure(_size(options), Steps(console), options.groups)
        file = ROOT / "build" / f"bench-operator-{found['size']['name']}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(found, indent=1) + "\n")
    limits = ranges(found["size"]["name"])
    before = json.loads(options.before.read_text())["figures"] if options.before else {}
    report.show(console, found, limits, before)
    if options.write:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(wrapped(report.page(found, limits, before)))
    if options.suggest:
        console.print(
            yaml.safe_dump(
                {found["size"]["name"]: suggested(found["figures"], limits)}, sort_keys=False
            )
        )
    return _check(console, found["figures"], limits) if options.check else 0


def _check(console: Console, figures: Mapping[str, float], limits: Mapping[str, float]) -> int:
    found = excesses(figures, limits)
    for excess in found:
        console.print(f"[red]out of range[/red]  {excess}", highlight=False, soft_wrap=True)
    if not found:
        console.print(f"All {len(limits)} figures with a limit are in range.")
    return 1 if found else 0


def measure(size: Size, steps: Steps, groups: int) -> dict[str, Any]:
    """Measure everything and return it."""
    pace = _pace()
    with prepared(size, steps) as bench:
        operator = start(bench)
        bring_up(bench, operator)
        rest(bench)
        events(bench)
        scrape(bench, operator)
        if groups:
            many_groups(bench, groups)
        memory(bench, operator)
        take_over(bench)
        resync(bench)
        return report.result(bench, pace)


def _pace() -> float:
    """Return the CPU seconds of a loop that is always the same, so that figures of two machines, or
    hours, can be compared.
    """
    began = time.process_time()
    sum(index for index in range(3_000_000))
    return time.process_time() - began


def _size(options: argparse.Namespace) -> Size:
    size = SIZES[options.size]
    given = (options.models or size.models, options.nodes or size.nodes, options.pods or size.pods)
    if given == (size.models, size.nodes, size.pods):
        return size
    return dataclasses.replace(size, name="custom", models=given[0], nodes=given[1], pods=given[2])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--size",
        choices=SIZES,
        default="standard",
        help="how large the fleet is (default: standard)",
    )
    parser.add_argument("--models", type=int, help="so many models instead")
    parser.add_argument("--nodes", type=int, help="so many nodes instead")
    parser.add_argument("--pods", type=int, help="so many foreign pods instead")
    parser.add_argument(
        "--groups",
        type=int,
        default=0,
        help="also measure one model with so many groups (default: none)",
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 where a figure is above its limit"
    )
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--before", type=Path, help="JSON of an earlier run, shown beside this one")
    parser.add_argument(
        "--suggest",
        action="store_true",
        help="print ranges of half more than measured, for the figures that have one",
    )
    parser.add_argument(
        "--show",
        type=Path,
        help="measure nothing: show, check and write the JSON of an earlier run",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
