"""NVIDIA's DRA driver for GPUs and slices of them, as far as the API server and the scheduler see it.

Slices are as kubernetes-sigs/dra-driver-nvidia-gpu writes them (cmd/gpu-kubelet-plugin
deviceinfo.go): one pool for each node, one slice of it, device `gpu-<minor>`. The DeviceClass is
that of its chart. Claims are then made by the real scheduler, or by the real controller manager,
and allocated by the real scheduler; nobody prepares devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane

DRIVER = "gpu.nvidia.com"
H100 = "NVIDIA H100 80GB HBM3"
DRA = "/apis/resource.k8s.io/v1"
_MEMORY = "81559Mi"


def a_device(minor: int = 0, product: str = H100, **more: object) -> Manifest:
    """A whole GPU; `taint` is (key, effect), `memory`, `capability`, `kind` and `root` replace
    what an H100 has.
    """
    taint = more.pop("taint", None)
    kind = more.pop("kind", "gpu")
    attributes = {
        "type": {"string": kind},
        "uuid": {"string": f"GPU-00000000-0000-0000-0000-{minor:012d}"},
        "productName": {"string": product},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": more.pop("capability", "9.0.0")},
        "driverVersion": {"version": "580.95.5"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{minor:02x}:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": more.pop("root", f"pci0000:{minor:02x}")},
    }
    tainted = (
        {"taints": [{"key": taint[0], "effect": taint[1]}]} if isinstance(taint, tuple) else {}
    )
    memory = {"memory": {"value": more.pop("memory", _MEMORY)}}
    return {"name": f"gpu-{minor}", "attributes": attributes, "capacity": memory, **tainted, **more}


def a_mig_device(
    number: int = 0, profile: str = "1g.10gb", memory: str = "9984Mi", **more: Any
) -> Manifest:
    """A slice of an H100, one of seven of its GPU; `more` as `a_device` takes it.

    Source: names, attributes and memory as `CommonAttributesMig` and `CommonCapacitiesMig` of
    mig.go write them.
    """
    minor, start = divmod(number, 7)
    device = a_device(minor, kind="mig", memory=memory, **more)
    name = profile.replace(".", "").replace("+", "-")
    device["name"] = f"gpu-{minor}-mig-{name}-19-{start}"
    device["attributes"] |= {
        "profile": {"string": profile},
        "parentUUID": device["attributes"]["uuid"],
        "uuid": {"string": f"MIG-00000000-0000-0000-0000-{number:012d}"},
    }
    return device


def a_slice(
    node: str,
    devices: Iterable[Manifest] = (),
    *,
    name: str = "",
    generation: int = 1,
    slices: int = 1,
    pool: str = "",
) -> Manifest:
    """A ResourceSlice of a node, with 8 H100 where nothing is said."""
    of_pool = {"name": pool or node, "generation": generation, "resourceSliceCount": slices}
    listed = list(devices) or [a_device(minor) for minor in range(8)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node}-{DRIVER}"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": of_pool, "devices": listed},
    }


def a_device_class(resource: str = "", name: str = DRIVER, kind: str = "gpu") -> Manifest:
    """The DeviceClass of whole GPUs, or of another `kind`; `resource` is the extended resource
    that it stands for.
    """
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
    named = {"extendedResourceName": resource} if resource else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}], **named},
    }


def without_plugin(node: Manifest) -> Manifest:
    """A node of a dump as it is where a DRA driver serves its GPUs: no label and no resource
    tells of them.
    """
    labels = {
        key: value
        for key, value in node["metadata"]["labels"].items()
        if not key.startswith("nvidia.com/")
    }
    status = {
        part: {key: value for key, value in amounts.items() if key != "nvidia.com/gpu"}
        if part in ("allocatable", "capacity")
        else amounts
        for part, amounts in node["status"].items()
    }
    return {**node, "metadata": {**node["metadata"], "labels": labels}, "status": status}


@contextmanager
def gpu_devices(
    control_plane: ControlPlane, slices: Iterable[Manifest], device_class: Manifest
) -> Iterator[None]:
    """With it the cluster has the DeviceClass and these slices."""
    api, written = control_plane.api, tuple(slices)
    api.create(f"{DRA}/deviceclasses", device_class)
    for item in written:
        api.create(f"{DRA}/resourceslices", item)
    try:
        yield
    finally:
        for item in written:
            api.delete(f"{DRA}/resourceslices/{_name(item)}", missing_ok=True)
        api.delete(f"{DRA}/deviceclasses/{_name(device_class)}", missing_ok=True)


def _name(item: Manifest) -> str:
    return str(item["metadata"]["name"])
