"""A report as ``status.plan``: what is shown, and that it always fits the schema."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.api.plan_status import plan_status
from shardwright.api.published import ShownPlan
from shardwright.errors import Problem
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Loss, LossKind, NoPlan, Report
from tests.support.builders_reporting import a_report, a_reported_plan, an_alternative, an_exclusion

NOTHING = NoPlan(problem=Problem(code="NothingFits", what="nothing"), heals_by_itself=False)


def fits_the_schema(shown: dict[str, Any]) -> bool:
    """The CRD's schema is made from this model: what it takes the API server takes."""
    return ShownPlan.model_validate(shown).model_dump(by_alias=True, exclude_none=True) == shown


def test_a_plan_is_shown_with_totals_over_all_replicas() -> None:
    plan = a_reported_plan(
        layout=Layout(tensor=8, pipeline=2, replicas=2),
        groups=(("n1", "n0"), ("n2", "n3")),
        nodes_per_replica=2,
        gpus_per_node=8,
    )

    shown = plan_status(a_report(plan))

    assert (shown["nodes"], shown["gpus"]) == (4, 32)
    assert shown["layout"] == {
        "tensor": 8,
        "pipeline": 2,
        "expert": 1,
        "dataParallelAttention": 1,
        "context": 1,
        "replicas": 2,
        "gpusPerReplica": 16,
        "nodesPerReplica": 2,
    }
    assert shown["placement"]["nodes"] == ["n0", "n1", "n2", "n3"]


def test_replicas_on_the_same_node_count_it_once() -> None:
    plan = a_reported_plan(
        layout=Layout(tensor=2, replicas=3),
        groups=(("n0",), ("n0",), ("n1",)),
        nodes_per_replica=1,
        gpus_per_node=2,
    )

    shown = plan_status(a_report(plan))

    assert (shown["nodes"], shown["gpus"], shown["placement"]["nodes"]) == (2, 6, ["n0", "n1"])


def test_the_time_of_a_token_tells_apart_what_milliseconds_round_to_the_same() -> None:
    plan = a_reported_plan()
    other = an_alternative(Layout(tensor=16), "it is slower")
    faster, slower = (
        plan_status(
            a_report(
                replace(plan, performance=replace(plan.performance, tpot_seconds=tpot)),
                alternatives=(
                    replace(other, performance=replace(other.performance, tpot_seconds=tpot)),
                ),
            )
        )
        for tpot in (0.0086, 0.0091)
    )

    for shown, microseconds in ((faster, 8600), (slower, 9100)):
        for figures in (shown["predicted"], shown["alternatives"][0]):
            assert figures["tpotMilliseconds"] == 9
            assert figures["tpotMicroseconds"] == microseconds


@pytest.mark.parametrize(
    ("loss", "figures"),
    [
        (Loss(kind=LossKind.TIGHT), {}),
        (Loss(kind=LossKind.QUEUES, amount=12.0), {"requests": 12}),
        (Loss(kind=LossKind.FALLS_BEHIND, amount=1.25), {"requestsPerSecond": "1.25"}),
        (Loss(kind=LossKind.THROUGHPUT_PER_GPU, amount=0.881), {"percent": -12}),
        (Loss(kind=LossKind.TPOT, amount=1.34), {"percent": 34}),
        (
            Loss(kind=LossKind.PART_OF_TPOT, amount=0.0123, part="Weights"),
            {"part": "Weights", "microseconds": 12300},
        ),
    ],
    ids=lambda value: value.kind.value if isinstance(value, Loss) else "",
)
def test_a_loss_is_a_kind_with_its_figure(loss: Loss, figures: dict[str, Any]) -> None:
    other = replace(an_alternative(Layout(tensor=16), "worse"), losses=(loss,))

    shown = plan_status(a_report(alternatives=(other,)))

    assert shown["alternatives"][0]["losses"] == [{"kind": loss.kind.value, **figures}]
    assert fits_the_schema(shown)


def test_memory_is_shown_per_stage_in_bytes() -> None:
    plan = a_reported_plan()
    stage = plan.stages[0]

    shown = plan_status(a_report(plan))["memory"]["stages"][0]

    assert shown["weightsBytes"] == stage.weights_bytes
    assert shown["kvCacheBytes"] == stage.kv_cache_bytes
    assert (shown["firstLayer"], shown["layers"]) == (
        stage.layers[0],
        stage.layers[1] - stage.layers[0],
    )


def test_slots_of_adapters_are_shown_where_there_are_some() -> None:
    plan = a_reported_plan()
    adapted = replace(plan, stages=(replace(plan.stages[0], adapter_bytes=7), *plan.stages[1:]))

    shown = plan_status(a_report(adapted))

    assert ["adapterBytes" in stage for stage in shown["memory"]["stages"]] == [True] + [False] * (
        len(plan.stages) - 1
    )
    assert shown["memory"]["stages"][0]["adapterBytes"] == 7
    assert fits_the_schema(shown)


def test_when_nothing_fits_only_what_was_ruled_out_is_shown() -> None:
    report = a_report(
        NOTHING, excluded=(an_exclusion("OutOfMemory", 3),), alternatives=(), considered=3
    )

    assert plan_status(report) == {
        "alternatives": [],
        "excluded": [{"code": "OutOfMemory", "count": 3, "example": "TP4", "nearestMiss": ""}],
        "considered": 3,
        "waitingHelps": False,
    }


def test_everything_shown_fits_the_schema() -> None:
    assert fits_the_schema(plan_status(a_report()))
    assert fits_the_schema(plan_status(a_report(NOTHING)))


def test_too_much_is_cut_to_fit_the_schema() -> None:
    """Ten thousand nodes and endless sentences must not make the API server refuse the status."""
    plan = a_reported_plan(
        layout=Layout(tensor=8, pipeline=250, replicas=40),
        groups=tuple(tuple(f"n{group}-{rank}" for rank in range(250)) for group in range(40)),
        stages=tuple(replace(a_reported_plan().stages[0], stage=stage) for stage in range(250)),
        reasons=("why " * 1000,) * 100,
        warnings=("oh " * 1000,) * 100,
    )
    others = tuple(an_alternative(Layout(tensor=tensor), "x" * 5000) for tensor in range(1, 50))
    ruled_out = tuple(
        an_exclusion(f"Code{chr(65 + index % 26)}{'x' * (index // 26)}", 1, "y" * 5000)
        for index in range(200)
    )
    report = Report(outcome=plan, alternatives=others, excluded=ruled_out, considered=10_000)

    shown = plan_status(report)

    assert fits_the_schema(shown)
    assert shown["nodes"] == 10_000
    assert len(shown["placement"]["nodes"]) == 512
