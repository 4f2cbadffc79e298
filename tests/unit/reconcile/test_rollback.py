"""Revisions that all groups have served with are kept and restored: by themselves where that is
wanted, and on request.
"""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.pipeline.replanning import Replanned
from shardwright.reconcile.snapshot import Ask, Snapshot
from shardwright.reconcile.writes import DropRevision, KeepRevision
from tests.support.builders_snapshot import ONE_NODE, TWO_NODES, Operator
from tests.support.changed_engines import EXITS, GOOD, HANGS, Cluster
from tests.support.going_back import (
    OTHER,
    ROLL_BACK,
    SETTLED,
    ask,
    condition,
    ready,
    revisions,
    rolled_back,
    serving,
    three_groups,
    uids,
    until_it_serves,
    variables,
)
from tests.support.small_cluster import LOAD_SECONDS, Refuses


class Reversed(Operator):
    """An operator whose first plan has the nodes of a group in no order of their names."""

    def answer(self, snapshot: Snapshot, ask: Ask) -> Replanned:
        found = super().answer(snapshot, ask)
        if ask.on or not found.record:
            return found
        groups = tuple(nodes[::-1] for nodes in found.record.plan.groups)
        return replace(
            found, record=replace(found.record, plan=replace(found.record.plan, groups=groups))
        )


class TestWhatIsKept:
    def test_a_revision_is_written_once_when_all_groups_serve_and_never_at_rest(self) -> None:
        operator = three_groups()
        assert revisions(operator) == [(1, True)]
        written = list(operator.written)

        operator.run(SETTLED)

        assert operator.written == written
        assert sum(isinstance(write, KeepRevision) for write in written) == 1

    def test_nothing_is_kept_of_what_not_all_groups_serve_with(self) -> None:
        operator = three_groups()
        operator.edit(engine=HANGS)
        operator.run(SETTLED)
        assert revisions(operator) == [(1, False)]

    def test_no_revision_is_kept_before_its_groups_served_for_min_ready_seconds(self) -> None:
        cluster = Cluster()
        cluster.add_nodes(1)
        operator = Operator(cluster, {**ONE_NODE, "rollout": {"minReadySeconds": 300}})
        operator.run(LOAD_SECONDS + 200)
        assert (ready(operator), revisions(operator)) == (("True", "Serving"), [])
        operator.run(200)
        assert revisions(operator) == [(1, True)]

    def test_three_are_kept_and_the_oldest_goes(self) -> None:
        operator = serving(1, **ONE_NODE)
        for engine in (GOOD, OTHER, {}):
            operator.edit(engine={"name": "vLLM", **engine})
            operator.run(400)
        operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "ABORT"}]})
        operator.run(400)

        assert len(operator.cluster.revisions) == 3
        assert [number for number, _ in revisions(operator)] == [3, 4, 5]
        assert sum(isinstance(write, DropRevision) for write in operator.written) == 1

    def test_a_revision_that_serves_again_is_the_newest_again_and_not_written_again(self) -> None:
        operator = serving(1, **ONE_NODE)
        operator.edit(engine=GOOD)
        operator.run(400)
        operator.edit(engine={})
        operator.run(400)

        assert revisions(operator) == [(2, False), (3, True)]
        assert sum(isinstance(write, KeepRevision) for write in operator.written) == 2

    def test_another_number_of_groups_is_no_other_revision(self) -> None:
        operator = three_groups()
        operator.edit(replicas=2)
        operator.run(400)
        assert revisions(operator) == [(1, True)]

    def test_a_model_serves_whether_its_revision_can_be_kept_or_not(self) -> None:
        cluster = Cluster()
        cluster.add_nodes(1)
        cluster.refuses.append(Refuses(kind="ControllerRevision"))
        operator = Operator(cluster, {**ONE_NODE})
        operator.run(LOAD_SECONDS + 60)
        assert (ready(operator), revisions(operator)) == (("True", "Serving"), [])


class TestRollBack:
    def test_a_change_that_is_not_ready_in_time_is_taken_back(self) -> None:
        operator = three_groups(**ROLL_BACK)
        before = uids(operator)
        operator.edit(engine=HANGS)

        operator.run(SETTLED)

        assert set(variables(operator).values()) == {None}
        assert {name for name, uid in uids(operator).items() if before[name] == uid} == {
            "llama-1-0",
            "llama-2-0",
        }
        assert operator.cluster.serving().keys() == {"llama-0", "llama-1", "llama-2"}
        assert ready(operator) == ("False", "RolledBack")
        assert condition(operator, "Stalled")["status"] == "True"
        assert condition(operator, "RolloutStopped")["status"] == "False"
        assert rolled_back(operator) == ("True", "ProgressDeadlineExceeded")
        assert "revision 1 (vllm/vllm-openai:" in condition(operator, "RolledBack")["message"]
        assert "llama-0 was not ready in time" in condition(operator, "RolledBack")["message"]
        assert operator.status["observedGeneration"] == 2
        assert revisions(operator) == [(1, True)]

    def test_a_change_whose_engine_ends_three_times_in_a_row_is_taken_back(self) -> None:
        cluster = Cluster()
        cluster.add_nodes(6)
        operator = until_it_serves(
            Reversed(cluster, {**TWO_NODES, "replicas": 3, "rollout": {"onFailure": "RollBack"}})
        )
        before = uids(operator)
        operator.edit(engine=EXITS)

        operator.run(2 * SETTLED)

        assert rolled_back(operator) == ("True", "EngineFailed")
        assert {name for name, uid in uids(operator).items() if before[name] == uid} == {
            *("llama-1-0", "llama-1-1"),
            *("llama-2-0", "llama-2-1"),
        }
        assert operator.cluster.serving().keys() == {"llama-0", "llama-1", "llama-2"}

    def test_a_change_of_a_model_with_one_group_is_taken_back(self) -> None:
        operator = serving(1, **ONE_NODE, rollout=ROLL_BACK)
        operator.edit(engine=HANGS)
        operator.run(SETTLED)
        assert (ready(operator), set(variables(operator).values())) == (
            ("False", "RolledBack"),
            {None},
        )

    def test_by_default_a_change_that_does_not_come_up_is_tried_on(self) -> None:
        operator = three_groups(progressDeadlineSeconds=300)
        operator.edit(engine=HANGS)
        operator.run(SETTLED)
        assert (ready(operator), rolled_back(operator)) == (
            ("False", "ProgressDeadlineExceeded"),
            ("False", "Idle"),
        )

    def test_what_was_never_good_is_tried_on(self) -> None:
        cluster = Cluster()
        cluster.add_nodes(1)
        operator = Operator(cluster, {**ONE_NODE, "engine": HANGS, "rollout": ROLL_BACK})
        operator.run(SETTLED)
        assert rolled_back(operator) == ("False", "Idle")

    def test_a_group_that_fails_with_what_was_good_takes_nothing_back(self) -> None:
        operator = serving(4, **TWO_NODES, replicas=2, rollout=ROLL_BACK)
        operator.edit(engine=GOOD)
        operator.run(SETTLED)
        for pod in operator.cluster.pods.values():
            pod["spec"]["containers"][0]["env"] += EXITS["env"]
        operator.run(SETTLED)
        assert rolled_back(operator) == ("False", "Idle")

    def test_a_new_cut_is_taken_back_with_its_plan(self) -> None:
        operator = serving(4, **ONE_NODE, replicas=2, rollout=ROLL_BACK)
        before = operator.status["plan"]["layout"]
        operator.edit(engine=HANGS, parallelism={"tensor": 4, "pipeline": 1})
        operator.run(60)
        assert operator.status["plan"]["layout"] != before

        operator.run(SETTLED)

        assert (operator.status["plan"]["layout"], rolled_back(operator)[0]) == (before, "True")
        assert operator.cluster.serving().keys() == {"llama-0", "llama-1"}

    def test_where_others_have_its_gpus_by_now_it_says_so_and_stays_as_it_is(self) -> None:
        operator = serving(1, **ONE_NODE, rollout=ROLL_BACK)
        operator.edit(engine=HANGS, parallelism={"tensor": 4, "pipeline": 1})
        operator.run(200)
        operator.cluster.others["h100-0"] = 4

        operator.run(SETTLED)

        assert (ready(operator), rolled_back(operator)[0]) == (
            ("False", "InsufficientCapacity"),
            "True",
        )
        assert set(variables(operator).values()) == {"WARN"}
        operator.cluster.others.clear()
        operator.cluster.version += 1
        operator.run(SETTLED)
        assert (ready(operator), set(variables(operator).values())) == (
            ("False", "RolledBack"),
            {None},
        )

    def test_a_change_taken_back_is_not_tried_again_before_somebody_asks(self) -> None:
        operator = three_groups(**ROLL_BACK)
        operator.edit(engine=HANGS)
        operator.run(SETTLED)
        made = uids(operator)

        operator.run(SETTLED)
        assert uids(operator) == made

        ask(operator, "spec@1")
        operator.run(200)
        assert (rolled_back(operator), variables(operator)["llama-0-0"]) == (
            ("False", "Idle"),
            "WARN",
        )
        operator.run(SETTLED)
        assert (rolled_back(operator)[0], variables(operator)["llama-0-0"]) == ("True", None)

    def test_after_a_rollback_another_spec_is_tried_at_once(self) -> None:
        operator = three_groups(**ROLL_BACK)
        operator.edit(engine=HANGS)
        operator.run(SETTLED)

        operator.edit(engine=GOOD)
        operator.run(SETTLED)

        assert (ready(operator), rolled_back(operator)) == (("True", "Serving"), ("False", "Idle"))
        assert (set(variables(operator).values()), revisions(operator)) == (
            {"INFO"},
            [(1, False), (2, True)],
        )

    def test_groups_come_and_go_meanwhile(self) -> None:
        operator = three_groups(**ROLL_BACK)
        operator.edit(engine=HANGS)
        operator.run(SETTLED)

        operator.edit(replicas=4)
        operator.run(400)
        assert (len(operator.cluster.serving()), rolled_back(operator)[0]) == (4, "True")
        operator.edit(replicas=1)
        operator.run(400)
        assert (
            len(operator.cluster.pods),
            rolled_back(operator)[0],
            set(variables(operator).values()),
        ) == (1, "True", {None})

    def test_a_paused_model_is_left_as_it_is(self) -> None:
        operator = three_groups(**ROLL_BACK)
        operator.edit(engine=HANGS)
        operator.run(200)
        operator.edit(paused=True)
        operator.run(SETTLED)
        assert (rolled_back(operator)[0], variables(operator)["llama-0-0"]) == ("False", "WARN")
        operator.edit(paused=False)
        operator.run(SETTLED)
        assert (rolled_back(operator)[0], variables(operator)["llama-0-0"]) == ("True", None)

    @pytest.mark.parametrize("seconds", [60, 320, 420])
    def test_an_operator_that_starts_anew_meanwhile_comes_to_the_same(self, seconds: int) -> None:
        operator = three_groups(**ROLL_BACK)
        operator.edit(engine=HANGS)
        operator.run(seconds)
        operator.since, operator.kept_out = {}, {}
        operator.run(SETTLED)
        assert (ready(operator), set(variables(operator).values())) == (
            ("False", "RolledBack"),
            {None},
        )

    def test_a_next_generation_that_does_not_come_up_becomes_what_was_good(self) -> None:
        operator = serving(2, **ONE_NODE, rollout={**ROLL_BACK, "maxSurge": 1})
        operator.edit(engine=HANGS)
        operator.run(2 * SETTLED)
        assert (rolled_back(operator)[0], set(variables(operator).values())) == ("True", {None})
        assert operator.cluster.serving().keys() == {"llama-0"}


class TestUndo:
    def two_revisions(self) -> Operator:
        operator = three_groups()
        operator.edit(engine=GOOD)
        operator.run(SETTLED)
        assert revisions(operator) == [(1, False), (2, True)]
        return operator

    def test_what_is_asked_for_runs_until_the_spec_changes(self) -> None:
        operator = self.two_revisions()
        ask(operator, "1@now")
        operator.run(SETTLED)

        assert (ready(operator), rolled_back(operator)) == (("True", "Serving"), ("True", "Asked"))
        assert set(variables(operator).values()) == {None}
        assert revisions(operator) == [(2, False), (3, True)]
        assert condition(operator, "RolledBack")["message"].startswith("revision 3 (")

        operator.edit(engine=OTHER)
        operator.run(SETTLED)
        assert (rolled_back(operator), set(variables(operator).values())) == (
            ("False", "Idle"),
            {"VERSION"},
        )

    def test_the_end_of_the_annotation_is_its_end(self) -> None:
        operator = self.two_revisions()
        ask(operator, "1")
        operator.run(SETTLED)
        ask(operator, None)
        operator.run(SETTLED)
        assert (rolled_back(operator), set(variables(operator).values())) == (
            ("False", "Idle"),
            {"INFO"},
        )

    def test_a_model_that_is_scaled_to_zero_goes_back_and_comes_again_as_it_was_then(self) -> None:
        operator = serving(2, **ONE_NODE)
        before = operator.status["plan"]["layout"]
        operator.edit(parallelism={"tensor": 4, "pipeline": 1})
        operator.run(400)
        operator.edit(replicas=0)
        ask(operator, "1")
        operator.run(400)
        assert (operator.cluster.pods, rolled_back(operator)) == ({}, ("True", "Asked"))

        operator.edit(replicas=1)
        operator.run(400)
        assert (ready(operator), operator.status["plan"]["layout"]) == (("True", "Serving"), before)

    def test_a_forged_revision_is_not_believed(self) -> None:
        operator = self.two_revisions()
        made, kept = uids(operator), dict(operator.cluster.revisions)
        first, second = kept
        operator.cluster.revisions[first] = {**kept[first], "data": kept[second]["data"]}
        ask(operator, "1")
        operator.run(400)

        assert (uids(operator), ready(operator)) == (made, ("False", "RevisionUnusable"))
        assert "somebody has put another in its place" in condition(operator, "Ready")["message"]

        ask(operator, None)
        operator.run(400)
        assert (uids(operator), ready(operator)) == (made, ("True", "Serving"))


class TestEngineVersions:
    """The engine's version that a spec leaves open: a revision has its own, and the spec keeps the
    one that it had.
    """

    def serving(self, **rollout: Any) -> Operator:
        cluster = Cluster()
        cluster.add_nodes(1)
        return until_it_serves(
            Operator(cluster, {**ONE_NODE, "rollout": rollout}, version="0.32.0")
        )

    def images(self, operator: Operator) -> set[str]:
        return {pod["spec"]["containers"][0]["image"] for pod in operator.cluster.pods.values()}

    def test_an_upgrade_that_was_asked_for_and_does_not_come_up_is_taken_back(self) -> None:
        operator = self.serving(**ROLL_BACK)
        operator.edit(engine=HANGS, rollout={**ROLL_BACK, "onUpgrade": "Roll"})
        operator.run(SETTLED)
        assert self.images(operator) == {"vllm/vllm-openai:v0.32.0"}
        assert (ready(operator), rolled_back(operator)[0]) == (("False", "RolledBack"), "True")

    def test_a_revision_of_an_older_version_runs_until_the_spec_changes(self) -> None:
        operator = self.serving()
        for engine in ({"version": "0.33.0"}, {}):
            operator.edit(engine=engine)
            operator.run(400)
        assert (self.images(operator), revisions(operator)) == (
            {"vllm/vllm-openai:v0.33.0"},
            [(1, False), (2, False), (3, True)],
        )

        ask(operator, "1")
        operator.run(SETTLED)
        assert (self.images(operator), rolled_back(operator)) == (
            {"vllm/vllm-openai:v0.32.0"},
            ("True", "Asked"),
        )
        assert (
            condition(operator, "RolloutPending")["status"] == "False"
        )  # an upgrade is not what is waited for

        ask(operator, "spec")
        operator.run(SETTLED)
        assert (self.images(operator), rolled_back(operator)) == (
            {"vllm/vllm-openai:v0.33.0"},
            ("False", "Idle"),
        )
