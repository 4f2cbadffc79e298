"""Events to keys: who is looked at when something changes, how soon, and who is left in peace."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shardwright.cluster.store import Changes
from shardwright.controller.cluster_cache import ClusterCache, Dependencies
from shardwright.controller.event_handlers import EventHandlers
from shardwright.controller.queue import Key, Priority
from shardwright.hardware.inventory import KnownPods
from shardwright.reconcile.publish import Kept
from shardwright.rendering.names import base_name
from tests.harness import fleet
from tests.support.builders_deployment import a_plan
from tests.support.builders_operator import Asking, Hand
from tests.support.builders_reconcile import a_record
from tests.support.builders_store import (
    a_config_map,
    a_pod,
    a_service,
    a_set,
    children,
    config_maps,
    nodes,
    pods,
)

WAITING, PLANNED, OTHER = (("models", "waiting"), ("models", "planned"), ("models", "other"))
NODE = fleet.make("h100-8x-dell-xe9680", 1, "node")[0]


class Listener:
    """A view, what feeds it and what was asked for because of it."""

    def __init__(self, *, leads: bool = True) -> None:
        self.cache = ClusterCache()
        self.queue = Asking(Hand())
        self.handlers = EventHandlers(self.cache, self.queue, lambda: leads)
        self.cache.note(WAITING, Dependencies(waits_for_capacity=True))
        self.cache.note(PLANNED, Dependencies(nodes=frozenset({"node-0"})))
        self.cache.note(OTHER, Dependencies(config_map=("models", "config")))

    def hears(self, affected: Changes) -> list[tuple[Key, Priority]]:
        """Return what is asked for because of changes, and of what they free."""
        self.queue.added.clear()
        self.handlers.on_concern(affected)
        self.handlers.wake_waiting()
        return self.queue.added


@pytest.fixture
def listener() -> Listener:
    return Listener()


def a_watched_model(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "models",
            "name": name,
            "uid": f"uid-of-{name}",
            "generation": 1,
            **metadata,
        }
    }


def test_a_new_node_concerns_who_is_planned_on_it_and_who_waits(listener: Listener) -> None:
    asked = listener.hears(listener.cache.store.take_nodes(nodes(NODE)))
    assert asked == [(PLANNED, Priority.ROLL), (WAITING, Priority.WAITING)]


def test_a_heartbeat_concerns_nobody(listener: Listener) -> None:
    listener.cache.store.take_nodes(nodes(NODE))
    beat = {**NODE, "metadata": {**NODE["metadata"], "resourceVersion": "99"}}
    assert listener.hears(listener.cache.store.take_nodes(nodes(beat))) == []


@pytest.mark.parametrize(
    "more",
    [{}, {"nvidia.com/gpu.product": "unheard-of"}, {"nvidia.com/mig.config.state": "pending"}],
    ids=["nothing else", "labels", "MIG"],
)
def test_a_dead_node_is_not_ready_whatever_else_is_wrong_with_it(
    listener: Listener, more: dict[str, str]
) -> None:
    dead = copy.deepcopy(NODE)
    dead["metadata"]["labels"] |= more
    dead["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    store = listener.cache.store
    store.take_nodes(nodes(dead))
    assert not store.nodes["node-0"].ready
    store.take_nodes(nodes(NODE))
    assert store.nodes["node-0"].ready


def test_a_gpu_pod_that_ends_concerns_who_waits_and_one_that_starts_nobody(
    listener: Listener,
) -> None:
    store = listener.cache.store
    assert listener.hears(store.take_pods(pods(a_pod("p", node="node-0", gpus=4)))) == []
    assert listener.cache.ledger.taken() == {"node-0": 4}
    assert listener.hears(store.take_pods(pods(gone=(("models", "p"),)))) == [
        (WAITING, Priority.WAITING)
    ]
    assert listener.cache.ledger.taken() == {}


def test_a_pod_of_a_model_concerns_that_model_whatever_its_name(listener: Listener) -> None:
    listener.handlers.on_model(a_watched_model("qwen2.5"), False)
    assert listener.queue.added == [(("models", "qwen2.5"), Priority.NEW)]
    pod = a_pod("x", model=base_name("qwen2.5"))
    assert listener.hears(listener.cache.store.take_pods(pods(pod))) == [
        (("models", "qwen2.5"), Priority.ROLL)
    ]


def test_a_member_that_is_not_ready_any_more_comes_before_all_others(listener: Listener) -> None:
    listener.handlers.on_model(a_watched_model("llama"), False)
    store, key = listener.cache.store, ("models", "llama")
    store.take_children("StatefulSet", children(a_set("llama-0")))
    ready, broken = (
        a_pod("llama-0-0", model="llama", set_name="llama-0", node="node-0", ready=ready)
        for ready in (True, False)
    )
    assert listener.hears(store.take_pods(pods(ready))) == [(key, Priority.ROLL)]
    assert listener.hears(store.take_pods(pods(broken))) == [(key, Priority.BROKEN)]


def test_what_goes_on_of_a_first_start_is_no_more_urgent_than_a_new_model(
    listener: Listener,
) -> None:
    listener.handlers.on_model(a_watched_model("llama"), False)
    store, key = listener.cache.store, ("models", "llama")
    store.take_children("StatefulSet", children(a_set("llama-0")))
    listener.cache.note(key, Dependencies(starting=True))
    first, broken = (
        a_pod("llama-0-0", model="llama", set_name="llama-0", node="node-0", ready=ready)
        for ready in (True, False)
    )
    assert listener.hears(store.take_pods(pods(first))) == [(key, Priority.NEW)]
    assert listener.hears(store.take_pods(pods(broken))) == [(key, Priority.BROKEN)]


def test_what_happens_to_a_model_that_is_broken_is_as_urgent_as_that(listener: Listener) -> None:
    listener.handlers.on_model(a_watched_model("llama"), False)
    store, key = listener.cache.store, ("models", "llama")
    store.take_children("StatefulSet", children(a_set("llama-0")))
    listener.cache.note(key, Dependencies(broken=True))
    made = a_pod("llama-0-0", model="llama", set_name="llama-0", node="node-0", ready=False)
    assert listener.hears(store.take_pods(pods(made))) == [(key, Priority.BROKEN)]


def test_an_object_that_lost_its_owner_concerns_who_it_was_of(listener: Listener) -> None:
    listener.handlers.on_model(a_watched_model("llama"), False)
    store = listener.cache.store
    store.take_children("Service", children(a_service("llama")))
    affected = store.take_children("Service", children(a_service("llama", owner="")))
    assert listener.hears(affected) == [(("models", "llama"), Priority.ROLL)]


def test_a_config_map_concerns_who_reads_it(listener: Listener) -> None:
    store = listener.cache.store
    assert listener.hears(store.take_config_maps(config_maps(a_config_map("config")))) == [
        (OTHER, Priority.NEW)
    ]
    assert listener.hears(store.take_config_maps(config_maps(a_config_map("another")))) == []


def test_a_status_is_no_news_and_a_deletion_an_annotation_or_another_generation_is(
    listener: Listener,
) -> None:
    def asks(**changes: Any) -> bool:
        listener.queue.added.clear()
        listener.handlers.on_model(
            {**a_watched_model("llama", **changes), "status": {"replicas": len(changes)}}, False
        )
        return bool(listener.queue.added)

    assert asks()
    assert not asks()
    assert not asks(resourceVersion="8", labels={"a": "b"})
    assert asks(annotations={"a": "b"})
    assert asks(annotations={"a": "b"}, generation=2)
    assert asks(annotations={"a": "b"}, generation=2, deletionTimestamp="2026-01-02T12:00:00Z")


def test_the_late_end_of_an_earlier_resource_of_the_name_ends_nothing(listener: Listener) -> None:
    listener.handlers.on_model(a_watched_model("llama", uid="new"), False)
    listener.queue.added.clear()
    listener.handlers.on_model(a_watched_model("llama", uid="old"), True)
    assert listener.cache.resources.keys() == {("models", "llama")}
    assert listener.queue.added == []


def test_who_does_not_lead_asks_for_nothing_and_knows_all_the_same() -> None:
    standby = Listener(leads=False)
    standby.handlers.on_model(a_watched_model("llama"), False)
    assert standby.hears(standby.cache.store.take_nodes(nodes(NODE))) == []
    assert standby.cache.resources.keys() == {("models", "llama")}


def test_gpus_that_are_given_up_wake_who_waits(listener: Listener) -> None:
    cache = listener.cache
    assert cache.keep(PLANNED, Kept(record=a_record(generations=(1,))))
    assert listener.hears(Changes()) == []
    assert {(r.owner, r.group, r.node, r.gpus) for r in cache.ledger.reservations()} == {
        (PLANNED, "planned-0-g1", "h100-a-01", 8),
        (PLANNED, "planned-0-g1", "h100-a-02", 8),
    }
    cache.keep(PLANNED, None)
    assert listener.hears(Changes()) == [(WAITING, Priority.WAITING)]
    listener.handlers.reconciled(WAITING)
    cache.keep(PLANNED, Kept(record=a_record(generations=(1,))))
    cache.forget(PLANNED)
    assert listener.hears(Changes()) == [(WAITING, Priority.WAITING)]


def test_the_gpus_of_a_group_that_gave_them_back_are_not_kept(listener: Listener) -> None:
    listener.cache.keep(PLANNED, Kept(record=a_record(), released=frozenset({0})))
    assert list(listener.cache.ledger.reservations()) == []


def test_a_plan_that_was_made_for_gpus_that_others_have_is_not_kept(listener: Listener) -> None:
    cache = listener.cache
    cache.store.take_nodes(nodes(NODE))
    record = a_record(plan=a_plan(groups=(("node-0",),)))
    cache.store.take_pods(pods(a_pod("foreign", node="node-0", gpus=1)))
    assert not cache.keep(PLANNED, Kept(record=record))
    assert cache.free(PLANNED, ["node-0"]) == {"node-0": 7}
    cache.store.take_pods(pods(gone=(("models", "foreign"),)))
    assert cache.keep(PLANNED, Kept(record=record))
    assert (cache.free(PLANNED, ["node-0"]), cache.free(OTHER, ["node-0"])) == (
        {"node-0": 8},
        {"node-0": 0},
    )


def test_what_is_free_is_unknown_where_pods_may_not_be_listed(listener: Listener) -> None:
    listener.cache.known_pods = KnownPods.NONE
    assert listener.cache.free(PLANNED, ["node-0"]) is None


def test_groups_that_are_down_on_purpose_are_counted_over_all_models(listener: Listener) -> None:
    cache = listener.cache
    cache.note(PLANNED, Dependencies(moving=2))
    cache.note(OTHER, Dependencies(moving=1))
    assert (cache.moving, cache.moving_beside(PLANNED), cache.moving_beside(WAITING)) == (
        3,
        (1, 0),
        (3, 0),
    )
    assert cache.moving_beside(("elsewhere", "large")) == (0, 3)
    cache.forget(PLANNED)
    assert cache.moving == 1
