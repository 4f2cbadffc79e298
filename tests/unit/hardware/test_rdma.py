"""Which devices pods request to reach the network between nodes, and which link that gives them."""

from typing import Any

import pytest

from shardwright.hardware.capabilities import Capability, RdmaMode, RdmaRequest, Reach
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import Stated
from shardwright.hardware.inventory import Pool
from shardwright.hardware.nodes import read_node
from shardwright.hardware.topology import RDMA_LATENCY_SECONDS, TCP_LATENCY_SECONDS, NetworkWay
from tests.support.builders_nodes import a_node, inventory_of

NONE = RdmaRequest(mode=RdmaMode.NONE)
P5 = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
EFA = {"vpc.amazonaws.com/efa": "32"}

AUTO = RdmaRequest(plugins=(Capability.EFA,))


def explicit(**devices: int) -> RdmaRequest:
    named = tuple((f"rdma/{name}", count) for name, count in sorted(devices.items()))
    return RdmaRequest(mode=RdmaMode.EXPLICIT, devices=named)


def a_p5(name: str = "x", **allocatable: str) -> dict[str, Any]:
    return a_node(
        name,
        network_gbps=None,
        labels=P5,
        allocatable={key.replace("_", "/"): value for key, value in allocatable.items()},
    )


def pool_of(*nodes: object, rdma: RdmaRequest = AUTO) -> Pool:
    (pool,) = inventory_of(*nodes, rdma=rdma).pools
    return pool


def test_a_node_that_offers_devices_is_reached_by_them() -> None:
    pool = pool_of(a_node("x", network_gbps=None, labels=P5, allocatable=EFA))
    assert (pool.network.name, pool.network.latency_seconds) == (
        "400 Gb/s RDMA",
        RDMA_LATENCY_SECONDS,
    )
    assert pool.reach == Reach(devices=(("vpc.amazonaws.com/efa", 32),))


def test_devices_that_the_image_has_no_plugin_for_are_not_requested_and_tcp_is_planned() -> None:
    nodes = (
        a_p5("a", **{"vpc.amazonaws.com_efa": "32"}),
        a_p5("b", **{"vpc.amazonaws.com_efa": "31"}),
    )
    pool = pool_of(*nodes, rdma=RdmaRequest())
    assert (pool.network.name, pool.reach.requested(8, 8)) == ("12.5 Gb/s Ethernet", ())
    assert pool.reach.missed is not None
    assert (pool.reach.missed.name, pool.reach.plugin) == ("400 Gb/s RDMA", Capability.EFA)
    assert pool.reach.unused == (("vpc.amazonaws.com/efa", 31),)


def test_a_stated_rate_does_not_reach_devices_without_their_plugin_nor_does_it_hide_others() -> (
    None
):
    pool = pool_of(a_node("x", network_gbps=400, allocatable=EFA), rdma=RdmaRequest())
    assert pool.network.name == "12.5 Gb/s Ethernet"
    both = a_node("x", network_gbps=400, allocatable=EFA | {"rdma/ib": "1k"})
    assert pool_of(both, rdma=RdmaRequest()).reach.requested(8, 8) == (("rdma/ib", 1),)


def test_a_node_without_a_device_plugin_is_reached_over_tcp_whatever_its_network() -> None:
    pool = pool_of(a_p5())
    assert (pool.network.name, pool.network.basis) == ("12.5 Gb/s Ethernet", "assumed")
    assert pool.network.latency_seconds == TCP_LATENCY_SECONDS
    assert pool.reach.missed is not None
    assert (pool.reach.missed.name, pool.reach.devices) == ("400 Gb/s RDMA", ())


def test_tcp_brings_no_more_than_the_network_that_is_missed() -> None:
    assert (
        pool_of(a_node("x", network_gbps=5, allocatable=EFA), rdma=NONE).network.name
        == "5 Gb/s Ethernet"
    )


def test_a_rate_that_the_owner_states_is_what_pods_get_by_themselves_but_not_without_rdma() -> None:
    node = a_node("x", network_gbps=400)
    assert pool_of(node).network.name == "400 Gb/s RDMA"
    assert pool_of(node, rdma=NONE).network.name == "12.5 Gb/s Ethernet"


def test_who_wants_no_rdma_gets_tcp_although_devices_are_there() -> None:
    pool = pool_of(a_node("x", allocatable=EFA), rdma=NONE)
    assert (pool.network.name, pool.reach.devices) == ("12.5 Gb/s Ethernet", ())
    assert pool.reach.requested(8, 8) == ()


def test_ethernet_is_what_it_is_in_every_mode() -> None:
    node = a_node("x", network_gbps=25)
    for wanted in (RdmaRequest(), NONE, explicit(hca=1)):
        pool = pool_of(node, rdma=wanted)
        assert (pool.network.name, pool.network.basis, pool.reach.missed) == (
            "25 Gb/s Ethernet",
            "stated",
            None,
        )


@pytest.mark.parametrize(
    ("offered", "gpus", "requested"),
    [
        ({"rdma/ib": "1k"}, 8, (("rdma/ib", 1),)),
        (EFA, 8, (("vpc.amazonaws.com/efa", 32),)),
        (EFA, 4, (("vpc.amazonaws.com/efa", 16),)),
        ({"nvidia.com/mlnxnics": "8"}, 8, (("nvidia.com/mlnxnics", 8),)),
        ({"nvidia.com/hostdev": "1"}, 4, (("nvidia.com/hostdev", 1),)),
        ({"intel.com/mlnx_sriov_rdma1": "1", "intel.com/mlnx_sriov_rdma2": "1"}, 8, None),
        ({"rdma/ib": "0", "example.com/fpga": "3"}, 8, ()),
    ],
)
def test_a_pod_requests_its_share_of_the_nics_and_one_of_what_is_shared(
    offered: dict[str, str], gpus: int, requested: tuple[tuple[str, int], ...] | None
) -> None:
    pool = pool_of(a_node("x", allocatable=offered))
    wanted = tuple((name, 1) for name in sorted(offered)) if requested is None else requested
    assert pool.reach.requested(gpus, 8) == wanted


def test_what_the_user_names_is_requested_as_it_stands_whatever_share_of_the_node() -> None:
    pool = pool_of(a_p5(rdma_hca="16"), rdma=explicit(hca=3))
    assert pool.network.name == "400 Gb/s RDMA"
    assert (pool.reach.requested(8, 8), pool.reach.requested(1, 8)) == (
        (("rdma/hca", 3),),
        (("rdma/hca", 3),),
    )


@pytest.mark.parametrize("offered", [{}, {"rdma/hca": "2"}, {"rdma/other": "9"}])
def test_nodes_that_lack_what_the_user_names_are_not_reached(offered: dict[str, str]) -> None:
    pool = pool_of(a_node("x", allocatable=offered), rdma=explicit(hca=3))
    assert (pool.reach.lacking, pool.reach.devices, pool.network.name) == (
        "rdma/hca",
        (),
        "12.5 Gb/s Ethernet",
    )


def test_a_sick_nic_divides_no_pool_and_lowers_what_is_requested() -> None:
    nodes = (a_node("a", allocatable=EFA), a_node("b", allocatable={"vpc.amazonaws.com/efa": "31"}))
    assert pool_of(*nodes).reach.requested(8, 8) == (("vpc.amazonaws.com/efa", 31),)


def test_devices_of_other_names_divide_pools_only_where_they_would_be_requested() -> None:
    nodes = (a_node("a", allocatable={"rdma/a": "1k"}), a_node("b", allocatable={"rdma/b": "1k"}))
    assert len(inventory_of(*nodes).pools) == 2
    assert len(inventory_of(*nodes, rdma=NONE).pools) == 1
    assert (
        len(
            inventory_of(
                a_node("a", allocatable={"rdma/a": "1k"}), a_node("b"), rdma=explicit(a=1)
            ).pools
        )
        == 2
    )


GKE = {f"networking.gke.io.networks/rdma-{nic}": "1" for nic in range(8)}
A3_ULTRA = {
    "node.kubernetes.io/instance-type": "a3-ultragpu-8g",
    "nvidia.com/gpu.product": "NVIDIA-H200",
    "nvidia.com/gpu.memory": "143771",
}


def a_gke(labels: dict[str, str], allocatable: dict[str, str]) -> dict[str, Any]:
    return a_node("x", network_gbps=None, labels=labels, allocatable=allocatable)


def test_networks_of_gke_are_requested_by_an_image_with_gib_and_addresses_are_no_devices() -> None:
    node = a_gke(A3_ULTRA, GKE | {f"{name}.IP": "128" for name in GKE})
    reached = pool_of(node, rdma=RdmaRequest(plugins=(Capability.GIB,)))
    missed = pool_of(node, rdma=RdmaRequest(plugins=(Capability.EFA,)))

    assert reached.network.name == "400 Gb/s RDMA"
    assert reached.reach.requested(8, 8) == tuple((name, 1) for name in sorted(GKE))
    assert (missed.network.name, missed.reach.plugin) == ("12.5 Gb/s Ethernet", Capability.GIB)


@pytest.mark.parametrize(
    ("labels", "way"),
    [
        (A3_ULTRA, NetworkWay.RESOURCES),
        (A3_ULTRA | {"cloud.google.com/gke-networking-dra-driver": "true"}, NetworkWay.CLAIMS),
        ({"node.kubernetes.io/instance-type": "a3-megagpu-8g"}, NetworkWay.DAEMON),
    ],
)
def test_a_network_that_is_given_in_another_way_is_missed_with_that_way(
    labels: dict[str, str], way: NetworkWay
) -> None:
    pool = pool_of(a_gke(labels, {}))

    assert (pool.network.name, pool.reach.way) == ("12.5 Gb/s Ethernet", way)


def test_a_resource_that_the_administrator_names_is_one_of_rdma() -> None:
    node = a_p5(**{"openshift.io_rdma": "8"})
    stated = Stated(rdma_resources=frozenset({"openshift.io/rdma"}))

    assert [offered_of(node, each) for each in (Stated(), stated)] == [
        (),
        (("openshift.io/rdma", 8),),
    ]


def offered_of(node: object, stated: Stated) -> tuple[tuple[str, int], ...]:
    found = read_node(node, stated)
    assert isinstance(found, NodeFacts)
    return found.rdma


@pytest.mark.parametrize(
    ("megabits", "network", "warned"),
    [("3200000", "400 Gb/s RDMA", False), ("800000", "100 Gb/s RDMA", True)],
)
def test_of_two_rates_that_contradict_each_other_the_slower_counts_and_is_said(
    megabits: str, network: str, *, warned: bool
) -> None:
    labels = P5 | {"karpenter.k8s.aws/instance-network-bandwidth": megabits}
    pool = pool_of(a_node("x", network_gbps=None, labels=labels, allocatable=EFA))

    assert pool.network.name == network
    assert any("the slower counts" in warning for warning in pool.warnings) is warned
