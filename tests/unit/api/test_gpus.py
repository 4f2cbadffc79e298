"""GPUs that an administrator states: what is read, what is refused, and what a node with one
becomes.
"""

from typing import Any

import pytest

from shardwright.api.node_settings import read_gpus
from shardwright.errors import InputError
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import Gpu, Link, Stated, by_product
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import read_node
from shardwright.units import MIB
from tests.support.builders_nodes import a_node

R200: dict[str, Any] = {
    "product": "NVIDIA-R200",
    "memoryMiB": 294_912,
    "memoryGigabytesPerSecond": 22_000,
    "teraflops": {"bf16": 4_000, "fp8": 17_500},
    "scaleUp": {"name": "NVLink6 NVSwitch", "gigabytesPerSecond": 1_800, "gpus": 8},
    "pcieGigabytesPerSecond": 128,
    "computeCapability": "10.7",
    "source": "data sheet",
}


def problems(*stated: object) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as refused:
        read_gpus(list(stated))
    return [(problem.code, problem.path) for problem in refused.value.problems]


def test_a_data_sheet_becomes_a_gpu_that_nobody_has_measured() -> None:
    (gpu,) = read_gpus([R200])

    assert gpu == Gpu(
        id="NVIDIA-R200",
        vendor="NVIDIA",
        memory_bytes=294_912 * MIB,
        memory_bytes_per_second=22e12,
        flops={"bf16": 4e15, "fp16": 4e15, "fp8": 17.5e15},
        scale_up=Link(
            name="NVLink6 NVSwitch",
            bytes_per_second=1.8e12,
            latency_seconds=1e-6,
            basis="datasheet",
            source="data sheet",
        ),
        scale_up_gpus=8,
        host=Link(
            name="PCIe",
            bytes_per_second=128e9,
            latency_seconds=1.4e-6,
            basis="datasheet",
            source="data sheet",
        ),
        compute_capability=(10, 7),
        basis="datasheet",
        source="data sheet",
        memory_basis="stated by the administrator",
        matmul_flops=gpu.matmul_flops,
        stated=True,
    )
    assert 0.5 < gpu.matmul_flops["fp8"] / gpu.flops["fp8"] < 1


def test_what_is_left_out_is_the_least() -> None:
    (gpu,) = read_gpus(
        [
            {
                key: value
                for key, value in R200.items()
                if key not in ("scaleUp", "pcieGigabytesPerSecond")
            }
        ]
    )

    assert (gpu.scale_up, gpu.scale_up_gpus, gpu.host.bytes_per_second, gpu.host.basis) == (
        None,
        1,
        16e9,
        "assumed",
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"product": "NVIDIA-H100-80GB-HBM3"}, [("Duplicate", "gpus[0].product")]),
        ({"product": "a100"}, [("Duplicate", "gpus[0].product")]),
        ({"product": "-"}, [("BadFormat", "gpus[0].product")]),
        ({"memoryMiB": 12}, [("OutOfRange", "gpus[0].memoryMiB")]),
        ({"memoryMiB": "294912"}, [("WrongType", "gpus[0].memoryMiB")]),
        ({"memoryGigabytesPerSecond": 0}, [("OutOfRange", "gpus[0].memoryGigabytesPerSecond")]),
        ({"memoryGigabytesPerSecond": "8000"}, [("WrongType", "gpus[0].memoryGigabytesPerSecond")]),
        ({"teraflops": {}}, [("MissingField", "gpus[0].teraflops")]),
        ({"teraflops": {"fp32": 100}}, [("UnknownField", "gpus[0].teraflops.fp32")]),
        (
            {"scaleUp": {"name": "NVLink6"}},
            [
                ("MissingField", f"gpus[0].scaleUp.{name}")
                for name in ("gigabytesPerSecond", "gpus")
            ],
        ),
        ({"computeCapability": 10.7}, [("WrongType", "gpus[0].computeCapability")]),
        ({"computeCapability": None}, [("MissingField", "gpus[0].computeCapability")]),
        ({"vendor": "Intel"}, [("NotAllowed", "gpus[0].vendor")]),
        ({"source": None}, [("MissingField", "gpus[0].source")]),
        ({"flops": 3}, [("UnknownField", "gpus[0].flops")]),
    ],
)
def test_each_mistake_gets_one_message_with_its_path(
    change: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert problems(R200 | change) == expected


def test_a_product_stands_there_once_and_the_setting_is_a_list_of_objects() -> None:
    assert problems(R200, R200 | {"product": "nvidia r200"}) == [("Duplicate", "gpus[1].product")]
    assert problems("NVIDIA-R200") == [("WrongType", "gpus[0]")]


@pytest.mark.parametrize("name", ["NVIDIA-Graphics-Device", "NVIDIA Graphics Device"])
def test_what_a_driver_calls_every_gpu_that_it_cannot_name_is_no_product(name: str) -> None:
    assert problems(R200 | {"product": name}) == [("GpuUnknown", "gpus[0].product")]


def test_a_node_with_it_is_planned_on_what_is_stated() -> None:
    own = Stated(gpus=by_product(read_gpus([R200])))
    node = a_node("r1", product="NVIDIA-R200", labels={"nvidia.com/gpu.memory": "294000"})

    found, without = read_node(node, own), read_node(node)

    assert isinstance(found, NodeFacts)
    assert (found.gpu.id, found.gpu.stated, found.gpu.memory_bytes) == (
        "NVIDIA-R200",
        True,
        294_000 * MIB,
    )
    assert isinstance(without, NodeExclusion)
    assert without.problem.code == "GpuUnknown"


def test_the_catalogue_goes_first_whatever_is_stated() -> None:
    forged = by_product([*read_gpus([R200 | {"product": "NVIDIA-X"}])])
    own = Stated(gpus={"nvidia-h100-80gb-hbm3": forged["nvidia-x"]})

    found = read_node(a_node("h1"), own)

    assert isinstance(found, NodeFacts)
    assert (found.gpu.id, found.gpu.stated) == ("H100-SXM-80GB", False)
