"""The administrator's settings for nodes: prices, the trusted label prefix, the nodes to plan on.

A price of a GPU that neither the catalogue nor ``gpus`` has is refused.

Pools of nodes that an autoscaler adds on demand, as an administrator describes them.

A pool on whose nodes nothing could be planned is refused, and one whose labels name an NVLink
domain over several nodes.

GPUs that the catalogue lacks, as an administrator reads them off a data sheet.

A GPU of the catalogue is refused, and a product by which nobody could tell it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from shardwright.api.parts import LABEL_KEY, LABEL_KEY_MAX_LENGTH, LabelValue, Part
from shardwright.api.violations import read_part
from shardwright.errors import InputError, Problem
from shardwright.hardware.gpus import (
    NAMELESS,
    NODE_SET,
    NVLINK_LATENCY_SECONDS,
    PCIE_LATENCY_SECONDS,
    UNKNOWN_PCIE_BYTES_PER_SECOND,
    Gpu,
    Link,
    Stated,
    by_product,
    catalogue_ids,
    load_gpus,
    plain_name,
    reached_flops,
)
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import read_node
from shardwright.hardware.provisioning import HOSTNAME, AutoscaledPool
from shardwright.hardware.suitability import RESOURCES, is_slice
from shardwright.hardware.taints import TaintState
from shardwright.hardware.topology import DomainKind
from shardwright.units import GIGA, MIB, TERA

_TaintKey = Annotated[
    str,
    StringConstraints(
        max_length=LABEL_KEY_MAX_LENGTH, pattern=rf"{LABEL_KEY}|^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/\*$"
    ),
]
_Resource = Annotated[
    str, StringConstraints(max_length=LABEL_KEY_MAX_LENGTH, pattern=LABEL_KEY.replace("/)?", "/)"))
]
_Price = Annotated[float, Field(ge=0.000_1, le=1_000_000, allow_inf_nan=False)]


class NodeSettings(Part):
    """Prices of GPUs, the prefix of labels that no kubelet can write, and the nodes that are
    planned on.
    """

    trusted_label_prefix: Annotated[
        str, StringConstraints(max_length=254, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?$")
    ] = Field(
        default="",
        description="Prefix of labels, up to the slash, under which "
        "alone a node's price and NVLink domain are believed.",
    )
    gpu_hour_prices: dict[str, _Price] = Field(
        default_factory=dict,
        max_length=256,
        description="Price of one GPU for an hour, by the id of the GPU.",
    )
    node_set: Annotated[
        str, StringConstraints(max_length=40, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")
    ] = Field(
        default="",
        description=f"Value of the label {NODE_SET} of the "
        "nodes that are planned on; empty: those without it.",
    )
    taint_states: dict[_TaintKey, Literal["Reserved", "Passes", "Ends"]] = Field(
        default_factory=dict,
        max_length=64,
        description="What taints of nodes say, by key, or by its beginning and *.",
    )
    rdma_resources: list[_Resource] = Field(
        default_factory=list,
        max_length=32,
        description="Further resources of nodes by which pods reach RDMA, as openshift.io/rdma.",
    )


NAMES: Final = tuple(str(field.alias) for field in NodeSettings.model_fields.values())
"""The settings that it is read from."""


def read_stated(content: Mapping[str, Any], gpus: tuple[Gpu, ...]) -> Stated:
    """Return what all settings state of nodes; ``gpus`` are those that the catalogue lacks.

    Raises:
        InputError: every violation, with its path.
    """
    found = read_part(NodeSettings, {name: content.get(name) for name in NAMES})
    problems = list(_unknown(found.gpu_hour_prices, {*load_gpus(), *(gpu.id for gpu in gpus)}))
    if problems:
        raise InputError(problems)
    return Stated(
        gpus=by_product(gpus),
        prices=found.gpu_hour_prices,
        label_prefix=found.trusted_label_prefix,
        node_set=found.node_set,
        rdma_resources=frozenset(found.rdma_resources),
        taint_states={key: TaintState(said) for key, said in found.taint_states.items()},
    )


def _unknown(prices: Mapping[str, float], ids: set[str]) -> Iterator[Problem]:
    for name in prices:
        if name not in ids:
            close = get_close_matches(name, sorted(ids), n=1)
            yield Problem(
                code="GpuUnknown",
                path=f"gpuHourPrices.{name}",
                what=name,
                limit="must be the id of a GPU of the catalogue, or of gpus",
                remedy=f"did you mean {close[0]}?" if close else "see shardwright gpus",
            )


AUTOSCALED_POOLS: Final = "autoscaledPools"

POOLS_MAX: Final = 32
NODES_MAX: Final = 1_000
"""Nodes of one pool, and of all together. Basis: assumed; each of them is planned with as if it
were there.
"""


class PoolTaint(Part):
    """A taint that the nodes carry."""

    key: Annotated[str, StringConstraints(max_length=317, pattern=LABEL_KEY)] = Field(
        description="Its key."
    )
    value: LabelValue = Field(default="", description="Its value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        description="Its effect."
    )


class DescribedPool(Part):
    """One pool of nodes that need not exist yet."""

    name: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$",
        description="Its name, for status and messages.",
    )
    max_nodes: int = Field(
        ge=1,
        le=NODES_MAX,
        description="Nodes that its autoscaler makes at most, those that exist included.",
    )
    selector: dict[str, LabelValue] = Field(
        max_length=16,
        description="Labels that its nodes alone carry and its autoscaler knows, as "
        "karpenter.sh/nodepool: pods ask by them.",
    )
    labels: dict[str, LabelValue] = Field(
        default_factory=dict,
        max_length=64,
        description="Further labels of its nodes once they are up, as nvidia.com/gpu.product and "
        "nvidia.com/gpu.memory.",
    )
    allocatable: dict[str, Annotated[int, Field(ge=0, le=1_000_000)]] = Field(
        max_length=16,
        description="Devices that pods may request of one node, as nvidia.com/gpu, by resource.",
    )
    taints: list[PoolTaint] = Field(
        default_factory=list, max_length=16, description="Taints that its nodes keep."
    )


class DescribedPools(Part):
    """The setting as a whole."""

    autoscaled_pools: list[DescribedPool] = Field(alias=AUTOSCALED_POOLS, max_length=POOLS_MAX)


def read_pools(described: object, stated: Stated) -> tuple[AutoscaledPool, ...]:
    """Return the pools of the setting ``autoscaledPools``.

    ``stated`` is what the administrator states of GPUs and nodes.

    Raises:
        InputError: every violation, with its path; a pool on which nothing can be planned is one.
    """
    found = read_part(DescribedPools, {AUTOSCALED_POOLS: described}).autoscaled_pools
    if problems := list(_broken_rules(found)):
        raise InputError(problems)
    read = [_read(one, f"{AUTOSCALED_POOLS}[{index}]", stated) for index, one in enumerate(found)]
    if problems := [item for item in read if isinstance(item, Problem)]:
        raise InputError(problems)
    return tuple(item for item in read if isinstance(item, AutoscaledPool))


def _broken_rules(found: list[DescribedPool]) -> Iterator[Problem]:
    for index, one in enumerate(found):
        at = f"{AUTOSCALED_POOLS}[{index}]"
        if one.name in {other.name for other in found[:index]}:
            yield Problem(
                code="Duplicate",
                path=f"{at}.name",
                what=f"{one.name} is there twice",
                remedy="rename one of the two",
            )
        yield from _broken_rules_of(one, at)
    total = sum(one.max_nodes for one in found)
    if total > NODES_MAX:
        yield Problem(
            code="OutOfRange",
            path=AUTOSCALED_POOLS,
            what=f"{total} nodes of all pools",
            limit=f"must be at most {NODES_MAX}",
            remedy="lower maxNodes",
        )


def _broken_rules_of(one: DescribedPool, at: str) -> Iterator[Problem]:
    if not one.selector:
        remedy = "name a label that its nodes alone carry and its autoscaler knows"
        yield Problem(
            code="MissingField", path=f"{at}.selector", what="names no label", remedy=remedy
        )
    if HOSTNAME in one.selector:
        what = f"{HOSTNAME} tells single nodes apart"
        yield Problem(
            code="UnknownField",
            path=f"{at}.selector",
            what=what,
            remedy="name a label that all its nodes share",
        )
    if not any(
        count and (name in RESOURCES or is_slice(name)) for name, count in one.allocatable.items()
    ):
        what, remedy = "its nodes have no GPUs", f"state {' or '.join(RESOURCES)}"
        yield Problem(code="MissingField", path=f"{at}.allocatable", what=what, remedy=remedy)


def _read(one: DescribedPool, at: str, stated: Stated) -> AutoscaledPool | Problem:
    labels = {**one.labels, **one.selector}
    node = {
        "metadata": {"name": one.name, "labels": labels},
        "spec": {"taints": [taint.model_dump() for taint in one.taints]},
        "status": {"allocatable": {name: str(count) for name, count in one.allocatable.items()}},
    }
    found = read_node(node, stated)
    assert found is not None  # noqa: S101 - its nodes have GPUs
    if isinstance(found, NodeExclusion):
        return replace(
            found.problem,
            path=f"{at}.labels",
            remedy="state the labels that its nodes carry once they are up",
        )
    if found.domain.kind is DomainKind.CLIQUE:
        what = "a label names an NVLink domain over several nodes"
        return Problem(
            code="UnknownField",
            path=f"{at}.labels",
            what=what,
            remedy="leave it out: new nodes are in one of their own",
        )
    # A state goes by itself, or goes with its node.
    kept = tuple(taint for taint in found.taints if taint.state is TaintState.RESERVED)
    found = replace(found, taints=kept, deleting=False)
    return AutoscaledPool(
        name=one.name,
        max_nodes=one.max_nodes,
        selector=tuple(sorted(one.selector.items())),
        pattern=found,
    )


GPUS: Final = "gpus"

GigabytesPerSecond = Annotated[float, Field(ge=1, le=1_000_000)]
Teraflops = Annotated[float, Field(ge=1, le=10_000_000)]
Words = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class DenseRates(Part):
    """Dense rates of matrix products by number format; the GPU has no unit for a format that is
    left out.
    """

    bf16: Teraflops | None = Field(default=None, description="BF16, TFLOP/s without sparsity.")
    fp16: Teraflops | None = Field(
        default=None, description="FP16, TFLOP/s without sparsity; that of BF16 if it is left out."
    )
    fp8: Teraflops | None = Field(default=None, description="FP8, TFLOP/s without sparsity.")
    int8: Teraflops | None = Field(default=None, description="INT8, TOP/s without sparsity.")
    fp4: Teraflops | None = Field(default=None, description="FP4, TFLOP/s without sparsity.")


class ScaleUp(Part):
    """The link that joins GPUs beside PCIe."""

    name: Words = Field(
        description="Its name, as NVLink6 NVSwitch; "
        "bridge in it: an option that not every node has."
    )
    gigabytes_per_second: GigabytesPerSecond = Field(
        description="Of one GPU in one direction, GB/s."
    )
    gpus: int = Field(ge=2, le=1152, description="GPUs that it joins at most.")


class StatedGpu(Part):
    """One GPU of a data sheet."""

    product: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._()-]{0,62}$",
        description="Value of the nodes' product label, as nvidia.com/gpu.product, or of "
        "shardwright.io/gpu-model.",
    )
    vendor: Literal["NVIDIA", "AMD"] = Field(default="NVIDIA", description="Who makes it.")
    memory_mib: int = Field(
        alias="memoryMiB",
        ge=1024,
        le=4_194_304,
        description="Memory of a GPU as its driver shows it, MiB.",
    )
    memory_gigabytes_per_second: GigabytesPerSecond = Field(
        description="Bandwidth of its memory, GB/s."
    )
    teraflops: DenseRates = Field(
        description="Dense rates of matrix products; bf16 or fp16 is needed."
    )
    scale_up: ScaleUp | None = Field(
        default=None, description="NVLink or xGMI; left out: PCIe alone."
    )
    pcie_gigabytes_per_second: GigabytesPerSecond | None = Field(
        default=None, description="PCIe in one direction, GB/s; left out: the slowest in use."
    )
    compute_capability: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,2}\.[0-9]$")] | None = (
        Field(
            default=None,
            description="Compute capability, as 10.0, in quotes; of NVIDIA's it is needed.",
        )
    )
    source: Words = Field(description="Source of the figures.")


class StatedGpus(Part):
    """The setting as a whole."""

    gpus: list[StatedGpu] = Field(max_length=64)


def read_gpus(stated: object) -> tuple[Gpu, ...]:
    """Return the GPUs of the setting ``gpus``.

    Raises:
        InputError: every violation, with its path; a product of the catalogue is one.
    """
    found = read_part(StatedGpus, {GPUS: stated}).gpus
    if problems := [
        problem for index in range(len(found)) for problem in _broken_figures(found, index)
    ]:
        raise InputError(problems)
    return tuple(_gpu(stated) for stated in found)


def _broken_figures(stated: list[StatedGpu], index: int) -> Iterator[Problem]:
    one, at = stated[index], f"{GPUS}[{index}]"
    yield from _missing_figures(one, at)
    yield from _taken_names(one, stated[:index], at)


def _missing_figures(one: StatedGpu, at: str) -> Iterator[Problem]:
    if one.teraflops.bf16 is None and one.teraflops.fp16 is None:
        remedy = "set bf16 (fp16 of a GPU without BF16), dense"
        yield Problem(
            code="MissingField",
            path=f"{at}.teraflops",
            what="neither bf16 nor fp16 is set",
            remedy=remedy,
        )
    if one.vendor == "NVIDIA" and one.compute_capability is None:
        remedy = 'set it, as "10.0"'
        yield Problem(
            code="MissingField",
            path=f"{at}.computeCapability",
            what="is not set for an NVIDIA GPU",
            remedy=remedy,
        )


def _taken_names(one: StatedGpu, before: Iterable[StatedGpu], at: str) -> Iterator[Problem]:
    if plain_name(one.product) == NAMELESS:
        yield Problem(
            code="GpuUnknown",
            path=f"{at}.product",
            what=one.product,
            limit="is what a driver calls every GPU that is newer than itself",
            remedy="choose a name, and set the node label shardwright.io/gpu-model to it",
        )
    if known := catalogue_ids(one.product):
        yield Problem(
            code="Duplicate",
            path=f"{at}.product",
            what=one.product,
            limit=f"must be a GPU that the catalogue lacks: it has {' and '.join(known)}",
            remedy="remove it; what nodes state of themselves (shardwright.io/gpu-memory-mib and "
            "the like) is used as it is",
        )
    if plain_name(one.product) in {plain_name(other.product) for other in before}:
        twice = f"{one.product} is there twice"
        yield Problem(
            code="Duplicate", path=f"{at}.product", what=twice, remedy="remove one of the two"
        )


def _gpu(stated: StatedGpu) -> Gpu:
    capability, flops = stated.compute_capability, _flops(stated.teraflops)
    major, _, minor = (capability or "").partition(".")
    return Gpu(
        id=stated.product,
        vendor=stated.vendor,
        memory_bytes=stated.memory_mib * MIB,
        memory_bytes_per_second=stated.memory_gigabytes_per_second * GIGA,
        flops=flops,
        scale_up=_scale_up(stated.scale_up, stated.source) if stated.scale_up else None,
        scale_up_gpus=stated.scale_up.gpus if stated.scale_up else 1,
        host=_host(stated.pcie_gigabytes_per_second, stated.source),
        compute_capability=(int(major), int(minor)) if capability else None,
        basis="datasheet",
        source=stated.source,
        memory_basis="stated by the administrator",
        matmul_flops=reached_flops(stated.vendor, flops),
        stated=True,
    )


def _flops(rates: DenseRates) -> Mapping[str, float]:
    stated = {kind: rate * TERA for kind, rate in rates if rate is not None}
    return MappingProxyType({"fp16": stated["bf16"], **stated} if "bf16" in stated else stated)


def _scale_up(link: ScaleUp, source: str) -> Link:
    return Link(
        name=link.name,
        bytes_per_second=link.gigabytes_per_second * GIGA,
        latency_seconds=NVLINK_LATENCY_SECONDS,
        basis="datasheet",
        source=source,
    )


def _host(gigabytes_per_second: float | None, source: str) -> Link:
    known = gigabytes_per_second is not None
    return Link(
        name="PCIe",
        bytes_per_second=gigabytes_per_second * GIGA
        if gigabytes_per_second
        else UNKNOWN_PCIE_BYTES_PER_SECOND,
        latency_seconds=PCIE_LATENCY_SECONDS,
        basis="datasheet" if known else "assumed",
        source=source if known else "UNKNOWN_PCIE_BYTES_PER_SECOND",
    )
