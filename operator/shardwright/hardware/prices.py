"""What one GPU counts for an hour: what its owner states, or beside an H100, by public lists of clouds or by its data sheet.

Only prices of one list are compared, so that neither currency nor discounts are in them. The rows are data (``prices.csv``).
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from statistics import median
from types import MappingProxyType

from shardwright.hardware.gpus import Gpu, load_gpus


class PriceBasis(StrEnum):
    """Where a price comes from. A stated one is in the owner's currency, the others in hours of an H100."""

    STATED = "Stated"
    LISTED = "Listed"
    ASSUMED = "Assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """What one GPU counts for an hour, on what that rests, and where it was read."""

    per_hour: float
    basis: PriceBasis
    source: str = ""


def relative_price(gpu: Gpu) -> GpuPrice:
    """Return what one GPU costs for an hour, in hours of an H100.

    >>> relative_price(load_gpus()["L40S-48GB"]).per_hour, relative_price(load_gpus()["GB200-NVL-186GB"]).per_hour
    (0.35, 1.6)
    """
    listed = _listed().get(gpu.id)
    return listed or GpuPrice(
        per_hour=float(f"{gpu.worth * _asked_share(gpu.vendor):.2g}"),
        basis=PriceBasis.ASSUMED,
        source="WORTH_EXPONENT, at what the vendor's listed GPUs cost beside their data sheets",
    )


@cache
def _listed() -> Mapping[str, GpuPrice]:
    text = resources.files("shardwright.hardware").joinpath("prices.csv").read_text(encoding="utf-8")
    return MappingProxyType({row["gpu_id"]: _price(row) for row in csv.DictReader(text.splitlines())})


def _price(row: Mapping[str, str]) -> GpuPrice:
    share = float(row["gpu_hour_usd"]) / float(row["h100_gpu_hour_usd"])
    where = f"{row['instance_type']} beside {row['h100_instance_type']}"
    return GpuPrice(per_hour=float(f"{share:.2g}"), basis=PriceBasis.LISTED, source=f"{row['source']}, {where}")


@cache
def _asked_share(vendor: str) -> float:
    """Return the middle of what a vendor's listed GPUs cost of what their data sheets are worth; of all where none is listed."""
    gpus = load_gpus()
    shares = [(gpus[gpu_id].vendor, price.per_hour / gpus[gpu_id].worth) for gpu_id, price in _listed().items()]
    return median([share for owner, share in shares if owner == vendor] or [share for _, share in shares])
