"""How fast the network is: stated, by instance type, else assumed with a warning."""

import pytest

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import Link
from shardwright.hardware.nodes import read_node
from shardwright.hardware.topology import RDMA_LATENCY_SECONDS, TCP_LATENCY_SECONDS
from tests.support.builders_nodes import a_node, an_l40s_node, an_mi300x_node

RDMA = {"rdma/ib": "1k"}


def facts(node: object) -> NodeFacts:
    found = read_node(node)
    assert isinstance(found, NodeFacts), found
    return found


def test_what_the_user_states_wins_over_the_instance_type() -> None:
    node = facts(
        a_node("x", network_gbps=200, labels={"node.kubernetes.io/instance-type": "p5.48xlarge"})
    )
    assert node.network == Link(
        name="200 Gb/s RDMA",
        bytes_per_second=25e9,
        latency_seconds=RDMA_LATENCY_SECONDS,
        basis="stated",
        source="shardwright.io/network-gbps-per-gpu",
    )
    assert node.warnings == ()


def test_a_slow_network_that_is_stated_is_taken_for_ethernet_unless_rdma_is_offered() -> None:
    assert facts(a_node("x", network_gbps=25)).network.latency_seconds == TCP_LATENCY_SECONDS
    assert (
        facts(a_node("x", network_gbps=25, allocatable=RDMA)).network.latency_seconds
        == RDMA_LATENCY_SECONDS
    )


def test_the_instance_type_says_what_labels_do_not() -> None:
    node = facts(
        a_node(
            "x",
            network_gbps=None,
            labels={"node.kubernetes.io/instance-type": "p4d.24xlarge"},
            product="NVIDIA-A100-SXM4-40GB",
        )
    )
    assert (node.network.name, node.network.basis, node.warnings) == (
        "50 Gb/s RDMA",
        "datasheet",
        (),
    )


def test_the_machine_label_stands_in_for_the_instance_type() -> None:
    for machine, gbps in (
        ("p5.48xlarge", 400),
        ("DGXH100", 400),
        ("DGXH100-920-23687-2530-000", 400),
    ):
        node = facts(a_node("x", network_gbps=None, labels={"nvidia.com/gpu.machine": machine}))
        assert (node.network.bytes_per_second, node.network.basis) == (gbps * 1e9 / 8, "datasheet")


def test_an_instance_type_with_another_gpu_is_not_believed() -> None:
    node = facts(
        a_node("x", network_gbps=None, labels={"node.kubernetes.io/instance-type": "g6e.48xlarge"})
    )
    assert node.network.basis == "assumed"


def test_karpenter_knows_the_bandwidth_of_the_node() -> None:
    node = facts(
        a_node(
            "x",
            network_gbps=None,
            labels={"karpenter.k8s.aws/instance-network-bandwidth": "100000"},
        )
    )
    assert (node.network.name, node.network.basis) == ("12.5 Gb/s Ethernet", "datasheet")


def test_rdma_beside_a_board_of_hopper_gpus_is_assumed_to_be_one_400g_port_per_gpu() -> None:
    node = facts(a_node("x", network_gbps=None, allocatable=RDMA))
    assert (node.network.name, node.network.basis) == ("400 Gb/s RDMA", "assumed")


def test_rdma_beside_ampere_is_assumed_to_be_the_slowest_there_is() -> None:
    node = facts(
        a_node(
            "x",
            product="NVIDIA-A100-SXM4-80GB",
            network_gbps=None,
            allocatable={"vpc.amazonaws.com/efa": "4"},
        )
    )
    assert node.network.name == "50 Gb/s RDMA"


def test_an_rdma_resource_that_offers_nothing_is_no_evidence() -> None:
    node = facts(a_node("x", network_gbps=None, allocatable={"rdma/ib": "0"}))
    assert node.network.name == "12.5 Gb/s Ethernet"


def test_rdma_beside_pcie_cards_is_no_evidence() -> None:
    node = an_l40s_node(network_gbps=None)
    node["status"]["allocatable"] |= RDMA
    assert facts(node).network.name == "12.5 Gb/s Ethernet"


@pytest.mark.parametrize(
    "node",
    [a_node("x", network_gbps=None), an_mi300x_node(network_gbps=None)],
    ids=["nvidia", "amd"],
)
def test_without_evidence_the_gpus_share_a_slow_network_that_is_assumed(node: object) -> None:
    found = facts(node)
    assert (found.network.name, found.network.basis) == ("12.5 Gb/s Ethernet", "assumed")


@pytest.mark.parametrize("stated", ["nan", "inf", "-400", "0", "1e99", "fast", "", "4_00_"])
def test_a_statement_that_is_no_bandwidth_is_not_believed(stated: str) -> None:
    node = a_node("x", network_gbps=None, labels={"shardwright.io/network-gbps-per-gpu": stated})
    assert facts(node).network.basis == "assumed"
