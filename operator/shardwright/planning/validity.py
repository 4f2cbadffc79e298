"""Does a plan that was made before still stand on the cluster as it is now?"""

from collections import Counter

from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory, Node
from shardwright.planning.outcome import RETURNING
from shardwright.planning.report import Plan


def plan_problem(plan: Plan, inventory: Inventory) -> Problem | None:
    """Return why a plan of record cannot run any more, None while it can.

    What is free does not matter (the plan itself holds its GPUs), nor whether better nodes have come, nor
    that a node is cordoned or not ready for a while: what runs there goes on, or comes back.
    """
    pools = {node.name: (pool.product, node) for pool in inventory.pools for node in pool.nodes}
    excluded = {item.node: item.problem for item in inventory.excluded}
    wanted = Counter(name for group in plan.groups for name in group)
    for name in sorted(wanted):
        if name in excluded and excluded[name].code in RETURNING:
            continue
        if name in excluded:
            return _lost(f"planned node {name} cannot be used", excluded[name].sentence())
        if name not in pools:
            return _lost(f"planned node {name}", "is gone or no longer selected")
        product, node = pools[name]
        problem = _changed(plan, product, node, wanted[name] * plan.gpus_per_node)
        if problem is not None:
            return problem
    return None


def _changed(plan: Plan, product: str, node: Node, gpus: int) -> Problem | None:
    if product != plan.product:
        return _lost(f"planned node {node.name} has {product}", f"the plan was made for {plan.product}")
    if node.gpus < gpus:
        return _lost(f"planned node {node.name} has {node.gpus} healthy GPUs", f"the plan needs {gpus}")
    return None


def _lost(what: str, why: str) -> Problem:
    return Problem(code="PlanInvalid", what=f"{what}: {why}", remedy="plan again, or bring the node back")
