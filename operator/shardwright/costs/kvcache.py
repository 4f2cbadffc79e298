"""The K/V cache of one rank: pages, groups of layers, and what a request of n tokens takes of them.

Exactly the block arithmetic of vLLM 0.32 (``v1/core/kv_cache_utils.py``, ``v1/kv_cache_interface.py``):
layers of one kind (full, or sliding with one window) form groups of equal size; a block of every group is
drawn from one pool, and a block costs the pages of the largest group on the stage.
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shardwright.layouts.layout import Layout
from shardwright.layouts.stages import split_layers
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import Attention, GroupedAttention, LatentAttention, ModelSpec, RecurrentAttention

_CACHE_BITS: Final = {"fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "bf16": 16, "fp16": 16, "fp32": 32}

_MERGE_BELOW: Final = 1.5
"""Where the commonest kind of layer is less than this many times the rarest, groups take the larger size.
Source: vLLM 0.32 ``_get_kv_cache_groups_uniform_page_size``."""

NULL_BLOCKS: Final = 1
"""Blocks that the engine holds back. Source: vLLM 0.32 ``v1/core/block_pool.py``."""


EXTRA_BATCHES: Final = 1
"""Batches in flight besides one per pipeline stage, with asynchronous scheduling.
Source: vLLM 0.32 ``config/vllm.py:max_concurrent_batches`` (V2 runner; the V1 runner has one less in a pipeline)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """The K/V cache of one rank of one stage.

    ``windows`` has one entry per group of layers (None: full attention). ``bytes_per_token`` sums the
    pages of all layers, as if none slid. ``in_flight_tokens`` are scheduled but not settled: a sliding
    layer keeps them besides its window.
    """

    windows: tuple[int | None, ...]
    bytes_per_token: int
    bytes_per_block: int
    block_tokens: int
    in_flight_tokens: int

    def blocks_for_request(self, tokens: int) -> int:
        """Return the blocks that one request of so many tokens takes at most, over all groups."""
        return sum(self._blocks(window, tokens) for window in self.windows)

    def bytes_for_request(self, tokens: int) -> int:
        """Return the bytes that one request of so many tokens takes at most."""
        return self.blocks_for_request(tokens) * self.bytes_per_block

    def blocks(self, kv_bytes: int) -> int:
        """Return the blocks that requests can use of so many bytes (one block is held back)."""
        return max(0, kv_bytes // self.bytes_per_block - NULL_BLOCKS) if self.bytes_per_block else 0

    def requests(self, kv_bytes: int, request_tokens: int) -> float:
        """Return how many requests of one length fit at once."""
        return self.blocks(kv_bytes) / max(1, self.blocks_for_request(request_tokens))

    def tokens(self, kv_bytes: int, request_tokens: int) -> int:
        """Return how many tokens fit when every request has one length."""
        return int(self.requests(kv_bytes, request_tokens) * request_tokens)

    def _blocks(self, window: int | None, tokens: int) -> int:
        if window is None:
            return math.ceil(tokens / self.block_tokens)
        kept = min(window - 1 + self.in_flight_tokens, tokens)
        return math.ceil(kept / self.block_tokens) + 1  # the window may start inside a block


def kv_cache(model: ModelSpec, layout: Layout, stage: int, kv_cache_dtype: str, traits: EngineTraits) -> KvCache:
    """Return the K/V cache of a rank of one pipeline stage; every attention-data rank has its own.

    Args:
        model: The model.
        layout: The degrees; with tensor ranks beyond the K/V heads every rank holds a whole head.
        stage: The pipeline stage, from 0.
        kv_cache_dtype: ``auto`` (the model's dtype) or ``fp8``.
        traits: The engine: its block size, its batch limit and how it splits layers.
    """
    first, end = split_layers(len(model.layers), layout.pipeline, traits.remainder, layout.partition)[stage]
    bits = _CACHE_BITS[model.dtype if kv_cache_dtype == "auto" else kv_cache_dtype]
    pages = [
        _values_per_token(layer.attention, layout.tensor) * bits * traits.kv_block_tokens // 8
        for layer in model.layers[first:end]
    ]
    held: Counter[int] = Counter()
    windows, members = _groups(model)
    for group, page in zip(members[first:end], pages, strict=True):
        held[group] += page
    return KvCache(
        windows=windows,
        bytes_per_token=sum(pages) // traits.kv_block_tokens,
        bytes_per_block=max(held.values(), default=0),
        block_tokens=traits.kv_block_tokens,
        in_flight_tokens=traits.max_batched_tokens * (layout.pipeline + EXTRA_BATCHES),
    )


def kv_bytes_per_token(model: ModelSpec, layout: Layout, stage: int, kv_cache_dtype: str, traits: EngineTraits) -> int:
    """Return the bytes of K/V per token on a rank of one stage, as if no layer slid."""
    return kv_cache(model, layout, stage, kv_cache_dtype, traits).bytes_per_token


def _values_per_token(attention: Attention | None, tensor: int) -> int:
    """Return keys and values of one token in one layer on one rank."""
    if attention is None or isinstance(attention, RecurrentAttention):
        return 0
    if isinstance(attention, LatentAttention):
        return attention.kv_lora_rank + attention.rope_dim
    return math.ceil(attention.kv_heads / tensor) * (attention.head_dim + attention.value_head_dim)


@lru_cache(maxsize=64)
def _groups(model: ModelSpec) -> tuple[tuple[int | None, ...], tuple[int, ...]]:
    """Return the window of every group of layers, and the group of every layer.

    Groups are formed over the whole model, so that they are the same on every stage.
    """
    kinds: dict[int | None, list[int]] = {}
    for index, layer in enumerate(model.layers):
        if isinstance(layer.attention, GroupedAttention | LatentAttention):
            kinds.setdefault(layer.attention.window, []).append(index)
    sizes = [len(layers) for layers in kinds.values()]
    size = max(sizes) if max(sizes) < min(sizes) * _MERGE_BELOW else min(sizes)
    windows: list[int | None] = []
    members = [0] * len(model.layers)
    for window, layers in kinds.items():
        count = math.ceil(len(layers) / size)
        for position, index in enumerate(layers):
            members[index] = len(windows) + position % count
        windows += [window] * count
    return tuple(windows), tuple(members)
