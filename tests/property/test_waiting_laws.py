"""Laws of those who wait for GPUs, over random arrivals: nobody for ever, nobody passed by on what
he claims.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from benchmarks.waiting import GPUS, Cluster, Model, place
from shardwright.reconcile.waiting import BACKFILL_SECONDS, CLAIM_SECONDS, claimed_before
from tests.support.examples import examples

NODES = 4
LONGEST_STAY = CLAIM_SECONDS  # a claim waits no longer for GPUs


@st.composite
def arrivals(draw: st.DrawFn) -> list[Model]:
    """Return models of all sizes; none is too large for the cluster, and none stays for ever."""
    count = draw(st.integers(1, 14))
    return [
        Model(
            name=f"m{number:02}",
            arrives=float(draw(st.integers(0, 5000))),
            nodes=draw(st.integers(1, NODES)),
            gpus=draw(st.sampled_from((1, 2, 4, 8))),
            stay=float(draw(st.integers(1, int(LONGEST_STAY)))),
            priority=draw(st.sampled_from((0, 0, 0, 5))),
        )
        for number in range(count)
    ]


def moments(models: list[Model]) -> list[float]:
    """Return times close enough together that everything that happens is seen soon."""
    last = (
        max(model.arrives for model in models)
        + sum(model.stay for model in models)
        + (len(models) + 1) * BACKFILL_SECONDS
    )
    return [25.0 * number for number in range(int(last / 25) + 2)]


def history(models: list[Model]) -> list[tuple[float, Cluster]]:
    """Return the cluster as it is after each step."""
    cluster, steps = Cluster(nodes=NODES), []
    left = sorted(models, key=lambda model: model.arrives)
    for now in moments(models):
        arrived = [model for model in left if model.arrives <= now]
        left = left[len(arrived) :]
        cluster.step(now, arrived)
        steps.append(
            (
                now,
                Cluster(
                    nodes=NODES,
                    held=dict(cluster.held),
                    line=dict(cluster.line),
                    placed_at=dict(cluster.placed_at),
                ),
            )
        )
        if not left and not cluster.line:
            break
    return steps


@examples(30)
@given(arrivals())
def test_the_first_of_equals_waits_for_the_limit_and_for_who_is_there_already(
    models: list[Model],
) -> None:
    first_since: dict[str, float] = {}
    for now, cluster in history([replace(model, priority=0) for model in models]):
        if cluster.line:
            name = min(cluster.line, key=lambda name: cluster.line[name][1].rank)
            model, _ = cluster.line[name]
            first_since.setdefault(name, now)
            first_since = {name: first_since[name]}
            claims_from = max(first_since[name], model.arrives + BACKFILL_SECONDS)
            assert now <= claims_from + LONGEST_STAY + 50, f"{name} still waits at {now}"
    assert not cluster.line


@examples(30)
@given(arrivals())
def test_nobody_is_put_on_what_one_before_him_claims(models: list[Model]) -> None:
    steps = history(models)
    for (_, before), (now, after) in pairwise(steps):
        still = [entry for name, (_, entry) in before.line.items() if name in after.line]
        claims = [after.line[entry.rank[2][1]][1] for entry in still]
        free = after.free()
        for model in models:
            if after.placed_at.get(model.name) == now:
                rank = (-model.priority, f"{model.arrives:012.3f}", ("models", model.name))
                _, taken = after.held[model.name]
                kept = claimed_before([entry for entry in still if entry in claims], rank)
                assert all(
                    free[node] >= min(kept[node], before.free()[node])
                    for node in taken
                    if kept[node]
                )


@examples(30)
@given(arrivals())
def test_before_anybody_claims_whoever_fits_is_placed(models: list[Model]) -> None:
    for _, cluster in history(models):
        if not any(entry.claim for _, entry in cluster.line.values()):
            free = cluster.free()
            assert all(
                place(model, sorted(free), free) is None for model, _ in cluster.line.values()
            )


@examples(30)
@given(arrivals())
def test_who_comes_before_all_that_claim_is_placed_as_if_nobody_claimed(
    models: list[Model],
) -> None:
    for _, cluster in history(models):
        claiming = [entry.rank for _, entry in cluster.line.values() if entry.claim]
        free = cluster.free()
        for model, entry in cluster.line.values():
            if all(entry.rank < rank for rank in claiming):
                assert place(model, sorted(free), free) is None


@examples(30)
@given(arrivals())
def test_no_gpu_is_claimed_twice_or_held_twice(models: list[Model]) -> None:
    for _, cluster in history(models):
        assert min(cluster.free().values()) >= 0
        whole = claimed_before([entry for _, entry in cluster.line.values()], (10**9, "", ("", "")))
        assert all(gpus <= GPUS for gpus in whole.values())
