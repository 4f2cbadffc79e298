"""Local disk of the nodes: which pods it holds, and what a plan says where it holds none."""

from typing import Any

from shardwright.pipeline.assembly import plan_serving
from shardwright.pipeline.plan_cache import PlanCache
from shardwright.planning.report import Exclusion, NoPlan, Plan, Report
from shardwright.units import GIB
from tests.support.builders_nodes import a_node
from tests.support.builders_subject import LARGE, a_subject, plan_of, stock

ALONE: dict[str, Any] = {"parallelism": {"tensor": 1, "pipeline": 1}}
NEED = 17 * GIB  # 15.0 GiB of Llama 8B in the least files, and 2 for all else, in whole GiB


def report(disks: dict[str, str | None], taken: tuple[str, ...] = (), **spec: Any) -> Report:
    """Return what comes of a model on nodes of 8 H100 with so much local disk."""
    subject = a_subject(**spec)
    nodes = [
        a_node(name, allocatable={} if size is None else {"ephemeral-storage": size})
        for name, size in disks.items()
    ]
    return plan_serving(subject, stock(subject, nodes).without_nodes(set(taken)))


def test_weights_that_no_node_has_the_disk_for_are_refused_with_the_way_out() -> None:
    found = report({"a": "100Gi", "b": "90Gi"}, (), **LARGE).outcome

    assert isinstance(found, NoPlan)
    assert not found.heals_by_itself
    assert found.problem.sentence() == (
        "spec.model.weights: 758.0 GiB of local disk for what each pod downloads must fit the "
        "100.0 GiB that a node of h100-sxm-80gb-8x-400g has, 658.0 GiB short; closest is PP16 on "
        "h100-sxm-80gb-8x-400g; keep downloads on a claim (spec.model.weights.cache), or "
        "take weights from one (pvc://)"
    )


def test_a_model_goes_to_the_nodes_with_the_disk_and_the_others_are_counted() -> None:
    found = report({"a-small": "10Gi", "b-small": "12Gi", "large": "1Ti"}, **ALONE)

    assert plan_of(found).groups == (("large",),)
    assert [item for item in found.excluded if item.code == "NodeDiskTooSmall"] == [
        Exclusion(
            code="NodeDiskTooSmall",
            count=2,
            example="node a-small: 10.0 GiB of local disk must be at least the 17.0 GiB that a pod "
            "downloads, 7.0 GiB short; keep downloads on a claim (spec.model.weights.cache), or "
            "take weights from one (pvc://)",
            nearest_miss="",
        )
    ]


def test_every_group_on_a_node_needs_a_disk_of_its_own() -> None:
    two, three = (
        plan_of(
            report(dict.fromkeys(nodes, "40Gi"), **ALONE, replicas=3, rollout={"minGroups": 3})
        ).groups
        if len(nodes) > 1
        else report(
            dict.fromkeys(nodes, "40Gi"), **ALONE, replicas=3, rollout={"minGroups": 3}
        ).outcome
        for nodes in ("ab", "a")
    )

    assert two == (("a",), ("a",), ("b",))
    assert isinstance(three, NoPlan)
    assert three.problem.code == "DiskTooSmall"
    assert three.problem.gap == "11.0 GiB short for 3"


def test_a_node_with_the_disk_that_is_busy_is_waited_for() -> None:
    found = report({"a-small": "10Gi", "large": "1Ti"}, ("large",), **ALONE).outcome

    assert isinstance(found, NoPlan)
    assert (found.problem.code, found.heals_by_itself) == ("InsufficientCapacity", True)


def test_pods_request_what_they_download_where_all_nodes_state_their_disk() -> None:
    known, unknown = (
        plan_of(report({"a": "1Ti", "b": other}, **ALONE)).disk_bytes for other in ("1Ti", None)
    )

    assert (known, unknown) == (NEED, 0)


def test_what_is_on_a_claim_needs_no_disk() -> None:
    model = {"id": "meta-llama/Llama-3.1-8B-Instruct"}
    for weights in ({"cache": {"storage": "100Gi"}}, {"uri": "pvc://weights/llama"}):
        found = report({"a": "10Gi"}, **ALONE, model=model | {"weights": weights})

        assert plan_of(found).disk_bytes == 0


def test_disk_that_is_stated_for_pods_is_what_nodes_must_have() -> None:
    found = [
        report({"a": "100Gi"}, **ALONE, pod={"resources": {"ephemeralStorage": size}}).outcome
        for size in ("100Gi", "101Gi", "0")
    ]

    assert [isinstance(one, Plan) for one in found] == [True, False, True]


def test_the_same_stock_with_other_disks_free_is_another_question() -> None:
    subject, cache = a_subject(**ALONE), PlanCache()
    nodes = [a_node("a", allocatable={"ephemeral-storage": "10Gi"}), a_node("b")]
    only_small, only_large = (stock(subject, nodes).without_nodes({name}) for name in ("b", "a"))
    cache.keep(subject, only_small, plan_serving(subject, only_small))

    assert cache.recall(subject, only_small) is not None
    assert cache.recall(subject, only_large) is None
