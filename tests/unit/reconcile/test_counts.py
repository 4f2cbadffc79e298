"""What the counts of a status say while the spec is rolled out, refused or taken back: who serves is
counted whatever its revision.
"""

from typing import Any

import pytest

from shardwright.errors import Problem
from tests.support.builders_snapshot import ONE_NODE, Operator
from tests.support.changed_engines import EXITS, GOOD, HANGS
from tests.support.going_back import ROLL_BACK
from tests.support.said import condition_in
from tests.support.small_cluster import LOAD_SECONDS
from tests.support.stages_of_rollouts import SETTLED, ready, serving, three_groups


def counts(operator: Operator) -> tuple[Any, ...]:
    """Return the column READY, how many serve, and how many as the spec says."""
    status = operator.status
    return status["ready"], status["readyReplicas"], status.get("updatedReplicas")


def said(operator: Operator) -> str:
    return str(condition_in(operator.status, "Ready")["message"]).partition(";")[0]


@pytest.mark.parametrize("engine", [EXITS, HANGS])
def test_a_change_that_does_not_come_up_takes_no_group_that_serves_out_of_the_count(
    engine: dict[str, Any],
) -> None:
    operator = three_groups()
    operator.edit(engine=engine)
    operator.run(SETTLED)

    assert sorted(operator.cluster.serving()) == ["llama-1", "llama-2"]
    assert counts(operator) == ("2/3", 2, 0)
    assert said(operator) == "2 of 3 serve, 0 of 3 as the spec says"


def test_a_change_is_counted_group_by_group() -> None:
    operator = three_groups()
    seen = [counts(operator)]
    operator.edit(engine=GOOD)
    for _ in range(0, 6 * LOAD_SECONDS, 10):
        operator.run(10)
        if counts(operator) != seen[-1]:
            seen.append(counts(operator))

    assert seen == [("3/3", 3, 3), *(("2/3", 2, updated) for updated in range(3)), ("3/3", 3, 3)]


def test_a_group_that_surges_serves_by_its_former_generation_and_counts_once() -> None:
    operator = serving(4, **ONE_NODE, replicas=3, rollout={"maxSurge": 1})
    operator.edit(engine=HANGS)
    operator.run(200)

    assert counts(operator) == ("3/3", 3, 0)
    assert [group["ready"] for group in operator.status["groups"]] == [True, True, True]

    operator.problems = (Problem(code="InvalidSpec", what="spec.model.id is empty"),)
    operator.edit()
    operator.run(10)

    assert (counts(operator), operator.status["replicas"]) == (("3/3", 3, 0), 3)


def test_a_canary_counts_as_what_is_new_of_groups_that_all_serve() -> None:
    operator = three_groups(partition=2)
    operator.edit(engine=GOOD)
    operator.run(SETTLED)

    assert ready(operator.status) == ("True", "Serving")
    assert counts(operator) == ("3/3", 3, 1)


def test_a_spec_that_is_refused_takes_nothing_from_the_row_of_a_model_that_serves() -> None:
    operator = three_groups()
    before = operator.status
    operator.problems = (Problem(code="InvalidSpec", what="spec.model.id is empty"),)
    operator.edit()
    operator.run(60)

    stalled = condition_in(operator.status, "Stalled")
    row = ("ready", "layout", "gpus", "replicas", "readyReplicas", "plan", "endpoint")
    assert [operator.status.get(name) for name in row] == [before.get(name) for name in row]
    assert (stalled["status"], stalled["observedGeneration"]) == ("True", operator.generation)
    assert counts(operator) == ("3/3", 3, 0)


def test_a_spec_that_fits_nowhere_keeps_the_row_too() -> None:
    operator = three_groups()
    before = operator.status
    operator.edit(parallelism={"tensor": 8, "pipeline": 4})
    operator.run(60)

    row = ("ready", "layout", "gpus", "readyReplicas", "endpoint")
    assert [operator.status.get(name) for name in row] == [before.get(name) for name in row]
    assert condition_in(operator.status, "Planned")["status"] == "False"
    assert counts(operator) == ("3/3", 3, 0)


def test_groups_that_serve_an_earlier_revision_do_not_serve_as_the_spec_says() -> None:
    operator = serving(1, **ONE_NODE, rollout=ROLL_BACK)
    operator.edit(engine=EXITS)
    operator.run(SETTLED)

    assert ready(operator.status) == ("False", "RolledBack")
    assert counts(operator) == ("1/1", 1, 0)


def test_six_conditions_of_a_model_that_serves_take_fewer_than_45_lines_of_kubectl_describe() -> (
    None
):
    operator = serving(4, **ONE_NODE)
    shown = operator.status["conditions"]

    # One a field, and the heading.
    assert sum(map(len, shown)) + 1 <= 45
    assert "ReplicasPlanned" in [item["type"] for item in shown]
