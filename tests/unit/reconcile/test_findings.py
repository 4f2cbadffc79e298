"""What was found, said in conditions and status."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.api.conditions import ALWAYS, Condition, ConditionType
from shardwright.api.published import Status
from shardwright.costs.workload import Phase
from shardwright.planning.report import NoPlan, Plan, WaysOut
from shardwright.reconcile.findings import Summary, summarise
from shardwright.reconcile.members import Failure, Situation
from shardwright.reconcile.model_status import build_status, conditions, service_status
from shardwright.reconcile.route import Route
from shardwright.reconcile.write_cause import Contest
from shardwright.rendering.deployment import NetworkRules, Owner, PairMember, SecretKey
from shardwright.rendering.network_policies import ANY_POD
from tests.support.builders_deployment import a_deployment, a_plan
from tests.support.builders_reconcile import NOON
from tests.support.outcomes import CASES, PROBLEM, READY, STARTING, decided, found

PEER = {"podSelector": {"matchLabels": {"app": "gateway"}}}


@pytest.mark.parametrize("case", CASES)
def test_the_outcome_is_one_word_and_one_state(case: str) -> None:
    findings, reason, state = CASES[case]
    summary = summarise(findings)
    states = {
        "ready": summary.ready,
        "stalled": summary.stalled,
        "reconciling": summary.reconciling,
    }
    assert summary.reason == reason
    meant = {"resting": [], "partly": ["ready", "reconciling"]}
    assert [name for name, holds in states.items() if holds] == meant.get(state, [state])


def test_where_there_is_no_room_a_person_is_told_what_would_make_some() -> None:
    ways = WaysOut(pool="h100", more_nodes=2, moved="models/small")
    no_plan = NoPlan(problem=PROBLEM, heals_by_itself=True, ways_out=ways)

    message = summarise(found(plan=None, no_plan=no_plan)).message

    assert (
        message
        == f"{PROBLEM.sentence()}; it would fit with 2 more nodes of h100, or if models/small went"
    )


def partly(**facts: Any) -> dict[str, Condition]:
    """Return the conditions of a model of which one of three groups has a place."""
    lacks = NoPlan(problem=PROBLEM, heals_by_itself=True)
    facts = {"decision": decided(READY), "wanted": 3, "placed": 1, "lacks": lacks} | facts
    return {str(each.type): each for each in conditions(found(**facts))}


def test_a_model_that_is_partly_placed_says_how_many_and_why_and_is_ready_and_reconciling() -> None:
    said = partly()

    sentence = f"1 of 3 placed; {PROBLEM.sentence()}"
    placed, ready = said["PartlyPlaced"], said["Ready"]
    assert (placed.status, placed.reason, placed.message) == (
        True,
        "InsufficientCapacity",
        sentence,
    )
    assert (ready.status, ready.reason) == (True, "Serving")
    assert ready.message == "1 of 1 serve; 1 of 3 placed"
    assert (said["Reconciling"].status, said["Reconciling"].message) == (True, sentence)
    assert (said["Stalled"].status, said["Planned"].status) == (False, True)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"lacks": NoPlan(problem=PROBLEM, heals_by_itself=False)}, "NothingFits"),
        ({"lacks": None, "not_admitted": PROBLEM}, "QuotaExceeded"),
        ({"lacks": None, "paused": True}, "Paused"),
    ],
)
def test_whatever_keeps_groups_without_a_place_the_others_are_ready_and_nothing_is_stalled(
    facts: dict[str, Any], reason: str
) -> None:
    said = partly(**facts)

    assert (said["PartlyPlaced"].status, said["PartlyPlaced"].reason) == (True, reason)
    assert (said["Ready"].status, said["Stalled"].status) == (True, False)


@pytest.mark.parametrize(("code", "stalled"), [("QuotaInUse", False), ("QuotaExceeded", True)])
def test_a_quota_that_others_may_leave_is_waited_for(code: str, *, stalled: bool) -> None:
    refused = replace(PROBLEM, code=code)
    said = {each.type: each for each in conditions(found(plan=None, not_admitted=refused))}

    assert (said[ConditionType.READY].reason, said[ConditionType.STALLED].status) == (
        "QuotaExceeded",
        stalled,
    )


def test_fewer_placed_groups_than_min_groups_are_not_ready() -> None:
    said = partly(least=2)

    assert (said["Ready"].status, said["Ready"].reason) == (False, "InsufficientCapacity")
    assert said["Ready"].message == (
        f"1 of 3 placed, fewer than the 2 of spec.rollout.minGroups; {PROBLEM.sentence()}"
    )


def test_a_group_that_waits_where_it_was_for_another_place_keeps_the_others_from_nothing() -> None:
    said = partly(decision=decided(READY, STARTING), wanted=2, homeless=frozenset({STARTING.name}))

    assert (said["Ready"].status, said["Ready"].message) == (True, "1 of 1 serve; 1 of 2 placed")


def test_a_model_that_is_whole_again_has_no_word_of_being_partly_placed_in_its_status() -> None:
    lacks = NoPlan(problem=PROBLEM, heals_by_itself=True)
    before = build_status(
        (), found(decision=decided(READY), wanted=2, placed=1, lacks=lacks), None, {}, NOON
    )

    after = build_status(before["conditions"], found(decision=decided(READY)), None, {}, NOON)

    assert [item["type"] for item in before["conditions"]].count("PartlyPlaced") == 1
    assert "PartlyPlaced" not in [item["type"] for item in after["conditions"]]
    assert (before["replicas"], before["readyReplicas"], before["ready"]) == (2, 1, "1/2")


def test_a_plan_beside_what_nobody_counts_says_so_in_its_condition() -> None:
    plan = replace(found().plan or a_plan(), uncounted=("enable-eplb", "kernel-config"))

    planned = next(
        each for each in conditions(found(plan=plan)) if each.type is ConditionType.PLANNED
    )

    assert (planned.status, planned.reason) == (True, "OptionsNotCounted")
    assert planned.message.startswith(
        "spec.engine.args.enable-eplb, spec.engine.args.kernel-config are not counted"
    )


def test_a_plan_that_promises_no_speed_has_the_condition_unproven_and_no_other_has_it() -> None:
    plan = found().plan or a_plan()
    stated = replace(plan, performance=replace(plan.performance, basis="unproven"))

    def unproven(of: Plan) -> list[tuple[bool | None, str, str]]:
        return [
            (each.status, each.reason, each.message[:9])
            for each in conditions(found(plan=of))
            if each.type is ConditionType.UNPROVEN
        ]

    assert unproven(stated) == [(True, "BytesStated", "unproven:")]
    assert unproven(plan) == []


def test_pod_groups_that_must_go_before_an_upgrade_of_kubernetes_are_said_of_a_plan() -> None:
    planned = next(
        item for item in conditions(replace(found(), alpha_groups=True)) if item.type == "Planned"
    )

    assert (planned.status, planned.reason) == (True, "GroupsOfAlphaApi")
    assert planned.message == (
        "PodGroups are written as scheduling.k8s.io/v1alpha2, which Kubernetes 1.37 does not "
        "have: they must go before the "
        "upgrade (docs/howto/gang-scheduling.md says how)"
    )


def test_several_problems_are_counted() -> None:
    assert summarise(found(problems=(PROBLEM, PROBLEM, PROBLEM))) == Summary(
        reason="ModelUnknown", message="model x; name another (and 2 more)", stalled=True
    )


@pytest.mark.parametrize("case", CASES)
def test_six_conditions_are_always_there_all_others_while_true_and_all_for_this_generation(
    case: str,
) -> None:
    shown = conditions(CASES[case][0])
    assert {condition.type for condition in shown if condition.type in ALWAYS} == ALWAYS
    assert all(condition.status for condition in shown if condition.type not in ALWAYS)
    assert {condition.observed_generation for condition in shown} == {3}
    assert all(condition.reason for condition in shown)


KILLED = Failure(rank=1, reason="OOMKilled", container="engine", exit_code=137)
FAILED = replace(
    STARTING, situation=Situation.STOPPING, waits=(), last_failure=KILLED, failing=True, restarts=2
)


def test_a_group_that_failed_and_is_not_back_is_degraded_and_what_is_not_ready_names_the_cause() -> (
    None
):
    shown = {c.type: c for c in conditions(found(decision=decided(READY, FAILED)))}
    cause = "rank 1, container engine: OOMKilled with exit code 137, restart 2"
    ready, degraded = shown[ConditionType.READY], shown[ConditionType.DEGRADED]
    assert (degraded.status, degraded.message) == (True, f"llama-1: {cause}")
    assert (ready.status, ready.reason) == (False, "GroupsNotReady")
    assert ready.message == f"1 of 2 serve; llama-1: Stopping; it failed: {cause}"


def test_a_change_after_a_failure_is_no_failure() -> None:
    changed = replace(FAILED, failing=False)
    shown = {c.type: c for c in conditions(found(decision=decided(READY, changed)))}
    assert not shown[ConditionType.DEGRADED].status
    assert (shown[ConditionType.READY].reason, shown[ConditionType.READY].message) == (
        "RollingOut",
        "1 of 2 serve; llama-1: Stopping",
    )


def test_pods_that_should_be_gone_and_are_not_degrade_a_model_and_their_nodes_are_named() -> None:
    shown = {
        c.type: c for c in conditions(found(lost=frozenset({"b", "a"}), decision=decided(READY)))
    }[ConditionType.DEGRADED]
    message = (
        "pods on a, b should be gone and are not; their groups go on elsewhere where there is room"
    )
    assert (shown.status, shown.reason, shown.message) == (True, "NodeLost", message)


def test_a_field_that_somebody_keeps_setting_back_is_named_and_disturbs_nothing_else() -> None:
    contested = {("Service", "llama"): Contest(fields=("spec.ports[0].port",))}
    shown = {c.type: c for c in conditions(found(contested=contested, decision=decided(READY)))}
    conflict = shown[ConditionType.FIELD_CONFLICT]
    message = (
        "somebody keeps changing spec.ports[0].port of Service llama; it is set right every "
        "few minutes only"
    )
    assert (conflict.status, conflict.reason, conflict.message) == (True, "FieldContested", message)
    assert shown[ConditionType.READY].status


def test_strangers_are_named_three_at_a_time_and_disturb_nothing_else() -> None:
    shown = {
        c.type: c
        for c in conditions(found(strangers=("a", "b", "c", "d"), decision=decided(READY)))
    }
    foreign = shown[ConditionType.FOREIGN_PODS]
    message = (
        "a, b, c and 1 more: labelled as pods of this model, and no StatefulSet of it controls them"
    )
    assert (foreign.status, foreign.reason, foreign.message) == (True, "ForeignPods", message)
    assert shown[ConditionType.READY].status


@pytest.mark.parametrize(("most", "awaited"), [(0, True), (1, False), (None, False)])
def test_groups_wait_for_their_turn_because_of_other_models_only_where_these_leave_none(
    most: int | None, *, awaited: bool
) -> None:
    outdated = replace(READY, situation=Situation.OUTDATED)
    shown = {
        c.type: c.message for c in conditions(found(most_moving=most, decision=decided(outdated)))
    }
    message = "llama-0: as many groups of all models restart as the operator allows at once"
    assert shown.get(ConditionType.TURN_AWAITED) == (message if awaited else None)


def test_a_plan_that_no_longer_fits_the_cluster_is_stale_while_it_serves() -> None:
    shown = {c.type: c for c in conditions(found(stale=PROBLEM, decision=decided(READY)))}
    assert shown[ConditionType.PLAN_STALE].status
    assert shown[ConditionType.READY].status


@pytest.mark.parametrize("case", CASES)
def test_every_status_is_one_that_the_schema_takes(case: str) -> None:
    owner = Owner(name="llama", namespace="models", uid="u")
    service = service_status(owner, "cluster.local", a_deployment())
    status = build_status((), CASES[case][0], None, service, NOON)
    assert Status(**status).model_dump(by_alias=True, exclude_none=True) == status


def test_the_status_counts_groups_and_names_the_service() -> None:
    owner = Owner(name="llama", namespace="models", uid="u")
    findings = found(decision=decided(READY, STARTING), wanted=2)
    status = build_status((), findings, {"gpus": 16}, service_status(owner, "cluster.local"), NOON)
    del status["conditions"]
    assert status == {
        "observedGeneration": 3,
        "summary": [
            "TP8·PP2 on 16 GPUs of h100",
            "Progressing: 1 of 2 serve; llama-1: rank 0: pulling",
            "http://llama.models.svc.cluster.local:8000",
        ],
        "layout": "TP8·PP2",
        "gpus": 16,
        "ready": "1/2",
        "plan": {"gpus": 16},
        "groups": [
            {"name": "llama-0", "ready": True, "nodes": ["a", "b"], "restarts": 0},
            {
                "name": "llama-1",
                "ready": False,
                "nodes": ["c", ""],
                "restarts": 0,
                "waiting": "rank 0: pulling",
            },
        ],
        "replicas": 2,
        "readyReplicas": 1,
        "updatedReplicas": 1,
        "selector": "apps.kubernetes.io/pod-index=0,shardwright.io/model=llama",
        "endpoint": "http://llama.models.svc.cluster.local:8000",
    }


@pytest.mark.parametrize(
    ("route", "groups", "said"),
    [
        (None, [READY], None),
        (Route(), [READY], None),
        (Route(unmet=PROBLEM), [READY, STARTING], PROBLEM.sentence()),
        (Route(unmet=PROBLEM), [STARTING], None),
        (Route(unmet=PROBLEM, offered=False), [STARTING], PROBLEM.sentence()),
    ],
    ids=["no routing", "as asked", "not ready", "nobody to route to", "not to be had"],
)
def test_not_routed_is_said_while_groups_serve_past_the_routing_or_it_cannot_be_had(
    route: Route | None, groups: list[Any], said: str | None
) -> None:
    shown = {
        each.type: each.message
        for each in conditions(found(decision=decided(*groups), route=route))
    }

    assert shown.get(ConditionType.NOT_ROUTED) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "pods of the namespace models"),
        (
            {"api_key": SecretKey(name="k", key="k")},
            "pods of the namespace models with the API key",
        ),
        ({"network_rules": None}, "everybody in the cluster: networkPolicy.enabled is false"),
        (
            {"half": PairMember(phase=Phase.PREFILL, pair="llama")}
            | {"network_rules": NetworkRules(clients=(PEER,))},
            "pods of its pair",
        ),
        (
            {"network_rules": NetworkRules(clients=(PEER,), metrics=(PEER,))},
            "who networkPolicy.clients names and who networkPolicy.metrics names",
        ),
        ({"network_rules": NetworkRules(clients=(ANY_POD,))}, "every pod of the cluster"),
        ({"network_rules": NetworkRules(metrics=(PEER, ANY_POD))}, "every pod of the cluster"),
    ],
)
def test_the_status_says_who_may_send_requests(changes: dict[str, Any], said: str) -> None:
    deployment = a_deployment(**changes)
    found = service_status(deployment.owner, "cluster.local", deployment)
    assert found["clients"] == said
