"""What can a GPU do, by data sheets and node labels? Each figure has a basis and a source.

An unknown product is reported, never guessed. The rows are data (``gpus.csv``), read once.

Which GPU of the catalogue does a product label, a cloud's name or an AMD device id mean?

Names are matched whole or up to a dash, so ``NVIDIA-GB300-WS`` is not a GB300 and ``A100X`` not an
A100. Sources: NVIDIA/k8s-device-plugin@1b826acc internal/lm, ROCm/k8s-device-plugin@ed764684,
dstackai/gpuhunt constraints.py, and the label dumps in tests/data/nodes.

What has the administrator stated about nodes: data sheets of GPUs, prices, which labels are
believed?

What does one GPU cost for an hour? As its owner states, or in H100s by clouds' lists or data
sheet.

Only prices of one list are compared, so neither currency nor discounts are in them. The rows are
data (``prices.csv``).
"""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from math import inf
from statistics import median
from types import MappingProxyType
from typing import Final

from shardwright.hardware.taints import TaintState
from shardwright.units import GIGA, MIB, TERA

_RULES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"vr200(-nvl(72|144)?)?$|vr-nvl(72|144)$", ("VR200-NVL-280GB",)),
    (r"gb300(?!-ws)", ("GB300-NVL-278GB",)),
    (r"gb200", ("GB200-NVL-186GB",)),
    (r"gh200-144gb?", ("GH200-144GB",)),
    (r"gh200-(120|480)gb?", ("GH200-96GB",)),
    (r"gh200", ("GH200-96GB", "GH200-144GB")),
    (r"gb10", ("GB10-128GB",)),
    (r"b300", ("B300-SXM-270GB",)),
    (r"b200", ("B200-SXM-180GB",)),
    (r"h200-nvl", ("H200-NVL-141GB",)),
    (r"h200", ("H200-SXM-141GB",)),
    (r"h100-nvl(?!ink)", ("H100-NVL-94GB",)),
    (r"h100-pcie", ("H100-PCIE-80GB",)),
    # With 96 GB it has the same chip; its nodes state the memory.
    (r"h100(-(sxm5?|nvlink|mega|hbm3|80gb|96gb))*$", ("H100-SXM-80GB",)),
    (r"h20-3e", ("H20-3e-141GB",)),
    (r"h20", ("H20-96GB",)),
    (r"h800(?!-(pcie|nvl))", ("H800-80GB",)),
    (r"a100-80gb-pcie|a100-pcie-80gb", ("A100-PCIE-80GB",)),
    (r"a100-40gb-pcie|a100-pcie-40gb", ("A100-PCIE-40GB",)),
    (r"a100-pcie", ("A100-PCIE-40GB", "A100-PCIE-80GB")),
    (r"(tesla-)?a100-((sxm4?|nvlink)-)?40gb", ("A100-SXM4-40GB",)),
    (r"(tesla-)?a100-((sxm4?|nvlink)-)?80gb", ("A100-SXM4-80GB",)),
    (r"(tesla-)?a100", ("A100-SXM4-40GB", "A100-SXM4-80GB")),
    (r"a800-((sxm4?|nvlink)-)?40gb", ("A800-SXM4-40GB",)),
    (r"a800-((sxm4?|nvlink)-)?80gb", ("A800-SXM4-80GB",)),
    (r"a800$|a800-(sxm4?|nvlink)$", ("A800-SXM4-40GB", "A800-SXM4-80GB")),
    (r"a2$|a2-16gb", ("A2-16GB",)),
    (r"a16$|a16-16gb", ("A16-16GB",)),
    (r"a10g", ("A10G-24GB",)),
    (r"a10(?!-\d+[abcq])", ("A10-24GB",)),
    (r"a30", ("A30-24GB",)),
    (r"a40", ("A40-48GB",)),
    (r"l40s", ("L40S-48GB",)),
    (r"l40", ("L40-48GB",)),
    (r"l20", ("L20-48GB",)),
    (r"l4", ("L4-24GB",)),
    (r"rtx-pro-6000-blackwell-workstation-edition", ("RTX-PRO-6000-WS-96GB",)),
    (r"rtx-pro-(server-)?6000(-blackwell)?(-server-edition)?$", ("RTX-PRO-6000-BSE-96GB",)),
    (r"rtx-pro-5000-72gb", ("RTX-PRO-5000-72GB",)),
    (r"rtx-pro-5000$", ("RTX-PRO-5000-48GB", "RTX-PRO-5000-72GB")),
    (r"rtx-pro-4500(-blackwell)?$", ("RTX-PRO-4500-32GB",)),
    (r"rtx-a6000$", ("RTX-A6000-48GB",)),
    (r"rtx-6000-ada", ("RTX-6000-Ada-48GB",)),
    (r"(geforce-)?rtx-3090$", ("RTX-3090-24GB",)),
    (r"(geforce-)?rtx-4090$", ("RTX-4090-24GB",)),
    (r"(geforce-)?rtx-4090-?d$", ("RTX-4090-D-24GB",)),
    (r"(geforce-)?rtx-5090$", ("RTX-5090-32GB",)),
    (r"(tesla-)?t4", ("T4-16GB",)),
    (r"(tesla-)?v100-(sxm[23]|dgxs)-16gb", ("V100-SXM2-16GB",)),
    (r"(tesla-)?v100-(sxm[23]|dgxs)-32gb", ("V100-SXM2-32GB",)),
    (r"(tesla-)?v100-(sxm[23]|dgxs)|(tesla-)?v100$", ("V100-SXM2-16GB", "V100-SXM2-32GB")),
    (r"(instinct-)?mi210", ("MI210-64GB",)),
    (r"(instinct-)?mi250x", ("MI250X-128GB",)),
    (r"(instinct-)?mi250", ("MI250-128GB",)),
    (r"(instinct-)?mi300x", ("MI300X-192GB",)),
    (r"(instinct-)?mi308x", ("MI308X-192GB",)),
    (r"(instinct-)?mi325x?", ("MI325X-256GB",)),
    (r"(instinct-)?mi350x?", ("MI350X-288GB",)),
    (r"(instinct-)?mi355x?", ("MI355X-288GB",)),
    (r"(instinct-)?mi455x?", ("MI455X-432GB",)),
)
_GKE: Final = MappingProxyType(
    {"nvidia-tesla-a100": "A100-SXM4-40GB", "nvidia-tesla-v100": "V100-SXM2-16GB"}
)
"""GKE names that say less than they mean. Source: cloud.google.com/kubernetes-engine GPU machine
families.
"""

AMD_DEVICE_IDS: Final = MappingProxyType(
    {
        "740f": "MI210-64GB",
        "740c": "MI250-128GB",
        "7408": "MI250X-128GB",
        "74a1": "MI300X-192GB",
        "74a9": "MI300X-192GB",
        "74b5": "MI300X-192GB",  # SR-IOV function: carries no product name
        "74bd": "MI300X-192GB",
        "74a2": "MI308X-192GB",
        "74b6": "MI308X-192GB",
        "74a5": "MI325X-256GB",
        "75a0": "MI350X-288GB",
        "75a3": "MI355X-288GB",
    }
)
"""PCI device id (lower-case hex) to catalogue id. Source: dstackai/gpuhunt constraints.py."""


_OPEN_FORMS: Final = re.compile(
    r"(nvidia[ -])?(a100|h100|h200|v100)(?!.*(sxm|pcie|nvl))", re.IGNORECASE
)
"""Names of Azure's instance catalogue that say neither board nor card: H100 is the SXM of ND and
the NVL of NC.
"""

NAMELESS: Final = "nvidia-graphics-device"
"""The name by NVIDIA's driver of every GPU that is newer than itself, as :func:`plain_name` has
it.
"""


def names_form(key: str, name: str) -> bool:
    """Return whether a Karpenter label's value says which form of a product it means.

    On AWS the name alone decides (there are no PCIe cards of these products), on Azure it does not.

    >>> (
    ...     names_form("karpenter.azure.com/sku-gpu-name", "H100"),
    ...     names_form("karpenter.azure.com/sku-gpu-name", "T4"),
    ... )
    (False, True)
    """
    return not (key.startswith("karpenter.azure.com/") and _OPEN_FORMS.match(name))


def candidates(product: str, names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the catalogue ids that a name may mean: none, one, or rows that only memory tells
    apart.

    ``names`` holds the exact names of the catalogue in lower case with dashes.

    >>> candidates("Tesla-V100-SXM2-16GB-N", {})
    ('V100-SXM2-16GB',)
    """
    name = plain_name(product)
    if name in _GKE:
        return (_GKE[name],)
    if name in names:
        return names[name]
    bare = re.sub(r"^(nvidia|amd)-", "", name)
    # The first rule counts, so longer names stand before their beginnings.
    return next((ids for rule, ids in _RULES if _pattern(rule).match(bare)), ())


@cache
def _pattern(rule: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{rule})(?=$|-)")


def plain_name(product: str) -> str:
    """Return a name in lower case with dashes, without sharing and MIG suffixes."""
    name = re.sub(r"[\s_]+", "-", product.strip()).removesuffix("-SHARED")
    return re.sub(r"-MIG-[0-9A-Za-z.+]+$", "", name).lower()


NVLINK_LATENCY_SECONDS: Final = 1.0e-6
"""One ring step over NVLink or xGMI, seconds. Basis: measured, (8 ranks - 2 ranks) / 12 steps of a
1 KiB NCCL all-reduce: H100 0.81, H200 0.90, A100 0.98, B200 1.25, B300 1.28 microseconds; assumed
for xGMI. Source: ai-dynamo/aiconfigurator@095f58a51 systems/data/*/comm/nccl.
"""

PCIE_LATENCY_SECONDS: Final = 1.4e-6
"""One ring step over PCIe, seconds. Basis: measured in the same way: L40S 1.37, RTX PRO 6000 1.50
microseconds. Source: ai-dynamo/aiconfigurator@095f58a51
systems/data/{l40s,rtx_pro_6000_server}/comm/nccl.
"""

UNKNOWN_PCIE_BYTES_PER_SECOND: Final = 16 * GIGA
"""PCIe if the catalogue names none (TPU), bytes/s one way. Basis: assumed, PCIe 3 x16 as the
slowest in use.
"""

DEVICES_PER_PACKAGE: Final = MappingProxyType({"MI250-128GB": 2, "MI250X-128GB": 2})
"""Packages whose dies are devices of their own. Source: gpus.csv notes ("per GCD halve
everything").
"""

MEMORY_MATCH: Final = 0.15
"""How far (share) a stated memory may be from a row's for a name that several rows share. Basis:
assumed, labels are up to 7% below nominal (ECC, driver) and rows of one name differ by 50% or
more.
"""


WORTH_EXPONENT: Final = 0.35
"""The power of memory bandwidth and of FLOP/s in the worth of a GPU beside another. Basis: assumed;
it gives an A100 half of an H100, an L4 a fifth and a GB200 twice as much, about as clouds charge
for them (``hardware/prices.csv``).
"""

NODE_GPUS_MOST: Final = 16
"""GPUs that one node holds at most: a domain of more is a rack. Basis: the largest instance type
(a2-megagpu-16g).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A kind of link between GPUs, as one GPU sees it, in one direction.

    ``latency_seconds`` is the start-up time of one step of a collective over it.
    """

    name: str  # "NVLink4 NVSwitch", "PCIe 4 x16", "400 Gb/s RDMA", ...
    bytes_per_second: float
    latency_seconds: float
    # datasheet | measured | fitted | assumed | stated (by a label of the user).
    basis: str
    source: str

    def __hash__(self) -> int:
        return hash((self.name, self.bytes_per_second))


_MEASURED: Final = {
    "bf16": "measured_matmul_bf16_tflops",
    "fp16": "measured_matmul_bf16_tflops",
    "fp8": "measured_matmul_fp8_tflops",
}
"""Columns with the best rate of large matrix products. Basis: measured. Source:
stas00/ml-engineering@744d01e.
"""


ComputeCapability = tuple[int, int]
"""NVIDIA's, major and minor: (9, 0) is Hopper."""


ARM_HOSTS: Final = frozenset(
    {
        "GB10-128GB",
        "GB200-NVL-186GB",
        "GB300-NVL-278GB",
        "GH200-144GB",
        "GH200-96GB",
        "VR200-NVL-280GB",
    }
)
"""GPUs that are sold on one board with an Arm CPU (Grace, Vera). Source: the data sheets in
gpus.csv.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator of the catalogue; FLOP/s are dense.

    ``flops`` maps bf16, fp16, fp8, int8, fp4 to FLOP/s; without a key the GPU has no such unit (no
    BF16 before compute capability 8.0, no FP8 before 8.9). ``scale_up_gpus`` is how many GPUs the
    scale-up link joins at most (1: none). ``basis`` and ``source`` are of bandwidth and FLOP/s,
    each link has its own, ``memory_basis`` is the memory's; ``cross_checked`` is how many sources
    agree (yes, partly, no). ``stated``: an administrator has read it off a data sheet. A slice has
    a ``mig_profile`` (``3g.40gb``), the ``whole`` GPU that it is cut from and the number of
    ``slices`` that this is cut into; else they are empty, None and 1. ``gfx`` is AMD's name of the
    architecture (``gfx942``).
    """

    id: str
    vendor: str  # NVIDIA | AMD | ...
    memory_bytes: int
    memory_bytes_per_second: float
    flops: Mapping[str, float]
    scale_up: Link | None
    scale_up_gpus: int
    # PCIe: between two GPUs of a node that no scale-up link joins.
    host: Link
    compute_capability: ComputeCapability | None
    basis: str
    source: str
    memory_basis: str = ""
    cross_checked: str = "no"
    matmul_flops: Mapping[str, float] = field(default_factory=dict, hash=False)
    stated: bool = False
    mig_profile: str = ""
    whole: "Gpu | None" = None
    slices: int = 1
    gfx: str = ""

    @property
    def target(self) -> str:
        """Return what kernels are compiled for: a compute capability, an LLVM target of AMD; empty
        if neither is known.

        >>> load_gpus()["H100-SXM-80GB"].target, load_gpus()["MI300X-192GB"].target
        ('9.0', 'gfx942')
        """
        return self.gfx or ".".join(map(str, self.compute_capability or ()))

    @property
    def host_architecture(self) -> str:
        """Return the architecture of its nodes, as far as the GPU tells."""
        return "arm64" if (self.whole or self).id in ARM_HOSTS else "amd64"

    @property
    def generation(self) -> str:
        """Return what GPUs with the same matrix units have in common: the vendor, and the first
        number of NVIDIA's compute capability (8.9 apart from 8.0: it has other units).
        """
        if self.compute_capability is None:
            return self.vendor
        major, minor = self.compute_capability
        return f"{self.vendor} {major}.{minor}" if minor else f"{self.vendor} {major}"

    @property
    def of_a_rack(self) -> bool:
        """Return whether its scale-up link joins nodes: a node of it is a tray of a rack."""
        return self.scale_up_gpus > NODE_GPUS_MOST

    @property
    def worth(self) -> float:
        """Return the relative worth of the GPU by its data sheet; an H100 has about 1."""
        plain = max(
            (self.flops[unit] for unit in ("bf16", "fp16") if unit in self.flops), default=TERA
        )
        return float(
            (self.memory_bytes_per_second / (3350 * GIGA) * plain / (989 * TERA)) ** WORTH_EXPONENT
        )

    def __hash__(self) -> int:
        return hash((self.id, self.memory_bytes))


@cache
def load_gpus() -> Mapping[str, Gpu]:
    """Return the catalogue by id, read once from the packaged table.

    >>> gpu = load_gpus()["H100-SXM-80GB"]
    >>> gpu.scale_up.name, gpu.scale_up_gpus, gpu.memory_bytes // 2**20
    ('NVLink4 NVSwitch', 8, 81559)
    """
    return MappingProxyType({row["gpu_id"]: _gpu(row) for row in _rows()})


@lru_cache(maxsize=1024)
def find_gpu(product: str, memory_bytes: int | None = None) -> Gpu | None:
    """Return the GPU that a product label, GKE name, data-sheet name or id names; None: unknown.

    ``memory_bytes`` decides between rows of one name (``A100``: 40 or 80 GB); without it such a
    name is unknown.

    >>> find_gpu("NVIDIA-H100-80GB-HBM3").id, find_gpu("NVIDIA-GB300-WS")
    ('H100-SXM-80GB', None)
    """
    catalogue = load_gpus()
    rows = [catalogue[gpu_id] for gpu_id in candidates(product, _names())]
    # A single row is right whatever its label says; bounds are checked later.
    if len(rows) > 1 and memory_bytes is not None:
        rows = [row for row in rows if abs(memory_bytes / row.memory_bytes - 1) <= MEMORY_MATCH]
    return rows[0] if len(rows) == 1 else None


def catalogue_ids(product: str) -> tuple[str, ...]:
    """Return the catalogue ids that a product may mean; empty if it has none."""
    return candidates(product, _names())


def search_ids(text: str) -> tuple[str, ...]:
    """Return the catalogue ids that contain a text, hyphens or not, and those that it means as a
    product.

    >>> search_ids("NVIDIA-H200"), search_ids("rtx5090")
    (('H200-SXM-141GB', 'H200-NVL-141GB'), ('RTX-5090-32GB',))
    """
    part = _joined(plain_name(text))
    found = {
        gpu_id
        for name, ids in _names().items()
        if (part or not text) and part in _joined(name)
        for gpu_id in ids
    }
    found.update(catalogue_ids(text))
    return tuple(gpu_id for gpu_id in load_gpus() if gpu_id in found)


def _joined(name: str) -> str:
    return name.replace("-", "")


@cache
def _rows() -> tuple[Mapping[str, str], ...]:
    text = resources.files("shardwright.hardware").joinpath("gpus.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def _names() -> Mapping[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {}
    for row in _rows():
        listed = [row["gpu_id"], row["node_label_value"], *row["gke_accelerator_label"].split(";")]
        listed += [
            alias.partition(" (")[0]
            for alias in row["label_aliases"].split(";")
            if "(vGPU)" not in alias
        ]
        for name in {name.strip().lower().replace("_", "-") for name in listed} - {""}:
            names[name] = (*names.get(name, ()), row["gpu_id"])
    return MappingProxyType(names)


def _gpu(row: Mapping[str, str]) -> Gpu:
    devices = DEVICES_PER_PACKAGE.get(row["gpu_id"], 1)
    domain = int(row["scaleup_domain_gpus"] or 1) * devices
    capability = _compute_capability(row["compute_capability"])
    return Gpu(
        id=row["gpu_id"],
        vendor=row["vendor"],
        memory_bytes=_memory_bytes(row) // devices,
        memory_bytes_per_second=float(row["mem_bw_GBps"]) * GIGA / devices,
        flops=_flops(row, capability, devices),
        scale_up=_scale_up(row, devices)
        if domain > 1 and row["scaleup_GBps_per_direction"]
        else None,
        scale_up_gpus=domain if row["scaleup_GBps_per_direction"] else 1,
        host=_host(row),
        compute_capability=capability,
        basis="assumed" if "secondary" in row["spec_sources"] else "datasheet",
        source=row["spec_sources"],
        memory_basis=row["mem_label_basis"]
        if row["mem_mib_label"]
        else "nominal decimal gigabytes",
        cross_checked=row["cross_checked"],
        matmul_flops=_matmul_flops(row, capability, devices),
        gfx=row["compute_capability"] if row["compute_capability"].startswith("gfx") else "",
    )


def _memory_bytes(row: Mapping[str, str]) -> int:
    """Without a label: the nominal decimal gigabytes, the smaller reading."""
    return (
        int(row["mem_mib_label"]) * MIB
        if row["mem_mib_label"]
        else int(row["mem_nominal_gb"]) * GIGA
    )


def _compute_capability(text: str) -> ComputeCapability | None:
    major, dot, minor = text.partition(".")
    return (int(major), int(minor)) if dot else None


def _flops(
    row: Mapping[str, str], capability: ComputeCapability | None, devices: int
) -> Mapping[str, float]:
    """The table's bf16 column is FP16 on GPUs before Ampere."""
    columns = {
        "bf16": "bf16_dense_tflops",
        "fp16": "bf16_dense_tflops",
        "fp8": "fp8_dense_tflops",
        "int8": "int8_dense_tops",
        "fp4": "fp4_dense_tflops",
    }
    if capability is not None and capability < (8, 0):
        del columns["bf16"]
    return MappingProxyType(
        {kind: float(row[name]) * TERA / devices for kind, name in columns.items() if row[name]}
    )


def _matmul_flops(
    row: Mapping[str, str], capability: ComputeCapability | None, devices: int
) -> Mapping[str, float]:
    flops = dict(reached_flops(row["vendor"], _flops(row, capability, devices)))
    for kind, name in _MEASURED.items():
        if row[name] and kind in flops:
            flops[kind] = float(row[name]) * TERA / devices
    return MappingProxyType(flops)


def reached_flops(vendor: str, flops: Mapping[str, float]) -> Mapping[str, float]:
    """Return the FLOP/s that large products reach, at the share of the data sheet that the vendor's
    other GPUs do.
    """
    share = _matmul_share(vendor)
    return MappingProxyType({kind: rate * share for kind, rate in flops.items()})


@cache
def _matmul_share(vendor: str) -> float:
    """Return the median of the vendor's measured shares; of all GPUs if it has none."""
    shares = [
        (row["vendor"], float(row[name]) / float(row[f"{kind}_dense_tflops"]))
        for row in _rows()
        for kind, name in (("bf16", _MEASURED["bf16"]), ("fp8", _MEASURED["fp8"]))
        if row[name]
    ]
    return median(
        [share for owner, share in shares if owner == vendor] or [share for _, share in shares]
    )


def _scale_up(row: Mapping[str, str], devices: int) -> Link:
    return Link(
        name=row["scaleup_kind"],
        bytes_per_second=float(row["scaleup_GBps_per_direction"]) * GIGA / devices,
        latency_seconds=NVLINK_LATENCY_SECONDS,
        basis="datasheet",
        source=row["spec_sources"],
    )


def _host(row: Mapping[str, str]) -> Link:
    known = bool(row["pcie_GBps_per_direction"])
    return Link(
        name=f"PCIe {row['pcie_gen']} x16" if known else "PCIe",
        bytes_per_second=float(row["pcie_GBps_per_direction"]) * GIGA
        if known
        else UNKNOWN_PCIE_BYTES_PER_SECOND,
        latency_seconds=PCIE_LATENCY_SECONDS,
        basis="datasheet" if known else "assumed",
        source=row["spec_sources"] if known else "UNKNOWN_PCIE_BYTES_PER_SECOND",
    )


NODE_SET: Final = "shardwright.io/node-set"
"""The label that says which installation of the operator plans on a node. A node has one value of
it, or none, so no two installations with different ones ever plan on the same node.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """Facts that hold for all nodes, whatever their labels say.

    ``gpus`` are what the catalogue lacks, by the plain name of their product. ``prices`` are of one
    GPU for an hour, by its id. ``label_prefix`` is of labels that no kubelet can write: a node's
    price and NVLink domain are believed under it alone (empty: from any label or annotation of
    ours, and from the node's clique). ``node_set`` is the value of :data:`NODE_SET` on nodes to
    plan on; empty: they must have none. ``taint_states`` is what taints say, by key or beginning,
    ``rdma_resources`` are further names of RDMA devices.
    """

    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    label_prefix: str = ""
    node_set: str = ""
    taint_states: Mapping[str, TaintState] = field(default_factory=dict)
    rdma_resources: frozenset[str] = frozenset()

    def price_of(self, gpu: Gpu) -> float | None:
        """Return the price of one GPU for an hour, a slice's by its share; None: not stated."""
        price = self.prices.get((gpu.whole or gpu).id)
        return price and price / gpu.slices


NONE = Stated()


def by_product(gpus: Iterable[Gpu]) -> Mapping[str, Gpu]:
    """Return stated GPUs by the plain name of their product."""
    return MappingProxyType({plain_name(gpu.id): gpu for gpu in gpus})


class PriceBasis(StrEnum):
    """Where a price comes from; a stated one is in the owner's currency, the others in hours of an
    H100.
    """

    STATED = "Stated"
    LISTED = "Listed"
    ASSUMED = "Assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """The price of one GPU for an hour, its basis, and the source."""

    per_hour: float
    basis: PriceBasis
    source: str = ""


def relative_price(gpu: Gpu) -> GpuPrice:
    """Return the price of one GPU for an hour, in hours of an H100; a slice's is its share.

    >>> (
    ...     relative_price(load_gpus()["L40S-48GB"]).per_hour,
    ...     relative_price(load_gpus()["GB200-NVL-186GB"]).per_hour,
    ... )
    (0.35, 1.6)
    """
    if gpu.whole:
        price = relative_price(gpu.whole)
        return replace(price, per_hour=price.per_hour / gpu.slices)
    return _listed().get(gpu.id) or _assumed(gpu)


@lru_cache(maxsize=1024)
def _assumed(gpu: Gpu) -> GpuPrice:
    """Return a price for a GPU that no list has, by its data sheet, in the order of its vendor's
    listed GPUs.

    It costs no more than a GPU with at least all that it has, and no less than one with at most
    that and no better scale-up link. If the lists contradict each other the lower price counts.
    """
    own = [(load_gpus()[gpu_id], price.per_hour) for gpu_id, price in _listed().items()]
    own = [(other, price) for other, price in own if other.vendor == gpu.vendor]
    floor = max(
        (price for other, price in own if _has_all_of(gpu, other) and _is_linked_as(gpu, other)),
        default=0.0,
    )
    ceiling = min((price for other, price in own if _has_all_of(other, gpu)), default=inf)
    return GpuPrice(
        per_hour=min(max(float(f"{gpu.worth * _asked_share(gpu.vendor):.2g}"), floor), ceiling),
        basis=PriceBasis.ASSUMED,
        source="the data sheet, at what the vendor's listed GPUs cost beside theirs, "
        "in their order",
    )


def _has_all_of(gpu: Gpu, other: Gpu) -> bool:
    enough = (
        gpu.memory_bytes >= other.memory_bytes
        and gpu.memory_bytes_per_second >= other.memory_bytes_per_second
    )
    return enough and all(gpu.flops.get(unit, 0.0) >= flops for unit, flops in other.flops.items())


def _is_linked_as(gpu: Gpu, other: Gpu) -> bool:
    rates = [item.scale_up.bytes_per_second if item.scale_up else 0.0 for item in (gpu, other)]
    return gpu.scale_up_gpus >= other.scale_up_gpus and rates[0] >= rates[1]


@cache
def _listed() -> Mapping[str, GpuPrice]:
    text = (
        resources.files("shardwright.hardware").joinpath("prices.csv").read_text(encoding="utf-8")
    )
    return MappingProxyType(
        {row["gpu_id"]: _price(row) for row in csv.DictReader(text.splitlines())}
    )


def _price(row: Mapping[str, str]) -> GpuPrice:
    share = float(row["gpu_hour_usd"]) / float(row["h100_gpu_hour_usd"])
    where = f"{row['instance_type']} beside {row['h100_instance_type']}"
    return GpuPrice(
        per_hour=float(f"{share:.2g}"), basis=PriceBasis.LISTED, source=f"{row['source']}, {where}"
    )


@cache
def _asked_share(vendor: str) -> float:
    """Return the vendor's median ratio of list price to data-sheet worth; over all vendors if it
    has none.
    """
    gpus = load_gpus()
    shares = [
        (gpus[gpu_id].vendor, price.per_hour / gpus[gpu_id].worth)
        for gpu_id, price in _listed().items()
    ]
    return median(
        [share for owner, share in shares if owner == vendor] or [share for _, share in shares]
    )
