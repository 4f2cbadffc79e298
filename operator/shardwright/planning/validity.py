"""Can the nodes that a plan was made for still run it? Better nodes do not matter."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.provisioning import is_provisioned_later
from shardwright.hardware.scheduling import NodeFilter, PodTerms
from shardwright.planning.report import Plan


class NodeFault(StrEnum):
    """Why a planned node cannot be used as planned."""

    GONE = "Gone"  #: there is no such Node object
    TO_COME = "ToCome"  #: an autoscaler has not made it yet
    NOT_READY = "NotReady"  #: its kubelet is silent or says that it runs no pods
    LEAVING = "Leaving"  #: it is being deleted or drained by who made it
    CORDONED = "Cordoned"  #: somebody closed it to new pods
    TAINTED = "Tainted"  #: it has a taint that the pods do not tolerate
    DESELECTED = "Deselected"  #: its labels are not those that the resource selects any more
    CHANGED = "Changed"  #: it has other GPUs under the same name
    DEGRADED = "Degraded"  #: it has fewer healthy GPUs than the plan needs there
    IN_CHANGE = "InChange"  #: its driver, its partitioning or a component of it is not ready yet
    UNUSABLE = "Unusable"  #: its GPUs cannot be planned at all


BY_CODE: Final[Mapping[str, NodeFault]] = {
    "NotReady": NodeFault.NOT_READY,
    "NodeLeaving": NodeFault.LEAVING,
    "Cordoned": NodeFault.CORDONED,
    "TaintNotTolerated": NodeFault.TAINTED,
    "GpuUnhealthy": NodeFault.IN_CHANGE,
    "NodeStarting": NodeFault.IN_CHANGE,
    "SelectorMismatch": NodeFault.DESELECTED,
    "MigReconfiguring": NodeFault.IN_CHANGE,
    "DriverUpgrading": NodeFault.IN_CHANGE,
}
"""What the code of a problem that keeps pods off a node says; any other makes the node unusable."""

PASSES: Final = frozenset(
    {NodeFault.NOT_READY, NodeFault.CORDONED, NodeFault.IN_CHANGE, NodeFault.TO_COME}
)
"""Faults that pass by themselves: a plan does not become stale by them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """A planned node that cannot be used as planned; the fault is said after its name."""

    node: str
    fault: NodeFault
    says: str

    @property
    def problem(self) -> Problem:
        """Return the problem that it makes for the plan."""
        what = f"planned node {self.node} {self.says}"
        return Problem(code="PlanInvalid", what=what, remedy="plan again, or bring the node back")


def unfit_nodes(
    plan: Plan, nodes: Mapping[str, NodeFacts | NodeExclusion | None], terms: PodTerms
) -> tuple[Unfit, ...]:
    """Return the planned nodes that cannot be used as planned, by name.

    Free GPUs do not matter: the plan itself holds its GPUs.

    Args:
        plan: The plan.
        nodes: Known facts of its nodes, None for those that do not exist.
        terms: Which nodes its pods may use.
    """
    admission = NodeFilter(terms)
    wanted = Counter(name for group in plan.groups for name in group)
    faults = (
        (name, _fault(name, nodes.get(name), admission, plan, count))
        for name, count in sorted(wanted.items())
    )
    return tuple(Unfit(node=name, fault=found[0], says=found[1]) for name, found in faults if found)


def _fault(
    name: str,
    node: NodeFacts | NodeExclusion | None,
    admission: NodeFilter,
    plan: Plan,
    groups: int,
) -> tuple[NodeFault, str] | None:
    # An autoscaled pool has facts of a node to come, too.
    if node is None:
        return NodeFault.GONE, "is gone or has no GPUs any more"
    if is_provisioned_later(name):
        return NodeFault.TO_COME, "has not been made by its autoscaler yet"
    problem = node.problem if isinstance(node, NodeExclusion) else admission.keeps_out(node)
    if problem is not None:
        fault = BY_CODE.get(problem.code, NodeFault.UNUSABLE)
        return fault, f"cannot be used: {problem.sentence()}"
    assert isinstance(node, NodeFacts)  # noqa: S101 - an exclusion has a problem
    if node.product != plan.product:
        says = f"has {node.product}: the plan was made for {plan.product}"
        return NodeFault.CHANGED, says
    gpus = groups * plan.gpus_per_node
    if node.gpus < gpus:
        says = f"has {node.gpus} healthy GPUs: the plan needs {gpus}"
        return NodeFault.DEGRADED, says
    return None
