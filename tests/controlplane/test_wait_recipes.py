"""What `kubectl wait` says of a ShardedModel by each recipe of docs/howto/gitops.md, of what the
operator has said of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shardwright.reconcile.model_status import build_status, service_status
from shardwright.rendering.deployment import Owner
from tests.harness.controlplane import ControlPlane
from tests.support.builders_reconcile import NOON
from tests.support.models import Models
from tests.support.outcomes import CASES

pytestmark = pytest.mark.controlplane

PAGE: Final = (Path(__file__).parents[2] / "docs" / "howto" / "gitops.md").read_text()
RECIPES: Final = re.findall(r"^\| .* \| `(--for=.*)` \|$", PAGE, re.MULTILINE)
READY: Final = ("serving", "plan only", "scaled to zero", "paused and serving")
MET: Final = {
    "--for=condition=Ready": READY,
    "--for=condition=Planned": (
        "serving",
        "plan only",
        "scaled to zero",
        "starting",
        "paused and serving",
        "paused on the way",
    ),
    "--for=condition=Stalled": ("unknown model",),
    """--for=jsonpath='{.status.conditions[?(@.type=="Ready")].reason}'=Paused""": (
        "paused on the way",
    ),
    "--for=condition=Reconciling=false": tuple(
        sorted({*READY, "paused on the way", "unknown model"})
    ),
    "--for=delete": (),
}
ASKED: Final = sorted({case for met in MET.values() for case in met})


@pytest.fixture(scope="module")
def told(chart: ControlPlane) -> Iterator[Models]:
    """Models of which the operator has said each of these outcomes; nobody runs who would say
    something else.
    """
    models = Models(chart, chart.create_namespace("wait-recipes"))
    for case in ASKED:
        name = case.replace(" ", "-")
        models.create(name, mode="PlanOnly")
        owner = Owner(
            name=name,
            namespace=models.namespace,
            uid=models.get("ShardedModel", name)["metadata"]["uid"],
        )
        status = build_status(
            (), CASES[case][0], None, service_status(owner, "cluster.local"), NOON
        )
        said = [condition | {"observedGeneration": 1} for condition in status["conditions"]]
        path = (
            f"/apis/shardwright.io/v1alpha1/namespaces/{models.namespace}/shardedmodels/{name}"
            "/status"
        )
        chart.api.patch(path, {"status": status | {"observedGeneration": 1, "conditions": said}})
    yield models
    models.delete_all("ShardedModel")


def _waited(chart: ControlPlane, models: Models, recipe: str, case: str) -> bool:
    name = case.replace(" ", "-")
    said = chart.kubectl(
        "wait",
        f"smodel/{name}",
        "-n",
        models.namespace,
        "--timeout=0",
        *shlex.split(recipe),
        check=False,
    )
    return "condition met" in said


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_met_by_what_it_is_for_and_by_nothing_else(
    chart: ControlPlane, told: Models, recipe: str
) -> None:
    assert tuple(case for case in ASKED if _waited(chart, told, recipe, case)) == tuple(
        sorted(MET[recipe])
    )


def test_what_was_said_of_an_earlier_spec_is_not_waited_for(
    chart: ControlPlane, told: Models
) -> None:
    told.change("serving", replicas=2)

    assert not _waited(chart, told, "--for=condition=Ready", "serving")
    assert sorted(RECIPES) == sorted(MET)
