"""A model that cannot be counted is planned by what its user states, and promises no speed."""

import json
from typing import Any

import pytest

from shardwright.api.plan_status import plan_status
from shardwright.api.settings import read_settings
from shardwright.pipeline.assembly import compared, plan_serving, with_ways_out
from shardwright.planning.report import Plan
from shardwright.rendering.fetch_job import Fetcher
from shardwright.reporting.explanation import explain
from shardwright.resolving.model import Question, unread
from shardwright.resolving.subject import Administration, Subject, resolve, resolve_stored
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_resource import a_sharded_model
from tests.support.builders_subject import a_resource, plan_of, problems_of, stock, supply

STATED = {"weightBytes": 600 * 10**9, "kvBytesPerToken": 35136}
PINS = {"tensor": 8, "pipeline": 2}
INDEX = {"model.safetensors.index.json": {"metadata": {"total_size": 600 * 10**9}}}


def asked(unproven: dict[str, Any] = STATED, **spec: Any) -> Question:
    said: dict[str, Any] = {"parallelism": PINS, "workload": {"concurrency": 8}} | spec
    model = {"id": "acme/day-zero", "unproven": unproven} | said.pop("model", {})
    return Question(resource=a_resource(model=model, **said))


def subject(unproven: dict[str, Any] = STATED, **spec: Any) -> Subject:
    return resolve(asked(unproven, **spec))


def planned(question: Question, nodes: int = 2) -> Plan:
    found = resolve(question)
    return plan_of(plan_serving(found, stock(found, h100_nodes(nodes))))


def test_degrees_are_the_pinned_ones_and_experts_may_be_dealt_whole() -> None:
    plan = planned(asked(parallelism=PINS | {"expert": 8}))

    layout = plan.layout
    assert (layout.tensor, layout.pipeline, layout.expert, layout.replicas) == (8, 2, 8, 1)


def test_no_figure_of_a_speed_or_of_what_follows_from_one_is_shown() -> None:
    asked_for = subject()
    report = plan_serving(asked_for, stock(asked_for, h100_nodes(4)))
    shown, explained = plan_status(report), explain(report, request=asked_for.request)

    assert {"predicted", "alternatives", "overSpeed"} & {
        name for name, value in shown.items() if value
    } == set()
    assert [fact.value for fact in explained.facts if fact.label == "Speed"] == [
        "none is promised: the model is unproven"
    ]
    assert (explained.times, explained.links, [s for s in explained.sure if "tok/s" in s]) == (
        None,
        (),
        [],
    )
    assert any(text.startswith("unproven:") for text in shown["warnings"])


def test_too_many_bytes_do_not_fit_and_no_other_degrees_are_proposed() -> None:
    large = subject(STATED | {"weightBytes": 1300 * 10**9})
    there = supply(large, h100_nodes(2))
    report = with_ways_out(large, there, plan_serving(large, there.inventory))

    assert report.outcome.problem.code == "WeightsExceedMemory"  # type: ignore[union-attr]
    assert report.without == ()
    assert compared(large, there.inventory, report) is None


def test_bytes_come_from_an_index_beside_the_config() -> None:
    files = {"config.json": {"architectures": ["Day0"], "num_hidden_layers": 61}} | INDEX
    plan = planned(
        Question(resource=asked({"kvBytesPerToken": 35136}).resource, config_text=json.dumps(files))
    )
    assert plan.stages[0].weights_bytes == pytest.approx(1.1 * 600e9 / 16, rel=1e-3)


@pytest.mark.parametrize(
    ("question", "problems"),
    [
        (asked(parallelism={"tensor": 8}), [("DegreesNotStated", "spec.parallelism")]),
        (asked({"kvBytesPerToken": 1}), [("BytesNotStated", "spec.model.unproven.weightBytes")]),
        (asked({"weightBytes": 1}), [("BytesNotStated", "spec.model.unproven.kvBytesPerToken")]),
        (
            asked(workload={"requestsPerSecond": 2.0}, objective={"ttftMilliseconds": 5}),
            [
                ("NotProvable", "spec.workload.requestsPerSecond"),
                ("NotProvable", "spec.objective.ttftMilliseconds"),
            ],
        ),
        (
            asked(parallelism=PINS | {"dataParallelAttention": 2}),
            [("NotProvable", "spec.parallelism.dataParallelAttention")],
        ),
    ],
)
def test_what_is_missing_or_cannot_be_answered_is_refused_where_it_stands(
    question: Question, problems: list[tuple[str, str]]
) -> None:
    assert problems_of(question) == problems


def test_the_operator_reads_the_index_from_the_hub_only_where_no_bytes_are_stated() -> None:
    on = Administration(
        settings=read_settings('{"configFetch": {"enabled": true}}'),
        fetcher=Fetcher(image="operator", pull_policy="Always"),
    )

    def fetched(unproven: dict[str, Any]) -> bool:
        model = {"id": "acme/day-zero", "unproven": unproven}
        content = a_sharded_model(model=model, parallelism=PINS, workload={"concurrency": 8})
        return unread(resolve_stored(content, None, on)) is not None

    assert [fetched({"kvBytesPerToken": 1}), fetched(STATED)] == [True, False]


def test_the_same_bytes_at_other_degrees_are_another_question() -> None:
    assert subject().input_hash != subject(parallelism={"tensor": 4, "pipeline": 4}).input_hash
