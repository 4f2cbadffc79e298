"""The K/V cache of one rank: what a request of n tokens takes of it, and how many fit.

Exactly the block arithmetic of vLLM 0.32 (``v1/core/kv_cache_utils.py``, ``v1/kv_cache_interface.py``): a request
takes blocks of every group of layers (:mod:`shardwright.costs.kvgroups`), and a block costs the pages of the
largest group on the stage.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from shardwright.costs.kvgroups import CacheFormat, Entry, Kind, cache_entries, cache_groups
from shardwright.layouts.layout import Layout
from shardwright.layouts.stages import split_layers
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec

_CACHE_BITS: Final = {"fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "bf16": 16, "fp16": 16, "fp32": 32}

NULL_BLOCKS: Final = 1
"""Blocks that the engine holds back. Source: vLLM 0.32 ``v1/core/block_pool.py``."""


EXTRA_BATCHES: Final = 1
"""Batches in flight besides one per pipeline stage, with asynchronous scheduling.
Source: vLLM 0.32 ``config/vllm.py:max_concurrent_batches`` (V2 runner; the V1 runner has one less in a pipeline)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """The K/V cache of one rank of one stage.

    ``groups`` has what is kept and the tokens per block of each group of layers. ``bytes_per_token`` sums the
    pages of all layers, as if none slid; ``state_bytes`` is what the recurrent layers keep of a request besides.
    ``in_flight_tokens`` are scheduled but not settled: a sliding layer keeps them besides its window. ``context``
    ranks share the tokens of a request.
    """

    groups: tuple[tuple[Kind, int], ...]
    bytes_per_token: int
    bytes_per_block: int
    in_flight_tokens: int
    state_bytes: int = 0
    context: int = 1

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Return the window of every group (None: the whole context or a state)."""
        return tuple(kind.window for kind, _ in self.groups)

    def blocks_for_request(self, tokens: int) -> int:
        """Return the blocks that one request of so many tokens takes at most, over all groups."""
        share = math.ceil(tokens / self.context)
        return sum(kind.blocks(share, block, self.in_flight_tokens) for kind, block in self.groups)

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


def kv_cache(model: ModelSpec, layout: Layout, stage: int, kv_cache_dtype: str, traits: EngineTraits) -> KvCache:
    """Return the K/V cache of a rank of one pipeline stage; every attention-data rank has its own.

    Args:
        model: The model.
        layout: The degrees; with tensor ranks beyond the K/V heads every rank holds a whole head.
        stage: The pipeline stage, from 0.
        kv_cache_dtype: ``auto`` (as the checkpoint asks, else the model's dtype) or ``fp8``.
        traits: The engine: its block size, its batch limit and how it splits layers.
    """
    first, end = split_layers(len(model.layers), layout.pipeline, traits.remainder, layout.partition)[stage]
    model_bits = _CACHE_BITS[model.dtype]
    bits = _CACHE_BITS[(model.cache_dtype or model.dtype) if kv_cache_dtype == "auto" else kv_cache_dtype]
    form = CacheFormat(bits=bits, model_bits=model_bits, block_tokens=traits.kv_block_tokens)
    groups = cache_groups(model, layout.tensor, form)
    held = [entry for entry in cache_entries(model, layout.tensor, form) if first <= entry.layer < end]
    kept = [entry for entry in held if not entry.kind.states and not entry.kind.transient]
    return KvCache(
        groups=tuple((group.kind, group.block_tokens) for group in groups),
        bytes_per_token=_per_token(kept),
        bytes_per_block=max((group.page_bytes(first, end) for group in groups), default=0),
        in_flight_tokens=traits.max_batched_tokens * (layout.pipeline + EXTRA_BATCHES),
        state_bytes=sum(entry.page_bytes * entry.kind.states for entry in held if entry.kind.states),
        context=layout.context,
    )


def _per_token(entries: Iterable[Entry]) -> int:
    """Return the bytes of one token in all entries, rounded up once."""
    pages: Counter[int] = Counter()
    for entry in entries:
        pages[entry.block_tokens] += entry.page_bytes
    return math.ceil(sum(Fraction(page_bytes, tokens) for tokens, page_bytes in pages.items()))


def kv_bytes_per_token(model: ModelSpec, layout: Layout, stage: int, kv_cache_dtype: str, traits: EngineTraits) -> int:
    """Return the bytes of K/V per token on a rank of one stage, as if no layer slid."""
    return kv_cache(model, layout, stage, kv_cache_dtype, traits).bytes_per_token
