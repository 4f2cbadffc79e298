"""How long does a node read weights before it can serve? Bytes over the bandwidth of their storage.

No source measures a cluster's storage, so every bandwidth is assumed, with a wide band.
Compilation, graph capture and the start of processes come on top (``rendering/budgets.py``).
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from shardwright.layouts.layout import Layout


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
