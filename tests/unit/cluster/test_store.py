"""The store: answers by key, counts as it goes, and says whom a change concerns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.cluster.handover import Change
from shardwright.cluster.ledger import Ledger
from shardwright.cluster.sources import PodFacts
from shardwright.cluster.store import Changes, Store
from shardwright.hardware.devices import DeviceUsage, read_device_class, read_slice
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import Reservation, read_node
from shardwright.reconcile.observed import STATEFUL_SET
from tests.harness.gpu_devices import DRIVER, a_device_class, a_slice
from tests.support.builders_nodes import a_node, an_mi300x_node, bare_node
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

LLAMA, QWEN = ("models", "llama"), ("models", "qwen")
SET = STATEFUL_SET


def member(name: str, **options: Any) -> dict[str, Any]:
    return a_pod(name, model="llama", set_name="llama-0", node="a", gpus=8, **options)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def store(ledger: Ledger) -> Store:
    """One group of two pods of llama on the node a, and a free node b."""
    made = Store(ledger)
    made.take_nodes(nodes(a_node("a"), a_node("b")))
    made.take_children(SET, children(a_set("llama-0", version=10)))
    made.take_children("Service", children(a_service("llama")))
    made.take_pods(pods(member("llama-0-1"), member("llama-0-0")))
    return made


def test_nodes_are_there_by_name_with_or_without_what_can_be_planned() -> None:
    store = Store(Ledger())
    shared = a_node("shared", labels={"nvidia.com/gpu.replicas": "4"})
    affected = store.take_nodes(nodes(a_node("a"), shared, {"metadata": {"name": "cpu"}}))
    assert store.nodes.keys() == {"a", "shared"}
    assert store.nodes["a"] == read_node(a_node("a"))
    assert isinstance(store.nodes["shared"], NodeExclusion)
    assert affected == Changes(nodes=frozenset({"a", "shared"}), freed=frozenset({"a"}))


def test_a_node_that_changes_or_goes_concerns_whoever_stands_on_it(store: Store) -> None:
    assert store.take_nodes(nodes(a_node("a"))) == Changes()
    assert store.take_nodes(nodes(a_node("a", cordoned=True))) == Changes(
        nodes=frozenset("a"), freed=frozenset("a")
    )
    assert store.take_nodes(nodes(gone=("a", "never"))) == Changes(nodes=frozenset("a"))
    assert store.nodes.keys() == {"b"}


def test_a_node_whose_kubelet_is_silent_is_known_and_not_ready(store: Store) -> None:
    store.take_nodes(nodes(a_node("a", ready=False)))
    assert not store.nodes["a"].ready
    store.take_nodes(nodes(a_node("a")))
    assert store.nodes["a"].ready


def test_a_node_that_slices_give_gpus_to_concerns_who_waits_for_some() -> None:
    store = Store(Ledger())
    assert store.take_nodes(nodes(bare_node("dra"))) == Changes()
    classes = {("", DRIVER): Change(read_device_class(a_device_class("nvidia.com/gpu")), 1)}
    assert store.take_device_classes(classes) == Changes()
    slices = {("", "s"): Change(read_slice(a_slice("dra")), 1)}
    assert store.take_slices(slices) == Changes(nodes=frozenset({"dra"}), freed=frozenset({"dra"}))
    assert isinstance(store.nodes["dra"], NodeFacts)
    assert store.take_slices({("", "s"): Change(None, 2)}) == Changes(nodes=frozenset({"dra"}))
    assert store.nodes == {}


def claims(**held: DeviceUsage | None) -> dict[tuple[str, str], Change[DeviceUsage]]:
    return {("models", name): Change(usage, 1) for name, usage in held.items()}


OF_MEMBER = DeviceUsage(node="b", gpus=2, pod="llama-0-1", pod_uid="uid-of-llama-0-1")


class TestClaims:
    def test_gpus_that_nobodys_claim_holds_are_taken_until_it_goes(
        self, store: Store, ledger: Ledger
    ) -> None:
        assert store.take_claims(claims(theirs=DeviceUsage(node="b", gpus=8))) == Changes()
        assert ledger.taken() == {"a": 16, "b": 8}
        assert store.take_claims(claims(theirs=None)) == Changes(freed=frozenset({"b"}))
        assert ledger.taken() == {"a": 16}

    def test_what_the_pod_of_a_model_claims_is_the_models(
        self, store: Store, ledger: Ledger
    ) -> None:
        store.take_claims(claims(gpus=OF_MEMBER))
        assert ledger.taken() == {"a": 16, "b": 2}
        assert ledger.taken(LLAMA) == Counter()

    def test_a_claim_that_is_heard_of_before_its_pod_and_its_set_is_booked_anew(self) -> None:
        ledger = Ledger()
        store = Store(ledger)
        store.take_claims(claims(gpus=OF_MEMBER))
        assert ledger.taken(LLAMA) == {"b": 2}
        store.take_pods(pods(member("llama-0-1")))
        assert ledger.taken(LLAMA) == {"a": 8, "b": 2}
        store.take_children(SET, children(a_set("llama-0", version=10)))
        assert ledger.taken(LLAMA) == Counter()

    def test_a_claim_that_names_a_pod_of_another_uid_is_nobodys(
        self, store: Store, ledger: Ledger
    ) -> None:
        store.take_claims(claims(forged=replace(OF_MEMBER, pod_uid="forged")))
        assert ledger.taken(LLAMA) == {"b": 2}

    def test_on_a_node_of_slices_claims_hold_gpus_and_requests_none(
        self, store: Store, ledger: Ledger
    ) -> None:
        """The scheduler makes a claim for a request; for who names the node, nobody does."""
        asking = a_pod("theirs", node="dra", gpus=8)
        store.take_pods(pods(asking))
        assert ledger.taken() == {"a": 16, "dra": 8}  # nothing is known of the node yet
        assert with_slices(store, "dra").freed == {"dra"}
        assert ledger.taken() == {"a": 16}
        store.take_claims(claims(made=DeviceUsage(node="dra", gpus=2, pod="theirs")))
        assert ledger.taken() == {"a": 16, "dra": 2}
        store.take_nodes(nodes(a_node("dra")))  # a device plugin has come
        assert ledger.taken() == {"a": 16, "dra": 10}


def with_slices(store: Store, node: str) -> Changes:
    """Have slices say which GPUs a node has; return whom that concerns."""
    made = read_device_class(a_device_class("nvidia.com/gpu"))
    store.take_nodes(nodes(bare_node(node)))
    store.take_device_classes({("", DRIVER): Change(made, 1)})
    return store.take_slices({("", "s"): Change(read_slice(a_slice(node)), 1)})


def test_a_request_of_what_its_node_does_not_offer_takes_nothing_of_it(
    store: Store, ledger: Ledger
) -> None:
    """A tenant who names the node of a pod is asked by nobody whether it fits."""
    store.take_nodes(nodes(an_mi300x_node("amd")))
    asking = a_pod("theirs", node="amd", gpus=8)
    store.take_pods(pods(asking))
    assert ledger.taken() == {"a": 16}
    requests = asking["spec"]["containers"][0]["resources"]["requests"]
    requests["amd.com/gpu"] = "3"
    store.take_pods(pods(asking))
    assert ledger.taken() == {"a": 16, "amd": 3}


def test_members_are_there_by_the_uid_of_their_stateful_set_in_rank_order(store: Store) -> None:
    assert [member.name for member in store.members(("models", "uid-of-llama-0"))] == [
        "llama-0-0",
        "llama-0-1",
    ]
    assert store.members(("models", "another")) == ()


def test_a_pod_that_only_says_that_it_is_of_a_model_is_a_stranger(store: Store) -> None:
    labelled, of_no_set = (
        a_pod("labelled", model="llama"),
        a_pod("llama-1-0", model="llama", set_name="llama-1"),
    )
    forged = a_pod("llama-0-7", model="llama", set_name="llama-0", set_uid="forged")
    of_no_rank = a_pod("llama-0-999999", model="llama", set_name="llama-0")
    store.take_pods(pods(labelled, of_no_set, forged, of_no_rank))
    names = ("labelled", "llama-1-0", "llama-0-7", "llama-0-999999")
    assert store.strangers(LLAMA) == tuple(("models", name) for name in names)
    assert [member.rank for member in store.members(("models", "uid-of-llama-0"))] == [0, 1]


def test_what_another_namespace_writes_of_owners_is_nobodys_here(
    store: Store, ledger: Ledger
) -> None:
    """A reference has a name and a uid: whoever knows them may write them anywhere."""
    evil = a_pod("llama-0-2", model="llama", set_name="llama-0", node="b", namespace="evil", gpus=8)
    forged = a_set("llama-0", uid="forged", namespace="evil")
    record = a_config_map("llama-plan", "llama", namespace="evil")
    before = store.children(("models", "uid-of-llama"))
    store.take_pods(pods(evil))
    store.take_children(SET, children(forged))
    store.take_config_maps(config_maps(record))
    assert [member.rank for member in store.members(("models", "uid-of-llama-0"))] == [0, 1]
    assert store.children(("models", "uid-of-llama")) == before
    assert store.config_maps(("models", "uid-of-llama")) == {}
    assert ledger.taken(LLAMA) == {"b": 8}
    assert store.strangers(("evil", "llama")) == (("evil", "llama-0-2"),)


def test_pods_of_a_stateful_set_that_nobody_of_ours_controls_are_strangers(store: Store) -> None:
    store.take_children(SET, children(a_set("theirs", owner="")))
    store.take_pods(pods(a_pod("theirs-0", model="llama", set_name="theirs")))
    assert store.strangers(LLAMA) == (("models", "theirs-0"),)


def test_the_ledger_is_told_what_pods_hold(ledger: Ledger, store: Store) -> None:
    store.take_pods(pods(a_pod("foreign", node="b", gpus=3)))
    assert ledger.taken() == {"a": 16, "b": 3}
    assert ledger.taken(LLAMA) == {"b": 3}
    store.take_pods(pods(gone=(("models", "foreign"), ("models", "llama-0-1"))))
    assert ledger.taken() == {"a": 8}


def test_only_what_a_live_stateful_set_of_a_model_controls_counts_as_that_models(
    ledger: Ledger, store: Store
) -> None:
    """A pod that says that it is of a later generation would make the real ones former ones, which
    count beside it.
    """
    ledger.keep(LLAMA, (Reservation(owner=LLAMA, node="a", gpus=16, group="llama-0"),))
    labels = {"shardwright.io/model": "llama", "shardwright.io/group": "llama-0-g7"}
    store.take_pods(pods(a_pod("liar", model="llama", set_name="llama-0-g7", node="a", gpus=1)))
    store.take_pods(pods(member("llama-0-0", labels=labels)))
    assert ledger.taken() == {"a": 17}
    assert ledger.taken(LLAMA) == {"a": 1}


def test_a_pod_that_comes_before_its_stateful_set_counts_as_its_models_once_that_is_known(
    ledger: Ledger, store: Store
) -> None:
    ledger.keep(LLAMA, (Reservation(owner=LLAMA, node="b", gpus=8, group="llama-1"),))
    store.take_pods(pods(a_pod("llama-1-0", model="llama", set_name="llama-1", node="b", gpus=8)))
    assert ledger.taken() == {"a": 16, "b": 16}
    assert store.take_children(SET, children(a_set("llama-1"))) == Changes(
        models=frozenset({LLAMA}), freed=frozenset("b")
    )
    assert ledger.taken() == {"a": 16, "b": 8}


def test_pods_whose_stateful_set_goes_before_them_are_their_models_to_the_end(
    ledger: Ledger, store: Store
) -> None:
    store.take_children(SET, {("models", "llama-0"): Change(None, 0)})
    store.take_pods(pods(member("llama-0-0", deletionTimestamp="2026-01-02T12:00:00Z")))
    assert (ledger.taken(), ledger.taken(LLAMA)) == ({"a": 16}, {})
    store.take_pods(pods(gone=(("models", "llama-0-0"), ("models", "llama-0-1"))))
    assert ledger.taken() == {}


def test_a_pod_that_ends_frees_its_node_and_one_that_starts_frees_nothing(store: Store) -> None:
    assert store.take_pods(pods(a_pod("foreign", node="b", gpus=3))) == Changes()
    assert store.take_pods(pods(gone=(("models", "foreign"),))) == Changes(freed=frozenset("b"))


def test_the_nodes_have_a_new_version_when_one_has_changed_and_only_then(store: Store) -> None:
    seen = [store.node_version]

    def news() -> bool:
        seen.append(store.node_version)
        return seen[-1] > seen[-2]

    store.take_pods(pods(a_pod("foreign", node="b", gpus=3)))
    store.take_nodes(nodes(a_node("a")))
    store.take_children(SET, children(a_set("llama-0", replicas=5)))
    assert not news()
    store.take_nodes(nodes(a_node("a", cordoned=True)))
    assert news()
    store.take_nodes(nodes(gone=("a",)))
    assert news()


def test_a_model_has_a_new_version_when_something_of_it_has_changed_and_only_then(
    store: Store,
) -> None:
    store.follow(LLAMA)
    seen = [store.version_of(LLAMA)]

    def news() -> bool:
        seen.append(store.version_of(LLAMA))
        return seen[-1] > seen[-2]

    store.take_pods(
        pods(member("llama-0-0"), a_pod("foreign", node="b", gpus=3), a_pod("q", model="qwen"))
    )
    store.take_nodes(nodes(a_node("a", cordoned=True)))
    store.take_config_maps(config_maps(a_config_map("theirs")))
    same = store.child("Service", "models", "llama")
    assert same
    store.take_children("Service", {("models", "llama"): Change(same, same.version + 1)})
    assert not news()
    store.take_pods(pods(member("llama-0-0", ready=False)))
    assert news()
    store.take_children(SET, children(a_set("llama-0", replicas=5)))
    assert news()
    store.take_config_maps(config_maps(a_config_map("record", "llama")))
    assert news()


def test_members_of_a_model_are_there_by_its_label_too(store: Store) -> None:
    store.take_pods(
        pods(a_pod("llama-7-0", model="llama", set_name="llama-7"), a_pod("alone", model="llama"))
    )
    assert {member.name for member in store.members_of(LLAMA)} == {
        "llama-0-0",
        "llama-0-1",
        "llama-7-0",
    }


def test_a_change_of_a_member_concerns_its_model_and_what_is_worse_hurts_it(store: Store) -> None:
    assert store.take_pods(pods(member("llama-0-0"))) == Changes()
    assert store.take_pods(pods(member("llama-0-0", ready=False))) == Changes(
        models=frozenset({LLAMA}), hurt=frozenset({LLAMA})
    )
    assert store.take_pods(pods(member("llama-0-0"))) == Changes(models=frozenset({LLAMA}))
    gone = store.take_pods(pods(gone=(("models", "llama-0-0"),)))
    assert gone == Changes(models=frozenset({LLAMA}), hurt=frozenset({LLAMA}), freed=frozenset("a"))


@pytest.mark.parametrize(
    ("status", "worse"),
    [
        ({"containerStatuses": [{"name": "e", "restartCount": 1, "state": {"running": {}}}]}, True),
        ({"phase": "Failed", "reason": "Evicted"}, True),
        (
            {
                "containerStatuses": [
                    {"name": "e", "restartCount": 0, "state": {"running": {}}, "started": True}
                ]
            },
            False,
        ),
    ],
    ids=["restarted", "evicted", "started"],
)
def test_a_member_that_fails_is_worse(
    store: Store,
    status: dict[str, Any],
    worse: bool,  # noqa: FBT001
) -> None:
    pod = member("llama-0-0")
    pod["status"] |= status
    assert store.take_pods(pods(pod)).hurt == (frozenset({LLAMA}) if worse else frozenset())


def test_a_member_that_fails_once_more_in_the_same_way_is_worse(store: Store) -> None:
    for restarts in (1, 2, 3):
        pod = member("llama-0-0")
        ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
        container: dict[str, Any] = {
            "name": "engine",
            "restartCount": restarts,
            "state": {"running": {}},
            "lastState": ended,
        }
        pod["status"]["containerStatuses"] = [container]
        assert store.take_pods(pods(pod)).hurt == {LLAMA}


def test_a_member_that_is_deleted_or_replaced_is_worse(store: Store) -> None:
    deleted = member("llama-0-0", deletionTimestamp="2026-01-02T12:00:00Z")
    assert store.take_pods(pods(deleted)).hurt == {LLAMA}
    assert store.take_pods(pods(member("llama-0-1", uid="new"))).hurt == {LLAMA}


def test_a_pod_concerns_the_model_that_controls_it_and_the_one_that_it_names(store: Store) -> None:
    liar = a_pod("llama-0-2", model="qwen", set_name="llama-0", node="a", gpus=8)
    assert store.take_pods(pods(liar)).models == {LLAMA, QWEN}


def test_a_model_with_a_long_name_goes_by_its_base() -> None:
    store = Store(Ledger())
    affected = store.take_children(SET, children(a_set("x", owner="qwen2.5-7b")))
    assert affected.models == {("models", "qwen2-5-7b-5f5e975ce4")}


def test_children_are_there_by_name_and_by_the_uid_of_their_model(store: Store) -> None:
    store.take_children("Service", children(a_service("theirs", owner="")))
    assert {child.name for child in store.children(("models", "uid-of-llama"))} == {
        "llama-0",
        "llama",
    }
    theirs = store.child("Service", "models", "theirs")
    assert theirs is not None
    assert theirs.owner_uid == ""
    assert store.child(SET, "models", "never") is None


def test_a_child_that_changes_its_owner_goes_by_the_new_one_and_concerns_both(store: Store) -> None:
    affected = store.take_children(SET, children(a_set("llama-0", owner="qwen")))
    assert affected.models == {LLAMA, QWEN}
    assert {child.name for child in store.children(("models", "uid-of-llama"))} == {"llama"}
    assert {child.name for child in store.children(("models", "uid-of-qwen"))} == {"llama-0"}


def test_a_child_that_is_gone_is_nowhere(store: Store) -> None:
    affected = store.take_children(SET, {("models", "llama-0"): Change(None, 11)})
    assert affected.models == {LLAMA}
    assert store.child(SET, "models", "llama-0") is None
    assert store.strangers(LLAMA) == (("models", "llama-0-1"), ("models", "llama-0-0"))
    assert store.take_children(SET, {("models", "llama-0"): Change(None, 12)}) == Changes()


def test_a_kind_that_goes_takes_its_objects_along_whatever_their_version(store: Store) -> None:
    store.take_children(SET, {("models", "llama-0"): Change(None, 0)})
    assert store.child(SET, "models", "llama-0") is None


def test_a_stateful_set_that_was_made_anew_has_the_new_uid(store: Store) -> None:
    store.take_children(SET, children(a_set("llama-0", uid="new")))
    store.take_pods(pods(a_pod("llama-0-0", model="llama", set_name="llama-0", set_uid="new")))
    assert store.strangers(LLAMA) == (("models", "llama-0-1"),)


def test_what_we_wrote_is_seen_at_once_and_its_event_is_no_news(store: Store) -> None:
    written = a_set("llama-0", replicas=0, version=20)
    store.wrote(written)
    child = store.child(SET, "models", "llama-0")
    assert child is not None
    assert child.content()["spec"] == {"replicas": 0}
    assert store.take_children(SET, children(written)) == Changes()


def test_who_reads_a_kind_is_told_of_what_we_wrote(store: Store) -> None:
    told: list[tuple[object, int]] = []
    store.tell_writes(SET, None, lambda key, version: told.append((key, version)))
    store.wrote(a_set("llama-0", version=20))
    store.wrote(a_config_map("record", "llama", version=21))
    assert told == [(("models", "llama-0"), 20)]


def test_an_event_from_before_what_we_wrote_undoes_nothing(store: Store) -> None:
    written = a_set("llama-0", replicas=0, version=20)
    store.wrote(written)
    assert store.take_children(SET, children(a_set("llama-0", replicas=5, version=19))) == Changes()
    assert store.take_children(SET, {("models", "llama-0"): Change(None, 19)}) == Changes()
    assert store.child(SET, "models", "llama-0") is not None
    assert store.take_children(SET, children(a_set("llama-0", replicas=5, version=21))).models == {
        LLAMA
    }


def test_config_maps_are_there_by_name_and_by_the_uid_of_their_model(store: Store) -> None:
    affected = store.take_config_maps(
        config_maps(a_config_map("record", "llama", version=5), a_config_map("theirs", version=5))
    )
    both = frozenset({("models", "record"), ("models", "theirs")})
    assert affected == Changes(models=frozenset({LLAMA}), config_maps=both)
    assert store.config_maps(("models", "uid-of-llama")).keys() == {("models", "record")}
    assert store.config_map(("models", "theirs")) is not None
    assert store.take_config_maps(config_maps(a_config_map("theirs", version=5))) == Changes()
    changed = store.take_config_maps(config_maps(a_config_map("theirs", version=6)))
    assert changed == Changes(config_maps=frozenset({("models", "theirs")}))


def test_a_record_that_we_wrote_is_seen_at_once_and_no_event_from_before_undoes_it(
    store: Store,
) -> None:
    store.wrote(a_config_map("record", "llama", version=20))
    assert (
        store.take_config_maps(config_maps(a_config_map("record", "llama", version=19)))
        == Changes()
    )
    facts = store.config_map(("models", "record"))
    assert facts is not None
    assert facts.version == "20"
    store.take_config_maps({("models", "record"): Change(None, 21)})
    assert store.config_maps(("models", "uid-of-llama")) == {}


_pods = st.builds(
    lambda name, model, node, gpus, ready, owner: a_pod(
        f"{owner or 'x'}-{name}", model=model, node=node, gpus=gpus, ready=ready, set_name=owner
    ),
    name=st.integers(0, 3),
    model=st.sampled_from(["", "llama", "qwen"]),
    node=st.sampled_from(["", "a", "b", "c"]),
    gpus=st.integers(0, 8),
    ready=st.booleans(),
    owner=st.sampled_from(["", "llama-0", "qwen-0"]),
)
_gone = st.tuples(
    st.just("models"),
    st.sampled_from(
        [f"{owner}-{name}" for owner in ("x", "llama-0", "qwen-0") for name in range(4)]
    ),
)


@given(st.lists(st.one_of(_pods, _gone), max_size=60))
def test_what_is_counted_as_changes_come_is_what_counting_anew_would_say(
    history: list[Any],
) -> None:
    ledger = Ledger()
    store = Store(ledger)
    live: dict[tuple[str, str], PodFacts | None] = {}
    store.take_children(SET, children(a_set("llama-0"), a_set("qwen-0", owner="qwen")))
    for step in history:
        changes = pods(gone=(step,)) if isinstance(step, tuple) else pods(step)
        store.take_pods(changes)
        live |= {key: change.value for key, change in changes.items()}
        there = {key: facts for key, facts in live.items() if facts}
        kept = there.values()
        held = [usage for facts in kept for usage in facts.usage]
        assert ledger.taken() == sum(
            (Counter({usage.node: usage.gpus}) for usage in held), Counter()
        )
        for name in ("llama-0", "qwen-0"):
            controlled = {
                facts.member.name
                for facts in kept
                if facts.member and facts.set_uid == f"uid-of-{name}"
            }
            assert {
                member.name for member in store.members(("models", f"uid-of-{name}"))
            } == controlled
        for model in (LLAMA, QWEN):
            named = {
                key for key, facts in there.items() if facts.model == model[1] and not facts.member
            }
            assert set(store.strangers(model)) == named
