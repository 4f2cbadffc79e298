"""The log tells what was decided and why: one line for each change, one for each refusal."""

import json
import logging
from typing import Any

import pytest

from shardwright.controller.look_log import (
    QUIET_SECONDS,
    Refusals,
    Transition,
    begin_look,
    log_transitions,
    log_write,
    transitions,
)
from shardwright.controller.process_settings import JsonLines
from shardwright.reconcile.write_cause import Origin, WriteCause
from shardwright.reconcile.writes import Apply, Create, DryRunPod, Patch, Why, Write

KEY = ("models", "m")
SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "m-1"}}
SERVES = {"type": "Ready", "status": "True", "reason": "Serving", "message": "3 of 3 groups ready"}
FAILS = {"type": "Ready", "status": "False", "reason": "GroupsNotReady", "message": "2 of 3"}
FAILURE = {
    "rank": 0,
    "container": "engine",
    "exitCode": 139,
    "reason": "Error",
    "message": "CUDA error",
}


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    return [(one.what, one.before, one.after, one.cause) for one in transitions(before, after)]


def test_a_status_that_stands_says_nothing() -> None:
    status = {"layout": "TP8", "conditions": [SERVES], "groups": [{"name": "m-0", "ready": True}]}

    assert changes(status, status) == []


def test_a_condition_is_told_when_its_status_or_reason_changes_and_not_when_its_words_do() -> None:
    other_words = SERVES | {"message": "3 of 3, and more"}

    assert changes({"conditions": [SERVES]}, {"conditions": [other_words]}) == []
    assert changes({"conditions": [SERVES]}, {"conditions": [FAILS]}) == [
        ("Ready", "True Serving", "False GroupsNotReady", "2 of 3")
    ]


def test_a_condition_that_comes_as_false_is_no_news_and_one_that_goes_is() -> None:
    idle = {"type": "Degraded", "status": "False", "reason": "Idle"}
    degraded = {"type": "Degraded", "status": "True", "reason": "NodeLost", "message": "n1"}

    assert changes({}, {"conditions": [idle]}) == []
    assert list(transitions({}, {"conditions": [degraded]})) == [
        Transition(what="Degraded", before="", after="True NodeLost", cause="n1", bad=True)
    ]
    assert changes({"conditions": [degraded]}, {}) == [("Degraded", "True NodeLost", "gone", "")]


def test_a_group_that_fails_is_told_with_its_exit_code_and_its_last_words() -> None:
    up, down = {"name": "m-1", "ready": True}, {"name": "m-1", "ready": False}
    failed = down | {"lastFailure": FAILURE}

    assert changes({"groups": [up]}, {"groups": [failed]}) == [
        (
            "group m-1",
            "ready",
            "not ready",
            "rank 0 container engine exit code 139 Error: CUDA error",
        )
    ]
    assert changes({"groups": [failed]}, {"groups": [failed]}) == []
    assert changes({"groups": [failed]}, {"groups": [up | {"lastFailure": FAILURE}]}) == [
        ("group m-1", "not ready", "ready", "")
    ]


def test_a_group_that_moves_is_told_from_where_to_where_and_why_it_waits() -> None:
    here = {"name": "m-1", "ready": True, "nodes": ["n1", "n2"]}
    there = {"name": "m-1", "ready": False, "nodes": ["n3", "n2"], "waiting": "starting"}

    assert changes({"groups": [here]}, {"groups": [there]}) == [
        ("group m-1", "n1, n2", "n3, n2", ""),
        ("group m-1", "ready", "not ready", "starting"),
    ]
    assert changes({"groups": [here]}, {}) == [("group m-1", "there", "gone", "")]


def test_what_a_model_is_cut_into_is_told() -> None:
    assert changes({"layout": "TP8"}, {"layout": "TP4"}) == [("layout", "TP8", "TP4", "")]
    assert changes({}, {"layout": "TP8"}) == [("layout", "", "TP8", "")]


UNDONE = WriteCause(Origin.UNDONE, "spec.replicas", by="kubectl-edit")


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (Create(content=SET), {"message": "create StatefulSet/m-1", "cause": "Wish: spec"}),
        (
            Apply(content=SET, uid="u", fields=("spec.replicas",), cause=UNDONE),
            {
                "message": "apply StatefulSet/m-1",
                "cause": "Undone: spec.replicas, by kubectl-edit",
                "fields": ["spec.replicas"],
            },
        ),
        (
            Patch(
                name="m-1",
                namespace="models",
                uid="u",
                annotations={},
                why=Why.FAILURE,
                cause=WriteCause(Origin.FAILURE, "rank 1, exit code 137"),
            ),
            {"message": "patch StatefulSet/m-1", "cause": "Failure: rank 1, exit code 137"},
        ),
    ],
)
def test_a_write_is_told_with_its_cause_and_with_fields_only_where_some_differ(
    write: Write, told: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    log_write(KEY, write)

    line = json.loads(JsonLines().format(caplog.records[0]))
    kept = {name: line[name] for name in line if name in {"message", "cause", "fields"}}
    assert kept == told
    assert line["key"] == "models/m"


def test_what_changes_nothing_that_runs_is_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    notes = Patch(name="m-1", namespace="models", uid="u", annotations={}, why=Why.NOTE)

    for write in (notes, DryRunPod(content=SET, set_uid="u")):
        log_write(KEY, write)

    assert caplog.records == []


def test_lines_of_one_look_share_an_id_and_lines_of_two_do_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    ids = []
    for _ in range(2):
        begin_look()
        log_write(KEY, Create(content=SET))
        log_transitions(KEY, {"conditions": [SERVES]}, {"conditions": [FAILS]})
        lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
        ids.append({line["look"] for line in lines})
        caplog.clear()

    assert [len(found) for found in ids] == [1, 1]
    assert ids[0] != ids[1]


def test_a_failure_is_a_warning_and_a_change_that_is_none_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    failed = {"groups": [{"name": "m-1", "ready": False, "lastFailure": FAILURE}]}

    log_transitions(KEY, {}, {"conditions": [SERVES]})
    log_transitions(KEY, {}, failed)

    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def test_a_refusal_that_lasts_is_one_line_whatever_name_was_made_up_for_the_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now = [0.0]
    refusals = Refusals(lambda: now[0])

    for name in ("m-1-x72q9", "m-1-xghkt", "m-1-bbbbb"):
        refusals.say(KEY, "Pod/m-1-", f'pods "{name}" is forbidden: exceeded quota: pods')
        now[0] += 30
    refusals.say(KEY, "Pod/m-1-", "admission webhook denied the request")
    refusals.over(KEY, "Pod/m-1-")
    refusals.over(KEY, "Pod/m-1-")
    refusals.say(KEY, "Pod/m-1-", 'pods "m-1-x72q9" is forbidden: exceeded quota: pods')
    now[0] += QUIET_SECONDS
    refusals.say(KEY, "Pod/m-1-", 'pods "m-1-x72q9" is forbidden: exceeded quota: pods')

    assert [(one.levelname, one.getMessage()[:30]) for one in caplog.records] == [
        ("WARNING", 'Pod/m-1-: pods "m-1-x72q9" is '),
        ("WARNING", "Pod/m-1-: admission webhook de"),
        ("INFO", "Pod/m-1-: taken now"),
        ("WARNING", 'Pod/m-1-: pods "m-1-x72q9" is '),
        ("WARNING", 'Pod/m-1-: pods "m-1-x72q9" is '),
    ]


def test_refusals_of_two_models_and_two_objects_are_told_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = Refusals()

    for key in (KEY, ("models", "other")):
        for what in ("Service/m", "ConfigMap/m"):
            refusals.say(key, what, "no")
    refusals.forget(KEY)
    refusals.say(KEY, "Service/m", "no")

    assert len(caplog.records) == 5
