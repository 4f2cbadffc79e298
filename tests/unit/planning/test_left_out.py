"""Which of the user's own fields keeps a plan away, or makes it dear? Each that is named was left
out and asked about.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from shardwright.api.settings import Settings
from shardwright.api.spec import Engine
from shardwright.layouts.layout import Layout
from shardwright.pipeline.assembly import plan_serving, without_barring
from shardwright.planning.report import Benefit, NoPlan, Plan, WithoutFields
from shardwright.planning.sentences import ways_sentence, without_sentence
from shardwright.planning.ways_out import FIELDS_TRIED, SHOWN, FieldPaths, Offer, fitting
from shardwright.resolving.model import Question
from shardwright.resolving.subject import Subject, resolve
from tests.support.builders_nodes import a_gb200_rack, a_node, an_mi300x_node, h100_nodes
from tests.support.builders_plan import a_pool
from tests.support.builders_subject import (
    LARGE,
    a_resource,
    a_subject,
    advised,
    plan_of,
    stock,
    supply,
)

Spec = Mapping[str, Any]
Nodes = list[dict[str, Any]]

L40S = [a_node(f"l40s-{index}", "NVIDIA-L40S", 4, network_gbps=25) for index in range(3)]
LARGER = {"model": {"id": "meta-llama/Llama-3.1-70B-Instruct"}}


def left_out(spec: Spec, nodes: Nodes) -> tuple[WithoutFields, ...]:
    """Return the plans without fields of a spec that has no plan."""
    report = advised(a_subject(**spec), nodes)
    assert isinstance(report.outcome, NoPlan), report.outcome
    return report.without


BARRING: dict[str, tuple[Spec, Nodes]] = {
    "spec.placement.nodeSelector": (
        {"placement": {"nodeSelector": {"team": "search"}}},
        h100_nodes(1),
    ),
    "spec.placement.migProfile": ({"placement": {"migProfile": "1g.10gb"}}, h100_nodes(1)),
    "spec.pod.network.resources": (
        {
            **LARGE,
            "pod": {
                "network": {"rdma": "Explicit", "resources": [{"name": "rdma/missing", "count": 8}]}
            },
        },
        h100_nodes(2),
    ),
    "spec.budget.gpus": ({**LARGE, "budget": {"gpus": 4}}, h100_nodes(2)),
    "spec.budget.nodes": ({**LARGE, "budget": {"nodes": 1}}, h100_nodes(2)),
    "spec.parallelism.tensor": ({"parallelism": {"tensor": 3}}, h100_nodes(1)),
    "spec.parallelism.pipeline": ({"parallelism": {"pipeline": 64}}, h100_nodes(1)),
    "spec.parallelism.expert": ({"parallelism": {"expert": 8}}, h100_nodes(1)),
    "spec.parallelism.dataParallelAttention": (
        {"parallelism": {"dataParallelAttention": 2}},
        h100_nodes(1),
    ),
    "spec.parallelism.context": ({"parallelism": {"context": 8}}, h100_nodes(1)),
    "spec.objective.ttftMilliseconds": ({"objective": {"ttftMilliseconds": 1}}, h100_nodes(1)),
    "spec.objective.tpotMilliseconds": ({"objective": {"tpotMilliseconds": 1}}, h100_nodes(1)),
    "spec.replicas": ({"replicas": 9, "rollout": {"minGroups": 9}}, h100_nodes(1)),
    "spec.engine.maxModelLen": (
        {**LARGER, "engine": {"maxModelLen": 131072}},
        [a_node("small", gpus=2)],
    ),
    "spec.engine.kvCacheQuantization": (
        {"engine": {"kvCacheQuantization": "FP8"}},
        [a_node("ampere", "NVIDIA-A100-SXM4-80GB")],
    ),
    "spec.engine.kvOffload": ({"engine": {"kvOffload": {"hostMemory": "9000Gi"}}}, h100_nodes(1)),
    "spec.engine.args.kv-cache-memory-bytes": (
        {"engine": {"args": {"kv-cache-memory-bytes": 2**40}}},
        h100_nodes(1),
    ),
    "spec.engine.image": ({"engine": {"image": "vllm/vllm-openai:v0.33.0"}}, [an_mi300x_node()]),
}


@pytest.mark.parametrize("field", BARRING)
def test_the_one_field_that_keeps_a_plan_away_is_named(field: str) -> None:
    spec, nodes = BARRING[field]

    found = left_out(spec, nodes)

    assert [item.fields for item in found] == [(field,)]
    assert {item.gain for item in found} == {Benefit.FITS}


def test_the_plan_without_a_field_is_said_with_its_pool() -> None:
    spec = {**LARGE, "placement": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"}}}

    found = left_out(spec, [*L40S, *a_gb200_rack(trays=4)])

    assert found == (
        WithoutFields(
            fields=("spec.placement.nodeSelector",),
            gain=Benefit.FITS,
            layout=Layout(tensor=8),
            pool="gb200-nvl-186gb-4x-400g",
            product="NVIDIA-GB200",
        ),
    )


def test_limits_that_only_together_rule_everything_out_are_named_together() -> None:
    limits = {"ttftMilliseconds": 1, "tpotMilliseconds": 1}

    found = left_out({"objective": limits, "budget": {"gpus": 8}}, h100_nodes(1))

    assert [item.fields for item in found] == [
        ("spec.objective.ttftMilliseconds", "spec.objective.tpotMilliseconds")
    ]


def test_pins_that_only_together_rule_everything_out_are_named_together() -> None:
    pins = {"tensor": 3, "pipeline": 64}

    found = left_out({"parallelism": pins}, h100_nodes(1))

    assert [item.fields for item in found] == [
        ("spec.parallelism.tensor", "spec.parallelism.pipeline")
    ]


def test_of_two_reasons_that_keep_a_node_out_both_are_named() -> None:
    placement = {"nodeSelector": {"team": "search"}, "migProfile": "1g.10gb"}

    found = left_out({"placement": placement}, h100_nodes(1))

    assert [item.fields for item in found] == [
        ("spec.placement.nodeSelector", "spec.placement.migProfile")
    ]


def test_no_field_is_named_where_none_helps() -> None:
    spec = {**LARGE, "placement": {"nodeSelector": {"team": "search"}}, "budget": {"gpus": 4}}

    assert left_out(spec, L40S) == ()


def test_what_the_administrator_has_set_cannot_be_left_out() -> None:
    settings = Settings(engine=Engine(kv_cache_quantization="FP8"))
    subject = resolve(Question(resource=a_resource(), settings=settings))
    nodes = [a_node("ampere", "NVIDIA-A100-SXM4-80GB")]

    assert subject.defaulted == ("engine.kvCacheQuantization",)
    assert without_barring(subject, supply(subject, nodes)) == ()


def test_a_selector_that_excludes_no_node_is_not_asked_about() -> None:
    subject = a_subject(**LARGE, placement={"nodeSelector": {"team": "search"}})
    nodes = h100_nodes(1, labels={"team": "search"})

    def restock(_other: Subject) -> None:
        raise AssertionError("nothing is to be asked")

    there = replace(supply(subject, nodes), restock=restock)
    assert without_barring(subject, there) == ()


def test_a_stock_that_is_not_known_gives_no_advice() -> None:
    spec, nodes = BARRING["spec.placement.nodeSelector"]
    subject = a_subject(**spec)
    there = replace(supply(subject, nodes), restock=lambda _other: None)

    assert without_barring(subject, there) == ()


def an_offer(gpus: int = 1) -> Offer:
    subject = a_subject(parallelism={"tensor": gpus})
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))
    return Offer(plan=plan, pool=a_pool())


class Answers:
    """The planner's answers: a plan on so many GPUs if one of these sets is left out."""

    def __init__(self, offers: Mapping[FieldPaths, Offer]) -> None:
        self.offers = offers
        self.asked: list[FieldPaths] = []

    def __call__(self, fields: FieldPaths) -> Offer | None:
        self.asked.append(fields)
        enough = (offer for needed, offer in self.offers.items() if set(needed) <= set(fields))
        return next(enough, None)


def fields_of(found: Sequence[WithoutFields]) -> list[FieldPaths]:
    return [item.fields for item in found]


def test_the_cheapest_come_first_and_no_more_than_a_few() -> None:
    offers = {name: an_offer(gpus) for name, gpus in (("a", 8), ("b", 2), ("c", 4), ("d", 1))}
    ask = Answers({(name,): offer for name, offer in offers.items()})

    assert fields_of(fitting("abcd", ask)) == [("d",), ("b",), ("c",)]
    assert SHOWN == 3


def test_a_plan_that_carries_the_load_comes_before_a_cheaper_one_that_does_not() -> None:
    cheap, carrying = an_offer(1), an_offer(8)
    late = replace(cheap, plan=replace(cheap.plan, carries_load=False))

    found = fitting("ab", Answers({("a",): late, ("b",): carrying}))

    assert [(item.fields, item.carries_load) for item in found] == [(("b",), True), (("a",), False)]
    assert without_sentence(found[1]) == (
        "without a: TP1 on 1 H100-80GB-HBM3, which does not carry the load"
    )


def test_fields_that_help_together_are_the_fewest_that_do() -> None:
    ask = Answers({("b", "d"): an_offer()})

    assert fields_of(fitting("abcde", ask)) == [("b", "d")]
    assert len(ask.asked) == 2 * 5 + 1


def test_a_field_beyond_those_that_are_left_out_one_by_one_is_found_among_all() -> None:
    fields = [f"f{number}" for number in range(FIELDS_TRIED + 2)]

    assert fields_of(fitting(fields, Answers({(fields[-1],): an_offer()}))) == [(fields[-1],)]


def test_the_number_of_questions_has_a_bound() -> None:
    ask = Answers({})

    assert fitting([f"f{number}" for number in range(50)], ask) == ()
    assert len(ask.asked) == FIELDS_TRIED + 1


COSTLY: dict[str, tuple[Spec, Nodes, Benefit]] = {
    "spec.parallelism.pipeline": (
        {**LARGER, "parallelism": {"pipeline": 8}, "budget": {"gpus": 8}},
        h100_nodes(1),
        Benefit.CHEAPER,
    ),
    "spec.replicas": (
        {"replicas": 8, "workload": {"requestsPerSecond": 1}},
        h100_nodes(1),
        Benefit.CHEAPER,
    ),
    "spec.budget.gpus": (
        {**LARGER, "budget": {"gpus": 2}, "workload": {"concurrency": 256}},
        h100_nodes(1),
        Benefit.CARRIES_LOAD,
    ),
    "spec.placement.nodeSelector": (
        {
            "placement": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-GB200"}},
            "workload": {"concurrency": 4},
        },
        [*L40S, *a_gb200_rack(trays=2)],
        Benefit.CHEAPER,
    ),
    "spec.objective.tpotMilliseconds": (
        {**LARGER, "objective": {"tpotMilliseconds": 14}, "workload": {"concurrency": 8}},
        h100_nodes(1),
        Benefit.CHEAPER,
    ),
}


@pytest.mark.parametrize("field", COSTLY)
def test_a_field_that_costs_a_third_is_named_with_what_it_costs(field: str) -> None:
    spec, nodes, gain = COSTLY[field]

    report = advised(a_subject(**spec), nodes)

    assert isinstance(report.outcome, Plan)
    assert [(item.fields, item.gain) for item in report.without] == [((field,), gain)]


def test_what_it_costs_is_the_plans_own_difference() -> None:
    spec, nodes, _ = COSTLY["spec.parallelism.pipeline"]
    other = {name: part for name, part in spec.items() if name != "parallelism"}

    (found,) = advised(a_subject(**spec), nodes).without
    here, there = (plan_of(advised(a_subject(**one), nodes)) for one in (spec, other))

    assert (found.layout, found.price) == (there.layout, there.layout.gpus / here.layout.gpus)
    ratio = there.performance.output_tokens_per_second / here.performance.output_tokens_per_second
    assert found.output == ratio


def test_a_field_that_costs_less_than_a_third_is_not_named() -> None:
    spec = {"workload": {"requestsPerSecond": 30}}
    planned = plan_of(advised(a_subject(**spec), h100_nodes(1))).layout.replicas

    one_more = advised(a_subject(**spec, replicas=planned + 1), h100_nodes(1))

    assert planned > 2
    assert plan_of(one_more).layout.gpus == planned + 1
    assert one_more.without == ()


def test_a_model_that_is_stopped_is_not_told_what_it_would_cost() -> None:
    spec, nodes, _ = COSTLY["spec.parallelism.pipeline"]

    assert advised(a_subject(**spec, replicas=0), nodes).without == ()


def test_a_person_reads_every_way_in_one_sentence() -> None:
    spec, nodes = BARRING["spec.replicas"]

    outcome = advised(a_subject(**spec), nodes).outcome

    assert isinstance(outcome, NoPlan)
    assert ways_sentence(outcome.ways_out) == (
        "it would fit without spec.replicas: TP1 on 1 H100-80GB-HBM3, or with 1 more node of "
        "h100-sxm-80gb-8x-400g"
    )
