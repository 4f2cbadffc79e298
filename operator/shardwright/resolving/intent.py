"""What does the user want done with a plan: whether and how its groups run, change and restart? The
schema has refused values that make no sense.
"""

from dataclasses import dataclass
from enum import StrEnum

from shardwright.api.life import Restart
from shardwright.api.parts import unsaid
from shardwright.api.pod import Pod
from shardwright.api.spec import PlacementRules, Spec
from shardwright.api.weights import CLAIM, claim_of, scheme_of
from shardwright.planning.report import Plan


class Replan(StrEnum):
    """The permitted effect of a change of the cluster (``spec.replan``)."""

    NEVER = "Never"
    WHEN_INVALID = "WhenInvalid"
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How a group that failed starts again (``spec.restart``): at once, then after
    ``delay_seconds``, doubling.

    ``budget`` is how many failures of the engine in a row are met so; then one try every
    ``max_delay_seconds``, or none. ``stable_seconds`` of service end a row. Basis of the defaults:
    assumed; source: LeaderWorkerSet and RBG start at 30 s and stop at 600 s, a Job gives up after
    6.
    """

    delay_seconds: int = 30
    max_delay_seconds: int = 600
    stable_seconds: int = 600
    budget: int = 6
    stop_when_spent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The user's intent for a plan once there is one.

    ``plan_only``: it is shown, no pod is made and no GPU is held. ``paused``: nothing that exists
    is changed. ``replicas`` is the number of groups (None: the plan says how many). ``scheduler``
    is told which pods form a group (None: no scheduler is).
    ``shares_claim``: pods mount an existing claim (weights, adapters, a user's own volume), which
    may be one that a single node mounts. ``max_unavailable`` and ``max_surge`` are how many groups
    a rollout may take down, or surge, at once. ``keeps_templates``: groups stay as another release
    of the operator has made them until they restart. ``min_ready_seconds`` is how long a group
    serves before the next one is stopped, ``progress_deadline_seconds`` how long a start may take
    (None: as follows from the bytes to load). Groups below the index ``partition`` keep their pods.
    ``rolls_back``: a change with which a group does not come up is rolled back. ``min_groups`` must
    have a place before any starts.
    """

    plan_only: bool
    paused: bool
    replicas: int | None
    replan: Replan
    scheduler: str  # None | Native | Kueue | Coscheduling
    shares_claim: bool
    restart: RestartPolicy
    max_unavailable: int
    max_surge: int
    keeps_templates: bool
    min_ready_seconds: int
    progress_deadline_seconds: int | None
    partition: int
    rolls_back: bool = False
    min_groups: int = 1

    def wants(self, plan: Plan | None) -> int:
        """Return how many groups are wanted: ``replicas``, or as many as the plan had to have."""
        if self.replicas is not None:
            return self.replicas
        return plan.wanted if plan else 1

    def least(self, plan: Plan | None) -> int:
        """Return how many of the wanted groups must have a place before any starts."""
        return max(1, min(self.min_groups, self.wants(plan)))

    @property
    def keeps_gpus(self) -> bool:
        """Return whether the plan keeps GPUs: it is to be run, not only shown."""
        return not self.plan_only


def intent_of(spec: Spec, *, keeps_templates: bool = True) -> Intent:
    """Return the intent of a spec; ``keeps_templates`` holds if the spec says nothing."""
    on_upgrade = spec.rollout.on_upgrade
    return Intent(
        plan_only=spec.mode == "PlanOnly",
        paused=spec.paused,
        replicas=spec.replicas,
        replan=Replan(spec.replan),
        scheduler=(spec.placement or unsaid(PlacementRules)).scheduler,
        shares_claim=_shares_claim(spec),
        restart=_restart_policy(spec.restart),
        max_unavailable=spec.rollout.max_unavailable,
        max_surge=spec.rollout.max_surge,
        keeps_templates=keeps_templates if on_upgrade is None else on_upgrade == "Keep",
        min_ready_seconds=spec.rollout.min_ready_seconds,
        progress_deadline_seconds=spec.rollout.progress_deadline_seconds,
        partition=spec.rollout.partition,
        rolls_back=spec.rollout.on_failure == "RollBack",
        min_groups=spec.rollout.min_groups,
    )


def _restart_policy(restart: Restart) -> RestartPolicy:
    return RestartPolicy(
        delay_seconds=restart.delay_seconds,
        max_delay_seconds=restart.max_delay_seconds,
        stable_seconds=restart.stable_seconds,
        budget=restart.budget,
        stop_when_spent=restart.on_budget_spent == "Stop",
    )


def _shares_claim(spec: Spec) -> bool:
    model, weights = spec.model, spec.model.weights
    cache = weights.cache if weights else None
    volumes = (spec.pod or unsaid(Pod)).volumes or ()
    read = (
        scheme_of(weights) == CLAIM,
        *(claim_of(adapter.uri) for adapter in model.adapters),
        *(volume.pvc for volume in volumes),
    )
    return any(read) or (cache is not None and cache.claim_name is not None)
