"""Whatever text comes from others: no sink hands on what steers a terminal, forges a line or is
longer than its place.
"""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shardwright.api.conditions import Condition, ConditionType, set_condition
from shardwright.api.published import MESSAGE_MAX_LENGTH, SENTENCE_MAX_LENGTH, ShownExclusion
from shardwright.cluster.client import Client
from shardwright.cluster.reports import Recorder
from shardwright.controller.metrics import Metrics
from shardwright.reconcile.events import Event
from shardwright.reconcile.findings import Findings
from shardwright.reconcile.members import Failure, GroupState, Situation
from shardwright.reconcile.model_status import group_status
from shardwright.sinks import (
    EVENT_MAX_BYTES,
    LOG_FIELD_MAX_BYTES,
    LOG_MAX_BYTES,
    METRIC_MAX_LENGTH,
    TERMINAL_MAX_LENGTH,
    in_event,
    in_log,
    in_log_field,
    in_metric,
    in_status,
    in_terminal,
    in_traceback,
)
from tests.support.hostile_text import HOSTILE, is_harmless
from tests.support.scripted_api import Answer, ScriptedApi

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)


@KINDS
@pytest.mark.parametrize(
    ("sink", "longest"),
    [
        (in_terminal, TERMINAL_MAX_LENGTH),
        (in_log, LOG_MAX_BYTES),
        (in_log_field, LOG_FIELD_MAX_BYTES),
        (in_event, EVENT_MAX_BYTES),
        (lambda text: in_status(text, 100), 100),
        (in_metric, METRIC_MAX_LENGTH),
    ],
    ids=["terminal", "log", "field of the log", "event", "status", "metric"],
)
def test_what_a_sink_hands_on_is_one_printable_line_that_fits(
    sink: Callable[[str], str], longest: int, text: str
) -> None:
    shown = sink(f"before {text} after")
    assert shown.isprintable()
    assert len(shown.encode()) <= longest + 2  # the ellipsis has three bytes
    assert shown.startswith("before ")
    assert sink(shown) == shown


def test_text_that_means_no_harm_stays_as_it_is() -> None:
    plain = "spec.replicas: 3 → 4, „größer“, 数 \\x1b, 100 % 'x'"
    assert {
        sink(plain)
        for sink in (in_terminal, in_log, in_log_field, in_event, in_metric, in_traceback)
    } == {plain}


def test_the_note_of_an_event_is_counted_in_bytes_and_ends_with_a_whole_sign() -> None:
    assert len(in_event("ä" * 512).encode()) == 1024
    assert in_event("ä" * 513) == "ä" * 510 + "…"
    assert in_event("x" * 1024) == "x" * 1024


@pytest.mark.parametrize(
    ("sign", "sign_bytes"),
    [("x", 1), ('"', 2), ("ä", 6), ("\U0001f600", 12)],
    ids=["ascii", "quote", "umlaut", "emoji"],
)
def test_text_for_the_log_is_counted_in_the_bytes_that_json_makes_of_it(
    sign: str, sign_bytes: int
) -> None:
    fits = LOG_MAX_BYTES // sign_bytes
    assert in_log(sign * fits) == sign * fits
    assert in_log(sign * (fits + 1)) == sign * ((LOG_MAX_BYTES - 6) // sign_bytes) + "…"


def test_the_end_of_a_traceback_is_kept() -> None:
    shown = in_traceback("first\n" * 5000 + "ValueError: \x1b[31m")
    assert len(json.dumps(shown).strip('"')) == LOG_MAX_BYTES
    assert shown.startswith("…")
    assert shown.endswith("first\nValueError: \\x1b[31m")


@KINDS
def test_a_condition_and_a_status_are_printable_and_fit_the_schema(text: str) -> None:
    (condition,) = set_condition(
        (), Condition(type=ConditionType.STALLED, status=True, reason="X", message=text), now=NOW
    )
    excluded = ShownExclusion(code="X", count=1, example=text, nearest_miss=text)
    assert condition["message"].isprintable()
    assert len(condition["message"]) <= MESSAGE_MAX_LENGTH
    assert excluded.example.isprintable()
    assert len(excluded.example) <= SENTENCE_MAX_LENGTH


@KINDS
def test_what_an_engine_has_printed_last_keeps_its_lines_and_nothing_else_that_steers(
    text: str,
) -> None:
    failure = Failure(rank=0, reason=text, container="engine", message=f"{text}\nlast words")
    shown = group_status(
        GroupState(name="m-0", situation=Situation.BACKING_OFF, last_failure=failure)
    )["lastFailure"]
    assert is_harmless(shown["message"])
    assert shown["message"].endswith("\nlast words")
    assert shown["reason"].isprintable()


@KINDS
def test_an_event_reaches_the_api_server_printable(text: str) -> None:
    metadata = {"name": "m", "namespace": "n", "uid": "u", "resourceVersion": "1"}
    model = {"apiVersion": "shardwright.io/v1alpha1", "kind": "ShardedModel", "metadata": metadata}
    api = ScriptedApi(Answer(201))
    client = Client(api.access())
    try:
        asyncio.run(
            Recorder(client, "operator").record(
                model, Event(reason="X", action="Y", note=text, warning=True)
            )
        )
    finally:
        client.close()
        api.stop()
    ((_, _, body),) = api.requests
    assert body["note"] == in_event(text)


def test_metrics_can_be_parsed_whatever_their_labels_hold() -> None:
    metrics = Metrics()
    for text in HOSTILE.values():
        metrics.show((text, text), Findings(generation=1, plan=None), None)
    names = {
        sample.labels["name"]
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if family.name == "shardwright_model_condition"
    }
    assert names == set(map(in_metric, HOSTILE.values()))
    for text in HOSTILE.values():
        metrics.drop((text, text))
    assert "shardwright_model_condition{" not in metrics.text().decode()
