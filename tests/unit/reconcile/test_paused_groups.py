"""A change is taken to one group after another only as long as it is good, and no further than the
partition says.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from shardwright.reconcile.writes import written_name
from shardwright.rendering.pod import start_deadline_seconds
from shardwright.rendering.pod_resources import IMAGE_SECONDS
from shardwright.resolving.subject import Subject
from tests.support.builders_snapshot import ONE_NODE, TWO_NODES, Operator
from tests.support.changed_engines import GOOD, HANGS
from tests.support.said import condition_in
from tests.support.small_cluster import LOAD_SECONDS
from tests.support.stages_of_rollouts import (
    SETTLED,
    between_stops,
    changed,
    evict,
    ready,
    serving,
    stops,
    templates,
    three_groups,
)


class TestMinReadySeconds:
    def test_a_group_serves_for_as_long_as_is_asked_before_the_next_one_stops(self) -> None:
        assert (
            max(between_stops())
            < 300
            < 300 + LOAD_SECONDS
            <= min(between_stops(minReadySeconds=300))
        )

    def test_the_operator_looks_again_when_the_time_is_over(self) -> None:
        operator = three_groups(minReadySeconds=7)
        operator.edit(engine=GOOD)
        operator.run(LOAD_SECONDS + 20)
        operator.since = {}
        assert operator.reconcile().again_at == operator.cluster.now + timedelta(seconds=7)

    def test_an_operator_that_has_just_started_counts_anew(self) -> None:
        operator = three_groups(minReadySeconds=300)
        operator.edit(engine=GOOD)
        operator.run(LOAD_SECONDS + 200)
        operator.since = {}
        assert stops(operator, 290) == {}
        assert list(stops(operator, 30)) == ["llama-1"]

    def test_a_next_generation_takes_over_only_then(self) -> None:
        operator = serving(2, **ONE_NODE, rollout={"maxSurge": 1, "minReadySeconds": 300})
        operator.edit(engine=GOOD)
        operator.run(LOAD_SECONDS + 200)
        assert sorted(operator.cluster.sets()) == ["llama-0", "llama-0-g1"]
        operator.run(200)
        assert sorted(operator.cluster.sets()) == ["llama-0-g1"]


class TestAStart:
    def test_a_group_that_does_not_come_up_within_its_deadline_needs_somebody(self) -> None:
        operator = serving(1, **ONE_NODE, rollout={"progressDeadlineSeconds": 600})
        operator.edit(engine=HANGS)
        operator.run(500)
        assert condition_in(operator.status, "Stalled")["status"] == "False"

        operator.run(200)

        assert ready(operator.status) == ("False", "ProgressDeadlineExceeded")
        assert condition_in(operator.status, "Stalled")["status"] == "True"
        assert condition_in(operator.status, "Ready")["message"].startswith(
            "0 of 1 serve; llama-0: has had its nodes for 600 s and is not ready"
        )

    def test_the_default_deadline_of_a_start_is_the_time_for_the_image_and_the_weights(
        self,
    ) -> None:
        operator = serving(1, **ONE_NODE)
        operator.edit(engine=HANGS)
        assert isinstance(operator.subject, Subject)
        assert operator.kept
        deadline = start_deadline_seconds(operator.kept.record.plan, operator.subject.deployment)
        # Who downloads takes longer than the engine may.
        assert deadline > IMAGE_SECONDS + operator.status["engine"]["startBudget"]["loadSeconds"]
        assert not operator.run(deadline - 60).found.groups[0].late
        assert operator.run(120).found.groups[0].late

    @pytest.mark.parametrize("queued", [True, False])
    def test_a_group_without_a_place_is_not_late(self, *, queued: bool) -> None:
        operator = serving(1, **ONE_NODE, rollout={"progressDeadlineSeconds": 60})
        operator.cluster.queued = queued
        operator.edit(engine=GOOD)
        operator.run(20)
        operator.cluster.others["h100-0"] = 8
        assert not operator.run(250).found.groups[0].late

    def test_a_group_whose_node_does_not_answer_is_not_late(self) -> None:
        operator = serving(1, **ONE_NODE, rollout={"progressDeadlineSeconds": 60})
        operator.edit(engine=HANGS)
        operator.run(40)
        operator.cluster.set_node("h100-0", ready=False)
        assert not operator.run(200).found.groups[0].late

    def test_a_group_that_has_served_and_does_not_any_more_is_not_late(self) -> None:
        operator = serving(1, **ONE_NODE, rollout={"progressDeadlineSeconds": 60})
        operator.cluster.pods["llama-0-0"]["spec"]["containers"][0]["env"] += HANGS["env"]
        found = operator.run(300).found
        assert (found.groups[0].situation, found.groups[0].late) == ("Unready", False)


class TestAPartition:
    def canary(self, groups: Mapping[str, Any] = ONE_NODE) -> tuple[Operator, dict[str, str]]:
        """Return three groups of which the last one alone has got what is wanted, and the templates
        before.
        """
        operator = serving(8, **groups, replicas=3, rollout={"partition": 2})
        before = templates(operator)
        operator.edit(engine=GOOD)
        operator.run(SETTLED)
        return operator, before

    def test_groups_below_it_keep_their_pods_and_the_model_serves(self) -> None:
        operator, before = self.canary()

        pending = condition_in(operator.status, "RolloutPending")

        assert changed(operator, before) == ["llama-2"]
        assert ready(operator.status) == ("True", "Serving")
        assert (pending["status"], pending["reason"]) == ("True", "HeldByPartition")
        assert pending["message"] == (
            "llama-0, llama-1: below spec.rollout.partition, they keep their pods until it is "
            "lowered"
        )

    @pytest.mark.parametrize("groups", [ONE_NODE, TWO_NODES])
    def test_a_group_below_the_partition_that_ends_comes_back_as_it_was(
        self, groups: Mapping[str, Any]
    ) -> None:
        operator, before = self.canary(groups)
        uid = operator.cluster.pods["llama-0-0"]["metadata"]["uid"]
        evict(operator, "llama-0-0")

        operator.run(SETTLED)

        assert operator.cluster.pods["llama-0-0"]["metadata"]["uid"] != uid
        assert changed(operator, before) == ["llama-2"]
        assert ready(operator.status) == ("True", "Serving")

    def test_a_restart_that_is_asked_for_brings_each_back_with_its_own_pods(self) -> None:
        operator, before = self.canary()
        uids = {pod["metadata"]["uid"] for pod in operator.cluster.pods.values()}
        operator.annotations["shardwright.io/restart"] = "now"

        operator.run(SETTLED)

        assert uids.isdisjoint(pod["metadata"]["uid"] for pod in operator.cluster.pods.values())
        assert changed(operator, before) == ["llama-2"]
        assert ready(operator.status) == ("True", "Serving")

    def test_a_restart_that_is_asked_for_begins_none_of_them_beside_itself(self) -> None:
        operator = serving(8, **ONE_NODE, replicas=3, rollout={"partition": 2, "maxSurge": 1})
        before = templates(operator)
        operator.edit(engine=GOOD)
        operator.run(SETTLED)
        operator.annotations["shardwright.io/restart"] = "now"

        operator.run(SETTLED)

        kept = {name: template for name, template in templates(operator).items() if name in before}
        assert kept == {name: before[name] for name in ("llama-0", "llama-1")}
        assert ready(operator.status) == ("True", "Serving")

    def test_the_partition_counts_numbers_of_groups_also_where_one_is_missing(self) -> None:
        operator, before = self.canary()
        operator.cluster.end(
            operator.cluster.pods["llama-0-0"], grace_seconds=3600
        )  # it does not serve while it ends
        operator.edit(replicas=2)
        operator.run(SETTLED)
        assert sorted(operator.cluster.serving()) == ["llama-1", "llama-2"]
        operator.edit(replicas=3)

        operator.run(2 * SETTLED)

        assert sorted(operator.cluster.serving()) == ["llama-0", "llama-1", "llama-2"]
        assert changed(operator, before) == [
            "llama-0",
            "llama-2",
        ]  # one that is added gets what is wanted

    def test_when_it_is_lowered_the_rest_follows(self) -> None:
        operator, before = self.canary()
        operator.edit(rollout={"partition": 1})
        operator.run(SETTLED)
        assert changed(operator, before) == ["llama-1", "llama-2"]
        operator.edit(rollout={})
        operator.run(SETTLED)
        assert changed(operator, before) == ["llama-0", "llama-1", "llama-2"]
        assert condition_in(operator.status, "RolloutPending")["status"] == "False"

    def test_groups_that_are_added_get_what_is_wanted(self) -> None:
        operator, before = self.canary()
        operator.edit(rollout={"partition": 9}, replicas=4)
        operator.run(SETTLED)
        engines = {
            name: pod["spec"]["containers"][0]["env"] for name, pod in operator.cluster.pods.items()
        }
        assert [name for name, env in sorted(engines.items()) if GOOD["env"][0] in env] == [
            "llama-2-0",
            "llama-3-0",
        ]
        assert changed(operator, before) == ["llama-2", "llama-3"]

    def test_setting_a_partition_alone_restarts_nothing(self) -> None:
        operator = three_groups()
        operator.edit(rollout={"partition": 2})
        operator.written.clear()
        operator.run(60)
        assert [written_name(write) for write in operator.written] == []
