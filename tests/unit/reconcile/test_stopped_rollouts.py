"""A change whose groups do not come up stops, and all others keep the pods that they have."""

from collections.abc import Mapping
from typing import Any

import pytest

from shardwright.reconcile.decide import decide
from shardwright.reconcile.group import LifeRules
from shardwright.reconcile.writes import ended_groups
from tests.support.builders_reconcile import NOON, World, desired, stateful_set
from tests.support.builders_snapshot import ONE_NODE, TWO_NODES
from tests.support.changed_engines import EXITS, GOOD, HANGS
from tests.support.said import condition_in
from tests.support.small_cluster import SmallCluster
from tests.support.stages_of_rollouts import (
    GONE_ON,
    SETTLED,
    changed,
    evict,
    ready,
    serving,
    standing,
    stopped,
    templates,
    three_groups,
    with_cache,
)


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
        message = condition_in(operator.status, "RolloutStopped")["message"]
        assert message.startswith("llama-0: ")
        assert message.endswith(
            "llama-1, llama-2 keep the pods that they have until it serves: correct the spec, or "
            "set it back"
        )
        assert [group["ready"] for group in operator.status["groups"]] == [False, True, True]
        assert ready(operator.status)[0] == "False"
        assert sorted(operator.cluster.serving()) == ["llama-1", "llama-2"]

    def test_a_group_that_never_comes_up_stops_the_rollout_after_its_deadline(self) -> None:
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
        assert [group.situation for group in decision.groups] == ["Stopping", "Ready", "Ready"]

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
        assert standing(operator.status) == GONE_ON

    def test_what_was_rejected_goes_on_where_a_group_that_is_added_comes_up_with_it(self) -> None:
        operator = three_groups(progressDeadlineSeconds=300)
        before = templates(operator)
        operator.edit(engine=EXITS)
        operator.run(SETTLED)
        operator.edit(replicas=2)
        operator.run(SETTLED)
        operator.edit(engine=GOOD)
        operator.edit(replicas=3)

        operator.run(SETTLED)

        assert standing(operator.status) == GONE_ON
        assert changed(operator, before) == ["llama-0", "llama-1", "llama-2"]

    def test_a_pod_that_somebody_deletes_speaks_against_nothing(self) -> None:
        operator = serving(6, **TWO_NODES, replicas=3)
        operator.edit(engine=GOOD)
        operator.run(60)
        pod = operator.cluster.pods["llama-0-1"]
        operator.cluster.end(pod)
        pod["status"]["containerStatuses"] = [
            {"name": "engine", "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}
        ]
        assert stopped(operator.run(10).status)[0] == "False"

    @pytest.mark.parametrize("rollout", [{"partition": 2}, {}])
    def test_a_group_that_ends_meanwhile_keeps_its_claims_too(
        self, rollout: dict[str, Any]
    ) -> None:
        operator = serving(
            6, **{**TWO_NODES, "model": with_cache(TWO_NODES, "10Gi")}, replicas=3, rollout=rollout
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
        operator.cluster.__class__ = SmallCluster  # what kept it from coming up has passed

        operator.run(SETTLED)

        assert standing(operator.status) == GONE_ON
        assert changed(operator, before) == ["llama-0", "llama-1", "llama-2"]

    def test_a_spec_that_is_corrected_goes_to_all_groups(self) -> None:
        operator = three_groups()
        before = templates(operator)
        operator.edit(engine=EXITS)
        operator.run(SETTLED)
        operator.edit(engine=GOOD)

        operator.run(SETTLED)

        assert standing(operator.status) == GONE_ON
        assert changed(operator, before) == ["llama-0", "llama-1", "llama-2"]

    def test_a_spec_that_is_set_back_restarts_the_group_that_failed_alone(self) -> None:
        operator = three_groups()
        before, uids = (
            templates(operator),
            {name: pod["metadata"]["uid"] for name, pod in operator.cluster.pods.items()},
        )
        operator.edit(engine=EXITS)
        operator.run(SETTLED)
        operator.edit(engine={})

        operator.run(SETTLED)

        after = {name: pod["metadata"]["uid"] for name, pod in operator.cluster.pods.items()}
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

    def test_a_group_that_has_lost_its_place_goes_elsewhere_with_what_is_wanted(self) -> None:
        operator = serving(8, **TWO_NODES, replicas=3, rollout={"progressDeadlineSeconds": 300})
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
            operator.cluster.pods[f"llama-1-{rank}"]["spec"].get("nodeName") for rank in range(2)
        }
        assert nodes.isdisjoint({node, None})
