"""How much better would a plan be with what the cluster or the image lacks?

The same question is asked once more, on the nodes that it concerns as they would be then.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from shardwright.hardware.capabilities import NETWORK_PLUGINS, SERVED_KINDS, Capability
from shardwright.hardware.inventory import Inventory, Pool
from shardwright.planning.checks import Verdict
from shardwright.planning.gain import better
from shardwright.planning.phrases import degrees
from shardwright.planning.report import Exclusion, NoPlan, Plan
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import Scale

GAIN_SHOWN_MIN: Final = 0.03
"""Share of the objective below which a gain is not worth a word. Basis: assumed, a third of the
median error of throughput.
"""


_BY: Final[Mapping[Capability, str]] = MappingProxyType(
    {
        Capability.COMPUTE_DOMAINS: "NVIDIA's DRA driver (ComputeDomains join nodes by NVLink)",
        **{
            plugin: f"an image with NCCL's plugin for {plugin} (spec.pod.network.plugins says so)"
            for plugin in NETWORK_PLUGINS
        },
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedPlan:
    """A plan that a missing capability rules out, ``used_by`` as many layouts.

    ``gain`` is its gain over the plan without, as a share of the objective. None: that does not
    carry the load, or there is none.
    """

    capability: Capability
    plan: Plan
    used_by: int
    gain: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The outcome of a question on an inventory."""

    outcome: Plan | NoPlan
    inventory: Inventory


def with_capability(inventory: Inventory) -> Iterator[tuple[Capability, Inventory]]:
    """Yield each capability whose lack changes pools of an inventory, with these pools as they
    would be with it.
    """
    for capability in (Capability.COMPUTE_DOMAINS, *NETWORK_PLUGINS):
        changed = (_changed(pool, capability) for pool in inventory.pools)
        pools = tuple(pool for pool in changed if pool is not None)
        if pools:
            yield capability, replace(inventory, pools=pools)


def _changed(pool: Pool, capability: Capability) -> Pool | None:
    if capability is Capability.COMPUTE_DOMAINS:
        return _opened(pool)
    return _reached(pool) if pool.reach.plugin is capability else None


def _opened(pool: Pool) -> Pool | None:
    sizes: Counter[str] = Counter()
    for node in pool.nodes:
        sizes[node.unopened] += node.gpus
    del sizes[""]
    largest = max(sizes.values(), default=0)
    if largest <= pool.gpus_per_node:
        return None
    nodes = tuple(replace(node, domain=node.unopened or node.domain) for node in pool.nodes)
    return replace(pool, nodes=nodes, domain_gpus=largest, joins_pods=True)


def _reached(pool: Pool) -> Pool | None:
    reach = pool.reach
    if reach.missed is None:
        return None
    there = replace(reach, missed=None, plugin=None, devices=reach.unused, unused=())
    return replace(pool, network=reach.missed, reach=there)


def needed_by(plan: Plan) -> frozenset[Capability]:
    """Return what the cluster must serve for the pods of a plan."""
    needs = {
        Capability.COMPUTE_DOMAINS: plan.compute_domain,
        Capability.DEVICE_CLAIMS: plan.claimed is not None,
    }
    return frozenset(capability for capability, needed in needs.items() if needed)


def may_bring(capability: Capability, outcome: Plan | NoPlan, request: Request) -> bool:
    """Return whether a capability may bring a better plan.

    A network brings none where instances inside nodes carry the load: none goes over nodes then,
    but for Latency.
    """
    if capability not in NETWORK_PLUGINS or isinstance(outcome, NoPlan):
        return True
    latency = request.objective.optimize_for is OptimizeFor.LATENCY
    return latency or not outcome.carries_load or outcome.nodes_per_replica > 1


def brought_by(
    capability: Capability,
    there: Answered,
    here: Answered,
    verdicts: Sequence[Verdict],
    scale: Scale,
) -> MissedPlan | None:
    """Return what a capability would bring, None if nothing that is worth a word.

    Args:
        capability: The one that lacks.
        there: The answer with it, on the pools as they would be.
        here: The answer without it, on all pools as they are.
        verdicts: The layouts that were tried with it.
        scale: The measure of the plans.
    """
    found, stands = there.outcome, here.outcome
    if isinstance(found, NoPlan) or not _uses(capability, found):
        return None
    used_by = sum(_needs(capability, verdict) for verdict in verdicts if not verdict.violations)
    if isinstance(stands, NoPlan):
        return MissedPlan(capability=capability, plan=found, used_by=used_by, gain=None)
    changed = there.inventory.pools
    names = {pool.name for pool in changed}
    others = (pool for pool in here.inventory.pools if pool.name not in names)
    both = replace(here.inventory, pools=(*changed, *others))
    gain = better(found, stands, both, scale)
    if gain is None or (gain.gain is not None and gain.gain < GAIN_SHOWN_MIN):
        return None
    return MissedPlan(capability=capability, plan=found, used_by=used_by, gain=gain.gain)


def _uses(capability: Capability, plan: Plan) -> bool:
    return bool(plan.rdma) if capability in NETWORK_PLUGINS else capability in needed_by(plan)


def _needs(capability: Capability, verdict: Verdict) -> bool:
    candidate = verdict.candidate
    if capability is Capability.COMPUTE_DOMAINS:
        return candidate.needs_compute_domain
    return bool(candidate.rdma_devices)


_CODES: Final[Mapping[Capability, str]] = MappingProxyType(
    {
        Capability.COMPUTE_DOMAINS: "ComputeDomainUnavailable",
        Capability.DEVICE_CLAIMS: "DeviceClaimsUnavailable",
        **dict.fromkeys(NETWORK_PLUGINS, "NetworkPluginMissing"),
    }
)
"""The reason for which layouts, or nodes, are ruled out without it."""


def exclusion(found: MissedPlan) -> Exclusion:
    """Return the layouts that a missing capability rules out, counted, the best one as the nearest
    miss.
    """
    said = sentence(found)
    return Exclusion(
        code=_CODES[found.capability], count=found.used_by, example=said, nearest_miss=said
    )


def missed_by(excluded: Sequence[Exclusion]) -> frozenset[Capability]:
    """Return the capabilities of a cluster without which a plan was made, to its loss.

    >>> missed = Exclusion(code="DeviceClaimsUnavailable", count=8, example="", nearest_miss="")
    >>> missed_by([missed])
    frozenset({<Capability.DEVICE_CLAIMS: 'ResourceClaimTemplate'>})
    """
    codes = {item.code for item in excluded}
    return frozenset(capability for capability in SERVED_KINDS if _CODES[capability] in codes)


def sentence(found: MissedPlan) -> str:
    """Return what a capability would bring, in one line."""
    brings = "the load is carried" if found.gain is None else f"{found.gain:.0%} better"
    return (
        f"{brings} with {_BY[found.capability]}: {degrees(found.plan.layout)} on {found.plan.pool}"
    )
