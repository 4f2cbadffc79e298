"""The plan of record: what is kept comes back to the last bit, what cannot be read is a value."""

import json

from shardwright.api.record import PlanRecord, decode, encode
from shardwright.api.status import plan_status
from shardwright.errors import Problem
from tests.support.builders_reporting import a_plan, a_report, an_exclusion

REPORT = a_report()
RECORD = PlanRecord(
    input_hash="a" * 64,
    cut_hash="b" * 64,
    generation=3,
    plan=a_plan(deployable=Problem(code="NotYetDeployable", what="not yet"), warnings=("mind the gap…",)),
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
        plan=a_plan(),
        alternatives=REPORT.alternatives,
        excluded=REPORT.excluded,
        considered=REPORT.considered,
    )
    read = decode(encode(record))

    assert isinstance(read, PlanRecord)
    assert plan_status(read.report()) == plan_status(a_report(a_plan()))


def test_text_that_is_no_json_is_a_problem() -> None:
    assert decode("{") == Problem(
        code="PlanRecordUnreadable",
        what="the plan of record",
        limit="is not JSON",
        remedy="a new plan is made; delete the ConfigMap to be rid of the message",
    )


def test_another_version_is_a_problem() -> None:
    text = json.dumps(json.loads(encode(RECORD)) | {"version": 2})

    problem = decode(text)

    assert isinstance(problem, Problem)
    assert problem.limit == "has version 2, not 1"


def test_a_record_edited_by_hand_is_a_problem_that_names_the_field() -> None:
    plain = json.loads(encode(RECORD))
    plain["plan"]["layout"]["tensor"] = "eight"

    problem = decode(json.dumps(plain))

    assert isinstance(problem, Problem)
    assert problem.limit.startswith("plan.layout.tensor: ")


def test_a_field_of_a_later_release_is_dropped() -> None:
    plain = json.loads(encode(RECORD))
    plain["plan"]["colour"] = "green"

    assert decode(json.dumps(plain)) == RECORD
