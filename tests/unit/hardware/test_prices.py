"""What GPUs cost beside an H100: public lists where there are any, data sheets else; and which ones
are racks.
"""

import csv
from importlib import resources

import pytest

from shardwright.hardware.gpus import Gpu, GpuPrice, PriceBasis, load_gpus, relative_price
from shardwright.hardware.topology import load_instances

ROWS = list(
    csv.DictReader(
        resources.files("shardwright.hardware")
        .joinpath("prices.csv")
        .read_text(encoding="utf-8")
        .splitlines()
    )
)


def test_a_listed_price_is_of_a_gpu_and_beside_an_h100_of_the_same_list() -> None:
    instances = load_instances()
    known = [row for row in ROWS if row["instance_type"] in instances]
    # the table of networks has not every old one

    assert {row["gpu_id"] for row in ROWS} <= load_gpus().keys()
    assert {instances[row["h100_instance_type"]].gpu_id for row in ROWS} == {"H100-SXM-80GB"}
    assert [instances[row["instance_type"]].gpu_id for row in known] == [
        row["gpu_id"] for row in known
    ]
    assert [row for row in ROWS if "@" not in row["source"]] == []


def test_every_gpu_has_a_price_that_says_on_what_it_rests() -> None:
    prices = {name: relative_price(gpu) for name, gpu in load_gpus().items()}

    assert [
        (name, price)
        for name, price in prices.items()
        if not price.source or not 0.01 < price.per_hour < 5
    ] == []
    assert {name for name, price in prices.items() if price.basis is PriceBasis.LISTED} == {
        row["gpu_id"] for row in ROWS
    }


def test_an_h100_is_one_and_a_guess_follows_its_vendors_listed_gpus() -> None:
    gpus = load_gpus()

    assert relative_price(gpus["H100-SXM-80GB"]) == GpuPrice(
        per_hour=1.0,
        basis=PriceBasis.LISTED,
        source="Oracle list: skypilot-org/skypilot-catalog@0588751 catalogs/v8/oci/vms.csv, "
        "BM.GPU.H100.8 beside BM.GPU.H100.8",
    )
    assert relative_price(gpus["MI325X-256GB"]).per_hour == pytest.approx(
        relative_price(gpus["MI300X-192GB"]).per_hour, rel=0.1
    )


def test_no_assumed_price_is_above_that_of_a_listed_gpu_that_has_all_it_has() -> None:
    of_listed = {row["gpu_id"] for row in ROWS}
    gpus = [(gpu, relative_price(gpu).per_hour) for gpu in load_gpus().values()]

    assert [
        (gpu.id, other.id)
        for gpu, price in gpus
        for other, of_other in gpus
        if gpu.vendor == other.vendor and gpu.id not in of_listed and other.id in of_listed
        if price > of_other and _has_at_least(other, gpu)
    ] == []


def _has_at_least(gpu: Gpu, other: Gpu) -> bool:
    whole = (
        gpu.memory_bytes >= other.memory_bytes
        and gpu.memory_bytes_per_second >= other.memory_bytes_per_second
    )
    return whole and all(gpu.flops.get(unit, 0) >= rate for unit, rate in other.flops.items())


@pytest.mark.parametrize(
    ("gpu_id", "per_hour"),
    [
        ("A100-PCIE-40GB", 0.3),
        ("A100-PCIE-80GB", 0.4),
        ("V100-SXM2-32GB", 0.3),
        ("H800-80GB", 0.83),
        ("MI350X-288GB", 0.84),
    ],
)
def test_what_no_list_has_costs_what_stands_around_it_in_the_lists(
    gpu_id: str, per_hour: float
) -> None:
    assert relative_price(load_gpus()[gpu_id]).per_hour == per_hour


def test_nodes_of_nvl72_are_trays_and_no_others() -> None:
    assert [gpu.id for gpu in load_gpus().values() if gpu.of_a_rack and gpu.vendor == "NVIDIA"] == [
        "GB200-NVL-186GB",
        "GB300-NVL-278GB",
        "VR200-NVL-280GB",
    ]
