"""What is found of a model, by name, with the reason that its status gives and what that means for
who waits.
"""

from dataclasses import replace
from typing import Any

from shardwright.api.record import Cause, Rollback
from shardwright.errors import Problem
from shardwright.planning.report import NoPlan
from shardwright.reconcile.decide import Decision
from shardwright.reconcile.findings import Findings
from shardwright.reconcile.members import Awaited, Failure, GroupState, Situation, Wait
from tests.support.builders_deployment import a_plan

READY = GroupState(
    name="llama-0", serves=True, updated=True, situation=Situation.READY, nodes=("a", "b")
)
PULLING = Wait(what=Awaited.POD, ranks=(0,), said="pulling")
STARTING = GroupState(
    name="llama-1", situation=Situation.STARTING, waits=(PULLING,), nodes=("c", None)
)
HELD_BACK = Wait(what=Awaited.POD, ranks=(0,), said="held back by kueue.x-k8s.io/admission")
QUEUED = replace(STARTING, situation=Situation.WAITING_FOR_QUOTA, waits=(HELD_BACK,))
NO_PLACE = Failure(rank=0, reason="Unschedulable")
PROBLEM = Problem(code="ModelUnknown", what="model x", remedy="name another")

TAKEN_BACK = Rollback(
    to="b6", instead_of="0c", cause=Cause.ENGINE_FAILED, group="llama-0", said="CUDA error"
)


def decided(*groups: GroupState) -> Decision:
    return Decision(writes=(), groups=groups)


def refused(code: str) -> Problem:
    return Problem(code=code, what="an object")


def found(**facts: Any) -> Findings:
    return replace(Findings(generation=3, plan=a_plan()), **facts)


CASES = {
    "serving": (found(decision=decided(READY)), "Serving", "ready"),
    "partly placed": (
        found(
            decision=decided(READY),
            wanted=2,
            placed=1,
            lacks=NoPlan(problem=PROBLEM, heals_by_itself=True),
        ),
        "Serving",
        "partly",
    ),
    "starting": (found(decision=decided(READY, STARTING)), "Progressing", "reconciling"),
    "unready": (
        found(decision=decided(READY, replace(STARTING, situation=Situation.UNREADY))),
        "GroupsNotReady",
        "reconciling",
    ),
    "first writes": (found(decision=decided()), "Progressing", "reconciling"),
    "rolling": (
        found(decision=decided(replace(STARTING, situation=Situation.STOPPING))),
        "RollingOut",
        "reconciling",
    ),
    "backing off": (
        found(decision=decided(replace(STARTING, situation=Situation.BACKING_OFF))),
        "GroupsNotReady",
        "reconciling",
    ),
    "taking turns": (
        found(decision=decided(READY, replace(STARTING, situation=Situation.OUTDATED))),
        "RollingOut",
        "reconciling",
    ),
    "a spent budget": (
        found(
            decision=decided(replace(STARTING, situation=Situation.BACKING_OFF, budget_spent=True))
        ),
        "RestartBudgetSpent",
        "reconciling",
    ),
    "stopped for good": (
        found(decision=decided(replace(STARTING, situation=Situation.STOPPED, budget_spent=True))),
        "RestartBudgetSpent",
        "stalled",
    ),
    "unschedulable": (
        found(decision=decided(replace(STARTING, unplaced=frozenset({0})))),
        "Unschedulable",
        "reconciling",
    ),
    "waits to try for a place again": (
        found(
            decision=decided(
                replace(
                    STARTING, situation=Situation.BACKING_OFF, failing=True, last_failure=NO_PLACE
                )
            )
        ),
        "Unschedulable",
        "reconciling",
    ),
    "has a place again and loads": (
        found(decision=decided(replace(STARTING, failing=True, last_failure=NO_PLACE))),
        "Progressing",
        "reconciling",
    ),
    "unknown model": (found(problems=(PROBLEM,)), "ModelUnknown", "stalled"),
    "a broken rule": (
        found(problems=(replace(PROBLEM, code="SomeRule"),)),
        "InvalidSpec",
        "stalled",
    ),
    "conflict": (
        found(decision=replace(decided(READY), conflicts=(replace(PROBLEM, code="NameConflict"),))),
        "NameConflict",
        "stalled",
    ),
    "refused": (
        found(decision=decided(), refused=refused("ObjectRefused")),
        "ObjectRefused",
        "stalled",
    ),
    "field dropped": (
        found(decision=decided(), refused=refused("FieldDropped")),
        "FieldDropped",
        "stalled",
    ),
    "start refused by a queue": (
        found(decision=decided(), refused=refused("WaitingForQuota")),
        "WaitingForQuota",
        "reconciling",
    ),
    "held back by a queue": (found(decision=decided(QUEUED)), "WaitingForQuota", "reconciling"),
    "unreadable": (found(hidden=refused("NotPermitted")), "NotPermitted", "stalled"),
    "a fault of ours": (found(hidden=refused("InternalError")), "InternalError", "stalled"),
    "no such scheduler": (
        found(refused=refused("SchedulerUnavailable")),
        "SchedulerUnavailable",
        "stalled",
    ),
    "not free": (
        found(plan=None, no_plan=NoPlan(problem=PROBLEM, heals_by_itself=True)),
        "InsufficientCapacity",
        "reconciling",
    ),
    "not there": (
        found(plan=None, no_plan=NoPlan(problem=PROBLEM, heals_by_itself=False)),
        "NothingFits",
        "stalled",
    ),
    "cluster unread": (found(plan=None, cluster_known=False), "ClusterReading", "reconciling"),
    "leftovers": (
        found(decision=replace(decided(), leftovers=("Service llama",))),
        "Progressing",
        "reconciling",
    ),
    "plan only": (found(plan_only=True, decision=decided()), "PlanOnly", "ready"),
    "plan only, and what ran before goes": (
        found(plan_only=True, decision=decided(STARTING)),
        "PlanOnly",
        "reconciling",
    ),
    "not deployable": (found(undeployable=PROBLEM), "NotDeployable", "stalled"),
    "the API server fails": (
        found(decision=decided(), refused=refused("ApiUnavailable")),
        "ApiUnavailable",
        "reconciling",
    ),
    "an unreadable record": (
        found(problems=(refused("PlanRecordUnreadable"),)),
        "PlanRecordUnreadable",
        "stalled",
    ),
    "pods refused": (
        found(decision=decided(STARTING), pods_refused=refused("PodsRefused")),
        "PodsRefused",
        "stalled",
    ),
    "pods refused of a group that serves": (
        found(decision=decided(READY), pods_refused=refused("PodsRefused")),
        "Serving",
        "ready",
    ),
    "scaled to zero": (found(scaled_to_zero=True, decision=decided()), "ScaledToZero", "ready"),
    "paused on the way": (found(paused=True, decision=decided(STARTING)), "Paused", "resting"),
    "paused and serving": (found(paused=True, decision=decided(READY)), "Serving", "ready"),
    "taken back": (
        found(decision=decided(READY), rollback=(TAKEN_BACK, None)),
        "RolledBack",
        "stalled",
    ),
    "on its way back": (
        found(decision=decided(READY, STARTING), rollback=(TAKEN_BACK, None)),
        "Progressing",
        "reconciling",
    ),
    "gone back as asked": (
        found(decision=decided(READY), rollback=(replace(TAKEN_BACK, cause=Cause.ASKED), None)),
        "Serving",
        "ready",
    ),
    "a revision that is gone": (
        found(problems=(refused("RevisionUnusable"),)),
        "RevisionUnusable",
        "stalled",
    ),
    "paused before a change is taken up": (
        found(paused=True, standing=(READY,)),
        "Paused",
        "resting",
    ),
}
