"""How many pods of a model does its disruption budget count? All that may be ready together before
anybody looks again: a budget that is raised only when a group serves is too low until then, and two
groups are evicted at once.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from shardwright.reconcile.annotations import read_annotations
from shardwright.reconcile.members import Member
from shardwright.reconcile.observed import Observed
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.names import generation_of


def protected_pods(
    observed: Observed, owner_uid: str, size: int, start_seconds: int | None, now: datetime
) -> int:
    """Return the number of pods that the disruption budget of a model counts.

    A group counts once it has been ready, whatever has become of it, and while it starts on its
    nodes, for ``start_seconds`` at most (None: for ever): one that does not come up must not hold
    up the drains of those that serve. One at zero comes back with as many pods as it had, or
    ``size``.
    """
    up: dict[str, int] = {}
    down: dict[str, int] = {}
    standing = set()
    for name, live in observed.sets_of(owner_uid).items():
        if "deletionTimestamp" in live["metadata"]:
            continue
        remembered, (root, _) = read_annotations(live), generation_of(name)
        standing.add(name)
        if pods := live["spec"].get("replicas"):
            counts = remembered.ready_once or _starts(live, observed, start_seconds, now)
            # Both generations: until the former one is gone, the pods of both are ready.
            up[root] = up.get(root, 0) + (pods if counts else _ready(observed.members_of(name)))
        elif remembered.ready_once:
            down[root] = remembered.size or size
    # A StatefulSet that is gone leaves pods that serve until they end, too.
    left = _ready(member for member in observed.members if member.group not in standing)
    return left + sum(max(up.get(root, 0), down.get(root, 0)) for root in {*up, *down})


def _starts(
    live: KubernetesObject, observed: Observed, start_seconds: int | None, now: datetime
) -> bool:
    since = observed.starting_since.get(live["metadata"]["uid"])
    if since is None:
        return False
    return start_seconds is None or now < since + timedelta(seconds=start_seconds)


def _ready(members: Iterable[Member]) -> int:
    return sum(member.ready and not member.deleting for member in members)
