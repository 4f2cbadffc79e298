"""The text of ``plan`` and ``explain`` as prose: three reports made by hand, so that only a change
of wording changes a file.
"""

from pathlib import Path

import pytest

from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory, KnownPods, NodeExclusion
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Report
from shardwright.reporting.explanation import explain
from shardwright.reporting.screen import screen_of
from shardwright.reporting.screen_text import screen_lines
from tests.support.builders_reporting import (
    a_refusal,
    a_report,
    a_reported_performance,
    a_reported_plan,
    a_reported_request,
    a_reported_stage,
    an_exclusion,
)
from tests.support.explained import to_text

HERE = Path(__file__).parent

Case = tuple[Report, Inventory | None]


def _two_nodes() -> Case:
    return a_report(), None


def _replicas_that_queue() -> Case:
    plan = a_reported_plan(
        layout=Layout(tensor=4, replicas=3),
        groups=(("l40s-0",), ("l40s-0",), ("l40s-1",)),
        nodes_per_replica=1,
        gpus_per_node=4,
        product="NVIDIA-L40S",
        tensor_link="PCIe 4 x16",
        stages=(a_reported_stage(0, 0, 79, weights_gib=33),),
        kv_tokens=61_440,
        performance=a_reported_performance(output=842.7, low=461, high=1240, running=20),
        carries_load=False,
        reasons=("No layout carries 64 requests of 2,048 + 512 tokens; this one queues least.",),
        warnings=("no measurement of this GPU: the band is wide",),
    )
    return a_report(plan, excluded=()), None


def _nothing_fits() -> Case:
    cordoned = Problem(
        code="Cordoned",
        what="a cordoned node",
        limit="takes no new pods",
        remedy="kubectl uncordon n4",
    )
    inventory = Inventory(
        pools=(), excluded=(NodeExclusion(node="n4", problem=cordoned),), known_pods=KnownPods.NONE
    )
    excluded = (
        an_exclusion("WeightsExceedMemory", 31, "TP8: 2.1 GiB short", gap="2.1 GiB short"),
        an_exclusion("Cordoned", 1),
    )
    return a_report(a_refusal(), alternatives=(), excluded=excluded), inventory


CASES = {
    "two-nodes": _two_nodes,
    "replicas-that-queue": _replicas_that_queue,
    "nothing-fits": _nothing_fits,
}


def _planned(case: str, width: int) -> str:
    report, inventory = CASES[case]()
    screen = screen_of(report, request=a_reported_request(), inventory=inventory)
    lines = screen_lines(screen, title="llama", width=width)
    return "".join(f"{one.plain()}\n" for one in lines)


def _explained(case: str, width: int) -> str:
    report, inventory = CASES[case]()
    explanation = explain(report, request=a_reported_request(), inventory=inventory)
    return to_text(explanation, title="llama", width=width)


FORMS = {"plan": _planned, "explain": _explained}


@pytest.mark.parametrize("width", [110, 72])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", FORMS)
def test_the_text_of_a_plan(form: str, case: str, width: int, update_goldens: bool) -> None:  # noqa: FBT001 - a fixture of the suite
    golden = HERE / f"{form}-{case}-{width}.txt"

    text = FORMS[form](case, width)

    if update_goldens:
        golden.write_text(text)
    assert text == golden.read_text()
