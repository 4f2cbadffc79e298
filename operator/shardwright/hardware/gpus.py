"""The GPU catalogue: what data sheets and node labels say about each product, with basis and source.

An unknown product is reported, never guessed. The rows are data (``gpus.csv``), read once.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A kind of link between GPUs, as one GPU sees it, in one direction.

    ``latency_seconds`` is the start-up time of one step of a collective over it.
    """

    name: str  # "NVLink4 NVSwitch", "PCIe 4 x16", "400G RDMA", ...
    bytes_per_second: float
    latency_seconds: float
    basis: str  # datasheet | measured | fitted | assumed
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator of the catalogue; FLOP/s are dense.

    ``flops`` maps bf16, fp16, fp8, int8, fp4 to FLOP/s; a missing key means that the GPU has no such
    unit (no BF16 before compute capability 8.0, no FP8 before 8.9). ``scale_up_gpus`` is how many GPUs
    the scale-up link joins at most (1: none).
    """

    id: str
    vendor: str  # NVIDIA | AMD | ...
    memory_bytes: int
    memory_bytes_per_second: float
    flops: Mapping[str, float]
    scale_up: Link | None
    scale_up_gpus: int
    host: Link  # PCIe: what two GPUs of a node use where the scale-up link does not reach
    compute_capability: tuple[int, int] | None
    basis: str
    source: str
