"""Which GPU does a node have, and with how much memory? By labels, from the most exact to the
vaguest.

The user's statement, the vendor's label (NVIDIA product; AMD product or device id, old and new
spelling), the cloud's (GKE, CoreWeave), the instance type, Karpenter's name. The first that is
there decides: a name that the catalogue lacks is reported, never replaced by a vaguer one.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.devices import PRODUCT, NodeDevices
from shardwright.hardware.gpus import (
    AMD_DEVICE_IDS,
    NAMELESS,
    NONE,
    ComputeCapability,
    Gpu,
    Stated,
    find_gpu,
    names_form,
    plain_name,
)
from shardwright.hardware.suitability import (
    RESOURCES,
    WHOLE_GPU,
    NodeSlices,
    implausible,
    printable,
    slice_of,
    unknown_slices,
)
from shardwright.hardware.topology import find_instance
from shardwright.hardware.untrusted import RawNode, quantity
from shardwright.units import GIB, MIB

MEMORY_BOUNDS: Final = (0.75, 1.25)
"""The range of a memory label, as a share of the catalogue's. Basis: assumed, variants of one
product name differ by up to 20% (H100 with 96 GB), ECC and drivers by up to 7%; less means a slice,
more a forged label.
"""

STATED_MOST: Final = 2.25
"""The same for the most memory that a person states of a node. Basis: assumed; boards of RTX 4090
are sold with twice the memory (48 GB; vllm-project/vllm#54059).
"""

STATED_MEMORY: Final = "gpu-memory-mib"

BYTES_NOT_MEBIBYTES: Final = 10**7
"""A ``gpu.memory`` above this is in bytes: old GFD versions wrote so. Source:
tests/data/nodes/t4-shared-bytes*.
"""

_PRODUCT_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "nvidia.com/gpu": (
        "nvidia.com/gpu.product",
        "cloud.google.com/gke-accelerator",
        "gpu.nvidia.com/model",
        "gpu.nvidia.com/class",
    ),
    "amd.com/gpu": ("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
}
_DEVICE_ID_KEYS: Final = ("amd.com/gpu.device-id", "beta.amd.com/gpu.device-id")
_VRAM_KEYS: Final = ("amd.com/gpu.vram", "beta.amd.com/gpu.vram")
_KARPENTER_KEYS: Final = ("karpenter.k8s.aws/instance-gpu-name", "karpenter.azure.com/sku-gpu-name")
VENDORS: Final = {"nvidia.com/gpu": "NVIDIA", "amd.com/gpu": "AMD"}
_PRODUCT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._()-]{0,62}", re.ASCII)


def identify(
    raw: RawNode, resource: str, stated: Stated = NONE, devices: NodeDevices | None = None
) -> tuple[Gpu, str] | Problem:
    """Return the GPU with this node's memory and the product string, or why it is not known.

    ``stated`` may have what the catalogue lacks; ``devices`` of ResourceSlices name the product.
    """
    key, product = _product(raw, resource, devices)
    certain = names_form(key, product) and _PRODUCT.fullmatch(product)
    gpu = (
        find_gpu(product, _memory_hint(raw, resource, devices))
        # Nobody states a GPU anew that the catalogue has.
        or stated.gpus.get(plain_name(product))
        if certain
        else None
    )
    if gpu is None:
        nameless = plain_name(product) == NAMELESS
        return _nameless(key, product) if nameless else _unknown(key, product)
    # Anyone may have written the label: the resource is the device plugin's word.
    if gpu.vendor != VENDORS[resource]:
        return implausible(
            f"{printable(product)} on a node with {resource}",
            f"must be a GPU of {VENDORS[resource]}",
        )
    if problem := _contradiction(gpu, devices):
        return problem
    memory = _memory_bytes(raw, resource, devices)
    if memory is None:
        return gpu, product
    low, high = MEMORY_BOUNDS
    # A person who states it knows of other chips on the board.
    high = STATED_MOST if raw.stated(STATED_MEMORY) else high
    if not low <= memory / gpu.memory_bytes <= high:
        return _another_memory(memory, gpu)
    # Variants of one product name differ by up to 20%, drivers and ECC by 7%.
    return _with_memory(gpu, memory), product


def identify_slice(
    raw: RawNode, slices: NodeSlices, stated: Stated, devices: NodeDevices | None = None
) -> tuple[Gpu, str] | Problem:
    """Return a slice of the node's GPUs with its stated memory, and the product string, or why it
    is not known.
    """
    key, product = _product(raw, WHOLE_GPU, devices)
    gpu = find_gpu(product) or stated.gpus.get(plain_name(product))
    if gpu is None or not _PRODUCT.fullmatch(product):
        return _unknown(key, product)
    if problem := unknown_slices(gpu) or _contradiction(gpu, devices):
        return problem
    share, memory = slice_of(gpu, slices.profile), slices.memory_bytes
    if memory is None:
        return share, slices.product
    low, high = MEMORY_BOUNDS
    if not low <= memory / share.memory_bytes <= high:
        limit = f"must be near the {share.memory_bytes // MIB} MiB of {share.id}"
        return implausible(f"{memory // MIB} MiB of a slice's memory", limit)
    return _cached_slice(gpu, slices.profile, memory), slices.product


@lru_cache(maxsize=256)
def _cached_slice(gpu: Gpu, profile: str, memory_bytes: int) -> Gpu:
    return slice_of(gpu, profile, memory_bytes)


def _contradiction(gpu: Gpu, devices: NodeDevices | None) -> Problem | None:
    if devices is None or not devices.contradicts(gpu):
        return None
    return implausible(
        f"compute capability {_version(devices.capability)}",
        f"must be {_version(gpu.compute_capability)} of {gpu.id}",
    )


def _version(capability: ComputeCapability | None) -> str:
    return ".".join(map(str, capability or ()))


def _product(raw: RawNode, resource: str, devices: NodeDevices | None) -> tuple[str, str]:
    if stated := raw.stated("gpu-model"):
        return "shardwright.io/gpu-model", stated
    if devices:
        return PRODUCT, devices.product
    labels = raw.labels
    for key in _PRODUCT_KEYS[resource]:
        if value := labels.get(key) or (_counted(labels, key) if resource == RESOURCES[1] else ""):
            return key, value
    for key in _DEVICE_ID_KEYS if resource == RESOURCES[1] else ():
        if value := labels.get(key) or _counted(labels, key):
            return key, AMD_DEVICE_IDS.get(value.lower(), value)
    if instance := find_instance(raw):
        return "node.kubernetes.io/instance-type", instance.gpu_id
    return next(((key, labels[key]) for key in _KARPENTER_KEYS if labels.get(key)), ("", ""))


def _counted(labels: Mapping[str, str], key: str) -> str:
    """Return the value of a label ``<key>.<value>: "<count>"``, the old spelling of AMD's
    labeller.
    """
    prefix = key + "."
    return next(
        (
            label.removeprefix(prefix)
            # The API server writes labels in any order.
            for label in sorted(labels)
            if label.startswith(prefix)
        ),
        "",
    )


def _another_memory(memory: int, gpu: Gpu) -> Problem:
    mebibytes = memory // MIB
    problem = implausible(
        f"{mebibytes} MiB of GPU memory",
        f"must be near the {gpu.memory_bytes // MIB} MiB of {gpu.id}",
    )
    if not 1 < memory / gpu.memory_bytes <= STATED_MOST:
        return problem
    remedy = f"if its boards have that much, label it shardwright.io/{STATED_MEMORY}={mebibytes}"
    return replace(problem, remedy=f"{remedy}; else {problem.remedy}")


def _unknown(key: str, product: str) -> Problem:
    return Problem(
        code="GpuUnknown",
        what=f"{key} {printable(product)}" if key else "GPU name (no label holds one)",
        limit="must name a GPU of the catalogue",
        remedy="set the node label shardwright.io/gpu-model to an id of shardwright gpus, or have "
        "it added to gpus of the chart",
    )


def _nameless(key: str, product: str) -> Problem:
    return Problem(
        code="GpuUnknown",
        what=f"{key} {printable(product)}",
        limit="is what a driver calls every GPU that is newer than itself",
        remedy="update the driver, or say which GPU it is: set the node label "
        "shardwright.io/gpu-model to an id of shardwright gpus, as VR200-NVL-280GB",
    )


def _memory_hint(raw: RawNode, resource: str, devices: NodeDevices | None) -> int | None:
    """Return bytes that tell products of one name apart; clouds' nominal sizes are good for no
    more.
    """
    if memory := _memory_bytes(raw, resource, devices):
        return memory
    mebibytes = quantity(raw.labels.get("karpenter.k8s.aws/instance-gpu-memory"))
    gigabytes = quantity(raw.labels.get("gpu.nvidia.com/vram"))
    return mebibytes * MIB if mebibytes else gigabytes * GIB if gigabytes else None


def _memory_bytes(raw: RawNode, resource: str, devices: NodeDevices | None) -> int | None:
    if stated := quantity(raw.stated(STATED_MEMORY)):
        return stated * MIB
    if devices and devices.memory_bytes:
        return devices.memory_bytes
    if resource == RESOURCES[1]:
        vram = next(
            (
                value
                for key in _VRAM_KEYS
                if (value := raw.labels.get(key) or _counted(raw.labels, key))
            ),
            "",
        )
        return (quantity(vram.removesuffix("G")) or 0) * GIB or None
    label = quantity(raw.labels.get("nvidia.com/gpu.memory")) or 0
    return (label if label > BYTES_NOT_MEBIBYTES else label * MIB) or None


@lru_cache(maxsize=256)
def _with_memory(gpu: Gpu, memory_bytes: int) -> Gpu:
    return replace(gpu, memory_bytes=memory_bytes, memory_basis="label of the node")
