"""What can a cluster and an engine's image do for the pods of a model beside offering GPUs?

What one of them lacks is an input of the planner: it plans without, and says what that costs.

How do the pods of a group reach the network between their nodes: by RDMA devices, or over TCP?

A pod sees only the devices that it requests: without any it reaches the fastest network over TCP.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from shardwright.hardware.gpus import Link
from shardwright.hardware.topology import GKE_NETWORKS, NetworkWay, is_rdma, over_tcp


class Capability(StrEnum):
    """Something that pods of a plan need and that not every cluster or image has.

    The first two are the kinds of object that a cluster must serve.
    """

    COMPUTE_DOMAINS = "ComputeDomain"  #: by NVIDIA's DRA driver: NVLink joins pods on several nodes
    DEVICE_CLAIMS = "ResourceClaimTemplate"  #: pods claim GPUs that a DRA driver serves
    EFA = "EFA"  #: the image has the NCCL plugin for AWS's network
    GIB = "GIB"  #: the image has the NCCL plugin for the RoCE of GKE


NETWORK_PLUGINS: Final = (Capability.EFA, Capability.GIB)
"""What only the image has or lacks."""

SERVED_KINDS = (Capability.COMPUTE_DOMAINS, Capability.DEVICE_CLAIMS)
"""What a cluster has if it serves the kind of object of this name."""


def lacking(absent_kinds: Collection[str]) -> tuple[Capability, ...]:
    """Return what a cluster lacks that does not serve these kinds of object.

    >>> lacking({"ComputeDomain", "Workload"})
    (<Capability.COMPUTE_DOMAINS: 'ComputeDomain'>,)
    """
    return tuple(item for item in SERVED_KINDS if item in absent_kinds)


Devices = tuple[tuple[str, int], ...]
"""Extended resources and how many of each, sorted by name."""

SHARED_ABOVE: Final = 64
"""Device plugins that share one NIC among pods advertise more devices than this; then a pod needs
one. Unit: devices. Basis: assumed, between the 32 EFA devices of a p5 and the 1,000 of shared
plugins.
"""

_PLUGIN_OF: Final[Mapping[str, Capability]] = MappingProxyType(
    {"vpc.amazonaws.com/efa": Capability.EFA, GKE_NETWORKS: Capability.GIB}
)
"""By the beginning of a device's name: the network plugin by which NCCL uses it; without it in the
image NCCL takes TCP, and says no word of it. Others are reached by NCCL itself. Sources:
vllm-project/vllm#55635; docs.nvidia.com/aicr, "GKE GB200 (A4X) Networking Prerequisites".
"""


class RdmaMode(StrEnum):
    """Which RDMA devices pods of groups over several nodes request."""

    NONE = "None"  #: nothing: TCP
    AUTO = "Auto"  #: those that the planned nodes offer
    EXPLICIT = "Explicit"  #: the named ones


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaRequest:
    """The user's choice; with EXPLICIT every pod requests the ``devices``.

    ``plugins`` are those of the image: AUTO requests no device that needs another one.
    """

    mode: RdmaMode = RdmaMode.AUTO
    devices: Devices = ()
    plugins: tuple[Capability, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How pods reach the network of nodes that are alike.

    ``devices`` are what every node offers (AUTO) or every pod requests (EXPLICIT). ``missed`` is
    the RDMA network that is there and not reached, ``lacking`` the named resource that the nodes
    lack. ``plugin`` is what the image lacks to reach it by the ``unused`` devices of the nodes,
    ``way`` how the nodes' provider gives it to pods.
    """

    mode: RdmaMode = RdmaMode.AUTO
    devices: Devices = ()
    missed: Link | None = None
    lacking: str = ""
    plugin: Capability | None = None
    unused: Devices = ()
    way: NetworkWay = NetworkWay.RESOURCES

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the devices, those without a plugin included."""
        return tuple(name for name, _ in (*self.devices, *self.unused))

    def requested(self, gpus: int, gpus_per_node: int) -> Devices:
        """Return the devices of a pod with ``gpus`` of a node's: its share of exclusive ones, one
        of each shared.

        >>> Reach(devices=(("rdma/ib", 1000), ("vpc.amazonaws.com/efa", 32))).requested(4, 8)
        (('rdma/ib', 1), ('vpc.amazonaws.com/efa', 16))
        """
        if self.mode is RdmaMode.EXPLICIT:
            return self.devices
        share = ((name, max(1, count * gpus // gpus_per_node)) for name, count in self.devices)
        return tuple(
            (name, 1 if offered > SHARED_ABOVE else count)
            for (name, count), (_, offered) in zip(share, self.devices, strict=True)
        )


@lru_cache(maxsize=4096)
def reach(
    network: Link,
    offered: Devices,
    gpus: int,
    wanted: RdmaRequest,
    way: NetworkWay = NetworkWay.RESOURCES,
) -> tuple[Link, Reach]:
    """Return the link between nodes that pods really use, and how they reach it.

    Args:
        network: The node's own network, per GPU.
        offered: RDMA devices that the node offers.
        gpus: GPUs of the node, which share the rate of TCP.
        wanted: The user's choice.
        way: How the provider gives the network to pods.
    """
    lacking = _lacking(offered, wanted)
    unused = _without_plugin(offered, wanted)
    usable = tuple(device for device in offered if device not in unused)
    reached = wanted.mode is not RdmaMode.NONE and not lacking
    if wanted.mode is RdmaMode.AUTO:
        # A stated rate of the network implies that pods reach it, by devices that they can use.
        reached = bool(usable) or (network.basis == "stated" and not unused)
    if reached or not is_rdma(network):
        devices = {RdmaMode.AUTO: usable, RdmaMode.EXPLICIT: wanted.devices}.get(wanted.mode, ())
        return network, Reach(mode=wanted.mode, devices=() if lacking else devices, lacking=lacking)
    return over_tcp(network, gpus), Reach(
        mode=wanted.mode,
        missed=network,
        lacking=lacking,
        plugin=_plugin_of(unused[0][0]) if unused else None,
        unused=unused,
        way=way,
    )


def _without_plugin(offered: Devices, wanted: RdmaRequest) -> Devices:
    if wanted.mode is not RdmaMode.AUTO:
        return ()
    return tuple(
        (name, count) for name, count in offered if _plugin_of(name) not in {None, *wanted.plugins}
    )


def _plugin_of(device: str) -> Capability | None:
    return next((by for name, by in _PLUGIN_OF.items() if device.startswith(name)), None)


def _lacking(offered: Devices, wanted: RdmaRequest) -> str:
    there = dict(offered)
    return next((name for name, count in wanted.devices if there.get(name, 0) < count), "")
