"""Simulate who waits how long for GPUs under the rule of ``reconcile.waiting``, for several limits
of back-filling.

    python -m benchmarks.waiting

Prints the table of docs/decisions/0010-waiting.md. Nothing is random but for the seeds that are
printed, so it prints the same on every machine. The functions that decide are the operator's own;
nodes and models are as simple as can be.
"""

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from unittest.mock import patch

from shardwright.reconcile import waiting
from shardwright.reconcile.waiting import (
    Claim,
    Room,
    Waiting,
    choose,
    claimed_before,
    holds,
    kept_back,
    rank_of,
)

GPUS: Final = 8
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
NEVER: Final = 10.0**9

SEEDS: Final = range(6)
NODES: Final = 24
MODELS: Final = 400
LARGE_SHARE: Final = 0.08  # models of 4 nodes; the others have one node and 1, 2, 4 or 8 GPUs
LARGE_NODES: Final = 4
STAY_SECONDS: Final = 4 * 3600.0  # on average, exponential
LOAD: Final = 0.95  # GPUs asked for as a share of those there are
LIMITS: Final = (0.0, 600.0, 3600.0, 14400.0, NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that arrives, wants ``gpus`` on each of ``nodes`` nodes, and goes after it has had
    them for ``stay`` seconds.
    """

    name: str
    arrives: float
    nodes: int
    gpus: int
    stay: float
    priority: int = 0


@dataclass(slots=True)
class Cluster:
    """Nodes of 8 GPUs, who has which of them and until when, who waits, and when each model got its
    place.
    """

    nodes: int
    held: dict[str, tuple[float, Claim]] = field(default_factory=dict)
    line: dict[str, tuple[Model, Waiting]] = field(default_factory=dict)
    placed_at: dict[str, float] = field(default_factory=dict)

    def free(self) -> dict[str, int]:
        """Return the free GPUs by node."""
        free = {f"n{number:03}": GPUS for number in range(self.nodes)}
        for _, claim in self.held.values():
            for node, gpus in claim.items():
                free[node] -= gpus
        return free

    def step(self, now: float, arrived: Sequence[Model]) -> None:
        """Let go who has had enough, take in who arrives, and serve those that wait in line."""
        self.held = {name: item for name, item in self.held.items() if item[0] > now}
        for model in arrived:
            rank = rank_of(model.priority, f"{model.arrives:012.3f}", ("models", model.name))
            self.line[model.name] = (model, Waiting(rank=rank, since=_time(now), asked=model.name))
        for name in sorted(self.line, key=lambda name: self.line[name][1].rank):
            self._serve(name, now)

    def _serve(self, name: str, now: float) -> None:
        model, entry = self.line[name]
        line = [other for _, other in self.line.values()]
        free, claimed = self.free(), claimed_before(line, entry.rank)
        kept = kept_back(claimed, free)
        room = {node: gpus - kept.get(node, 0) for node, gpus in free.items()}
        found = place(model, sorted(room, key=lambda node: (room[node], node)), room)
        if found is not None:
            self.held[name] = now + model.stay, found
            self.placed_at[name] = now
            del self.line[name]
        elif entry.may_claim(_time(now)):
            claimed_now, rooms = self._claim(model, entry, free, claimed)
            self.line[name] = model, entry.claiming(claimed_now, rooms, _time(now))

    def _claim(
        self, model: Model, entry: Waiting, free: Mapping[str, int], claimed: Mapping[str, int]
    ) -> tuple[Claim, Mapping[str, Room]]:
        gpus = {node: GPUS - claimed.get(node, 0) for node in free}
        rooms = {
            node: Room(node=node, gpus=gpus[node], free=min(free[node], gpus[node]))
            for node in free
        }
        if holds(entry.claim, rooms):
            return entry.claim, rooms
        near = choose(
            rooms.values(), lambda found: place(model, [room.node for room in found], gpus)
        )
        return near or {}, rooms


def place(model: Model, nodes: Sequence[str], room: Mapping[str, int]) -> Claim | None:
    found = [node for node in nodes if room[node] >= model.gpus][: model.nodes]
    return dict.fromkeys(found, model.gpus) if len(found) == model.nodes else None


def _time(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def run(cluster: Cluster, models: Sequence[Model]) -> Iterator[float]:
    """Yield the time after each thing that happens, until all that can be placed have been."""
    coming = sorted(models, key=lambda model: model.arrives)
    now = 0.0
    while coming or cluster.held:
        ends = [end for end, _ in cluster.held.values()]
        due = [
            (entry.turns_at - BEGIN).total_seconds()
            for _, entry in cluster.line.values()
            if entry.turns_at
        ]
        now = min(
            [*ends, *(time for time in due if time > now), *(model.arrives for model in coming[:1])]
        )
        arrived = [model for model in coming if model.arrives <= now]
        coming = coming[len(arrived) :]
        cluster.step(now, arrived)
        yield now


def arrivals(seed: int) -> list[Model]:
    """Return models that arrive at random, so many that the nodes are nearly full."""
    dice = random.Random(seed)  # noqa: S311  # a simulation
    mean_gpus = LARGE_SHARE * LARGE_NODES * GPUS + (1 - LARGE_SHARE) * (1 + 2 + 4 + 8) / 4
    between = mean_gpus * STAY_SECONDS / (NODES * GPUS * LOAD)
    time, models = 0.0, []
    for number in range(MODELS):
        time += dice.expovariate(1 / between)
        large = dice.random() < LARGE_SHARE
        nodes, gpus = (LARGE_NODES, GPUS) if large else (1, dice.choice((1, 2, 4, 8)))
        stay = dice.expovariate(1 / STAY_SECONDS)
        models.append(Model(name=f"m{number:03}", arrives=time, nodes=nodes, gpus=gpus, stay=stay))
    return models


def row(limit_seconds: float) -> str:
    """Return the line of the table for one limit."""
    waits: dict[bool, list[float]] = {True: [], False: []}
    used = offered = 0.0
    for seed in SEEDS:
        models = arrivals(seed)
        cluster = Cluster(nodes=NODES)
        with patch.object(waiting, "BACKFILL_SECONDS", limit_seconds):
            list(run(cluster, models))
        last = models[-1].arrives
        for model in models:
            at = cluster.placed_at[model.name]
            waits[model.nodes > 1].append(at - model.arrives)
            used += model.nodes * model.gpus * max(0.0, min(at + model.stay, last) - at)
        offered += last * NODES * GPUS
    large, small = waits[True], waits[False]
    name = "none" if limit_seconds == NEVER else f"{limit_seconds:.0f} s"
    figures = (
        statistics.median(large),
        _high(large),
        max(large),
        statistics.median(small),
        _high(small),
        max(small),
    )
    return (
        f"| {name} | "
        + " | ".join(f"{figure / 60:.0f}" for figure in figures)
        + f" | {used / offered:.1%} |"
    )


def _high(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def main() -> None:
    """Print the table."""
    print(
        "| limit of back-filling | large: median | p95 | max | small: median | p95 | max | GPUs "
        "in use |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for limit_seconds in LIMITS:
        print(row(limit_seconds), flush=True)


if __name__ == "__main__":
    main()
