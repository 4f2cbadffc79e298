"""One look as a pure function: stage by stage, and what each kind of trouble does to the groups of
a model.
"""

from dataclasses import replace
from datetime import timedelta
from functools import cache
from json import dumps, loads
from typing import Any

import pytest

from shardwright.api.record import PlanRecord
from shardwright.errors import Problem
from shardwright.pipeline.plan_upgrade import PAUSE
from shardwright.reconcile.group import HANGING_SECONDS
from shardwright.reconcile.groups import REFUSED_SECONDS
from shardwright.reconcile.members import Situation
from shardwright.reconcile.next_step import Step, next_step
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.publish import NO_PODS_SECONDS, UNREADY_SECONDS, Published
from shardwright.reconcile.relocation import REGISTERED_AGAIN_SECONDS
from shardwright.reconcile.snapshot import Ask, Outcome, Refusal
from shardwright.reconcile.write_cause import Contest, Origin, WriteCause, rendered_hash
from shardwright.reconcile.writes import (
    Apply,
    Delete,
    DryRunPod,
    Patch,
    Why,
    Write,
    written_kind,
    written_name,
)
from shardwright.resolving.subject import Subject
from tests.support.builders_reconcile import crashed, pod
from tests.support.builders_snapshot import ONE_NODE, TWO_NODES, Operator
from tests.support.said import condition_in
from tests.support.small_cluster import (
    COLLECTED_SECONDS,
    GRACE_SECONDS,
    LOAD_SECONDS,
    Refuses,
    SmallCluster,
)


class LosesSecondPlaces(Refuses):
    """Takes no plan of record that says of a group that it starts beside itself."""

    def refusal(self, write: Write) -> Refusal | None:
        found = super().refusal(write)
        return (
            found
            if isinstance(write, Apply) and '"generations":[1]' in str(write.content.get("data"))
            else None
        )


def an_operator(nodes: int, **spec: Any) -> Operator:
    cluster = SmallCluster()
    cluster.add_nodes(nodes)
    return Operator(cluster, spec)


def serving(nodes: int, **spec: Any) -> Operator:
    """Return an operator whose groups all serve."""
    return _served(nodes, dumps(spec, sort_keys=True)).fork()


@cache  # most tests begin with one of a few
def _served(nodes: int, spec: str) -> Operator:
    operator = an_operator(nodes, **loads(spec))
    operator.run(LOAD_SECONDS + 60)
    assert len(operator.cluster.serving()) == operator.spec["replicas"]
    operator.written.clear()
    operator.asked.clear()
    return operator


def condition(published: Published, kind: str) -> dict[str, Any]:
    return condition_in(published.status, kind)


def tensor(operator: Operator) -> int:
    """Return the tensor degree of the plan of record."""
    assert operator.kept
    return operator.kept.record.plan.layout.tensor


def outcome(published: Published) -> tuple[str, str]:
    """Return the reason of Ready and the condition that says who must act."""
    acts = [
        kind
        for kind in ("Reconciling", "Stalled")
        if condition(published, kind)["status"] == "True"
    ]
    return condition(published, "Ready")["reason"], " ".join(acts)


def named(writes: Any) -> list[tuple[str, str, str]]:
    return [(type(write).__name__, written_kind(write), written_name(write)) for write in writes]


class TestStages:
    def test_what_cannot_be_read_is_left_alone_and_all_that_is_said_of_it_is_that(self) -> None:
        operator = serving(1, **ONE_NODE, replicas=1)
        denied = Problem(code="NotPermitted", what="the operator may not read namespace models")
        step = next_step(replace(operator.seen(), observed=denied), operator.cluster.now)
        assert (step.writes, step.ask, step.records) == ((), None, None)
        assert step.published
        assert (step.published.known, step.published.kept) == (False, None)
        assert outcome(step.published) == ("NotPermitted", "Stalled")
        assert {item["status"] for item in step.published.status["conditions"]} == {
            "True",
            "False",
            "Unknown",
        }
        assert step.published.status["groups"] == operator.status["groups"]

    def test_until_the_caches_are_full_nothing_is_decided_and_nothing_is_known_of_gpus(
        self,
    ) -> None:
        operator = serving(1, **ONE_NODE, replicas=1)
        step = next_step(replace(operator.seen(), cluster=None), operator.cluster.now)
        assert (step.writes, step.ask) == ((), None)
        assert step.published
        assert step.published.known is False
        assert outcome(step.published) == ("ClusterReading", "Reconciling")
        assert step.published.again_at == operator.cluster.now + timedelta(seconds=1)

    def test_the_planner_is_asked_then_the_record_is_written_then_the_rest_and_then_it_is_said(
        self,
    ) -> None:
        operator = an_operator(2, **ONE_NODE, replicas=2)
        now, seen = operator.cluster.now, operator.seen()

        assert isinstance(seen.subject, Subject)
        asked = next_step(seen, now)
        assert asked == Step(ask=Ask(on=None, choice=PlanChoice.REPLAN), subject=seen.subject)
        assert asked.ask
        seen = seen.answered(asked.ask, operator.answer(seen, asked.ask))

        recorded = next_step(seen, now)
        assert recorded.records
        assert recorded.records.plan.groups == (("h100-0",), ("h100-1",))
        assert named(recorded.writes) == [("Create", "ConfigMap", "llama-plan")]
        seen = seen.put_down(recorded.records, operator.cluster.carry_out(recorded.writes))

        deployed = next_step(seen, now)
        assert named(deployed.writes) == [
            (
                "Create",
                "ConfigMap",
                next(name for _, kind, name in named(deployed.writes) if kind == "ConfigMap"),
            ),
            ("Create", "NetworkPolicy.v1.networking.k8s.io", "llama-network"),
            ("Create", "Service", "llama"),
            ("Create", "StatefulSet", "llama-0"),
            ("Create", "StatefulSet", "llama-1"),
        ]
        assert deployed.published
        assert deployed.published.kept
        assert (deployed.published.kept.record, deployed.published.kept.released) == (
            recorded.records,
            frozenset(),
        )
        assert [event.reason for event in deployed.published.events] == ["Planned"]

        written = operator.cluster.carry_out(deployed.writes)
        assert next_step(seen.done(written), now).published == deployed.published

    def test_a_record_that_is_not_taken_starts_nothing_and_keeps_no_other_plan(self) -> None:
        operator = an_operator(1, **ONE_NODE, replicas=1)
        operator.cluster.refuses = [Refuses(kind="ConfigMap")]
        published = operator.reconcile()
        assert operator.written == []
        assert outcome(published) == ("ObjectRefused", "Stalled")
        assert published.kept is None
        operator.cluster.refuses = []
        assert outcome(operator.run(LOAD_SECONDS + 60)) == ("Serving", "")

    def test_a_record_whose_name_somebody_has_taken_is_a_conflict(self) -> None:
        operator = an_operator(1, **ONE_NODE, replicas=1)
        theirs = {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"name": "llama-plan", "namespace": "models", "uid": "x"},
        }
        operator.cluster.objects["ConfigMap", "llama-plan"] = theirs
        assert outcome(operator.reconcile()) == ("NameConflict", "Stalled")
        assert operator.written == []

    def test_a_look_at_a_serving_model_asks_and_writes_nothing_and_needs_no_other_look(
        self,
    ) -> None:
        operator = serving(1, **ONE_NODE, replicas=1)
        published = operator.reconcile()
        assert (operator.written, operator.asked, published.again_at, published.events) == (
            [],
            [],
            None,
            (),
        )
        assert outcome(published) == ("Serving", "")

    def test_no_room_is_waited_for_and_planned_once_there_is(self) -> None:
        operator = an_operator(1, **ONE_NODE, replicas=1)
        operator.cluster.others["h100-0"] = 8
        published = operator.reconcile()
        assert outcome(published) == ("InsufficientCapacity", "Reconciling")
        assert (operator.written, published.waits_for_capacity, published.kept) == ([], True, None)
        operator.cluster.others.clear()
        assert outcome(operator.run(LOAD_SECONDS + 60)) == ("Serving", "")

    def test_a_plan_that_is_only_shown_is_recorded_runs_nothing_and_keeps_no_gpu(self) -> None:
        operator = an_operator(1, **ONE_NODE, replicas=1, mode="PlanOnly")
        published = operator.reconcile()
        assert named(operator.written) == [("Create", "ConfigMap", "llama-plan")]
        assert outcome(published) == ("PlanOnly", "")
        assert (published.known, published.kept) == (True, None)

    def test_a_scheduler_that_is_not_there_is_found_before_a_plan_keeps_gpus(self) -> None:
        operator = an_operator(1, **ONE_NODE, replicas=1)
        operator.scheduler_problem = Problem(
            code="SchedulerUnavailable", what="Coscheduling", limit="is not here"
        )
        published = operator.reconcile()
        assert outcome(published) == ("SchedulerUnavailable", "Stalled")
        assert (operator.written, operator.asked, published.kept) == ([], [], None)

    def test_objects_that_this_cluster_does_not_have_start_nothing_and_end_nothing(self) -> None:
        operator = serving(2, **ONE_NODE, replicas=1)
        seen = operator.seen()
        record = seen.record
        assert isinstance(record, PlanRecord)
        joined = replace(
            record,
            plan=replace(
                record.plan,
                compute_domain=True,
                groups=(("h100-0", "h100-1"),),
                nodes_per_replica=2,
            ),
        )
        assert not isinstance(seen.observed, Problem)
        assert seen.cluster
        absent = replace(seen.observed, absent_kinds=frozenset({"ComputeDomain"}))
        cluster = replace(seen.cluster, nodes=operator.cluster.facts)
        in_place = replace(seen, record=joined, observed=absent, cluster=cluster).put_down(
            joined, Outcome()
        )
        step = next_step(in_place, operator.cluster.now)
        assert step.writes == ()
        assert step.published
        assert outcome(step.published) == ("ComputeDomainUnavailable", "Stalled")


def break_a_rank(operator: Operator, name: str = "llama-1-1") -> None:
    """Let an engine end and the kubelet start it again."""
    item = operator.cluster.pods[name]
    item["status"] = {
        **item["status"],
        "containerStatuses": crashed(name)["status"]["containerStatuses"],
    }


def no_room(operator: Operator) -> None:
    operator.edit(parallelism={"tensor": 8, "pipeline": 3})


def typo(operator: Operator) -> None:
    operator.edit(engine={"args": {"no-such-argument": 1}})
    operator.problems = (Problem(code="InvalidSpec", what="spec.engine.args: no-such-argument"),)


def missing_config_map(operator: Operator) -> None:
    operator.edit(model={"id": "acme/x", "configMapRef": {"name": "gone"}})
    operator.problems = (Problem(code="ConfigMissing", what="ConfigMap gone"),)


def unreadable_record(operator: Operator) -> None:
    operator.cluster.objects["ConfigMap", "llama-plan"]["data"]["plan.json"] = '{"version": 99}'


def no_such_scheduler(operator: Operator) -> None:
    operator.scheduler_problem = Problem(
        code="SchedulerUnavailable", what="Coscheduling", limit="is not here"
    )


NOT_KNOWN = {
    "InsufficientCapacity": no_room,
    "InvalidSpec": typo,
    "ConfigMissing": missing_config_map,
    "PlanRecordUnreadable": unreadable_record,
    "SchedulerUnavailable": no_such_scheduler,
}
"""What leaves an operator without a plan for the spec as it is, by the reason that it gives."""


def two_groups() -> Operator:
    """Return two groups of two nodes that serve, and two nodes that others hold."""
    return _two_groups().fork()


@cache
def _two_groups() -> Operator:
    operator = an_operator(6, **TWO_NODES, replicas=2)
    operator.cluster.others = {"h100-4": 8, "h100-5": 8}
    operator.run(LOAD_SECONDS + 60)
    assert len(operator.cluster.serving()) == 2
    operator.written.clear()
    return operator


class TestWithoutAPlanForTheSpecAsItIs:
    @pytest.mark.parametrize("reason", NOT_KNOWN)
    def test_what_runs_is_left_running(self, reason: str) -> None:
        operator = two_groups()
        before = operator.cluster.serving()
        NOT_KNOWN[reason](operator)
        published = operator.run(3600, step=300)
        assert operator.cluster.serving() == before
        assert operator.written == []
        assert condition(published, "Ready")["reason"] == reason
        assert condition(published, "Ready")["observedGeneration"] == operator.generation
        assert published.status["readyReplicas"] == 2
        assert operator.kept
        assert operator.kept.record.plan.groups == (("h100-0", "h100-1"), ("h100-2", "h100-3"))

    @pytest.mark.parametrize("reason", NOT_KNOWN)
    def test_a_group_that_breaks_starts_again_as_it_was(self, reason: str) -> None:
        operator = two_groups()
        before, template = (
            operator.cluster.serving(),
            operator.cluster.sets()["llama-1"]["spec"]["template"],
        )
        NOT_KNOWN[reason](operator)
        operator.reconcile()
        break_a_rank(operator)
        published = operator.run(600)
        after = operator.cluster.serving()
        assert after.keys() == before.keys()
        assert after["llama-0"] == before["llama-0"]
        assert after["llama-1"].isdisjoint(before["llama-1"])
        assert operator.cluster.sets()["llama-1"]["spec"]["template"] == template
        assert {type(write) for write in operator.written} <= {Patch, Delete}
        assert [event for event in published.events if event.reason == "GroupFailed"] == []
        assert published.status["groups"][1]["restarts"] == 1

    @pytest.mark.parametrize("reason", [*NOT_KNOWN, "Paused"])
    def test_where_it_is_paused_nothing_is_written_whatever_breaks(self, reason: str) -> None:
        operator = two_groups()
        NOT_KNOWN.get(reason, lambda _: None)(operator)
        operator.edit(paused=True)
        break_a_rank(operator)
        published = operator.run(600)
        assert operator.written == []
        assert operator.cluster.serving().keys() == {"llama-0"}
        assert published.status["groups"][1]["name"] == "llama-1"

    def test_a_plan_that_cannot_be_run_ends_nothing_of_what_runs(self) -> None:
        model = {"id": "deepseek-ai/DeepSeek-V3"}
        cluster = SmallCluster()
        cluster.add_nodes(4, product="NVIDIA-H200")
        operator = Operator(
            cluster, {"model": model, "parallelism": {"tensor": 8, "pipeline": 2}, "replicas": 1}
        )
        operator.run(LOAD_SECONDS + 60)
        operator.written.clear()
        before = operator.cluster.serving()
        operator.edit(parallelism={"tensor": 16, "dataParallelAttention": 2})
        published = operator.run(600)
        assert operator.cluster.serving() == before
        assert operator.written == []
        assert outcome(published) == ("NotDeployable", "Stalled")
        break_a_rank(operator, "llama-0-1")
        operator.run(600)
        assert operator.cluster.serving().keys() == before.keys()
        assert operator.cluster.serving() != before

    def test_a_restart_that_is_asked_for_goes_from_group_to_group_all_the_same(self) -> None:
        operator = two_groups()
        before = operator.cluster.serving()
        no_room(operator)
        operator.annotations["shardwright.io/restart"] = "now"
        for _ in operator.moments(600):
            assert operator.cluster.serving()
        after = operator.cluster.serving()
        assert after.keys() == before.keys()
        assert all(after[name].isdisjoint(before[name]) for name in before)

    def test_a_broken_group_of_a_resource_without_a_record_comes_back_with_the_pods_that_it_had(
        self,
    ) -> None:
        operator = two_groups()
        typo(operator)
        break_a_rank(operator)
        operator.reconcile()
        unreadable_record(operator)
        operator.run(600)
        assert operator.cluster.serving().keys() == {"llama-0", "llama-1"}


class TestFaultsOfNodes:
    def test_a_restarted_operator_says_again_that_a_pod_hangs_although_nothing_happens(
        self,
    ) -> None:
        operator = serving(3, **TWO_NODES, replicas=1)
        operator.cluster.set_node("h100-1", ready=False)
        operator.run(1200)
        assert operator.cluster.sets().keys() == {"llama-0-g1"}
        operator.since, operator.cluster.version = {}, operator.cluster.version + 1
        assert outcome(operator.reconcile()) == ("Serving", "")
        operator.run(600)
        assert [
            condition["reason"]
            for condition in operator.status["conditions"]
            if condition["type"] == "Degraded"
        ] == ["NodeLost"]

    def test_a_group_whose_next_generation_is_not_created_remembers_what_was_when_it_is(
        self,
    ) -> None:
        operator = serving(3, **TWO_NODES, replicas=1)
        operator.cluster.set_node("h100-1", ready=False)
        operator.cluster.refuses = [Refuses(kind="Service", name="llama-0-g1-peers")]
        operator.run(1200)
        assert operator.cluster.sets().keys() == {"llama-0"}
        operator.cluster.refuses = []
        operator.run(600)
        assert operator.cluster.serving().keys() == {"llama-0"}
        assert operator.status["groups"][0]["restarts"] == 1

    def test_an_edit_while_a_node_is_cordoned_moves_its_group_alone_and_takes_down_one_at_a_time(
        self,
    ) -> None:
        operator = serving(5, **ONE_NODE, replicas=4)
        operator.cluster.set_node("h100-0", cordoned=True)
        operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "WARN"}]})
        for _ in operator.moments(1200):
            assert len(operator.cluster.serving()) >= 3
        places = {name: item["spec"]["nodeName"] for name, item in operator.cluster.pods.items()}
        assert places == {
            "llama-0-0": "h100-4",
            "llama-1-0": "h100-1",
            "llama-2-0": "h100-2",
            "llama-3-0": "h100-3",
        }
        assert len(operator.cluster.serving()) == 4

    def test_an_edit_while_a_node_is_cordoned_and_no_other_is_free_waits_for_room_and_ends_nothing(
        self,
    ) -> None:
        operator = serving(4, **ONE_NODE, replicas=4)
        operator.cluster.set_node("h100-0", cordoned=True)
        operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "WARN"}]})
        before = operator.cluster.serving()
        assert outcome(operator.run(600)) == ("InsufficientCapacity", "Reconciling")
        assert operator.cluster.serving() == before
        operator.cluster.set_node("h100-0")
        for _ in operator.moments(1200):
            assert len(operator.cluster.serving()) >= 3
        after = operator.cluster.serving()
        assert after.keys() == before.keys()
        assert not set.intersection(*(set().union(*pods.values()) for pods in (before, after)))

    def test_a_node_that_is_gone_is_waited_for_as_long_as_a_kubelet_takes_to_register_it_again(
        self,
    ) -> None:
        operator = serving(2, **ONE_NODE, replicas=1)
        operator.cluster.delete_node("h100-0")
        due = operator.cluster.now + timedelta(seconds=REGISTERED_AGAIN_SECONDS)
        published = operator.run(COLLECTED_SECONDS, step=COLLECTED_SECONDS)
        assert operator.asked == []
        assert condition(published, "PlanStale")["status"] == "True"
        assert published.again_at
        assert published.again_at <= due
        left = REGISTERED_AGAIN_SECONDS - COLLECTED_SECONDS - 1
        operator.run(left, step=left)
        assert operator.asked == []
        operator.run(1, step=1)
        assert [(ask.choice, ask.leaving) for ask in operator.asked] == [
            (PlanChoice.REHOUSE, frozenset({0}))
        ]
        operator.run(LOAD_SECONDS + 60)
        assert operator.cluster.standing_on("h100-1") == {"llama-0"}

    @pytest.mark.parametrize("shape", [ONE_NODE, TWO_NODES])
    def test_a_node_that_is_gone_is_said_at_once_and_costs_nothing_if_it_registers_again(
        self, shape: dict[str, Any]
    ) -> None:
        operator = serving(4, **shape, replicas=2)
        uids = operator.cluster.serving()
        operator.cluster.delete_node("h100-1")
        published = operator.reconcile()

        said = [condition(published, kind) for kind in ("Ready", "Degraded", "PlanStale")]
        gone = len(uids) - len(operator.cluster.serving())
        assert gone == 1
        assert [(item["status"], item["reason"]) for item in said] == [
            *(("False", "NodeLost"), ("True", "NodeLost")),
            ("True", "NodesChanged"),
        ]
        assert "node h100-1 is gone" in said[0]["message"]
        assert published.status["ready"] == "1/2"

        operator.run(30, step=10)
        operator.cluster.set_node("h100-1")
        published = operator.run(20, step=10)
        assert condition(published, "Ready")["status"] == "True"
        assert operator.cluster.serving() == uids

    def test_a_pod_that_hangs_on_a_node_that_answers_holds_its_group_for_its_grace_and_minutes(
        self,
    ) -> None:
        operator = serving(2, **ONE_NODE, replicas=1)
        operator.cluster.stuck = {"h100-0"}
        operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "WARN"}]})
        operator.run(GRACE_SECONDS + HANGING_SECONDS - 20, step=10)
        assert operator.cluster.sets().keys() == {"llama-0"}
        published = operator.run(40, step=10)
        assert operator.cluster.sets().keys() == {"llama-0-g1"}
        degraded = condition(published, "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "NodeLost")
        assert "h100-0" in degraded["message"]
        operator.run(LOAD_SECONDS + 60)
        assert operator.cluster.standing_on("h100-1") == {"llama-0"}
        assert operator.cluster.serving().keys() == {"llama-0"}

    def test_a_clock_that_is_minutes_off_ends_no_wait_before_its_time(self) -> None:
        """What others have written says that all of this began an hour ago."""
        operator = serving(3, **TWO_NODES, replicas=1)
        long_ago = (operator.cluster.now - timedelta(hours=1)).isoformat()
        item = operator.cluster.pods["llama-0-1"]
        item["metadata"] |= {"deletionTimestamp": long_ago, "deletionGracePeriodSeconds": 30}
        published = operator.reconcile()
        assert published.found.lost == frozenset()
        assert condition(published, "Degraded")["message"].startswith("llama-0: rank 1: PodDeleted")


class TestRefusals:
    def test_an_object_that_is_refused_keeps_no_broken_group_down(self) -> None:
        operator = serving(4, **TWO_NODES, replicas=2)
        before = operator.cluster.serving()
        del operator.cluster.objects["Service", "llama"]
        operator.cluster.refuses = [Refuses(kind="Service", name="llama")]
        break_a_rank(operator)
        published = operator.run(600)
        after = operator.cluster.serving()
        assert after["llama-0"] == before["llama-0"]
        assert after["llama-1"].isdisjoint(before["llama-1"])
        assert outcome(published) == ("ObjectRefused", "Stalled")
        assert published.recheck_at == operator.cluster.now + timedelta(seconds=UNREADY_SECONDS)

    def test_what_ends_a_broken_group_comes_before_all_that_may_be_refused(self) -> None:
        operator = serving(4, **TWO_NODES, replicas=2)
        del operator.cluster.objects["Service", "llama"]
        break_a_rank(operator)
        operator.reconcile()
        assert named(operator.written) == [
            ("Patch", "StatefulSet", "llama-1"),
            ("Create", "Service", "llama"),
        ]

    @pytest.mark.parametrize(
        ("kind", "name", "held_up"),
        [
            ("Service", "llama-1-peers", {"llama-1"}),
            ("Service", "llama", set()),
            ("PodDisruptionBudget", "", set()),
        ],
    )
    def test_a_refused_object_holds_up_only_the_groups_whose_pods_need_it(
        self, kind: str, name: str, held_up: set[str]
    ) -> None:
        operator = an_operator(4, **TWO_NODES, replicas=2)
        operator.cluster.refuses = [Refuses(kind=kind, name=name)]
        published = operator.run(LOAD_SECONDS + 120)
        assert operator.cluster.serving().keys() == {"llama-0", "llama-1"} - held_up
        assert outcome(published) == ("ObjectRefused", "Stalled")

    def test_the_scripts_of_a_new_template_are_written_before_anything_ends_for_it(self) -> None:
        operator = serving(2, **TWO_NODES, replicas=1)
        before = operator.cluster.serving()
        operator.edit(readiness={"tokens": True, "silenceSeconds": 200})
        operator.cluster.refuses = [Refuses(kind="ConfigMap")]
        operator.run(600)
        assert operator.cluster.serving() == before
        operator.cluster.refuses = []
        operator.run(600)
        assert operator.cluster.serving() != before
        assert len(operator.cluster.serving()) == 1

    @pytest.mark.parametrize("code", [500, 503, 0])
    def test_a_failure_that_passes_is_in_the_status_at_once_and_tried_again(
        self, code: int
    ) -> None:
        operator = an_operator(1, **ONE_NODE, replicas=1)
        operator.cluster.refuses = [
            Refuses(kind="Service", code=code, message='failed calling webhook "theirs"')
        ]
        published = operator.reconcile()
        assert outcome(published) == ("ApiUnavailable", "Reconciling")
        assert 'failed calling webhook "theirs"' in condition(published, "Ready")["message"]
        assert published.status["observedGeneration"] == 1
        assert published.recheck_at == operator.cluster.now + timedelta(seconds=UNREADY_SECONDS)

    def test_pods_that_are_refused_say_why_after_seconds(self) -> None:
        operator = an_operator(1, **ONE_NODE, replicas=1)
        operator.cluster.refuses = [Refuses(kind="Pod", message="exceeded quota: pods=0")]
        assert outcome(operator.reconcile())[0] == "Progressing"
        published = operator.run(NO_PODS_SECONDS * 2, step=NO_PODS_SECONDS)
        assert outcome(published) == ("PodsRefused", "Stalled")
        assert "exceeded quota: pods=0" in condition(published, "Ready")["message"]
        assert not [write for write in operator.written if isinstance(write, DryRunPod)]

    @pytest.mark.parametrize("shape", [ONE_NODE, TWO_NODES])
    def test_pods_that_stay_refused_are_said_once_by_their_names_and_nothing_is_written_again(
        self, shape: dict[str, Any]
    ) -> None:
        operator = an_operator(2, **shape, replicas=1)
        operator.cluster.refuses = [Refuses(kind="Pod", message='pods "{name}" is forbidden')]
        operator.run(NO_PODS_SECONDS * 2, step=NO_PODS_SECONDS)
        statuses = [operator.run(10, step=10).status for _ in range(20)]

        assert 'pods "llama-0-0" is forbidden' in statuses[0]["conditions"][0]["message"]
        assert statuses == [statuses[0]] * 20

    def test_pods_that_are_refused_give_their_gpus_back_and_come_when_they_may(self) -> None:
        operator = an_operator(2, **TWO_NODES, replicas=1)
        operator.cluster.refuses = [Refuses(kind="Pod", message="exceeded quota: pods=0")]
        published = operator.run(REFUSED_SECONDS, step=NO_PODS_SECONDS)
        assert published.kept
        assert published.kept.released == frozenset()
        published = operator.run(60, step=NO_PODS_SECONDS)
        assert published.kept
        assert published.kept.released == {0}
        assert operator.cluster.sets()["llama-0"]["spec"]["replicas"] == 0
        assert "exceeded quota: pods=0" in published.status["groups"][0]["lastFailure"]["message"]
        operator.cluster.refuses = []
        published = operator.run(1800)
        assert outcome(published) == ("Serving", "")
        assert published.kept
        assert published.kept.released == frozenset()
        assert published.kept_out == {}

    def test_a_group_whose_pods_are_still_refused_takes_no_gpus_again_until_one_would_be_created(
        self,
    ) -> None:
        operator = an_operator(2, **TWO_NODES, replicas=1)
        operator.cluster.refuses = [Refuses(kind="Pod", message="exceeded quota: pods=0")]
        operator.run(REFUSED_SECONDS + 40, step=NO_PODS_SECONDS)
        operator.cluster.refuses = [Refuses(kind="Pod", message="exceeded quota: pods=1")]
        for _ in range(10):
            published = operator.run(600, step=60)
            assert operator.cluster.sets()["llama-0"]["spec"]["replicas"] == 0
            assert published.kept
            assert published.kept.released == {0}
            assert outcome(published) == ("PodsRefused", "Stalled")
            assert "exceeded quota: pods=1" in condition(published, "Ready")["message"]
        operator.cluster.refuses = []
        published = operator.run(60)
        assert published.kept
        assert published.kept.released == frozenset()
        assert [item["spec"]["replicas"] for item in operator.cluster.sets().values()] == [2]

    def test_a_preempted_pod_that_is_a_group_of_its_own_keeps_no_gpus_until_there_is_room_again(
        self,
    ) -> None:
        operator = an_operator(1, **ONE_NODE, replicas=1)
        operator.run(600)
        preempt(operator, "llama-0-0")
        published = operator.run(60)
        assert published.kept
        assert published.kept.released == {0}
        assert published.waits_for_capacity
        assert [wait.what for wait in published.found.groups[0].waits] == ["Room", "Pod"]
        operator.cluster.others["h100-0"] = 0
        published = operator.run(600)
        assert outcome(published) == ("Serving", "")
        assert published.kept
        assert published.kept.released == frozenset()

    def test_a_preempted_pod_goes_elsewhere_at_once_where_there_is_room(self) -> None:
        operator = an_operator(2, **ONE_NODE, replicas=1)
        operator.run(600)
        preempt(operator, "llama-0-0")
        operator.run(120)
        assert operator.cluster.standing_on("h100-1") == {"llama-0"}

    def test_a_group_whose_pods_were_refused_moves_if_others_have_taken_its_gpus(self) -> None:
        operator = an_operator(2, **ONE_NODE, replicas=1)
        operator.cluster.refuses = [Refuses(kind="Pod")]
        operator.run(REFUSED_SECONDS + 60, step=NO_PODS_SECONDS)
        operator.cluster.refuses = []
        operator.cluster.others["h100-0"] = 8
        operator.run(3600)
        assert operator.cluster.standing_on("h100-1") == {"llama-0"}
        assert operator.cluster.serving().keys() == {"llama-0"}


def preempt(operator: Operator, pod: str) -> None:
    """Let a pod of a higher class take the GPUs of a pod."""
    item = operator.cluster.pods[pod]
    operator.cluster.end(item, taken_by="PreemptionByScheduler")
    operator.cluster.others[item["spec"]["nodeName"]] = 8


def controller(uid: str) -> dict[str, Any]:
    return {
        "kind": "StatefulSet",
        "apiVersion": "apps/v1",
        "name": "llama-0",
        "uid": uid,
        "controller": True,
    }


class TestOthers:
    def test_a_pod_of_somebody_else_with_our_labels_changes_nothing_but_a_condition(self) -> None:
        operator = serving(2, **TWO_NODES, replicas=1)
        uid = operator.cluster.sets()["llama-0"]["metadata"]["uid"]
        for name, owner in {
            "llama-0-7": controller(uid) | {"controller": False},
            "llama-0-8": controller("of its former self"),
            "llama-0-9": controller(uid) | {"apiVersion": "theirs/v1"},
            "llama-0-10000000": controller(uid),
            "stray": controller(uid) | {"kind": "ReplicaSet"},
        }.items():
            item = pod(name)
            labels = operator.cluster.pods["llama-0-0"]["metadata"]["labels"]
            item["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
            operator.cluster.pods[name] = item
        published = operator.reconcile()
        assert operator.written == []
        assert outcome(published) == ("Serving", "")
        foreign = condition(published, "ForeignPods")
        assert foreign["status"] == "True"
        assert foreign["message"].startswith("llama-0-10000000, llama-0-7, llama-0-9 and 1 more: ")
        assert published.status["groups"][0]["nodes"] == ["h100-0", "h100-1"]

    def test_a_field_that_somebody_keeps_setting_back_is_left_for_a_while_and_said(self) -> None:
        operator = serving(1, **ONE_NODE, replicas=1)
        service = operator.cluster.objects["Service", "llama"]
        service["spec"]["ports"][0]["port"] = 9
        contest = Contest(fields=("spec.ports[0].port",), rendered=rendered_hash(service))
        operator.contested = {("Service", "llama"): contest}
        published = operator.reconcile()
        assert operator.written == []
        assert condition(published, "FieldConflict")["status"] == "True"
        assert outcome(published) == ("Serving", "")
        assert published.recheck_at == operator.cluster.now + timedelta(seconds=UNREADY_SECONDS)

        operator.contested = {}
        published = operator.reconcile()
        assert named(operator.written) == [("Apply", "Service", "llama")]
        (repair,) = operator.written
        assert repair.cause == WriteCause(Origin.UNDONE, "spec.ports[0].port")
        assert condition(published, "FieldConflict")["status"] == "False"

    def test_a_group_that_fails_restarts_although_a_field_of_it_is_contested(self) -> None:
        operator = serving(2, **TWO_NODES, replicas=1)
        operator.contested = {("StatefulSet", "llama-0"): Contest(fields=("spec.template",))}
        break_a_rank(operator, "llama-0-1")
        operator.reconcile()
        assert [write.why for write in operator.written if isinstance(write, Patch)] == [
            Why.FAILURE
        ]

    def test_while_groups_of_other_models_restart_ours_wait_for_their_turn_and_say_so(self) -> None:
        operator = serving(2, **ONE_NODE, replicas=2)
        operator.most_moving = 0
        operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "WARN"}]})
        published = operator.reconcile()
        assert {group.situation for group in published.found.groups} == {Situation.OUTDATED}
        assert condition(published, "TurnAwaited")["status"] == "True"
        assert published.moving == 0

        operator.most_moving = 1
        published = operator.reconcile()
        assert published.moving == 1
        assert condition(published, "TurnAwaited")["status"] == "False"
        assert [group.situation for group in published.found.groups] == [
            Situation.STOPPING,
            Situation.OUTDATED,
        ]


class TestPlans:
    def test_a_plan_that_was_only_shown_and_whose_node_is_taken_is_made_anew_when_it_is_to_run(
        self,
    ) -> None:
        operator = an_operator(2, **ONE_NODE, replicas=1, mode="PlanOnly")
        operator.reconcile()
        operator.cluster.others["h100-0"] = 8
        shown = operator.reconcile()
        stale = condition(shown, "PlanStale")
        assert (
            stale["status"],
            stale["message"].startswith("planned node h100-0 has 0 free GPUs"),
        ) == ("True", True)

        operator.edit(mode="Deploy")
        published = operator.reconcile()
        assert published.kept
        assert published.kept.record.plan.groups == (("h100-1",),)
        operator.run(LOAD_SECONDS + 60)
        assert operator.cluster.serving().keys() == {"llama-0"}

    def test_a_plan_that_was_only_shown_and_still_has_its_room_runs_as_shown(self) -> None:
        operator = an_operator(2, **ONE_NODE, replicas=1, mode="PlanOnly")
        shown = operator.reconcile()
        operator.edit(mode="Deploy")
        published = operator.reconcile()
        assert published.report == shown.report

    def test_a_better_plan_replaces_a_serving_one_at_most_once_an_hour_and_is_named_until_then(
        self,
    ) -> None:
        operator = an_operator(2, replicas=1, replan="Always", objective={"optimizeFor": "Latency"})
        operator.cluster.others |= {"h100-0": 7, "h100-1": 8}
        operator.run(LOAD_SECONDS + 60)
        assert condition(operator.reconcile(), "PlanStale")["reason"] == "PlanValid"
        assert tensor(operator) == 1

        operator.cluster.others["h100-0"] = 4  # four of eight GPUs come free, and then all
        operator.run(LOAD_SECONDS + 120)
        assert tensor(operator) == 4
        operator.cluster.others.clear()
        published = operator.run(600)
        stale = condition(published, "PlanStale")
        assert (stale["status"], stale["reason"]) == ("True", "BetterPlan")
        assert stale["message"].startswith("TP8 on ")
        assert (tensor(operator), set(operator.cluster.serving())) == (4, {"llama-0"})

        operator.run(PAUSE.total_seconds() - 1200)
        operator.reconcile()
        assert tensor(operator) == 4
        operator.run(1200)
        operator.reconcile()
        assert tensor(operator) == 8
        assert condition(operator.run(LOAD_SECONDS + 120), "PlanStale")["reason"] == "PlanValid"
        assert operator.cluster.serving().keys() == {"llama-0"}

    @pytest.mark.parametrize("replan", ["WhenInvalid", "Never"])
    def test_of_a_plan_that_serves_on_a_node_that_has_changed_it_is_said_what_a_new_one_would_be(
        self, replan: str
    ) -> None:
        operator = serving(1, **ONE_NODE, replicas=1, replan=replan)
        operator.cluster.set_node("h200-0", product="NVIDIA-H200")
        operator.cluster.set_node(
            "h100-0", taints=[{"key": "team", "value": "other", "effect": "NoSchedule"}]
        )
        before = operator.cluster.serving()
        published = operator.run(60)
        stale = condition(published, "PlanStale")
        assert (stale["status"], stale["reason"]) == ("True", "NodesChanged")
        assert stale["message"].endswith("; a new plan would be TP8 on h200-sxm-141gb-8x-400g")
        written = len(operator.written)
        operator.run(1200)
        assert (operator.cluster.serving(), len(operator.written)) == (before, written)

    def test_a_model_serves_on_where_the_search_for_a_better_plan_is_too_costly(self) -> None:
        operator = serving(2, **ONE_NODE, replicas=1, replan="Always")
        seen, now = operator.seen(), operator.cluster.now
        asked = next_step(seen, now).ask
        assert asked
        assert asked.choice is PlanChoice.IMPROVE

        step = next_step(
            seen.answered(asked, Problem(code="PlanTooCostly", what="to plan the model")), now
        )

        assert (step.ask, step.writes) == (None, ())
        assert step.published
        assert outcome(step.published) == ("Serving", "")

    def test_groups_that_stand_without_a_record_stay_on_their_nodes_when_they_are_planned_anew(
        self,
    ) -> None:
        operator = serving(4, **ONE_NODE, replicas=2)
        operator.cluster.delete_node("h100-0")
        operator.run(600)
        before = operator.cluster.serving()
        del operator.cluster.objects["ConfigMap", "llama-plan"]
        operator.run(600)
        assert operator.cluster.serving() == before

    def test_a_group_that_is_to_stop_starts_on_free_gpus_as_well_and_serves_meanwhile(self) -> None:
        operator = serving(2, **ONE_NODE, replicas=1, rollout={"maxSurge": 1})
        operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "WARN"}]})
        published = operator.reconcile()
        assert [ask.beside for ask in operator.asked] == [None, (0, 1)]
        assert [event.reason for event in published.events] == ["Planned", "Surging", "Progressing"]
        assert published.kept
        assert (published.kept.record.plan.groups, published.kept.record.generations) == (
            (("h100-1",),),
            (1,),
        )
        for _ in range(30):
            operator.run(20, step=10)
            assert operator.cluster.serving().keys() == {"llama-0"}
        assert operator.cluster.sets().keys() == {"llama-0-g1"}
        assert operator.cluster.standing_on("h100-1") == {"llama-0"}

    def test_a_group_whose_second_place_was_not_written_down_serves_on_until_it_is(self) -> None:
        operator = serving(2, **ONE_NODE, replicas=1, rollout={"maxSurge": 1})
        before, operator.cluster.refuses = (
            operator.cluster.serving(),
            [LosesSecondPlaces(kind="ConfigMap", code=0)],
        )
        operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "WARN"}]})
        operator.run(600)
        assert operator.cluster.serving() == before
        assert operator.status["conditions"][0]["reason"] == "ApiUnavailable"
        operator.cluster.refuses = []
        for _ in range(30):
            operator.run(20, step=10)
            assert operator.cluster.serving().keys() == {"llama-0"}
        assert operator.cluster.sets().keys() == {"llama-0-g1"}

    def test_a_group_that_finds_no_second_place_takes_its_turn_where_it_is(self) -> None:
        operator = serving(1, **ONE_NODE, replicas=1, rollout={"maxSurge": 1})
        before = operator.cluster.serving()
        operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "WARN"}]})
        operator.run(600)
        assert operator.cluster.sets().keys() == {"llama-0"}
        assert operator.cluster.serving().keys() == before.keys()
        assert operator.cluster.serving() != before
