"""Each container's request and limit: GPUs, cores, memory, local disk.

Limits of memory and disk keep an engine from ending its neighbours; they are far above its need,
and may exceed the node's memory. Limits in ``spec.pod.resources`` take precedence, and so does a
LimitRange. Zero means no limit: the kubelet evicts every pod over a disk limit of 0.

How pods ask for a plan's GPUs: by extended resource, or by a claim on a class and a product.

Times and sizes of a pod that follow from the plan: start-up, drain, shared memory, host memory.

Speeds of storage are assumed in ``costs.loading``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any, Final

from shardwright.costs.host import WHOLE, Storage, distinct_nodes, host_memory_bytes, read_speed
from shardwright.engines.registry import ENGINES
from shardwright.hardware.devices import DRIVER, ClaimedDevices
from shardwright.hardware.untrusted import whole_bytes
from shardwright.planning.report import Plan
from shardwright.rendering import names, network, ray, volumes
from shardwright.rendering.bundle import digest
from shardwright.rendering.deployment import Ceiling, Deployment
from shardwright.units import GIB, MIB, format_bytes

BASE_SECONDS: Final = 180
"""Start of processes, imports, rendezvous; assumed from 66 s measured for one process on two cores
(engine-measurements.md 3).
"""

COMPILE_SECONDS: Final = 300
"""torch.compile and CUDA graph capture with a cold cache; assumed: no GPU was there."""

LEAST_SECONDS: Final = 600
"""Least start-up budget; assumed: ten minutes is what shipped operators start from."""

LAST_WORDS_SECONDS: Final = 60
"""How long an engine that has not come up within its start-up budget may take to say so itself;
assumed.
"""

IMAGE_SECONDS: Final = 900
"""Seconds for a node to pull and unpack the engine's image; assumed: 20 GB at 25 MB/s, and 100 s.
"""

LOAD_SAFETY: Final = 2
"""How much slower than assumed reading may be before it counts as failed; assumed."""

DOWNLOAD_SAFETY: Final = 4
"""How much slower than assumed a download, or an engine's stream, may be; assumed, high as a new
start loses all of it.
"""

ENDPOINT_SECONDS: Final = 5
"""From deletion of a pod until every node has dropped it from the Service; assumed, as in
engine-measurements.md 5.6.
"""

SHUTDOWN_SECONDS: Final = 10
"""``--shutdown-timeout``: what SIGTERM leaves to requests that the drain did not see end; assumed.
"""

EXIT_SECONDS: Final = 30
"""From SIGTERM until a rank is gone; measured 11 to 19 s for a follower
(engine-measurements.md 4), rounded up.
"""

EXECUTE_SECONDS: Final = 120
"""``VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS``: ends a leader whose peer is gone;
engine-measurements.md 2 recommends 60 to 120.
"""

RUN_BYTES: Final = 16 * MIB
"""What the launch script keeps of a start: addresses, numbers of processes, copies of keys;
assumed, some kilobytes are used.
"""

HOST_SPARE_BYTES_PER_WORKER: Final = 16 * GIB
"""Bytes beyond a rank's request: kernel compilers, images and audio of requests, growth; assumed,
generously: the limit is for engines that grow without bound.
"""

LARGEST_FILE_BYTES: Final = 50 * 10**9
"""The largest file of a checkpoint that a rank holds in memory as a whole while it loads: pickled
files, and safetensors that are not mapped; Run:ai's streamer holds as much of many files (40 GB by
default). Basis: assumed from the size at which transformers 5 cuts files by default, 50 GB; in
earlier ones it is 5 GB.
"""

DISK_BASE_BYTES: Final = 2 * GIB
"""Local disk that each pod writes beside what it downloads: compiled kernels, logs, sockets;
assumed from 150 MiB measured of one rank of vLLM 0.32 for the CPU (docs/what-ran-where.md).
"""

DISK_SPARE_BYTES: Final = 48 * GIB
"""What a pod may write beyond that: kernels of many shapes, the hub's cache of chunks (10 GB),
adapters, Ray's logs; assumed.
"""

DOWNLOAD_LIMIT_FACTOR: Final = 2
"""How many copies of the weights may lie on the disk: of a repository without safetensors
``programs/weights.py`` fetches every format. Basis: assumed, two.
"""

COHERENT_HOSTS: Final = frozenset({"arm64"})
"""Architectures of nodes whose GPUs can share their memory with the host (Grace): there a memory
limit may count it. Source: NVIDIA's description of the NUMA mode of such platforms; not measured.
On other nodes of the architecture the limit is higher than it need be.
"""

CPUS_PER_WORKER: Final = 1
CPUS_PER_ENGINE: Final = 1
CPUS_PER_FURTHER_SERVER: Final = 1
"""Cores that busy loops of each worker and of each engine core keep, and an API server for every
engine beyond the first, with whose core the first shares; assumed, vLLM 0.33 starts as many servers
as engines. No pod requests more than three cores for a GPU: the smallest cloud nodes have four.
"""


FILE_BYTES_PER_FP8_BYTE: Final = 2
"""Bytes in the files of a byte of weights that the engine makes FP8 while loading: they hold 16
bits an element.
"""


HOST_FILL_BYTES_PER_SECOND: Final = 2 * 10**9
"""How fast an engine fills and pins the host memory that it keeps K/V in, before it serves;
assumed: vLLM 0.33 says that one file is filled at 10 GiB/s at most, 0.32 lets one rank fill all.
"""


_REMEMBERED: Final = 1024
"""Start-up budgets that are not worked out anew. Basis: chosen, as many as models were measured
together.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBudget:
    """How long an engine may take to serve, ``load_seconds`` from its start; ``basis`` explains it.

    Before that the ranks of a group wait for each other indefinitely: pulling an image or
    downloading is no failure.
    """

    load_seconds: int
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    words: str
    safety: int


_READING: Final = {
    Storage.HUB: _Reading(words="downloaded", safety=DOWNLOAD_SAFETY),
    Storage.OBJECT_STORE: _Reading(words="read from the object store", safety=DOWNLOAD_SAFETY),
    Storage.CLAIM: _Reading(words="read from its volume", safety=LOAD_SAFETY),
}
"""What an engine itself reads: what an image or a cache has lies on a volume when it starts."""


def start_budget(
    plan: Plan,
    *,
    storage: Storage,
    stated_bytes_per_second: float | None = None,
    quantizes: bool = False,
) -> StartBudget:
    """Return the start-up budget: bytes over assumed bandwidth, a reserve, and fixed times.

    From the hub or an object store every node reads the whole model, from a claim (``storage``) its
    own layers. ``quantizes``: the engine shrinks the bytes that it reads.
    """
    kept = plan.host_cache.pod_bytes if plan.host_cache else 0
    return _start_budget(
        file_bytes(plan, whole=storage in WHOLE, quantizes=quantizes),
        kept,
        storage,
        stated_bytes_per_second,
        several=plan.nodes_per_replica > 1,
    )


@lru_cache(maxsize=_REMEMBERED)  # a reconcile asks for it a dozen times, and spells it out
def _start_budget(
    size: int, kept: int, storage: Storage, stated_bytes_per_second: float | None, *, several: bool
) -> StartBudget:
    found, reading = read_speed(storage, stated_bytes_per_second), _READING[storage]
    speed, safety = found.bytes_per_second, reading.safety
    fill = ceil(kept / HOST_FILL_BYTES_PER_SECOND)
    load = (
        max(LEAST_SECONDS, BASE_SECONDS + COMPILE_SECONDS + ceil(safety * size / speed))
        # Beside the least of ten minutes: the engine fills this memory in addition to all else.
        + fill
    )
    basis = (
        f"{load} s: {BASE_SECONDS} s start, {format_bytes(size)} {reading.words} at "
        f"{speed / 1e6:.0f} MB/s ({found.basis}) x {safety},"
        f" {COMPILE_SECONDS} s compilation; at least {LEAST_SECONDS} s"
        f"{f', {fill} s to fill {format_bytes(kept)} of host memory' if kept else ''}"
    )
    met = "; from when all ranks have met, for which there is no limit" if several else ""
    return StartBudget(load_seconds=load, basis=f"{basis}{met}")


def grace_seconds(drain: int) -> int:
    """Return ``terminationGracePeriodSeconds`` of every rank: followers outlive the leader's
    drain.

    >>> grace_seconds(60)
    105
    """
    return ENDPOINT_SECONDS + drain + SHUTDOWN_SECONDS + EXIT_SECONDS


def file_bytes(plan: Plan, *, whole: bool, quantizes: bool) -> int:
    """Return the bytes a node loads, of the ``whole`` model, before the engine ``quantizes``."""
    nodes = distinct_nodes(plan.layout, plan.gpus_per_node) if whole else 1
    return (
        # The plan has the bytes of one node. The nodes that hold different stages have the whole
        # model together, each layer once.
        plan.load_bytes_per_node * nodes * (FILE_BYTES_PER_FP8_BYTE if quantizes else 1)
    )


def host_memory_limit_bytes(
    plan: Plan, workers: int, *, request_bytes: int, quantizes: bool
) -> int:
    """Return the memory limit of a pod of ``workers`` ranks; it may exceed its node's."""
    file = min(LARGEST_FILE_BYTES, file_bytes(plan, whole=True, quantizes=quantizes))
    # The budget is a share of the GPU; divided by that share it is all of it.
    gpu = max((stage.budget_bytes for stage in plan.stages), default=0) / plan.memory_utilization
    shared = ceil(gpu) if plan.architecture in COHERENT_HOSTS else 0
    return request_bytes + workers * (HOST_SPARE_BYTES_PER_WORKER + file + shared)


def downloaded_bytes(plan: Plan, *, model: bool, draft: bool, quantizes: bool) -> int:
    """Return the bytes a pod downloads: of its model, its draft model, or both."""
    if model:  # a draft model is among what is loaded
        return file_bytes(plan, whole=True, quantizes=quantizes)
    return (
        max((stage.draft_bytes for stage in plan.stages), default=0) * plan.layout.tensor
        if draft
        else 0
    )


def disk_request_bytes(downloaded_bytes: int) -> int:
    """Return a pod's request for local disk in whole GiB, nothing if it downloads nothing.

    >>> disk_request_bytes(16 * 10**9) / GIB, disk_request_bytes(0)
    (17.0, 0)
    """
    return ceil((downloaded_bytes + DISK_BASE_BYTES) / GIB) * GIB if downloaded_bytes else 0


def disk_limit_bytes(downloaded_bytes: int, scratch_bytes: int = 0) -> int:
    """Return a pod's limit of local disk, by its downloads and its user's folders."""
    return (
        DISK_BASE_BYTES
        + DISK_SPARE_BYTES
        + DOWNLOAD_LIMIT_FACTOR * downloaded_bytes
        + scratch_bytes
    )


def cpus(workers: int, engines: int = 1) -> int:
    """Return the cores to request for a pod of ``workers`` ranks, dealt out to so many engines.

    >>> cpus(1), cpus(8), cpus(8, engines=8)
    (2, 9, 23)
    """
    servers = (engines - 1) * CPUS_PER_FURTHER_SERVER
    return workers * CPUS_PER_WORKER + engines * CPUS_PER_ENGINE + servers


def quantity(count: int) -> str:
    """Return bytes as the API server would write the quantity, so that nothing seems to drift.

    >>> quantity(5 * GIB), quantity(1536 * MIB), quantity(0)
    ('5Gi', '1536Mi', '0')
    """
    if count == 0:
        return "0"
    return f"{count // GIB}Gi" if count % GIB == 0 else f"{count // MIB}Mi"


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
    cpu = deployment.pods.cpu or str(cpus(workers, _engines(plan, deployment)))
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
        name: stated[name] or quantity(_whole(request)) for name, (request, _) in ours.items()
    }
    limits = {name: bounds[name] or quantity(_whole(most)) for name, (_, most) in ours.items()}
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
    return memory, host_memory_limit_bytes(
        plan, workers, request_bytes=memory, quantizes=deployment.weights.quantization is not None
    )


def _disk_bytes(plan: Plan, deployment: Deployment) -> tuple[int, int]:
    downloaded = downloaded_bytes(
        plan,
        model=volumes.downloads_model(deployment),
        draft=volumes.downloads_draft(deployment),
        quantizes=deployment.weights.quantization is not None,
    )
    # Also a request of 0 is said: a limit alone would be requested.
    return plan.disk_bytes, disk_limit_bytes(downloaded, volumes.scratch_bytes(deployment))


def _more(stated: str | None, kept: int) -> str | None:
    """Return a user's memory for a pod plus the K/V kept beside it; unchanged if none is.

    >>> _more("64Gi", 2 * GIB), _more("1.5Gi", GIB), _more("500M", 0), _more(None, GIB)
    ('66Gi', '2560Mi', '500M', None)
    """
    if stated is None or not kept:
        return stated
    return quantity(_whole(whole_bytes(stated) + kept))


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
        return quantity(max(highest // MIB * MIB, least))
    return limit


def _whole(count: int) -> int:
    """Return bytes rounded up to GiB, unless they are whole MiB."""
    return count if count % MIB == 0 else -(-count // GIB) * GIB
