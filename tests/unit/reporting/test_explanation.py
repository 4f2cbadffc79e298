"""What is said about a report."""

import re
from importlib.resources import files

from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory, NodeExclusion
from shardwright.layouts.layout import Layout
from shardwright.planning.request import Objective, OptimizeFor
from shardwright.reporting.explanation import DrawnNode, Fact, explain
from shardwright.reporting.phrases import PHRASES
from shardwright.units import GIB
from tests.support.builders_reporting import a_performance, a_plan, a_refusal, a_report, a_request, a_stage, an_exclusion


def _fact(facts: tuple[Fact, ...], label: str) -> str:
    return next(fact.value for fact in facts if fact.label == label)


def test_a_plan_is_said_in_one_line() -> None:
    explanation = explain(a_report())

    assert explanation.fits
    assert explanation.headline == ("tensor 8 x pipeline 2 on 16 GPUs of 2 nodes (NVIDIA-H100-80GB-HBM3)")


def test_stages_are_drawn_on_the_gpus_that_hold_them() -> None:
    """Ranks run over tensor first, then pipeline: two stages share a node of eight when tensor is 4."""
    plan = a_plan(layout=Layout(tensor=4, pipeline=2), groups=(("n1",),), nodes_per_replica=1)

    drawn = explain(a_report(plan)).nodes

    assert drawn == (DrawnNode(group=0, name="n1", stages=(0, 0, 0, 0, 1, 1, 1, 1)),)


def test_gpus_that_are_left_over_are_drawn_as_free() -> None:
    plan = a_plan(layout=Layout(tensor=6, pipeline=2), groups=(("n1", "n2"),))

    drawn = explain(a_report(plan)).nodes

    assert [node.stages for node in drawn] == [(0, 0, 0, 0, 0, 0, 1, 1), (1, 1, 1, 1, None, None, None, None)]


def test_replicas_on_one_node_count_it_once() -> None:
    plan = a_plan(layout=Layout(replicas=2), groups=(("n1",), ("n1",)), nodes_per_replica=1, gpus_per_node=1)

    assert explain(a_report(plan)).headline == "one GPU, 2 replicas on 2 GPUs of 1 node (NVIDIA-H100-80GB-HBM3)"


def test_neighbouring_stages_that_are_alike_share_a_bar() -> None:
    stages = (a_stage(0, 0, 9, weights_gib=50), a_stage(1, 10, 19), a_stage(2, 20, 29), a_stage(3, 30, 39, weights_gib=51))

    bars = explain(a_report(a_plan(stages=stages))).memory

    assert [(bar.label, bar.layers) for bar in bars] == [
        ("0", "0\N{EN DASH}9"),
        ("1\N{EN DASH}2", "10\N{EN DASH}29"),
        ("3", "30\N{EN DASH}39"),
    ]
    assert bars[0].weights_bytes == 50 * GIB


def test_the_load_and_the_limits_are_said() -> None:
    objective = Objective(optimize_for=OptimizeFor.LATENCY, ttft_seconds=2, tpot_seconds=0.05)

    facts = explain(a_report(), request=a_request(objective=objective)).facts

    assert _fact(facts, "Load") == "64 requests in flight, 2,048 input + 512 output tokens each"
    assert _fact(facts, "Objective") == "Latency, first token within 2.0 s, each token within 50 ms"


def test_it_says_when_requests_will_queue() -> None:
    plan = a_plan(kv_tokens=51_200, carries_load=False, performance=a_performance(running=20))

    said = _fact(explain(a_report(plan), request=a_request(concurrency=64)).facts, "K/V cache")

    assert said == "51,200 tokens per replica, up to 3,072 per request; requests queue: 20 of 64 run at once"


def test_a_plan_that_cannot_be_deployed_yet_says_so_first() -> None:
    problem = Problem(code="AcrossTrays", what="tensor parallelism across trays", limit="is not deployed yet")

    warnings = explain(a_report(a_plan(deployable=problem, warnings=("unmeasured GPU",)))).warnings

    assert warnings == ("planned, not yet deployed: tensor parallelism across trays is not deployed yet", "unmeasured GPU")


def test_nothing_fits_is_said_with_limit_gap_and_way_out() -> None:
    explanation = explain(a_report(a_refusal(), alternatives=()))

    assert not explanation.fits
    assert explanation.headline == (
        "nothing fits. the weights need 96.2 GiB per GPU must fit 40.5 GiB, 55.7 GiB short; add nodes, or take a quantized model"
    )
    assert _fact(explanation.facts, "Reason") == "WeightsExceedMemory"
    assert _fact(explanation.facts, "Outlook") == "waiting does not help"


def test_exclusions_are_counted_layouts_first_then_nodes() -> None:
    excluded = (an_exclusion("WeightsExceedMemory", 1031), an_exclusion("PoolTooSmall", 7), an_exclusion("Cordoned", 2))

    explanation = explain(a_report(excluded=excluded, considered=1032))

    assert explanation.ruled_out == (
        "1,032 layouts: 1,031 exceed GPU memory, 7 need more nodes than the pool has; nodes not used: 2 cordoned"
    )
    assert [item.code for item in explanation.exclusions] == ["WeightsExceedMemory", "PoolTooSmall"]


def test_every_check_of_layouts_has_a_phrase() -> None:
    """A check without one would be counted among the nodes."""
    text = "".join((files("shardwright.planning") / name).read_text() for name in ("checks.py", "shapes.py"))
    codes = set(re.findall(r'"([A-Z][a-z]+(?:[A-Z][a-z]+)+)"', text))

    assert codes == PHRASES.keys()


def test_nodes_that_cannot_be_used_are_named_by_reason() -> None:
    cordoned = Problem(code="Cordoned", what="a cordoned node", limit="takes no new pods")
    unready = Problem(code="NotReady", what="a node that is not ready", limit="takes no new pods")
    excluded = (
        NodeExclusion(node="n0", problem=unready),
        *(NodeExclusion(node=f"n{index}", problem=cordoned) for index in range(1, 6)),
    )

    unusable = explain(a_report(), inventory=Inventory(pools=(), excluded=excluded)).unusable

    assert unusable == (
        "cordoned: n1, n2, n3 and 2 others (a cordoned node takes no new pods)",
        "not ready: n0 (a node that is not ready takes no new pods)",
    )


def test_it_says_when_free_capacity_had_to_be_assumed() -> None:
    inventory = Inventory(pools=(), free_capacity_known=False)

    unusable = explain(a_report(), inventory=inventory).unusable

    assert unusable == ("no pods are known: every allocatable GPU counts as free",)


def test_a_plan_of_no_replicas_says_that_nothing_runs() -> None:
    plan = a_plan(layout=Layout(tensor=8, replicas=0), groups=(), carries_load=False)

    explanation = explain(a_report(plan), request=a_request())

    assert explanation.headline == "tensor 8 on NVIDIA-H100-80GB-HBM3; replicas is 0, nothing runs"
    assert explanation.nodes == ()
