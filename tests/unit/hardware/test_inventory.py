"""From facts to pools: what is free, what is kept out, what is alike."""

from typing import Any

import pytest

from shardwright.hardware.inventory import Inventory, KnownPods
from shardwright.hardware.nodes import NodeFacts, Reservation, build_inventory, read_node
from tests.support.builders_nodes import (
    RACK_UUID,
    a_gb200_rack,
    a_gke_node,
    a_node,
    a_pod_holding,
    an_l40s_node,
    an_mi300x_node,
    h100_nodes,
    inventory_of,
)

LLAMA = ("default", "llama")
QWEN = ("default", "qwen")


def free(inventory: Inventory) -> dict[str, int]:
    return {node.name: node.free for pool in inventory.pools for node in pool.nodes}


def reasons(inventory: Inventory) -> dict[str, str]:
    return {exclusion.node: exclusion.problem.code for exclusion in inventory.excluded}


class TestLedger:
    def test_without_pods_everything_allocatable_is_free(self) -> None:
        assert free(inventory_of(*h100_nodes(2))) == {"h100-00": 8, "h100-01": 8}

    def test_foreign_pods_take_what_they_hold(self) -> None:
        pods = [
            a_pod_holding("h100-00", 3),
            a_pod_holding("h100-00", 1),
            a_pod_holding("elsewhere", 8),
        ]
        assert free(inventory_of(*h100_nodes(2), pods=pods)) == {"h100-00": 4, "h100-01": 8}

    def test_pods_of_another_model_take_what_they_hold(self) -> None:
        pods = [a_pod_holding("h100-00", 8, model="qwen")]
        assert free(inventory_of(*h100_nodes(1), pods=pods, own=LLAMA)) == {"h100-00": 0}

    def test_a_model_does_not_stand_in_its_own_way(self) -> None:
        pods = [a_pod_holding("h100-00", 8, model="llama")]
        plan = [Reservation(owner=LLAMA, node="h100-00", gpus=8)]
        assert free(inventory_of(*h100_nodes(1), pods=pods, reservations=plan, own=LLAMA)) == {
            "h100-00": 8
        }

    def test_a_models_own_plan_that_is_not_bound_keeps_nothing_from_it(self) -> None:
        plan = [Reservation(owner=LLAMA, node="h100-00", gpus=8)]
        assert free(inventory_of(*h100_nodes(1), reservations=plan, own=LLAMA)) == {"h100-00": 8}

    def test_the_same_name_in_another_namespace_is_another_model(self) -> None:
        pods = [a_pod_holding("h100-00", 8, model="llama", namespace="other")]
        assert free(inventory_of(*h100_nodes(1), pods=pods, own=LLAMA)) == {"h100-00": 0}

    def test_more_held_than_healthy_is_nothing_free(self) -> None:
        node = a_node("x", allocatable={"nvidia.com/gpu": "6"})
        assert free(inventory_of(node, pods=[a_pod_holding("x", 8)])) == {"x": 0}

    def test_a_plan_that_is_not_bound_keeps_its_gpus(self) -> None:
        plan = [Reservation(owner=QWEN, node="h100-00", gpus=8)]
        assert free(inventory_of(*h100_nodes(2), reservations=plan, own=LLAMA)) == {
            "h100-00": 0,
            "h100-01": 8,
        }

    def test_a_plan_that_is_bound_is_not_counted_twice(self) -> None:
        plan = [Reservation(owner=QWEN, node="h100-00", gpus=4)]
        pods = [a_pod_holding("h100-00", 4, model="qwen")]
        assert free(inventory_of(*h100_nodes(1), pods=pods, reservations=plan)) == {"h100-00": 4}

    def test_a_plan_that_is_bound_in_part_keeps_the_rest(self) -> None:
        plan = [
            Reservation(owner=QWEN, node="h100-00", gpus=2, group="0"),
            Reservation(owner=QWEN, node="h100-00", gpus=2, group="1"),
        ]
        pods = [a_pod_holding("h100-00", 2, model="qwen", group="0")]
        assert free(inventory_of(*h100_nodes(1), pods=pods, reservations=plan)) == {"h100-00": 4}

    def test_a_pod_of_one_group_does_not_bind_what_is_kept_for_another(self) -> None:
        plan = [
            Reservation(owner=QWEN, node="h100-00", gpus=2, group="qwen-0"),
            Reservation(owner=QWEN, node="h100-00", gpus=2, group="qwen-1"),
        ]
        pods = [a_pod_holding("h100-00", 4, model="qwen", group="qwen-0")]
        assert free(inventory_of(*h100_nodes(1), pods=pods, reservations=plan)) == {"h100-00": 2}

    def test_pods_of_others_do_not_bind_a_plan(self) -> None:
        plan = [Reservation(owner=QWEN, node="h100-00", gpus=4)]
        pods = [a_pod_holding("h100-00", 4, model="llama")]
        assert free(inventory_of(*h100_nodes(1), pods=pods, reservations=plan)) == {"h100-00": 0}

    def test_a_plan_that_holds_more_pods_than_planned_gives_nothing_back(self) -> None:
        plan = [Reservation(owner=QWEN, node="h100-00", gpus=2)]
        pods = [a_pod_holding("h100-00", 4, model="qwen")]
        assert free(inventory_of(*h100_nodes(1), pods=pods, reservations=plan)) == {"h100-00": 4}

    def test_a_plan_with_negative_gpus_gives_nothing(self) -> None:
        plan = [Reservation(owner=QWEN, node="h100-00", gpus=-8)]
        assert free(
            inventory_of(*h100_nodes(1), pods=[a_pod_holding("h100-00", 4)], reservations=plan)
        ) == {"h100-00": 4}

    def test_without_the_right_to_list_pods_free_capacity_is_unknown(self) -> None:
        facts = [found for node in h100_nodes(1) if isinstance(found := read_node(node), NodeFacts)]
        inventory = build_inventory(facts, None)
        assert (free(inventory), inventory.known_pods) == ({"h100-00": 8}, KnownPods.NONE)
        assert build_inventory(facts, []).known_pods is KnownPods.ALL


class TestAdmission:
    def test_deleted_cordoned_and_unready_nodes_are_kept_out(self) -> None:
        leaving = a_node("leaving")
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        inventory = inventory_of(
            leaving, a_node("down", ready=False), a_node("cordoned", cordoned=True), a_node("up")
        )
        assert reasons(inventory) == {
            "cordoned": "Cordoned",
            "down": "NotReady",
            "leaving": "NodeLeaving",
        }
        assert [exclusion.node for exclusion in inventory.excluded] == [
            "cordoned",
            "down",
            "leaving",
        ]
        assert free(inventory) == {"up": 8}

    @pytest.mark.parametrize("key", ["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"])
    def test_a_node_that_its_autoscaler_takes_away_is_said_to_leave_not_to_be_tainted(
        self, key: str
    ) -> None:
        assert reasons(
            inventory_of(a_node("x", taints=[{"key": key, "effect": "NoSchedule"}]))
        ) == {"x": "NodeLeaving"}

    def test_what_cannot_be_read_stays_listed(self) -> None:
        assert reasons(inventory_of(a_node("x", product="NVIDIA-R100"))) == {"x": "GpuUnknown"}

    def test_a_selector_keeps_the_others_out(self) -> None:
        nodes = (a_node("a", labels={"zone": "a"}), a_node("b", labels={"zone": "b"}), a_node("c"))
        inventory = inventory_of(*nodes, selector={"zone": "a"})
        assert (free(inventory), reasons(inventory)) == (
            {"a": 8},
            {"b": "SelectorMismatch", "c": "SelectorMismatch"},
        )
        assert [exclusion.problem.sentence() for exclusion in inventory.excluded] == [
            (
                "spec.placement.nodeSelector: node label zone 'b' must be 'a'; label the node or "
                "change the selector"
            ),
            (
                "spec.placement.nodeSelector: node label zone (not set) must be 'a'; label the "
                "node "
                "or change the selector"
            ),
        ]

    @pytest.mark.parametrize(
        "taint",
        [
            {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
            {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
            {"key": "amd.com/gpu", "value": "true", "effect": "NoSchedule"},
            {"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"},
            {"key": "sku", "value": "gpu", "effect": "NoSchedule"},
            {"key": "anything", "effect": "PreferNoSchedule"},
        ],
    )
    def test_taints_that_only_mark_gpus_keep_no_model_out(self, taint: dict[str, str]) -> None:
        assert free(inventory_of(a_node("x", taints=[taint]))) == {"x": 8}

    @pytest.mark.parametrize(
        "taint",
        [
            {"key": "reserved", "value": "research", "effect": "NoSchedule"},
            {"key": "reserved", "value": "research", "effect": "NoExecute"},
            {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"},
            {"key": "nvidia.com/gpu", "effect": "NoExecute"},
            {"key": "sku", "value": "spot", "effect": "NoSchedule"},
        ],
    )
    def test_any_other_hard_taint_keeps_the_node_out(self, taint: dict[str, str]) -> None:
        assert reasons(inventory_of(a_node("x", taints=[taint]))) == {"x": "TaintNotTolerated"}

    @pytest.mark.parametrize(
        ("toleration", "tolerated"),
        [
            (
                {
                    "key": "reserved",
                    "operator": "Equal",
                    "value": "research",
                    "effect": "NoSchedule",
                },
                True,
            ),
            ({"key": "reserved", "value": "research"}, True),
            ({"key": "reserved", "operator": "Exists"}, True),
            ({"operator": "Exists"}, True),
            ({"operator": "Exists", "effect": "NoSchedule"}, True),
            ({"key": "reserved", "value": "other"}, False),
            ({"key": "reserved"}, False),
            ({"key": "reserved", "operator": "Exists", "effect": "NoExecute"}, False),
            ({"key": "other", "operator": "Exists"}, False),
            ({"key": "reserved", "operator": "Lt", "value": "research"}, False),
            ({}, False),
        ],
    )
    def test_tolerations_match_as_in_kubernetes(
        self,
        toleration: dict[str, str],
        tolerated: bool,  # noqa: FBT001
    ) -> None:
        node = a_node(
            "x", taints=[{"key": "reserved", "value": "research", "effect": "NoSchedule"}]
        )
        assert free(inventory_of(node, tolerations=[toleration])) == ({"x": 8} if tolerated else {})

    def test_every_hard_taint_must_be_tolerated(self) -> None:
        taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
        inventory = inventory_of(
            a_node("x", taints=taints), tolerations=[{"key": "a", "operator": "Exists"}]
        )
        assert inventory.excluded[0].problem.what == "taint b:NoSchedule"

    def test_gpus_under_repair_are_never_tolerated(self) -> None:
        node = an_mi300x_node("x")
        node["spec"]["taints"] = [{"key": "amd-gpu-unhealthy", "effect": "NoSchedule"}]
        assert reasons(inventory_of(node, tolerations=[{"operator": "Exists"}])) == {
            "x": "GpuUnhealthy"
        }


class TestPools:
    def test_alike_nodes_are_one_pool(self) -> None:
        (pool,) = inventory_of(*h100_nodes(3)).pools
        assert (pool.name, pool.product, pool.gpus_per_node, pool.domain_gpus) == (
            "h100-sxm-80gb-8x-400g",
            "NVIDIA-H100-80GB-HBM3",
            8,
            8,
        )
        assert (pool.resource, pool.architecture, pool.network.name) == (
            "nvidia.com/gpu",
            "amd64",
            "400 Gb/s RDMA",
        )
        assert [node.name for node in pool.nodes] == ["h100-00", "h100-01", "h100-02"]
        assert {node.domain for node in pool.nodes} == {"h100-00", "h100-01", "h100-02"}
        assert not pool.crosses_nodes

    def test_what_the_planner_looks_at_divides_pools(self) -> None:
        nodes = (
            a_node("a"),
            a_node("b", network_gbps=12.5),
            a_node("c", allocatable={"nvidia.com/gpu": "7"}),
            a_node("d", product="NVIDIA-H200"),
            a_gke_node("e"),
            an_l40s_node("f"),
            an_mi300x_node("g"),
        )
        names = {node.name: pool.name for pool in inventory_of(*nodes).pools for node in pool.nodes}
        assert len(set(names.values())) == 7
        assert names["b"].startswith(
            "h100-sxm-80gb-8x-12.5g-"
        )  # shares its name with e: same GPU, another product label
        assert names["e"].startswith("h100-sxm-80gb-8x-12.5g-")
        assert {key: names[key] for key in "acdfg"} == {
            "a": "h100-sxm-80gb-8x-400g",
            "c": "h100-sxm-80gb-7x-400g",
            "d": "h200-sxm-141gb-8x-400g",
            "f": "l40s-48gb-8x-50g",
            "g": "mi300x-192gb-8x-400g",
        }

    def test_labels_and_taints_that_do_not_matter_divide_nothing(self) -> None:
        taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
        nodes = (
            a_node("a", labels={"zone": "a"}),
            a_node("b", labels={"zone": "b"}),
            a_node("c", taints=[taint]),
        )
        assert len(inventory_of(*nodes).pools) == 1

    def test_the_same_network_known_from_elsewhere_divides_nothing(self) -> None:
        labels, efa = (
            {"node.kubernetes.io/instance-type": "p5.48xlarge"},
            {"vpc.amazonaws.com/efa": "32"},
        )
        nodes = (
            a_node("stated", network_gbps=400, allocatable=efa),
            a_node("listed", network_gbps=None, labels=labels, allocatable=efa),
        )
        assert len(inventory_of(*nodes).pools) == 1

    def test_another_pool_does_not_rename_the_first(self) -> None:
        before = inventory_of(*h100_nodes(2)).pools[0].name
        after = inventory_of(
            *h100_nodes(2), a_node("x", network_gbps=100), an_l40s_node(), *a_gb200_rack()
        )
        assert before in [pool.name for pool in after.pools]

    def test_memory_that_differs_by_a_driver_version_is_alike_and_the_smallest_counts(self) -> None:
        nodes = (
            a_node("a", labels={"nvidia.com/gpu.memory": "81559"}),
            a_node("b", labels={"nvidia.com/gpu.memory": "81079"}),
        )
        (pool,) = inventory_of(*nodes).pools
        assert pool.gpu.memory_bytes == 81079 * 2**20

    def test_memory_that_differs_by_a_variant_divides_the_pool(self) -> None:
        nodes = (a_node("a"), a_node("b", labels={"nvidia.com/gpu.memory": "97871"}))
        pools = inventory_of(*nodes).pools
        assert sorted(pool.gpu.memory_bytes // 2**20 for pool in pools) == [81559, 97871]
        assert len({pool.name for pool in pools}) == 2

    def test_a_warning_is_said_once_with_how_many_nodes_it_concerns(self) -> None:
        sick = a_node("a", gpus=8, allocatable={"nvidia.com/gpu": "7"})
        healthy = a_node(
            "b", gpus=7, labels={"nvidia.com/gpu.count": "7", "nvidia.com/gpu.machine": "PowerEdge"}
        )
        (pool,) = inventory_of(sick, healthy).pools
        assert pool.warnings == ("7 of 8 GPUs are healthy (1 of 2 nodes)",)


class TestRacks:
    def test_a_whole_rack_joins_72_gpus(self) -> None:
        (pool,) = inventory_of(*a_gb200_rack()).pools
        assert (pool.gpus_per_node, pool.domain_gpus, pool.crosses_nodes, pool.architecture) == (
            4,
            72,
            True,
            "arm64",
        )

    def test_the_largest_clique_counts(self) -> None:
        trays = (
            *a_gb200_rack(trays=10, clique=1, prefix="a"),
            *a_gb200_rack(trays=8, clique=2, prefix="b"),
        )
        (pool,) = inventory_of(*trays).pools
        assert (len(pool.nodes), pool.domain_gpus, len({node.domain for node in pool.nodes})) == (
            18,
            40,
            2,
        )

    def test_trays_that_are_kept_out_do_not_join(self) -> None:
        rack = a_gb200_rack()
        rack[0]["spec"]["unschedulable"] = True
        rack[1]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        (pool,) = inventory_of(*rack).pools
        assert (len(pool.nodes), pool.domain_gpus) == (16, 64)

    def test_trays_that_others_hold_still_belong_to_the_domain(self) -> None:
        (pool,) = inventory_of(*a_gb200_rack(), pods=[a_pod_holding("gb200-00", 4)]).pools
        assert (pool.domain_gpus, sum(node.free for node in pool.nodes)) == (72, 68)

    def test_what_a_full_rack_has_no_room_for_is_left_out_of_it_and_takes_nothing_from_it(
        self,
    ) -> None:
        trays = (*a_gb200_rack(prefix="a"), *a_gb200_rack(prefix="b"))
        trays_of_b, rack = sorted(inventory_of(*trays).pools, key=lambda pool: pool.domain_gpus)
        assert (
            {node.name[0] for node in rack.nodes},
            len(rack.nodes),
            rack.domain_gpus,
            rack.warnings,
        ) == ({"a"}, 18, 72, ())
        assert (len(trays_of_b.nodes), trays_of_b.domain_gpus, trays_of_b.nodes[0].domain) == (
            18,
            4,
            "b-00",
        )
        assert trays_of_b.warnings == (
            (
                f"NVLink domain {RACK_UUID}.32766 claims 144 GPUs, 72 at most are possible: the "
                "last "
                "to join are left out"
            ),
        )

    def test_a_node_that_copies_the_clique_of_a_full_rack_is_left_out_whatever_it_is_called(
        self,
    ) -> None:
        hour = {
            node["metadata"]["name"]: f"2026-01-02T{index:02}:00:00Z"
            for index, node in enumerate(a_gb200_rack())
        }
        rack = [joined(node, hour[node["metadata"]["name"]]) for node in a_gb200_rack()]
        evil = joined(a_gb200_rack(trays=1, prefix="aaa-evil")[0], "2026-01-03T00:00:00Z")

        for nodes in ([*rack, evil], [evil, *rack]):
            alone, whole = sorted(inventory_of(*nodes).pools, key=lambda pool: pool.domain_gpus)
            assert ([node.name for node in alone.nodes], alone.domain_gpus) == (["aaa-evil-00"], 4)
            assert ([node.name for node in whole.nodes], whole.domain_gpus) == (sorted(hour), 72)

    def test_trays_without_a_clique_are_a_pool_of_their_own(self) -> None:
        alone: dict[str, Any] = a_gb200_rack(trays=1, prefix="alone")[0]
        del alone["metadata"]["labels"]["nvidia.com/gpu.clique"]
        pools = inventory_of(*a_gb200_rack(trays=2), alone).pools
        assert sorted((len(pool.nodes), pool.domain_gpus) for pool in pools) == [(1, 4), (2, 8)]


def joined(node: dict[str, Any], when: str) -> dict[str, Any]:
    return {**node, "metadata": {**node["metadata"], "creationTimestamp": when}}


@pytest.mark.parametrize("key", ["gpu-hour-price", "network-gbps-per-gpu"])
def test_a_statement_that_is_no_number_is_reported(key: str) -> None:
    (pool,) = inventory_of(a_node("x", annotations={f"shardwright.io/{key}": "$2"})).pools

    assert pool.warnings == (
        f"shardwright.io/{key} '$2' is not a number above 0 and counts as not set",
    )


def test_nodes_of_another_price_are_another_pool() -> None:
    spot = a_node("spot", labels={"shardwright.io/gpu-hour-price": "1.25"})
    stated = a_node("stated", annotations={"shardwright.io/gpu-hour-price": "2.50"})

    pools = inventory_of(
        spot,
        stated,
        a_node("unknown"),
        a_node("free", labels={"shardwright.io/gpu-hour-price": "0"}),
    ).pools

    assert {node.name: pool.gpu_hour_price for pool in pools for node in pool.nodes} == {
        "spot": 1.25,
        "stated": 2.5,
        "unknown": None,
        "free": None,
    }
    assert len({pool.name for pool in pools}) == 3


class TestComputeDomains:
    def test_trays_with_a_clique_label_join_pods_and_others_do_not(self) -> None:
        stated = {"shardwright.io/nvlink-domain": "rack-1"}
        named = [
            a_node(f"named-{tray}", product="NVIDIA-GB200", gpus=4, labels=stated)
            for tray in range(2)
        ]
        joined = {
            pool.nodes[0].name: (pool.joins_pods, pool.domain_gpus)
            for pool in inventory_of(*a_gb200_rack(trays=2), *named, a_node("h100")).pools
        }
        assert joined == {"gb200-00": (True, 8), "named-0": (False, 4), "h100": (False, 8)}

    def test_without_compute_domains_every_domain_ends_at_its_node(self) -> None:
        (pool,) = inventory_of(*a_gb200_rack(trays=2), compute_domains=False).pools
        assert (pool.domain_gpus, pool.crosses_nodes, pool.joins_pods) == (4, False, False)
        assert [node.domain for node in pool.nodes] == ["gb200-00", "gb200-01"]
        assert pool.warnings == ()


class TestFamilies:
    def test_nodes_of_several_sizes_and_networks_are_one_pool_inside_nodes(self) -> None:
        less = {"nvidia.com/gpu.memory": "81079"}
        inventory = inventory_of(
            a_node("a"),
            a_node("b", gpus=4, labels=less),
            a_node("c", gpus=1, network_gbps=100),
            a_node("d", network_gbps=100),
        )

        (joined,) = inventory.joined

        assert len(inventory.pools) == 4
        assert (
            joined.name,
            joined.gpus_per_node,
            joined.domain_gpus,
            joined.only_inside_nodes,
        ) == ("h100-sxm-80gb", 8, 8, True)
        assert {node.name: node.gpus for node in joined.nodes} == {"a": 8, "b": 4, "c": 1, "d": 8}
        assert joined.gpu.memory_bytes == 81079 * 2**20
        assert inventory.named("h100-sxm-80gb") == joined
        assert inventory.named("h100-sxm-80gb-4x-400g") in inventory.pools

    @pytest.mark.parametrize(
        "other",
        [
            a_node("b", gpus=4, product="NVIDIA-H200"),
            a_gke_node("b", gpus=4),
            a_node("b", gpus=4, labels={"nvidia.com/gpu.memory": "97871"}),
            a_node("b", gpus=4, labels={"kubernetes.io/arch": "arm64"}),
            a_node("b", gpus=4, labels={"shardwright.io/gpu-hour-price": "2.5"}),
            a_node("b", gpus=4, labels={"shardwright.io/nvlink-domain": "none"}),
        ],
        ids=["product", "label", "memory", "architecture", "price", "link"],
    )
    def test_what_is_unlike_inside_a_node_is_not_joined(self, other: dict[str, Any]) -> None:
        inventory = inventory_of(a_node("a"), other)

        assert (len(inventory.pools), inventory.joined) == (2, ())

    def test_a_single_card_is_like_one_of_several_that_nothing_joins(self) -> None:
        (joined,) = inventory_of(an_l40s_node("a"), an_l40s_node("b", gpus=1)).joined

        assert (joined.name, joined.domain_gpus, len(joined.nodes)) == ("l40s-48gb", 1, 2)

    def test_families_of_one_gpu_have_names_of_their_own(self) -> None:
        priced = {"shardwright.io/gpu-hour-price": "2.5"}
        sizes = (8, 4)
        inventory = inventory_of(
            *(a_node(f"a{gpus}", gpus=gpus) for gpus in sizes),
            *(a_node(f"b{gpus}", gpus=gpus, labels=priced) for gpus in sizes),
        )

        names = [pool.name for pool in inventory.joined]

        assert len(set(names)) == 2
        assert all(name.startswith("h100-sxm-80gb-") for name in names)

    def test_a_warning_of_some_nodes_names_their_pool(self) -> None:
        sick = a_node("b", allocatable={"nvidia.com/gpu": "7"})

        (joined,) = inventory_of(a_node("a"), sick).joined

        assert joined.warnings == ("h100-sxm-80gb-7x-400g: 7 of 8 GPUs are healthy",)

    def test_what_is_taken_and_which_nodes_are_left_count_in_the_joined_pool(self) -> None:
        inventory = inventory_of(a_node("a"), a_node("b", gpus=4), a_node("c", gpus=2))

        (joined,) = inventory.without({"b": 3}).of_nodes({"a", "b"}).joined

        assert {node.name: node.free for node in joined.nodes} == {"a": 8, "b": 1}
        assert inventory.of_nodes({"a"}).joined == ()

    def test_the_leanest_node_has_the_least_memory_beside_a_gpu(self) -> None:
        four = a_node("b", gpus=4, allocatable={"memory": "1200Gi"})

        (joined,) = inventory_of(a_node("a"), four).joined

        assert joined.leanest is not None
        assert joined.leanest.name == "a"  # 2,000 GiB of 8 are less than 1,200 of 4
