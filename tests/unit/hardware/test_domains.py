"""Which GPUs are joined, and where a node sits in the network."""

from typing import Any

import pytest

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.nodes import read_node
from shardwright.hardware.topology import Domain, DomainKind, read_path
from tests.support.builders_nodes import (
    RACK_UUID,
    a_gb200_rack,
    a_node,
    an_l40s_node,
    an_mi300x_node,
)

JOINED_BY_PCIE = Domain(kind=DomainKind.NONE, name="", gpus=1)


def domain(node: object) -> Domain:
    found = read_node(node)
    assert isinstance(found, NodeFacts), found
    return found.domain


def a_tray(**labels: str) -> dict[str, Any]:
    return a_node(
        "tray",
        product="NVIDIA-GB200",
        gpus=4,
        labels={key.replace("__", "/"): v for key, v in labels.items()},
    )


class TestInsideNodes:
    def test_a_board_with_switches_joins_all_gpus_of_the_node(self) -> None:
        assert domain(a_node("x")) == Domain(kind=DomainKind.NODE, name="x", gpus=8)

    def test_a_full_mesh_joins_all_gpus_of_the_node(self) -> None:
        assert domain(an_mi300x_node("x")) == Domain(kind=DomainKind.NODE, name="x", gpus=8)

    def test_cards_without_a_link_are_joined_by_pcie(self) -> None:
        assert domain(an_l40s_node()) == JOINED_BY_PCIE

    def test_a_single_gpu_is_joined_to_nothing(self) -> None:
        assert domain(a_node("x", gpus=1)) == JOINED_BY_PCIE

    def test_nvl_cards_are_joined_in_pairs(self) -> None:
        assert domain(a_node("x", product="NVIDIA-H100-NVL")) == Domain(
            kind=DomainKind.BRIDGE, name="x", gpus=2
        )

    def test_h200_nvl_cards_are_joined_in_fours(self) -> None:
        assert domain(a_node("x", product="NVIDIA-H200-NVL")) == Domain(
            kind=DomainKind.BRIDGE, name="x", gpus=4
        )

    @pytest.mark.parametrize(
        "product", ["NVIDIA-A100-80GB-PCIe", "NVIDIA-H100-PCIe", "NVIDIA-A40", "NVIDIA-RTX-A6000"]
    )
    def test_a_bridge_that_is_an_option_is_not_taken_for_granted(self, product: str) -> None:
        assert domain(a_node("x", product=product, gpus=4)) == JOINED_BY_PCIE

    def test_an_optional_bridge_counts_where_the_instance_type_has_it(self) -> None:
        labels = {"node.kubernetes.io/instance-type": "Standard_NC96ads_A100_v4"}
        node = a_node("x", product="NVIDIA-A100-80GB-PCIe", gpus=4, labels=labels)
        assert domain(node) == Domain(kind=DomainKind.BRIDGE, name="x", gpus=2)

    def test_an_optional_bridge_counts_where_the_user_states_it(self) -> None:
        node = a_node(
            "x",
            product="NVIDIA-A100-80GB-PCIe",
            gpus=4,
            labels={"shardwright.io/nvlink-domain": "pairs"},
        )
        assert domain(node) == Domain(kind=DomainKind.BRIDGE, name="x", gpus=2)

    def test_a_node_of_sixteen_gpus_is_one_domain_where_the_instance_type_says_so(self) -> None:
        labels = {"node.kubernetes.io/instance-type": "a2-megagpu-16g"}
        node = a_node("x", product="NVIDIA-A100-SXM4-40GB", gpus=16, labels=labels)
        assert domain(node).gpus == 16

    def test_an_instance_type_with_another_gpu_is_not_believed(self) -> None:
        node = a_node("x", labels={"node.kubernetes.io/instance-type": "g6e.48xlarge"})
        assert domain(node).gpus == 8


class TestPartOfABoard:
    @pytest.mark.parametrize("gpus", [2, 4])
    @pytest.mark.parametrize("machine", ["", "unknown", "ThinkSystem-SR675-V3"])
    @pytest.mark.parametrize(
        "product", ["NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H200", "NVIDIA-B200"]
    )
    def test_the_product_says_that_it_is_joined(
        self, product: str, machine: str, gpus: int
    ) -> None:
        node = a_node("x", product=product, gpus=gpus, labels={"nvidia.com/gpu.machine": machine})
        assert domain(node) == Domain(kind=DomainKind.NODE, name="x", gpus=gpus)

    @pytest.mark.parametrize(
        "machine", ["Standard-PC-Q35-ICH9-2009", "Virtual-Machine", "p5.12xlarge"]
    )
    def test_in_a_virtual_machine_it_is_joined_with_a_warning_unless_the_user_knows_better(
        self, machine: str
    ) -> None:
        labels = {"nvidia.com/gpu.machine": machine}
        found = domain(a_node("x", gpus=4, labels=labels))
        assert (found.kind, found.gpus) == (DomainKind.NODE, 4)
        assert found.warning.startswith("4 of a board of 8 H100-SXM-80GB in a virtual machine")
        for stated, kind in (("mine", DomainKind.NODE), ("none", DomainKind.NONE)):
            said = a_node("x", gpus=4, labels={**labels, "shardwright.io/nvlink-domain": stated})
            assert (domain(said).kind, domain(said).warning) == (kind, "")

    @pytest.mark.parametrize(
        ("instance", "product", "gpus"),
        [
            ("a2-ultragpu-4g", "NVIDIA-A100-SXM4-80GB", 4),
            ("a2-highgpu-2g", "NVIDIA-A100-SXM4-40GB", 2),
            ("a3-highgpu-4g", "NVIDIA-H100-80GB-HBM3", 4),
            ("gpu_2x_h100_sxm5", "NVIDIA-H100-80GB-HBM3", 2),
        ],
    )
    def test_in_a_machine_of_a_cloud_that_joins_what_it_gives_it_is_a_board(
        self, instance: str, product: str, gpus: int
    ) -> None:
        labels = {
            "node.kubernetes.io/instance-type": instance,
            "nvidia.com/gpu.machine": "Google-Compute-Engine",
        }
        assert domain(a_node("x", product=product, gpus=gpus, labels=labels)) == Domain(
            kind=DomainKind.NODE, name="x", gpus=gpus
        )

    def test_a_part_of_a_board_is_a_domain_where_the_user_states_it(self) -> None:
        node = a_node("x", gpus=4, annotations={"shardwright.io/nvlink-domain": "mine"})
        assert domain(node) == Domain(kind=DomainKind.NODE, name="x", gpus=4)

    def test_a_whole_board_with_sick_gpus_is_no_part_of_a_board(self) -> None:
        assert domain(a_node("x", allocatable={"nvidia.com/gpu": "4"})) == Domain(
            kind=DomainKind.NODE, name="x", gpus=4
        )


class TestRacks:
    def test_trays_with_the_same_full_clique_are_one_domain(self) -> None:
        assert {domain(tray) for tray in a_gb200_rack(trays=3)} == {
            Domain(kind=DomainKind.CLIQUE, name=f"{RACK_UUID}.32766", gpus=4)
        }

    def test_two_cliques_of_one_rack_are_two_domains(self) -> None:
        trays = (*a_gb200_rack(trays=1, clique=1), *a_gb200_rack(trays=1, clique=2))
        assert {domain(tray).name for tray in trays} == {f"{RACK_UUID}.1", f"{RACK_UUID}.2"}

    @pytest.mark.parametrize(
        "clique",
        [
            "00000000-0000-0000-0000-000000000000.0",
            "00000000-0000-0000-0000-000000000000.32766",
            "junk",
            RACK_UUID,
            f"{RACK_UUID}.",
            "",
        ],
    )
    def test_a_clique_that_is_none_leaves_the_tray_alone(self, clique: str) -> None:
        found = domain(a_tray(**{"nvidia.com__gpu.clique": clique}))
        assert (found.kind, found.name, found.gpus) == (DomainKind.NODE, "tray", 4)
        assert "taken to be the tray" in found.warning

    def test_a_tray_with_one_gpu_left_is_still_in_its_clique(self) -> None:
        (tray,) = a_gb200_rack(trays=1)
        tray["status"]["allocatable"]["nvidia.com/gpu"] = "1"
        assert domain(tray) == Domain(kind=DomainKind.CLIQUE, name=f"{RACK_UUID}.32766", gpus=1)

    def test_a_clique_on_a_board_that_ends_at_the_node_means_nothing(self) -> None:
        node = a_node("x", labels={"nvidia.com/gpu.clique": f"{RACK_UUID}.0"})
        assert domain(node) == Domain(kind=DomainKind.NODE, name="x", gpus=8)

    def test_the_users_word_wins_over_the_clique(self) -> None:
        labels = {
            "nvidia.com__gpu.clique": f"{RACK_UUID}.1",
            "shardwright.io__nvlink-domain": "rack-7",
        }
        assert domain(a_tray(**labels)) == Domain(kind=DomainKind.CLIQUE, name="rack-7", gpus=4)

    @pytest.mark.parametrize(
        "key",
        [
            "shardwright.io__nvlink-domain",
            "accelerator.topograph.run__sub-domain",
            "ds.coreweave.com__nvlink.domain",
            "topology.k8s.aws__ultraserver-id",
            "cloud.google.com__gce-topology-subblock",
        ],
    )
    def test_no_other_label_stands_in_for_a_clique_without_which_no_compute_domain_joins_pods(
        self, key: str
    ) -> None:
        found = domain(a_tray(**{key: "rack-7"}))
        assert (found.kind, found.name) == (DomainKind.NODE, "tray")
        assert found.warning.startswith("no nvidia.com/gpu.clique label")


class TestPath:
    def test_aws_counts_up_towards_the_node(self) -> None:
        labels = {f"topology.k8s.aws/network-node-layer-{n}": f"nn-{n}" for n in (1, 2, 3)}
        assert [value for _, value in read_path(labels)] == ["nn-3", "nn-2", "nn-1"]

    def test_topograph_counts_up_away_from_the_node(self) -> None:
        labels = {f"fabric.topograph.run/tier-{n}": f"t{n}" for n in (2, 0, 1)}
        assert [value for _, value in read_path(labels)] == ["t0", "t1", "t2"]

    def test_the_zone_comes_last(self) -> None:
        labels = {
            "topology.kubernetes.io/zone": "z",
            "node.coreweave.cloud/rack": "117",
            "backend.coreweave.cloud/fabric": "f",
        }
        assert [value for _, value in read_path(labels)] == ["117", "f", "z"]

    def test_families_are_not_mixed(self) -> None:
        labels = {
            "fabric.topograph.run/tier-0": "t0",
            "topology.k8s.aws/network-node-layer-3": "nn-3",
        }
        assert read_path(labels) == (("fabric.topograph.run/tier-0", "t0"),)

    def test_placeholders_are_no_places(self) -> None:
        labels = {
            "oci.oraclecloud.com/rdma.host_id": "no-imds-data",
            "oci.oraclecloud.com/rdma.local_block_id": "b",
        }
        assert read_path(labels) == (("oci.oraclecloud.com/rdma.local_block_id", "b"),)

    def test_a_node_without_topology_labels_has_no_path(self) -> None:
        assert read_path({"kubernetes.io/hostname": "x"}) == ()
