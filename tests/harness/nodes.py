"""The cluster's nodes: create fleets of them, let their kubelets die and come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.client import CONFLICT, NOT_FOUND
from typing import Any, Literal, TypeVar

from tests.harness.api import Api, ApiError, Manifest
from tests.harness.stages import DEAD, KUBELET, PREFIX
from tests.harness.waiting import wait_for

_NODES = "/api/v1/nodes"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_NOT_READY_TAINTS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
_HOLDER = f"{PREFIX}holder"
_NOBODY = "nobody: this kubelet is dead"
_FOREVER_SECONDS = 10 * 365 * 24 * 3600
_PARALLEL = 16
_MANY = 50
_PASSED_OVER_SECONDS = 10.0

Item = TypeVar("Item")


class Nodes:
    """What a test does to nodes.

    A kubelet is dead while somebody else holds its node's lease, for ten years: kwok then renews
    nothing and plays neither the node nor its pods, so that a deleted pod stays Terminating, as on
    a real dead node. kwok learns of the lease a moment later; so the node and the pods that are
    there get an annotation too, in a write of their own before anything else changes. The taints
    are added by the real controller manager.
    """

    def __init__(self, api: Api, lease_duration_seconds: int) -> None:
        self._api = api
        self._lease_duration_seconds = lease_duration_seconds

    def create(
        self, manifests: Iterable[Manifest], *, wait: bool = True, timeout: float = 60.0
    ) -> list[str]:
        """Create the nodes, several at a time; return their names when all are Ready and
        schedulable.

        Those made with `ready=False` stay NotReady and are not waited for.
        """
        nodes = list(manifests)
        # The lease of an earlier node of the same name would hold kwok off until its next round.
        leases = {lease["metadata"]["name"] for lease in self._api.get(_LEASES)["items"]}
        stale = leases & {node["metadata"]["name"] for node in nodes}
        _in_parallel(lambda name: self._api.delete(f"{_LEASES}/{name}", missing_ok=True), stale)
        _in_parallel(self._create, nodes)
        names = [node["metadata"]["name"] for node in nodes]
        if wait:
            expected = {node["metadata"]["name"] for node in nodes if not _is_made_dead(node)}
            # Each look lists all nodes: seldom, where they are many.
            interval = 0.05 if len(nodes) < _MANY else 1.0
            wait_for(
                self._usable_or_woken(expected),
                timeout,
                f"{len(expected)} nodes to be Ready",
                interval,
            )
        return names

    def _usable_or_woken(self, expected: set[str]) -> Callable[[], bool]:
        """Return the look at nodes that have just been created, which wakes kwok for those that it
        passes over.

        Now and then it does so for one whose name was that of a node which was deleted a moment
        before. Why is not known; assumed, it takes the lease of the former one for its own. As in
        :meth:`set_ready`, it looks at what changes.
        """
        woken_at = time.monotonic()

        def look() -> bool:
            nonlocal woken_at
            try:
                return self._all_usable(expected)
            except AssertionError:
                if time.monotonic() >= woken_at + _PASSED_OVER_SECONDS:
                    woken_at = time.monotonic()
                    _in_parallel(self._wake, [name for name in expected if not self.is_ready(name)])
                raise

        return look

    def _wake(self, name: str) -> None:
        self._api.delete(f"{_LEASES}/{name}", missing_ok=True)
        self._set_kubelet(f"{_NODES}/{name}", f"alive at {_now()}")

    def get(self, name: str) -> Manifest:
        node: Manifest = self._api.get(f"{_NODES}/{name}")
        return node

    def names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self._api.get(_NODES)["items"]]

    def is_ready(self, name: str) -> bool:
        return _ready_status(self.get(name)) == "True"

    def set_not_ready(self, name: str, status: Literal["Unknown", "False"] = "Unknown") -> None:
        """The kubelet dies (Unknown), or reports that it cannot run pods (False). It stays so until
        `set_ready`.

        With Unknown the node's pods become not ready too, as the controller manager does it to the
        pods of a lost node.
        """
        self._take_lease(name)
        self._set_kubelet(f"{_NODES}/{name}", DEAD)
        self._report(name, status)
        pods = self._pods_on(name)
        _in_parallel(lambda pod: self._set_kubelet(_pod_path(pod), DEAD), pods)
        if status == "Unknown":
            _in_parallel(self._mark_not_ready, pods)

    def set_ready(self, name: str, timeout: float = 30.0) -> None:
        """The kubelet is back: it reports Ready, and sees to the pods that changed while it was
        away.
        """
        lease = self._api.get(f"{_LEASES}/{name}")
        holder = lease["metadata"].get("annotations", {}).get(_HOLDER)
        if (
            holder is None
        ):  # made dead from the start: kwok never held it, and takes a lease without a holder
            self._api.delete(f"{_LEASES}/{name}", missing_ok=True)
        else:
            held = {
                "holderIdentity": holder,
                "leaseDurationSeconds": self._lease_duration_seconds,
                "renewTime": _now(),
            }
            self._api.patch(f"{_LEASES}/{name}", {"spec": held})

        def reports_ready() -> bool:
            # kwok looks at what changes, but looks away as long as it has not seen that the lease
            # is its own again.
            self._set_kubelet(f"{_NODES}/{name}", f"alive at {_now()}")
            return self.is_ready(name)

        wait_for(reports_ready, timeout, f"node {name} to be Ready again", interval=0.2)
        _in_parallel(
            lambda pod: self._set_kubelet(_pod_path(pod), f"alive at {_now()}"), self._pods_on(name)
        )
        wait_for(lambda: self._all_usable({name}), timeout, f"node {name} to lose its taints")

    def cordon(self, name: str) -> None:
        self._api.patch(f"{_NODES}/{name}", {"spec": {"unschedulable": True}})

    def uncordon(self, name: str) -> None:
        self._api.patch(f"{_NODES}/{name}", {"spec": {"unschedulable": None}})

    def delete(self, *names: str) -> None:
        """The Node objects go. Pods stay bound to them until the controller manager collects them,
        as in a real cluster.
        """
        _in_parallel(self._delete, names)

    def delete_with_pods(self, *names: str) -> None:
        """Nodes and their pods, at once: for cleaning up."""

        def clean(name: str) -> None:
            self._delete(name)
            for pod in self._pods_on(name):
                self._api.delete(_pod_path(pod), grace_period_seconds=0, missing_ok=True)

        _in_parallel(clean, names)

    def _create(self, node: Manifest) -> None:
        name = node["metadata"]["name"]
        if _is_made_dead(node):
            self._api.create(_LEASES, {"metadata": {"name": name}, "spec": _dead_lease()})
        self._api.create(_NODES, node)
        if _is_made_dead(node):
            self._report(name, "Unknown")

    def _delete(self, name: str) -> None:
        self._api.delete(f"{_NODES}/{name}", missing_ok=True)
        self._api.delete(f"{_LEASES}/{name}", missing_ok=True)

    def _take_lease(self, name: str) -> None:
        """Take the lease from kwok, remembering kwok's name; kwok may renew in between (409)."""

        def taken() -> bool:
            lease = self._api.get(f"{_LEASES}/{name}")
            if lease["spec"].get("holderIdentity") == _NOBODY:
                return True
            lease["metadata"].setdefault("annotations", {})[_HOLDER] = lease["spec"][
                "holderIdentity"
            ]
            lease["spec"].update(_dead_lease())
            try:
                self._api.replace(f"{_LEASES}/{name}", lease)
            except ApiError as error:
                if error.status != CONFLICT:
                    raise
                return False
            return True

        wait_for(taken, 10, f"the lease of node {name}")

    def _report(self, name: str, status: Literal["Unknown", "False"]) -> None:
        reason, message = {
            "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            "False": ("KubeletNotReady", "container runtime is down"),
        }[status]
        condition = {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": _now(seconds=True),
        }
        self._api.patch(
            f"{_NODES}/{name}/status", {"status": {"conditions": [condition]}}, "strategic"
        )

    def _mark_not_ready(self, pod: Manifest) -> None:
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": _now(seconds=True)}
        try:
            self._api.patch(
                f"{_pod_path(pod)}/status", {"status": {"conditions": [condition]}}, "strategic"
            )
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def _set_kubelet(self, path: str, state: str) -> None:
        try:
            self._api.patch(path, {"metadata": {"annotations": {KUBELET: state}}})
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def _pods_on(self, name: str) -> list[Manifest]:
        pods: list[Manifest] = self._api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")[
            "items"
        ]
        return pods

    def _all_usable(self, expected: set[str]) -> bool:
        nodes = {node["metadata"]["name"]: node for node in self._api.get(_NODES)["items"]}
        unusable = sorted(name for name in expected if not _is_usable(nodes[name]))
        assert not unusable, (
            f"{len(unusable)} of {len(expected)} are not: {', '.join(unusable[:10])}"
        )
        return True


def _in_parallel(function: Callable[[Item], Any], items: Iterable[Item]) -> None:
    with ThreadPoolExecutor(_PARALLEL) as pool:
        list(pool.map(function, items))


def _is_made_dead(node: Manifest) -> bool:
    return bool(node["metadata"].get("annotations", {}).get(KUBELET) == DEAD)


def _ready_status(node: Manifest) -> str:
    conditions = node["status"].get("conditions", [])
    return next(
        (str(condition["status"]) for condition in conditions if condition["type"] == "Ready"), ""
    )


def _is_usable(node: Manifest) -> bool:
    taints = {taint["key"] for taint in node["spec"].get("taints", [])}
    return _ready_status(node) == "True" and not taints & _NOT_READY_TAINTS


def _dead_lease() -> Manifest:
    return {
        "holderIdentity": _NOBODY,
        "leaseDurationSeconds": _FOREVER_SECONDS,
        "renewTime": _now(),
    }


def _now(*, seconds: bool = False) -> str:
    """Now in the form of `Time` (whole seconds) or `MicroTime`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ" if seconds else "%Y-%m-%dT%H:%M:%S.%fZ")


def _pod_path(pod: Manifest) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
