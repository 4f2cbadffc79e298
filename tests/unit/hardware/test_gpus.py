"""The catalogue and the names that lead to it."""

import csv
from importlib import resources

import pytest

from shardwright.hardware.gpus import Link, find_gpu, load_gpus
from shardwright.hardware.topology import load_instances
from shardwright.units import GIB, MIB, TERA

ROWS = tuple(
    csv.DictReader(
        resources.files("shardwright.hardware").joinpath("gpus.csv").read_text("utf-8").splitlines()
    )
)


def gpu_id(product: str, memory_bytes: int | None = None) -> str | None:
    gpu = find_gpu(product, memory_bytes)
    return gpu.id if gpu else None


def test_the_catalogue_has_every_row_of_the_table() -> None:
    assert len(load_gpus()) == 66
    assert list(load_gpus()) == [row["gpu_id"] for row in ROWS]


def test_every_row_names_its_source() -> None:
    assert [gpu.id for gpu in load_gpus().values() if not gpu.source or not gpu.basis] == []


def test_an_h100_is_what_its_data_sheet_says() -> None:
    gpu = load_gpus()["H100-SXM-80GB"]
    assert gpu.memory_bytes == 81559 * MIB
    assert gpu.memory_bytes_per_second == 3350e9
    assert dict(gpu.flops) == {
        "bf16": 989 * TERA,
        "fp16": 989 * TERA,
        "fp8": 1979 * TERA,
        "int8": 1979 * TERA,
    }
    assert gpu.compute_capability == (9, 0)
    assert gpu.scale_up == Link(
        name="NVLink4 NVSwitch",
        bytes_per_second=450e9,
        latency_seconds=1e-6,
        basis="datasheet",
        source=gpu.source,
    )
    assert (gpu.scale_up_gpus, gpu.host.name, gpu.host.bytes_per_second) == (8, "PCIe 5 x16", 64e9)


@pytest.mark.parametrize("gpu", ["T4-16GB", "V100-SXM2-16GB", "V100-SXM2-32GB"])
def test_gpus_before_ampere_have_fp16_but_no_bf16(gpu: str) -> None:
    assert "bf16" not in load_gpus()[gpu].flops
    assert load_gpus()[gpu].flops["fp16"] > 0


def test_fp8_is_there_only_from_compute_capability_8_9_on() -> None:
    nvidia = [gpu for gpu in load_gpus().values() if gpu.compute_capability is not None]
    assert [
        gpu.id
        for gpu in nvidia
        if ("fp8" in gpu.flops) != ((gpu.compute_capability or (0, 0)) >= (8, 9))
    ] == []
    assert "fp8" not in load_gpus()["MI210-64GB"].flops


def test_a_gpu_without_partners_has_no_scale_up_link() -> None:
    for gpu in ("L40S-48GB", "GH200-96GB", "GB10-128GB", "TPU-v4"):
        assert (load_gpus()[gpu].scale_up, load_gpus()[gpu].scale_up_gpus) == (None, 1)


def test_a_package_of_two_dies_is_two_devices_of_half_the_size() -> None:
    gpu = load_gpus()["MI250X-128GB"]
    assert (gpu.memory_bytes, gpu.memory_bytes_per_second) == (64 * GIB, 3277e9 / 2)
    assert (gpu.flops["bf16"], gpu.scale_up_gpus) == (383 * TERA / 2, 8)


def test_every_label_of_the_table_finds_its_row() -> None:
    rows = [(name, row["gpu_id"]) for row in ROWS for name in _names(row)]

    assert [(name, gpu_id(name)) for name, _ in rows] == rows


def _names(row: dict[str, str]) -> list[str]:
    aliases = [
        alias.split(" (")[0] for alias in row["label_aliases"].split(";") if "vGPU" not in alias
    ]
    return [name for name in (row["gpu_id"], row["node_label_value"], *aliases) if name]


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),  # raw NVML name, as a ResourceSlice has it
        ("NVIDIA-H100-SXM5-80GB", "H100-SXM-80GB"),  # no driver says so, people do
        ("H100-SXM5", "H100-SXM-80GB"),
        ("H100_NVLINK_80GB", "H100-SXM-80GB"),
        ("NVIDIA-H100-PCIe", "H100-PCIE-80GB"),
        ("NVIDIA-H100-NVL", "H100-NVL-94GB"),
        ("NVIDIA-H200-NVL", "H200-NVL-141GB"),
        ("NVIDIA-B300-SXM6-AC", "B300-SXM-270GB"),
        ("NVIDIA-GB200-NVL72", "GB200-NVL-186GB"),
        ("NVIDIA-GB200-192GB-HBM3e", "GB200-NVL-186GB"),
        ("A100-PCIE-40GB-MIG-1g.5gb", "A100-PCIE-40GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-PCIE-80GB"),
        ("Tesla-V100-SXM2-16GB-N", "V100-SXM2-16GB"),
        ("Tesla-V100-SXM3-32GB", "V100-SXM2-32GB"),
        ("NVIDIA-A10G-SHARED", "A10G-24GB"),
        ("Tesla-T4-SHARED", "T4-16GB"),
        ("NVIDIA-L40S", "L40S-48GB"),
        ("NVIDIA-L40", "L40-48GB"),
        ("NVIDIA-L4", "L4-24GB"),
        ("RTX-PRO-6000", "RTX-PRO-6000-BSE-96GB"),
        ("AMD_Instinct_MI300X_OAM", "MI300X-192GB"),
        ("AMD Instinct MI300X VF", "MI300X-192GB"),
        ("AMD_Instinct_MI325_OAM", "MI325X-256GB"),
        ("AMD_Instinct_MI355_OAM", "MI355X-288GB"),
        ("AMD_INSTINCT_MI250_MCM_OAM_AC_MBA", "MI250-128GB"),
        ("nvidia-tesla-a100", "A100-SXM4-40GB"),  # GKE
        ("nvidia-a100-80gb", "A100-SXM4-80GB"),
        ("nvidia-h100-mega-80gb", "H100-SXM-80GB"),
        ("nvidia-h200-141gb", "H200-SXM-141GB"),
        ("nvidia-tesla-v100", "V100-SXM2-16GB"),
        ("h100", "H100-SXM-80GB"),  # Karpenter
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX-PRO-6000-MaxQ-96GB"),
        ("NVIDIA-RTX-PRO-5000-Blackwell", "RTX-PRO-5000-48GB"),
        ("RTX-PRO-5000-72GB", "RTX-PRO-5000-72GB"),
        ("RTX-PRO-4500", "RTX-PRO-4500-32GB"),
        ("VR200-NVL72", "VR200-NVL-280GB"),
        ("vr_nvl72", "VR200-NVL-280GB"),
        ("AMD_Instinct_MI455X_OAM", "MI455X-432GB"),
        ("AMD_Instinct_MI308X_OAM", "MI308X-192GB"),
        ("NVIDIA-A800-SXM4-80GB", "A800-SXM4-80GB"),
        ("A800-SXM4-40GB", "A800-SXM4-40GB"),
        ("NVIDIA-A2", "A2-16GB"),
        ("NVIDIA-A16", "A16-16GB"),
        ("NVIDIA-GeForce-RTX-4090-D", "RTX-4090-D-24GB"),
        ("NVIDIA-H100-96GB-HBM3", "H100-SXM-80GB"),  # its nodes state the memory
    ],
)
def test_names_that_clouds_and_drivers_use_are_understood(product: str, expected: str) -> None:
    assert gpu_id(product) == expected


@pytest.mark.parametrize(
    "product",
    [
        "NVIDIA-GB300-WS",
        "NVIDIA-A100X",
        "NVIDIA-A1000",
        "NVIDIA-L400",
        "NVIDIA-H1000",
        "NVIDIA-H100-80GB-HBM2e",  # no SXM board has this memory
        "NVIDIA-H100-SXM-64GB",
        "NVIDIA-B2000",
        "NVIDIA-H800-PCIe",
        "NVIDIA-A10-24Q",
        "NVIDIA-GeForce-RTX-3090-Ti",
        "NVIDIA-GeForce-RTX-5090-Laptop-GPU",
        "NVIDIA-RTX-PRO-5000-Blackwell-Laptop-GPU",
        "NVIDIA-RTX-PRO-4500-Blackwell-Server-Edition",
        "NVIDIA-Graphics-Device",
        "NVIDIA-VR200-CPX",
        "AMD_Instinct_MI430X",
        "AMD_Instinct_MI440X",
        "Tesla-V100-PCIE-16GB",
        "AMD_Instinct_MI300A",
        "NVIDIA-R100",
        "NVIDIA-A100",  # 40 or 80 GB
        "nvidia",
        "",
        "-",
    ],
)
def test_a_name_that_is_not_certain_is_unknown(product: str) -> None:
    assert gpu_id(product) is None


def test_memory_decides_between_products_of_one_name() -> None:
    assert gpu_id("a100", 40960 * MIB) == "A100-SXM4-40GB"
    assert gpu_id("a100", 81920 * MIB) == "A100-SXM4-80GB"
    assert gpu_id("a100", 65536 * MIB) is None


def test_memory_does_not_make_another_product_of_a_certain_name() -> None:
    assert gpu_id("NVIDIA-A100-SXM4-80GB", 40 * GIB) == "A100-SXM4-80GB"


def test_every_instance_type_has_a_gpu_of_the_catalogue() -> None:
    table = load_instances()
    assert len(table) == 98
    assert {row.gpu_id for row in table.values()} <= set(load_gpus())
    assert table["p4d.24xlarge"].gpu_id == "A100-SXM4-40GB"
    assert table["gpu_8x_h100_sxm5"].network_gbps_per_gpu is None
    assert [row.name for row in table.values() if row.bridged] == [
        "Standard_NC48ads_A100_v4",
        "Standard_NC96ads_A100_v4",
        "Standard_NC80adis_H100_v5",
    ]
