"""The caches: complete when everything has been read once, whatever kinds this cluster has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from shardwright.cluster.caches import EVERYTHING, Caches, Scope
from shardwright.cluster.ledger import Ledger
from shardwright.cluster.reader import Timing
from shardwright.cluster.store import Changes, Store
from shardwright.cluster.streams import Trouble
from shardwright.hardware.inventory import KnownPods
from tests.support.builders_nodes import a_node
from tests.support.builders_store import a_pod, a_set
from tests.support.watch_api import Reply, WatchApi, a_list, a_refused_reply, line

CLUSTER = ("nodes", "pods", "configmaps", "priorityclasses", "resourcequotas", "limitranges")
REQUIRED = (*CLUSTER, "statefulsets", "services", "poddisruptionbudgets", "networkpolicies")
QUICK = Timing(proof=0, first_pause=0.001, longest_pause=0.1)


class Cluster(WatchApi):
    """Answers by what is asked for: a list of each kind that is there, then one event of a pod."""

    def __init__(self, **lists: Reply) -> None:
        super().__init__([])
        self.lists = lists
        self.events: dict[str, Reply] = {}

    def reply(self, path: str, query: dict[str, str], accept: str) -> Reply:
        del accept
        self.requests.append({"path": path, **query})
        plural = path.rpartition("/")[2]
        if "watch" in query:
            return self.events.pop(plural, Reply(ending="hold"))
        return self.lists.get(plural, Reply(status=404, parts=[b"404 page not found\n"]))


def read(
    cluster: Cluster,
    complete: Callable[[Caches], bool],
    on_concern: Callable[[Changes], None] = lambda _: None,
    *,
    ledger: Ledger | None = None,
    scope: Scope = EVERYTHING,
) -> Caches:
    """Return caches that have read everything once, and more until they are complete."""

    async def scenario() -> Caches:
        news = asyncio.Event()

        def affected(what: Changes) -> None:
            on_concern(what)
            news.set()

        caches = Caches(
            cluster.client, Store(ledger or Ledger()), affected, scope=scope, timing=QUICK
        )
        assert not caches.synced
        caches.start()
        async with asyncio.timeout(20):
            while not (caches.synced and complete(caches)):
                news.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), 0.02)
        caches.stop()
        return caches

    with cluster:
        caches = asyncio.run(scenario())
        caches.join(20)
    return caches


MAY_BE_MISSING = (
    "ComputeDomain",
    "ScaledObject",
    "PodGroup",
    "ResourceClaim",
    "ResourceSlice",
    "DeviceClass",
)


def test_caches_are_filled_once_every_existing_kind_is_read_and_then_report_changes() -> None:
    cluster = Cluster(**{plural: a_list(version=7) for plural in REQUIRED})
    cluster.lists["nodes"] = a_list(a_node("a"), version=7)
    cluster.lists["statefulsets"] = a_list(a_set("llama-0"), version=7)
    pod = a_pod("llama-0-0", model="llama", set_name="llama-0", node="a", gpus=8)
    cluster.events["pods"] = Reply(parts=[line(("ADDED", pod))], ending="hold")
    seen: list[Changes] = []
    ledger = Ledger()

    caches = read(
        cluster,
        lambda caches: bool(caches.store.members(("models", "uid-of-llama-0"))),
        seen.append,
        ledger=ledger,
    )
    assert caches.filled.is_set()
    assert ledger.taken() == {"a": 8}
    assert {kind for kind, health in caches.health.items() if health.synced} == caches.health.keys()
    assert caches.absent_kinds == {
        kind for kind in caches.health if kind.startswith(MAY_BE_MISSING)
    }
    assert caches.counts["Pod"].events == 1
    assert frozenset({("models", "llama")}) in [affected.models for affected in seen]


def test_where_pods_may_not_be_listed_they_are_not_asked_for() -> None:
    cluster = Cluster(**{plural: a_list(version=7) for plural in REQUIRED})

    read(cluster, lambda _: True, scope=Scope(pods=KnownPods.NONE))
    assert not any(request["path"].endswith("/pods") for request in cluster.requests)


class Refusing(Cluster):
    """Lists by namespace; one is not ours to see as long as it is ``closed``."""

    closed = frozenset({"gone"})

    def reply(self, path: str, query: dict[str, str], accept: str) -> Reply:
        if any(f"/namespaces/{name}/" in path for name in self.closed):
            self.requests.append({"path": path, **query})
            return a_refused_reply(403)
        return super().reply(path, query, accept)


def test_of_some_namespaces_each_is_read_by_itself_and_one_that_is_not_ours_holds_up_no_other() -> (
    None
):
    cluster = Refusing(**{plural: a_list(version=7) for plural in REQUIRED})
    cluster.lists["statefulsets"] = a_list(a_set("llama-0"), version=7)

    caches = read(
        cluster, lambda _: True, scope=Scope(namespaces=("gone", "models"), pods=KnownPods.WATCHED)
    )

    paths = {request["path"] for request in cluster.requests}
    everywhere = {path for path in paths if "/namespaces/" not in path}
    devices = {
        f"/apis/resource.k8s.io/v1/{plural}" for plural in ("resourceslices", "deviceclasses")
    }
    assert everywhere == {"/api/v1/nodes", "/apis/scheduling.k8s.io/v1/priorityclasses", *devices}
    assert {"/api/v1/namespaces/models/pods", "/api/v1/namespaces/gone/pods"} <= paths
    assert caches.store.child("StatefulSet", "models", "llama-0") is not None
    assert caches.health["ConfigMap of gone"].trouble is Trouble.FORBIDDEN
    assert caches.health["ConfigMap of models"].trouble is None
    assert (set(caches.unread), set(caches.refused)) == ({"gone"}, {"gone"})
    assert caches.absent_kinds == {
        kind.partition(" ")[0] for kind in caches.health if kind.startswith(MAY_BE_MISSING)
    }


def test_a_namespace_whose_role_comes_later_is_read_and_its_gpus_are_booked() -> None:
    """Nothing of it is known until then, and the caches say so: nobody else waits for it."""
    cluster, before, ledger = (
        Refusing(**{plural: a_list(version=7) for plural in REQUIRED}),
        set[str](),
        Ledger(),
    )
    cluster.lists["pods"] = a_list(a_pod("a", node="n", gpus=8), version=7)

    def complete(caches: Caches) -> bool:
        before.update(caches.unread)
        cluster.closed = frozenset()
        return not caches.unread and bool(ledger.taken())

    caches = read(
        cluster, complete, ledger=ledger, scope=Scope(namespaces=("gone",), pods=KnownPods.WATCHED)
    )

    assert (before, ledger.taken()) == ({"gone"}, {"n": 8})
    assert caches.refused == set()


def test_what_was_known_of_a_namespace_stands_when_it_is_not_ours_to_see_any_more() -> None:
    cluster = Cluster(**{plural: a_list(version=7) for plural in REQUIRED})
    cluster.lists["statefulsets"] = a_list(a_set("llama-0"), version=7)
    refused = "StatefulSet of models"

    class Later(Cluster):
        def reply(self, path: str, query: dict[str, str], accept: str) -> Reply:
            watched = path.endswith("/statefulsets") and "watch" in query
            return a_refused_reply(403) if watched else cluster.reply(path, query, accept)

    caches = read(
        Later(),
        lambda caches: caches.health[refused].trouble is not None,
        scope=Scope(namespaces=("models",)),
    )

    assert caches.health[refused].trouble is Trouble.FORBIDDEN
    assert (set(caches.unread), set(caches.refused)) == (set(), {"models"})
    assert caches.store.child("StatefulSet", "models", "llama-0") is not None
