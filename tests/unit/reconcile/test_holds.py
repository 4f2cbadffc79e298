"""A change is taken to one group after another only as long as it is good, and no further than the
partition says.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from json import dumps, loads
from typing import Any

import pytest

from shardwright.reconcile.annotations import read_annotations
from shardwright.reconcile.decide import decide
from shardwright.reconcile.group import LifeRules
from shardwright.reconcile.writes import Why, ended_groups, written_name
from shardwright.rendering.budgets import IMAGE_SECONDS
from shardwright.rendering.hashing import TEMPLATE_HASH
from tests.support.builders_reconcile import NOON, World, desired, stateful_set
from tests.support.builders_seen import ONE_NODE, TWO_NODES, Operator
from tests.support.changed_engines import EXITS, GOOD, HANGS, Cluster
from tests.support.small_cluster import LOAD_SECONDS, SmallCluster

SETTLED = 1300
"""Seconds in which three groups have taken their turns, and less than a start may take."""


def serving(nodes: int = 4, **spec: Any) -> Operator:
    """Return an operator whose model serves."""
    return _served(nodes, dumps(spec, sort_keys=True)).fork()


@cache  # most tests begin with one of a few
def _served(nodes: int, spec: str) -> Operator:
    cluster = Cluster()
    cluster.add_nodes(nodes)
    operator = Operator(cluster, loads(spec))
    assert ready(operator.run(LOAD_SECONDS + 60).status) == ("True", "Serving")
    return operator


def three_groups(**rollout: Any) -> Operator:
    return serving(4, **ONE_NODE, replicas=3, rollout=rollout)


def condition(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(
        item for item in status["conditions"] if item["type"] == name
    )
    return found


def ready(status: Mapping[str, Any]) -> tuple[str, str]:
    found = condition(status, "Ready")
    return found["status"], found["reason"]


def stopped(status: Mapping[str, Any]) -> tuple[str, str]:
    found = condition(status, "RolloutStopped")
    return found["status"], found["reason"]


def templates(operator: Operator) -> dict[str, str]:
    """Return by name the template of the pods of each group."""
    pods = operator.cluster.pods.items()
    return {
        name.rpartition("-")[0]: pod["metadata"]["labels"][TEMPLATE_HASH]
        for name, pod in pods
    }


def changed(operator: Operator, before: Mapping[str, str]) -> list[str]:
    """Return the groups whose pods are of another template than before."""
    return sorted(
        name
        for name, template in templates(operator).items()
        if before.get(name) != template
    )


def with_cache(groups: Mapping[str, Any], storage: str) -> dict[str, Any]:
    return {
        **groups["model"],
        "weights": {"huggingFace": {"cache": {"storage": storage}}},
    }


def evict(operator: Operator, name: str) -> None:
    """Take a pod away, as a drain does: its StatefulSet makes it anew."""
    operator.cluster.end(operator.cluster.pods[name], taken_by="EvictionByEvictionAPI")


def stops(operator: Operator, seconds: float, step: float = 10) -> dict[str, datetime]:
    """Let time pass; return when each group was stopped on purpose."""
    found: dict[str, datetime] = {}
    for _ in operator.moments(seconds, step):
        for name, live in operator.cluster.sets().items():
            if read_annotations(live).stopped_for == Why.ROLLOUT:
                found.setdefault(name, operator.cluster.now)
    return found


def between_stops(**rollout: Any) -> list[float]:
    """Return the seconds between the stops of three groups that get another template."""
    operator = three_groups(**rollout)
    operator.edit(engine=GOOD)
    times = sorted(stops(operator, SETTLED).values())
    assert ready(operator.status) == ("True", "Serving")
    return [(after - before).total_seconds() for before, after in pairwise(times)]


class TestMinReadySeconds:
    def test_a_group_serves_for_as_long_as_is_asked_before_the_next_one_stops(
        self,
    ) -> None:
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
        assert operator.look().again_at == operator.cluster.now + timedelta(seconds=7)

    def test_an_operator_that_has_just_started_counts_anew(self) -> None:
        operator = three_groups(minReadySeconds=300)
        operator.edit(engine=GOOD)
        operator.run(LOAD_SECONDS + 200)
        operator.since = {}
        assert stops(operator, 290) == {}
        assert list(stops(operator, 30)) == ["llama-1"]

    def test_a_next_generation_takes_over_only_then(self) -> None:
        operator = serving(
            2, **ONE_NODE, rollout={"maxSurge": 1, "minReadySeconds": 300}
        )
        operator.edit(engine=GOOD)
        operator.run(LOAD_SECONDS + 200)
        assert sorted(operator.cluster.sets()) == ["llama-0", "llama-0-g1"]
        operator.run(200)
        assert sorted(operator.cluster.sets()) == ["llama-0-g1"]


class TestAStart:
    def test_a_group_that_does_not_come_up_within_its_deadline_needs_somebody(
        self,
    ) -> None:
        operator = serving(1, **ONE_NODE, rollout={"progressDeadlineSeconds": 600})
        operator.edit(engine=HANGS)
        operator.run(500)
        assert condition(operator.status, "Stalled")["status"] == "False"

        operator.run(200)

        assert ready(operator.status) == ("False", "ProgressDeadlineExceeded")
        assert condition(operator.status, "Stalled")["status"] == "True"
        assert condition(operator.status, "Ready")["message"].startswith(
            "0 of 1 groups ready; llama-0: has had its nodes for 600 s and is not ready"
        )

    def test_the_default_deadline_of_a_start_is_the_time_for_the_image_and_the_weights(
        self,
    ) -> None:
        operator = serving(1, **ONE_NODE)
        operator.edit(engine=HANGS)
        deadline = (
            IMAGE_SECONDS + operator.status["engine"]["startBudget"]["loadSeconds"]
        )
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
        operator.cluster.pods["llama-0-0"]["spec"]["containers"][0]["env"] += HANGS[
            "env"
        ]
        found = operator.run(300).found
        assert (found.groups[0].situation, found.groups[0].late) == ("Unready", False)


class TestAStoppedRollout:
    @pytest.mark.parametrize("groups", [ONE_NODE, TWO_NODES])
    def test_a_group_whose_engine_fails_stops_the_rollout_and_says_so(
        self, groups: Mapping[str, Any]
    ) -> None:
        operator = serving(6, **groups, replicas=3)
        before = templates(operator)
        operator.edit(engine=EXITS)

        operator.run(SETTLED)

        assert changed(operator, before) in (["llama-0"], [])  # at zero it has no pods
        assert stopped(operator.status) == ("True", "EngineFailed")
        message = condition(operator.status, "RolloutStopped")["message"]
        assert message.startswith("llama-0: ")
        assert message.endswith(
            "llama-1, llama-2 keep the pods that they have until it serves: correct the spec, or "
            "set it back"
        )
        assert [group["ready"] for group in operator.status["groups"]] == [
            False,
            True,
            True,
        ]
        assert ready(operator.status)[0] == "False"
        assert sorted(operator.cluster.serving()) == ["llama-1", "llama-2"]

    def test_a_group_that_never_comes_up_stops_the_rollout_after_its_deadline(
        self,
    ) -> None:
        operator = three_groups(progressDeadlineSeconds=300)
        operator.edit(engine=HANGS)
        operator.run(250)
        assert stopped(operator.status) == ("False", "Idle")
        operator.run(200)
        assert stopped(operator.status) == ("True", "ProgressDeadlineExceeded")

    def test_a_stopped_rollout_is_a_single_event(self) -> None:
        operator = three_groups()
        operator.edit(engine=EXITS)
        told = []
        for _ in range(SETTLED // 10):
            told += [event.reason for event in operator.run(10).events]
        assert told.count("RolloutStopped") == 1

    def test_no_further_group_is_taken_down_whatever_may_be_down_at_once(self) -> None:
        names = ("llama-0", "llama-1", "llama-2")
        world = World()
        world.run(desired(*map(stateful_set, names)))
        wanted = [stateful_set(name, revision="r2") for name in names]
        for _ in range(3):  # one group only gets the change
            world.write(decide(desired(*wanted), world.observed(), NOON).writes[:1])
            world.settle()
        world.crash("llama-0-1")
        world.write(decide(desired(*wanted), world.observed(), NOON).writes)

        decision = decide(
            desired(*wanted, rules=LifeRules(max_unavailable=3)), world.observed(), NOON
        )

        assert ended_groups(decision.writes) == frozenset()
        assert [group.situation for group in decision.groups] == [
            "Stopping",
            "Ready",
            "Ready",
        ]

    @pytest.mark.parametrize("groups", [ONE_NODE, TWO_NODES])
    def test_a_group_that_ends_meanwhile_comes_back_as_it_was(
        self, groups: Mapping[str, Any]
    ) -> None:
        operator = serving(6, **groups, replicas=3)
        before = templates(operator)
        operator.edit(engine=EXITS)
        operator.run(SETTLED)
        evict(operator, "llama-1-0")

        operator.run(SETTLED)

        assert templates(operator)["llama-1"] == before["llama-1"]
        assert sorted(operator.cluster.serving()) == ["llama-1", "llama-2"]

    def test_a_restart_that_is_asked_for_tries_the_change_again_and_takes_no_further_group_down(
        self,
    ) -> None:
        operator = serving(6, **TWO_NODES, replicas=3)
        before = templates(operator)
        operator.edit(engine=EXITS)
        operator.run(SETTLED)
        operator.annotations["shardwright.io/restart"] = "now"

        operator.run(SETTLED)

        assert stopped(operator.status) == ("True", "EngineFailed")
        assert sorted(operator.cluster.serving()) == ["llama-1", "llama-2"]
        assert {"llama-1", "llama-2"}.isdisjoint(changed(operator, before))

    @pytest.mark.parametrize("groups", [ONE_NODE, TWO_NODES])
    def test_fewer_groups_take_the_one_that_failed_away_and_the_change_to_nobody(
        self, groups: Mapping[str, Any]
    ) -> None:
        operator = serving(6, **groups, replicas=3)
        before = templates(operator)
        operator.edit(engine=EXITS)
        operator.run(SETTLED)
        for replicas in (2, 1):
            operator.edit(replicas=replicas)
            operator.run(SETTLED)

            assert len(operator.cluster.serving()) == replicas
            assert changed(operator, before) == []
            assert stopped(operator.status) == ("True", "EngineFailed")
        operator.edit(engine={})
        operator.run(SETTLED)
        assert (stopped(operator.status), ready(operator.status)) == (
            ("False", "Idle"),
            ("True", "Serving"),
        )

    def test_what_was_rejected_goes_on_where_a_group_that_is_added_comes_up_with_it(
        self,
    ) -> None:
        operator = three_groups(progressDeadlineSeconds=300)
        before = templates(operator)
        operator.edit(engine=EXITS)
        operator.run(SETTLED)
        operator.edit(replicas=2)
        operator.run(SETTLED)
        operator.edit(engine=GOOD)
        operator.edit(replicas=3)

        operator.run(SETTLED)

        assert (stopped(operator.status), ready(operator.status)) == (
            ("False", "Idle"),
            ("True", "Serving"),
        )
        assert changed(operator, before) == ["llama-0", "llama-1", "llama-2"]

    def test_a_pod_that_somebody_deletes_speaks_against_nothing(self) -> None:
        operator = serving(6, **TWO_NODES, replicas=3)
        operator.edit(engine=GOOD)
        operator.run(60)
        pod = operator.cluster.pods["llama-0-1"]
        operator.cluster.end(pod)
        pod["status"]["containerStatuses"] = [
            {
                "name": "engine",
                "state": {"terminated": {"exitCode": 143, "reason": "Error"}},
            }
        ]
        assert stopped(operator.run(10).status)[0] == "False"

    @pytest.mark.parametrize("rollout", [{"partition": 2}, {}])
    def test_a_group_that_ends_meanwhile_keeps_its_claims_too(
        self, rollout: dict[str, Any]
    ) -> None:
        operator = serving(
            6,
            **{**TWO_NODES, "model": with_cache(TWO_NODES, "10Gi")},
            replicas=3,
            rollout=rollout,
        )
        before = templates(operator)
        operator.edit(engine=EXITS, model=with_cache(TWO_NODES, "20Gi"))
        operator.run(SETTLED)
        evict(operator, "llama-1-0")

        operator.run(SETTLED)

        assert templates(operator)["llama-1"] == before["llama-1"]
        assert {"llama-0", "llama-1"} >= {
            name for name in operator.cluster.serving() if "-g" not in name
        } - {"llama-2"}
        assert "llama-1-g1" not in operator.cluster.sets()

    def test_a_stopped_rollout_goes_on_when_the_group_comes_up_after_all(self) -> None:
        operator = three_groups(progressDeadlineSeconds=300)
        operator.edit(engine=HANGS)
        before = templates(operator)
        operator.run(600)
        assert stopped(operator.status)[0] == "True"
        operator.cluster.__class__ = (
            SmallCluster  # what kept it from coming up has passed
        )

        operator.run(SETTLED)

        assert (stopped(operator.status), ready(operator.status)) == (
            ("False", "Idle"),
            ("True", "Serving"),
        )
        assert changed(operator, before) == ["llama-0", "llama-1", "llama-2"]

    def test_a_spec_that_is_corrected_goes_to_all_groups(self) -> None:
        operator = three_groups()
        before = templates(operator)
        operator.edit(engine=EXITS)
        operator.run(SETTLED)
        operator.edit(engine=GOOD)

        operator.run(SETTLED)

        assert (stopped(operator.status), ready(operator.status)) == (
            ("False", "Idle"),
            ("True", "Serving"),
        )
        assert changed(operator, before) == ["llama-0", "llama-1", "llama-2"]

    def test_a_spec_that_is_set_back_restarts_the_group_that_failed_alone(self) -> None:
        operator = three_groups()
        before, uids = (
            templates(operator),
            {
                name: pod["metadata"]["uid"]
                for name, pod in operator.cluster.pods.items()
            },
        )
        operator.edit(engine=EXITS)
        operator.run(SETTLED)
        operator.edit(engine={})

        operator.run(SETTLED)

        after = {
            name: pod["metadata"]["uid"] for name, pod in operator.cluster.pods.items()
        }
        assert ready(operator.status) == ("True", "Serving")
        assert changed(operator, before) == []
        assert [name for name in uids if after[name] != uids[name]] == ["llama-0-0"]

    def test_an_eviction_stops_no_rollout(self) -> None:
        operator = serving(6, **TWO_NODES, replicas=3)
        before = templates(operator)
        operator.edit(engine=GOOD)
        operator.run(60)
        evict(operator, "llama-0-1")
        seen = [stopped(operator.run(10).status)[0] for _ in range(20)]

        operator.run(SETTLED)

        assert set(seen) == {"False"}
        assert changed(operator, before) == ["llama-0", "llama-1", "llama-2"]

    def test_a_group_that_has_lost_its_place_goes_elsewhere_with_what_is_wanted(
        self,
    ) -> None:
        operator = serving(
            8, **TWO_NODES, replicas=3, rollout={"progressDeadlineSeconds": 300}
        )
        before = templates(operator)
        operator.edit(engine=HANGS)
        operator.run(SETTLED)
        assert stopped(operator.status)[0] == "True"
        node = str(operator.cluster.pods["llama-1-0"]["spec"]["nodeName"])
        operator.cluster.set_node(node, cordoned=True)
        operator.cluster.drain(node)

        operator.run(SETTLED)

        assert changed(operator, before) == ["llama-0", "llama-1"]
        nodes = {
            operator.cluster.pods[f"llama-1-{rank}"]["spec"].get("nodeName")
            for rank in range(2)
        }
        assert nodes.isdisjoint({node, None})


class TestAPartition:
    def canary(
        self, groups: Mapping[str, Any] = ONE_NODE
    ) -> tuple[Operator, dict[str, str]]:
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

        pending = condition(operator.status, "RolloutPending")

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

    def test_a_restart_that_is_asked_for_brings_each_back_with_its_own_pods(
        self,
    ) -> None:
        operator, before = self.canary()
        uids = {pod["metadata"]["uid"] for pod in operator.cluster.pods.values()}
        operator.annotations["shardwright.io/restart"] = "now"

        operator.run(SETTLED)

        assert uids.isdisjoint(
            pod["metadata"]["uid"] for pod in operator.cluster.pods.values()
        )
        assert changed(operator, before) == ["llama-2"]
        assert ready(operator.status) == ("True", "Serving")

    def test_a_restart_that_is_asked_for_begins_none_of_them_beside_itself(
        self,
    ) -> None:
        operator = serving(
            8, **ONE_NODE, replicas=3, rollout={"partition": 2, "maxSurge": 1}
        )
        before = templates(operator)
        operator.edit(engine=GOOD)
        operator.run(SETTLED)
        operator.annotations["shardwright.io/restart"] = "now"

        operator.run(SETTLED)

        kept = {
            name: template
            for name, template in templates(operator).items()
            if name in before
        }
        assert kept == {name: before[name] for name in ("llama-0", "llama-1")}
        assert ready(operator.status) == ("True", "Serving")

    def test_the_partition_counts_numbers_of_groups_also_where_one_is_missing(
        self,
    ) -> None:
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
        assert condition(operator.status, "RolloutPending")["status"] == "False"

    def test_groups_that_are_added_get_what_is_wanted(self) -> None:
        operator, before = self.canary()
        operator.edit(rollout={"partition": 9}, replicas=4)
        operator.run(SETTLED)
        engines = {
            name: pod["spec"]["containers"][0]["env"]
            for name, pod in operator.cluster.pods.items()
        }
        assert [
            name for name, env in sorted(engines.items()) if GOOD["env"][0] in env
        ] == ["llama-2-0", "llama-3-0"]
        assert changed(operator, before) == ["llama-2", "llama-3"]

    def test_setting_a_partition_alone_restarts_nothing(self) -> None:
        operator = three_groups()
        operator.edit(rollout={"partition": 2})
        operator.written.clear()
        operator.run(60)
        assert [written_name(write) for write in operator.written] == []
