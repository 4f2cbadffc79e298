"""What is read from a Node: each recorded node, each trap of the labels, and what makes a node
unusable.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import read_node
from shardwright.hardware.taints import Taint
from shardwright.hardware.topology import DomainKind
from shardwright.units import GIB, MIB
from tests.support.builders_nodes import (
    DUMPS,
    a_dumped_node,
    a_gke_node,
    a_node,
    an_l40s_node,
    an_mi300x_node,
    bare_node,
    h100_nodes,
)

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def facts(node: object) -> NodeFacts:
    found = read_node(node)
    assert isinstance(found, NodeFacts), found
    return found


def code(node: object) -> str | None:
    found = read_node(node)
    return found.problem.code if isinstance(found, NodeExclusion) else None


# (catalogue id, MiB, GPUs, domain, GPUs of the node that it joins, network Gb/s per GPU, its basis)
# or the reason against
USABLE = {
    "SYNTH-gb200-4x-nvl72": ("GB200-NVL-186GB", 189471, 4, DomainKind.CLIQUE, 4, 25.0, "assumed"),
    "SYNTH-h100-8x-eks-p5": ("H100-SXM-80GB", 81559, 8, DomainKind.NODE, 8, 400.0, "datasheet"),
    "SYNTH-h100-8x-gke-a3mega": ("H100-SXM-80GB", 81559, 8, DomainKind.NODE, 8, 200.0, "datasheet"),
    "SYNTH-h200-8x-coreweave": (
        "H200-SXM-141GB",
        143771,
        8,
        DomainKind.NODE,
        8,
        400.0,
        "datasheet",
    ),
    "a100-80gb-8x-azure-nd96amsr": (
        "A100-SXM4-80GB",
        81920,
        8,
        DomainKind.NODE,
        8,
        200.0,
        "datasheet",
    ),
    "h100-1x-mig-disabled": ("H100-SXM-80GB", 81559, 1, DomainKind.NONE, 1, 100.0, "assumed"),
    "h100-8x-dell-xe9680": ("H100-SXM-80GB", 81559, 8, DomainKind.NODE, 8, 12.5, "assumed"),
    "h100-8x-lambda-vm": ("H100-SXM-80GB", 81559, 8, DomainKind.NODE, 8, 12.5, "assumed"),
    "l4-4x-aws-g6.12xlarge-openshift": ("L4-24GB", 23034, 4, DomainKind.NONE, 1, 10.0, "datasheet"),
    "l40s-opennebula-vm": ("L40S-48GB", 46068, 1, DomainKind.NONE, 1, 100.0, "assumed"),
    "mi300x-8x-azure-nd96isr-vf": (
        "MI300X-192GB",
        191 * 1024,
        8,
        DomainKind.NODE,
        8,
        400.0,
        "datasheet",
    ),
    "t4-1x-aws-g4dn.xlarge": ("T4-16GB", 15109, 1, DomainKind.NONE, 1, 5.0, "datasheet"),
    "a100-40gb-mig-7g-mixed": (
        "A100-SXM4-40GB-MIG-7g.40gb",
        40192,
        1,
        DomainKind.NONE,
        1,
        100.0,
        "assumed",
    ),
    "a100-40gb-pcie-mig-single-old": (
        "A100-PCIE-40GB-MIG-1g.5gb",
        4864,
        7,
        DomainKind.NONE,
        1,
        100 / 7,
        "assumed",
    ),
    "a100-80gb-pcie-mig-single-vm": (
        "A100-PCIE-80GB-MIG-1g.10gb",
        9728,
        7,
        DomainKind.NONE,
        1,
        100 / 7,
        "assumed",
    ),
    "v100-8x-kind": ("V100-SXM2-16GB", 16384, 8, DomainKind.NODE, 8, 12.5, "assumed"),
}
UNUSABLE = {
    "a10-vgpu-shared-vm": "VirtualGpu",
    "a100-40gb-mig-3-instances-mixed": "MigEnabled",
    "a10g-shared-aws-g5.2xlarge": "GpuShared",
    "h100-1x-mig-mixed": "MigEnabled",
    "kwok-dgxa100-8x": "GpuUnknown",
    "t4-shared-bytes-openshift": "GpuShared",
}
WITHOUT_GPUS = {"oci-rdma-locality-example"}


def test_every_recorded_node_has_an_expectation() -> None:
    assert {dump.stem for dump in DUMPS.glob("*.yaml")} == {*USABLE, *UNUSABLE, *WITHOUT_GPUS}


@pytest.mark.parametrize("stem", USABLE)
def test_a_recorded_node_is_read_as_what_it_is(stem: str) -> None:
    node = facts(a_dumped_node(stem))
    gbps = node.network.bytes_per_second * 8 / 1e9
    found = (
        node.gpu.id,
        node.gpu.memory_bytes // MIB,
        node.gpus,
        node.domain.kind,
        node.domain.gpus,
        gbps,
        node.network.basis,
    )
    assert found == USABLE[stem]


@pytest.mark.parametrize("stem", UNUSABLE)
def test_a_recorded_node_that_cannot_be_planned_says_why_and_what_to_do(stem: str) -> None:
    node = read_node(a_dumped_node(stem))
    assert isinstance(node, NodeExclusion)
    problem = node.problem
    assert (problem.code, bool(problem.what), bool(problem.limit), bool(problem.remedy)) == (
        UNUSABLE[stem],
        True,
        True,
        True,
    )


@pytest.mark.parametrize("stem", WITHOUT_GPUS)
def test_a_recorded_node_without_gpus_is_nothing(stem: str) -> None:
    assert read_node(a_dumped_node(stem)) is None


@pytest.mark.parametrize("stem", sorted({*USABLE, *UNUSABLE} - {"kwok-dgxa100-8x"}))
def test_a_recorded_node_whose_device_plugin_is_gone_is_never_usable(stem: str) -> None:
    node = a_dumped_node(stem)
    node["status"]["allocatable"] = {}
    assert code(node) in {"NoAllocatableGpus", UNUSABLE.get(stem)}


class TestProduct:
    def test_a_node_of_gke_is_known_by_its_accelerator_label(self) -> None:
        node = facts(a_gke_node())
        assert (node.gpu.id, node.product, node.gpus) == (
            "H100-SXM-80GB",
            "nvidia-h100-mega-80gb",
            8,
        )

    def test_an_amd_node_is_known_by_its_product_name(self) -> None:
        node = facts(an_mi300x_node())
        assert (node.gpu.id, node.gpu.memory_bytes, node.resource) == (
            "MI300X-192GB",
            192 * GIB,
            "amd.com/gpu",
        )

    def test_an_amd_node_with_old_labels_is_known_by_its_device_id(self) -> None:
        labels = {
            "beta.amd.com/gpu.device-id": "74a1",
            "beta.amd.com/gpu.device-id.74a1": "8",
            "beta.amd.com/gpu.vram": "192G",
        }
        node = facts(bare_node("old", labels=labels, allocatable={"amd.com/gpu": "8"}))
        assert (node.gpu.id, node.gpu.memory_bytes) == ("MI300X-192GB", 192 * GIB)

    def test_a_node_without_product_labels_is_known_by_its_instance_type(self) -> None:
        node = bare_node(
            "x",
            labels={"node.kubernetes.io/instance-type": "p4d.24xlarge"},
            allocatable={"nvidia.com/gpu": "8"},
        )
        assert facts(node).gpu.id == "A100-SXM4-40GB"

    def test_karpenter_labels_tell_a_name_and_the_memory_that_decides(self) -> None:
        labels = {
            "karpenter.k8s.aws/instance-gpu-name": "a100",
            "karpenter.k8s.aws/instance-gpu-memory": "81920",
        }
        assert (
            facts(bare_node("x", labels=labels, allocatable={"nvidia.com/gpu": "8"})).gpu.id
            == "A100-SXM4-80GB"
        )

    def test_what_the_user_states_wins(self) -> None:
        node = a_dumped_node("kwok-dgxa100-8x")
        node["metadata"]["annotations"]["shardwright.io/gpu-model"] = "A100-SXM4-40GB"
        assert facts(node).gpu.id == "A100-SXM4-40GB"
        assert (
            facts(a_node("x", labels={"shardwright.io/gpu-model": "H100-PCIe"})).gpu.id
            == "H100-PCIE-80GB"
        )

    def test_a_product_that_the_catalogue_lacks_is_reported_raw(self) -> None:
        node = read_node(a_node("x", product="NVIDIA-R100-SXM8"))
        assert isinstance(node, NodeExclusion)
        assert (node.problem.code, node.problem.what) == (
            "GpuUnknown",
            "nvidia.com/gpu.product 'NVIDIA-R100-SXM8'",
        )

    def test_an_unknown_product_is_not_replaced_by_the_instance_type(self) -> None:
        labels = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
        assert code(a_node("x", product="NVIDIA-R100", labels=labels)) == "GpuUnknown"

    def test_amd_gpus_of_two_models_are_not_planned(self) -> None:
        node = an_mi300x_node()
        node["metadata"]["labels"]["beta.amd.com/gpu.device-id.74a5"] = "2"
        assert code(node) == "MixedGpus"


class TestMemory:
    def test_the_label_wins_over_the_catalogue(self) -> None:
        assert (
            facts(a_node("x", labels={"nvidia.com/gpu.memory": "81079"})).gpu.memory_bytes
            == 81079 * MIB
        )

    def test_without_a_label_it_is_the_catalogues(self) -> None:
        assert facts(a_gke_node()).gpu.memory_bytes == 81559 * MIB

    def test_old_labels_in_bytes_are_understood(self) -> None:
        node = a_node(
            "x", product="Tesla-T4", gpus=1, labels={"nvidia.com/gpu.memory": "16106127360"}
        )
        assert facts(node).gpu.memory_bytes == 15 * GIB

    def test_what_the_user_states_wins(self) -> None:
        node = a_node("x", annotations={"shardwright.io/gpu-memory-mib": "80000"})
        assert facts(node).gpu.memory_bytes == 80000 * MIB

    @pytest.mark.parametrize("mib", ["200000", "9984", "1", "9999999"])
    def test_memory_that_the_product_cannot_have_is_not_believed(self, mib: str) -> None:
        assert code(a_node("x", labels={"nvidia.com/gpu.memory": mib})) == "LabelsImplausible"

    def test_boards_with_other_chips_are_believed_by_a_persons_word_which_the_message_names(
        self,
    ) -> None:
        labels = {"nvidia.com/gpu.memory": "49140"}
        found = read_node(a_node("x", product="NVIDIA-GeForce-RTX-4090", labels=labels))
        assert isinstance(found, NodeExclusion)
        assert found.problem.remedy == (
            "if its boards have that much, label it shardwright.io/gpu-memory-mib=49140; else "
            "correct the node's labels or its device plugin; the node is left out until then"
        )
        labels |= {"shardwright.io/gpu-memory-mib": "49140"}
        node = facts(a_node("x", product="NVIDIA-GeForce-RTX-4090", labels=labels))
        assert node.gpu.memory_bytes == 49140 * MIB

    @pytest.mark.parametrize("mib", ["9984", "9999999"])
    def test_a_persons_word_on_memory_far_from_the_products_is_not_believed(self, mib: str) -> None:
        node = a_node("x", annotations={"shardwright.io/gpu-memory-mib": mib})
        assert code(node) == "LabelsImplausible"


class TestCount:
    def test_unhealthy_gpus_are_left_out_with_a_warning(self) -> None:
        node = facts(a_node("x", allocatable={"nvidia.com/gpu": "7"}))
        assert (node.gpus, node.domain.gpus, node.warnings) == (7, 7, ("7 of 8 GPUs are healthy",))

    def test_a_missing_count_label_does_not_matter(self) -> None:
        node = a_node("x")
        del node["metadata"]["labels"]["nvidia.com/gpu.count"]
        assert facts(node).gpus == 8

    @pytest.mark.parametrize("count", ["0", 0])
    def test_no_healthy_gpu_is_said_with_how_many_there_are(self, count: object) -> None:
        node = a_node("x")
        node["status"]["allocatable"]["nvidia.com/gpu"] = count
        found = read_node(node)
        assert isinstance(found, NodeExclusion)
        assert (found.problem.code, found.problem.gap) == ("NoAllocatableGpus", "0 of 8 healthy")

    @pytest.mark.parametrize(
        "count",
        ["-8", "8.5", "eight", "0x8", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 5000, [], None, True, -1],
    )
    def test_a_count_that_is_no_count_is_never_usable(self, count: object) -> None:
        node = a_node("x")
        node["status"]["allocatable"]["nvidia.com/gpu"] = count
        assert code(node) in {"LabelsImplausible", "NoAllocatableGpus"}

    def test_more_gpus_than_any_node_has_are_not_believed(self) -> None:
        assert code(a_node("x", gpus=17)) == "LabelsImplausible"
        assert facts(a_node("x", gpus=16)).gpus == 16

    def test_a_card_that_no_plugin_offers_is_reported(self) -> None:
        node = bare_node("x", labels={"feature.node.kubernetes.io/pci-10de.present": "true"})
        assert code(node) == "NoAllocatableGpus"

    def test_a_node_where_a_device_plugin_ran_without_gpus_is_nothing(self) -> None:
        assert read_node(bare_node("x", allocatable={"nvidia.com/gpu": "0"})) is None


class TestUnsuitable:
    @pytest.mark.parametrize(
        ("labels", "expected"),
        [
            ({"nvidia.com/gpu.sharing-strategy": "time-slicing"}, "GpuShared"),
            ({"nvidia.com/gpu.sharing-strategy": "mps"}, "GpuShared"),
            ({"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}, "GpuShared"),
            ({"nvidia.com/gpu.replicas": "4"}, "GpuShared"),
            ({"nvidia.com/gpu.count": "2"}, "GpuShared"),
            ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"}, "GpuShared"),
            ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-INVALID"}, "MigEnabled"),
            ({"nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.replicas": "0"}, "MigEnabled"),
            ({"nvidia.com/mig.config.state": "pending"}, "MigReconfiguring"),
            ({"nvidia.com/mig.config.state": "rebooting"}, "MigReconfiguring"),
            ({"nvidia.com/mig.config.state": "failed"}, "MigReconfiguring"),
            ({"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"}, "DriverUpgrading"),
            ({"nvidia.com/gpu.workload.config": "vm-passthrough"}, "GpuPassthrough"),
            ({"nvidia.com/vgpu.present": "true"}, "VirtualGpu"),
            ({"nvidia.com/gpu.product": "NVIDIA-H100-80C"}, "VirtualGpu"),
        ],
    )
    def test_sliced_shared_virtual_and_changing_gpus_are_not_planned(
        self, labels: dict[str, str], expected: str
    ) -> None:
        assert code(a_node("x", labels=labels)) == expected

    @pytest.mark.parametrize(
        "labels",
        [
            {"nvidia.com/mig.config.state": "success", "nvidia.com/mig.config": "all-disabled"},
            {"nvidia.com/mig.strategy": "mixed"},  # mixed, but no GPU is cut
            {"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"},
            {"nvidia.com/gpu-driver-upgrade-state": ""},
            {"nvidia.com/gpu.deploy.driver": "pre-installed"},
            {"nvidia.com/gpu.workload.config": "container"},
            {"nvidia.com/vgpu.present": "false"},
        ],
    )
    def test_labels_of_healthy_nodes_keep_nothing_out(self, labels: dict[str, str]) -> None:
        assert facts(a_node("x", labels=labels)).gpus == 8

    def test_replicas_that_go_by_another_resource_are_shared_gpus(self) -> None:
        node = a_node("x", allocatable={"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "32"})
        assert code(node) == "GpuShared"

    def test_amd_compute_partitions_are_not_whole_gpus(self) -> None:
        node = an_mi300x_node(gpus=8)
        node["metadata"]["labels"]["amd.com/gpu.compute-memory-partition"] = "CPX_NPS4"
        assert code(node) == "MigEnabled"
        node["metadata"]["labels"]["amd.com/gpu.compute-memory-partition"] = "SPX_NPS1"
        assert facts(node).gpus == 8

    def test_amd_partitions_that_go_by_another_resource_are_not_whole_gpus(self) -> None:
        node = bare_node(
            "x", labels={"amd.com/gpu.device-id": "74a1"}, allocatable={"amd.com/cpx_nps4": "16"}
        )
        assert code(node) == "MigEnabled"

    def test_labels_of_the_other_vendor_are_not_believed(self) -> None:
        node = an_mi300x_node()
        node["metadata"]["labels"] |= {
            "amd.com/gpu.product-name": "NVIDIA-H200",
            "amd.com/gpu.vram": "140G",
        }
        assert code(node) == "LabelsImplausible"

    @pytest.mark.parametrize(
        "product",
        [
            "NVIDIA-H100-80GB-HBM3\n--flag",
            "NVIDIA-H100-" + "x" * 10_000,
            "H100 ☃",
            "$(rm)",
            "-H100",
        ],
    )
    def test_a_product_that_cannot_be_a_label_is_unknown_and_shown_on_one_short_line(
        self, product: str
    ) -> None:
        node = read_node(a_node("x", product=product))
        assert isinstance(node, NodeExclusion)
        assert node.problem.code == "GpuUnknown"
        assert node.problem.what.isascii()
        assert node.problem.what.isprintable()
        assert len(node.problem.what) < 130

    @pytest.mark.parametrize("name", ["", "UPPER", "a\nb", "x" * 300])
    def test_a_name_that_cannot_be_a_nodes_is_not_believed(self, name: str) -> None:
        node = read_node(a_node(name))
        assert isinstance(node, NodeExclusion)
        assert node.problem.code == "LabelsImplausible"
        assert node.node.isprintable()


class TestState:
    def test_a_ready_node_takes_pods(self) -> None:
        node = facts(a_node("x"))
        assert (node.ready, node.schedulable, node.deleting) == (True, True, False)

    def test_a_cordoned_node_is_a_fact_without_its_state_taint(self) -> None:
        node = facts(a_node("x", cordoned=True))
        assert (node.schedulable, node.taints) == (False, ())

    @pytest.mark.parametrize("status", ["False", "Unknown"])
    def test_a_node_that_is_not_ready_is_a_fact(self, status: str) -> None:
        node = a_node("x")
        node["status"]["conditions"] = [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": status},
        ]
        assert not facts(node).ready

    @pytest.mark.parametrize(
        "key", ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    )
    def test_a_node_with_the_taint_of_the_node_controller_is_not_ready(self, key: str) -> None:
        node = facts(a_node("x", taints=[{"key": key, "effect": "NoSchedule"}]))
        assert (node.ready, node.taints) == (False, ())

    def test_a_dump_without_conditions_counts_as_ready(self) -> None:
        node = a_node("x")
        del node["status"]["conditions"]
        assert facts(node).ready

    @pytest.mark.parametrize("key", ["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"])
    def test_a_node_that_its_autoscaler_takes_away_is_leaving(self, key: str) -> None:
        assert facts(a_node("x", taints=[{"key": key, "effect": "NoSchedule"}])).deleting

    def test_a_deleted_node_is_leaving(self) -> None:
        node = a_node("x")
        node["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        assert facts(node).deleting

    def test_taints_are_kept_in_a_fixed_order(self) -> None:
        taints = [
            {"key": "b", "effect": "NoSchedule"},
            {"key": "a", "value": "1", "effect": "NoExecute"},
        ]
        kept = (
            Taint(key="a", value="1", effect="NoExecute"),
            Taint(key="b", value="", effect="NoSchedule"),
        )
        assert (
            facts(a_node("x", taints=taints)).taints
            == facts(a_node("x", taints=taints[::-1])).taints
            == kept
        )

    def test_the_architecture_is_the_kubelets(self) -> None:
        assert facts(a_node("x")).architecture == "amd64"
        assert facts(a_node("x", labels={"kubernetes.io/arch": "arm64"})).architecture == "arm64"

    def test_a_node_that_does_not_say_has_the_architecture_of_the_board_of_its_gpus(self) -> None:
        node = a_node("x", "NVIDIA-GB200", gpus=4)
        said = facts(node).architecture
        del node["metadata"]["labels"]["kubernetes.io/arch"]
        assert (said, facts(node).architecture) == ("amd64", "arm64")

    @pytest.mark.parametrize(("size", "disk"), [("100Gi", 100 * GIB), ("much", None), (None, None)])
    def test_local_disk_is_what_pods_may_request_of_it(
        self, size: str | None, disk: int | None
    ) -> None:
        stated = {} if size is None else {"ephemeral-storage": size}
        assert facts(a_node("x", allocatable=stated)).disk_bytes == disk


class TestChange:
    @pytest.fixture
    def node(self) -> dict[str, Any]:
        return h100_nodes(1)[0]

    def test_a_heartbeat_changes_nothing(self, node: dict[str, Any]) -> None:
        before = facts(node)
        node["metadata"]["resourceVersion"] = "2"
        node["metadata"]["labels"] |= {
            "nvidia.com/gfd.timestamp": "1",
            "feature.node.kubernetes.io/cpu-cpuid.ADX": "true",
        }
        node["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
        node["status"]["images"] = [{"names": ["x"]}]
        after = facts(node)
        assert after == before
        assert hash(after) == hash(before)

    @pytest.mark.parametrize(
        "change",
        [
            {"labels": {"zone": "b"}},
            {"labels": {"nvidia.com/gpu.memory": "81000"}},
            {"cordoned": True},
            {"ready": False},
            {"allocatable": {"nvidia.com/gpu": "7"}},
            {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            {"network_gbps": 200},
        ],
    )
    def test_what_a_plan_may_depend_on_is_a_change(self, change: dict[str, Any]) -> None:
        assert facts(a_node("x", **change)) != facts(a_node("x"))

    def test_facts_keep_the_labels_that_a_selector_may_name(self) -> None:
        node = facts(an_l40s_node())
        assert node.labels["kubernetes.io/hostname"] == "l40s-0"
        assert replace(node, name="other").labels is node.labels
