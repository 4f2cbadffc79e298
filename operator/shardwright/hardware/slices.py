"""What is a MIG slice worth as a GPU of its own, on nodes whose slices are all of one profile?

A slice has its share of its GPU's memory, bandwidth and multiprocessors, and no link to another
one. Refused are several profiles on a node and parts of a slice (compute instances). Sources:
docs.nvidia.com/datacenter/tesla/mig-user-guide; labels: NVIDIA/k8s-device-plugin@1b826acc
internal/lm and the label dumps in tests/data/nodes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from types import MappingProxyType
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.gpus import Gpu
from shardwright.hardware.untrusted import RawNode, quantity
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
