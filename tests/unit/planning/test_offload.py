"""K/V in the memory of the nodes: how much a pod can have, how engines divide it, and what a plan
says of it.
"""

from typing import Any

import pytest

from shardwright.pipeline.assembly import plan_serving
from shardwright.pipeline.documents import plan_document
from shardwright.pipeline.extra_groups import extra_groups
from shardwright.pipeline.plan_cache import PlanCache
from shardwright.planning.node_storage import HostCache
from shardwright.planning.report import Exclusion, NoPlan, Plan, Report
from shardwright.units import GIB
from tests.support.builders_nodes import a_node
from tests.support.builders_subject import LARGE, a_subject, plan_of, stock

DEEPSEEK = {"model": {"id": "deepseek-ai/DeepSeek-V3"}}


def outcome(host: str = "2000Gi", offload: Any = None, **spec: Any) -> Plan | NoPlan:
    """Return what comes of a model on four nodes of 8 H100 with so much memory for pods."""
    engine = {"engine": {"kvOffload": {} if offload is None else {"hostMemory": offload}}}
    subject = a_subject(**spec, **engine)
    nodes = [a_node(f"h100-{index}", allocatable={"memory": host}) for index in range(4)]
    return plan_serving(subject, stock(subject, nodes)).outcome


def kept(spec: dict[str, Any], host: str = "2000Gi", offload: Any = None) -> HostCache | None:
    found = outcome(host, offload, **spec)
    assert isinstance(found, Plan), found
    return found.host_cache


def one_gpu(**more: Any) -> dict[str, Any]:
    return {"parallelism": {"tensor": 1, "pipeline": 1}, **more}


def test_a_pod_keeps_what_its_share_of_the_node_leaves_beside_the_engine() -> None:
    # 2,000 GiB less a tenth, an eighth of it for one GPU of eight, less 9.5 GiB of the engine
    assert kept(one_gpu()) == HostCache(
        pod_bytes=215 * GIB,
        engine_bytes=215 * GIB,
        region_bytes=215 * GIB,
        tokens=215 * GIB // (128 * 1024),
    )


def test_the_node_with_the_least_memory_says_how_much_it_is() -> None:
    subject = a_subject(**one_gpu(replicas=2), engine={"kvOffload": {}})
    nodes = [
        a_node("a", allocatable={"memory": "2000Gi"}),
        a_node("b", allocatable={"memory": "1000Gi"}),
    ]

    found = plan_of(plan_serving(subject, stock(subject, nodes))).host_cache

    assert found is not None
    assert found.pod_bytes == 103 * GIB


def test_an_engine_over_nodes_is_told_what_all_of_them_keep_and_no_more_than_one_has_room_for() -> (
    None
):
    found = kept(LARGE)

    # 1,800 GiB less 41 of the engine, which the files of both nodes must have room for
    assert found is not None
    assert (found.pod_bytes, found.engine_bytes, found.region_bytes) == (
        879 * GIB,
        1758 * GIB,
        1758 * GIB,
    )


def test_ranks_that_hold_the_same_keep_one_copy() -> None:
    latent = DEEPSEEK | {"parallelism": {"tensor": 16, "pipeline": 1}}
    found = kept(latent, offload="64Gi")

    assert found is not None
    assert (found.pod_bytes, found.engine_bytes) == (64 * GIB, 64 * GIB)
    assert found.tokens == 64 * GIB // (70_272)


def test_attention_replicas_are_engines_of_their_own() -> None:
    found = kept(
        DEEPSEEK | {"parallelism": {"tensor": 1, "dataParallelAttention": 16}}, offload="68Gi"
    )

    assert found is not None
    assert (found.pod_bytes, found.engine_bytes, found.region_bytes) == (
        64 * GIB,
        8 * GIB,
        64 * GIB,
    )
    assert found.tokens == 16 * 8 * GIB // 70_272


def test_less_than_a_gib_for_each_engine_of_a_pod_is_refused() -> None:
    spec: dict[str, Any] = DEEPSEEK | {
        "parallelism": {"tensor": 1, "pipeline": 1, "dataParallelAttention": 16}
    }

    found = outcome(offload="4Gi", **spec)

    assert isinstance(found, NoPlan)
    assert found.problem.sentence() == (
        "spec.engine.kvOffload.hostMemory: 4.0 GiB of memory per pod for K/V must be at least 8 "
        "Gi with 8 engines in a pod: "
        "each is told whole GiB, 4.0 GiB short; closest is DP16·EP16 on "
        "h100-sxm-80gb-8x-400g; "
        "raise it, or say Auto"
    )
    assert isinstance(outcome(offload="8Gi", **spec), Plan)


def test_memory_that_is_stated_for_the_pod_is_left_to_it() -> None:
    # the share of one GPU, 225 GiB, less 100.5 that are stated
    found = kept(one_gpu(pod={"resources": {"memory": "100.5Gi"}}))
    refused = outcome(offload="125Gi", **one_gpu(pod={"resources": {"memory": "100.5Gi"}}))

    assert found is not None
    assert found.pod_bytes == 124 * GIB
    assert isinstance(refused, NoPlan)
    assert refused.problem.code == "HostMemoryTooSmall"
    assert kept(one_gpu(pod={"resources": {"memory": "1Gi"}})) == kept(one_gpu())


def test_a_node_without_free_gpus_says_nothing_of_how_much_it_is() -> None:
    subject = a_subject(**one_gpu(), engine={"kvOffload": {}})
    nodes = [
        a_node("a", allocatable={"memory": "2000Gi"}),
        a_node("b", allocatable={"memory": "1000Gi"}),
    ]

    found = plan_of(plan_serving(subject, stock(subject, nodes).without_nodes({"b"}))).host_cache

    assert found is not None
    assert found.pod_bytes == 215 * GIB


@pytest.mark.parametrize("offload", ["Auto", "215Gi"])
def test_a_further_group_goes_where_there_is_memory_for_what_the_plan_keeps(offload: str) -> None:
    subject = a_subject(**one_gpu(), engine={"kvOffload": {"hostMemory": offload}})
    large, odd = (
        a_node("large", allocatable={"memory": "2000Gi"}),
        a_node("a-odd", allocatable={"memory": "1000Gi"}),
    )
    plan = plan_of(plan_serving(subject, stock(subject, [large])))
    room = stock(subject, [large, odd])

    added = plan_of(extra_groups(subject, plan, room, 2))
    alone = extra_groups(subject, plan, stock(subject, [odd]), 1).outcome

    assert (added.host_cache, added.groups) == (plan.host_cache, (("large",), ("large",)))
    assert isinstance(alone, NoPlan)
    assert alone.heals_by_itself
    assert "less memory on the nodes for K/V" in alone.problem.sentence()


def test_a_further_group_of_a_plan_that_keeps_nothing_keeps_nothing_where_there_is_room() -> None:
    subject = a_subject(**one_gpu(), engine={"kvOffload": {}})
    plan = plan_of(
        plan_serving(subject, stock(subject, [a_node("a", allocatable={"memory": "80Gi"})]))
    )

    added = plan_of(
        extra_groups(
            subject, plan, stock(subject, [a_node("b", allocatable={"memory": "2000Gi"})]), 1
        )
    )

    assert (plan.host_cache, added.host_cache) == (None, None)


def test_a_refusal_for_too_little_host_memory_is_remembered_for_its_nodes_alone() -> None:
    subject = a_subject(**one_gpu(), engine={"kvOffload": {"hostMemory": "512Gi"}})
    small, large = (
        stock(subject, [a_node("a", allocatable={"memory": memory})])
        for memory in ("1000Gi", "8000Gi")
    )
    cache = PlanCache()
    cache.keep(subject, small, plan_serving(subject, small))

    assert cache.recall(subject, small) == plan_serving(subject, small)
    assert cache.recall(subject, large) is None


def test_a_document_says_how_much_is_wanted() -> None:
    for offload, said in (("Auto", "Auto"), ("64Gi", "64Gi")):
        subject = a_subject(**one_gpu(), engine={"kvOffload": {"hostMemory": offload}})
        document = plan_document(subject, plan_serving(subject, stock(subject, [a_node("a")])))
        assert document["request"]["engine"]["kvOffload"] == {"hostMemory": said}


def test_more_than_a_node_has_left_is_refused_with_what_it_has() -> None:
    found = outcome(offload="216Gi", **one_gpu())

    assert isinstance(found, NoPlan)
    assert (found.problem.code, found.problem.path) == (
        "HostMemoryTooSmall",
        "spec.engine.kvOffload.hostMemory",
    )
    assert "must be at most the 215.0 GiB" in found.problem.sentence()
    assert isinstance(outcome(offload="215Gi", **one_gpu()), Plan)


def of_two(memory: str, **spec: Any) -> Report:
    """Return what comes of so much K/V per pod beside a node that has too little for it."""
    subject = a_subject(**spec, engine={"kvOffload": {"hostMemory": memory}})
    nodes = [
        a_node("large", allocatable={"memory": "2000Gi"}),
        a_node("a-small", allocatable={"memory": "1000Gi"}),
    ]
    return plan_serving(subject, stock(subject, nodes))


def test_a_node_that_has_too_little_is_left_out_with_the_reason() -> None:
    report = of_two("215Gi", **one_gpu(replicas=2))

    found = plan_of(report)
    assert found.groups == (("large",), ("large",))
    assert found.host_cache is not None
    assert found.host_cache.pod_bytes == 215 * GIB
    assert [item for item in report.excluded if item.code == "NodeMemoryTooSmall"] == [
        Exclusion(
            code="NodeMemoryTooSmall",
            count=1,
            example="node a-small: 103.0 GiB of memory left for the K/V of a pod must be at least "
            "the 215.0 GiB of spec.engine.kvOffload.hostMemory, 112.0 GiB short; lower that, or "
            "say Auto",
            nearest_miss="",
        )
    ]


def test_no_node_is_named_where_each_has_enough() -> None:
    codes = {item.code for item in of_two("103Gi", **one_gpu()).excluded}
    assert "NodeMemoryTooSmall" not in codes


def test_where_too_few_nodes_have_enough_the_number_is_what_is_refused() -> None:
    found = of_two("215Gi", **one_gpu(replicas=9, rollout={"minGroups": 9})).outcome

    assert isinstance(found, NoPlan)
    assert found.problem.code == "HostMemoryTooSmall"
    assert "must be at most the 103.0 GiB" in found.problem.sentence()


def test_other_memory_on_other_nodes_is_another_question() -> None:
    subject = a_subject(**one_gpu(), engine={"kvOffload": {"hostMemory": "215Gi"}})
    names = ("a", "b", "c")
    first, second = (
        stock(
            subject,
            [
                a_node(name, allocatable={"memory": memory})
                for name, memory in zip(names, sizes, strict=True)
            ],
        )
        for sizes in (("2000Gi", "1000Gi", "1000Gi"), ("1000Gi", "1000Gi", "1000Gi"))
    )
    cache = PlanCache()
    cache.keep(subject, first, plan_serving(subject, first))

    assert plan_of(plan_serving(subject, first)).groups == (("a",),)
    assert cache.recall(subject, second) is None


@pytest.mark.parametrize(
    ("host", "why"),
    [("", "nodes do not say what they have"), ("80Gi", "they have none left for a pod")],
)
def test_where_there_is_no_room_nothing_is_kept_and_the_plan_says_so(host: str, why: str) -> None:
    found = outcome(host, **one_gpu())

    assert isinstance(found, Plan)
    assert found.host_cache is None
    assert [warning for warning in found.warnings if "memory of the nodes" in warning] == [
        (
            f"no K/V is kept in the memory of the nodes: {why} (spec.engine.kvOffload.hostMemory "
            "states a number)"
        )
    ]


def test_what_is_stated_is_taken_where_nodes_do_not_say_what_they_have() -> None:
    found = kept(one_gpu(), "", "64Gi")

    assert found is not None
    assert found.pod_bytes == 64 * GIB


def test_a_plan_says_how_many_tokens_it_keeps_and_that_nobody_has_measured_it() -> None:
    plan = outcome(**one_gpu())
    assert isinstance(plan, Plan)

    (said,) = (warning for warning in plan.warnings if warning.startswith("K/V offload"))
    assert said == (
        "K/V offload: 215.0 GiB of memory per pod keep about 1,761,280 tokens beside the "
        f"{plan.kv_tokens:,}"
        " on the GPUs; "
        "how many prompts find theirs is what spec.workload.prefixCacheHitPercent says, copying them "
        "back is not counted, and no plan "
        "with it has been measured"
    )
    assert plan.performance.basis == "modelled"
