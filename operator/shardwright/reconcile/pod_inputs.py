"""From what are the pods of a plan made here and now? From facts of this cluster and, for a
restored revision, the pods that it has kept.
"""

from dataclasses import replace

from shardwright.api.record import PlanRecord
from shardwright.reconcile.derived import Derived
from shardwright.reconcile.made_secrets import seed_of
from shardwright.reconcile.observed import STATEFUL_SET, Observed, controller_uid
from shardwright.reconcile.quotas import ceilings
from shardwright.reconcile.snapshot import Cluster, Snapshot
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import BarePods, Deployment
from shardwright.rendering.render import restored
from shardwright.resolving.subject import Subject


def as_made(
    snapshot: Snapshot, derived: Derived, subject: Subject, record: PlanRecord
) -> Deployment:
    """Return the deployment that the pods of a plan are made from."""
    cluster = snapshot.cluster or Cluster()
    sets = stateful_sets(derived.observed).values()
    stated = subject.deployment
    return replace(
        stated,
        cluster=replace(
            stated.cluster, ceilings=ceilings(cluster.allowance), cluster_domain=cluster.domain
        ),
        groups=replace(
            stated.groups,
            sought=record.sought,
            secret_seed=seed_of(snapshot.keys, snapshot.resource.owner, sets),
            kept=restored_pods(snapshot, subject, record),
        ),
    )


def restored_pods(snapshot: Snapshot, subject: Subject, record: PlanRecord) -> BarePods | None:
    """Return the pods of the revision to restore, or None if this release makes the same."""
    former = snapshot.former
    # By identity: the spec's own subject may be equal, and its pods are this release's.
    if former is None or former.subject is not subject or not former.pods:
        return None
    return (
        restored(former.pods, former.plan, record.plan, subject.deployment) if former.plan else None
    )


def stateful_sets(observed: Observed, owner_uid: str | None = None) -> dict[str, KubernetesObject]:
    """Return the StatefulSets by name, of one owner or (None) all."""
    found = {}
    for (kind, name), live in sorted(observed.objects.items()):
        if kind != STATEFUL_SET:
            continue
        if owner_uid in (None, controller_uid(live)):
            found[name] = live
    return found
