"""Some points of the crash matrix on the real control plane; `make crash-matrix` tries all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.crash import on_cluster
from tests.crash.lives import ENGINES
from tests.crash.points import Fate, Point
from tests.harness.controlplane import ControlPlane
from tests.harness.fault_proxy import FaultProxy
from tests.harness.plugin import Fleet
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

SEED = 14
DRAWN = 6
LEAST_WRITES = 7
"""Writes that every act has but the deletion, which has none."""


def drawn() -> list[tuple[str, str, int, Fate]]:
    rng = random.Random(SEED)  # noqa: S311  guards nothing
    acts = ["create", *(act for act in on_cluster.ACTS if act not in ("delete", "pause"))]
    return [
        (rng.choice(list(ENGINES)), act, rng.randrange(LEAST_WRITES), rng.choice(on_cluster.FATES))
        for act in rng.sample(acts, DRAWN)
    ]


@pytest.fixture(scope="module")
def stage(chart: ControlPlane) -> Iterator[on_cluster.Stage]:
    """A fleet of its own, and an operator that reaches the API server through a proxy only."""
    fleet = Fleet(chart)
    fleet("h100-8x-dell-xe9680", on_cluster.NODES)
    with (
        FaultProxy(chart.url, chart.ca_file) as proxy,
        OperatorProcess(chart, server=proxy.url, pace=on_cluster.PACE) as operator,
    ):
        yield on_cluster.Stage(chart, proxy, operator)
    fleet.delete()


@pytest.mark.parametrize(("engine", "act", "number", "fate"), drawn())
def test_an_act_ends_as_ever_though_one_of_its_writes_was_lost_or_the_last_one_of_an_operator(
    stage: on_cluster.Stage, engine: str, act: str, number: int, fate: Fate
) -> None:
    writes, broken = on_cluster.play(stage, engine, act, Point(number, fate))
    assert (broken, len(writes) > number) == ([], True)
