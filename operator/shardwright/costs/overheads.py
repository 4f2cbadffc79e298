"""How much memory does an engine take for libraries, CUDA graphs and communication buffers?

The engine measures these at its start; the figures are fitted to the memory rows of
``docs/memory.md``, and :func:`band_bytes` says how far they may be off.
"""

import math
from dataclasses import dataclass
from typing import Final

from shardwright.costs.limits import Limits
from shardwright.hardware.gpus import Gpu
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.traits import EngineTraits
from shardwright.units import MIB

DRIVER_BYTES: Final = 480 * MIB
"""Memory of an NVIDIA GPU that its label shows and no program gets. Basis: measured, label minus
the total that engines print: H100 466 MiB (81559 and 79.19 GiB), RTX A6000 500 (49140 and 47.50
GiB), RTX 3090 430 (24576 and 23.58 GiB). AMD shows what there is (MI300X: 191.98 of 192 GiB).
Sources: mem-001, mem-011, mem-082, gpus.csv notes.
"""

DATA_CENTER_BLACKWELL: Final = 10
"""Compute capability (major) on which vLLM 0.32 captures batches of up to twice
``graph_sequences``. Source: ``config/vllm.py`` (``is_data_center_blackwell``).
"""

BRIDGED_GPUS: Final = 2
"""A scale-up link that joins no more is a bridge: no switch, hence no multicast buffers."""

ADAPTER_CAPTURES: Final = 2
"""Times that every batch size is captured where adapters are served: with and without them. Source:
vLLM 0.32 ``v1/cudagraph_dispatcher.py:_get_lora_cases``.
"""

LOADING_RESIDUE: Final = 0.007
"""What loading leaves behind, as a share of the weights: fragments of the allocator, copies that
kernels repack. Basis: fitted, Llama 70B in INT8 and DeepSeek-V4-Flash (mem-010, mem-038: 0.4 to 0.8
GiB beside 70); DeepSeek-V3 keeps 0.24 GiB of 79 dequantized (engine-measurements.md 7).
"""

BAND_SHARE: Final = 0.25
"""How far activations and overhead may be off, as a share of both. Basis: fitted, docs/memory.md.
"""

BAND_BYTES: Final = 394 * MIB
"""How far the rest may be off: a workspace that some attention kernels take and others do not.
Source: engine-measurements.md 7 (FlashInfer).
"""

BAND_OF_WEIGHTS: Final = 0.01
"""How far weights may be off after loading, as a share. Basis: fitted, MXFP4 is stored 2% smaller
or larger by kernel.
"""


UNCOUNTED_BANDS: Final = 2
"""How many times as wide the bands of memory and speed are where the engine is told what no plan
counts. Basis: assumed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A candidate's GPU as far as memory goes; its scale-up link joins ``joined_gpus``, itself
    included.
    """

    gpu: Gpu
    joined_gpus: int

    @classmethod
    def of(cls, candidate: Candidate) -> "Device":
        """Return the device that a candidate runs on."""
        return cls(gpu=candidate.pool.gpu, joined_gpus=candidate.pool.domain_gpus)

    @property
    def usable_bytes(self) -> int:
        """Return the memory that programs see."""
        # The label states the memory of the board; programs see less, on NVIDIA's only.
        return self.gpu.memory_bytes - (DRIVER_BYTES if self.gpu.vendor == "NVIDIA" else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedStage:
    """The layers and bytes of weights that a rank has loaded, a draft model's included."""

    layers: int
    weights_bytes: int


def overhead_bytes(
    layout: Layout, device: Device, traits: EngineTraits, limits: Limits, loaded: LoadedStage
) -> int:
    """Return the bytes of libraries, communication buffers and the remains of loading on a rank.

    Graphs of the layers are among them if the engine takes them from its budget.

    Formula: libraries + communication buffers + bytes of a graph x layers x captured batches +
        ``LOADING_RESIDUE`` x weights.
    Unit: bytes, on one rank.
    Error: ``BAND_SHARE`` (25%) of it, and more, is in the band; graphs 1.22 GiB at 80 layers as
        printed (mem-064), libraries 0.02 to 0.35 GiB for 0.29.
    Source: fitted to the memory rows (docs/memory.md); the number of batches from vLLM 0.32.

    >>> limits = Limits(batched_tokens=8192, sequences=256, model_len=3072)
    >>> device = Device.of(on_h100s(Layout(tensor=4)))
    >>> loaded = LoadedStage(layers=80, weights_bytes=35 * 2**30)
    >>> overhead_bytes(Layout(tensor=4), device, vllm, limits, loaded) / MIB
    3651.97...
    >>> 300 + 1850 + 314 / 1024 * 80 * 51 + 0.007 * 35 * 1024
    3651.97...
    """
    captures = captured_batches(limits, device, traits) * (
        ADAPTER_CAPTURES if traits.options.adapters else 1
    )
    graphs = (
        traits.memory.graph_bytes * loaded.layers * captures if traits.memory.counts_graphs else 0
    )
    residue = math.ceil(LOADING_RESIDUE * loaded.weights_bytes)
    return (
        traits.memory.fixed_overhead_bytes
        + _communication_bytes(layout, device, traits)
        + graphs
        + residue
    )


def captured_batches(limits: Limits, device: Device, traits: EngineTraits) -> int:
    """Return the number of captured batch sizes: the engine's stated sizes, or else those of the
    formula.

    Formula: 1, 2, 4, steps of 8 below 256, steps of 16 up to min(2 x sequences, 512, tokens).
    Unit: batch sizes.
    Error: exact.
    Source: vLLM 0.32 ``config/vllm.py:_set_cudagraph_sizes``.

    >>> limits = Limits(batched_tokens=8192, sequences=256, model_len=3072)
    >>> captured_batches(limits, Device.of(on_h100s(Layout(tensor=4))), vllm)
    51
    >>> 3 + 31 + 17  # 1, 2, 4; 8 to 248; 256 to 512
    51
    """
    told = traits.options.told
    if told.captured is not None:
        return sum(size <= limits.batched_tokens for size in set(told.captured))
    capability = device.gpu.compute_capability
    blackwell = capability is not None and capability[0] == DATA_CENTER_BLACKWELL
    own = min(2 * limits.sequences, traits.memory.graph_sequences * (2 if blackwell else 1))
    largest = min(
        own if told.largest_captured is None else told.largest_captured, limits.batched_tokens
    )
    few = sum(size <= largest for size in (1, 2, 4))
    return few + len(range(8, min(largest + 1, 256), 8)) + len(range(256, largest + 1, 16))


def band_bytes(weights: int, activations: int, overhead: int, *, uncounted: bool = False) -> int:
    """Return the possible error, one way, of the space for K/V; it doubles beside uncounted
    options.

    Formula: ``BAND_BYTES`` + ``BAND_SHARE`` x (activations + overhead) + ``BAND_OF_WEIGHTS`` x
        weights.
    Unit: bytes, one way.
    Error: 13 of 19 published rows lie inside it (docs/benchmarks/memory.md).
    Source: fitted (docs/memory.md); twice as wide beside uncounted options, assumed.

    >>> band_bytes(35 * 2**30, 2 * 2**30, 3 * 2**30) / MIB
    2032.40...
    >>> 394 + 0.25 * (2 + 3) * 1024 + 0.01 * 35 * 1024
    2032.4
    """
    return math.ceil(
        BAND_BYTES + BAND_SHARE * (activations + overhead) + BAND_OF_WEIGHTS * weights
    ) * (UNCOUNTED_BANDS if uncounted else 1)


def _communication_bytes(layout: Layout, device: Device, traits: EngineTraits) -> int:
    if layout.tensor * layout.attention_data == 1:
        return 0
    return (
        traits.memory.communication_overhead_bytes
        if device.joined_gpus > BRIDGED_GPUS
        else traits.memory.host_communication_overhead_bytes
    )
