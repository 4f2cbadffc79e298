"""Requests reach the groups without the router, and the router once it has been ready for a while."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shardwright.costs.workload import Phase
from shardwright.reconcile.first_seen import Sight, Sighting
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.route import (
    FALLBACK_SECONDS,
    RETURN_SECONDS,
    Route,
    fallen_back,
    of_routers,
    route_of,
    taken,
)
from shardwright.rendering.deployment import Deployment, PairMember, RouterOptions
from shardwright.rendering.labels import leader_selector, owned_metadata
from shardwright.rendering.router_pods import router_selector
from tests.support.builders_deployment import a_deployment, an_owner
from tests.support.builders_reconcile import NOON

OWNER = an_owner()
BASE = a_deployment().base
UID = "the-router"


def stated(image: str = "registry.internal/router:1") -> Deployment:
    return a_deployment(router=RouterOptions(account="shardwright-router", image=image))


def observed(
    *, ready: int | None, led: bool = False, absent: frozenset[str] = frozenset()
) -> Observed:
    """``ready`` pods of the router (None: there is none), and the Service that leads to it or not."""
    selector = router_selector(BASE) if led else leader_selector(BASE)
    ports = [{"name": "http", "port": 8000, "targetPort": 8000, "protocol": "TCP"}]
    objects: dict[tuple[str, str], Any] = {
        ("Service", BASE): {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": owned_metadata(BASE, OWNER, {}, {}) | {"uid": "the-service"},
            "spec": {"type": "ClusterIP", "selector": selector, "ports": ports},
        }
    }
    if ready is not None:
        objects["Deployment", f"{BASE}-router"] = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": owned_metadata(f"{BASE}-router", OWNER, {}, {}) | {"uid": UID},
            "status": {"readyReplicas": ready},
        }
    return Observed(objects=objects, absent_kinds=absent)


def for_seconds(sight: Sight, seconds: float) -> dict[Sighting, Any]:
    return {Sighting(sight, UID): NOON - timedelta(seconds=seconds)}


@pytest.mark.parametrize(
    ("ready", "led", "seconds", "unmet", "again"),
    [
        (1, False, RETURN_SECONDS - 1, "RouterStarting", 1),
        (1, False, RETURN_SECONDS, None, None),
        (2, True, 0, None, None),
        (0, True, FALLBACK_SECONDS - 1, None, 1),
        (0, True, FALLBACK_SECONDS, "RouterDown", None),
        (0, False, 0, "RouterDown", None),
    ],
)
def test_the_service_leads_to_a_router_that_has_been_ready_and_away_from_one_that_has_not(
    *, ready: int, led: bool, seconds: float, unmet: str | None, again: float | None
) -> None:
    since = for_seconds(Sight.ROUTER_UP if ready else Sight.ROUTER_DOWN, seconds)

    route = route_of(stated(), observed(ready=ready, led=led), since, NOON)

    assert route is not None
    assert (route.unmet and route.unmet.code, route.again_seconds) == (unmet, again)
    router = taken(stated(), route).router
    assert router is not None
    assert router.leads is (unmet is None)


@pytest.mark.parametrize(
    ("deployment", "seen", "unmet", "offered"),
    [
        (stated(), observed(ready=None), "RouterDown", True),
        (stated(), observed(ready=None, led=True), "RouterDown", True),
        (stated(image=""), observed(ready=1, led=True), "RouterImageMissing", False),
        (
            stated(),
            observed(ready=None, absent=frozenset({"Deployment"})),
            "RouterNotPermitted",
            False,
        ),
        (
            a_deployment(picker=("epp", 9002)),
            observed(ready=None, absent=frozenset({"InferencePool"})),
            "PoolUnavailable",
            False,
        ),
    ],
)
def test_what_is_missing_leaves_the_groups_reachable(
    deployment: Deployment, seen: Observed, unmet: str, *, offered: bool
) -> None:
    route = route_of(deployment, seen, {}, NOON)

    assert route is not None
    assert (route.unmet and route.unmet.code, route.offered) == (unmet, offered)
    left = taken(deployment, route)
    assert (left.router is not None, left.picker) == (offered, None)
    assert left.router is None or not left.router.leads


def test_a_pool_is_offered_where_the_cluster_knows_it() -> None:
    pooled = a_deployment(picker=("epp", 9002))

    route = route_of(pooled, observed(ready=None), {}, NOON)

    assert route == Route()
    assert taken(pooled, route) == pooled


def test_why_no_pod_of_a_router_is_made_is_said_as_the_api_server_says_it() -> None:
    seen = observed(ready=0)
    why = 'serviceaccount "shardwright-router" not found'
    live = seen.objects["Deployment", f"{BASE}-router"]
    live["status"]["conditions"] = [
        {"type": "Available", "message": "no"},
        {"type": "ReplicaFailure", "status": "True", "message": why},
    ]

    route = route_of(stated(), seen, {}, NOON)

    assert route is not None
    assert route.unmet is not None
    assert route.unmet.gap == why
    assert f"-n models get pods -l shardwright.io/router={BASE}." in route.unmet.remedy


def test_the_router_of_a_pair_that_knows_one_half_alone_is_said_to_lack_the_other() -> None:
    pair = replace(stated(), half=PairMember(phase=Phase.DECODE, pair="llama"))

    route = route_of(pair, observed(ready=0), {}, NOON)

    assert route is not None
    assert route.unmet is not None
    assert route.unmet.code == "PairBroken"
    assert "get pods -l shardwright.io/pair=llama -L shardwright.io/role," in route.unmet.remedy


def test_the_service_of_a_pair_leads_to_who_answers_if_nobody_knows_what_is_wanted() -> None:
    seen = observed(ready=0, led=True)
    service = seen.objects["Service", BASE]
    service["metadata"]["name"] = "the-pair"
    led = Observed(objects={("Service", "the-pair"): service})

    back = fallen_back(OWNER, led, {}, NOON)

    assert back is not None
    assert (back["metadata"]["name"], back["spec"]["selector"]) == (
        "the-pair",
        leader_selector(BASE),
    )


def test_without_a_routing_nothing_is_decided() -> None:
    assert route_of(a_deployment(), observed(ready=None), {}, NOON) is None
    assert taken(a_deployment(), None) == a_deployment()


def test_only_the_routers_of_the_owner_are_seen() -> None:
    assert set(of_routers(observed(ready=1), OWNER.uid)) == {Sighting(Sight.ROUTER_UP, UID)}
    assert set(of_routers(observed(ready=0), OWNER.uid)) == {Sighting(Sight.ROUTER_DOWN, UID)}
    assert set(of_routers(observed(ready=1), "another")) == set()


def test_a_model_that_nobody_can_plan_falls_back_from_a_router_that_is_gone() -> None:
    service = fallen_back(OWNER, observed(ready=None, led=True), {}, NOON)

    assert service is not None
    assert service["spec"]["selector"] == leader_selector(BASE)


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        (observed(ready=1, led=True), 0),
        (observed(ready=0, led=True), FALLBACK_SECONDS - 1),
        (observed(ready=0, led=False), 99),
        (Observed(objects={}), 99),
    ],
    ids=["it is ready", "for a moment only", "it leads to the groups", "there is no Service"],
)
def test_and_only_then(seen: Observed, seconds: float) -> None:
    assert fallen_back(OWNER, seen, for_seconds(Sight.ROUTER_DOWN, seconds), NOON) is None
