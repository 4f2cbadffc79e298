"""Why can a node's GPUs not be planned: sliced, shared, virtual, in change, mixed, not believable?

A state that may soon pass (cordoned, not ready) is no reason but a fact.
"""

import re
from collections.abc import Callable
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.slices import SLICES_PER_GPU, read_slices
from shardwright.hardware.untrusted import RawNode, is_node_name, quantity

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
