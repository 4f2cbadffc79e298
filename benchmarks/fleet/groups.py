"""One model with very many groups, and what others notice of it."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.fleet import population
from benchmarks.fleet.bench import Bench
from benchmarks.fleet.population import PROBES

EVERY_SECONDS: Final = 2.0
OTHERS: Final = 200
PATH: Final = f"/apis/shardwright.io/v1alpha1/namespaces/{PROBES}/shardedmodels"


def many_groups(bench: Bench, groups: int) -> None:
    """Apply one model with so many groups, and a small one every two seconds until it is there."""
    api, seen, limit = bench.control_plane.api, bench.seen, bench.size.limit_seconds
    others, applied = iter(population.singles(OTHERS)), {}
    before = bench.read()
    api.create(PATH, population.with_groups(groups))
    began = time.monotonic()

    def made() -> int:
        return sum(name.startswith("many-groups-") for name in tuple(seen.sets))

    with bench.steps.step(f"one model with {groups:,} groups", groups) as show:
        while made() < groups and time.monotonic() - began < limit:
            other = next(others, None)
            if other:
                api.create(PATH, other)
                applied[other["metadata"]["name"]] = time.monotonic()
            seen.wait(lambda: made() >= groups, EVERY_SECONDS)
            show(made())
    if made() >= groups:
        bench.figures["groups.statefulsets_seconds"] = time.monotonic() - began
    seen.wait(lambda: applied.keys() <= seen.placed.keys(), limit)
    bench.cpu["groups"] = before.until(bench.read())
    bench.figures["groups.cpu_seconds"] = bench.cpu["groups"]["first"]
    waits = sorted(
        seen.placed[name] - when for name, when in applied.items() if name in seen.placed
    )
    bench.figures["groups.others_without_statefulset"] = len(applied) - len(waits)
    if waits:
        bench.figures["groups.others_median_seconds"] = waits[len(waits) // 2]
        bench.figures["groups.others_slowest_seconds"] = waits[-1]
