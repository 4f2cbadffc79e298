"""Whole plans: what is chosen, what is said of it, and what is said when nothing stands."""

import re
from dataclasses import replace
from typing import Any

import pytest

from shardwright.errors import Problem
from shardwright.hardware.capabilities import RdmaMode, Reach
from shardwright.hardware.gpus import GpuPrice, PriceBasis, load_gpus, relative_price
from shardwright.hardware.inventory import Inventory, KnownPods, Pool
from shardwright.hardware.topology import TCP_LATENCY_SECONDS
from shardwright.layouts.layout import EngineTraits
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Lack, Loss, LossKind, NoPlan, Plan, Report
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import MORE_GPUS
from shardwright.units import GIB
from tests.support.builders_plan import (
    a_model,
    a_network,
    a_pool,
    a_request,
    an_inventory,
    an_nvl72_pool,
    vllm_traits,
)


def _report(model: str, inventory: Inventory, request: Request | None = None) -> Report:
    return make_plan(a_model(model), inventory, request or a_request(), vllm_traits())


def _plan(model: str, inventory: Inventory, request: Request | None = None) -> Plan:
    outcome = _report(model, inventory, request).outcome
    assert isinstance(outcome, Plan), outcome
    return outcome


def _no_plan(model: str, inventory: Inventory, request: Request | None = None) -> NoPlan:
    outcome = _report(model, inventory, request).outcome
    assert isinstance(outcome, NoPlan)
    return outcome


def test_a_plan_says_everything_that_rendering_needs() -> None:
    plan = _plan("llama-405b", an_inventory(a_pool(nodes=2)))

    assert plan.groups == (("h100-sxm-80gb-00000", "h100-sxm-80gb-00001"),)
    assert (plan.nodes_per_replica, plan.gpus_per_node) == (2, 8)
    assert (plan.tensor_link, plan.pipeline_link) == ("NVLink4 NVSwitch", "400 Gb/s RDMA")
    assert [stage.layers for stage in plan.stages] == [(0, 63), (63, 126)]
    assert (plan.max_model_len, plan.max_sequences, plan.max_batched_tokens) == (3072, 1024, 8192)
    assert plan.memory_utilization == 0.92
    assert plan.carries_load
    assert plan.undeployable is None


def test_reasons_say_why_and_where_time_goes_and_repeat_no_figure_of_the_plan() -> None:
    reasons = _plan("llama-70b", an_inventory(a_pool())).reasons

    assert re.fullmatch(
        r"TP4 on H100-SXM-80GB \(h100-sxm-80gb\) gives the best balance of throughput per "
        r"GPU and speed per request "
        r"of the \d+ layouts that can run\.",
        reasons[0],
    )
    assert re.fullmatch(r"A token's time goes to (\D+ \d+%(, )?){3}\.", reasons[1])
    assert len(reasons) == 2, (
        "layouts with fewer GPUs carry the load, too: they lose by the objective alone"
    )


def test_alternatives_say_what_they_lose_and_where() -> None:
    alternatives = _report("llama-405b", an_inventory(a_pool(nodes=2))).alternatives

    assert len(alternatives) == 4
    across = next(other for other in alternatives if other.layout.tensor == 16)
    assert "less throughput per GPU" in across.loses
    assert across.loses.endswith("more per token for tensor communication")
    throughput, _, part = across.losses
    assert (throughput.kind, part.kind, part.part) == (
        LossKind.THROUGHPUT_PER_GPU,
        LossKind.PART_OF_TPOT,
        "TensorCommunication",
    )
    assert across.loses.startswith(f"{1 - throughput.amount:.0%} less")


def _a_pool_of_each(*gpus: str) -> Inventory:
    return an_inventory(*(a_pool(gpu, name=gpu) for gpu in gpus))


def test_the_best_layout_on_every_kind_of_gpu_is_shown_with_its_price() -> None:
    gpus = ("H100-SXM-80GB", "H200-SXM-141GB", "B200-SXM-180GB", "L40S-48GB")
    inventory = _a_pool_of_each(*gpus)

    report = _report("qwen2.5-7b", inventory)

    assert isinstance(report.outcome, Plan)
    prices = {other.pool: other.gpu_price for other in report.alternatives}
    assert {report.outcome.pool, *prices} == {pool.name for pool in inventory.pools}
    assert prices["L40S-48GB"] == GpuPrice(per_hour=0.35, basis=PriceBasis.LISTED)


def test_of_further_kinds_of_gpu_no_more_than_four_are_shown() -> None:
    cheap = ("L40S-48GB", "L4-24GB", "A10G-24GB", "A10-24GB")
    large = ("H100-SXM-80GB", "H200-SXM-141GB", "B200-SXM-180GB", "A100-SXM4-80GB")
    inventory = _a_pool_of_each(*large, *cheap)

    report = _report("qwen2.5-7b", inventory)

    assert isinstance(report.outcome, Plan)
    others = [other.pool for other in report.alternatives]
    assert len({report.outcome.pool, *others}) < len(inventory.pools)
    assert len(others) <= 4 + MORE_GPUS


def test_rates_of_thousands_are_written_out() -> None:
    request = a_request()
    load = replace(request.workload, input_tokens=16, output_tokens=2, requests_per_second=3000.0)

    report = _report("qwen2.5-7b", an_inventory(a_pool()), replace(request, workload=load))

    assert isinstance(report.outcome, Plan)
    said = [*report.outcome.reasons, *(other.loses for other in report.alternatives)]
    assert any("3,000 requests a second" in sentence for sentence in said)
    assert [sentence for sentence in said if "e+0" in sentence] == []


def test_what_was_ruled_out_is_counted_with_the_nearest_miss() -> None:
    excluded = {
        item.code: item for item in _report("llama-405b", an_inventory(a_pool(nodes=2))).excluded
    }

    memory = excluded["WeightsExceedMemory"]
    assert memory.count == 15
    assert re.fullmatch(
        r"PP8 on h100-sxm-80gb: 95\.0 GiB of weights and \d\.\d GiB of buffers per GPU "
        r"must be less than 7\d\.\d GiB, "
        r"2\d\.\d GiB short",
        memory.nearest_miss,
    )
    assert excluded["HeadsNotDivisible"].nearest_miss == ""


def test_nodes_that_cannot_be_used_are_counted_beside() -> None:
    inventory = an_inventory(
        a_pool(), excluded={"b": "NotReady", "a": "NotReady", "c": "GpuUnknown"}
    )
    nodes = [
        (item.code, item.count, item.example)
        for item in _report("llama-8b", inventory).excluded[-2:]
    ]

    assert nodes == [
        ("NotReady", 2, "node a: the node is out"),
        ("GpuUnknown", 1, "node c: the node is out"),
    ]


def test_a_load_that_nothing_carries_is_said() -> None:
    plan = _plan("llama-8b", an_inventory(a_pool("L4-24GB", gpus_per_node=1)))

    assert not plan.carries_load
    assert re.fullmatch(
        r"No layout carries 64 requests of 2,048 \+ 512 tokens: \d\d of 64 run at once per "
        r"replica, the others wait\.",
        plan.reasons[1],
    )
    assert any(
        re.fullmatch(r"batch limits lowered to .* to leave room for K/V", warning)
        for warning in plan.warnings
    )


def test_what_surely_starts_goes_before_what_is_tight() -> None:
    gpu = load_gpus()["H100-SXM-80GB"]
    pool = a_pool(replace(gpu, memory_bytes=round(gpu.memory_bytes * 1.19)), nodes=2)
    request = replace(a_request(concurrency=4, tensor=8, attention_data=1), deploy=True)
    report = _report("deepseek-v3", an_inventory(pool), request)
    assert isinstance(report.outcome, Plan)

    assert (report.outcome.layout.gpus, report.outcome.tight) == (16, False)
    other, *_ = [
        item for item in report.alternatives if item.loses.startswith("tight, may not start; ")
    ]
    assert other.layout.gpus == 8
    assert _plan("deepseek-v3", an_inventory(replace(pool, nodes=pool.nodes[:1])), request).tight


def test_what_would_carry_the_load_on_gpus_that_are_not_free_is_named() -> None:
    plan = _plan("llama-70b", an_inventory(a_pool(free={0: 2})))

    assert not plan.carries_load
    assert plan.reasons[2] == (
        "TP4 would carry it, but needs 1 node of h100-sxm-80gb with 4 free GPUs, 0 free "
        "of 1, 1 short."
    )


def test_fewer_gpus_that_would_queue_are_named() -> None:
    plan = _plan("llama-8b", an_inventory(a_pool("L4-24GB")), a_request(replicas=1))

    assert re.fullmatch(
        r"On fewer GPUs requests would queue: TP1 runs \d+ of 64 at once\.", plan.reasons[-1]
    )


def test_a_length_that_was_asked_for_is_never_lowered() -> None:
    request = a_request(concurrency=1, max_model_len=131072)
    problem = _no_plan(
        "llama-8b", an_inventory(a_pool("L4-24GB", gpus_per_node=1)), request
    ).problem

    assert (problem.code, problem.path) == ("KvCacheTooSmall", "spec.engine.maxModelLen")
    assert problem.limit == "must hold one request of 131,072"
    assert problem.remedy.endswith(
        "add nodes; or lower maxModelLen to 38,736 or use GPUs with more memory"
    )


def test_a_requested_context_length_is_kept_by_taking_more_gpus() -> None:
    request = a_request(concurrency=1, max_model_len=131072)
    plan = _plan("llama-8b", an_inventory(a_pool("L4-24GB")), request)

    assert plan.max_model_len == 131072
    assert plan.layout.gpus > 1


def test_tensor_over_trays_of_one_clique_is_deployed_with_a_compute_domain() -> None:
    plan = _plan(
        "deepseek-v3",
        an_inventory(an_nvl72_pool()),
        replace(a_request(tensor=8, pipeline=1), deploy=True),
    )

    assert plan.undeployable is None
    assert plan.compute_domain
    assert (plan.nodes_per_replica, plan.tensor_link) == (2, "NVLink5 NVL72")
    assert "Pods share the NVLink domain of their nodes by a ComputeDomain." in plan.reasons


@pytest.mark.parametrize("pipeline", [1, 2])
def test_groups_on_one_tray_or_without_cliques_have_no_compute_domain(pipeline: int) -> None:
    pool = an_nvl72_pool() if pipeline == 1 else replace(an_nvl72_pool(), joins_pods=False)

    assert not _plan(
        "deepseek-v3", an_inventory(pool), a_request(tensor=4, pipeline=pipeline)
    ).compute_domain


def test_tensor_over_trays_that_no_clique_joins_is_planned_but_not_deployed() -> None:
    shown = a_request(tensor=8, pipeline=1)
    inventory = an_inventory(replace(an_nvl72_pool(), joins_pods=False))

    problem = Problem(
        code="NotYetDeployable",
        what="TP8 puts one tensor group on 2 nodes, which have no label nvidia.com/gpu.clique",
        gap="which is planned and shown but not deployed yet",
        remedy="set mode: PlanOnly, or pin parallelism.tensor to 4 or less",
        path="spec.parallelism.tensor",
    )
    assert _plan("deepseek-v3", inventory, replace(shown, deploy=True)).undeployable == problem
    only_shown = _plan("deepseek-v3", inventory, shown).undeployable
    assert only_shown == replace(
        problem, remedy="mode: Deploy takes the best layout that can be run"
    )


def test_what_is_better_but_cannot_be_deployed_yet_is_named() -> None:
    inventory = an_inventory(replace(an_nvl72_pool(), joins_pods=False))
    shown = a_request(OptimizeFor.LATENCY, concurrency=1)
    better = _plan("llama-405b", inventory, shown)
    deployed = _report("llama-405b", inventory, replace(shown, deploy=True))
    assert isinstance(deployed.outcome, Plan)

    assert better.undeployable is not None
    assert deployed.outcome.reasons[1] == (
        f"TP{better.layout.tensor} would be better, but cannot be deployed yet: mode "
        "PlanOnly shows it."
    )
    (other,) = [other for other in deployed.alternatives if other.layout == better.layout]
    assert other.loses.startswith("not deployable yet; ")
    assert other.losses[0] == Loss(kind=LossKind.NOT_DEPLOYABLE)


def test_attention_replicas_on_several_nodes_are_deployed_where_each_is_on_one() -> None:
    pins = replace(a_request(tensor=4, attention_data=4), deploy=True)
    plan = _plan("deepseek-v3", an_inventory(a_pool("H200-SXM-141GB", nodes=2)), pins)

    assert (plan.layout.attention_data, plan.nodes_per_replica, plan.undeployable) == (4, 2, None)


def test_attention_replicas_that_nodes_cut_are_planned_but_not_deployed() -> None:
    pins = replace(a_request(tensor=8, attention_data=2), deploy=True)
    problem = _plan("deepseek-v3", an_inventory(an_nvl72_pool()), pins).undeployable

    assert problem is not None
    assert (problem.code, problem.path) == (
        "NotYetDeployable",
        "spec.parallelism.dataParallelAttention",
    )
    assert "attention replicas of 8 GPUs each on nodes with 4" in problem.what


def test_requests_are_counted_over_all_attention_ranks_of_a_replica() -> None:
    request = a_request(concurrency=4096, input_tokens=8000, tensor=1, pipeline=1, attention_data=8)
    plan = _plan("deepseek-v3", an_inventory(a_pool("H200-SXM-141GB")), request)

    running = plan.performance.running_requests
    assert running * (8000 + 512 / 2) == pytest.approx(plan.kv_tokens, rel=0.05)
    assert plan.reasons[1].endswith(
        f": {running} of 4,096 run at once per replica, the others wait."
    )


def test_a_limit_binds_before_the_memory_of_layouts_that_could_not_run() -> None:
    problem = _no_plan(
        "llama-405b", an_inventory(a_pool(nodes=2)), a_request(tpot_seconds=0.001)
    ).problem

    assert problem.code == "TpotLimitExceeded"
    assert "closest is TP8·PP2 on h100-sxm-80gb" in problem.remedy


def test_a_limit_that_fewer_gpus_do_not_meet_is_named() -> None:
    plan = _plan("llama-70b", an_inventory(a_pool()), a_request(tpot_seconds=0.04))

    assert plan.layout.gpus == 8
    assert re.fullmatch(
        r"On fewer GPUs a limit is not met: .*: time per output token of \d+ ms must be at most "
        r"40 ms\.",
        plan.reasons[-1],
    )


def test_a_rate_that_is_not_served_says_what_is() -> None:
    report = _report("llama-70b", an_inventory(a_pool()), _rate(20.0))
    plan = report.outcome
    assert isinstance(plan, Plan)

    assert not plan.carries_load
    assert "come closest to carrying the load of" in plan.reasons[0]
    assert not any(
        "at once" in text
        for text in (*plan.reasons, *(other.loses for other in report.alternatives))
    )
    assert report.alternatives[0].loses.startswith("falls behind: serves ")


def _rate(requests_per_second: float, **space: Any) -> Request:
    request = a_request(**space)
    return replace(
        request, workload=replace(request.workload, requests_per_second=requests_per_second)
    )


def test_gpus_of_several_kinds_without_prices_count_by_relative_ones_and_that_is_said() -> None:
    pools = (a_pool(), a_pool("L40S-48GB"))
    priced = tuple(replace(pool, gpu_hour_price=1.0) for pool in pools)
    none, some, every = (
        _plan("llama-8b", an_inventory(*found)).warnings
        for found in (pools, (priced[0], pools[1]), priced)
    )

    counted = "GPUs are compared by relative prices, an H100 as 1: H100-SXM-80GB 1, L40S-48GB 0.35"
    assert none == (
        f"{counted}; no node states a price (gpuHourPrices, shardwright.io/gpu-hour-price)",
    )
    assert some == (
        f"{counted}; some nodes state no price (gpuHourPrices, shardwright.io/gpu-hour-price)",
    )
    assert every == ()


AMD_POOL = replace(a_pool("MI300X-192GB"), resource="amd.com/gpu")
BOTH = ("nvidia.com/gpu", "amd.com/gpu")
EITHER = vllm_traits(runs_on=BOTH, unproven=frozenset({"amd.com/gpu"}))
PROVEN_FIRST = vllm_traits(runs_on=BOTH, proven_first=True)


def _with(traits: EngineTraits, *pools: Pool) -> Report:
    return make_plan(a_model("llama-8b"), an_inventory(*pools), a_request(), traits)


def test_gpus_whose_image_never_ran_are_chosen_by_price_and_speed_and_are_modelled() -> None:
    plan = _with(EITHER, AMD_POOL, a_pool()).outcome
    assert isinstance(plan, Plan)
    assert (plan.resource, plan.performance.basis) == ("amd.com/gpu", "modelled")
    assert any(
        said.startswith("no image of vLLM for amd.com/gpu has been") for said in plan.warnings
    )


def test_with_proven_images_first_nvidias_gpus_go_first_and_that_is_said() -> None:
    both = _with(PROVEN_FIRST, AMD_POOL, a_pool()).outcome
    alone = _with(PROVEN_FIRST, AMD_POOL).outcome

    assert isinstance(both, Plan)
    assert isinstance(alone, Plan)
    assert (both.resource, alone.resource) == ("nvidia.com/gpu", "amd.com/gpu")
    said = (
        "with provenImagesFirst those GPUs are used only if no others will do, or if "
        "spec.engine.image names an image for them."
    )
    assert f"TP1 on {AMD_POOL.product} would be better; {said}" in both.reasons


def test_an_image_for_other_gpus_than_the_pools_is_refused_by_its_name() -> None:
    cuda = vllm_traits(runs_on=("nvidia.com/gpu",), image="vllm/vllm-openai:v0.33.0")

    outcome = _with(cuda, AMD_POOL).outcome

    assert isinstance(outcome, NoPlan)
    assert outcome.problem.sentence().startswith(
        "spec.engine.image: the image vllm/vllm-openai:v0.33.0 is built for nvidia.com/gpu, "
        f"{AMD_POOL.product}"
        " is amd.com/gpu"
    )


RACK = an_nvl72_pool()


def test_a_small_model_takes_no_tray_of_a_whole_rack_while_other_gpus_are_free() -> None:
    beside = _plan("llama-8b", an_inventory(RACK, a_pool("L40S-48GB")))
    alone = _plan("llama-8b", an_inventory(RACK))

    assert (beside.product, beside.layout.gpus) == (a_pool("L40S-48GB").product, 1)
    assert (
        f"TP1 on {RACK.product} would be better, but not by enough to take a whole tray out "
        "of a rack."
    ) in beside.reasons
    assert not [reason for reason in beside.reasons if "price lists" in reason]
    assert beside.gpu_price == relative_price(load_gpus()["L40S-48GB"])
    assert (alone.layout.gpus, alone.gpu_price) == (1, None)


def test_what_is_left_of_a_tray_that_is_broken_breaks_no_rack() -> None:
    dear = replace(a_pool(), gpu_hour_price=1.0)
    whole, broken = (replace(an_nvl72_pool(free=free), gpu_hour_price=1.0) for free in ({}, {0: 3}))

    spared, taken = (_plan("llama-8b", an_inventory(rack, dear)) for rack in (whole, broken))

    assert spared.product == dear.product
    assert (taken.product, taken.groups) == (broken.product, ((broken.nodes[0].name,),))


def test_a_rack_is_broken_where_it_pays() -> None:
    limited = a_request(OptimizeFor.LATENCY, concurrency=1)

    plan = _plan("llama-8b", an_inventory(RACK, a_pool("L40S-48GB")), limited)

    assert plan.product == RACK.product


def test_prices_that_are_stated_take_the_place_of_relative_ones() -> None:
    pools = (
        replace(a_pool(), gpu_hour_price=9.0),
        replace(a_pool("L40S-48GB"), gpu_hour_price=1.0),
    )

    plan = _plan("llama-8b", an_inventory(*pools))

    assert plan.gpu_price == GpuPrice(per_hour=1.0, basis=PriceBasis.STATED)


def test_a_cluster_without_gpu_nodes_waits_for_some() -> None:
    outcome = _no_plan("llama-8b", an_inventory())

    assert outcome == NoPlan(
        problem=Problem(
            code="NoGpuNodes",
            path="spec.placement",
            what="no node has GPUs",
            remedy="add GPU nodes, or state in autoscaledPools which ones an autoscaler adds; it "
            "goes on when they join",
        ),
        heals_by_itself=True,
    )


def test_an_assumed_network_is_warned_of_only_where_the_plan_crosses_it() -> None:
    link = replace(a_pool().network, name="12.5 Gb/s Ethernet", basis="assumed")
    inside, across = (
        _plan(model, an_inventory(a_pool(nodes=2, network=link)))
        for model in ("llama-8b", "llama-405b")
    )
    rack = an_inventory(an_nvl72_pool(network=link))
    over_nvlink = _plan(
        "deepseek-v3", rack, a_request(concurrency=1024, attention_data=8, tensor=1, pipeline=1)
    )

    assert inside.warnings == ()
    assert (over_nvlink.nodes_per_replica, over_nvlink.warnings) == (2, ())
    how = "label shardwright.io/network-gbps-per-gpu states it, for --gpus the option --network"
    assert across.warnings == (
        f"the network between nodes is unknown: 12.5 Gb/s Ethernet per GPU assumed; the node {how}",
    )


def test_without_usable_nodes_the_reason_of_most_and_its_remedy_are_said() -> None:
    problem = _no_plan(
        "llama-8b", an_inventory(excluded={"b": "MigEnabled", "a": "MigEnabled", "c": "GpuUnknown"})
    ).problem

    assert problem == Problem(
        code="NoGpuNodes",
        path="spec.placement",
        what="of 3 nodes with GPUs",
        limit="none can be used",
        gap="2 of 3 by MigEnabled, as a: the node is out",
        remedy="add GPU nodes",
    )


def test_what_is_to_run_gets_the_best_layout_that_can_be_run() -> None:
    inventory = an_inventory(replace(an_nvl72_pool(), joins_pods=False))
    shown = a_request(OptimizeFor.LATENCY, concurrency=1)

    assert _plan("llama-405b", inventory, shown).undeployable is not None
    assert _plan("llama-405b", inventory, replace(shown, deploy=True)).undeployable is None


def test_tensor_over_the_network_is_allowed_when_pinned_and_warned_of() -> None:
    plan = _plan("llama-405b", an_inventory(a_pool(nodes=2)), a_request(tensor=16))

    assert plan.undeployable is None
    assert plan.warnings == (
        (
            "tensor parallelism crosses nodes over 400 Gb/s RDMA: every layer waits for the "
            "network twice"
        ),
    )


def test_busy_hardware_heals_by_itself() -> None:
    assert _no_plan("llama-70b", an_inventory(a_pool(free={0: 1}))) == NoPlan(
        problem=Problem(
            code="InsufficientCapacity",
            what="TP4 needs 1 node of h100-sxm-80gb with 4 free GPUs",
            gap="0 free of 1, 1 short",
            remedy="free GPUs or add nodes; it goes on by itself then",
        ),
        heals_by_itself=True,
        lack=Lack(pool="h100-sxm-80gb", gpus_per_node=4, missing_nodes=1, nodes=1),
    )


def test_missing_hardware_does_not_heal_by_itself() -> None:
    outcome = _no_plan("llama-405b", an_inventory(a_pool()))

    assert not outcome.heals_by_itself
    assert outcome.problem.code == "WeightsExceedMemory"
    assert outcome.problem.remedy == (
        "closest is PP8 on h100-sxm-80gb; TP8·PP2 needs 2 nodes of "
        "h100-sxm-80gb with 8 healthy GPUs "
        "each, 1 there, 1 short; add nodes; or use GPUs with more memory or 8-bit weights"
    )


def test_nodes_are_not_asked_for_where_the_model_would_not_fit_on_them_either() -> None:
    small = an_inventory(a_pool("L40S-48GB", gpus_per_node=4))

    problem = _no_plan("llama-405b", small, a_request(tensor=8)).problem

    assert problem.code == "WeightsExceedMemory"
    assert "add nodes" not in problem.remedy


def test_room_for_some_replicas_only_is_what_binds() -> None:
    outcome = _no_plan("llama-405b", an_inventory(a_pool(nodes=5)), a_request(replicas=3, tensor=8))

    assert outcome == NoPlan(
        problem=Problem(
            code="PoolTooSmall",
            what="TP8·PP2 needs 6 nodes of h100-sxm-80gb with 8 healthy GPUs each",
            gap="5 there, 1 short",
            remedy="add nodes, or lower replicas: there is room for 2",
        ),
        heals_by_itself=False,
        lack=Lack(pool="h100-sxm-80gb", gpus_per_node=8, missing_nodes=1, nodes=6),
    )
    assert isinstance(
        _report(
            "llama-405b", an_inventory(a_pool(nodes=5)), a_request(replicas=2, tensor=8)
        ).outcome,
        Plan,
    )


def test_replicas_that_share_nodes_are_counted_not_the_nodes() -> None:
    busy = _no_plan(
        "llama-8b", an_inventory(a_pool(nodes=2, free={0: 2, 1: 1})), a_request(replicas=5)
    ).problem
    small = _no_plan("llama-8b", an_inventory(a_pool(nodes=2)), a_request(replicas=17)).problem

    assert busy.sentence() == (
        "TP1 needs room for 5 replicas with 1 free GPU each on h100-sxm-80gb, 3 fit, 2 short; "
        "free GPUs or add nodes; it goes on by itself then"
    )
    assert small.sentence() == (
        "TP1 needs room for 17 replicas with 1 healthy GPU each on h100-sxm-80gb, 16 fit, 1 "
        "short; "
        "add nodes, or lower replicas: there is room for 16"
    )


def test_pins_that_no_pool_can_hold_say_what_they_need() -> None:
    problem = _no_plan(
        "llama-70b", an_inventory(a_pool(nodes=4)), a_request(tensor=32, pipeline=4)
    ).problem

    assert problem.sentence() == (
        "TP32·PP4 needs 16 nodes of h100-sxm-80gb with 8 healthy GPUs each, 4 "
        "there, 12 short; add nodes"
    )


def test_a_budget_that_alone_is_in_the_way_is_what_binds() -> None:
    inventory = an_inventory(a_pool(nodes=4))
    outcome = _no_plan("llama-405b", inventory, a_request(max_gpus=8))

    assert outcome.problem.sentence() == (
        "spec.budget.gpus: 16 GPUs for TP8·PP2 must be at most 8, 8 over; raise the budget"
    )
    assert isinstance(_report("llama-405b", inventory, a_request(max_gpus=16)).outcome, Plan)


def test_nodes_that_are_away_for_a_while_are_waited_for() -> None:
    for code in ("NotReady", "NodeStarting", "Cordoned", "NodeLeaving", "NoAllocatableGpus"):
        outcome = _no_plan(
            "llama-405b", an_inventory(a_pool(), excluded={"h100-sxm-80gb-00001": code})
        )
        assert outcome.heals_by_itself
        assert outcome.problem.code == "InsufficientCapacity"
        assert outcome.problem.remedy == (
            "1 node of H100-SXM-80GB out of use (the node is out); it goes on by itself when they "
            "return"
        )


def test_nodes_of_a_kind_that_is_wholly_away_are_waited_for() -> None:
    inventory = an_inventory(a_pool("L40S-48GB"), excluded={"b": "NotReady", "a": "Cordoned"})
    outcome = _no_plan("llama-405b", inventory)

    assert outcome.heals_by_itself
    assert outcome.problem.sentence() == (
        "no layout can run on the GPU nodes that are there now, 1 node of H100-SXM-80GB out "
        "of use (the node is out), 1 node of H100-SXM-80GB out of use (the node is out); "
        "it goes on by itself when they return, if they suffice"
    )


def test_nodes_with_sick_gpus_are_waited_for_as_those_that_are_away() -> None:
    whole, sick = a_pool(), replace(a_pool(), name="h100-7x", gpus_per_node=7)
    node = replace(sick.nodes[0], name="sick", gpus=7, free=7, sick=1)
    outcome = _no_plan("llama-405b", an_inventory(whole, replace(sick, nodes=(node,))))

    assert outcome.heals_by_itself
    assert outcome.problem.sentence() == (
        "TP8·PP2 needs 2 nodes of h100-sxm-80gb with 8 healthy GPUs each, 1 there, 1 short; "
        "1 GPU of H100-SXM-80GB not healthy; it goes on by itself when they return"
    )


@pytest.mark.parametrize(("gpus", "sick", "waits"), [(4, 4, True), (4, 0, False), (1, 1, False)])
def test_sick_gpus_are_waited_for_only_if_they_could_be_enough(
    gpus: int, sick: int, *, waits: bool
) -> None:
    pool = replace(a_pool("H200-SXM-141GB"), gpus_per_node=gpus)
    node = replace(pool.nodes[0], gpus=gpus, free=gpus, sick=sick)
    outcome = _no_plan("llama-405b", an_inventory(replace(pool, nodes=(node,))))

    assert outcome.heals_by_itself is waits


def test_no_node_is_waited_for_when_the_request_itself_is_at_fault() -> None:
    inventory = an_inventory(a_pool("L40S-48GB"), excluded={"b": "NotReady"})

    assert _no_plan("llama-8b", inventory, a_request(tensor=3)).problem.code == "HeadsNotDivisible"
    assert not _no_plan("llama-8b", inventory, a_request(tensor=4, expert=4)).heals_by_itself


def test_nodes_that_are_out_for_good_are_not_waited_for() -> None:
    inventory = an_inventory(a_pool("L40S-48GB"), excluded={"a": "SelectorMismatch"})

    assert not _no_plan("llama-405b", inventory).heals_by_itself


def test_fewer_returning_nodes_than_are_short_do_not_heal() -> None:
    inventory = an_inventory(a_pool("L40S-48GB"), excluded={"a": "NotReady"}, product="L40S-48GB")

    assert not _no_plan("llama-405b", inventory).heals_by_itself


def test_no_nodes_at_all() -> None:
    assert _no_plan("llama-8b", an_inventory()).problem.code == "NoGpuNodes"
    assert not _no_plan("llama-8b", an_inventory(excluded={"a": "GpuUnknown"})).heals_by_itself
    assert _no_plan("llama-8b", an_inventory(excluded={"a": "NotReady"})).heals_by_itself


def test_pins_that_leave_nothing_are_named() -> None:
    problem = _no_plan("llama-8b", an_inventory(a_pool()), a_request(tensor=4, expert=4)).problem

    assert problem.code == "PinsLeaveNothing"
    assert problem.what == "parallelism pinned to tensor 4, expert 4"


def test_a_pin_that_does_not_divide_is_refused_by_its_own_rule() -> None:
    problem = _no_plan("llama-8b", an_inventory(a_pool()), a_request(tensor=3)).problem

    assert (problem.code, problem.path) == ("HeadsNotDivisible", "spec.parallelism.tensor")


def test_an_impossible_latency_names_the_limit_and_the_closest_layout() -> None:
    outcome = _no_plan("llama-70b", an_inventory(a_pool()), a_request(tpot_seconds=0.001))

    assert not outcome.heals_by_itself
    assert outcome.problem.code == "TpotLimitExceeded"
    closest, where, remedy = outcome.problem.remedy.split("; ")
    assert closest == "closest is TP8 on h100-sxm-80gb"
    assert where.startswith("a token's time goes to ")
    assert remedy == "relax the limit: one request alone exceeds it, too"


def test_a_limit_moves_the_choice_to_a_layout_that_meets_it() -> None:
    free, bound = (
        _plan("llama-70b", an_inventory(a_pool()), a_request(tpot_seconds=limit))
        for limit in (None, 0.035)
    )

    assert free.layout.tensor < bound.layout.tensor
    assert bound.performance.tpot_seconds <= 0.035


def test_replicas_are_all_placed() -> None:
    plan = _plan("llama-8b", an_inventory(a_pool(nodes=2)), a_request(replicas=10))

    assert len(plan.groups) == 10
    assert {name for (name,) in plan.groups} == {"h100-sxm-80gb-00000", "h100-sxm-80gb-00001"}


def test_a_group_goes_where_it_leaves_the_least_behind() -> None:
    plan = _plan("llama-8b", an_inventory(a_pool(nodes=3, free={1: 1, 2: 3})))

    assert plan.groups == (("h100-sxm-80gb-00001",),)


def test_unknown_free_capacity_is_warned_of() -> None:
    inventory = replace(an_inventory(a_pool()), known_pods=KnownPods.NONE)

    assert _plan("llama-8b", inventory).warnings == (
        "no pods are known: every allocatable GPU counts as free, the planned ones may be taken",
    )


def test_the_same_input_gives_the_same_report() -> None:
    inventory = an_inventory(a_pool(nodes=3), a_pool("L40S-48GB", 2))

    assert _report("llama-70b", inventory) == _report("llama-70b", inventory)
    assert repr(_report("llama-70b", inventory)) == repr(_report("llama-70b", inventory))


def test_warnings_of_model_and_pool_are_passed_on() -> None:
    inventory = an_inventory(replace(a_pool(), warnings=("the network is unknown",)))
    model = replace(a_model("llama-8b"), warnings=("something new in the config",))

    outcome = make_plan(model, inventory, a_request(OptimizeFor.BALANCED), vllm_traits()).outcome

    assert isinstance(outcome, Plan)
    assert outcome.warnings == ("something new in the config", "the network is unknown")


def _reached(**how: Any) -> Inventory:
    return an_inventory(replace(a_pool(nodes=2), reach=Reach(**how)))


def test_pods_of_a_group_over_several_nodes_request_what_reaches_the_network() -> None:
    plan = _plan("llama-405b", _reached(devices=(("vpc.amazonaws.com/efa", 32),)))

    assert plan.rdma == (("vpc.amazonaws.com/efa", 32),)
    assert (
        "Pods request 32 vpc.amazonaws.com/efa each, to reach the 400 Gb/s RDMA between nodes."
        in plan.reasons
    )


def test_pods_of_a_group_on_one_node_request_nothing_of_the_network() -> None:
    plan = _plan("llama-70b", _reached(devices=(("rdma/hca", 8),), lacking="rdma/other"))

    assert plan.nodes_per_replica == 1
    assert plan.rdma == ()


def test_groups_inside_one_rack_request_no_network_devices() -> None:
    rack = replace(an_nvl72_pool(trays=8), reach=Reach(devices=(("rdma/hca", 8),)))
    pins = a_request(tensor=8, pipeline=1)

    assert _plan("llama-405b", an_inventory(rack), pins).rdma == ()


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (RdmaMode.NONE, "spec.pod.network.rdma is None"),
        (RdmaMode.AUTO, "the nodes offer no RDMA resource that is known (rdmaResources)"),
    ],
)
def test_a_network_that_pods_do_not_reach_is_said_where_it_would_be_used(
    mode: RdmaMode, why: str
) -> None:
    slow = a_network(12.5, latency_seconds=TCP_LATENCY_SECONDS)
    pool = replace(a_pool(nodes=2, network=slow), reach=Reach(mode=mode, missed=a_network(400)))
    said = (
        f"pods do not reach the nodes' 400 Gb/s RDMA: {why}; planned over TCP, {slow.name} "
        "per GPU assumed"
    )

    assert said in _plan("llama-405b", an_inventory(pool)).warnings
    assert said not in _plan("llama-70b", an_inventory(pool)).warnings


def test_nodes_without_the_devices_that_the_user_names_carry_no_group_over_several_of_them() -> (
    None
):
    report = _report("llama-405b", _reached(mode=RdmaMode.EXPLICIT, lacking="rdma/hca"))

    assert isinstance(report.outcome, NoPlan)
    (found,) = [item for item in report.excluded if item.code == "NetworkResourceMissing"]
    assert "the network resource rdma/hca" in found.example


def test_a_claim_that_cannot_hold_what_it_is_to_keep_is_warned_of() -> None:
    def warned(cache_bytes: int | None) -> list[str]:
        plan = _plan(
            "llama-8b",
            an_inventory(a_pool()),
            replace(a_request(), cache_bytes=cache_bytes, file_bytes=15 * GIB),
        )
        return [warning for warning in plan.warnings if "cache.storage" in warning]

    assert warned(10 * GIB) == [
        (
            "spec.model.weights.cache.storage is 10.0 GiB, the weights alone are 15.0 GiB: "
            "the "
            "download will not end"
        )
    ]
    assert warned(20 * GIB) == warned(None) == []


def test_a_gated_model_without_a_token_is_warned_of_with_the_two_commands() -> None:
    asked = replace(
        a_request(), gated=("meta-llama/Llama-3.1-8B-Instruct",), owner=("models", "llama-8b")
    )
    warnings = [
        _plan("llama-8b", an_inventory(a_pool()), replace(asked, deploy=deploy)).warnings
        for deploy in (True, False)
    ]

    (warning,) = warnings[0]
    assert warning.startswith(
        "meta-llama/Llama-3.1-8B-Instruct is gated, and no token is named: the hub refuses pods "
        "(401, 403)"
    )
    assert (
        "`kubectl -n models create secret generic hub-token --from-literal=token=hf_...`" in warning
    )
    assert (
        "`kubectl -n models patch smodel llama-8b --type merge -p 'spec: {model: {weights: "
        "{secretRef: {name: hub-token}}}}'`"
    ) in warning
    assert warnings[1] == warnings[0]


@pytest.mark.parametrize(("rate", "gpus"), [(50.0, 16), (None, 8)])
def test_for_latency_instances_beyond_an_nvlink_domain_halve_the_time_at_a_rate_too(
    rate: float | None, gpus: int
) -> None:
    request = a_request(OptimizeFor.LATENCY)
    asked = replace(request, workload=replace(request.workload, requests_per_second=rate))

    plan = make_plan(
        a_model("llama-8b"), an_inventory(a_pool(nodes=8)), asked, vllm_traits()
    ).outcome

    assert isinstance(plan, Plan)
    assert plan.layout.gpus == gpus
