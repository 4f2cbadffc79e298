"""Which GPUs does a DRA driver publish in ResourceSlices, on nodes without a device plugin's GPUs?

GPUs that are all cut into MIG slices of one profile are read as these; MIG on demand is not, as its
slices overlap. Sources: kubernetes-sigs/dra-driver-nvidia-gpu (cmd/gpu-kubelet-plugin
deviceinfo.go, mig.go, partitions.go, device_health.go) for attributes, capacity and taints;
resource.k8s.io/v1 types.go for the rules of pools, generations and taints.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from shardwright.errors import Problem
from shardwright.hardware.gpus import ComputeCapability, Gpu
from shardwright.hardware.suitability import (
    WHOLE_GPU,
    implausible,
    is_profile,
    printable,
    resource_of,
)
from shardwright.hardware.taints import HARD_EFFECTS
from shardwright.hardware.untrusted import is_node_name, mapping, mappings, quantity, text_or_empty

DRIVER: Final = "gpu.nvidia.com"
"""The driver whose devices are read, and the name of the DeviceClass of whole GPUs that it
installs.
"""

MIG_CLASS: Final = "mig.nvidia.com"
"""Name of the DeviceClass of slices that the driver installs. Source: the claims in NVIDIA's
documents on the driver (``deviceClassName: mig.nvidia.com``); its chart was not at hand.
"""

DEVICES_MOST: Final = 128
"""NodeDevices of one ResourceSlice. Source: ``ResourceSliceMaxDevices``."""

SLICES_MOST: Final = 64
"""ResourceSlices of one node. Basis: assumed; with MIG on demand the driver writes one for each
GPU and one more.
"""

PRODUCT: Final = "productName of its ResourceSlice"
"""The place of the GPU's name, in words."""

"""Effects of taints that keep pods off; unknown ones are to be treated like None."""

_NAME: Final = re.compile(r"[A-Za-z0-9 ._()/+-]{1,64}", re.ASCII)
"""Names that stand in a selector as they are: nothing in them ends a text of CEL."""

_PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_GPU_OF_DEVICE: Final = re.compile(r"(gpu-\d+)-mig-.+", re.ASCII)
_VERSION: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.\d{1,3}", re.ASCII)


class DeviceKind(StrEnum):
    """The kind of a device, by its attribute ``type``."""

    GPU = "gpu"  #: a whole one
    MIG = "mig"  #: a slice of one
    VFIO = "vfio"  #: one for virtual machines
    OTHER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice:
    """One device; ``taint`` is the key of the taint that keeps pods off it, empty if none does.

    ``shared``: several claims may have it at once. ``profile`` is a slice's, as the driver spells
    it (``1g.10gb+me``); ``overlapping``: others have parts of it, too.
    """

    kind: DeviceKind
    product: str = ""
    profile: str = ""
    overlapping: bool = False
    memory_bytes: int | None = None
    capability: ComputeCapability | None = None
    pcie_root: str = ""
    taint: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSlice:
    """The kept parts of a ResourceSlice: one node's devices, in a pool of ``slices`` such
    slices.
    """

    node: str
    pool: str
    generation: int
    slices: int
    devices: tuple[GpuDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """The extended resource that a DeviceClass stands for, empty for none."""

    resource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDevices:
    """What pods claim without an extended resource for it: devices of a class, of one product.

    ``mig_profile`` is that of slices, as the driver spells it; empty for whole GPUs.
    """

    device_class: str
    product: str
    mig_profile: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevices:
    """A node's GPUs, all of one product: whole ones, or MIG slices of one ``mig_profile``.

    ``usable`` of the ``gpus`` have no taint. ``memory_bytes`` is the smallest's (None: not said).
    ``claimed`` is how pods ask for them, None: by the extended resource.
    """

    product: str
    gpus: int
    usable: int
    memory_bytes: int | None = None
    capability: ComputeCapability | None = None
    pcie_roots: int = 0
    claimed: ClaimedDevices | None = None
    mig_profile: str = ""

    @property
    def profile(self) -> str:
        """Return the profile of slices as labels and resources spell it, empty for whole GPUs."""
        return _spelled(self.mig_profile)

    @property
    def resource(self) -> str:
        """Return the resource by which a device plugin would offer them."""
        return resource_of(self.profile) if self.profile else WHOLE_GPU

    def contradicts(self, gpu: Gpu) -> bool:
        """Return whether the devices state another compute capability than the catalogue."""
        known = None in (self.capability, gpu.compute_capability)
        return not known and self.capability != gpu.compute_capability


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUsage:
    """GPUs that an allocated ResourceClaim holds on a node, whole or in part.

    ``pod`` and ``pod_uid`` are of the first pod that it is reserved for (empty: for none).
    """

    node: str
    gpus: int
    pod: str = ""
    pod_uid: str = ""


def read_slice(content: object) -> DeviceSlice | None:
    """Return a ResourceSlice, None if it has no GPUs of one node."""
    spec = mapping(mapping(content).get("spec"))
    node = text_or_empty(spec.get("nodeName"))
    if text_or_empty(spec.get("driver")) != DRIVER or not is_node_name(node):
        return None
    pool = mapping(spec.get("pool"))
    return DeviceSlice(
        node=node,
        pool=text_or_empty(pool.get("name")),
        generation=quantity(pool.get("generation")) or 0,
        slices=quantity(pool.get("resourceSliceCount")) or 0,
        devices=tuple(map(_device, mappings(spec.get("devices"))[: DEVICES_MOST + 1])),
    )


def read_device_class(content: object) -> DeviceClass:
    """Return a DeviceClass from any value."""
    spec = mapping(mapping(content).get("spec"))
    return DeviceClass(resource=text_or_empty(spec.get("extendedResourceName")))


def read_claim(content: object) -> DeviceUsage | None:
    """Return the GPUs that a ResourceClaim holds, None if it holds none.

    A slice holds its whole GPU: where GPUs are cut on demand nobody else can have that. Where they
    are cut before, a claim on several slices of one GPU counts as one; ours claim one. A claim that
    only looks (admin access) holds nothing. Only the status is believed: the scheduler and its
    controllers write it, while users may write a claim's labels, annotations and owners.
    """
    status = mapping(mapping(content).get("status"))
    allocation = mapping(status.get("allocation"))
    results = mappings(mapping(allocation.get("devices")).get("results"))
    held = [
        item for item in results if item.get("driver") == DRIVER and not item.get("adminAccess")
    ]
    if not held:
        return None
    consumers = mappings(status.get("reservedFor"))
    pod = next((item for item in consumers if item.get("resource") == "pods"), {})
    return DeviceUsage(
        node=_node_of(allocation) or text_or_empty(held[0].get("pool")),
        # Two slices of one GPU hold it once.
        gpus=len({(item.get("pool"), _whole(item.get("device"))) for item in held}),
        pod=text_or_empty(pod.get("name")),
        pod_uid=text_or_empty(pod.get("uid")),
    )


def read_devices(
    slices: Iterable[DeviceSlice], classes: Mapping[str, DeviceClass]
) -> NodeDevices | Problem | None:
    """Return the GPUs of one node, why they cannot be planned, or None if its slices have none.

    Args:
        slices: All slices of the node, in any order.
        classes: The DeviceClasses of the cluster by name.
    """
    found = tuple(slices)
    current = _current(found) if len(found) <= SLICES_MOST else None
    if current is None:
        return _incomplete(len(found))
    devices = [device for item in current for device in item.devices]
    whole = [device for device in devices if device.kind is DeviceKind.GPU]
    alike = whole or _cut_alike(devices)
    if not alike:
        return _none_whole(devices)
    if problem := _unsuitable(alike):
        return problem
    return _asked_for(_counted(alike), classes)


def _counted(alike: Sequence[GpuDevice]) -> NodeDevices:
    sizes = [device.memory_bytes for device in alike]
    known = [size for size in sizes if size]
    roots = {device.pcie_root for device in alike} - {""}
    return NodeDevices(
        product=alike[0].product,
        gpus=len(alike),
        usable=sum(not device.taint for device in alike),
        # One that does not say may have less than the others.
        memory_bytes=min(known) if len(known) == len(sizes) else None,
        capability=alike[0].capability,
        # Between slices there is no traffic.
        pcie_roots=0 if alike[0].profile else len(roots),
        mig_profile=alike[0].profile,
    )


def _cut_alike(devices: Iterable[GpuDevice]) -> list[GpuDevice]:
    slices = [device for device in devices if device.kind is DeviceKind.MIG]
    profiles = {device.profile for device in slices}
    alone = len(profiles) == 1 and is_profile(_spelled(*profiles))
    return slices if alone and not any(one.overlapping for one in slices) else []


def _spelled(profile: str) -> str:
    """Return a profile as labels and resources spell it.

    >>> _spelled("1g.10gb+me")
    '1g.10gb.me'
    """
    return profile.replace("+", ".")


def _device(content: Mapping[str, Any]) -> GpuDevice:
    attributes = mapping(content.get("attributes"))
    memory = mapping(_named(mapping(content.get("capacity")), "memory"))
    kind = _said(attributes, "type")
    version = _VERSION.fullmatch(_said(attributes, "cudaComputeCapability", "version"))
    taints = mappings(content.get("taints"))
    return GpuDevice(
        kind=DeviceKind(kind) if kind in set(DeviceKind) else DeviceKind.OTHER,
        product=_said(attributes, "productName"),
        profile=_said(attributes, "profile") if kind == DeviceKind.MIG else "",
        overlapping=bool(content.get("consumesCounters")),
        memory_bytes=quantity(memory.get("value")) or None,
        capability=(int(version[1]), int(version[2])) if version else None,
        pcie_root=text_or_empty(mapping(attributes.get(_PCIE_ROOT)).get("string")),
        taint=next((text_or_empty(item.get("key")) for item in taints if _keeps_off(item)), ""),
        shared=content.get("allowMultipleAllocations") is True,
    )


def _keeps_off(taint: Mapping[str, Any]) -> bool:
    return text_or_empty(taint.get("effect")) in HARD_EFFECTS


def _named(entries: Mapping[str, Any], name: str) -> object:
    """The domain of an attribute or a capacity may be left out."""
    return entries.get(name) or entries.get(f"{DRIVER}/{name}")


def _said(attributes: Mapping[str, Any], name: str, kind: str = "string") -> str:
    return text_or_empty(mapping(_named(attributes, name)).get(kind))


def _node_of(allocation: Mapping[str, Any]) -> str:
    terms = mappings(mapping(allocation.get("nodeSelector")).get("nodeSelectorTerms"))
    fields = (item for term in terms for item in mappings(term.get("matchFields")))
    named = (item.get("values") for item in fields if item.get("key") == "metadata.name")
    return next((text_or_empty(value) for values in named for value in values or ()), "")


def _whole(device: object) -> str:
    name = text_or_empty(device)
    of = _GPU_OF_DEVICE.fullmatch(name)
    return of[1] if of else name


def _current(slices: Iterable[DeviceSlice]) -> list[DeviceSlice] | None:
    """Return the slices of each pool's latest generation, None if one is missing."""
    pools: defaultdict[str, list[DeviceSlice]] = defaultdict(list)
    for item in slices:
        pools[item.pool].append(item)
    current: list[DeviceSlice] = []
    for items in pools.values():
        latest = max(item.generation for item in items)
        # A driver writes a new generation slice by slice: until then the old ones are stale, the
        # new ones too few.
        kept = [item for item in items if item.generation == latest]
        if any(item.slices != len(kept) for item in kept):
            return None
        current += kept
    return current


def _incomplete(slices: int) -> Problem:
    return Problem(
        code="NoAllocatableGpus",
        what=f"ResourceSlices of the node ({slices})",
        limit=f"must be all of their pool, and at most {SLICES_MOST}",
        remedy="wait, or look at the DRA driver's pod of the node",
    )


def _none_whole(devices: Iterable[GpuDevice]) -> Problem | None:
    kinds = {device.kind for device in devices}
    if DeviceKind.MIG in kinds:
        return Problem(
            code="MigEnabled",
            what="GPUs cut into MIG slices of several profiles, by its ResourceSlices",
            limit="cannot be planned, only whole ones and slices of one profile",
            remedy="cut all GPUs of the node alike, or turn MIG off on it",
        )
    if DeviceKind.VFIO in kinds:
        return Problem(
            code="GpuPassthrough",
            what="GPUs kept for virtual machines, by its ResourceSlices",
            limit="cannot be used by containers",
            remedy="give the GPUs back to NVIDIA's driver",
        )
    return None


def _unsuitable(whole: Iterable[GpuDevice]) -> Problem | None:
    devices = tuple(whole)
    products = {device.product for device in devices}
    if len(products) > 1:
        return Problem(
            code="MixedGpus",
            what=f"{len(products)} GPU models on one node",
            limit="must be one",
            remedy="keep one model per node",
        )
    if any(device.shared for device in devices):
        return Problem(
            code="GpuShared",
            what="GPUs that several claims may have at once",
            limit="cannot be planned, only whole ones",
            remedy="turn consumable shares off in the DRA driver of this node",
        )
    if all(device.taint for device in devices):
        return Problem(
            code="NoAllocatableGpus",
            what=f"GPUs without device taint ({devices[0].taint[:60]!a}) 0",
            limit="must be at least 1",
            gap=f"0 of {len(devices)} healthy",
            remedy="look at the DRA driver's pod of the node, and at its ResourceSlices",
        )
    return None


def _asked_for(devices: NodeDevices, classes: Mapping[str, DeviceClass]) -> NodeDevices | Problem:
    """Return the devices with their extended resource, if a DeviceClass stands for it, else with a
    claim.
    """
    if any(item.resource == devices.resource for item in classes.values()):
        return devices
    named = MIG_CLASS if devices.mig_profile else DRIVER
    if named not in classes:
        return Problem(
            code="NoDeviceClass",
            what="DeviceClasses for the GPUs of its ResourceSlices",
            limit=f"must have one that stands for {devices.resource}, or one named {named}",
            remedy="install the DRA driver's DeviceClasses, or make one with extendedResourceName",
        )
    if not _NAME.fullmatch(devices.product):
        return implausible(f"{PRODUCT} {printable(devices.product)}", "must be a name of a GPU")
    claimed = ClaimedDevices(
        device_class=named, product=devices.product, mig_profile=devices.mig_profile
    )
    return replace(devices, claimed=claimed)
