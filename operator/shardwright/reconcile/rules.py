"""What the resource says of the life of its groups, as the rules of that life read it."""

from collections.abc import Mapping
from typing import Final

from shardwright.api.spec import Budget, PlacementRules, Spec
from shardwright.planning.report import Plan
from shardwright.reconcile.groups import LifeRules
from shardwright.reconcile.incidents import RestartPolicy

RESTART: Final = "shardwright.io/restart"
"""Annotation of a ShardedModel: a new value restarts its groups, one after another."""

HAVE_QUOTA: Final = frozenset({"Kueue", "Volcano"})
"""Schedulers with queues: a group would wait beside its former self for the quota that this one holds."""

_TOKEN_LENGTH: Final = 64


def life_rules(spec: Spec, annotations: Mapping[str, str]) -> LifeRules:
    """Return the rules of life of a resource's groups."""
    restart = spec.restart
    return LifeRules(
        restart=RestartPolicy(
            delay_seconds=restart.delay_seconds,
            max_delay_seconds=restart.max_delay_seconds,
            stable_seconds=restart.stable_seconds,
            budget=restart.budget,
            stop_when_spent=restart.on_budget_spent == "Stop",
        ),
        max_unavailable=spec.rollout.max_unavailable,
        max_surge=0 if (spec.placement or PlacementRules()).scheduler in HAVE_QUOTA else spec.rollout.max_surge,
        restart_asked=annotations.get(RESTART, "")[:_TOKEN_LENGTH],
    )


def groups_wanted(spec: Spec, plan: Plan | None) -> int:
    """Return how many groups shall run: what ``replicas`` says or, where the plan fills a budget, what the plan says."""
    if spec.mode == "PlanOnly":
        return 0
    fills = (spec.budget or Budget()).fill and spec.replicas > 0
    return len(plan.groups) if fills and plan else spec.replicas
