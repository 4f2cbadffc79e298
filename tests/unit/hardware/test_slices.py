"""Slices of GPUs (MIG): which nodes have them, what one is, and who may use it."""

from __future__ import annotations

from typing import Any

import pytest

from shardwright.hardware.facts import GpuUsage, NodeFacts, read_pod
from shardwright.hardware.gpus import Stated, load_gpus, relative_price
from shardwright.hardware.inventory import Inventory, NodeExclusion
from shardwright.hardware.nodes import read_node
from shardwright.hardware.pools import build_inventory
from shardwright.hardware.scheduling import PodTerms
from shardwright.hardware.suitability import slice_of
from shardwright.units import MIB
from tests.support.builders_nodes import a_dumped_node, a_gke_node, a_node, bare_node

H100 = "NVIDIA-H100-80GB-HBM3"
SMALL, LARGE = "1g.10gb", "3g.40gb"


def a_single_node(name: str = "s", profile: str = LARGE, **labels: str) -> Any:
    """A node under the strategy ``single``: its slices go by the name of whole GPUs."""
    return a_node(
        name,
        labels={
            "nvidia.com/gpu.product": f"{H100}-MIG-{profile}",
            "nvidia.com/gpu.memory": {SMALL: "9984", LARGE: "40320"}[profile],
            "nvidia.com/gpu.count": "16",
            **labels,
        },
        allocatable={"nvidia.com/gpu": "16"},
    )


def a_mixed_node(name: str = "m", **slices: str) -> Any:
    """A node under the strategy ``mixed``: each profile is a resource of its own."""
    return bare_node(
        name,
        labels={
            "nvidia.com/gpu.product": H100,
            "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.count": "8",
            "nvidia.com/gpu.replicas": "0",
            "nvidia.com/mig.strategy": "mixed",
        },
        allocatable={f"nvidia.com/mig-{name}": count for name, count in slices.items()},
    )


def facts(node: object) -> NodeFacts:
    found = read_node(node)
    assert isinstance(found, NodeFacts), found
    return found


def inventory(*nodes: Any, profile: str = "") -> Inventory:
    found = [item for item in map(read_node, nodes) if item]
    return build_inventory(found, (), terms=PodTerms(mig_profile=profile))


@pytest.mark.parametrize("node", [a_single_node(), a_mixed_node(**{LARGE: "16"})])
def test_a_slice_is_a_gpu_with_its_share_of_everything_and_no_link(node: Any) -> None:
    found, whole = facts(node), load_gpus()["H100-SXM-80GB"]
    gpu = found.gpu

    assert (gpu.id, gpu.mig_profile, found.product, found.gpus) == (
        "H100-SXM-80GB-MIG-3g.40gb",
        LARGE,
        f"{H100}-MIG-3g.40gb",
        16,
    )
    assert gpu.memory_bytes_per_second == whole.memory_bytes_per_second / 2
    assert gpu.flops == pytest.approx({kind: rate * 3 / 7 for kind, rate in whole.flops.items()})
    assert (gpu.scale_up, gpu.scale_up_gpus, found.domain.gpus) == (None, 1, 1)


def test_gke_says_by_a_label_of_its_own_that_gpus_are_cut() -> None:
    node = a_gke_node()
    node["metadata"]["labels"]["cloud.google.com/gke-gpu-partition-size"] = LARGE
    node["status"]["allocatable"]["nvidia.com/gpu"] = "16"
    found = facts(node)

    assert (found.gpu.id, found.resource, found.gpus) == (
        "H100-SXM-80GB-MIG-3g.40gb",
        "nvidia.com/gpu",
        16,
    )


def test_the_memory_of_a_slice_is_what_a_label_says_else_its_share() -> None:
    whole = load_gpus()["H100-SXM-80GB"]

    assert facts(a_single_node()).gpu.memory_bytes == 40320 * MIB
    assert facts(a_mixed_node(**{LARGE: "8"})).gpu.memory_bytes == whole.memory_bytes // 2


@pytest.mark.parametrize(
    ("gpu", "profile", "memory", "compute"),
    [
        ("A100-SXM4-40GB", "1g.5gb", 1 / 8, 1 / 7),
        ("A100-SXM4-80GB", "1g.20gb", 2 / 8, 1 / 7),
        ("A100-SXM4-80GB", "7g.80gb", 1, 1),
        ("A30-24GB", "2g.12gb", 2 / 4, 2 / 4),
        ("H100-SXM-80GB", "1g.10gb.me", 1 / 8, 1 / 7),
        ("H200-SXM-141GB", "4g.71gb", 4 / 8, 4 / 7),
        ("B200-SXM-180GB", "2g.45gb", 2 / 8, 2 / 7),
        ("RTX-PRO-6000-BSE-96GB", "1g.24gb", 1 / 4, 1 / 4),
    ],
)
def test_shares_are_those_of_the_profile(
    gpu: str, profile: str, memory: float, compute: float
) -> None:
    whole, part = load_gpus()[gpu], slice_of(load_gpus()[gpu], profile)

    found = (
        part.memory_bytes_per_second / whole.memory_bytes_per_second,
        part.flops["bf16"] / whole.flops["bf16"],
    )
    assert found == pytest.approx((memory, compute))


def test_a_slice_costs_its_share_of_the_gpu() -> None:
    whole = load_gpus()["H100-SXM-80GB"]
    small, large = slice_of(whole, SMALL), slice_of(whole, LARGE)
    stated = Stated(prices={"H100-SXM-80GB": 2.8})

    assert [relative_price(gpu).per_hour for gpu in (whole, large, small)] == [1.0, 1 / 2, 1 / 7]
    assert [stated.price_of(gpu) for gpu in (whole, large, small)] == [2.8, 1.4, 2.8 / 7]


def test_the_price_of_a_node_is_that_of_its_gpus_not_of_its_slices() -> None:
    node = a_single_node(**{"shardwright.io/gpu-hour-price": "3"})

    assert facts(node).gpu_hour_price == 1.5


def test_slices_are_for_models_that_ask_for_their_profile_alone() -> None:
    nodes = (a_single_node("s"), a_mixed_node("m", **{SMALL: "7"}), a_node("w", gpus=8))

    used = {
        profile: {
            node.name for pool in inventory(*nodes, profile=profile).pools for node in pool.nodes
        }
        for profile in ("", SMALL, LARGE)
    }
    assert used == {"": {"w"}, SMALL: {"m"}, LARGE: {"s"}}


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        (
            "",
            (
                "spec.placement.migProfile: GPUs cut into slices of 3g.40gb (MIG) are for models that "
                "ask for them; set spec.placement.migProfile to 3g.40gb for a model that fits one, or "
                "label the node nvidia.com/mig.config=all-disabled"
            ),
        ),
        (
            SMALL,
            (
                "spec.placement.migProfile: slices of 3g.40gb must be slices of 1g.10gb; label the "
                "node nvidia.com/mig.config=all-1g.10gb, or ask for what it has"
            ),
        ),
    ],
)
def test_who_asks_for_something_else_is_told_what_the_node_has(profile: str, said: str) -> None:
    (left_out,) = inventory(a_single_node(), profile=profile).excluded

    assert left_out.problem.sentence() == said


@pytest.mark.parametrize(
    "node",
    [
        a_mixed_node(**{SMALL: "2", LARGE: "1"}),
        a_mixed_node(**{"1c.3g.40gb": "4"}),
        a_dumped_node("h100-1x-mig-mixed"),
        a_node("x", labels={"nvidia.com/gpu.product": f"{H100}-MIG-INVALID"}),
        a_node("x", labels={"nvidia.com/gpu.product": f"{H100}-MIG-1c.3g.40gb"}),
    ],
)
def test_unequal_slices_and_parts_of_slices_are_for_nobody(node: Any) -> None:
    found = read_node(node)

    assert isinstance(found, NodeExclusion)
    assert found.problem.code == "MigEnabled"


def test_slices_of_a_gpu_that_nobody_has_described_are_not_guessed() -> None:
    node = a_node("x", labels={"nvidia.com/gpu.product": "NVIDIA-L40S-MIG-1g.6gb"})
    found = read_node(node)

    assert isinstance(found, NodeExclusion)
    assert found.problem.sentence() == (
        "slices of L40S-48GB cannot be planned: their share of the GPU is not known; use whole "
        "GPUs of it: label the node nvidia.com/mig.config=all-disabled"
    )


def test_a_slice_that_has_more_memory_than_its_profile_is_not_believed() -> None:
    found = read_node(a_single_node(**{"nvidia.com/gpu.memory": "81559"}))

    assert isinstance(found, NodeExclusion)
    assert found.problem.sentence() == (
        "81559 MiB of a slice's memory must be near the 40779 MiB of H100-SXM-80GB-MIG-3g.40gb; "
        "correct the node's labels or its device plugin; the node is left out until then"
    )


def test_pods_hold_the_slices_that_they_request() -> None:
    resource = f"nvidia.com/mig-{LARGE}"
    pod = {
        "spec": {
            "nodeName": "m",
            "containers": [
                {"resources": {"limits": {resource: "1"}}},
                {"resources": {"requests": {resource: "2"}}},
            ],
        }
    }
    held = read_pod(pod)

    assert held == (GpuUsage(node="m", resource=resource, gpus=3),)
    (pool,) = build_inventory(
        [facts(a_mixed_node(**{LARGE: "16"}))], held, terms=PodTerms(mig_profile=LARGE)
    ).pools
    assert [node.free for node in pool.nodes] == [13]
