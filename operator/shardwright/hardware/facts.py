"""Which facts of a Node are kept? Small ones, equal as long as nothing that matters has changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from shardwright.hardware.devices import ClaimedDevices
from shardwright.hardware.gpus import Gpu, Link
from shardwright.hardware.inventory import Taint
from shardwright.hardware.topology import Domain


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node with whole, known GPUs; a heartbeat does not change it.

    ``gpus`` are the healthy ones (allocatable), held or free. ``gpu`` is the catalogue row with the
    memory of this node's labels, ``host_bytes`` the node's memory for pods and ``disk_bytes`` its
    local disk for them (None: not said), ``gpu_hour_price`` the price of one GPU for an hour,
    ``rdma`` the RDMA devices that pods may request. ``created`` is the creation time of the Node,
    as the API server wrote it. ``taints`` leave out those that ``schedulable``, ``ready`` and
    ``deleting`` stand for. ``claimed`` are the devices that pods claim for its GPUs (None: they
    request ``resource``). ``published``: ResourceSlices have its GPUs, so claims alone hold them.
    """

    name: str
    resource: str
    gpus: int
    gpu: Gpu
    product: str
    architecture: str
    domain: Domain
    network: Link
    path: tuple[tuple[str, str], ...]
    labels: Mapping[str, str] = field(hash=False)
    taints: tuple[Taint, ...] = ()
    schedulable: bool = True
    ready: bool = True
    created: datetime | None = None
    deleting: bool = False
    warnings: tuple[str, ...] = ()
    gpu_hour_price: float | None = None
    rdma: tuple[tuple[str, int], ...] = ()
    host_bytes: int | None = None
    disk_bytes: int | None = None
    claimed: ClaimedDevices | None = None
    published: bool = False
