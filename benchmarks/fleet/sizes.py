"""How large the measured fleet is, and how long each thing is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One form of the benchmark.

    ``models``, ``nodes`` and ``pods`` (of other people, one GPU each) are what is in the cluster;
    ``events`` so many pod events and as many node events are sent; ``resync_seconds`` is the
    operator's period while the full comparison is measured; ``limit_seconds`` is when waiting for
    the models ends.
    """

    name: str
    models: int
    nodes: int
    pods: int
    events: int
    rest_seconds: float
    resync_seconds: float
    limit_seconds: float


SIZES: Final = {
    size.name: size
    for size in (
        Size(
            name="short",
            models=100,
            nodes=500,
            pods=2_000,
            events=1_000,
            rest_seconds=30,
            resync_seconds=8,
            limit_seconds=180,
        ),
        Size(
            name="standard",
            models=1_000,
            nodes=5_000,
            pods=20_000,
            events=2_000,
            rest_seconds=60,
            resync_seconds=20,
            limit_seconds=1_200,
        ),
        Size(
            name="large",
            models=3_000,
            nodes=10_000,
            pods=40_000,
            events=2_000,
            rest_seconds=60,
            resync_seconds=40,
            limit_seconds=3_600,
        ),
    )
}
"""The forms by name: short is for CI, standard is what the goals are about, large is run by hand.
"""
