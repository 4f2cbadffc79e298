"""Which pods a disruption budget counts."""

from datetime import timedelta
from typing import Any

import pytest

from shardwright.reconcile.annotations import READY_ONCE, SIZE
from shardwright.reconcile.members import read_member
from shardwright.reconcile.observed import Observed, object_key
from shardwright.reconcile.protected import protected_pods
from tests.support.builders_reconcile import NOON, OWNER_UID, pod, stateful_set

START_SECONDS = 600


def live_set(name: str, replicas: int, **annotations: str) -> dict[str, Any]:
    live = stateful_set(name)
    live["metadata"] |= {"uid": f"uid-of-{name}", "annotations": annotations}
    return {**live, "spec": {**live["spec"], "replicas": replicas}}


def once_ready(name: str, replicas: int, **annotations: str) -> dict[str, Any]:
    return live_set(name, replicas, **{READY_ONCE: "true"} | annotations)


def ready(*names: str) -> list[dict[str, Any]]:
    return [pod(name, ready=True, set_uid=f"uid-of-{name.rpartition('-')[0]}") for name in names]


@pytest.mark.parametrize(
    ("sets", "pods", "counted"),
    [
        ([once_ready("llama-0", 2), once_ready("llama-1", 2)], [], 4),
        ([once_ready("llama-0", 0), once_ready("llama-1", 2)], [], 3),
        ([once_ready("llama-0", 0, **{SIZE: "2"}), once_ready("llama-1", 2)], [], 4),
        ([once_ready("llama-0", 2), once_ready("llama-0-g1", 2)], [], 4),
        ([once_ready("llama-0", 2), once_ready("llama-0-g1", 0, **{SIZE: "2"})], [], 2),
        ([once_ready("llama-0", 1), live_set("llama-1", 1)], [], 1),
        ([once_ready("llama-0", 1), live_set("llama-1", 1)], ready("llama-1-0"), 2),
        ([once_ready("llama-0", 1)], ready("llama-0-0", "llama-1-0"), 2),
        ([], [], 0),
    ],
    ids=[
        "as they stand",
        "one at zero that remembers no size",
        "one at zero",
        "both generations, while both may serve",
        "a former generation instead of the next one",
        "one that finds no place",
        "one that serves after all",
        "pods whose group has gone",
        "none",
    ],
)
def test_all_pods_that_may_be_ready_together_are_counted(
    sets: list[dict[str, Any]], pods: list[dict[str, Any]], counted: int
) -> None:
    members = tuple(member for item in pods if (member := read_member(item)))
    observed = Observed(objects={object_key(live): live for live in sets}, members=members)
    assert protected_pods(observed, OWNER_UID, 1, START_SECONDS, NOON) == counted


@pytest.mark.parametrize(("seconds", "counted"), [(0, 2), (START_SECONDS, 0)])
def test_a_group_that_starts_counts_before_it_serves_and_not_for_ever(
    seconds: int, counted: int
) -> None:
    live = live_set("llama-0", 2)
    observed = Observed(
        objects={object_key(live): live}, starting_since={live["metadata"]["uid"]: NOON}
    )
    now = NOON + timedelta(seconds=seconds)
    assert protected_pods(observed, OWNER_UID, 2, START_SECONDS, now) == counted
