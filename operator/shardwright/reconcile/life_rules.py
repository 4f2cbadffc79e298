"""Which rules does the user set for the life of the groups? They are not judged here: the API's own
rules have refused impossible ones.
"""

from collections.abc import Mapping
from typing import Final

from shardwright.planning.report import Plan
from shardwright.reconcile.group import LifeRules
from shardwright.resolving.intent import Intent

RESTART: Final = "shardwright.io/restart"
"""Annotation of a ShardedModel: a new value restarts its groups, one after another."""

ROLLBACK_TO: Final = "shardwright.io/rollback-to"
"""Annotation of a ShardedModel: the number of a revision to roll back to, or ``spec`` to have
the spec tried again. What follows an ``@`` tells one request from the same one made earlier.
"""

READ_ANNOTATIONS: Final = (RESTART, ROLLBACK_TO)
"""All annotations of a ShardedModel that are read."""

_TOKEN_LENGTH: Final = 64


def life_rules(intent: Intent, annotations: Mapping[str, str]) -> LifeRules:
    """Return the rules of life of a resource's groups."""
    return LifeRules(
        restart=intent.restart,
        max_unavailable=intent.max_unavailable,
        # In a queue, a surge would wait for the quota that its former generation holds.
        max_surge=0 if intent.scheduler == "Kueue" else intent.max_surge,
        keeps_templates=intent.keeps_templates,
        min_ready_seconds=intent.min_ready_seconds,
        progress_deadline_seconds=intent.progress_deadline_seconds,
        partition=intent.partition,
        rolls_back=intent.rolls_back,
        # Cut, because the value is kept in an annotation of each StatefulSet and compared as kept.
        restart_asked=annotations.get(RESTART, "")[:_TOKEN_LENGTH],
    )


def groups_wanted(intent: Intent, plan: Plan | None) -> int:
    """Return how many groups shall run; none of a plan that is only shown."""
    return 0 if intent.plan_only else intent.wants(plan)
