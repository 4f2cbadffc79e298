"""The plan of record: what is kept comes back to the last bit, what cannot be read is a value."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardwright.api.plan_status import plan_status
from shardwright.api.record import RECORD_VERSION, Cause, PlanRecord, Rollback, decode, encode
from shardwright.errors import Problem
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Loss, LossKind
from tests.support.builders_reporting import a_report, a_reported_plan, an_exclusion

RECORDS = Path(__file__).parents[2] / "data" / "records" / "v1"

REPORT = a_report()

RECORD = PlanRecord(
    input_hash="a" * 64,
    cut_hash="b" * 64,
    generation=3,
    plan=a_reported_plan(
        undeployable=Problem(code="NotYetDeployable", what="not yet"), warnings=("mind the gap…",)
    ),
    alternatives=REPORT.alternatives,
    excluded=(an_exclusion("OutOfMemory", 3),),
    considered=48,
)


def test_a_record_comes_back_as_it_was() -> None:
    assert decode(encode(RECORD)) == RECORD


def test_the_same_record_has_the_same_bytes() -> None:
    read = decode(encode(RECORD))

    assert isinstance(read, PlanRecord)
    assert encode(read) == encode(RECORD)


def test_a_kept_plan_is_shown_like_the_report_it_came_from() -> None:
    record = PlanRecord(
        input_hash="",
        cut_hash="",
        generation=1,
        plan=a_reported_plan(),
        alternatives=REPORT.alternatives,
        excluded=REPORT.excluded,
        considered=REPORT.considered,
    )
    read = decode(encode(record))

    assert isinstance(read, PlanRecord)
    assert plan_status(read.report()) == plan_status(a_report(a_reported_plan()))


def test_text_that_is_no_json_is_a_problem() -> None:
    assert decode("{") == Problem(
        code="PlanRecordUnreadable",
        what="the plan of record",
        limit="is not JSON",
        remedy="what runs is left as it is; delete the ConfigMap to have a new plan made",
    )


@pytest.mark.parametrize("version", [RECORD_VERSION + 1, 0, None, "1", True])
def test_a_version_that_is_not_known_is_a_problem(version: object) -> None:
    text = json.dumps(json.loads(encode(RECORD)) | {"version": version})

    problem = decode(text)

    assert isinstance(problem, Problem)
    assert problem.limit == f"has version {version}, not {RECORD_VERSION}"


def test_a_record_edited_by_hand_is_a_problem_that_names_the_field() -> None:
    plain = json.loads(encode(RECORD))
    plain["plan"]["layout"]["tensor"] = "eight"

    problem = decode(json.dumps(plain))

    assert isinstance(problem, Problem)
    assert problem.limit.startswith("plan.layout.tensor: ")


def test_fields_of_a_later_release_change_nothing_and_are_written_again_where_they_stood() -> None:
    plain = json.loads(encode(RECORD)) | {"reviewed": {"by": "somebody"}, "beyond": 7}
    plain["plan"] |= {"colour": "green"}
    plain["plan"]["layout"]["shape"] = [1, 2]

    read = decode(json.dumps(plain))

    assert read == RECORD
    assert isinstance(read, PlanRecord)
    assert json.loads(encode(read)) == plain
    assert json.loads(encode(read.moved(0, ("x", "y"), 1)))["plan"]["colour"] == "green"


def test_losses_of_kinds_that_a_later_release_knows_are_dropped_and_the_record_is_read() -> None:
    tight = {"kind": "Tight", "amount": 0.0, "part": ""}
    plain = json.loads(encode(RECORD))
    plain["alternatives"][0]["losses"] = [{**tight, "kind": "SlowerStart"}, tight]

    read = decode(json.dumps(plain))

    assert isinstance(read, PlanRecord), read
    assert read.alternatives[0].losses == (Loss(kind=LossKind.TIGHT),)


@pytest.mark.parametrize("kind", [[], {}, None, 5])
def test_a_kind_of_loss_that_is_no_word_makes_a_record_unreadable(kind: Any) -> None:
    plain = json.loads(encode(RECORD))
    plain["alternatives"][0]["losses"] = [{"kind": kind, "amount": 0.0, "part": ""}]

    assert isinstance(decode(json.dumps(plain)), Problem)


def test_unknown_fields_of_a_later_release_are_dropped_with_the_object_they_stood_in() -> None:
    plain = json.loads(encode(RECORD))
    plain["plan"]["undeployable"]["since"] = "yesterday"
    read = decode(json.dumps(plain))
    assert isinstance(read, PlanRecord)

    assert json.loads(encode(replace(read, plan=a_reported_plan())))["plan"]["undeployable"] is None


def stored(name: str) -> str:
    return (RECORDS / f"{name}.json").read_text().removesuffix("\n")


@pytest.mark.parametrize("name", sorted(file.stem for file in RECORDS.glob("*.json")))
def test_a_record_of_version_1_is_read_to_the_last_bit_and_written_as_it_was(name: str) -> None:
    read = decode(stored(name))

    assert isinstance(read, PlanRecord), read
    assert (read.beyond, encode(read)) == ({}, stored(name))


def test_what_a_model_has_gone_back_to_is_read_as_it_was_written() -> None:
    back = Rollback(
        to="b6", instead_of="0c", cause=Cause.ENGINE_FAILED, group="llama-1", said="CUDA error"
    )
    record = replace(RECORD, rollback=back, answered="spec@now", unknown=True)
    assert decode(encode(record)) == record


@pytest.mark.parametrize(
    "numbers", [(0,), (1, 0), (1, 1), (-1, 0)], ids=["too few", "not in order", "twice", "negative"]
)
def test_a_record_whose_groups_have_no_number_of_their_own_is_not_read(
    numbers: tuple[int, ...],
) -> None:
    record = replace(RECORD, plan=a_reported_plan(groups=(("a",), ("b",)), numbers=numbers))
    found = decode(encode(record))
    assert isinstance(found, Problem)
    assert (
        found.limit
        == "plan.numbers: must be one for each group, from 0, each greater than the one before"
    )
    kept = replace(record, plan=replace(record.plan, numbers=(0, 2)))
    assert decode(encode(kept)) == kept


@pytest.mark.parametrize(
    ("name", "layout", "groups", "generations"),
    [
        ("one_gpu", Layout(), (("l4-0",),), ()),
        ("two_nodes", Layout(tensor=8, pipeline=2), (("h100-0", "h100-1"),), ()),
        ("experts", Layout(expert=16, attention_data=16), (("h100-00", "h100-01"),), ()),
        (
            "not_deployable",
            Layout(tensor=8, attention_data=2, expert=16),
            (("gb200-00", "gb200-01", "gb200-02", "gb200-03"),),
            (),
        ),
        (
            "generations",
            Layout(tensor=8, pipeline=2, replicas=2),
            (("h100-00", "h100-01"), ("h100-02", "h100-03")),
            (2, 1),
        ),
    ],
)
def test_a_plan_of_a_stored_record_is_the_plan_it_was(
    name: str, layout: Layout, groups: tuple[tuple[str, ...], ...], generations: tuple[int, ...]
) -> None:
    read = decode(stored(name))

    assert isinstance(read, PlanRecord)
    assert (read.plan.layout, read.plan.groups, read.generations) == (layout, groups, generations)
    assert read.plan.deployable is (name != "not_deployable")
    assert read.plan.deployable or (
        read.plan.undeployable and read.plan.undeployable.code == "NotYetDeployable"
    )
