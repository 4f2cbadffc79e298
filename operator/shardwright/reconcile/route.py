"""Does the clients' Service lead to the model's router, or to its groups? The groups answer without
a router, so that what is new in the way of requests may be gone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from shardwright.errors import Problem
from shardwright.pipeline.assembly import ROUTER_IMAGE_MISSING
from shardwright.reconcile.first_seen import Sight, Sighting
from shardwright.reconcile.observed import DEPLOYMENT, SERVICE, Observed, controller_uid
from shardwright.rendering import names
from shardwright.rendering.bundle import KubernetesObject, with_content_hash
from shardwright.rendering.deployment import Deployment, Owner, PairMember, RouterOptions
from shardwright.rendering.halves import REVISION, ROLE, member_labels
from shardwright.rendering.labels import leader_selector
from shardwright.rendering.router_pods import ROUTER

FALLBACK_SECONDS: Final = 15
"""How long no pod of a router is ready until the Service leads to the groups. Basis: chosen: longer
than a pod takes to be replaced.
"""

RETURN_SECONDS: Final = 30
"""How long a router is ready until the Service leads to it (again). Basis: chosen: longer than it
takes to see all groups, so that one that comes and goes is left alone.
"""

MESSAGE_LENGTH: Final = 200
"""Characters that are quoted of why a router's pods are not made."""

_STARTING: Final = Problem(
    code="RouterStarting",
    what="the router",
    limit=f"must have been ready for {RETURN_SECONDS} s before the Service leads to it",
)
_NOT_PERMITTED: Final = Problem(
    code="RouterNotPermitted",
    path="spec.routing.mode",
    what="Router",
    limit="needs Deployments",
    gap="which the operator does not see",
    remedy="have router.image of the chart set, which gives it the right; until then the Service "
    "leads to the groups",
)
_NO_POOL: Final = Problem(
    code="PoolUnavailable",
    path="spec.routing.mode",
    what="InferencePool",
    limit="needs InferencePools",
    gap="which the operator does not see",
    remedy="install the Gateway API Inference Extension (kubectl apply -k of its config/crd), and "
    "have inferencePools.enabled of the chart set; until then the Service leads to the groups",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How requests reach the groups of a model that names a routing, and when to look again (None:
    with the next event).

    ``unmet`` is why they do not go the way that it asks for (None: they do): the Service then leads
    to the groups. Without ``offered`` the objects of the routing cannot be made.
    """

    unmet: Problem | None = None
    offered: bool = True
    again_seconds: float | None = None


def of_routers(observed: Observed, owner_uid: str) -> Iterator[Sighting]:
    """Yield whether the router of an owner is ready or not."""
    for (kind, _), live in observed.objects.items():
        if kind == DEPLOYMENT and controller_uid(live) == owner_uid:
            yield Sighting(Sight.ROUTER_UP if is_up(live) else Sight.ROUTER_DOWN, _uid(live))


def is_up(live: KubernetesObject) -> bool:
    """Return whether a pod of a router is ready."""
    return bool((live.get("status") or {}).get("readyReplicas"))


def route_of(
    stated: Deployment, observed: Observed, since: Mapping[Sighting, datetime], now: datetime
) -> Route | None:
    """Return the way of requests now, None if the spec names no routing."""
    if stated.router is None and stated.picker is None:
        return None
    if missing := _missing(stated, observed):
        return Route(unmet=missing, offered=False)
    if stated.router is None:
        return Route()
    live = observed.objects.get((DEPLOYMENT, names.router(stated.base)))
    if live is None:
        return Route(unmet=_down(stated, stated.router, live))
    led = to_router(observed, stated.owner.uid) is not None
    leading, again = _leading(live, since, now, led=led)
    unmet = _STARTING if is_up(live) else _down(stated, stated.router, live)
    return Route(unmet=None if leading else unmet, again_seconds=again)


def _missing(stated: Deployment, observed: Observed) -> Problem | None:
    if stated.router is None:
        return _NO_POOL if "InferencePool" in observed.absent_kinds else None
    if DEPLOYMENT in observed.absent_kinds:
        return _NOT_PERMITTED
    return None if stated.router.image else ROUTER_IMAGE_MISSING


def _down(stated: Deployment, router: RouterOptions, live: KubernetesObject | None) -> Problem:
    if stated.half and not _not_made(live or {}):
        return _apart(stated, stated.half)
    return Problem(
        code="RouterDown",
        what="no pod of the router is ready",
        gap=_not_made(live or {}),
        remedy="the Service leads to the groups. Its pods: kubectl -n "
        f"{stated.owner.namespace} get pods -l {ROUTER}={stated.base}. Their service account "
        f"{router.account} must be there, and bound to the ClusterRole of the chart for routers, "
        "to see the groups (docs/howto/routing.md)",
    )


def _apart(stated: Deployment, half: PairMember) -> Problem:
    found = ",".join(f"{key}={value}" for key, value in member_labels(half).items())
    return Problem(
        code="PairBroken",
        what="no pod of the router knows a group of each half",
        remedy="the Service leads to the groups that answer, which compute prompts themselves. "
        "Each half must have a Ready group, both with one value of the label "
        f"{REVISION}: kubectl -n {stated.owner.namespace} get pods -l {found} -L {ROLE},{REVISION}"
        " (docs/howto/pairs.md)",
    )


def _not_made(live: KubernetesObject) -> str:
    conditions = (live.get("status") or {}).get("conditions") or ()
    failed = (one for one in conditions if one.get("type") == "ReplicaFailure")
    # Of a Deployment: why its pods cannot be created, as the API server says it.
    return next((str(one.get("message", ""))[:MESSAGE_LENGTH] for one in failed), "")


def _leading(
    live: KubernetesObject, since: Mapping[Sighting, datetime], now: datetime, *, led: bool
) -> tuple[bool, float | None]:
    """Return whether the Service is to lead to a router, and when that may change by itself."""
    up = is_up(live)
    seen = since.get(Sighting(Sight.ROUTER_UP if up else Sight.ROUTER_DOWN, _uid(live)), now)
    wait = timedelta(seconds=RETURN_SECONDS if up else FALLBACK_SECONDS)
    left = (seen + wait - now).total_seconds()
    return (up, None) if up == led or left <= 0 else (led, left)


def to_router(observed: Observed, owner_uid: str) -> KubernetesObject | None:
    """Return the Service of an owner that leads to a router now, None without one."""
    services = (live for (kind, _), live in observed.objects.items() if kind == SERVICE)
    led = (one for one in services if ROUTER in (one["spec"].get("selector") or {}))
    return next((one for one in led if controller_uid(one) == owner_uid), None)


def taken(stated: Deployment, route: Route | None) -> Deployment:
    """Return a deployment with the objects of its routing that can be made, and whether its Service
    leads to the router.
    """
    if route is None:
        return stated
    if not route.offered:
        return replace(stated, router=None, picker=None)
    return replace(
        stated, router=stated.router and replace(stated.router, leads=route.unmet is None)
    )


def fallen_back(
    owner: Owner, observed: Observed, since: Mapping[Sighting, datetime], now: datetime
) -> KubernetesObject | None:
    """Return the Service as it leads to the groups, if nobody knows what is wanted and its router
    is gone; it is led back once that is known.
    """
    base = names.base_name(owner.name)
    service = to_router(observed, owner.uid)
    if service is None:
        return None
    live = observed.objects.get((DEPLOYMENT, names.router(base)))
    if live is not None and _leading(live, since, now, led=True)[0]:
        return None
    return with_content_hash(_to_groups(service, base))


def _to_groups(service: KubernetesObject, base: str) -> dict[str, Any]:
    meta = service["metadata"]
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    # An applied selector is replaced key by key: that of the router is given up with this one.
    return {
        "apiVersion": "v1",
        "kind": SERVICE,
        "metadata": {name: meta[name] for name in kept if name in meta},
        "spec": {
            "type": "ClusterIP",
            "selector": leader_selector(base),
            "ports": service["spec"]["ports"],
        },
    }


def _uid(live: KubernetesObject) -> str:
    return str(live["metadata"]["uid"])
