"""How much memory does one step take beside weights and K/V, at its peak?

Source of the shape: engine-measurements.md 7 (vLLM profiles one forward pass of a full batch, then
one sampling run); of the figures: the memory rows of ``docs/memory.md``. Workspaces of some
attention kernels are not counted but in the band (``overheads``).
"""

import math
from functools import lru_cache
from typing import Final

from shardwright.costs.limits import Limits
from shardwright.layouts.layout import Layout
from shardwright.modelspec.spec import (
    DenseFeedForward,
    ExpertFeedForward,
    GroupedAttention,
    LatentAttention,
    Layer,
    ModelSpec,
)

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
    return attention.width if attention else 0.0


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
