"""Does the clients' Service lead to the model's router, or to its groups? The groups answer without
a router, so that what is new in the way of requests may be gone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from shardwright.reconcile.first_seen import Sight, Sighting
from shardwright.reconcile.observed import DEPLOYMENT, SERVICE, Observed, controller_uid
from shardwright.rendering import names
from shardwright.rendering.bundle import KubernetesObject, with_content_hash
from shardwright.rendering.deployment import Deployment, Owner
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

POOL_KIND: Final = "InferencePool"


class Way(StrEnum):
    """How requests reach the groups of a model that names a routing."""

    ROUTER = "Router"  #: by the router
    STARTING = "Starting"  #: by the Service: the router has not been ready for long enough yet
    NOT_READY = "NotReady"  #: by the Service: no pod of the router is ready
    LOSING = "Losing"  #: by the router, of which no pod has been ready for a moment
    NO_IMAGE = "NoImage"  #: by the Service: the administrator names no image of a router
    NO_RIGHT = "NoRight"  #: by the Service: the operator sees no Deployments
    POOL = "Pool"  #: by gateways that ask the endpoint picker, and by the Service
    NO_POOL = "NoPool"  #: by the Service: this cluster knows no InferencePool


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way of requests now, and when to look again (None: with the next event).

    ``account`` is the service account of the router's pods.
    """

    way: Way
    again_seconds: float | None = None
    account: str = ""

    @property
    def leads_to_router(self) -> bool:
        """Return whether the Service leads to the router."""
        return self.way in (Way.ROUTER, Way.LOSING)

    @property
    def as_asked(self) -> bool:
        """Return whether requests go the way that the spec asks for."""
        return self.way in (Way.ROUTER, Way.LOSING, Way.POOL)


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
    if stated.picker:
        absent = POOL_KIND in observed.absent_kinds
        return Route(way=Way.NO_POOL if absent else Way.POOL)
    if stated.router is None:
        return None
    account = stated.router.account
    if DEPLOYMENT in observed.absent_kinds:
        return Route(way=Way.NO_RIGHT, account=account)
    if not stated.router.image:
        return Route(way=Way.NO_IMAGE, account=account)
    live = observed.objects.get((DEPLOYMENT, names.router(stated.base)))
    if live is None:
        return Route(way=Way.NOT_READY, account=account)
    led = leads(observed, stated.base)
    return replace(_way(live, since, now, led=led), account=account)


def _way(
    live: KubernetesObject, since: Mapping[Sighting, datetime], now: datetime, *, led: bool
) -> Route:
    up = is_up(live)
    seen = since.get(Sighting(Sight.ROUTER_UP if up else Sight.ROUTER_DOWN, _uid(live)), now)
    wait = timedelta(seconds=RETURN_SECONDS if up else FALLBACK_SECONDS)
    left = (seen + wait - now).total_seconds()
    if up == led:
        return Route(way=Way.ROUTER if up else Way.NOT_READY)
    if left > 0:
        return Route(way=Way.STARTING if up else Way.LOSING, again_seconds=left)
    return Route(way=Way.ROUTER if up else Way.NOT_READY)


def leads(observed: Observed, base: str) -> bool:
    """Return whether the clients' Service leads to a router now."""
    service = observed.objects.get((SERVICE, names.client_service(base)))
    return service is not None and ROUTER in (service["spec"].get("selector") or {})


def taken(stated: Deployment, route: Route | None) -> Deployment:
    """Return a deployment with the objects of its routing that can be made, and whether its Service
    leads to the router.
    """
    if route is None:
        return stated
    if route.way is Way.NO_POOL:
        return replace(stated, picker=None)
    if route.way in (Way.NO_IMAGE, Way.NO_RIGHT):
        return replace(stated, router=None)
    router = stated.router and replace(stated.router, leads=route.leads_to_router)
    return replace(stated, router=router)


def fallen_back(
    owner: Owner, observed: Observed, since: Mapping[Sighting, datetime], now: datetime
) -> KubernetesObject | None:
    """Return the Service as it leads to the groups, if nobody knows what is wanted and its router
    is gone; it is led back once that is known.
    """
    base = names.base_name(owner.name)
    service = observed.objects.get((SERVICE, names.client_service(base)))
    if service is None or not leads(observed, base):
        return None
    live = observed.objects.get((DEPLOYMENT, names.router(base)))
    if live is not None and _way(live, since, now, led=True).leads_to_router:
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
