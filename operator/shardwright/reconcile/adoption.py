"""StatefulSets of releases that kept no mark of their request: the plan of record says it for them,
before it changes.

As long as a plan of record answers the spec, the groups that stand as it says were asked for just
that. So they are taken as they are, and the mark is put on them at the latest before another plan
of record is written, which would say something else.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from shardwright.api.record import PlanRecord
from shardwright.reconcile.observed import STATEFUL_SET, Observed, controller_uid
from shardwright.reconcile.rollout import planned_nodes
from shardwright.reconcile.templates import asked_by
from shardwright.reconcile.writes import Patch, Why
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.hashing import ASKED_HASH
from shardwright.rendering.names import generation_of, group_names
from shardwright.rendering.objects import asked_of
from shardwright.resolving.subject import Subject

# Not empty: an empty mark would count as silent again, and would be looked up in the next look.
SOMETHING_ELSE: Final = "something-else"
"""Stands for what is not asked for any more: no hash of ours."""


def adopted(
    observed: Observed, subject: Subject, record: PlanRecord | None, cluster_domain: str
) -> Observed:
    """Return the observed objects with the requests of standing groups whose StatefulSets do not
    hold them.
    """
    silent = tuple(_silent(observed, subject.owner.uid))
    if not silent:
        return observed
    # The cut, not the whole question: a record that only has other replicas still says which pods
    # the standing groups were made for.
    answers = record if record and record.cut_hash == subject.cut_hash else None
    stated = subject.deployment
    deployment = replace(
        stated,
        cluster=replace(stated.cluster, cluster_domain=cluster_domain),
        groups=replace(stated.groups, sought=answers.sought if answers else ()),
    )
    found = {
        (STATEFUL_SET, name): _saying(live, _asked(name, live, answers, deployment))
        for name, live in silent
    }
    return replace(observed, objects={**observed.objects, **found})


def marks(seen: Observed, known: Observed, owner_uid: str) -> tuple[Patch, ...]:
    """Return the writes of the requests that were found out for groups whose StatefulSets did not
    hold them.
    """
    return tuple(
        Patch(
            name=name,
            namespace=live["metadata"]["namespace"],
            uid=live["metadata"]["uid"],
            # One annotation alone: an apply of the rendered StatefulSet would bring this release's
            # template, too, and the mark must be there before that.
            annotations={ASKED_HASH: asked_by(known.objects[STATEFUL_SET, name])},
            why=Why.NOTE,
        )
        for name, live in _silent(seen, owner_uid)
        if asked_by(known.objects.get((STATEFUL_SET, name), {}))
    )


def _silent(
    observed: Observed, owner_uid: str
) -> Iterator[tuple[str, KubernetesObject]]:
    """Yield the StatefulSets with pods, by name, without the mark of their request."""
    for (kind, name), live in sorted(observed.objects.items()):
        ours = kind == STATEFUL_SET and controller_uid(live) == owner_uid
        # One at zero gets its mark with its next start anyway.
        if ours and live["spec"].get("replicas") and not asked_by(live):
            yield name, live


def _asked(
    name: str,
    live: KubernetesObject,
    record: PlanRecord | None,
    deployment: Deployment,
) -> str:
    """Return the request behind the pods of a group: that of the plan of record if they stand as it
    has them.
    """
    if record is None:
        return SOMETHING_ELSE
    indices = {
        # Without the generation: a group that was made anew stands under another name than the plan
        # has.
        root: index
        for index, root in enumerate(
            group_names(deployment.base, record.plan.group_numbers)
        )
    }
    index = indices.get(generation_of(name)[0])
    if index is None:
        return SOMETHING_ELSE
    # Pods that seek nodes name none, so their nodes say nothing against the record.
    stands = deployment.sought_by(index) is not None or planned_nodes(
        live
    ) == frozenset(record.plan.groups[index])
    return asked_of(record.plan, deployment, index) if stands else SOMETHING_ELSE


def _saying(live: KubernetesObject, asked: str) -> dict[str, Any]:
    metadata = live["metadata"]
    return {
        **live,
        "metadata": {
            **metadata,
            "annotations": {**(metadata.get("annotations") or {}), ASKED_HASH: asked},
        },
    }
