"""Which objects does a plan become in the cluster as it is: in which generation of each group, with
how many protected pods, and with which way of requests?
"""

from dataclasses import replace
from typing import Final, NamedTuple

from shardwright.api.record import PlanRecord
from shardwright.errors import InputError
from shardwright.pipeline.assembly import OnCluster, bundle_for
from shardwright.reconcile.derived import Derived
from shardwright.reconcile.group import following_generations, generations
from shardwright.reconcile.pod_inputs import as_made, unavailable
from shardwright.reconcile.route import Route, taken
from shardwright.reconcile.snapshot import Cluster, Snapshot
from shardwright.rendering.bundle import Bundle
from shardwright.rendering.names import base_name, group_names
from shardwright.resolving.subject import Subject


class Present(NamedTuple):
    """What objects follow beside their plan: how many pods a disruption budget counts (None: all),
    and the way of requests.
    """

    ready: int | None = None
    route: Route | None = None


_ALL: Final = Present()


def objects_now(
    snapshot: Snapshot,
    subject: Subject,
    derived: Derived,
    record: PlanRecord,
    present: Present = _ALL,
) -> Bundle:
    """Return the objects of a plan, none if it is only shown.

    Raises:
        InputError: This cluster lacks something that they need.
    """
    if subject.intent.plan_only:
        return Bundle(objects=())
    plan = record.plan
    owner, observed = snapshot.resource.owner, derived.observed
    cluster = snapshot.cluster or Cluster()
    places = dict(
        zip(group_names(base_name(owner.name), plan.group_numbers), plan.groups, strict=True)
    )
    asking = taken(as_made(snapshot, derived, subject, record), present.route)

    def made(of: tuple[int, ...]) -> Bundle:
        return bundle_for(
            replace(subject, deployment=asking),
            plan,
            OnCluster(domain=cluster.domain, scheduling_api=cluster.scheduling_api or None),
            ready_pods=present.ready,
            generations=of,
        )

    # Only the rendered object shows whether its StatefulSet can become it; if not, a generation
    # more.
    numbers = generations(places, observed, owner.uid, derived.lost, record.generations)
    bundle = made(numbers)
    if (anew := following_generations(bundle.objects, numbers, observed)) != numbers:
        bundle = made(anew)
    if problem := unavailable(bundle.objects, observed):
        raise InputError([problem])
    return bundle
