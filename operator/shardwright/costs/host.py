"""How much of its node's memory does a pod take: the engine's processes, their shared memory,
Ray's?

The model changes none of it: weights pass through the page cache, which no pod requests.

How long does a node read weights before it can serve? Bytes over the bandwidth of their storage.

No source measures a cluster's storage, so every bandwidth is assumed, with a wide band.
Compilation, graph capture and the start of processes come on top (``rendering/pod_resources.py``).
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from types import MappingProxyType
from typing import Final

from shardwright.layouts.layout import Layout
from shardwright.units import GIB, MIB

SHM_BASE_BYTES: Final = 1 * GIB
"""NCCL's and the executor's own share of ``/dev/shm``; assumed."""

SHM_BYTES_PER_WORKER: Final = 512 * MIB
"""One 240 MiB response queue and its reserve; 2 GiB for two workers is measured
(engine-measurements.md 2).
"""

HOST_BASE_BYTES: Final = 4 * GIB
"""API server and engine core; assumed from 0.9 GiB measured on CPU."""

HOST_BYTES_PER_WORKER: Final = 4 * GIB
"""Host memory of one worker: CUDA libraries, pinned buffers; assumed from 1.6 GiB measured on CPU.
``TOKEN_TABLE_BYTES`` of it are for the token numbers of its requests.
"""

TOKEN_TABLE_BYTES: Final = 1 * GIB
"""What a worker's reserve has for its table of token numbers: 1,024 requests of 262,144 tokens;
assumed.
"""

TOKEN_BYTES: Final = 4
"""Bytes of a token number in the pinned table that a worker keeps of all requests, each as long as
the longest. Source: vLLM 0.33 ``v1/worker/gpu/states.py`` (``max_num_reqs`` x ``max_model_len``, 32
bits).
"""

RAY_BYTES: Final = 640 * MIB
"""Ray's own processes in a pod: 508 MiB measured for a head of ray[default] 2.60, 380 for a head
and 260 for another node of ray (engine-measurements.md 1.2); rounded up.
"""

RAY_STORE_BYTES: Final = 256 * MIB
"""Ray's object store in ``/dev/shm``: it carries the settings of the ranks, no tensors; assumed,
Ray's own minimum is 75 MiB.
"""


def shared_memory_bytes(workers: int, *, over_ray: bool = False) -> int:
    """Return the size of ``/dev/shm`` for a pod of ``workers`` ranks; it counts as the pod's
    memory.

    Formula: ``SHM_BASE_BYTES`` + workers x ``SHM_BYTES_PER_WORKER`` (+ ``RAY_STORE_BYTES``).
    Unit: bytes of a pod.
    Error: assumed to be enough; two workers were measured to need 2 GiB, which this is.
    Source: engine-measurements.md 2 for a worker's part; the other two are assumed.

    >>> shared_memory_bytes(8) / GIB
    5.0
    """
    return SHM_BASE_BYTES + workers * SHM_BYTES_PER_WORKER + (RAY_STORE_BYTES if over_ray else 0)


def host_memory_bytes(workers: int, *, over_ray: bool = False, token_numbers: int = 0) -> int:
    """Return the memory to request for a pod of ``workers`` ranks, shared memory included.

    Formula: ``HOST_BASE_BYTES`` + workers x (``HOST_BYTES_PER_WORKER`` + what a table of
        ``token_numbers`` has beyond ``TOKEN_TABLE_BYTES``, in whole GiB) (+ ``RAY_BYTES``) + shared
        memory.
    Unit: bytes of a pod.
    Error: assumed to be enough: on a CPU 0.9 and 1.6 GiB were measured for the two parts, 4 are
        taken for each.
    Source: assumed; ``RAY_BYTES`` is measured (engine-measurements.md 1.2).

    >>> host_memory_bytes(8) / GIB, host_memory_bytes(8, token_numbers=1024 * 1_048_576) / GIB
    (41.0, 65.0)
    """
    table = max(0, ceil((TOKEN_BYTES * token_numbers - TOKEN_TABLE_BYTES) / GIB)) * GIB
    own = (
        HOST_BASE_BYTES + workers * (HOST_BYTES_PER_WORKER + table) + (RAY_BYTES if over_ray else 0)
    )
    return own + shared_memory_bytes(workers, over_ray=over_ray)


class Storage(StrEnum):
    """The kinds of storage for weights."""

    HUB = "Hub"  #: every node downloads the whole model, again for every new pod
    KEPT = "Kept"  #: downloaded from the hub as well, and kept on a claim for the next start
    IMAGE = "Image"  #: an image that every node pulls whole, before its pod starts
    CLAIM = "Claim"  #: a PersistentVolumeClaim that every node of a group reads its own layers from
    OBJECT_STORE = "ObjectStore"  #: a bucket that the ranks of a node stream one copy of


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpeed:
    """Bytes per second that one node reads; the band divides and multiplies by ``spread``."""

    bytes_per_second: float
    spread: float
    basis: str  # measured | stated | assumed
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingTime:
    """How long a node reads weights, with its band and its basis."""

    seconds: float
    low: float
    high: float
    basis: str
    source: str


IMAGE_BYTES_PER_SECOND: Final = 200_000_000
"""Pulled from a registry and unpacked per node, bytes/s. Basis: assumed, as a download from the
hub; a node that has the image already pulls nothing.
"""

HUB_BYTES_PER_SECOND: Final = 200_000_000
"""Download per node, bytes/s. Basis: assumed, a little below the 249 MB/s of a published 1,044 GiB
in 75 minutes.
"""

CLAIM_BYTES_PER_SECOND: Final = 500_000_000
"""Read from a PersistentVolumeClaim per node, bytes/s. Basis: assumed: a shared file system on a 10
Gbit/s network, half used; node-local disks are ten times as fast, busy ones half.
"""

OBJECT_STORE_BYTES_PER_SECOND: Final = 1_000_000_000
"""Streamed from a bucket per node, bytes/s. Basis: assumed: 8 Gbit/s of the node's network, over 8
connections for each of its ranks.
"""

STATED_SPREAD: Final = 2.0
"""How far a bandwidth that somebody has measured may be off, a factor. Basis: assumed."""

SPEEDS: Final = MappingProxyType(
    {
        Storage.HUB: ReadSpeed(
            bytes_per_second=HUB_BYTES_PER_SECOND,
            spread=4.0,
            basis="assumed",
            source="HUB_BYTES_PER_SECOND",
        ),
        Storage.KEPT: ReadSpeed(
            bytes_per_second=HUB_BYTES_PER_SECOND,
            spread=4.0,
            basis="assumed",
            source="HUB_BYTES_PER_SECOND: the first start",
        ),
        Storage.IMAGE: ReadSpeed(
            bytes_per_second=IMAGE_BYTES_PER_SECOND,
            spread=4.0,
            basis="assumed",
            source="IMAGE_BYTES_PER_SECOND",
        ),
        Storage.CLAIM: ReadSpeed(
            bytes_per_second=CLAIM_BYTES_PER_SECOND,
            spread=4.0,
            basis="assumed",
            source="CLAIM_BYTES_PER_SECOND",
        ),
        Storage.OBJECT_STORE: ReadSpeed(
            bytes_per_second=OBJECT_STORE_BYTES_PER_SECOND,
            spread=4.0,
            basis="assumed",
            source="OBJECT_STORE_BYTES_PER_SECOND",
        ),
    }
)

WHOLE: Final = frozenset({Storage.HUB, Storage.KEPT, Storage.IMAGE, Storage.OBJECT_STORE})
"""Where every node of a group fetches all of the model from."""

UNKNOWN_STORAGE: Final = ReadSpeed(
    bytes_per_second=CLAIM_BYTES_PER_SECOND,
    spread=10.0,
    basis="assumed",
    source="UNKNOWN_STORAGE: from a slow link to a local disk",
)


def distinct_nodes(layout: Layout, gpus_per_node: int) -> int:
    """Return how many nodes of a replica hold different stages; ranks of a stage hold the same
    ones.

    Formula: ceil(stages / stages that a node holds).
    Unit: nodes.
    Error: exact, if the ranks of a stage lie side by side.
    Source: derived.

    >>> (
    ...     distinct_nodes(Layout(tensor=8, pipeline=2), 8),
    ...     distinct_nodes(Layout(attention_data=48, expert=48), 4),
    ... )
    (2, 1)
    """
    return math.ceil(layout.pipeline / max(1, gpus_per_node // layout.tensor))


def read_speed(storage: Storage | None, stated: float | None = None) -> ReadSpeed:
    """Return a node's read speed: the ``stated`` one in bytes/s, or else an assumed one.

    Formula: none: a table.
    Unit: bytes/s of one node.
    Error: a factor of 2 if it is stated, 4 if the storage is known, 10 if it is not;
        assumed.
    Source: the constants above, all assumed.

    >>> speed = read_speed(Storage.HUB)
    >>> speed.bytes_per_second, speed.spread, speed.basis
    (200000000, 4.0, 'assumed')
    """
    if stated is not None:
        return ReadSpeed(
            bytes_per_second=stated, spread=STATED_SPREAD, basis="stated", source="the spec"
        )
    return UNKNOWN_STORAGE if storage is None else SPEEDS[storage]


def loading_time(
    bytes_per_node: int,
    nodes: int,
    storage: Storage | None,
    stated_bytes_per_second: float | None = None,
) -> LoadingTime:
    """Return the time for which the busiest node of a replica reads.

    Formula: bytes / read speed; times the nodes that hold different stages, if each fetches the
        whole model.
    Unit: seconds.
    Error: the spread of :func:`read_speed`, both ways; assumed.
    Source: derived.

    Args:
        bytes_per_node: The bytes of its ranks, each stage once.
        nodes: How many times that the whole model is (``distinct_nodes``): from the hub, an image
            or an object store every node fetches all of it.
        storage: Where the weights lie, None if that is not known.
        stated_bytes_per_second: The rate of a node, as somebody has measured it.

    >>> found = loading_time(10**12, 1, Storage.CLAIM)
    >>> found.seconds, found.low, found.high, found.basis
    (2000.0, 500.0, 8000.0, 'assumed')
    """
    speed = read_speed(storage, stated_bytes_per_second)
    # From a hub or an image each node fetches all stages.
    size = bytes_per_node * (nodes if storage in WHOLE else 1)
    seconds = size / speed.bytes_per_second
    return LoadingTime(
        seconds=seconds,
        low=seconds / speed.spread,
        high=seconds * speed.spread,
        basis=speed.basis,
        source=speed.source,
    )
