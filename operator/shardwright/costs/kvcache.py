"""How much of the K/V cache of a rank does a request of n tokens take, and how many fit?

Exactly the block arithmetic of vLLM 0.32 (``v1/core/kv_cache_utils.py``,
``v1/kv_cache_interface.py``): a request takes blocks of every group of layers
(:mod:`shardwright.costs.kvgroups`), and a block costs the pages of the largest group on the stage.
Blocks that requests share, of a cached prefix, are counted for each of them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Final

from shardwright.costs.kvgroups import CacheFormat, Kind, cache_entries, cache_groups
from shardwright.layouts.layout import Layout
from shardwright.layouts.stages import split_layers
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec

_CACHE_BITS: Final = {"fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "bf16": 16, "fp16": 16, "fp32": 32}

NULL_BLOCKS: Final = 1
"""Blocks that the engine holds back. Source: vLLM 0.32 ``v1/core/block_pool.py``."""


EXTRA_BATCHES: Final = 1
"""Batches in flight besides one per pipeline stage, with asynchronous scheduling.
Source: vLLM 0.32 ``config/vllm.py:max_concurrent_batches`` (V2 runner; the V1 runner has one less
in a pipeline).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """The K/V cache of one rank of one stage.

    ``groups`` has the kept K/V and the tokens per block of each group of layers.
    ``bytes_per_token`` sums the pages of all layers, as if none slid; ``state_bytes`` are recurrent
    layers' states for a request besides. ``in_flight_tokens`` are scheduled but not settled: a
    sliding layer keeps them besides its window. ``context`` ranks share the tokens of a request.
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
        """Return the most blocks that one request of so many tokens takes, over all groups."""
        share = math.ceil(tokens / self.context)
        return sum(kind.blocks(share, block, self.in_flight_tokens) for kind, block in self.groups)

    def bytes_for_request(self, tokens: int) -> int:
        """Return the most bytes that one request of so many tokens takes."""
        return self.blocks_for_request(tokens) * self.bytes_per_block

    def blocks(self, kv_bytes: int) -> int:
        """Return the blocks that requests can use of so many bytes (one block is held back)."""
        return (
            # A part of a block holds no token.
            max(0, kv_bytes // self.bytes_per_block - NULL_BLOCKS) if self.bytes_per_block else 0
        )

    def requests(self, kv_bytes: int, request_tokens: int) -> float:
        """Return the number of requests of one length that fit at once."""
        # By blocks, not by bytes: a request leaves its last block partly empty.
        return self.blocks(kv_bytes) / max(1, self.blocks_for_request(request_tokens))

    def tokens(self, kv_bytes: int, request_tokens: int) -> int:
        """Return the number of tokens that fit if every request has one length."""
        return int(self.requests(kv_bytes, request_tokens) * request_tokens)


def kv_bits(model: ModelSpec, kv_cache_dtype: str) -> int:
    """Return the bits of a value in the cache; ``auto`` is the checkpoint's wish, else the model's
    dtype.

    Formula: none: a table.
    Unit: bits a value.
    Error: exact.
    Source: vLLM 0.32 option --kv-cache-dtype: ``auto`` is the model's dtype, or the checkpoint's
        request.

    >>> kv_bits(llama, "auto"), kv_bits(llama, "fp8")
    (16, 8)
    """
    return _CACHE_BITS[
        (model.cache_dtype or model.dtype) if kv_cache_dtype == "auto" else kv_cache_dtype
    ]


def kv_cache(
    model: ModelSpec, layout: Layout, stage: int, kv_cache_dtype: str, traits: EngineTraits
) -> KvCache:
    """Return the K/V cache of a rank of one pipeline stage; every attention-data rank has its own.

    Formula: bytes a token = sum over layers of the rank of ceil(K/V heads / tensor) x (K dim + V
        dim) x bits / 8; bytes a block = those of the largest group of layers.
    Unit: bytes, tokens.
    Error: none: equal to vLLM 0.32's own classes in all of 750 layouts and 38 special caches
        (docs/planner-models.md).
    Source: vLLM 0.32 ``v1/core/kv_cache_utils.py``, ``v1/kv_cache_interface.py``.

    Args:
        model: The model.
        layout: The degrees; with tensor ranks beyond the K/V heads every rank holds a whole head.
        stage: The pipeline stage, from 0.
        kv_cache_dtype: ``auto`` (as the checkpoint asks, else the model's dtype) or ``fp8``.
        traits: The engine: its block size, its batch limit and how it splits layers.

    >>> kv = kv_cache(llama, Layout(tensor=4), 0, "auto", vllm)
    >>> kv.bytes_per_token, 80 * (8 // 4) * (128 + 128) * 2
    (81920, 81920)
    >>> kv.bytes_per_block == 16 * kv.bytes_per_token, kv.blocks_for_request(3072)
    (True, 192)
    """
    first, end = split_layers(
        len(model.layers), layout.pipeline, traits.cuts.remainder, layout.partition
    )[stage]
    model_bits = _CACHE_BITS[model.dtype]
    form = CacheFormat(
        bits=kv_bits(model, kv_cache_dtype),
        model_bits=model_bits,
        block_tokens=traits.memory.kv_block_tokens,
    )
    whole = model
    # Only the ranks that sample draft, which are those of the last stage.
    if traits.options.drafter is not None and end == len(model.layers):
        whole = _beside(model, traits.options.drafter.model)
        end = len(whole.layers)
    pages = _pages(whole, layout.tensor, form)
    return KvCache(
        groups=pages.groups,
        bytes_per_token=_per_token(
            {tokens: held[end] - held[first] for tokens, held in pages.kept}
        ),
        bytes_per_block=max((held[end] - held[first] for held in pages.of_groups), default=0),
        in_flight_tokens=traits.batching.max_batched_tokens * (layout.pipeline + EXTRA_BATCHES),
        state_bytes=pages.states[end] - pages.states[first],
        context=layout.context,
    )


@lru_cache(maxsize=64)
def _beside(model: ModelSpec, draft: ModelSpec) -> ModelSpec:
    """Return a model with its drafter's layers after its own: the engine deals out blocks to all
    together.

    Source: vLLM 0.33 ``v1/core/kv_cache_utils.py:get_kv_cache_groups``, which gets the layers of
    both.
    """
    return replace(model, layers=(*model.layers, *draft.layers), weights=())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pages:
    """Bytes of the pages of a model's first n layers on a rank: by group, by tokens per block, of
    states.
    """

    groups: tuple[tuple[Kind, int], ...]
    of_groups: tuple[tuple[int, ...], ...]
    kept: tuple[tuple[int, tuple[int, ...]], ...]
    states: tuple[int, ...]


@lru_cache(maxsize=256)
def _pages(model: ModelSpec, tensor: int, form: CacheFormat) -> _Pages:
    groups = cache_groups(model, tensor, form)
    layers = len(model.layers)
    entries = cache_entries(model, tensor, form)
    kept = [entry for entry in entries if not entry.kind.states and not entry.kind.transient]
    by_tokens = {
        tokens: [entry for entry in kept if entry.block_tokens == tokens]
        # By length of block: bytes of pages can only be added where they hold as many tokens.
        for tokens in {e.block_tokens for e in kept}
    }
    return _Pages(
        groups=tuple((group.kind, group.block_tokens) for group in groups),
        of_groups=tuple(
            _first(layers, ((entry.layer, entry.page_bytes) for entry in group.entries))
            for group in groups
        ),
        kept=tuple(
            (tokens, _first(layers, ((e.layer, e.page_bytes) for e in alike)))
            for tokens, alike in by_tokens.items()
        ),
        states=_first(
            layers, ((entry.layer, entry.page_bytes * entry.kind.states) for entry in entries)
        ),
    )


def _first(layers: int, held: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    each = [0] * layers
    for layer, size in held:
        each[layer] += size
    return tuple(accumulate(each, initial=0))


def _per_token(page_bytes: Mapping[int, int]) -> int:
    common = math.lcm(*page_bytes)
    # Negated twice, floor division rounds up without leaving the integers.
    return -(-sum(size * (common // tokens) for tokens, size in page_bytes.items()) // common)


def kv_bytes_per_token(
    model: ModelSpec, layout: Layout, stage: int, kv_cache_dtype: str, traits: EngineTraits
) -> int:
    """Return the bytes of K/V per token on a rank of one stage, as if no layer slid.

    Formula: as :func:`kv_cache`.
    Unit: bytes a token, on one rank of one stage.
    Error: none: equal to vLLM 0.32's own classes in all of 750 layouts (docs/planner-models.md).
    Source: as :func:`kv_cache`.

    >>> kv_bytes_per_token(llama, Layout(tensor=16), 0, "auto", vllm)  # a whole head
    40960
    """
    return kv_cache(model, layout, stage, kv_cache_dtype, traits).bytes_per_token
