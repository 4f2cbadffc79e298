"""The begin of a life on the real control plane, a point of the crash matrix in each act; `make
crash-matrix` tries many.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import islice

import pytest

from tests.crash import on_cluster
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet

pytestmark = pytest.mark.controlplane

SEED = 14
ACTS = 5
"""How many acts of the life are played: as many points as fit half a minute."""


@pytest.fixture(scope="module")
def stage(chart: ControlPlane) -> Iterator[on_cluster.Stage]:
    """A fleet of its own, and operators that reach the API server through proxies only."""
    fleet = Fleet(chart)
    fleet("h100-8x-dell-xe9680", on_cluster.NODES)
    with on_cluster.staged(chart) as built:
        yield built
    fleet.delete()


def test_acts_of_a_life_end_as_ever_with_a_lost_write_or_an_operator_that_died_at_one(
    stage: on_cluster.Stage,
) -> None:
    rng = random.Random(SEED)  # noqa: S311  # guards nothing
    with closing(
        on_cluster.live(stage, "TensorRT-LLM", partial(on_cluster.drawn, rng, on_cluster.FATES))
    ) as life:
        played = list(islice(life, ACTS))
    assert [(str(act), act.broken) for act in played if act.broken or not act.struck] == []
    assert [act.act for act in played] == [on_cluster.CREATE, *on_cluster.LIFE][:ACTS]
