"""Nodes without a device plugin: with the devices of their slices they are what they would be
with one.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from shardwright.errors import Problem
from shardwright.hardware.devices import ClaimedDevices, NodeDevices
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import NONE
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import BareNode, bare_node, build_inventory, read_node
from shardwright.hardware.topology import DomainKind
from shardwright.hardware.untrusted import raw_node
from shardwright.units import MIB
from tests.harness.gpu_devices import H100, without_plugin
from tests.support.builders_devices import EIGHT, a_cut_gpu
from tests.support.builders_nodes import a_node
from tests.support.builders_nodes import bare_node as a_bare_node

CLAIMED = ClaimedDevices(device_class="gpu.nvidia.com", product=H100)


def bare(node: dict[str, Any]) -> BareNode:
    found = bare_node(raw_node(node), NONE)
    assert found is not None
    return found


def forgotten(node: dict[str, Any]) -> dict[str, Any]:
    """Return a node some minutes after its device plugin has gone."""
    for part in ("allocatable", "capacity"):
        node["status"][part]["nvidia.com/gpu"] = "0"
    return node


def facts(devices: NodeDevices, node: dict[str, Any] | None = None) -> NodeFacts:
    found = bare(node or a_bare_node("a")).having(devices)
    assert isinstance(found, NodeFacts), found
    return found


def reason(devices: NodeDevices | Problem, node: dict[str, Any] | None = None) -> str:
    found = bare(node or a_bare_node("a")).having(devices)
    assert isinstance(found, NodeExclusion), found
    return found.problem.code


def test_a_node_is_what_its_labels_would_make_of_it() -> None:
    labelled = read_node(a_node("a"))
    assert isinstance(labelled, NodeFacts)
    stripped = without_plugin(a_node("a"))
    assert facts(EIGHT, stripped) == replace(
        labelled, product=H100, labels=stripped["metadata"]["labels"], published=True
    )


def test_a_node_of_slices_is_what_a_plugin_would_make_of_it() -> None:
    slices = a_cut_gpu(gpus=14, usable=13)
    found = facts(slices)
    assert (found.resource, found.gpus, found.product, found.gpu.id) == (
        "nvidia.com/mig-1g.10gb",
        13,
        f"{H100}-MIG-1g.10gb",
        "H100-SXM-80GB-MIG-1g.10gb",
    )
    assert found.gpu.memory_bytes == 9984 * MIB
    assert (found.claimed, found.domain.gpus) == (slices.claimed, 1)
    labelled = a_bare_node("a")
    labelled["metadata"]["labels"]["nvidia.com/gpu.product"] = f"{H100}-MIG-1g.10gb"
    assert facts(slices, labelled) == replace(found, labels=labelled["metadata"]["labels"])
    assert reason(replace(slices, capability=(8, 0))) == "LabelsImplausible"
    assert reason(replace(slices, product="NVIDIA L4")) == "MigSlicesUnknown"


def test_pods_that_claim_are_another_pool_than_pods_that_request() -> None:
    requested, claimed = (
        facts(replace(EIGHT, claimed=item), a_bare_node(name))
        for item, name in ((None, "a"), (CLAIMED, "b"))
    )
    pools = build_inventory([requested, claimed], ()).pools
    assert sorted((pool.claimed is None, pool.nodes[0].name) for pool in pools) == [
        (False, "b"),
        (True, "a"),
    ]


def test_a_node_with_allocatable_gpus_is_read_by_its_labels_alone() -> None:
    assert bare_node(raw_node(a_node("a")), NONE) is None


def test_a_node_whose_device_plugin_is_away_for_now_is_not_bare() -> None:
    node = a_node("a")
    node["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    assert bare_node(raw_node(node), NONE) is None


def test_kubelets_that_have_forgotten_a_device_plugin_have_a_node_without_one() -> None:
    assert facts(EIGHT, forgotten(a_node("a"))).gpus == 8


def test_without_devices_a_node_is_what_it_is_without_slices() -> None:
    assert bare(a_bare_node("cpu")).having(None) is None
    labelled = forgotten(a_node("a"))
    found = bare(labelled).having(None)
    assert isinstance(found, NodeExclusion)
    assert found.problem.code == "NoAllocatableGpus"


def test_labels_of_feature_discovery_beside_devices_change_nothing() -> None:
    labelled = forgotten(a_node("a"))
    found = facts(EIGHT, labelled)
    assert (found.product, found.gpus, found.gpu.id, found.warnings) == (
        H100,
        8,
        "H100-SXM-80GB",
        (),
    )


def test_a_device_that_is_out_leaves_the_others() -> None:
    found = facts(replace(EIGHT, usable=7))
    assert (found.gpus, found.warnings[0]) == (7, "7 of 8 GPUs are healthy")


def test_gpus_without_nvlink_on_several_roots_are_told() -> None:
    cards = replace(
        EIGHT, product="NVIDIA L40S", memory_bytes=46068 * MIB, capability=(8, 9), pcie_roots=2
    )
    found = facts(cards)
    assert (found.gpu.id, found.domain.kind) == ("L40S-48GB", DomainKind.NONE)
    assert any("2 PCIe roots" in warning for warning in found.warnings)
    assert facts(replace(cards, pcie_roots=1)).warnings == ()


def test_an_annotation_goes_before_the_slice_and_a_claim_names_the_product_that_the_slice_has() -> (
    None
):
    strange = replace(
        EIGHT,
        product="NVIDIA Graphics Device",
        claimed=replace(CLAIMED, product="NVIDIA Graphics Device"),
    )
    assert reason(strange) == "GpuUnknown"
    stated = facts(
        strange, a_bare_node("a", annotations={"shardwright.io/gpu-model": "H100-SXM-80GB"})
    )
    assert (stated.gpu.id, stated.claimed) == ("H100-SXM-80GB", strange.claimed)


@pytest.mark.parametrize(
    ("devices", "code"),
    [
        (replace(EIGHT, product="NVIDIA Unheard Of"), "GpuUnknown"),
        (replace(EIGHT, product="x' || true || 'y"), "GpuUnknown"),
        (replace(EIGHT, capability=(8, 0)), "LabelsImplausible"),
        (replace(EIGHT, memory_bytes=40_000 * MIB), "LabelsImplausible"),
        (replace(EIGHT, gpus=100, usable=100), "LabelsImplausible"),
        (
            replace(EIGHT, product="AMD Instinct MI300X", memory_bytes=None, capability=None),
            "LabelsImplausible",
        ),
        (Problem(code="MixedGpus", what="2 GPU models on one node"), "MixedGpus"),
    ],
)
def test_devices_that_cannot_be_planned_are_a_reason_for_their_node(
    devices: NodeDevices | Problem, code: str
) -> None:
    assert reason(devices) == code


def test_a_bare_node_is_the_same_after_a_heartbeat_and_another_after_a_taint() -> None:
    node = a_bare_node("a")
    beat = copy.deepcopy(node)
    beat["status"]["conditions"] = [
        {**item, "lastHeartbeatTime": "2026-01-02T12:00:00Z"}
        for item in beat["status"]["conditions"]
    ]
    beat["metadata"]["annotations"] = {"node.alpha.kubernetes.io/ttl": "0"}
    beat["status"]["images"] = [{"names": ["a"], "sizeBytes": 1}]
    assert bare(node) == bare(beat)
    tainted = a_bare_node("a", taints=[{"key": "a", "effect": "NoSchedule"}])
    assert bare(node) != bare(tainted)
