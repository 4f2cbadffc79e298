"""What the cluster or the image lacks: the plan does without, and says what that costs."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.hardware.capabilities import Capability, RdmaRequest
from shardwright.hardware.inventory import Inventory
from shardwright.planning.missed import may_bring
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.planning.request import OptimizeFor, Request
from tests.support.builders_nodes import a_gb200_rack, a_node, inventory_of
from tests.support.builders_plan import a_model, a_request, vllm_traits

NO_DOMAINS = (Capability.COMPUTE_DOMAINS,)
P5 = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
EFA = {"vpc.amazonaws.com/efa": "32"}
ONE_REQUEST = a_request(concurrency=1, optimize_for=OptimizeFor.LATENCY)


def report_of(inventory: Inventory, request: Request = ONE_REQUEST) -> Report:
    return make_plan(a_model("llama-405b"), inventory, request, vllm_traits())


def a_rack(**terms: Any) -> Inventory:
    return inventory_of(*a_gb200_rack(trays=4), **terms)


def p5_nodes(*plugins: Capability) -> Inventory:
    nodes = (a_node(name, network_gbps=None, labels=P5, allocatable=EFA) for name in "ab")
    return inventory_of(*nodes, rdma=RdmaRequest(plugins=plugins))


def codes_of(report: Report) -> set[str]:
    return {item.code for item in report.excluded}


def links_of(plan: Plan) -> tuple[str, str]:
    return plan.tensor_link, plan.pipeline_link


def plan_of(report: Report) -> Plan:
    assert isinstance(report.outcome, Plan), report.outcome
    return report.outcome


def test_without_compute_domains_no_plan_joins_trays_by_nvlink_and_they_are_missed() -> None:
    joined, report = report_of(a_rack()), report_of(a_rack(lacking=NO_DOMAINS))
    assert plan_of(joined).compute_domain
    assert "ComputeDomainUnavailable" not in codes_of(joined)

    plan, miss = plan_of(report), report.excluded[0]
    assert (plan.compute_domain, plan.deployable) == (False, True)
    assert set(links_of(plan)) - {"", "NVLink5 NVL72"}, "its nodes are joined by the network"
    assert (miss.code, miss.count > 1) == ("ComputeDomainUnavailable", True)
    assert "% better with NVIDIA's DRA driver" in miss.nearest_miss
    assert miss.nearest_miss.endswith("TP16 on gb200-nvl-186gb-4x-400g")
    assert miss.nearest_miss in plan.warnings


@pytest.mark.parametrize(
    ("inventory", "model"),
    [
        (a_rack(lacking=NO_DOMAINS), "llama-8b"),  # one GPU is best
        (a_rack(lacking=NO_DOMAINS, compute_domains=False), "llama-405b"),  # nobody wants them
        (a_rack(lacking=()), "llama-405b"),
    ],
)
def test_what_would_bring_nothing_or_is_not_wanted_is_no_word(
    inventory: Inventory, model: str
) -> None:
    report = make_plan(a_model(model), inventory, ONE_REQUEST, vllm_traits())
    assert "ComputeDomainUnavailable" not in codes_of(report)


def test_what_only_compute_domains_would_make_possible_is_said_where_nothing_fits() -> None:
    limited = a_request(concurrency=1, tpot_seconds=0.025)
    assert isinstance(report_of(a_rack(), limited).outcome, Plan)
    report = report_of(a_rack(lacking=NO_DOMAINS), limited)
    assert isinstance(report.outcome, NoPlan)
    assert report.excluded[0].nearest_miss.startswith(
        "the load is carried with NVIDIA's DRA driver"
    )


def test_a_network_whose_plugin_the_image_lacks_is_planned_over_tcp_and_missed() -> None:
    over_nodes = a_request(concurrency=1, optimize_for=OptimizeFor.LATENCY, tensor=16)
    reached, missed = (
        report_of(p5_nodes(*plugins), over_nodes) for plugins in ((Capability.EFA,), ())
    )
    assert plan_of(reached).rdma == (("vpc.amazonaws.com/efa", 32),)
    assert "400 Gb/s RDMA" in links_of(plan_of(reached))
    plan = plan_of(missed)
    assert plan.rdma == ()
    assert "12.5 Gb/s Ethernet" in links_of(plan)
    assert missed.excluded[0].code == "NetworkPluginMissing"
    assert "better with an image with NCCL's plugin for EFA" in plan.warnings[-1]


@pytest.mark.parametrize(
    ("capability", "optimize_for", "nodes", "asked"),
    [
        (Capability.EFA, OptimizeFor.BALANCED, 1, False),
        (Capability.EFA, OptimizeFor.LATENCY, 1, True),
        (Capability.EFA, OptimizeFor.BALANCED, 2, True),
        (Capability.COMPUTE_DOMAINS, OptimizeFor.BALANCED, 1, True),
    ],
)
def test_a_network_is_not_asked_for_where_instances_inside_nodes_carry_the_load(
    capability: Capability, optimize_for: OptimizeFor, nodes: int, *, asked: bool
) -> None:
    request = a_request(concurrency=1, optimize_for=optimize_for)
    plan = replace(plan_of(report_of(p5_nodes(), request)), nodes_per_replica=nodes)

    assert plan.carries_load
    assert may_bring(capability, plan, request) is asked
    assert may_bring(capability, replace(plan, carries_load=False), request)
