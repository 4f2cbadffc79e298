"""How the pods of a plan are made here and now: with what is found out where they are made, and as
another release had made those of a revision that is restored.

Decides nothing: which revision and which record it is about has been found before.
"""

from dataclasses import replace

from shardwright.api.record import PlanRecord
from shardwright.reconcile.known import Known
from shardwright.reconcile.made_secrets import seed_of
from shardwright.reconcile.observed import STATEFUL_SET, Observed, controller_uid
from shardwright.reconcile.quotas import ceilings
from shardwright.reconcile.seen import Cluster, Seen
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.earlier import Earlier
from shardwright.resolving.subject import Subject


def as_made(
    seen: Seen,
    known: Known,
    subject: Subject,
    record: PlanRecord,
) -> Deployment:
    """Return the deployment that the pods of a plan are made by."""
    placed = _placed(seen, known, subject, record)
    earlier = earlier_of(seen, known, subject, record)
    return replace(placed, groups=replace(placed.groups, earlier=earlier))


def earlier_of(
    seen: Seen,
    known: Known,
    subject: Subject,
    record: PlanRecord,
) -> Earlier | None:
    """Return the pods of the revision to restore, if another release had made them."""
    former = seen.former
    if former is None or former.subject is not subject:
        return None
    placed = _placed(seen, known, subject, record)
    return former.pods_of(record.plan, placed)


def _placed(
    seen: Seen,
    known: Known,
    subject: Subject,
    record: PlanRecord,
) -> Deployment:
    """Return a deployment with what is found out where and when its pods are made."""
    cluster = seen.cluster or Cluster()
    sets = stateful_sets(known.observed).values()
    stated = subject.deployment
    return replace(
        stated,
        cluster=replace(
            stated.cluster,
            ceilings=ceilings(cluster.allowance),
            cluster_domain=cluster.domain,
        ),
        groups=replace(
            stated.groups,
            sought=record.sought,
            secret_seed=seed_of(seen.keys, seen.resource.owner, sets),
        ),
    )


def stateful_sets(
    observed: Observed,
    owner_uid: str | None = None,
) -> dict[str, KubernetesObject]:
    """Return the StatefulSets by name, those of one owner or (None) all."""
    found = {}
    for (kind, name), live in sorted(observed.objects.items()):
        if kind != STATEFUL_SET:
            continue
        if owner_uid in (None, controller_uid(live)):
            found[name] = live
    return found
