"""How much memory does one step take beside weights and K/V, at its peak?

Source of the shape: engine-measurements.md 7 (vLLM profiles one forward pass of a full batch, then
one sampling run); of the figures: the memory rows of ``docs/memory.md``. Workspaces of some
attention kernels are not counted but in the band.

How much memory does an engine take for libraries, CUDA graphs and communication buffers?

The engine measures these at its start; the figures are fitted to the memory rows of
``docs/memory.md``, and :func:`band_bytes` says how far they may be off.

How many bytes do adapter slots (LoRA) take? Two low-rank matrices beside each that may change.

Exact for dense models of one class (``tests/engine``); elsewhere an upper bound: matrices that a
class merges share a factor, and not every class applies adapters to embedding and head. Source:
vLLM 0.32 ``lora/model_manager.py:_create_lora_modules``, ``lora/layers``, without
``fully_sharded_loras``.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shardwright.costs.weight_bytes import WeightBytes, stage_sums
from shardwright.costs.workload import Limits
from shardwright.hardware.gpus import Gpu
from shardwright.layouts.captures import Captures, captured_sizes
from shardwright.layouts.layout import Candidate, EngineTraits, Layout
from shardwright.modelspec.model_spec import (
    DenseFeedForward,
    ExpertFeedForward,
    GroupedAttention,
    LatentAttention,
    Layer,
    ModelSpec,
    PipelineRole,
    RecurrentAttention,
    Weight,
)
from shardwright.units import MIB

HIDDEN_COPIES: Final = 3.5
"""Rows of the hidden size that a forward pass holds per token: residual, input, output and part of
another. Basis: fitted, a Llama 8B pass of 20,000 and of 29,000 tokens (2.07 and 2.99 GiB; 2.9
copies) and Granite 8B (0.85 GiB; 4.2).
"""

WIDE_COPIES: Final = 1.5
"""Rows of a block's widest matrix that are held at once: the product and half of it after gating.
Basis: derived.
"""

GATHERED_COPIES: Final = 2
"""Rows of the hidden size per token of all attention-data ranks: gathered before the experts, and
their sums. Basis: derived.
"""

LOGIT_BYTES: Final = 4
"""Bytes of one logit while sampling. Source: engine-measurements.md 7 (FP32 copies)."""

ELEMENT_BYTES: Final = {"bf16": 2, "fp16": 2, "fp32": 4}
"""Bytes of one value in the type that a model computes in."""


SELECTION_BYTES: Final = 5 * 576 * 2
"""Bytes for each token of the longest request that selected latent attention sets aside, to gather
what one step reads of long contexts. Basis: vLLM 0.32 source, v1/attention/backends/mla:
``flashmla_sparse.py`` has five rows of 576 values of 16 bits, and ``indexer.py`` sizes its own part
(40 x 132 bytes) to stay inside them.
"""


def activation_bytes(
    model: ModelSpec, layout: Layout, limits: Limits, logit_copies: float, *, last: bool
) -> int:
    """Return the peak of one step on a rank.

    Formula: ``SELECTION_BYTES`` x the longest request, where latent attention selects, + tokens of
        the batch x bytes a value x (buffers of experts + the larger of
        ``HIDDEN_COPIES`` x hidden x residual streams + widest result / tensor, and, on the last
        stage, sampling: ``logit_copies`` x sequences x vocabulary x 4).
    Unit: bytes, on one rank.
    Error: median 3.6% of 7 published rows (docs/benchmarks/memory.md); +3% for Llama 8B, -58%
        for Qwen 7B on 16 GiB.
    Source: engine-measurements.md 7 for the shape; ``HIDDEN_COPIES`` and ``logit_copies`` are
        fitted, the rest derived.

    Args:
        model: The model.
        layout: The degrees.
        limits: The batch; a pass has all its tokens, sampling all its sequences.
        logit_copies: FP32 rows of the vocabulary that the engine holds per sequence while it
            samples.
        last: Whether the rank is on the last stage, which samples.

    >>> limits = Limits(batched_tokens=8192, sequences=256, model_len=3072)
    >>> activation_bytes(llama, Layout(tensor=4), limits, 4.0, last=True)
    822083584
    >>> 8192 * 2 * (3.5 * 8192 + 1.5 * 2 * 28672 // 4)  # sampling takes 0.66 GB, less
    822083584.0
    """
    row = limits.batched_tokens * ELEMENT_BYTES[model.dtype]
    kept = row * (_expert_workspace_values(model, layout) + _gathered_values(model, layout))
    hidden = model.residual_streams * model.hidden_size
    forward = row * (
        HIDDEN_COPIES * hidden + max(_wide_values(layer, layout) for layer in _kinds(model))
    )
    sampling = logit_copies * limits.sequences * model.vocabulary * LOGIT_BYTES + row * hidden
    aside = SELECTION_BYTES * limits.model_len if _selects(model) else 0
    # Sampling begins when the forward pass has given its buffers back.
    return math.ceil(aside + kept + (max(forward, sampling) if last else forward))


def _selects(model: ModelSpec) -> bool:
    return any(
        isinstance(layer.attention, LatentAttention) and layer.attention.index_dim
        for layer in _kinds(model)
    )


@lru_cache(maxsize=64)
def _kinds(model: ModelSpec) -> frozenset[Layer]:
    # A hundred layers are of two or three kinds.
    return frozenset(model.layers)


def _wide_values(layer: Layer, layout: Layout) -> float:
    # A layer gives the buffers of its attention back before its feed-forward block.
    return max(_attention_values(layer), _feed_forward_values(layer)) / layout.tensor


def _attention_values(layer: Layer) -> float:
    attention = layer.attention
    if isinstance(attention, GroupedAttention):
        return attention.heads * attention.head_dim + attention.kv_heads * (
            attention.head_dim + attention.value_head_dim
        )
    if isinstance(attention, LatentAttention):
        return (
            # Queries, and the keys that are unpacked for every head from the latent vector.
            attention.heads * (attention.nope_dim + attention.rope_dim) * 2.0
            + attention.heads * attention.value_head_dim
        )
    return attention.width if isinstance(attention, RecurrentAttention) else 0.0


def _feed_forward_values(layer: Layer) -> float:
    match layer.feed_forward:
        case DenseFeedForward() as block:
            # All but the matrix that leads back to the hidden size: gate and up, or up alone.
            return WIDE_COPIES * (block.matrices - 1) * block.intermediate
        case ExpertFeedForward() as block:
            return WIDE_COPIES * (block.matrices - 1) * block.shared_intermediate
        case None:
            return 0.0


def _expert_workspace_values(model: ModelSpec, layout: Layout) -> float:
    """Return the values per token of routed experts' two buffers, kept after the first pass.

    Each holds a row per chosen expert: the gated product or the output, whichever is wider. Ranks
    with whole experts have rows for the tokens of all ranks, so their share of the experts makes
    them no smaller. Source: vLLM 0.32 ``fused_moe/modular_kernel.py`` (workspace13, workspace2).
    """
    return max(
        (_workspace(model, layer.feed_forward, layout) for layer in _kinds(model)), default=0.0
    )


def _gathered_values(model: ModelSpec, layout: Layout) -> float:
    """Return the values per token that attention-data ranks gather: all their tokens, and the sum
    back.

    Source: vLLM 0.32, ``allgather_reducescatter``: the gathered tensor has the size of all ranks'
    batches.
    """
    return (
        GATHERED_COPIES * layout.attention_data * model.hidden_size
        if layout.attention_data > 1
        else 0.0
    )


def _workspace(model: ModelSpec, block: object, layout: Layout) -> float:
    if not isinstance(block, ExpertFeedForward):
        return 0.0
    # Whole experts are cut over no ranks at all; sliced ones over all of them.
    ways = max(1, layout.tensor * layout.attention_data // layout.expert)
    columns = block.expert_intermediate / ways
    wide = max((block.matrices - 1) * columns, model.hidden_size) + max(columns, model.hidden_size)
    return block.experts_per_token * wide


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
    """The layers and bytes of weights that a rank has loaded, a draft model's included.

    ``widened_bytes`` are what its scales grow by where kernels widen FP8.
    """

    layers: int
    weights_bytes: int
    widened_bytes: int = 0


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
    widens = "fp8" not in device.gpu.flops and traits.support.widens_fp8(device.gpu)
    return (
        traits.memory.fixed_overhead_bytes
        + _communication_bytes(layout, device, traits)
        + graphs
        + residue
        + (loaded.widened_bytes if widens else 0)
    )


def stage_widened_bytes(model: ModelSpec, layout: Layout, traits: EngineTraits) -> tuple[int, ...]:
    """Return by how much scales grow on the fullest rank of every stage where Marlin kernels widen
    FP8.

    A grid of scales becomes one of every output row, in 16 bits.

    Formula: sum over FP8 weights with a grid of copies x (outputs x inputs / block x 2 - scales).
    Unit: bytes, one figure a stage.
    Error: exact but for padding; not measured.
    Source: vLLM 0.33 ``quantization/utils/marlin_utils_fp8.py:prepare_fp8_layer_for_marlin``.

    >>> stage_widened_bytes(llama, Layout(), vllm)  # 16 bits
    (0,)
    """
    if not _has_grid(model):
        return (0,) * layout.pipeline
    held = stage_sums(model, layout, traits, _growth)
    return tuple(stage.total_bytes for stage in held)


@lru_cache(maxsize=64)
def _has_grid(model: ModelSpec) -> bool:
    # Asked for every layout, of thousands of weights.
    return any(_in_grid(weight) for weight in model.weights)


def _in_grid(weight: Weight) -> bool:
    return weight.storage.name == "fp8" and weight.storage.in_grid


def _growth(_: ModelSpec, weight: Weight, copies: int, outputs: int, inputs: int) -> int:
    storage = weight.storage
    if not _in_grid(weight) or storage.block is None:
        return 0
    columns = math.ceil(inputs / storage.block[1])
    grid = math.ceil(outputs / storage.block[0]) * columns * storage.scale_bits // 8
    return copies * max(0, outputs * columns * 2 - grid)


def captured_batches(limits: Limits, device: Device, traits: EngineTraits) -> int:
    """Return the number of captured batch sizes: the engine's stated sizes, or else those of the
    formula.

    Formula: 1, 2, 4, steps of 8 below 256, steps of 16 up to min(2 x sequences, 512, tokens);
        TensorRT-LLM's are those of :func:`~shardwright.layouts.captures.captured_sizes`.
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
    if told.captured is None and traits.memory.captures is not Captures.EIGHTS_AND_SIXTEENS:
        most = min(limits.sequences, traits.memory.graph_sequences)
        return len(captured_sizes(most, traits.memory.captures))
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


_ENDS: Final = frozenset({PipelineRole.EMBEDDING, PipelineRole.HEAD})


def stage_adapter_bytes(model: ModelSpec, layout: Layout, traits: EngineTraits) -> tuple[int, ...]:
    """Return the bytes of adapter slots on the fullest rank of every pipeline stage.

    Formula: slots x rank x bytes a value x sum over matrices of (inputs + outputs that the rank
        holds).
    Unit: bytes, one figure a stage.
    Error: exact for dense models of one class (``tests/engine``); elsewhere an upper bound.
    Source: vLLM 0.32 ``lora/model_manager.py:_create_lora_modules``, ``lora/layers``.

    >>> from dataclasses import replace
    >>> from shardwright.layouts.layout import AdapterSlots, EngineOptions
    >>> one, two = (
    ...     replace(vllm, options=EngineOptions(adapters=slots))
    ...     for slots in (AdapterSlots(count=n, rank=16) for n in (1, 2))
    ... )
    >>> stage_adapter_bytes(llama, Layout(), one)
    (422920192,)
    >>> stage_adapter_bytes(llama, Layout(), two)
    (845840384,)
    """
    slots = traits.options.adapters
    if slots is None:
        return (0,) * layout.pipeline
    held = stage_sums(model, layout, traits, _factor_elements)
    elements = [
        _elements(model, traits, stage, last=index == len(held) - 1)
        for index, stage in enumerate(held)
    ]
    return tuple(
        slots.count * slots.rank * ELEMENT_BYTES[model.dtype] * count for count in elements
    )


def _elements(model: ModelSpec, traits: EngineTraits, held: WeightBytes, *, last: bool) -> int:
    if model.architecture in traits.support.adapters_leave_vocabulary:
        return held.attention_bytes + held.feed_forward_bytes + held.expert_bytes
    has_head = last or model.architecture in traits.repeats.ends_on_every_stage
    # The elements of the head, beside those of the embedding.
    logits = model.vocabulary + model.hidden_size if has_head and model.tied_embeddings else 0
    return held.total_bytes + logits


def _factor_elements(_: ModelSpec, weight: Weight, copies: int, outputs: int, inputs: int) -> int:
    """Return the elements of two factors per rank of an adapter: a row of inputs, a column of
    outputs.

    The factor on the axis that is cut is cut with it, the other is whole; those of the vocabulary
    are never cut.
    """
    if weight.part is PipelineRole.LAYER:
        # One input: a norm or a bias, which no adapter changes.
        return copies * (outputs + inputs) if weight.inputs > 1 else 0
    # Every rank keeps the whole factors of embedding and head.
    return weight.outputs + weight.inputs if weight.part in _ENDS else 0
