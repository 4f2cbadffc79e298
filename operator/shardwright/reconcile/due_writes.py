"""Which writes are sent now, of those that were decided and beside them?"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from shardwright.reconcile.autoscaling import handed_over
from shardwright.reconcile.derived import Derived
from shardwright.reconcile.first_seen import Sight, Sighting
from shardwright.reconcile.publish import NO_PODS_SECONDS, Deployed
from shardwright.reconcile.snapshot import Snapshot
from shardwright.reconcile.write_cause import rendered_hash
from shardwright.reconcile.writes import (
    Apply,
    Delete,
    DryRunPod,
    Why,
    Write,
    pod_of,
    written_kind,
    written_name,
)
from shardwright.resolving.subject import Subject


def to_hand_over(snapshot: Snapshot, deployed: Deployed, derived: Derived) -> Iterator[Write]:
    """Yield the number of groups for an autoscaler that has none yet."""
    # Only of what is deployed: who only plans shows a number, and no autoscaler acts on it.
    if deployed.record and deployed.runs and isinstance(snapshot.subject, Subject):
        resource, subject = snapshot.resource, snapshot.subject
        yield from handed_over(resource, subject, deployed.record, derived.observed)


def taken_up(snapshot: Snapshot, deployed: Deployed) -> Iterator[Write]:
    """Yield what was decided, but for repairs of what somebody keeps undoing."""
    for write in deployed.decision.writes if deployed.decision else ():
        # Only repairs: a stop or a start is never left out because somebody edits the same object.
        if not (isinstance(write, Apply | Delete) and write.why is Why.DRIFT):
            yield write
            continue
        contest = snapshot.contested.get((written_kind(write), written_name(write)))
        rendered = rendered_hash(write.content) if isinstance(write, Apply) else ""
        # What we render otherwise by now is written at once: nobody has undone that yet.
        if contest is None or contest.rendered != rendered:
            yield write


def questions(snapshot: Snapshot, derived: Derived, now: datetime) -> Iterator[Write]:
    """Yield dry runs of pods that nobody creates."""
    # Only the API server knows why it refuses pods.
    # A dry run goes through all webhooks, so the StatefulSet controller first gets time to create
    # the pods.
    limit = timedelta(seconds=NO_PODS_SECONDS)
    for name, live in derived.observed.sets_of(snapshot.resource.owner.uid).items():
        since = derived.since.get(Sighting(Sight.NO_PODS, live["metadata"]["uid"]))
        if since is not None and now - since >= limit:
            there = {member.rank for member in derived.observed.members_of(name)}
            rank = min({*range(live["spec"]["replicas"])} - there, default=0)
            yield DryRunPod(content=pod_of(live, rank), set_uid=live["metadata"]["uid"])
