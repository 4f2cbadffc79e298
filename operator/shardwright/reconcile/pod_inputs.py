"""From what are the pods of a plan made here and now? From facts of this cluster and, for a
restored revision, the pods that it has kept.

How are the Secrets named that the operator makes, so that nobody else can make one first?

Whether a Secret exists is found out by creating it, and its content is never read: one made before
by somebody else would count as ours. So its name follows from the operator's signing key, and is
published nowhere before the Secret exists.

Which kinds of object does a plan need that this cluster lacks?

How do groups ask an autoscaler for nodes, and which nodes have they got? Only pods ask for
nodes; ``hardware.provisioning`` knows the autoscaler's pools.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from shardwright.api.record import PlanRecord
from shardwright.errors import Problem
from shardwright.hardware.provisioning import Sought, Turnout, is_provisioned_later
from shardwright.reconcile.autoscaling import hindrance
from shardwright.reconcile.derived import Derived
from shardwright.reconcile.drift import asks_the_same, template_hash
from shardwright.reconcile.members import Member, mounted_secrets
from shardwright.reconcile.observed import STATEFUL_SET, Observed
from shardwright.reconcile.quotas import ceilings
from shardwright.reconcile.record_object import SigningKeys
from shardwright.reconcile.snapshot import Cluster, Snapshot
from shardwright.rendering import names
from shardwright.rendering.bundle import KubernetesObject, of_kind
from shardwright.rendering.deployment import BarePods, Deployment, Owner
from shardwright.rendering.render import restored
from shardwright.resolving.subject import Subject

KIND: Final = "made secrets"
"""What is signed: nothing that is published is of this kind."""


def seed_of(keys: SigningKeys, owner: Owner, stateful_sets: Iterable[KubernetesObject]) -> str:
    """Return the seed of the names; empty without a key: then names can be foreseen.

    A new key gives new names, but mounted Secrets keep theirs while one of the keys gives them.
    """
    base = names.base_name(owner.name)
    seeds = keys.signatures(KIND, owner.uid, "")
    mounted = {
        name
        for live in stateful_sets
        for name in mounted_secrets(live["spec"].get("template", {}).get("spec", {}))
    }
    kept = (seed for seed in seeds if not mounted.isdisjoint(_names(base, owner.uid, seed)))
    # Another name would change the template of each group (ADR 18).
    return next(kept, seeds[0] if seeds else "")


def _names(base: str, uid: str, seed: str) -> frozenset[str]:
    return frozenset(names.made_secret(base, content, uid, seed) for content in names.MADE_SECRETS)


def as_made(
    snapshot: Snapshot, derived: Derived, subject: Subject, record: PlanRecord
) -> Deployment:
    """Return the deployment that the pods of a plan are made from."""
    cluster = snapshot.cluster or Cluster()
    sets = derived.observed.sets.values()
    stated = subject.deployment
    hindered = hindrance(subject, record.plan, derived.observed)
    return replace(
        stated,
        autoscaling=None if hindered else stated.autoscaling,
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


def unavailable(objects: Iterable[KubernetesObject], observed: Observed) -> Problem | None:
    """Return the problem of the first object whose kind the cluster does not serve, or None."""
    missing = observed.absent_kinds.intersection(str(item["kind"]) for item in objects)
    return next((problem for kind, problem in _PROBLEMS.items() if kind in missing), None)


_PROBLEMS: Final[Mapping[str, Problem]] = {
    "ComputeDomain": Problem(
        code="ComputeDomainUnavailable",
        what="the plan joins pods of several nodes by NVLink",
        limit="needs a ComputeDomain for that",
        gap="which this cluster does not have",
        remedy="install NVIDIA's DRA driver, or set computeDomain to None: NVLink is then planned "
        "to end at the node",
        path="spec.pod.network.computeDomain",
    ),
    "ResourceClaimTemplate": Problem(
        code="DeviceClaimsUnavailable",
        what="the plan's pods claim GPUs that a DRA driver serves",
        limit="needs ResourceClaimTemplates for that",
        gap="which the operator does not see in this cluster",
        remedy="set dra.enabled of the chart, or have a DeviceClass stand for nvidia.com/gpu",
    ),
}


def seeking(
    record: PlanRecord, before: PlanRecord | None, turnouts: Sequence[Turnout]
) -> PlanRecord:
    """Return a new plan of record that says how its groups ask for nodes; ``before`` is the one it
    replaces, ``turnouts`` are the existing nodes of each pool.

    A group that stays where it is goes on asking as it did: its pods restart for a change of that.
    One that moves off nodes it had asked for asks for them no more.
    """
    numbers, groups = (before.plan.group_numbers, before.plan.groups) if before else ((), ())
    earlier = (
        {numbers[item.group]: item for item in before.sought if item.group < len(numbers)}
        if before
        else {}
    )
    stood = dict(zip(numbers, groups, strict=True))
    sought = []
    for index, (number, nodes) in enumerate(
        zip(record.plan.group_numbers, record.plan.groups, strict=True)
    ):
        known = earlier.get(number)
        if known and stood.get(number) == nodes:
            # Another number would be another template, and the group would roll.
            sought.append(replace(known, group=index))
        # Counted up: a group that asks again must be of another template.
        elif any(map(is_provisioned_later, nodes)):
            others = {
                node
                for other, named in enumerate(record.plan.groups)
                if other != index
                for node in named
            }
            sought.append(_sought(index, nodes, others, turnouts, known.number + 1 if known else 1))
    return replace(record, sought=tuple(sought))


def _sought(
    group: int,
    nodes: Sequence[str],
    others: Collection[str],
    turnouts: Sequence[Turnout],
    number: int,
) -> Sought:
    # Existing nodes are named, unless they are of the pools that the others come from, or of
    # Karpenter, which passes over pods that name nodes.
    pools = [turnout for turnout in turnouts if not set(turnout.pool.names()).isdisjoint(nodes)]
    there = {name for turnout in pools for name in turnout.there}
    # Karpenter ignores a pod whose required terms have matchFields or name a host (ADR 14).
    bare = any(turnout.pool.is_karpenters for turnout in pools)
    named = (
        ()
        if bare
        else tuple(node for node in nodes if not is_provisioned_later(node) and node not in there)
    )
    terms = tuple(turnout.term(nodes, others) for turnout in pools)
    return Sought(group=group, named=named, terms=terms, number=number)


def following(
    record: PlanRecord, rendered: Iterable[KubernetesObject], observed: Observed
) -> PlanRecord:
    """Return the plan of record with the nodes that pods are bound to by now.

    ``rendered`` are the objects of the record: only pods that ask as they do count.
    """
    # Only groups that ask for nodes follow their pods: in any other group a pod elsewhere is a
    # fault.
    asking = {item.group for item in record.sought}
    sets = dict(enumerate(of_kind(rendered, STATEFUL_SET)))
    groups = tuple(
        _followed(nodes, _bound(sets[index], observed))
        if index in asking and index in sets
        else nodes
        for index, nodes in enumerate(record.plan.groups)
    )
    return (
        record
        if groups == record.plan.groups
        else replace(record, plan=replace(record.plan, groups=groups))
    )


def _bound(rendered: KubernetesObject, observed: Observed) -> Iterator[str]:
    # Pods of another release count if they were made for the present request.
    live = observed.objects.get((STATEFUL_SET, rendered["metadata"]["name"]), {})
    wanted, same = template_hash(rendered), asks_the_same(rendered, live)
    members: Iterable[Member] = observed.members_of(rendered["metadata"]["name"])
    yield from (
        m.node
        for m in members
        # A pod that is ending leaves its node, and one made for an earlier request is on nodes of
        # an earlier search.
        if m.node and (same or m.template_hash == wanted) and not m.deleting
    )


def _followed(nodes: tuple[str, ...], bound: Iterable[str]) -> tuple[str, ...]:
    """Return planned nodes with the nodes of pods in place of others, of those to come first.

    >>> _followed(("a", "~spot-0", "~spot-1"), ("b", "a"))
    ('a', 'b', '~spot-1')
    >>> _followed(("a", "~spot-0"), ("b", "c"))
    ('c', 'b')
    """
    got = tuple(bound)
    spare = sorted(
        (node for node in nodes if node not in got),
        # Nodes that do not exist give way first; those that exist may still get their pod.
        key=lambda node: not is_provisioned_later(node),
    )
    swapped = dict(
        # Not strict: some pods may not be bound yet.
        zip(spare, (node for node in got if node not in nodes), strict=False)
    )
    return tuple(swapped.get(node, node) for node in nodes)
