"""GPUs that the catalogue lacks, as an administrator reads them off a data sheet.

A GPU of the catalogue is refused, and a product by which nobody could tell it.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from shardwright.api.parts import Part
from shardwright.api.violations import read_part
from shardwright.errors import InputError, Problem
from shardwright.hardware.gpus import (
    NVLINK_LATENCY_SECONDS,
    PCIE_LATENCY_SECONDS,
    UNKNOWN_PCIE_BYTES_PER_SECOND,
    Gpu,
    Link,
    catalogue_ids,
    reached_flops,
)
from shardwright.hardware.products import NAMELESS, plain_name
from shardwright.units import GIGA, MIB, TERA

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
        problem for index in range(len(found)) for problem in _broken_rules(found, index)
    ]:
        raise InputError(problems)
    return tuple(_gpu(stated) for stated in found)


def _broken_rules(stated: list[StatedGpu], index: int) -> Iterator[Problem]:
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
