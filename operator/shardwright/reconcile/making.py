"""How the pods of a plan are made here and now: with what is found out where they are made, and as
another release had made those of a revision that is gone back to.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shardwright.api.record import PlanRecord
from shardwright.reconcile.known import Known
from shardwright.reconcile.made_secrets import seed_of
from shardwright.reconcile.observed import STATEFUL_SET, Observed, controller_uid
from shardwright.reconcile.quotas import ceilings
from shardwright.reconcile.seen import Cluster, Seen
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.earlier import Earlier
from shardwright.resolving.subject import Subject


def as_made(
    seen: Seen, known: Known, subject: Subject, record: PlanRecord
) -> Deployment:
    """Return the deployment that the pods of a plan are made by."""
    placed = _placed(seen, known, subject, record)
    return replace(placed, earlier=earlier_of(seen, known, subject, record))


def earlier_of(
    seen: Seen, known: Known, subject: Subject, record: PlanRecord
) -> Earlier | None:
    """Return the pods of the revision that is gone back to, where another release had made them."""
    gone_back = seen.former is not None and seen.former.subject is subject
    return (
        seen.former.pods_of(record.plan, _placed(seen, known, subject, record))
        if seen.former and gone_back
        else None
    )


def _placed(
    seen: Seen, known: Known, subject: Subject, record: PlanRecord
) -> Deployment:
    """Return a deployment with what is found out where and when its pods are made."""
    cluster = seen.cluster or Cluster()
    sets = stateful_sets(known.observed).values()
    return replace(
        subject.deployment,
        ceilings=ceilings(cluster.allowance),
        cluster_domain=cluster.domain,
        sought=record.sought,
        secret_seed=seed_of(seen.keys, seen.resource.owner, sets),
    )


def stateful_sets(
    observed: Observed, owner_uid: str | None = None
) -> dict[str, Mapping[str, Any]]:
    """Return the StatefulSets by name, those of one owner or (None) all."""
    return {
        name: live
        for (kind, name), live in sorted(observed.objects.items())
        if kind == STATEFUL_SET and owner_uid in (None, controller_uid(live))
    }
