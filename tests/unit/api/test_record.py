"""The plan of record: what is kept comes back to the last bit, what cannot be read is a value."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardwright.api.plan_status import plan_status
from shardwright.api.record import (
    RECORD_VERSION,
    Cause,
    PlanRecord,
    Rollback,
    decode,
    encode,
)
from shardwright.errors import Problem
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Loss, LossKind
from tests.support.builders_reporting import a_report, a_reported_plan, an_exclusion

RECORDS = Path(__file__).parents[2] / "data" / "records"

REPORT = a_report()

LATER = {
    "rejected": "",
    "improved_at": None,
    "rollback": None,
    "answered": "",
    "unknown": False,
}
"""Fields that came after version 2, as they are written where nothing is to be said."""

RECORD = PlanRecord(
    input_hash="a" * 64,
    cut_hash="b" * 64,
    generation=3,
    plan=a_reported_plan(
        undeployable=Problem(code="NotYetDeployable", what="not yet"),
        warnings=("mind the gap…",),
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
    assert problem.limit == f"has version {version}, not 1 to {RECORD_VERSION}"


def test_a_record_edited_by_hand_is_a_problem_that_names_the_field() -> None:
    plain = json.loads(encode(RECORD))
    plain["plan"]["layout"]["tensor"] = "eight"

    problem = decode(json.dumps(plain))

    assert isinstance(problem, Problem)
    assert problem.limit.startswith("plan.layout.tensor: ")


def test_fields_of_a_later_release_change_nothing_and_are_written_again_where_they_stood() -> (
    None
):
    plain = json.loads(encode(RECORD)) | {"reviewed": {"by": "somebody"}, "beyond": 7}
    plain["plan"] |= {"colour": "green"}
    plain["plan"]["layout"]["shape"] = [1, 2]

    read = decode(json.dumps(plain))

    assert read == RECORD
    assert isinstance(read, PlanRecord)
    assert json.loads(encode(read)) == plain
    assert json.loads(encode(read.moved(0, ("x", "y"), 1)))["plan"]["colour"] == "green"


def test_losses_of_kinds_that_a_later_release_knows_are_dropped_and_the_record_is_read() -> (
    None
):
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


def test_unknown_fields_of_a_later_release_are_dropped_with_the_object_they_stood_in() -> (
    None
):
    plain = json.loads(encode(RECORD))
    plain["plan"]["undeployable"]["since"] = "yesterday"
    read = decode(json.dumps(plain))
    assert isinstance(read, PlanRecord)

    assert (
        json.loads(encode(replace(read, plan=a_reported_plan())))["plan"][
            "undeployable"
        ]
        is None
    )


def released(version: int) -> dict[str, str]:
    """Return records as releases that write this version have written them, by name."""
    return {
        file.stem: file.read_text()
        for file in sorted((RECORDS / f"v{version}").glob("*.json"))
    }


def _priced_later(plain: dict[str, Any]) -> dict[str, Any]:
    """Return the runners-up as they are written since they have a price, where it is not known."""
    return {
        "alternatives": [
            {**other, "gpu_price": None} for other in plain["alternatives"]
        ]
    }


def test_records_of_every_version_that_was_ever_written_are_kept_here() -> None:
    assert {folder.name for folder in RECORDS.iterdir()} >= {
        f"v{version}" for version in range(1, RECORD_VERSION)
    }
    assert (
        set(released(1))
        == set(released(2))
        == {"experts", "generations", "not_deployable", "one_gpu", "two_nodes"}
    )


def _with_losses(plain: dict[str, Any]) -> dict[str, Any]:
    """The alternatives of a record, which have their losses as facts since."""
    return {
        "alternatives": [{**one, "losses": []} for one in plain.get("alternatives", ())]
    }


@pytest.mark.parametrize("name", sorted(released(1)))
def test_a_record_of_version_1_is_read_to_the_last_bit(name: str) -> None:
    """Everything in it comes back under its name; what says why a plan cannot be run has another
    one since.
    """
    text = released(1)[name]
    plain = json.loads(text)
    later: dict[str, Any] = {
        "numbers": [],
        "uncounted": [],
        "host_cache": None,
        "gpu_price": None,
        "claimed": None,
        "draft_tokens": 0,
    }
    plain["plan"] |= {"undeployable": plain["plan"].pop("deployable"), **later}
    plain |= _priced_later(plain)

    read = decode(text)

    assert isinstance(read, PlanRecord), read
    assert json.loads(encode(read)) == plain | {
        "version": 2,
        "engine_version": None,
        "serial": 0,
        "sought": [],
    } | LATER | _with_losses(plain)
    assert (read.beyond, decode(encode(read))) == ({}, read)


@pytest.mark.parametrize("name", sorted(released(2)))
def test_a_record_of_version_2_is_read_to_the_last_bit_and_written_as_one(
    name: str,
) -> None:
    text = released(2)[name]
    plain = json.loads(text)

    read = decode(text)

    assert isinstance(read, PlanRecord), read
    assert json.loads(encode(read)) == plain | {
        "plan": plain["plan"]
        | {
            "numbers": [],
            "uncounted": [],
            "host_cache": None,
            "gpu_price": None,
            "claimed": None,
            "draft_tokens": 0,
        }
    } | LATER | _with_losses(_priced_later(plain))
    assert read.plan.group_numbers == tuple(range(len(read.plan.groups)))


def test_what_a_model_has_gone_back_to_is_read_as_it_was_written() -> None:
    back = Rollback(
        to="b6",
        instead_of="0c",
        cause=Cause.ENGINE_FAILED,
        group="llama-1",
        said="CUDA error",
    )
    record = replace(RECORD, rollback=back, answered="spec@now", unknown=True)
    assert decode(encode(record)) == record


@pytest.mark.parametrize(
    "numbers",
    [(0,), (1, 0), (1, 1), (-1, 0)],
    ids=["too few", "not in order", "twice", "negative"],
)
def test_a_record_whose_groups_have_no_number_of_their_own_is_not_read(
    numbers: tuple[int, ...],
) -> None:
    record = replace(
        RECORD, plan=a_reported_plan(groups=(("a",), ("b",)), numbers=numbers)
    )
    found = decode(encode(record))
    assert isinstance(found, Problem)
    assert (
        found.limit
        == "plan.numbers: must be one for each group, from 0, each greater than the one before"
    )
    kept = replace(record, plan=replace(record.plan, numbers=(0, 2)))
    assert decode(encode(kept)) == kept
    assert (
        json.loads(encode(kept))["version"],
        json.loads(encode(RECORD))["version"],
    ) == (3, 2)


@pytest.mark.parametrize(
    ("name", "layout", "groups", "generations"),
    [
        ("one_gpu", Layout(), (("l4-0",),), ()),
        ("two_nodes", Layout(tensor=8, pipeline=2), (("h100-0", "h100-1"),), ()),
        (
            "experts",
            Layout(expert=16, attention_data=16),
            (("h100-00", "h100-01"),),
            (),
        ),
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
def test_a_plan_of_version_1_is_the_plan_it_was(
    name: str,
    layout: Layout,
    groups: tuple[tuple[str, ...], ...],
    generations: tuple[int, ...],
) -> None:
    read = decode(released(1)[name])

    assert isinstance(read, PlanRecord)
    assert (read.plan.layout, read.plan.groups, read.generations) == (
        layout,
        groups,
        generations,
    )
    assert read.plan.deployable is (name != "not_deployable")
    assert read.plan.deployable or (
        read.plan.undeployable and read.plan.undeployable.code == "NotYetDeployable"
    )


def test_a_record_of_version_1_without_the_field_is_of_a_plan_that_can_be_run() -> None:
    plain = json.loads(released(1)["one_gpu"])
    del plain["plan"]["deployable"], plain["generations"]

    read = decode(json.dumps(plain))

    assert read == decode(released(1)["one_gpu"])
