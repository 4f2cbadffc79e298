"""A plan of record stands while its nodes do: better ones move nothing, busy ones disturb
nothing.
"""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import read_node
from shardwright.hardware.scheduling import PodTerms
from shardwright.planning.report import Plan
from shardwright.planning.validity import BY_CODE, PASSES, NodeFault, Unfit, unfit_nodes
from tests.support.builders_deployment import a_plan
from tests.support.builders_nodes import a_node

NAMES = ("h100-0", "h100-1")
PLAN = a_plan(groups=(NAMES,))
SELECTS = {"team": "serving"}
TERMS = PodTerms(selector=SELECTS)


def facts(**changes: Any) -> dict[str, NodeFacts | NodeExclusion | None]:
    """Return the two planned nodes, the second of them changed."""
    nodes = [a_node(NAMES[0], labels=SELECTS), a_node(NAMES[1], **{"labels": SELECTS, **changes})]
    return {node["metadata"]["name"]: read_node(node) for node in nodes}


def unfit(plan: Plan = PLAN, **changes: Any) -> tuple[Unfit, ...]:
    return unfit_nodes(plan, facts(**changes), TERMS)


def taint(key: str) -> dict[str, Any]:
    return {"taints": [{"key": key, "effect": "NoSchedule"}]}


def test_a_plan_is_valid_on_the_nodes_it_was_made_for() -> None:
    assert unfit() == ()


@pytest.mark.parametrize(
    ("changes", "fault", "says"),
    [
        (
            {"ready": False},
            NodeFault.NOT_READY,
            "cannot be used: a node that is not ready takes no new pods",
        ),
        (
            {"cordoned": True},
            NodeFault.CORDONED,
            "cannot be used: a cordoned node takes no new pods",
        ),
        (
            taint("node.cilium.io/agent-not-ready"),
            NodeFault.IN_CHANGE,
            "cannot be used: taint node.cilium.io/agent-not-ready:NoSchedule goes by itself",
        ),
        (
            taint("karpenter.sh/disrupted"),
            NodeFault.LEAVING,
            "cannot be used: a node that is being deleted or drained takes no",
        ),
        (
            taint("ToBeDeletedByClusterAutoscaler"),
            NodeFault.LEAVING,
            "cannot be used: a node that is being deleted or drained",
        ),
        (
            taint("theirs"),
            NodeFault.TAINTED,
            "cannot be used: spec.placement.tolerations: taint theirs:NoSchedule must be tolerated",
        ),
        (
            {"labels": {}},
            NodeFault.DESELECTED,
            "cannot be used: spec.placement.nodeSelector: node label team (not set) must be",
        ),
        ({"gpus": 7}, NodeFault.DEGRADED, "has 7 healthy GPUs: the plan needs 8"),
        (
            {"product": "NVIDIA-H200"},
            NodeFault.CHANGED,
            "has NVIDIA-H200: the plan was made for NVIDIA-H100-80GB-HBM3",
        ),
        (
            {"labels": SELECTS | {"nvidia.com/gpu.product": "Unheard-Of"}},
            NodeFault.UNUSABLE,
            "cannot be used: ",
        ),
    ],
    ids=[
        "not ready",
        "cordoned",
        "starting",
        "leaving",
        "leaving too",
        "tainted",
        "relabelled",
        "degraded",
        "other GPUs",
        "unknown GPUs",
    ],
)
def test_a_fault_of_one_node_is_that_of_this_node_alone(
    changes: dict[str, Any], fault: NodeFault, says: str
) -> None:
    (found,) = unfit(**changes)
    assert (found.node, found.fault) == (NAMES[1], fault)
    assert found.says.startswith(says)
    assert found.problem.code == "PlanInvalid"
    assert (
        found.problem.sentence()
        == f"planned node h100-1 {found.says}; plan again, or bring the node back"
    )


def test_a_node_that_is_gone_or_has_no_gpus_any_more_is_gone() -> None:
    gone = Unfit(node=NAMES[1], fault=NodeFault.GONE, says="is gone or has no GPUs any more")
    assert unfit_nodes(PLAN, facts() | {NAMES[1]: None}, TERMS) == (gone,)
    assert unfit_nodes(PLAN, {NAMES[0]: facts()[NAMES[0]]}, TERMS) == (gone,)


def test_groups_that_share_a_node_need_their_gpus_there_together() -> None:
    shared = replace(PLAN, groups=((NAMES[1],), (NAMES[1],)), nodes_per_replica=1, gpus_per_node=4)
    assert unfit(shared) == ()
    (found,) = unfit(shared, gpus=7)
    assert (found.fault, found.says) == (NodeFault.DEGRADED, "has 7 healthy GPUs: the plan needs 8")


def test_several_nodes_with_faults_come_by_name() -> None:
    nodes = dict.fromkeys(reversed(NAMES))
    assert [
        item.node for item in unfit_nodes(replace(PLAN, groups=(NAMES[::-1],)), nodes, TERMS)
    ] == list(NAMES)


def test_a_node_that_comes_back_by_itself_makes_no_plan_stale() -> None:
    assert {
        NodeFault.NOT_READY,
        NodeFault.CORDONED,
        NodeFault.IN_CHANGE,
        NodeFault.TO_COME,
    } == PASSES
    assert {
        BY_CODE[code] for code in ("NotReady", "Cordoned", "MigReconfiguring", "DriverUpgrading")
    } == PASSES - {NodeFault.TO_COME}
