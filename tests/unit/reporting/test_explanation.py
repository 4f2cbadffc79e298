"""What is said about a report."""

from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory, NodeExclusion
from shardwright.layouts.layout import Layout
from shardwright.planning.request import Objective, OptimizeFor
from shardwright.reporting.explanation import DrawnNode, Fact, explain
from shardwright.units import GIB
from tests.support.builders_reporting import a_plan, a_refusal, a_report, a_request, a_stage, an_exclusion


def _fact(facts: tuple[Fact, ...], label: str) -> str:
    return next(fact.value for fact in facts if fact.label == label)


def test_a_plan_is_said_in_one_line() -> None:
    explanation = explain(a_report())

    assert explanation.fits
    assert explanation.headline == ("tensor 8 \N{MULTIPLICATION SIGN} pipeline 2 on 16 GPUs of 2 nodes (NVIDIA-H100-80GB-HBM3)")


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
    plan = a_plan(kv_tokens=51_200, carries_load=False)

    said = _fact(explain(a_report(plan), request=a_request(concurrency=64)).facts, "K/V cache")

    assert said == "51,200 tokens per replica, up to 3,072 per request: 20 at once, 64 wanted; requests will queue"


def test_a_plan_that_cannot_be_deployed_yet_says_so_first() -> None:
    problem = Problem(code="AcrossTrays", what="tensor parallelism across trays", limit="is not deployed yet")

    warnings = explain(a_report(a_plan(deployable=problem, warnings=("unmeasured GPU",)))).warnings

    assert warnings == ("planned, not yet deployed: tensor parallelism across trays is not deployed yet", "unmeasured GPU")


def test_nothing_fits_is_said_with_limit_gap_and_way_out() -> None:
    explanation = explain(a_report(a_refusal(), alternatives=()))

    assert not explanation.fits
    assert explanation.headline == (
        "Nothing fits. The weights need 96.2 GiB per GPU must fit 40.5 GiB, 55.7 GiB short; add nodes, or take a quantized model"
    )
    assert _fact(explanation.facts, "Reason") == "WeightsDoNotFit"
    assert _fact(explanation.facts, "Outlook") == "waiting does not help"


def test_exclusions_are_counted_most_frequent_first() -> None:
    report = a_report(
        excluded=(an_exclusion("Rare", 1), an_exclusion("Frequent", 1031, "tensor 8, 2.1 GiB short")), considered=1032
    )

    explanation = explain(report)

    assert explanation.ruled_out == (
        "1,032 layouts: 1,031 fail for frequent, 1 fail for rare; nearest miss: tensor 8, 2.1 GiB short"
    )
    assert [item.code for item in explanation.exclusions] == ["Frequent", "Rare"]


def test_nodes_that_cannot_be_used_are_named_with_the_reason() -> None:
    problem = Problem(code="NodeCordoned", what="is cordoned", remedy="uncordon it")
    inventory = Inventory(pools=(), excluded=(NodeExclusion(node="n7", problem=problem),), free_capacity_known=False)

    unusable = explain(a_report(), inventory=inventory).unusable

    assert unusable == ("no pods were given: every allocatable GPU counts as free", "n7: is cordoned; uncordon it")
