"""A status that the API server takes, however many groups fail and whatever they say."""

import json

from shardwright.reconcile.events import WRITES_TOLD, events_of
from shardwright.reconcile.findings import Findings
from shardwright.reconcile.model_status import GROUPS_MAX_BYTES, group_status, groups_status
from shardwright.reconcile.writes import Patch, Why
from tests.support.failing_groups import failing_groups, serving_group

MINIMAL_BYTES = 128


def test_the_status_of_a_thousand_failing_groups_stays_within_its_bytes_and_loses_no_group() -> (
    None
):
    groups = failing_groups(1000)

    shown = groups_status(groups)

    assert [entry["name"] for entry in shown] == [group.name for group in groups]
    assert len(json.dumps(shown)) <= GROUPS_MAX_BYTES + 1000 * MINIMAL_BYTES
    assert shown[0] == group_status(groups[0])
    assert shown[-1] == {"name": "llama-999", "ready": False}


def test_groups_that_are_not_ready_are_shown_whole_before_those_that_are() -> None:
    groups = (*(serving_group(index) for index in range(1000)), *failing_groups(50, first=1000))

    shown = groups_status(groups)

    assert shown[1000:] == [group_status(group) for group in groups[1000:]]
    assert shown[999] == {"name": "llama-999", "ready": True}


def test_a_few_groups_are_shown_whole() -> None:
    groups = failing_groups(20)
    assert groups_status(groups) == [group_status(group) for group in groups]


def test_a_thousand_groups_that_fail_at_once_say_no_more_than_twenty_events_do() -> None:
    groups = failing_groups(1000)
    writes = [
        Patch(name=group.name, namespace="models", uid="u", annotations={}, why=Why.FAILURE)
        for group in groups
    ]
    found = Findings(generation=1, standing=groups)
    told = [event for event in events_of((), found, writes) if event.reason == "GroupFailed"]

    assert len(told) == WRITES_TOLD + 1
    assert told[-1].note == "and 980 more at once, which status.groups shows"
