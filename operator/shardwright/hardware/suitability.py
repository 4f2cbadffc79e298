"""Why can a node's GPUs not be planned: sliced, shared, virtual, in change, mixed, not believable?

A state that may soon pass (cordoned, not ready) is no reason but a fact.

What is a MIG slice worth as a GPU of its own, on nodes whose slices are all of one profile?

A slice has its share of its GPU's memory, bandwidth and multiprocessors, and no link to another
one. Refused are several profiles on a node and parts of a slice (compute instances). Sources:
docs.nvidia.com/datacenter/tesla/mig-user-guide; labels: NVIDIA/k8s-device-plugin@1b826acc
internal/lm and the label dumps in tests/data/nodes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from types import MappingProxyType
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.gpus import Gpu
from shardwright.hardware.untrusted import RawNode, is_node_name, quantity
from shardwright.units import GIGA, MIB

WHOLE_GPU: Final = "nvidia.com/gpu"
"""The resource of whole GPUs; under the strategy ``single`` that of slices, too."""

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"

PROFILE_PATTERN: Final = r"[1-7]g\.[1-9][0-9]{0,2}gb([.-][a-z]+)*"
"""A profile as labels and resources spell it: ``3g.40gb``, ``1g.10gb.me`` (for ``1g.10gb+me``)."""

SLICES_PER_GPU: Final = 7
"""Slices that a GPU is cut into at most. Source: NVIDIA's MIG guide."""

_GKE_PRODUCT: Final = "cloud.google.com/gke-accelerator"
_GKE_PROFILE: Final = "cloud.google.com/gke-gpu-partition-size"
"""What GKE labels its nodes with; it cuts all GPUs of a node pool alike."""

_RESOURCE: Final = "nvidia.com/mig-"
_MARK: Final = "-MIG-"
_PROFILE: Final = re.compile(
    rf"(?={PROFILE_PATTERN}$)(?P<compute>[0-9])g\.(?P<gigabytes>[0-9]+)gb", re.ASCII
)

COMPUTE_SLICES: Final[tuple[tuple[re.Pattern[str], int], ...]] = (
    (re.compile(r"A100-|H100-|H200-|H20-|GH200-|G?B200-|G?B300-"), SLICES_PER_GPU),
    (re.compile(r"A30-|RTX-PRO-6000-"), 4),
)
"""Beginnings of catalogue ids, and the compute slices of these GPUs; the slices of others are not
known. Source: NVIDIA's MIG guide, supported profiles (A30: 1g.6gb, 2g.12gb, 4g.24gb; RTX PRO 6000:
1g.24gb, 2g.48gb, 4g.96gb).
"""

MEMORY_SLICES: Final = 8
"""Parts that memory and its bandwidth are cut into; four on GPUs of four compute slices. Source:
NVIDIA's MIG guide.
"""

_MEMORY_OF: Final[Mapping[int, Mapping[int, tuple[int, ...]]]] = {
    SLICES_PER_GPU: {1: (1, 2), 2: (2,), 3: (4,), 4: (4,), SLICES_PER_GPU: (8,)},
    4: {1: (1,), 2: (2,), 4: (4,)},
}
"""By the compute slices of a GPU: the parts of its memory that a profile of so many compute slices
may have. Source: NVIDIA's MIG guide, supported profiles.
"""

_WHOLE: Final = 1e-9  # what rounding leaves of a whole number
_ROUNDING: Final = 0.1
"""The part of a memory slice by which a profile's gigabytes may be rounded up. Basis: assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSlices:
    """A node's slices: ``profile``, the ``resource`` of one, ``product`` name, bytes of memory
    (None: no label says).
    """

    profile: str
    resource: str
    product: str
    memory_bytes: int | None


def read_slices(node: RawNode) -> NodeSlices | None:
    """Return the slices of a node, None if its GPUs are whole, or cut into unequal slices."""
    # With the strategy single, GPU feature discovery's label is all that tells slices from GPUs.
    name, _, profile = node.labels.get(PRODUCT_LABEL, "").partition(_MARK)
    resource = WHOLE_GPU
    if not name:
        profile = node.labels.get(_GKE_PROFILE, "")
        name = node.labels.get(_GKE_PRODUCT, "")
    if not profile:
        profile = _only_profile_offered(node)
        resource = resource_of(profile)
    if not is_profile(profile):
        return None
    memory = quantity(node.labels.get(f"{resource}.memory"))
    return NodeSlices(
        profile=profile,
        resource=resource,
        product=product_of(name, profile),
        memory_bytes=memory * MIB if memory else None,
    )


def _only_profile_offered(node: RawNode) -> str:
    """Return the profile of all slices that a node offers; empty with several, or whole GPUs beside
    them.
    """
    offered = {
        key.removeprefix(_RESOURCE)
        for of in (node.allocatable, node.capacity)
        for key, value in of.items()
        if is_slice(key) and quantity(value)
    }
    alone = len(offered) == 1 and not quantity(node.allocatable.get(WHOLE_GPU))
    return offered.pop() if alone else ""


def whole_resource(resource: str) -> str:
    """Return the resource of whole GPUs of the same vendor.

    >>> whole_resource("nvidia.com/mig-3g.40gb"), whole_resource("amd.com/gpu")
    ('nvidia.com/gpu', 'amd.com/gpu')
    """
    return WHOLE_GPU if is_slice(resource) else resource


def resource_of(profile: str) -> str:
    """Return the resource of a profile's slices under the strategy ``mixed``."""
    return f"{_RESOURCE}{profile}"


def product_of(product: str, profile: str) -> str:
    """Return the name of a product's slices, as GPU feature discovery has it."""
    return f"{product}{_MARK}{profile}"


def is_slice(resource: str) -> bool:
    """Return whether a resource is of slices under the strategy ``mixed``."""
    return resource.startswith(_RESOURCE)


def named_profile(product: str) -> str:
    """Return the profile that a product's name ends with, empty for a whole GPU.

    >>> named_profile("H100-SXM-80GB-MIG-3g.40gb"), named_profile("H100-SXM-80GB")
    ('3g.40gb', '')
    """
    return product.partition(_MARK)[2]


def is_profile(text: str) -> bool:
    """Return whether a text is spelled like a profile."""
    return _PROFILE.match(text) is not None


def unknown_slices(gpu: Gpu) -> Problem | None:
    """Return that nobody has said how a GPU is cut, None if it is known."""
    if _compute_slices(gpu):
        return None
    return Problem(
        code="MigSlicesUnknown",
        what=f"slices of {gpu.id}",
        limit="cannot be planned: their share of the GPU is not known",
        remedy="use whole GPUs of it: label the node nvidia.com/mig.config=all-disabled",
    )


def slices_of_gpu(gpu: Gpu, profile: str) -> int:
    """Return the number of slices of a profile that a whole GPU is cut into.

    >>> from shardwright.hardware.gpus import load_gpus
    >>> h100 = load_gpus()["H100-SXM-80GB"]
    >>> [slices_of_gpu(h100, profile) for profile in ("1g.10gb", "1g.20gb", "3g.40gb")]
    [7, 4, 2]
    """
    return int(1 / max(_shares(gpu, profile)) + _WHOLE)


def has_profile(gpu: Gpu, profile: str) -> bool:
    """Return whether a GPU, whose slices are known, can be cut into slices of a profile.

    >>> from shardwright.hardware.gpus import load_gpus
    >>> h100 = load_gpus()["H100-SXM-80GB"]
    >>> [has_profile(h100, profile) for profile in ("1g.20gb", "1g.77gb", "7g.10gb", "5g.40gb")]
    [True, False, False, False]
    """
    slices = _compute_slices(gpu)
    compute, memory = _shares(gpu, profile)
    parts = MEMORY_SLICES if slices == SLICES_PER_GPU else slices
    may = _MEMORY_OF[slices].get(round(compute * slices), ())
    return round(memory * parts) in may


def slice_of(gpu: Gpu, profile: str, memory_bytes: int | None = None) -> Gpu:
    """Return a slice of a GPU as a GPU: its share of everything, joined to nothing.

    Memory and bandwidth: whole eighths, the number of them by the gigabytes of the profile.
    FLOP/s: compute slices over all of the GPU's. Bytes, bytes/s, FLOP/s. Error: multiprocessors
    are not cut evenly (of an H100's 132 a slice of 1g has 16, of 3g 60): shares of FLOP/s are up
    to 18% too high or 6% too low. Nothing was measured on a slice.

    Args:
        gpu: The whole one, whose slices are known (:func:`unknown_slices`).
        profile: As :data:`PROFILE_PATTERN` has it.
        memory_bytes: As a label says; None: the share of the GPU's.

    >>> from shardwright.hardware.gpus import load_gpus
    >>> part = slice_of(load_gpus()["H100-SXM-80GB"], "3g.40gb")
    >>> part.id, part.memory_bytes_per_second / 1e9, round(part.flops["bf16"] / 1e12)
    ('H100-SXM-80GB-MIG-3g.40gb', 1675.0, 424)
    """
    compute, memory = _shares(gpu, profile)
    return replace(
        gpu,
        id=product_of(gpu.id, profile),
        memory_bytes=memory_bytes or int(gpu.memory_bytes * memory),
        memory_bytes_per_second=gpu.memory_bytes_per_second * memory,
        flops=_of(gpu.flops, compute),
        matmul_flops=_of(gpu.matmul_flops, compute),
        scale_up=None,
        scale_up_gpus=1,
        basis="assumed",
        memory_basis="label of the node" if memory_bytes else "share of the GPU's",
        mig_profile=profile,
        whole=gpu,
        slices=slices_of_gpu(gpu, profile),
    )


def _shares(gpu: Gpu, profile: str) -> tuple[float, float]:
    match = _PROFILE.match(profile)
    assert match, profile  # noqa: S101 - whoever names one has checked it
    compute = _compute_slices(gpu)
    parts = MEMORY_SLICES if compute == SLICES_PER_GPU else compute
    # Profiles have fewer gigabytes than their parts: 40gb is half of an H100's 85.5 GB.
    wanted = ceil(int(match["gigabytes"]) * GIGA / gpu.memory_bytes * parts - _ROUNDING)
    return min(int(match["compute"]), compute) / compute, min(max(wanted, 1), parts) / parts


def _compute_slices(gpu: Gpu) -> int:
    return next((count for ids, count in COMPUTE_SLICES if ids.match(gpu.id)), 0)


def _of(flops: Mapping[str, float], share: float) -> Mapping[str, float]:
    return MappingProxyType({kind: rate * share for kind, rate in flops.items()})


RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")
"""The resources that pods request for a whole GPU."""

MAX_GPUS_PER_NODE: Final = 16
"""Basis: datasheet, the largest node in instances.csv (a2-megagpu-16g); more is a mistake or a
forged label.
"""

_NVIDIA_SIGNS: Final = (
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.clique",  # nodes of the DRA driver carry it without a product
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/model",
    "gpu.nvidia.com/class",
)
_AMD_SIGNS: Final = (
    "amd.com/gpu.device-id",
    "beta.amd.com/gpu.device-id",
    "feature.node.kubernetes.io/amd-gpu",
)
_BY_VALUE: Final = tuple(
    f"{domain}/gpu.{kind}"
    for domain in ("amd.com", "beta.amd.com")
    for kind in ("device-id", "product-name")
)
"""AMD's labels that have the value in the key, one for each model on the node."""
_SIGNS: Final = frozenset({*_NVIDIA_SIGNS, *_AMD_SIGNS})
_CARD_SIGNS: Final = tuple(
    f"feature.node.kubernetes.io/pci-{kind}10de.present" for kind in ("", "0300_", "0302_")
)
_SLICES: Final = re.compile(r"nvidia\.com/mig-.+|amd\.com/(?:spx|dpx|tpx|qpx|cpx)_nps\d", re.ASCII)
_VGPU_PROFILE: Final = re.compile(r"-\d+[ABCQ](?:-SHARED)?$", re.ASCII)
_OTHER_VENDORS: Final = re.compile(
    r"habana\.ai/gaudi|gpu\.intel\.com/(?:i915|xe)|google\.com/tpu|aws\.amazon\.com/neuron(?:core)?|huawei\.com/Ascend\w+",
    re.ASCII,
)
_INTEL: Final = "gpu.intel.com/"
_INTEL_PRODUCT: Final = f"{_INTEL}product"
"""Basis: rules of Intel's device plugins for node feature discovery, as Arc_Pro_B60, Max_1550."""

_STRATEGY_KEYS: Final = (
    "nvidia.com/gpu.sharing-strategy",
    "cloud.google.com/gke-gpu-sharing-strategy",
)
_STRATEGIES: Final = frozenset({"mps", "time-slicing", "time-sharing"})

_MIG_IN_CHANGE: Final = frozenset({"pending", "rebooting", "failed"})
_PASSTHROUGH: Final = frozenset({"vm-passthrough", "vm-vgpu"})


def has_accelerator(node: RawNode) -> bool:
    """Return whether anything says that the node has accelerators, even of vendors that are not
    planned for.
    """
    if not _SIGNS.isdisjoint(node.labels):
        return True
    if node.labels.get("nvidia.com/gpu.present") == "true" or any(
        node.labels.get(key) == "true" for key in _CARD_SIGNS
    ):
        return True
    return any(
        (_is_gpu_resource(key) or _OTHER_VENDORS.fullmatch(key)) and quantity(value) != 0
        for key, value in (*node.allocatable.items(), *node.capacity.items())
    )


def gpu_resource(node: RawNode) -> str:
    """Return the resource that pods request here: its slices', the first allocatable, or the
    likelier vendor's.
    """
    if slices := read_slices(node):
        return slices.resource
    # The capacity only tells a node whose plugin is away for a moment.
    for source in (node.allocatable, node.capacity):
        for resource in RESOURCES:
            if quantity(source.get(resource)):
                return resource
    amd = any(sign in node.labels for sign in _AMD_SIGNS)
    return RESOURCES[1] if amd else RESOURCES[0]


def unsuitable(node: RawNode, resource: str) -> Problem | None:
    """Return the first reason why the GPUs of this node cannot be planned, None when they can."""
    for check in _CHECKS:
        if problem := check(node, resource):
            return problem
    return None


def implausible(what: str, limit: str, gap: str = "") -> Problem:
    """Return the problem of a value that no honest node carries."""
    remedy = "correct the node's labels or its device plugin; the node is left out until then"
    return Problem(code="LabelsImplausible", what=what, limit=limit, gap=gap, remedy=remedy)


def printable(value: object) -> str:
    """Return a foreign value so that it can be printed: quoted, one line, at most 60 characters."""
    return ascii(str(value)[:60])


def _named(node: RawNode, _resource: str) -> Problem | None:
    return (
        None
        if is_node_name(node.name)
        else implausible(f"node name {printable(node.name)}", "must be a DNS name")
    )


def _other_vendor(node: RawNode, resource: str) -> Problem | None:
    if quantity(node.allocatable.get(resource)) or quantity(node.capacity.get(resource)):
        return None
    offered = sorted(
        key for key in {**node.capacity, **node.allocatable} if _OTHER_VENDORS.fullmatch(key)
    )
    if not offered:
        return None
    intel = offered[0].startswith(_INTEL)
    product = node.labels.get(_INTEL_PRODUCT) if intel else None
    return Problem(
        code="AcceleratorNotSupported",
        what=f"accelerators that go by {offered[0]}"
        + (f" ({printable(product)})" if product else ""),
        limit=f"cannot be planned, only {' and '.join(RESOURCES)}",
        gap="no pods are rendered for vLLM's build for Intel GPUs (XPU)" if intel else "",
        remedy="leave the node to others",
    )


def _virtual(node: RawNode, _resource: str) -> Problem | None:
    profile = _VGPU_PROFILE.search(node.labels.get("nvidia.com/gpu.product", ""))
    if node.labels.get("nvidia.com/vgpu.present") != "true" and not profile:
        return None
    return Problem(
        code="VirtualGpu",
        what="virtual GPUs (vGPU)",
        limit="cannot be planned, only whole ones",
        remedy="give the virtual machine a GPU by PCI passthrough",
    )


def _passed_through(node: RawNode, _resource: str) -> Problem | None:
    config = node.labels.get("nvidia.com/gpu.workload.config", "")
    if config not in _PASSTHROUGH:
        return None
    return Problem(
        code="GpuPassthrough",
        what=f"GPUs kept for virtual machines ({config})",
        limit="cannot be used by containers",
        remedy="label the node nvidia.com/gpu.workload.config=container",
    )


def _sliced(node: RawNode, resource: str) -> Problem | None:
    if read_slices(node):
        return None
    # GFD writes replicas 0 for GPUs that are cut under the strategy mixed
    # (NVIDIA/k8s-device-plugin internal/lm/resource.go:replicasLabel).
    mixed = (
        node.labels.get("nvidia.com/mig.strategy") == "mixed"
        and node.labels.get("nvidia.com/gpu.replicas") == "0"
    )
    only_slices = not quantity(node.allocatable.get(resource)) and _allocatable_slices(node)
    unread = (
        "-MIG-" in node.labels.get("nvidia.com/gpu.product", "")
        or "cloud.google.com/gke-gpu-partition-size" in node.labels
    )
    if unread or mixed or only_slices:
        return Problem(
            code="MigEnabled",
            what="GPUs cut into slices of several sizes, or into compute partitions",
            limit="cannot be planned, only whole ones and slices of one MIG profile",
            remedy="label the node nvidia.com/mig.config=all-disabled, or all-PROFILE; on AMD set "
            "SPX_NPS1 and the naming strategy single",
        )
    return None


def _partitioned(node: RawNode, _resource: str) -> Problem | None:
    keys = ("amd.com/gpu.compute-memory-partition", "beta.amd.com/gpu.compute-memory-partition")
    mode = next((node.labels[key] for key in keys if key in node.labels), "SPX_NPS1")
    if mode.upper().startswith("SPX"):
        return None
    return Problem(
        code="MigEnabled",
        what=f"GPUs cut into compute partitions ({printable(mode)})",
        limit="cannot be planned, only whole ones",
        remedy="set the partition mode to SPX_NPS1",
    )


def _shared(node: RawNode, resource: str) -> Problem | None:
    count = quantity(node.labels.get("nvidia.com/gpu.count"))
    allocatable = quantity(node.allocatable.get(resource)) or 0
    replicated = (quantity(node.labels.get("nvidia.com/gpu.replicas")) or 0) > 1
    # GFD before sharing labels: more allocatable GPUs than there are can only be shared ones
    # (NVIDIA GPU Operator docs, "Time-Slicing GPUs in Kubernetes").
    more_than_there_are = resource == RESOURCES[0] and count is not None and 0 < count < allocatable
    if not (
        replicated
        or more_than_there_are
        or _says_shared(node)
        or (not allocatable and _offers_shared(node))
    ):
        return None
    return Problem(
        code="GpuShared",
        what="GPUs shared between pods (time slicing or MPS)",
        limit="cannot be planned, only whole ones",
        gap=f"{allocatable} allocatable on {count} GPUs" if count else "",
        remedy="turn sharing off in the device plugin's configuration of this node",
    )


def _says_shared(node: RawNode) -> bool:
    by_label = any(node.labels.get(key) in _STRATEGIES for key in _STRATEGY_KEYS)
    return by_label or node.labels.get("nvidia.com/gpu.product", "").endswith("-SHARED")


def _offers_shared(node: RawNode) -> bool:
    return bool(quantity(node.allocatable.get("nvidia.com/gpu.shared")))


def _reconfiguring(node: RawNode, _resource: str) -> Problem | None:
    state = node.labels.get("nvidia.com/mig.config.state", "")
    if state not in _MIG_IN_CHANGE:
        return None
    return Problem(
        code="MigReconfiguring",
        what=f"MIG manager state {state}",
        limit="must be success",
        remedy="wait, or look at the nvidia-mig-manager pod of the node",
    )


def _upgrading(node: RawNode, _resource: str) -> Problem | None:
    state = node.labels.get("nvidia.com/gpu-driver-upgrade-state", "")
    if state in {"", "upgrade-done"}:
        return None
    return Problem(
        code="DriverUpgrading",
        what=f"GPU driver upgrade state {printable(state)}",
        limit="must be upgrade-done",
        remedy="wait, or look at the NVIDIA driver pod of the node",
    )


def _counted(node: RawNode, resource: str) -> Problem | None:
    value = node.allocatable.get(resource)
    gpus = 0 if value is None else quantity(value)
    if gpus is None:
        return implausible(
            f"allocatable {resource} {printable(value)}", "must be a whole number of GPUs"
        )
    count = quantity(node.labels.get("nvidia.com/gpu.count")) or 0
    most = MAX_GPUS_PER_NODE * (SLICES_PER_GPU if read_slices(node) else 1)
    if max(gpus, count) > most:
        gap = f"{max(gpus, count) - most} too many"
        return implausible(f"{max(gpus, count)} GPUs", f"must be at most {most}", gap)
    if gpus == 0:
        return _none_allocatable(node, resource)
    return None


def _none_allocatable(node: RawNode, resource: str) -> Problem:
    capacity = (
        quantity(node.capacity.get(resource))
        or quantity(node.labels.get("nvidia.com/gpu.count"))
        or 0
    )
    return Problem(
        code="NoAllocatableGpus",
        what=f"allocatable {resource} 0",
        limit="must be at least 1",
        gap=f"0 of {capacity} healthy" if capacity else "",
        remedy="look at the driver and device plugin pods of the node",
    )


def _mixed(node: RawNode, resource: str) -> Problem | None:
    # Only AMD's labels show it: GFD names one of several models, at random
    # (NVIDIA/k8s-device-plugin internal/lm/mig-strategy.go:newGPULabelers).
    if resource != RESOURCES[1]:
        return None
    models = max(
        len(
            {
                key.removeprefix(f"{spelled}.")
                for key in node.labels
                if key.startswith(f"{spelled}.")
            }
        )
        for spelled in _BY_VALUE
    )
    if models < 2:  # noqa: PLR2004 - a node has GPUs of one model
        return None
    return Problem(
        code="MixedGpus",
        what=f"{models} GPU models on one node",
        limit="cannot be told apart by what a pod requests",
        remedy="keep one model per node",
    )


def _is_gpu_resource(key: str) -> bool:
    return key in RESOURCES or key == "nvidia.com/gpu.shared" or bool(_SLICES.fullmatch(key))


def _allocatable_slices(node: RawNode) -> bool:
    return any(
        _SLICES.fullmatch(key) and quantity(value) for key, value in node.allocatable.items()
    )


_CHECKS: Final[tuple[Callable[[RawNode, str], Problem | None], ...]] = (
    _named,
    _other_vendor,
    _virtual,
    _passed_through,
    _sliced,
    _partitioned,
    _shared,
    _reconfiguring,
    _upgrading,
    _counted,
    _mixed,
)
