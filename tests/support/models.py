"""ShardedModels on the control plane, and what became of them."""

from __future__ import annotations

from typing import Any

from tests.harness.api import ApiError, Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for
from tests.support.operator import OPERATOR_USER
from tests.support.said import condition_in

SMALL = "meta-llama/Llama-3.1-8B-Instruct"
LARGE = "meta-llama/Llama-3.1-405B-Instruct"
PATHS = {
    "ShardedModel": "/apis/shardwright.io/v1alpha1",
    "StatefulSet": "/apis/apps/v1",
    "ControllerRevision": "/apis/apps/v1",
    "PodDisruptionBudget": "/apis/policy/v1",
    "NetworkPolicy": "/apis/networking.k8s.io/v1",
    "ComputeDomain": "/apis/resource.nvidia.com/v1beta1",
    "ResourceClaim": "/apis/resource.k8s.io/v1",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1",
}
WRITES = frozenset({"create", "update", "patch", "delete"})


class Models:
    """The resources of one namespace, by kind and name, with the waiting that tests need."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._cp = control_plane
        self.namespace = namespace

    def create(self, name: str, model: str | Manifest = SMALL, **spec: Any) -> None:
        """Create one that serves a model of the catalogue, or what `spec.model` says."""
        manifest = {
            "apiVersion": "shardwright.io/v1alpha1",
            "kind": "ShardedModel",
            "metadata": {"name": name},
            "spec": {"model": {"id": model} if isinstance(model, str) else model, **spec},
        }
        self._cp.api.create(self._path("ShardedModel"), manifest)

    def change(self, name: str, **spec: Any) -> None:
        self.patch("ShardedModel", name, {"spec": spec})

    def get(self, kind: str, name: str) -> Manifest:
        found: Manifest = self._cp.api.get(self._path(kind, name))
        return found

    def find(self, kind: str, name: str) -> Manifest | None:
        try:
            return self.get(kind, name)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def all(self, kind: str) -> list[Manifest]:
        items: list[Manifest] = self._cp.api.get(self._path(kind))["items"]
        return items

    def patch(self, kind: str, name: str, body: Any) -> None:
        self._cp.api.patch(self._path(kind, name), body)

    def delete(self, kind: str, name: str) -> None:
        self._cp.api.delete(self._path(kind, name))

    def delete_all(self, kind: str) -> None:
        self._cp.api.delete(self._path(kind))

    def evict(self, pod: str) -> None:
        """Ask the eviction API, as a drain does; refused with 429 where a disruption budget does
        not allow it.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
        }
        self._cp.api.create(f"{self._path('Pod', pod)}/eviction", eviction)

    def post(self, kind: str, body: Manifest) -> None:
        self._cp.api.create(self._path(kind), body)

    def condition(self, name: str, kind: str = "Ready") -> Manifest:
        """Return a condition that is about the current spec."""
        resource = self.get("ShardedModel", name)
        assert resource["status"]["observedGeneration"] == resource["metadata"]["generation"]
        return condition_in(resource["status"], kind)

    def wait_ready(self, name: str, timeout: float = 60) -> Manifest:
        """Return the resource when it is Ready for its current spec."""
        wait_for(lambda: self._has(name, "Ready", "True"), timeout, f"{name} to be Ready")
        return self.get("ShardedModel", name)

    def wait_reason(self, name: str, reason: str, timeout: float = 30) -> Manifest:
        """Return the Ready condition when it has this reason."""
        return wait_for(lambda: self._with_reason(name, reason), timeout, f"{name} to be {reason}")

    def annotate(self, name: str, **annotations: str) -> None:
        """Set annotations of our domain on the resource."""
        found = {f"shardwright.io/{key}": value for key, value in annotations.items()}
        self.patch("ShardedModel", name, {"metadata": {"annotations": found}})

    def wait_events(self, *reasons: str, timeout: float = 15) -> None:
        """Wait until there is an event of each of these reasons: an event is written after the
        status that it is about.
        """
        wait_for(
            lambda: set(reasons) <= self.reasons_of_events(),
            timeout,
            f"events {', '.join(reasons)}",
        )

    def _has(self, name: str, kind: str, status: str) -> bool:
        condition = self.condition(name, kind)
        assert condition["status"] == status, condition
        return True

    def _with_reason(self, name: str, reason: str) -> Manifest:
        condition = self.condition(name)
        assert condition["reason"] == reason, condition
        return condition

    def pods(self) -> list[Manifest]:
        return sorted(self.all("Pod"), key=lambda pod: str(pod["metadata"]["name"]))

    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods()}

    def reasons_of_events(self) -> set[str]:
        events = self._cp.api.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")[
            "items"
        ]
        return {event["reason"] for event in events if event["regarding"]["kind"] == "ShardedModel"}

    def _path(self, kind: str, name: str = "") -> str:
        prefix = PATHS.get(kind, "/api/v1")
        plural = f"{kind.lower()}s".replace("cys", "cies")
        return f"{prefix}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")


def writes_of_operator(control_plane: ControlPlane) -> list[str]:
    """Return what the operator has written so far, leases, events and dry runs left out, as "verb
    resource/name".
    """
    found = []
    for event in control_plane.audit_events(OPERATOR_USER):
        reference = event.get("objectRef", {})
        ours = event["verb"] in WRITES and "dryRun=" not in event["requestURI"]
        if ours and reference.get("resource") not in (
            "leases",
            "events",
            "selfsubjectaccessreviews",
        ):
            name = "/".join(
                str(reference[key]) for key in ("namespace", "resource", "name") if key in reference
            )
            found.append(f"{event['verb']} {name}")
    return found


def status_writes(control_plane: ControlPlane, namespace: str) -> int:
    """Return how often the operator has written the status of a model of a namespace."""
    return sum(
        event["verb"] == "patch"
        and (event["objectRef"].get("namespace"), event["objectRef"].get("subresource"))
        == (namespace, "status")
        for event in control_plane.audit_events(OPERATOR_USER)
        if "objectRef" in event
    )
