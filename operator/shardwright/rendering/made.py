"""This release's pods of a model, and whether it can make those of another.

It is the same wherever the groups stand, so two releases can be told apart by it.

Whether pods are made again for it is decided in ``reconcile``. If a plan cuts the model in another
way by now, nothing is made rather than guessed.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from shardwright.planning.report import Plan
from shardwright.rendering import cache
from shardwright.rendering.deployment import Deployment, OwnMarks, RecordedGroups
from shardwright.rendering.earlier import ClashError, Earlier, MadePods, with_earlier
from shardwright.rendering.hashing import asked_hash, digest
from shardwright.rendering.pod import bare_template, scripts_name, scripts_of

_DIGITS = 16

_ANY: Final = (0, 1)
"""Generations that stand for all: the first is named without a number."""


def made_pods(plan: Plan, deployment: Deployment) -> MadePods:
    """Return this release's form of the pods of a plan, wherever they run."""
    made = _made(plan, deployment)
    # Tuples become lists: it is compared with a text that was read from JSON.
    template, claims = json.loads(json.dumps([made.template, made.claims]))
    return replace(made, template=template, claims=claims)


def made_hash(plan: Plan, deployment: Deployment) -> str:
    """Return the :func:`pods_hash` of this release's pods."""
    return pods_hash(_made(plan, deployment))


def _made(plan: Plan, deployment: Deployment) -> MadePods:
    plain = _anywhere(deployment.on(plan.resource))
    nodes = tuple(f"node-{rank}" for rank in range(plan.nodes_per_replica))
    one_group = replace(plan, groups=(nodes,), numbers=())
    return MadePods(
        template=bare_template(one_group, plain, 0),
        scripts_name=scripts_name(one_group, plain),
        scripts=scripts_of(one_group, plain),
        claims=cache.claim_templates(plain).get("volumeClaimTemplates", []),
    )


def _anywhere(deployment: Deployment) -> Deployment:
    """Return it without facts that are found out when the pods are made."""
    # A pull policy and a LimitRange are not worth a restart, so two releases must not differ by
    # them.
    marks = replace(deployment.pods.marks, pull_policy=OwnMarks().pull_policy)
    return replace(
        deployment,
        pods=replace(deployment.pods, marks=marks),
        cluster=replace(
            deployment.cluster, cluster_domain="cluster.local", ceilings=()
        ),
        groups=RecordedGroups(asked=deployment.groups.asked),
    )


def pods_hash(made: MadePods) -> str:
    """Return a hash that differs if two releases render other pods for the same.

    The name of the scripts follows from their text.
    """
    return digest([made.template, made.scripts_name, made.claims])[:_DIGITS]


def pods_text(made: MadePods) -> dict[str, Any]:
    """Return it as plain data; :func:`pods_from` reads it again."""
    return {field.name: getattr(made, field.name) for field in fields(made)}


def pods_from(said: Mapping[str, Any]) -> MadePods | None:
    """Return the pods that :func:`pods_text` has written, None for another form."""
    known = {field.name for field in fields(MadePods)}
    # A later release may keep more. Pods are not made again from a part of their record.
    return MadePods(**said) if said.keys() == known else None


def earlier_pods(
    made: MadePods, then: Plan, plan: Plan, deployment: Deployment
) -> Earlier | None:
    """Return how to make the pods of a plan as another release has made them.

    ``then`` is the plan that they were ``made`` for, ``deployment`` has the facts of the cluster in
    which they are made again. None if this release makes the same, or if it cannot: the plan cuts
    the model in another way by now, volume claims are others, or a field of the former pods depends
    on where they run.
    """
    if asked_hash("", then, ()) != asked_hash("", plan, ()):
        return None
    now = made_pods(plan, deployment)
    # A StatefulSet never changes its claim templates.
    if made == now or made.claims != now.claims:
        return None
    earlier = Earlier(made=made, now=now)
    here = deployment.on(plan.resource)
    groups = replace(here.groups, numbers=plan.numbers, earlier=None)
    numbered = (
        replace(here, groups=replace(groups, generations=(g,) * len(plan.groups)))
        for g in _ANY
    )
    try:
        # Tried with each group and both forms of its name: later, in rendering, a clash would be an
        # error.
        for placed in numbered:
            for group in range(len(plan.groups)):
                with_earlier(bare_template(plan, placed, group), earlier)
    except ClashError:
        return None
    return earlier
