"""The text of ``plan`` as prose: three reports made by hand, so that only a change of wording
changes a file.
"""

from pathlib import Path

import pytest

from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory, KnownPods, NodeExclusion
from shardwright.layouts.layout import Layout
from shardwright.reporting.explanation import Explanation, explain
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


def _two_nodes() -> Explanation:
    return explain(a_report(), request=a_reported_request())


def _replicas_that_queue() -> Explanation:
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
    return explain(a_report(plan, excluded=()), request=a_reported_request())


def _nothing_fits() -> Explanation:
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
        an_exclusion("WeightsExceedMemory", 31, "tensor 8: 2.1 GiB short"),
        an_exclusion("Cordoned", 1),
    )
    report = a_report(a_refusal(), alternatives=(), excluded=excluded)
    return explain(report, request=a_reported_request(), inventory=inventory)


CASES = {
    "two-nodes": _two_nodes,
    "replicas-that-queue": _replicas_that_queue,
    "nothing-fits": _nothing_fits,
}


@pytest.mark.parametrize("width", [110, 72])
@pytest.mark.parametrize("case", CASES)
def test_the_text_of_a_plan(case: str, width: int, update_goldens: bool) -> None:  # noqa: FBT001 - a fixture of the suite
    golden = HERE / f"{case}-{width}.txt"

    text = to_text(CASES[case](), title="llama", width=width)

    if update_goldens:
        golden.write_text(text)
    assert text == golden.read_text()
