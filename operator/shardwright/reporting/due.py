"""What is to be done before a plan is applied, the most important first: facts of the plan and of
its question, each in one sentence.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from shardwright.costs.loading import Storage
from shardwright.hardware.inventory import Inventory, Pool
from shardwright.planning.phrases import UNKNOWN_PODS, copies
from shardwright.planning.report import Enough, Plan
from shardwright.planning.request import Request
from shardwright.planning.select import UTILISATION
from shardwright.reporting.explanation import pool_of
from shardwright.reporting.shortfall import behind, serves_rate
from shardwright.reporting.where import crossed_network
from shardwright.units import format_bytes

SECRET: Final = "hub-token"  # noqa: S105 - a name, no token


class Due(StrEnum):
    """A thing to do before a plan is applied, the most important first."""

    NOT_DEPLOYABLE = "NotDeployable"
    NOT_CARRIED = "NotCarried"
    GATED = "Gated"
    CACHE_TOO_SMALL = "CacheTooSmall"
    TIGHT = "Tight"
    PODS_UNKNOWN = "PodsUnknown"
    NETWORK_MISSED = "NetworkMissed"
    NETWORK_ASSUMED = "NetworkAssumed"
    DOWNLOADS = "Downloads"


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePoint:
    """One thing to do, in words, with the command that does it (empty: none does)."""

    due: Due
    said: str
    command: str = ""


def points(
    plan: Plan, request: Request | None, inventory: Inventory | None, *, named: bool
) -> tuple[DuePoint, ...]:
    """Return everything to be done first, in the order of :class:`Due`.

    ``named``: the GPUs were named on the command line, so that no node has a label.
    """
    pool = pool_of(plan, inventory)
    return (
        *_not_deployable(plan),
        *(_gated(request) if request else ()),
        *(_cache(request) if request else ()),
        *_load(plan, request),
        *_tight(plan),
        *(_pods(inventory) if inventory else ()),
        *(_network(plan, pool, named=named) if pool else ()),
        *(_downloads(request) if request else ()),
    )


def _not_deployable(plan: Plan) -> Iterator[DuePoint]:
    if plan.undeployable:
        why = replace(plan.undeployable, path="", gap="").sentence()
        yield DuePoint(due=Due.NOT_DEPLOYABLE, said=f"cannot be deployed yet: {why}")


def _gated(request: Request) -> Iterator[DuePoint]:
    if request.gated:
        namespace, _ = request.owner
        kubectl = f"kubectl -n {namespace}" if namespace else "kubectl"
        yield DuePoint(
            due=Due.GATED,
            said="gated: accept its terms on the hub, and name a token in weights.secretRef:",
            command=f"{kubectl} create secret generic {SECRET} --from-literal=token=hf_...",
        )


def _cache(request: Request) -> Iterator[DuePoint]:
    if request.cache_bytes is not None and request.cache_bytes < request.file_bytes:
        room, weights = format_bytes(request.cache_bytes), format_bytes(request.file_bytes)
        yield DuePoint(
            due=Due.CACHE_TOO_SMALL,
            said=f"weights.cache.storage is {room}, the weights alone are {weights}",
        )


def _load(plan: Plan, request: Request | None) -> Iterator[DuePoint]:
    if plan.carries_load or not plan.groups:
        return
    if plan.enough is not None:
        late = "more arrives than is served at most"
        if serves_rate(plan, request):
            late = f"above {UTILISATION:.0%} of what is served at most"
        yield DuePoint(due=Due.NOT_CARRIED, said=f"{late}: {_would_do(plan.enough)}")
    elif request is not None:
        yield DuePoint(due=Due.NOT_CARRIED, said=behind(plan, request))


def _would_do(enough: Enough) -> str:
    gpus, free = enough.layout.gpus, enough.free
    room = "all free" if gpus <= free else f"{free:,} free"
    return f"{copies(enough.layout)} would do ({gpus:,} GPUs, {room})"


def _tight(plan: Plan) -> Iterator[DuePoint]:
    if plan.tight:
        said = "tight: may not start, room for K/V is within the error of memory"
        yield DuePoint(due=Due.TIGHT, said=said)


def _pods(inventory: Inventory) -> Iterator[DuePoint]:
    if said := UNKNOWN_PODS.get(inventory.known_pods):
        yield DuePoint(due=Due.PODS_UNKNOWN, said=said)


def _network(plan: Plan, pool: Pool, *, named: bool) -> Iterator[DuePoint]:
    link, missed = crossed_network(plan, pool), pool.reach.missed
    if link is None:
        return
    if missed is not None:
        yield DuePoint(
            due=Due.NETWORK_MISSED,
            said=f"pods do not reach the nodes' {missed.name} (docs/howto/network.md)",
        )
    elif link.basis == "assumed":
        how = "--network" if named else "node label shardwright.io/network-gbps-per-gpu"
        yield DuePoint(
            due=Due.NETWORK_ASSUMED, said=f"{link.name} per GPU is assumed: state yours, {how}"
        )


def _downloads(request: Request) -> Iterator[DuePoint]:
    if request.storage is Storage.HUB and request.file_bytes:
        weights = format_bytes(request.file_bytes)
        yield DuePoint(
            due=Due.DOWNLOADS,
            said=f"each start downloads {weights}: spec.model.weights.cache keeps them",
        )
