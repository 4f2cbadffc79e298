"""The traps of node labels that no recorded node shows: vague names, old spellings, other vendors,
stated topology.
"""

from typing import Any

import pytest

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import load_gpus
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import read_node
from shardwright.hardware.topology import Domain, DomainKind
from shardwright.units import GIB, MIB
from tests.support.builders_nodes import RACK_UUID, a_gke_node, a_node, an_mi300x_node, bare_node

NVIDIA = {"nvidia.com/gpu": "8"}


def facts(node: object) -> NodeFacts:
    found = read_node(node)
    assert isinstance(found, NodeFacts), found
    return found


def excluded(node: object) -> tuple[str, str]:
    found = read_node(node)
    assert isinstance(found, NodeExclusion), found
    return found.problem.code, found.problem.what


def labelled(labels: dict[str, str], allocatable: dict[str, str] = NVIDIA) -> dict[str, Any]:
    return bare_node("x", labels=labels, allocatable=allocatable)


class TestTheChain:
    @pytest.mark.parametrize(
        ("accelerator", "expected"),
        [
            ("nvidia-tesla-t4", "T4-16GB"),
            ("nvidia-l4", "L4-24GB"),
            ("nvidia-tesla-a100", "A100-SXM4-40GB"),
            ("nvidia-a100-80gb", "A100-SXM4-80GB"),
            ("nvidia-h100-80gb", "H100-SXM-80GB"),
            ("nvidia-h100-mega-80gb", "H100-SXM-80GB"),
            ("nvidia-h200-141gb", "H200-SXM-141GB"),
            ("nvidia-b200", "B200-SXM-180GB"),
            ("nvidia-gb200", "GB200-NVL-186GB"),
            ("nvidia-gb300", "GB300-NVL-278GB"),
            ("nvidia-rtx-pro-6000", "RTX-PRO-6000-BSE-96GB"),
        ],
    )
    def test_every_accelerator_of_gke_is_known_without_a_label_of_the_gpu_operator(
        self, accelerator: str, expected: str
    ) -> None:
        assert facts(a_gke_node(accelerator=accelerator, gpus=4)).gpu.id == expected

    @pytest.mark.parametrize(
        ("labels", "expected"),
        [
            (
                {"gpu.nvidia.com/model": "H100_NVLINK_80GB", "gpu.nvidia.com/class": "H100"},
                "H100-SXM-80GB",
            ),
            ({"gpu.nvidia.com/class": "A100_PCIE_80GB"}, "A100-PCIE-80GB"),
            (
                {"gpu.nvidia.com/class": "A100_NVLINK", "gpu.nvidia.com/vram": "40"},
                "A100-SXM4-40GB",
            ),
            ({"gpu.nvidia.com/class": "GB200"}, "GB200-NVL-186GB"),
            ({"gpu.nvidia.com/class": "L40S"}, "L40S-48GB"),
        ],
    )
    def test_coreweave_names_a_model_else_a_class(
        self, labels: dict[str, str], expected: str
    ) -> None:
        assert facts(labelled(labels)).gpu.id == expected

    def test_the_vendors_label_wins_over_the_clouds(self) -> None:
        node = a_node(
            "x",
            labels={"cloud.google.com/gke-accelerator": "nvidia-l4", "gpu.nvidia.com/class": "A40"},
        )
        assert facts(node).gpu.id == "H100-SXM-80GB"

    def test_the_instance_type_wins_over_karpenters_vague_name(self) -> None:
        labels = {
            "karpenter.azure.com/sku-gpu-name": "H100",
            "node.kubernetes.io/instance-type": "Standard_NC80adis_H100_v5",
        }
        node = facts(labelled(labels, {"nvidia.com/gpu": "2"}))
        assert (node.gpu.id, node.domain.kind) == ("H100-NVL-94GB", DomainKind.BRIDGE)

    @pytest.mark.parametrize("name", ["H100", "A100", "V100", "H200"])
    def test_a_name_of_azure_that_leaves_the_form_open_is_reported(self, name: str) -> None:
        assert excluded(labelled({"karpenter.azure.com/sku-gpu-name": name})) == (
            "GpuUnknown",
            f"karpenter.azure.com/sku-gpu-name '{name}'",
        )

    def test_a_name_of_azure_that_has_one_form_is_understood(self) -> None:
        assert facts(labelled({"karpenter.azure.com/sku-gpu-name": "T4"})).gpu.id == "T4-16GB"
        node = labelled({"karpenter.azure.com/sku-gpu-name": "MI300X"}, {"amd.com/gpu": "8"})
        assert facts(node).gpu.id == "MI300X-192GB"

    @pytest.mark.parametrize("memory", ["16384", "32768"])
    def test_the_memory_of_the_node_tells_v100_apart(self, memory: str) -> None:
        node = a_node("x", product="Tesla-V100-SXM2", labels={"nvidia.com/gpu.memory": memory})
        assert facts(node).gpu.memory_bytes == int(memory) * MIB

    def test_a_gpu_that_its_driver_cannot_name_is_refused_by_that_name(self) -> None:
        found = read_node(a_node("x", product="NVIDIA-Graphics-Device"))
        assert isinstance(found, NodeExclusion)
        assert (found.problem.code, found.problem.sentence()) == (
            "GpuUnknown",
            (
                "nvidia.com/gpu.product 'NVIDIA-Graphics-Device' is what a driver calls every GPU "
                "that is newer than itself; update the driver, or say which GPU it is: set the "
                "node label shardwright.io/gpu-model to an id of shardwright gpus, as "
                "VR200-NVL-280GB"
            ),
        )

    def test_the_users_word_names_a_gpu_that_its_driver_cannot_name(self) -> None:
        node = a_node(
            "x",
            product="NVIDIA-Graphics-Device",
            gpus=4,
            labels={
                "shardwright.io/gpu-model": "VR200-NVL-280GB",
                "nvidia.com/gpu.memory": "286524",
            },
        )
        assert facts(node).gpu.id == "VR200-NVL-280GB"

    def test_gpus_that_nothing_names_are_reported_not_guessed(self) -> None:
        assert excluded(labelled({})) == ("GpuUnknown", "GPU name (no label holds one)")

    def test_what_the_gpu_operator_never_writes_but_people_do_is_understood(self) -> None:
        for product in ("NVIDIA-H100-SXM5-80GB", "NVIDIA-GB200-NVL72", "NVIDIA-GB200-192GB-HBM3e"):
            assert facts(a_node("x", product=product, gpus=4)).gpu.id in {
                "H100-SXM-80GB",
                "GB200-NVL-186GB",
            }


class TestAmd:
    def test_the_old_spelling_has_the_value_in_the_key(self) -> None:
        labels = {"beta.amd.com/gpu.device-id.74a1": "8", "beta.amd.com/gpu.vram.192G": "8"}
        node = facts(labelled(labels, {"amd.com/gpu": "8"}))
        assert (node.gpu.id, node.gpu.memory_bytes) == ("MI300X-192GB", 192 * GIB)

    def test_the_old_spelling_of_the_product_name_is_understood(self) -> None:
        labels = {"beta.amd.com/gpu.product-name.AMD_Instinct_MI325_OAM": "8"}
        assert facts(labelled(labels, {"amd.com/gpu": "8"})).gpu.id == "MI325X-256GB"

    @pytest.mark.parametrize("device", ["74a0", "738c"])
    def test_a_device_id_outside_the_catalogue_is_reported_raw(self, device: str) -> None:
        node = labelled({"amd.com/gpu.device-id": device}, {"amd.com/gpu": "8"})
        assert excluded(node) == ("GpuUnknown", f"amd.com/gpu.device-id '{device}'")

    @pytest.mark.parametrize(
        ("device", "expected"),
        [("74b5", "MI300X-192GB"), ("74A5", "MI325X-256GB"), ("75a3", "MI355X-288GB")],
    )
    def test_a_virtual_function_without_a_name_is_known_by_its_device_id(
        self, device: str, expected: str
    ) -> None:
        assert (
            facts(labelled({"amd.com/gpu.device-id": device}, {"amd.com/gpu": "8"})).gpu.id
            == expected
        )

    def test_two_product_names_on_one_node_are_not_planned(self) -> None:
        node = an_mi300x_node()
        node["metadata"]["labels"]["beta.amd.com/gpu.product-name.AMD_Instinct_MI325_OAM"] = "1"
        node["metadata"]["labels"]["beta.amd.com/gpu.product-name.AMD_Instinct_MI300X_OAM"] = "7"
        assert excluded(node)[0] == "MixedGpus"

    def test_whole_gpus_under_a_partitions_name_are_not_called_gpus(self) -> None:
        node = labelled({"amd.com/gpu.device-id": "74a1"}, {"amd.com/spx_nps1": "8"})
        assert excluded(node)[0] == "MigEnabled"


class TestPresence:
    @pytest.mark.parametrize(
        "resource",
        [
            "habana.ai/gaudi",
            "gpu.intel.com/i915",
            "gpu.intel.com/xe",
            "google.com/tpu",
            "aws.amazon.com/neuron",
            "huawei.com/Ascend910",
        ],
    )
    def test_accelerators_of_other_vendors_are_reported(self, resource: str) -> None:
        assert excluded(labelled({}, {resource: "8"})) == (
            "AcceleratorNotSupported",
            f"accelerators that go by {resource}",
        )

    def test_a_gpu_of_intel_is_named_and_says_what_is_lacking(self) -> None:
        found = read_node(
            labelled({"gpu.intel.com/product": "Arc_Pro_B60"}, {"gpu.intel.com/xe": "4"})
        )
        assert isinstance(found, NodeExclusion)
        assert found.problem.sentence() == (
            "accelerators that go by gpu.intel.com/xe ('Arc_Pro_B60') cannot be planned, only "
            "nvidia.com/gpu and amd.com/gpu, no pods are rendered for vLLM's build for Intel GPUs "
            "(XPU); leave the node to others"
        )

    def test_an_integrated_gpu_beside_nvidia_cards_does_not_matter(self) -> None:
        node = a_node("x", allocatable={"gpu.intel.com/i915": "1"})
        assert facts(node).gpu.id == "H100-SXM-80GB"

    @pytest.mark.parametrize("key", ["pci-10de", "pci-0300_10de", "pci-0302_10de"])
    def test_a_card_is_seen_whatever_shape_nfd_gives_the_key(self, key: str) -> None:
        node = labelled({f"feature.node.kubernetes.io/{key}.present": "true"}, {})
        assert excluded(node)[0] == "NoAllocatableGpus"

    def test_a_mellanox_card_is_no_gpu(self) -> None:
        assert (
            read_node(labelled({"feature.node.kubernetes.io/pci-15b3.present": "true"}, {})) is None
        )

    def test_a_tray_of_the_dra_driver_has_a_clique_and_no_product(self) -> None:
        node = labelled({"nvidia.com/gpu.clique": f"{RACK_UUID}.1"}, {})
        assert excluded(node)[0] == "NoAllocatableGpus"

    def test_the_count_label_is_physical_and_what_is_allocatable_counts(self) -> None:
        node = facts(
            labelled(
                {"gpu.nvidia.com/class": "H100", "gpu.nvidia.com/count": "8"},
                {"nvidia.com/gpu": "6"},
            )
        )
        assert (node.gpus, node.warnings[0]) == (6, "6 of 8 GPUs are healthy")


class TestTopology:
    def test_the_users_word_wins_over_the_providers_topology(self) -> None:
        labels = {"topology.k8s.aws/network-node-layer-3": "nn-3"}
        node = a_node(
            "x", labels=labels, annotations={"shardwright.io/topology-path": "leaf-2/spine-1"}
        )
        key = "shardwright.io/topology-path"
        assert facts(node).path == ((key, "leaf-2"), (key, "spine-1"))

    def test_a_stated_topology_that_says_nothing_leaves_the_providers(self) -> None:
        labels = {
            "topology.k8s.aws/network-node-layer-3": "nn-3",
            "shardwright.io/topology-path": "",
        }
        assert facts(a_node("x", labels=labels)).path == (
            ("topology.k8s.aws/network-node-layer-3", "nn-3"),
        )

    @pytest.mark.parametrize(
        ("labels", "expected"),
        [
            (
                {
                    "network.topology.nvidia.com/spine": "s",
                    "network.topology.nvidia.com/accelerator": "a",
                },
                ["a", "s"],
            ),
            (
                {
                    "network.topology.nvidia.com/datacenter": "d",
                    "network.topology.nvidia.com/block": "b",
                },
                ["b", "d"],
            ),
            (
                {"kubernetes.azure.com/agentpool": "gpu", "topology.kubernetes.io/zone": "1"},
                ["gpu", "1"],
            ),
            (
                {
                    "cloud.google.com/gce-topology-block": "b",
                    "cloud.google.com/gce-topology-host": "h",
                    "cloud.google.com/gce-topology-subblock": "s",
                },
                ["h", "s", "b"],
            ),
            (
                {
                    "oci.oraclecloud.com/rdma.hpc_island_id": "i",
                    "oci.oraclecloud.com/rdma.network_block_id": "n",
                },
                ["n", "i"],
            ),
        ],
    )
    def test_every_provider_is_read_closest_first(
        self, labels: dict[str, str], expected: list[str]
    ) -> None:
        assert [value for _, value in facts(a_node("x", labels=labels)).path] == expected

    @pytest.mark.parametrize("product", ["NVIDIA-GH200-480GB", "NVIDIA-GB10"])
    def test_a_superchip_of_its_own_is_joined_to_nothing(self, product: str) -> None:
        assert facts(a_node("x", product=product, gpus=1)).domain == Domain(
            kind=DomainKind.NONE, name="", gpus=1
        )


def test_every_row_says_where_its_memory_comes_from() -> None:
    assert [
        gpu.id
        for gpu in load_gpus().values()
        if not gpu.memory_basis or gpu.cross_checked not in {"yes", "partly", "no"}
    ] == []


def test_memory_from_a_label_says_so() -> None:
    assert facts(a_node("x")).gpu.memory_basis == "label of the node"
    assert facts(a_gke_node()).gpu.memory_basis == "node labels"
