"""The former state of the project is taken over, and nothing restarts for it."""

import pytest

from shardwright.api.record import PlanRecord
from shardwright.reconcile.record_object import SigningKeys, read_record, record_key
from shardwright.reconcile.writes import ended_groups
from shardwright.rendering import pod as rendering
from tests.support.builders_reconcile import OWNER_UID
from tests.support.builders_snapshot import OWNER, Operator
from tests.support.landed import MODELS, SETTLED, landed, taken_over
from tests.support.said import condition_in

SOME = ("one whole node", "two nodes", "cache of every pod")


def pods(operator: Operator) -> set[str]:
    return {pod["metadata"]["uid"] for pod in operator.cluster.pods.values()}


def reason(operator: Operator, name: str) -> tuple[str, str]:
    found = condition_in(operator.status, name)
    return found["status"], found["reason"]


def test_the_snapshot_has_a_model_of_each_kind() -> None:
    assert landed().keys() == MODELS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_the_former_state_is_taken_over_and_no_pod_is_replaced(name: str) -> None:
    operator = taken_over(name)
    before = pods(operator)
    stored = read_record(operator.cluster.objects[record_key(OWNER)], OWNER_UID, SigningKeys())

    operator.run(SETTLED)

    assert (ended_groups(operator.written), pods(operator)) == (frozenset(), before)
    assert reason(operator, "Ready") == ("True", "Serving")
    assert stored
    assert isinstance(stored.said, PlanRecord)
    assert operator.kept
    assert operator.kept.record.plan == stored.said.plan


@pytest.mark.parametrize("name", SOME)
def test_after_that_going_back_and_forth_between_two_renderings_restarts_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = taken_over(name)
    before = pods(operator)
    operator.run(SETTLED)
    for seconds, pending in ((6, "True"), (5, "False"), (6, "True")):
        monkeypatch.setattr(rendering, "PROBE_TIMEOUT_SECONDS", seconds)
        operator.run(SETTLED)
        assert pods(operator) == before
        assert reason(operator, "RolloutPending")[0] == pending


@pytest.mark.parametrize("looks_first", [True, False], ids=["watched", "unwatched"])
@pytest.mark.parametrize("name", SOME)
def test_a_spec_that_changes_restarts_groups_that_were_taken_over(
    name: str, *, looks_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "PROBE_TIMEOUT_SECONDS", 6)
    operator = taken_over(name)
    before = pods(operator)
    if looks_first:
        operator.run(SETTLED)
    operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})

    operator.run(SETTLED)

    assert pods(operator).isdisjoint(before)
    assert "NCCL_DEBUG" in str(operator.cluster.pods)
    assert reason(operator, "Ready") == ("True", "Serving")
    assert reason(operator, "RolloutPending")[0] == "False"


@pytest.mark.parametrize("name", SOME)
def test_a_group_that_is_asked_to_restart_takes_the_release_on_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "PROBE_TIMEOUT_SECONDS", 6)
    operator = taken_over(name)
    before = pods(operator)
    operator.run(SETTLED)
    assert pods(operator) == before
    operator.annotations["shardwright.io/restart"] = "now"
    operator.cluster.version += 1

    operator.run(SETTLED)

    assert pods(operator).isdisjoint(before)
    assert reason(operator, "RolloutPending")[0] == "False"
    assert {
        container["readinessProbe"]["timeoutSeconds"]
        for pod in operator.cluster.pods.values()
        for container in pod["spec"]["containers"]
    } == {6}
