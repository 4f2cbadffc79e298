"""Everything that the invariants look at, as a real API server has it now."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tests.harness.api import ApiError
from tests.harness.controlplane import ControlPlane
from tests.harness.leases import SYSTEM
from tests.harness.waiting import wait_for
from tests.support import invariants
from tests.support.invariants import Manifest

READ: Final = {
    "StatefulSet": "/apis/apps/v1/{}statefulsets",
    "Service": "/api/v1/{}services",
    "ConfigMap": "/api/v1/{}configmaps",
    "ShardedModel": "/apis/shardwright.io/v1alpha1/{}shardedmodels",
    "PodDisruptionBudget": "/apis/policy/v1/{}poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/{}networkpolicies",
    "ControllerRevision": "/apis/apps/v1/{}controllerrevisions",
    "Pod": "/api/v1/{}pods",
}
"""Kinds of a namespace, by path; models after the plans of record, which may outlive them."""

PAUSE_SECONDS: Final = 0.5


def snapshot(control_plane: ControlPlane, namespace: str) -> list[Manifest]:
    """Return what there is in a namespace, the nodes, and the Lease; pods before their nodes, which
    are there for longer.
    """
    paths = {kind: path.format(f"namespaces/{namespace}/") for kind, path in READ.items()}
    paths |= {
        "Node": "/api/v1/nodes",
        "Lease": f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases",
    }
    found = {kind: control_plane.api.get(path) for kind, path in paths.items()}
    return [
        {"kind": kind, "apiVersion": it["apiVersion"], **item}
        for kind, it in found.items()
        for item in it["items"]
    ]


def wait_for_rest(
    control_plane: ControlPlane, namespace: str, seconds: float = 60
) -> list[Manifest]:
    """Return what there is once every invariant holds."""

    def rests() -> list[Manifest]:
        found = snapshot(control_plane, namespace)
        broken = invariants.at_rest(found)
        assert not broken, "; ".join(broken)
        return found

    return wait_for(rests, seconds, f"every invariant to hold in {namespace}", interval=0.2)


@contextmanager
def watching(control_plane: ControlPlane, namespace: str) -> Iterator[list[str]]:
    """Look all the time, and add to what is yielded whatever must never be so, once each."""
    over, broken = threading.Event(), list[str]()

    def look() -> None:
        while not over.wait(PAUSE_SECONDS):
            with suppress(ApiError):  # the next reconcile is half a second later
                found = invariants.at_any_moment(snapshot(control_plane, namespace))
                broken.extend(what for what in found if what not in broken)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield broken
    finally:
        over.set()
        thread.join()


@contextmanager
def watched(control_plane: ControlPlane, namespace: str) -> Iterator[None]:
    """Look all the time whether something is so that must never be."""
    with watching(control_plane, namespace) as broken:
        yield
    assert not broken, "; ".join(broken)
