"""What does one GPU cost for an hour? As its owner states, or in H100s by clouds' lists or data
sheet.

Only prices of one list are compared, so neither currency nor discounts are in them. The rows are
data (``prices.csv``).
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from math import inf
from statistics import median
from types import MappingProxyType

from shardwright.hardware.gpus import Gpu, load_gpus


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
