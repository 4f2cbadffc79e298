"""Each container's request and limit: GPUs, cores, memory, local disk.

Limits of memory and disk keep an engine from ending its neighbours; they are far above its need,
and may exceed the node's memory. Limits in ``spec.pod.resources`` take precedence, and so does a
LimitRange. Zero means no limit: the kubelet evicts every pod over a disk limit of 0.

How pods ask for a plan's GPUs: by extended resource, or by a claim on a class and a product.
"""

from collections.abc import Mapping
from typing import Any, Final

from shardwright.costs.host import host_memory_bytes
from shardwright.engines.registry import ENGINES
from shardwright.hardware.devices import DRIVER, ClaimedDevices
from shardwright.hardware.untrusted import whole_bytes
from shardwright.planning.report import Plan
from shardwright.rendering import budgets, names, network, ray, volumes
from shardwright.rendering.bundle import digest
from shardwright.rendering.deployment import Ceiling, Deployment
from shardwright.units import GIB, MIB

GPUS: Final = "gpus"
"""Name of a pod's claim on its GPUs, and of the request in it."""


def requested(plan: Plan) -> dict[str, str]:
    """Return a pod's GPUs for its limits and requests, none if it claims them."""
    return {} if plan.claimed else {plan.resource: str(plan.gpus_per_node)}


def names_of(plan: Plan) -> tuple[str, ...]:
    """Return the names of a pod's claims, in order."""
    channel = (network.CHANNEL,) if plan.compute_domain else ()
    return (*channel, GPUS) if plan.claimed else channel


def templates_of(plan: Plan, group: str) -> dict[str, str]:
    """Return the templates of the claims of a group's pods, by claim."""
    templates = {network.CHANNEL: names.channel_template(group)}
    if plan.claimed:
        templates[GPUS] = template_name(plan.claimed, plan.gpus_per_node, group)
    return templates


def template_name(claimed: ClaimedDevices, gpus: int, group: str) -> str:
    """Return the name of a group's ResourceClaimTemplate, which follows from its content."""
    # The spec of a ResourceClaimTemplate is immutable: another request needs another object.
    return names.claim_template(group, digest(claim_spec(claimed, gpus)))


def claim_spec(claimed: ClaimedDevices, gpus: int) -> dict[str, Any]:
    """Return the spec of one pod's claim.

    Source: ``ResourceClaimSpec`` of resource.k8s.io/v1; the product's name needs no escape in CEL
    (``devices._NAME``).
    """
    of = f"device.attributes['{DRIVER}']"
    expression = f"{of}.productName == '{claimed.product}'"
    if claimed.mig_profile:
        expression += f" && {of}.profile == '{claimed.mig_profile}'"
    exactly = {
        "deviceClassName": claimed.device_class,
        "allocationMode": "ExactCount",
        "count": gpus,
        "selectors": [{"cel": {"expression": expression}}],
    }
    return {"devices": {"requests": [{"name": GPUS, "exactly": exactly}]}}


MEMORY: Final = "memory"
DISK: Final = "ephemeral-storage"


def workers_per_pod(plan: Plan) -> int:
    """Return a pod's ranks, which is exactly its GPU limit: vLLM tells local from remote by it."""
    return plan.layout.gpus_per_replica // plan.nodes_per_replica


def of_engine(plan: Plan, deployment: Deployment) -> dict[str, Any]:
    """Return the resources of the engine's container."""
    workers = workers_per_pod(plan)
    devices = {**requested(plan), **network.devices(plan)}
    requests, limits = _bounds(plan, deployment)
    claimed = names_of(plan)
    claims = {"claims": [{"name": name} for name in claimed]} if claimed else {}
    cpu = deployment.pods.cpu or str(budgets.cpus(workers, _engines(plan, deployment)))
    return {
        "requests": {"cpu": cpu, **requests, **devices},
        # The API server takes an extended resource only where its limit is its request.
        "limits": {**devices, **limits},
        **claims,
    }


def _engines(plan: Plan, deployment: Deployment) -> int:
    replicas = max(1, plan.layout.attention_data // plan.nodes_per_replica)
    return replicas if ENGINES[deployment.engine].engine_per_replica else 1


def of_download(plan: Plan, deployment: Deployment) -> dict[str, Any]:
    """Return the download container's resources: alone in the pod, it has the engine's limits."""
    requests, limits = _bounds(plan, deployment)
    memory = deployment.pods.memory or volumes.INIT_MEMORY
    return {
        # No GPUs: the scheduler counts the greater of this and the engine's request, so the pod has
        # them anyway.
        "requests": {"cpu": volumes.INIT_CPU, **requests, MEMORY: memory},
        **({"limits": limits} if limits else {}),
    }


def _bounds(plan: Plan, deployment: Deployment) -> tuple[dict[str, str], dict[str, str]]:
    kept, files = (
        (plan.host_cache.pod_bytes, plan.host_cache.region_bytes) if plan.host_cache else (0, 0)
    )
    memory, most = _memory_bytes(plan, deployment)
    ours = {MEMORY: (memory + kept, most + files), DISK: _disk_bytes(plan, deployment)}
    disk, without_limit = (
        deployment.pods.ephemeral_storage,
        deployment.pods.memory is not None and _is_zero(deployment.pods.memory),
    )
    stated = {MEMORY: _more(deployment.pods.memory, kept), DISK: disk}
    bounds = {
        MEMORY: deployment.pods.memory if without_limit else _more(deployment.pods.memory, files),
        DISK: disk,
    }
    requests = {
        name: stated[name] or budgets.quantity(_whole(request))
        for name, (request, _) in ours.items()
    }
    limits = {
        name: bounds[name] or budgets.quantity(_whole(most)) for name, (_, most) in ours.items()
    }
    return requests, {name: limit for name, limit in limits.items() if not _is_zero(limit)}


def admitted(
    resources: Mapping[str, Any], engine: Mapping[str, str], deployment: Deployment
) -> dict[str, Any]:
    """Return a container's resources as the namespace's LimitRanges admit them.

    ``engine`` are the engine's requests. Limits that a user states stay.
    """
    stated = {MEMORY: deployment.pods.memory, DISK: deployment.pods.ephemeral_storage}
    ceilings = {
        item.resource: item
        for item in reversed(deployment.cluster.ceilings)
        if item.resource in engine
    }
    found = dict(resources)
    if MEMORY in ceilings and ceilings[MEMORY].most_ratio is not None:
        # The little that a download asks for may not have the engine's limit.
        found["requests"] = {**found.get("requests", {}), MEMORY: engine[MEMORY]}
    limits = {
        name: _limit(ceilings[name], engine[name], limit)
        if name in ceilings and stated[name] is None
        else limit
        for name, limit in found.get("limits", {}).items()
    }
    found["limits"] = {k: limit for k, limit in limits.items() if limit is not None}
    # An engine that claims its GPUs may have none.
    if not found["limits"] and "claims" not in found:
        del found["limits"]
    return found


def _memory_bytes(plan: Plan, deployment: Deployment) -> tuple[int, int]:
    workers = workers_per_pod(plan)
    memory = host_memory_bytes(
        workers,
        over_ray=ray.joins(plan, deployment),
        token_numbers=plan.max_sequences * plan.max_model_len,
    )
    return memory, budgets.host_memory_limit_bytes(
        plan, workers, request_bytes=memory, quantizes=deployment.weights.quantization is not None
    )


def _disk_bytes(plan: Plan, deployment: Deployment) -> tuple[int, int]:
    downloaded = budgets.downloaded_bytes(
        plan,
        model=volumes.engine_downloads(deployment),
        draft=volumes.downloads_draft(deployment),
        quantizes=deployment.weights.quantization is not None,
    )
    # Also a request of 0 is said: a limit alone would be requested.
    return plan.disk_bytes, budgets.disk_limit_bytes(downloaded, volumes.scratch_bytes(deployment))


def _more(stated: str | None, kept: int) -> str | None:
    """Return a user's memory for a pod plus the K/V kept beside it; unchanged if none is.

    >>> _more("64Gi", 2 * GIB), _more("1.5Gi", GIB), _more("500M", 0), _more(None, GIB)
    ('66Gi', '2560Mi', '500M', None)
    """
    if stated is None or not kept:
        return stated
    return budgets.quantity(_whole(whole_bytes(stated) + kept))


def _is_zero(stated: str) -> bool:
    """Return whether a quantity is zero, in whatever unit.

    >>> [_is_zero(stated) for stated in ("0", "0Gi", "0.00m", "10", "0.5Gi")]
    [True, True, True, False, False]
    """
    return not stated.strip("0.mkMGTPi")


def _limit(ceiling: Ceiling, request: str, limit: str) -> str | None:
    """Return a limit that the namespace admits, None if its own is high enough.

    One below the request would be refused in any case, without naming the namespace.
    """
    least, most = whole_bytes(request), whole_bytes(limit)
    given, highest = ceiling.given_bytes, ceiling.highest(least)
    # Ours is left out: the namespace gives its own, and that is counted (ADR 21).
    if given is not None and given >= least and (highest is None or given <= highest):
        return None
    if highest is not None and highest < most:
        # Rounded down, because one byte above the namespace's highest limit is refused. A limit
        # below the request would be refused, too, without a word about the LimitRange.
        return budgets.quantity(max(highest // MIB * MIB, least))
    return limit


def _whole(count: int) -> int:
    """Return bytes rounded up to GiB, unless they are whole MiB."""
    return count if count % MIB == 0 else -(-count // GIB) * GIB
