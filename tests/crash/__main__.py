"""What takes its time on the real control plane: `soak`, a random walk, and `matrix`, crash points;
1 where something was found.

The seed begins the same walk, or draws the same points, again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import count, cycle
from typing import TypeAlias

from tests.crash import on_cluster, soak
from tests.crash.lives import ENGINES
from tests.crash.points import Fate, Point
from tests.harness.controlplane import ControlPlane
from tests.harness.fault_proxy import FaultProxy
from tests.harness.plugin import Fleet
from tests.support.models import Models
from tests.support.operator import OperatorProcess, install_chart

H100 = "h100-8x-dell-xe9680"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("what", choices=["soak", "matrix"])
    parser.add_argument("--seconds", type=float, default=3600, help="how long to walk")
    parser.add_argument("--points", type=int, default=0, help="how many points to draw; 0: all")
    parser.add_argument(
        "--fates", default="", help="which fates alone, by how they begin: lost, killed, stopped"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)  # noqa: T201
    rng = random.Random(options.seed)  # noqa: S311  # guards nothing
    if options.what == "soak":
        with cluster(soak.NODES) as control_plane:
            broken = _soak(control_plane, options.seconds, rng)
    else:
        fates = {
            fate: weight
            for fate, weight in on_cluster.FATES.items()
            if fate.startswith(options.fates)
        }
        with cluster(on_cluster.NODES) as control_plane:
            broken = _matrix(control_plane, options.points, fates, rng)
    return 1 if broken else 0


@contextmanager
def cluster(nodes: int) -> Iterator[ControlPlane]:
    """Build a control plane with the chart and so many nodes."""
    with ControlPlane.start() as control_plane:
        install_chart(control_plane)
        Fleet(control_plane)(H100, nodes)
        yield control_plane


def _soak(control_plane: ControlPlane, seconds: float, rng: random.Random) -> list[str]:
    """Walk for so long; return what was found, as soon as something is."""
    models = Models(control_plane, control_plane.create_namespace("soak"))
    with (
        FaultProxy(control_plane.url, control_plane.ca_file) as proxy,
        OperatorProcess(control_plane, server=proxy.url, pace=soak.PACE) as operator,
    ):
        broken = _walk(
            soak.Walk(control_plane, operator, proxy, models, control_plane.nodes.names(), rng),
            seconds,
        )
        if broken:
            print(operator.logs()[-8000:])  # noqa: T201
    return broken


def _walk(walk: soak.Walk, seconds: float) -> list[str]:
    broken: list[str] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and not broken:
        before = walk.happened.copy()
        if broken := walk.round():
            broken.append(f"in a round of {dict(walk.happened - before)}")
        else:
            print(  # noqa: T201
                f"{len(walk.rests)} rounds, {walk.happened.total()} happenings, rest after "
                f"{walk.rests[-1]:.1f} s",
                flush=True,
            )
    print(_report(walk, broken), flush=True)  # noqa: T201
    return broken


def _report(walk: soak.Walk, broken: list[str]) -> str:
    lines = [
        (
            f"{len(walk.rests)} rounds; rest after at most {max(walk.rests, default=0):.1f} s; "
            f"at most {walk.most_written} writes of an object in a round"
        )
    ]
    lines += [f"{count:5} {what}" for what, count in walk.happened.most_common()]
    for pid, samples in walk.samples.items():
        lines.append(
            f"process {pid}, {len(samples)} samples: {asdict(samples[0])} to {asdict(samples[-1])}"
        )
    return "\n".join(
        [*lines, *(f"ended: {line}" for line in walk.ends), *(f"BROKEN {what}" for what in broken)]
    )


Lives: TypeAlias = Iterator[tuple[str, on_cluster.PointOf]]
Fates: TypeAlias = Mapping[Fate, int]
Writes: TypeAlias = Counter[tuple[str, str]]
"""How many writes an act has had at most, by engine and act."""


def _matrix(control_plane: ControlPlane, drawn: int, fates: Fates, rng: random.Random) -> list[str]:
    """Live until all points of these fates were struck, or so many drawn ones; return what was
    found.
    """
    writes: Writes = Counter()
    with on_cluster.staged(control_plane) as built:
        broken = _live(
            built, _drawn_lives(rng, fates) if drawn else _all_lives(writes, fates), drawn, writes
        )
        if broken:
            print(built.leader.operator.logs()[-8000:])  # noqa: T201
    return broken


def _live(built: on_cluster.Stage, lives: Lives, drawn: int, writes: Writes) -> list[str]:
    struck, broken = 0, list[str]()
    for played in _acts(built, lives):
        writes[played.engine, played.act] = max(
            writes[played.engine, played.act], len(played.writes)
        )
        struck += played.struck
        broken += [f"{played}: {what}" for what in played.broken]
        print(  # noqa: T201
            f"{played}: {list(played.broken) or 'well'} after {played.seconds:.1f} s", flush=True
        )
        if struck >= drawn > 0:
            break
    lines = [f"{count:3} writes: {engine}, {act}" for (engine, act), count in writes.items()]
    print(  # noqa: T201
        *lines, f"{struck} points struck, {len(broken)} broken", *broken, sep="\n", flush=True
    )
    return broken


def _acts(built: on_cluster.Stage, lives: Lives) -> Iterator[on_cluster.Played]:
    for engine, point_of in lives:
        yield from on_cluster.live(built, engine, point_of)


def _drawn_lives(rng: random.Random, fates: Fates) -> Lives:
    for engine in cycle(ENGINES):
        yield engine, partial(on_cluster.drawn, rng, fates)


def _all_lives(writes: Writes, fates: Fates) -> Lives:
    """Yield a life of each engine that nothing strikes, then one for each number of a write and
    each fate.
    """
    for engine in ENGINES:
        yield engine, lambda _: None
        for number in count():
            if all(most <= number for (of, _), most in writes.items() if of == engine):
                break
            for fate in fates:
                yield engine, partial(_always, Point(number, fate))


def _always(point: Point, _act: str) -> Point:
    return point


if __name__ == "__main__":
    sys.exit(main())
