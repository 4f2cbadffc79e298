"""What is said about a report."""

import re
from dataclasses import replace
from importlib.resources import files

import pytest

from shardwright.costs.estimates import TimeShare
from shardwright.errors import Problem
from shardwright.hardware.gpus import GpuPrice, PriceBasis
from shardwright.hardware.inventory import Inventory, KnownPods, NodeExclusion
from shardwright.hardware.nodes import read_node
from shardwright.layouts.layout import Layout
from shardwright.planning.phrases import PHRASES
from shardwright.planning.report import Lack, NoPlan
from shardwright.planning.request import Objective, OptimizeFor, Statistic
from shardwright.reporting.explanation import DrawnNode, Fact, explain
from shardwright.reporting.shortfall import Missed
from shardwright.units import GIB
from tests.support.builders_nodes import a_node, inventory_of
from tests.support.builders_plan import a_pool, an_inventory
from tests.support.builders_reporting import (
    a_refusal,
    a_report,
    a_reported_performance,
    a_reported_plan,
    a_reported_request,
    a_reported_stage,
    an_exclusion,
)


def _fact(facts: tuple[Fact, ...], label: str) -> str:
    return next(fact.value for fact in facts if fact.label == label)


def test_a_plan_is_said_in_one_line() -> None:
    explanation = explain(a_report())

    assert explanation.fits
    assert explanation.headline == ("TP8·PP2 on 16 NVIDIA-H100-80GB-HBM3 of 2 nodes")


@pytest.mark.parametrize(
    ("served", "carries", "said"),
    [
        (20.0, True, ""),
        (20.0, False, "; it has too little headroom for the load"),
        (6.64, False, "; it does not carry the load"),
    ],
)
def test_the_headline_of_a_plan_that_does_not_carry_a_rate_says_so(
    served: float, *, carries: bool, said: str
) -> None:
    request = a_reported_request()
    request = replace(request, workload=replace(request.workload, requests_per_second=20.0))
    speed = a_reported_performance(output=512 * served)
    plan = a_reported_plan(carries_load=carries, performance=speed)

    headline = explain(a_report(plan), request=request).headline

    assert headline.partition(" of 2 nodes")[2] == said


def test_the_headline_of_a_plan_whose_requests_queue_says_so() -> None:
    plan = a_reported_plan(carries_load=False)

    for request in (None, a_reported_request()):
        explanation = explain(a_report(plan), request=request)
        assert explanation.headline.endswith("; it does not carry the load")
        assert explanation.misses == (Missed.LOAD,)


@pytest.mark.parametrize(
    ("objective", "misses"),
    [
        (Objective(ttft_seconds=0.31, tpot_seconds=0.0273), ()),
        (Objective(ttft_seconds=0.30), (Missed.TTFT,)),
        (Objective(tpot_seconds=0.02), (Missed.TPOT,)),
        (Objective(ttft_seconds=0.30, tpot_seconds=0.02), (Missed.TTFT, Missed.TPOT)),
    ],
)
def test_the_headline_of_a_plan_that_misses_a_limit_says_which(
    objective: Objective, misses: tuple[Missed, ...]
) -> None:
    explanation = explain(a_report(), request=a_reported_request(objective=objective))

    assert explanation.misses == misses
    assert explanation.headline.split("; it ")[1:] == [*misses]


def test_stages_are_drawn_on_the_gpus_that_hold_them() -> None:
    """Ranks run over tensor first, then pipeline: two stages share a node of eight when tensor is
    4.
    """
    plan = a_reported_plan(
        layout=Layout(tensor=4, pipeline=2), groups=(("n1",),), nodes_per_replica=1
    )

    drawn = explain(a_report(plan)).nodes

    assert drawn == (DrawnNode(group=0, name="n1", stages=(0, 0, 0, 0, 1, 1, 1, 1)),)


def test_gpus_that_are_left_over_are_drawn_as_free() -> None:
    plan = a_reported_plan(layout=Layout(tensor=6, pipeline=2), groups=(("n1", "n2"),))

    drawn = explain(a_report(plan)).nodes

    assert [node.stages for node in drawn] == [
        (0, 0, 0, 0, 0, 0, 1, 1),
        (1, 1, 1, 1, None, None, None, None),
    ]


def test_replicas_on_one_node_count_it_once() -> None:
    plan = a_reported_plan(
        layout=Layout(replicas=2), groups=(("n1",), ("n1",)), nodes_per_replica=1, gpus_per_node=1
    )

    assert explain(a_report(plan)).headline == "2 x TP1 on 2 NVIDIA-H100-80GB-HBM3 of 1 node"


def test_neighbouring_stages_that_are_alike_share_a_bar() -> None:
    stages = (
        a_reported_stage(0, 0, 9, weights_gib=50),
        a_reported_stage(1, 10, 19),
        a_reported_stage(2, 20, 29),
        a_reported_stage(3, 30, 39, weights_gib=51),
    )

    bars = explain(a_report(a_reported_plan(stages=stages))).memory

    assert [(bar.label, bar.layers) for bar in bars] == [
        ("0", "0\N{EN DASH}9"),
        ("1\N{EN DASH}2", "10\N{EN DASH}29"),
        ("3", "30\N{EN DASH}39"),
    ]
    assert bars[0].weights_bytes == 50 * GIB


def test_the_load_and_the_limits_are_said() -> None:
    objective = Objective(optimize_for=OptimizeFor.LATENCY, ttft_seconds=1.05, tpot_seconds=0.0125)

    facts = explain(a_report(), request=a_reported_request(objective=objective)).facts

    assert _fact(facts, "Load") == "64 requests in flight, 2,048 input + 512 output tokens each"
    assert (
        _fact(facts, "Objective") == "Latency, first token within 1.05 s, each token within 12.5 ms"
    )


def test_an_explanation_says_how_many_requests_will_queue() -> None:
    plan = a_reported_plan(
        kv_tokens=51_200, carries_load=False, performance=a_reported_performance(running=20)
    )

    said = _fact(
        explain(a_report(plan), request=a_reported_request(concurrency=64)).facts, "K/V cache"
    )

    assert said == (
        "51,200 tokens per replica, longest request 3,072; requests queue: 20 of 64 run at once"
    )


def test_requests_that_run_are_counted_over_all_attention_ranks() -> None:
    layout = Layout(attention_data=8, expert=8, replicas=2)
    plan = a_reported_plan(
        layout=layout, carries_load=False, performance=a_reported_performance(running=160)
    )

    said = _fact(
        explain(a_report(plan), request=a_reported_request(concurrency=1024)).facts, "K/V cache"
    )

    assert said.endswith("requests queue: 160 of 512 run at once")


def test_a_plan_that_cannot_be_deployed_yet_says_so_first() -> None:
    problem = Problem(
        code="AcrossTrays", what="tensor parallelism across trays", limit="is not deployed yet"
    )

    warnings = explain(
        a_report(a_reported_plan(undeployable=problem, warnings=("unmeasured GPU",)))
    ).warnings

    assert warnings == (
        "planned, not yet deployed: tensor parallelism across trays is not deployed yet",
        "unmeasured GPU",
    )


def test_nothing_fits_is_said_with_limit_gap_and_way_out() -> None:
    explanation = explain(a_report(a_refusal(), alternatives=()))

    assert not explanation.fits
    assert explanation.headline == (
        "nothing fits. 93.9 GiB of weights and 2.3 GiB of buffers per GPU must be less than "
        "40.5 GiB, 55.7 GiB short; add nodes, or take a quantized model"
    )
    assert _fact(explanation.facts, "Reason") == "WeightsExceedMemory"
    assert _fact(explanation.facts, "Outlook") == "waiting does not help"


@pytest.mark.parametrize(
    ("outcome", "outlook"),
    [
        (
            replace(a_refusal(), heals_by_itself=True),
            "waiting helps: the hardware is there, but not free or not ready",
        ),
        (
            replace(a_refusal(), lack=Lack(pool="p", gpus_per_node=8, missing_nodes=1, nodes=2)),
            "waiting helps only where nodes are added",
        ),
        (
            NoPlan(
                problem=Problem(code="NoGpuNodes", what="no node has GPUs"), heals_by_itself=True
            ),
            "waiting helps once GPU nodes are added, by an autoscaler too",
        ),
    ],
)
def test_the_outlook_says_for_what_waiting_helps(outcome: NoPlan, outlook: str) -> None:
    assert _fact(explain(a_report(outcome, alternatives=())).facts, "Outlook") == outlook


def test_what_the_gpus_count_is_a_fact_where_kinds_were_compared() -> None:
    listed = GpuPrice(per_hour=0.4, basis=PriceBasis.LISTED)
    assumed = replace(listed, basis=PriceBasis.ASSUMED)

    said = [
        _fact(explain(a_report(a_reported_plan(gpu_price=each))).facts, "Price")
        for each in (listed, assumed)
    ]

    assert said == [
        "as much as 6.4 H100s (16 x 0.4), by public price lists",
        "as much as 6.4 H100s (16 x 0.4), assumed from its data sheet",
    ]
    assert "Price" not in [fact.label for fact in explain(a_report(a_reported_plan())).facts]


def test_what_a_million_tokens_cost_is_a_fact_with_the_price_that_nodes_state() -> None:
    stated = GpuPrice(per_hour=2.5, basis=PriceBasis.STATED)
    plan = a_reported_plan(gpu_price=stated, million_tokens_price=1.5)

    said = _fact(explain(a_report(plan)).facts, "Cost")

    assert said == "1.50 per million output tokens at this load: 16 x 2.5 an hour"


def test_exclusions_are_counted_layouts_first_then_nodes() -> None:
    excluded = (
        an_exclusion("WeightsExceedMemory", 1031),
        an_exclusion("PoolTooSmall", 7),
        an_exclusion("Cordoned", 2),
    )

    explanation = explain(a_report(excluded=excluded, considered=1032))

    assert explanation.ruled_out == (
        "of 1,032 layouts tried: 1,031 exceed GPU memory, 7 need more nodes than the pool has; "
        "nodes not used: 2 cordoned"
    )
    assert [item.code for item in explanation.exclusions] == ["WeightsExceedMemory", "PoolTooSmall"]


def test_every_check_of_layouts_has_a_phrase() -> None:
    """A check without one would be counted among the nodes."""
    text = "".join(
        (files("shardwright.planning") / name).read_text()
        for name in (
            "attention.py",
            "checks.py",
            "claim_rules.py",
            "engine_limits.py",
            "missed.py",
            "node_storage.py",
            "shapes.py",
        )
    )
    codes = set(re.findall(r'"([A-Z][a-z]+(?:[A-Z][a-z]+)+)"', text))

    of_nodes = {"DeviceClaimsUnavailable", "NodeDiskTooSmall", "NodeMemoryTooSmall"}
    assert codes - of_nodes == PHRASES.keys()


def test_nodes_that_cannot_be_used_are_named_by_reason() -> None:
    cordoned = Problem(code="Cordoned", what="a cordoned node", limit="takes no new pods")
    unready = Problem(code="NotReady", what="a node that is not ready", limit="takes no new pods")
    excluded = (
        NodeExclusion(node="n0", problem=unready),
        *(NodeExclusion(node=f"n{index}", problem=cordoned) for index in range(1, 5)),
    )

    unusable = explain(a_report(), inventory=Inventory(pools=(), excluded=excluded)).unusable

    assert unusable == (
        "cordoned: n1, n2, n3 and 1 other (a cordoned node takes no new pods)",
        "not ready: n0 (a node that is not ready takes no new pods)",
    )


def _unknown(node: str, what: str, remedy: str = "label it") -> NodeExclusion:
    problem = Problem(code="GpuUnknown", what=what, remedy=remedy)
    return NodeExclusion(node=node, problem=problem)


def _unusable(*excluded: NodeExclusion) -> tuple[str, ...]:
    inventory = Inventory(pools=(), excluded=excluded)
    return explain(a_report(), inventory=inventory).unusable


def test_what_keeps_one_node_out_is_not_said_of_another() -> None:
    assert _unusable(
        _unknown("n1", "product H999"), _unknown("n4", "no product"), _unknown("n2", "product H999")
    ) == ("GPU unknown: n1, n4, n2 (n1, n2: product H999; label it; n4: no product)",)


def test_each_fact_has_its_way_out_where_that_is_another() -> None:
    assert _unusable(
        _unknown("n1", "product H999"), _unknown("n2", "no product", "install the GPU operator")
    ) == (
        (
            "GPU unknown: n1, n2 (n1: product H999; label it; n2: no product; install the GPU "
            "operator)"
        ),
    )


def test_how_many_facts_are_left_out_is_said() -> None:
    assert _unusable(*(_unknown(f"n{index}", f"product {index}") for index in range(5))) == (
        (
            "GPU unknown: n0, n1, n2 and 2 others (n0: product 0; label it; n1: product 1; n2: "
            "product 2; and 2 more)"
        ),
    )


def test_nodes_excluded_for_one_reason_are_listed_with_their_numbers_of_gpus() -> None:
    nodes = (
        a_node(name, gpus=gpus, allocatable={"nvidia.com/gpu": "0"})
        for name, gpus in (("n1", 8), ("n2", 4), ("n3", 8))
    )
    excluded = [found for node in nodes if isinstance(found := read_node(node), NodeExclusion)]

    assert _unusable(*excluded) == (
        (
            "no allocatable GPUs: n1, n2, n3 (n1, n3: allocatable nvidia.com/gpu 0 must be at least 1, "
            "0 of 8 healthy; look at the driver and device plugin pods of the node; n2: allocatable "
            "nvidia.com/gpu 0 must be at least 1, 0 of 4 healthy)"
        ),
    )


def test_a_warning_says_when_free_capacity_had_to_be_assumed() -> None:
    inventory = Inventory(pools=(), known_pods=KnownPods.NONE)

    warnings = explain(a_report(a_refusal(), alternatives=()), inventory=inventory).warnings

    assert warnings == ("no pods are known: every allocatable GPU counts as free",)


def test_one_layout_does_in_the_singular() -> None:
    excluded = (
        an_exclusion("HeadsNotDivisible", 1),
        an_exclusion("ExpertsFewerThanRanks", 1),
        an_exclusion("MigEnabled", 1),
    )

    ruled_out = explain(a_report(excluded=excluded, considered=3)).ruled_out

    assert ruled_out == (
        "of 3 layouts tried: 1 does not divide the attention heads, 1 has more ranks than "
        "experts; nodes not used: 1 MIG enabled"
    )


def test_where_nothing_was_tried_or_ruled_out_that_is_said() -> None:
    assert explain(a_report(excluded=(), considered=1)).ruled_out == "of 1 layout tried: none"
    assert explain(a_report(excluded=(), considered=0)).ruled_out == "no layout was tried"


def test_what_waiting_helps_against_is_not_called_impossible() -> None:
    busy = replace(a_refusal(), heals_by_itself=True)

    assert explain(a_report(busy, alternatives=())).headline.startswith(
        "no room now. 93.9 GiB of weights"
    )


def test_the_headline_of_one_gpu_names_no_layout() -> None:
    plan = a_reported_plan(layout=Layout(), groups=(("n1",),), nodes_per_replica=1, gpus_per_node=1)

    assert explain(a_report(plan)).headline == "TP1 on 1 NVIDIA-H100-80GB-HBM3 of 1 node"


def test_replicas_on_one_node_are_drawn_side_by_side() -> None:
    plan = a_reported_plan(
        layout=Layout(tensor=2, replicas=2),
        groups=(("n1",), ("n1",)),
        nodes_per_replica=1,
        gpus_per_node=2,
    )
    inventory = an_inventory(replace(a_pool(gpus_per_node=8), name=plan.pool))

    drawn = explain(a_report(plan), inventory=inventory).nodes

    free = (None,) * 4
    assert [node.stages for node in drawn] == [(0, 0, None, None, *free), (None, None, 0, 0, *free)]


def test_a_rate_that_cannot_be_served_is_explained_as_a_queue_without_end() -> None:
    request = a_reported_request()
    request = replace(request, workload=replace(request.workload, requests_per_second=20.0))
    plan = a_reported_plan(
        carries_load=False, performance=a_reported_performance(output=512 * 6.64, running=585)
    )

    facts = explain(a_report(plan), request=request).facts

    assert _fact(facts, "K/V cache").endswith(
        "longest request 3,072; serves 6.64 of 20 requests a second"
    )
    assert _fact(facts, "Latency") == "27 ms per token; the queue grows without end"


def test_a_rate_that_takes_nearly_all_that_is_served_has_a_first_token() -> None:
    request = a_reported_request()
    request = replace(request, workload=replace(request.workload, requests_per_second=20.0))
    plan = a_reported_plan(
        carries_load=False, performance=a_reported_performance(output=512 * 20.0)
    )

    assert _fact(explain(a_report(plan), request=request).facts, "Latency").startswith(
        "first token after"
    )


def test_percentiles_are_said_where_a_limit_speaks_of_them() -> None:
    limited = Objective(tpot_seconds=0.05, statistic=Statistic.P95)
    speed = replace(
        a_reported_performance(running=65),
        decode_shares=(TimeShare(name="Prefill", seconds=0.008),),
        prefill_shares=(TimeShare(name="Queue", seconds=0.1),),
    )

    said = _fact(
        explain(
            a_report(a_reported_plan(performance=speed)),
            request=a_reported_request(objective=limited),
        ).facts,
        "Latency",
    )

    assert said == "first token after 310 ms, then 27 ms per token (P95, assumed: 510 ms and 29 ms)"


def test_the_link_of_attention_replicas_is_named() -> None:
    inside = a_reported_plan(
        layout=Layout(attention_data=8, expert=8),
        tensor_link="",
        nodes_per_replica=1,
        groups=(("n1",),),
    )
    across = a_reported_plan(
        layout=Layout(attention_data=16, expert=16), tensor_link="", nodes_per_replica=2
    )
    inventory = an_inventory(replace(a_pool(), name=inside.pool))

    said = [
        _fact(explain(a_report(plan), inventory=inventory).facts, "Links")
        for plan in (inside, across)
    ]

    assert said == ["experts over NVLink4 NVSwitch", "experts over 400 Gb/s RDMA"]
    assert _fact(explain(a_report(across)).facts, "Links") == "experts between 2 nodes"


def test_a_plan_of_no_replicas_says_that_nothing_runs() -> None:
    plan = a_reported_plan(layout=Layout(tensor=8, replicas=0), groups=(), carries_load=False)

    explanation = explain(a_report(plan), request=a_reported_request())

    assert explanation.headline == "TP8 on NVIDIA-H100-80GB-HBM3; replicas is 0, nothing runs"
    assert explanation.nodes == ()


def test_stages_say_their_micro_batches_and_what_of_a_tokens_time_waits_for_other_stages() -> None:
    waiting = replace(
        a_reported_performance(running=20),
        tpot_seconds=0.05,
        decode_shares=(TimeShare(name="Bubble", seconds=0.01),),
    )
    plan = a_reported_plan(layout=Layout(tensor=8, pipeline=4), performance=waiting)

    said = _fact(explain(a_report(plan)).facts, "Stages")

    assert said == (
        "4, 4 micro-batches of 5 requests in flight; 20% of a token's time waits for other stages"
    )


def test_each_node_is_drawn_with_the_gpus_that_it_has() -> None:
    inventory = inventory_of(a_node("a"), a_node("b", gpus=4))
    plan = a_reported_plan(
        layout=Layout(tensor=2, replicas=2),
        groups=(("a",), ("b",)),
        nodes_per_replica=1,
        gpus_per_node=2,
        pool="h100-sxm-80gb",
    )

    drawn = explain(a_report(plan), inventory=inventory).nodes

    assert [len(node.stages) for node in drawn] == [8, 4]
