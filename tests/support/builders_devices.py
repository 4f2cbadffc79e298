"""GPUs of a node as its ResourceSlices are read (``hardware.devices.NodeDevices``)."""

from typing import Any

from shardwright.hardware.devices import MIG_CLASS, ClaimedDevices, NodeDevices
from shardwright.units import MIB
from tests.harness.gpu_devices import H100

EIGHT = NodeDevices(
    product=H100, gpus=8, usable=8, memory_bytes=81559 * MIB, capability=(9, 0), pcie_roots=8
)
"""Eight H100, which pods request."""


def a_cut_gpu(**changes: Any) -> NodeDevices:
    """Return the seven slices of an H100, which pods claim."""
    claimed = ClaimedDevices(device_class=MIG_CLASS, product=H100, mig_profile="1g.10gb")
    seven: dict[str, Any] = {
        "product": H100,
        "gpus": 7,
        "usable": 7,
        "memory_bytes": 9984 * MIB,
        "capability": (9, 0),
        "claimed": claimed,
        "mig_profile": "1g.10gb",
    }
    return NodeDevices(**{**seven, **changes})
