"""One question, one answer: the command line's document and the operator's status say the same."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.api.plan_status import plan_status
from shardwright.api.record import PlanRecord, decode, encode
from shardwright.pipeline.documents import plan_document
from shardwright.pipeline.replanning import Replanned
from tests.property.test_left_out_laws import FLEETS, MODELS, Nodes, a_spec, is_taken, own_fields
from tests.support.builders_subject import advised
from tests.support.desk import Desk

LOADS: tuple[Mapping[str, Any], ...] = (
    {"concurrency": 4},
    {"concurrency": 300},
    {"requestsPerSecond": 9.0},
    {"requestsPerSecond": 900.0},
)


def _shown(answer: Replanned) -> dict[str, Any]:
    """Return status.plan of an answer, as a later look reads it from the plan of record."""
    if answer.record is None:
        return plan_status(answer.report)
    kept = decode(encode(answer.record))
    assert isinstance(kept, PlanRecord)
    shown = plan_status(replace(kept.report(), lacks=answer.lacks))
    assert shown == plan_status(answer.report)
    return shown


def _answers(
    model: str, own: Mapping[str, Any], load: Mapping[str, Any], nodes: Nodes
) -> tuple[dict[str, Any], dict[str, Any]]:
    desk = Desk(nodes)
    key = desk.add("asked", **{**a_spec(model, own), "workload": load})
    printed = plan_document(desk.subject(key), advised(desk.subject(key), nodes))["plan"]
    if "layout" in printed:
        # What own fields cost a plan takes a further one for each: the operator makes none.
        printed.pop("without", None)
    return printed, _shown(desk.ask(key))


@example(MODELS[0], "A100", {"budget.nodes": 1, "replicas": 9}, LOADS[0])
@given(
    st.sampled_from(MODELS),
    st.sampled_from(sorted(FLEETS)),
    own_fields.filter(is_taken),
    st.sampled_from(LOADS),
)
def test_the_operator_shows_what_plan_prints(
    model: str, fleet: str, own: Mapping[str, Any], load: Mapping[str, Any]
) -> None:
    printed, shown = _answers(model, own, load, FLEETS[fleet])

    assert shown == printed
