"""NVIDIA's DRA driver for ComputeDomains, as far as the API server and the scheduler see it.

The CRD is structural, with the fields of `resource.nvidia.com/v1beta1`; the device class and what
each node offers are what the driver publishes. A thread plays the controller: it makes the
ResourceClaimTemplate of every ComputeDomain and takes it away with it. Claims are then made by the
real controller manager and allocated by the real scheduler; no IMEX daemon runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from tests.harness.api import Api, ApiError, Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for

DRIVER = "compute-domain.nvidia.com"
CHANNELS = "compute-domain-default-channel.nvidia.com"
DOMAIN_LABEL = "resource.nvidia.com/computeDomain"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAME = "computedomains.resource.nvidia.com"
_DOMAINS = "/apis/resource.nvidia.com/v1beta1"
_DRA = "/apis/resource.k8s.io/v1"
_LOOK_SECONDS = 0.1

_CHANNEL = {
    "type": "object",
    "required": ["resourceClaimTemplate"],
    "properties": {
        "allocationMode": {"type": "string", "enum": ["All", "Single"], "default": "Single"},
        "resourceClaimTemplate": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "minLength": 1}},
        },
    },
}
_SPEC = {
    "type": "object",
    "required": ["numNodes", "channel"],
    "properties": {"numNodes": {"type": "integer"}, "channel": _CHANNEL},
    "x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "A computeDomain.spec is immutable"}
    ],
}
_STATUS = {
    "type": "object",
    "properties": {"status": {"type": "string", "enum": ["Ready", "NotReady"]}},
}


@contextmanager
def compute_domains(control_plane: ControlPlane) -> Iterator[None]:
    """With it the cluster has the kind, and nothing that acts on it."""
    api = Api(control_plane.url, control_plane.ca_file, control_plane.admin_token)
    api.create(_CRDS, _crd())
    wait_for(lambda: _domains(api) is not None, 30, "ComputeDomains to be served")
    try:
        yield
    finally:
        api.delete(f"{_CRDS}/{_NAME}", missing_ok=True)
        wait_for(lambda: _domains(api) is None, 30, "ComputeDomains to be gone")
        api.close()


def _domains(api: Api) -> list[Manifest] | None:
    try:
        items: list[Manifest] = api.get(f"{_DOMAINS}/computedomains")["items"]
    except ApiError as error:
        if error.status != 404:
            raise
        return None
    return items


class NvidiaDriver:
    """A context manager: with it the cluster has ComputeDomains, and the named nodes offer an IMEX
    channel each.
    """

    def __init__(self, control_plane: ControlPlane, nodes: Iterable[str]) -> None:
        self._api = Api(control_plane.url, control_plane.ca_file, control_plane.admin_token)
        self._nodes = tuple(nodes)
        self._kind = compute_domains(control_plane)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._control, name="compute-domains", daemon=True)

    def __enter__(self) -> Self:
        self._kind.__enter__()
        self._api.create(f"{_DRA}/deviceclasses", _device_class())
        for node in self._nodes:
            self._api.create(f"{_DRA}/resourceslices", _slice(node))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        for node in self._nodes:
            self._api.delete(f"{_DRA}/resourceslices/{node}", missing_ok=True)
        self._api.delete(f"{_DRA}/deviceclasses/{CHANNELS}", missing_ok=True)
        self._kind.__exit__(kind, error, trace)
        self._api.close()

    def _control(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            wanted = {
                (d["metadata"]["namespace"], _template_name(d)): d
                for d in _domains(self._api) or ()
            }
            there = self._api.get(f"{_DRA}/resourceclaimtemplates")["items"]
            ours = {
                (t["metadata"]["namespace"], t["metadata"]["name"])
                for t in there
                if DOMAIN_LABEL in _labels(t)
            }
            for namespace, name in wanted.keys() - ours:
                path = f"{_DRA}/namespaces/{namespace}/resourceclaimtemplates"
                self._api.create(path, _template(name, wanted[namespace, name]))
            for namespace, name in ours - wanted.keys():
                self._api.delete(
                    f"{_DRA}/namespaces/{namespace}/resourceclaimtemplates/{name}", missing_ok=True
                )


def _labels(item: Manifest) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def _template_name(domain: Manifest) -> str:
    return str(domain["spec"]["channel"]["resourceClaimTemplate"]["name"])


def _template(name: str, domain: Manifest) -> Manifest:
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomainChannelConfig",
        "domainID": domain["metadata"]["uid"],
        "allocationMode": domain["spec"]["channel"]["allocationMode"],
    }
    devices = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": CHANNELS}}],
        "config": [
            {"requests": ["channel"], "opaque": {"driver": DRIVER, "parameters": parameters}}
        ],
    }
    labels = {DOMAIN_LABEL: domain["metadata"]["uid"]}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"spec": {"devices": devices}}}


def _device_class() -> Manifest:
    of_channel = f"device.attributes['{DRIVER}']"
    expression = (
        f"device.driver == '{DRIVER}' && {of_channel}.type == 'channel' && {of_channel}.id == 0"
    )
    return {
        "metadata": {"name": CHANNELS},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _slice(node: str) -> Manifest:
    channel = {"name": "channel-0", "attributes": {"type": {"string": "channel"}, "id": {"int": 0}}}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": node},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [channel]},
    }


def _crd() -> Manifest:
    schema: dict[str, Any] = {"type": "object", "properties": {"spec": _SPEC, "status": _STATUS}}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {
        "kind": "ComputeDomain",
        "listKind": "ComputeDomainList",
        "plural": "computedomains",
        "singular": "computedomain",
    }
    spec = {
        "group": "resource.nvidia.com",
        "scope": "Namespaced",
        "names": names,
        "versions": [version],
    }
    return {"metadata": {"name": _NAME}, "spec": spec}
