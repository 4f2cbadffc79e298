"""A group of one pod is started again in place by its kubelet, which counts for as long as the pod
lives: what of it counts?
"""

from typing import Any

import pytest

from shardwright.reconcile.disruption import FAILED_STARTS
from tests.support.builders_reconcile import crashed
from tests.support.builders_snapshot import ONE_NODE, Operator
from tests.support.changed_engines import GOOD
from tests.support.going_back import (
    ROLL_BACK,
    SETTLED,
    condition,
    ready,
    revisions,
    rolled_back,
    serving,
    uids,
    variables,
)
from tests.support.small_cluster import LOAD_SECONDS, UNREADY

ANOTHER_AIM: dict[str, Any] = {"objective": {"optimizeFor": "Latency"}}
"""A change after which the pods are as they were."""

MARK = "shardwright.io/restarts-before"


def crash(operator: Operator, name: str = "llama-0-0") -> None:
    """Let an engine end, which its kubelet starts again at once."""
    item = operator.cluster.pods[name]
    (container,) = crashed(name)["status"]["containerStatuses"]
    before = item["status"]["containerStatuses"][0]["restartCount"]
    item["status"] |= {
        "conditions": [UNREADY],
        "boundAt": operator.cluster.now,
        "containerStatuses": [container | {"restartCount": before + 1}],
    }
    operator.cluster.version += 1


def crash_and_serve(
    operator: Operator, times: int, name: str = "llama-0-0", seconds: float = 60
) -> None:
    for _ in range(times):
        crash(operator, name)
        operator.run(LOAD_SECONDS + seconds)


def start_anew(operator: Operator) -> None:
    """Let another process be the operator: what was only in memory is gone."""
    operator.since, operator.kept_out = {}, {}


@pytest.mark.parametrize("restarted", [False, True])
def test_restarts_of_before_a_rollout_do_not_speak_against_it(restarted: bool) -> None:  # noqa: FBT001  # a case
    operator = serving(1, **ONE_NODE, rollout=ROLL_BACK)
    crash_and_serve(operator, 2 * FAILED_STARTS)
    pods = uids(operator)
    operator.edit(**ANOTHER_AIM, rollout={**ROLL_BACK, "minReadySeconds": SETTLED})
    operator.run(60)
    if restarted:
        start_anew(operator)
    crash_and_serve(operator, FAILED_STARTS - 1)
    assert (uids(operator), rolled_back(operator), revisions(operator)) == (
        pods,
        ("False", "Idle"),
        [(1, False)],
    )

    crash_and_serve(operator, 1)
    assert rolled_back(operator) == ("True", "EngineFailed")


def test_restarts_in_place_hold_no_other_group_up() -> None:
    operator = serving(2, **ONE_NODE, replicas=2, rollout={"partition": 1})
    operator.edit(engine=GOOD)
    operator.run(SETTLED)
    crash_and_serve(operator, 1, "llama-1-0", seconds=SETTLED)
    operator.cluster.pods["llama-1-0"]["status"] |= {
        "conditions": [UNREADY],
        "boundAt": operator.cluster.now,
    }
    operator.edit(rollout={})
    operator.run(60)
    assert condition(operator, "RolloutStopped")["status"] == "False"

    operator.run(SETTLED)
    assert (ready(operator), set(variables(operator).values())) == (("True", "Serving"), {"INFO"})


def test_failures_with_long_service_between_them_are_not_in_a_row() -> None:
    operator = serving(2, **ONE_NODE, replicas=2, rollout={"partition": 1, "onFailure": "RollBack"})
    operator.edit(engine=GOOD)
    operator.run(SETTLED)
    crash_and_serve(operator, 2 * FAILED_STARTS, "llama-1-0", seconds=SETTLED)
    assert (rolled_back(operator), variables(operator)) == (
        ("False", "Idle"),
        {"llama-0-0": None, "llama-1-0": "INFO"},
    )

    crash_and_serve(operator, FAILED_STARTS, "llama-1-0")
    assert rolled_back(operator) == ("True", "EngineFailed")


def test_at_rest_nothing_is_written_for_it() -> None:
    operator = serving(1, **ONE_NODE)
    crash_and_serve(operator, 1, seconds=SETTLED)
    written = list(operator.written)
    operator.run(SETTLED)
    assert operator.written == written


@pytest.mark.parametrize("text", ["a b", "a b c", "a b 1 2", "a b 1234567", "x" * 2000, "a b -1"])
def test_what_somebody_has_written_in_its_place_is_forgotten(text: str) -> None:
    operator = serving(1, **ONE_NODE)
    crash_and_serve(operator, 1)
    operator.cluster.sets()["llama-0"]["metadata"]["annotations"][MARK] = text
    operator.cluster.version += 1
    operator.run(60)
    found = operator.cluster.sets()["llama-0"]["metadata"]["annotations"][MARK]
    pod = operator.cluster.pods["llama-0-0"]["metadata"]["uid"]
    assert found.split()[1:] == [pod, "1"]
