"""Where do the replicas of a plan stand, in one line?"""

from collections import Counter
from typing import Final

from shardwright.hardware.gpus import Link
from shardwright.hardware.inventory import Pool
from shardwright.planning.report import Plan
from shardwright.reporting.lines import ELLIPSIS
from shardwright.reporting.mesh import expert_link
from shardwright.units import format_plural

MOST_NAMES: Final = 2  #: of nodes; the rest are counted
LONGEST_NAME: Final = 24  #: columns of a node's name


def where(plan: Plan, pool: Pool | None) -> str:
    """Return the nodes of a plan: all replicas counted by node, a replica over nodes once."""
    counts = Counter(name for group in plan.groups for name in group)
    on = format_plural(len(counts), "node")
    if len(plan.groups) > 1:
        on = f"{len(plan.groups):,} on {on}"
    return f"{on}{_each(plan, counts)}{_joined(plan, pool)}"


def _each(plan: Plan, counts: Counter[str]) -> str:
    names = _some([short_name(name) for name in counts])
    if 1 in (len(plan.groups), len(counts)):
        return f": {names}"
    if plan.nodes_per_replica > 1:
        return f", each over {plan.nodes_per_replica}: {names}"
    if len(set(counts.values())) == 1:
        return f", {counts.total() // len(counts)} each: {names}"
    said = [f"{count} on {short_name(name)}" for name, count in counts.most_common()]
    return f": {_some(said)}"


def _joined(plan: Plan, pool: Pool | None) -> str:
    link = crossed_network(plan, pool)
    if link is None:
        return ""
    return f"; {link.name} between them{' (assumed)' if link.basis == 'assumed' else ''}"


def crossed_network(plan: Plan, pool: Pool | None) -> Link | None:
    """Return the network between nodes, if traffic of a replica crosses it."""
    if pool is None or plan.nodes_per_replica == 1:
        return None
    links = {plan.tensor_link, plan.pipeline_link}
    if plan.layout.attention_data > 1:
        links.add(expert_link(plan, pool))
    return pool.network if pool.network.name in links else None


def _some(said: list[str]) -> str:
    """Return the first of several nodes and a count of the others.

    >>> _some(["a", "b", "c"]), _some(["a", "b", "c", "d"])
    ('a, b, c', 'a, b and 2 more nodes')
    """
    if len(said) <= MOST_NAMES + 1:
        return ", ".join(said)
    return f"{', '.join(said[:MOST_NAMES])} and {len(said) - MOST_NAMES:,} more nodes"


def short_name(name: str) -> str:
    """Return a node's name, its middle left out if it is long: both ends tell nodes apart.

    >>> short_name("ip-10-0-1-10"), short_name("ip-10-0-1-10.us-west-2.compute.internal")
    ('ip-10-0-1-10', 'ip-10-0-1-10\u2026te.internal')
    """
    if len(name) <= LONGEST_NAME:
        return name
    tail = (LONGEST_NAME - 1) // 2
    return f"{name[: LONGEST_NAME - 1 - tail]}{ELLIPSIS}{name[-tail:]}"
