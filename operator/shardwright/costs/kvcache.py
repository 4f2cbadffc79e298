"""How much of the K/V cache of a rank does a request of n tokens take, and how many fit?

Exactly the block arithmetic of vLLM 0.32 (``v1/core/kv_cache_utils.py``,
``v1/kv_cache_interface.py``): a request takes blocks of every group of layers,
and a block costs the pages of the largest group on the stage.
Blocks that requests share, of a cached prefix, are counted for each of them.

How is the cache of a model dealt out to groups of layers that share block tables?

vLLM 0.32 gives every kind of layer (whole context, one window, one recurrent state) block tables of
its own and draws all blocks from one pool, so a block costs as much as the largest group needs.
Source: ``v1/core/kv_cache_utils.py`` (``get_kv_cache_groups``), ``v1/kv_cache_interface.py``,
``platforms/interface.py:_align_hybrid_block_size``. Other engines' ways are not known here.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Final

from shardwright.layouts.layout import EngineTraits, Layout
from shardwright.layouts.stages import split_layers
from shardwright.modelspec.model_spec import (
    FP8_PER_HEAD,
    GroupedAttention,
    LatentAttention,
    Layer,
    ModelSpec,
    RecurrentAttention,
    StatedAttention,
)

_MERGE_BELOW: Final = 1.5
"""Where the commonest kind of layer is less than this many times the rarest, groups take the larger
size. Source: ``_get_kv_cache_groups_uniform_page_size``.
"""

_INDEXED_LATENT_BLOCK: Final = 64
"""Tokens per block of kernels for selected latent vectors. Source:
``v1/attention/backends/mla/flashmla_sparse.py``.
"""

_INDEXED_GROUPED_BLOCK: Final = 128
"""The same for selected blocks of keys and values. Source:
``models/minimax_m3/common/sparse_attention.py``.
"""

_COMPRESSED_BLOCK: Final = 256
_WINDOW_BLOCK: Final = 64
_OVERLAPPED: Final = 4
_STATE_BLOCK: Final = {4: 4, 128: 8}
_LATENT_SCALES: Final = 8
_ROW: Final = 576
"""DeepSeek-V4's cache: tokens per block of the compressed context and of the window, the
compression whose windows overlap, tokens per block of the compressors' states by compression, bytes
of scales per entry, and the bytes that its pages are rounded up to. Source:
``models/deepseek_v4/attention.py`` and ``compressor.py``, as built.
"""

_LATENT_HYBRID_STEP: Final = 128
"""Tokens that blocks of latent vectors beside recurrent layers are a multiple of. Source:
``_align_hybrid_block_size``.
"""

_SELECTED_FP8: Final = 656
"""Bytes of a latent vector for selected attention with an FP8 cache. Source: ``fp8_ds_mla`` in
``kv_cache_interface.py``.
"""

_STATES: Final = 2
"""States of a running request while prefixes are cached (the default): the newest and one at a
block boundary.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a group keeps of a request: everything, a window, a chunk, or ``states`` of fixed size.

    ``transient`` entries are the working state of a compressor, not K/V of tokens.
    """

    window: int | None = None
    chunked: bool = False
    states: int = 0
    transient: bool = False

    def blocks(self, tokens: int, block_tokens: int, in_flight_tokens: int) -> int:
        """Return the most blocks that one request of so many tokens takes."""
        if self.states:
            return self.states
        if self.window is None:
            return math.ceil(tokens / block_tokens)
        if self.chunked:
            return math.ceil(min(self.window + in_flight_tokens, tokens) / block_tokens)
        kept = min(self.window - 1 + in_flight_tokens, tokens)
        return math.ceil(kept / block_tokens) + 1  # the window may start inside a block


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One layer's part of the cache: ``page_bytes`` for every block of ``block_tokens`` on one
    rank.
    """

    layer: int
    kind: Kind
    block_tokens: int
    page_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheGroup:
    """Entries that share a block table."""

    kind: Kind
    block_tokens: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """How values are cached: bits of an element, the model's own bits, tokens per block of ordinary
    kernels.
    """

    bits: int
    model_bits: int
    block_tokens: int


@lru_cache(maxsize=256)
def cache_entries(model: ModelSpec, tensor: int, form: CacheFormat) -> tuple[Entry, ...]:
    """Return the layers' cache entries on one of ``tensor`` ranks, before pages are made equal.

    Formula: bytes a page = K/V heads of the rank x (K dim + V dim) x bits x tokens a block / 8;
        latent vectors and states as their helpers say.
    Unit: bytes a page, tokens a block.
    Error: none: equal to vLLM 0.32's own classes (docs/planner-models.md).
    Source: vLLM 0.32 ``v1/kv_cache_interface.py``.

    >>> entries = cache_entries(llama, 4, CacheFormat(bits=16, model_bits=16, block_tokens=16))
    >>> len(entries), entries[0].page_bytes, 2 * (128 + 128) * 16 * 16 // 8
    (80, 16384, 16384)
    """
    # Every layer gets the longest block that any of its kernels wants.
    own = replace(
        form,
        block_tokens=max(
            (_block_tokens(layer, form) for layer in model.layers), default=form.block_tokens
        ),
    )
    return tuple(
        entry
        for index, layer in enumerate(model.layers)
        for entry in _entries(index, layer, tensor, own)
    )


def _block_tokens(layer: Layer, form: CacheFormat) -> int:
    """Return the tokens per block that a layer's kernels want; all layers get the longest."""
    attention = layer.attention
    if (
        isinstance(attention, RecurrentAttention | StatedAttention | None)
        or attention.selected_tokens is None
    ):
        return form.block_tokens
    longer = (
        _INDEXED_GROUPED_BLOCK if isinstance(attention, GroupedAttention) else _INDEXED_LATENT_BLOCK
    )
    return max(form.block_tokens, longer)


@lru_cache(maxsize=256)
def cache_groups(model: ModelSpec, tensor: int, form: CacheFormat) -> tuple[KvCacheGroup, ...]:
    """Return the groups of a model's layers on one of ``tensor`` ranks, the same for every
    stage.

    Formula: none: entries that keep the same are dealt out so that the groups are of equally many
        layers.
    Unit: bytes a page, tokens a block.
    Error: none: equal to vLLM 0.32's own classes (docs/planner-models.md).
    Source: vLLM 0.32 ``v1/core/kv_cache_utils.py:get_kv_cache_groups``.

    >>> (group,) = cache_groups(llama, 4, CacheFormat(bits=16, model_bits=16, block_tokens=16))
    >>> len(group.entries), group.block_tokens
    (80, 16)
    """
    latent = any(isinstance(layer.attention, LatentAttention) for layer in model.layers)
    entries = _aligned(
        cache_entries(model, tensor, form), _LATENT_HYBRID_STEP if latent else form.block_tokens
    )
    if not entries:
        return ()
    buckets = _buckets(entries)
    # All layers keep the same: one block table, no padding.
    if len(buckets) == 1:
        return (_group(entries),)
    if any(entry.kind.transient for entry in entries):
        return _packed(buckets)
    return _paged(entries)


def _entries(index: int, layer: Layer, tensor: int, form: CacheFormat) -> tuple[Entry, ...]:
    attention = layer.attention
    match attention:
        case None:
            return ()
        case StatedAttention():
            block = form.block_tokens
            page = attention.bytes_per_token * block
            return (Entry(layer=index, kind=Kind(), block_tokens=block, page_bytes=page),)
        case GroupedAttention():
            return _grouped_entries(index, attention, tensor, form)
        case LatentAttention() if attention.window is not None:
            return _compressed_entries(index, attention)
        case LatentAttention():
            return _latent_entries(index, attention, form)
        case RecurrentAttention():
            state = (
                attention.state_elements * attention.state_bits
                # The state has a type of its own (--mamba-ssm-cache-dtype); the convolution has the
                # model's.
                + attention.convolution_elements * form.model_bits
            )
            states = _STATES + attention.checkpointed
            return (
                Entry(
                    layer=index,
                    kind=Kind(states=states),
                    block_tokens=1,
                    page_bytes=state // (8 * tensor),
                ),
            )


def _grouped_entries(
    index: int, attention: GroupedAttention, tensor: int, form: CacheFormat
) -> tuple[Entry, ...]:
    kind = Kind(window=attention.window, chunked=attention.chunked)
    # With more ranks than K/V heads each rank keeps a whole head.
    values = math.ceil(attention.kv_heads / tensor) * (
        attention.head_dim + attention.value_head_dim
    )
    block = form.block_tokens
    own = Entry(
        layer=index, kind=kind, block_tokens=block, page_bytes=values * form.bits * block // 8
    )
    if not attention.index_dim:
        return (own,)
    return (own, replace(own, page_bytes=attention.index_dim * form.model_bits * block // 8))


def _latent_entries(index: int, attention: LatentAttention, form: CacheFormat) -> tuple[Entry, ...]:
    selected = attention.selected_tokens is not None
    block = form.block_tokens
    # Every rank keeps the whole latent vector.
    vector = (attention.kv_lora_rank + attention.rope_dim) * form.bits // 8
    vector = _SELECTED_FP8 if selected and form.bits < form.model_bits else vector
    own = Entry(layer=index, kind=Kind(), block_tokens=block, page_bytes=vector * block)
    if not attention.index_dim:
        return (own,)
    return (
        own,
        replace(own, page_bytes=_index_bytes(attention.index_dim) * block // attention.index_pool),
    )


def _index_bytes(dim: int) -> int:
    """FP8 with an FP32 scale per 128 elements."""
    return dim + dim // 128 * 4


def _compressed_entries(index: int, attention: LatentAttention) -> tuple[Entry, ...]:
    """Return a window of latent vectors and, with compression, the compressed context, its index
    and working states.
    """
    # Values without rotation are FP8, rotated ones BF16.
    vector = attention.nope_dim + 2 * attention.rope_dim + _LATENT_SCALES
    window = _rows(index, Kind(window=attention.window), _WINDOW_BLOCK, vector * _WINDOW_BLOCK)
    ratio = attention.compression
    if not ratio:
        return (window,)
    dims = (attention.value_head_dim, *((attention.index_dim,) if attention.index_dim else ()))
    vectors = (vector, _index_bytes(attention.index_dim))
    compressed = (
        _rows(index, Kind(), _COMPRESSED_BLOCK, size * (_COMPRESSED_BLOCK // ratio))
        for size in vectors[: len(dims)]
    )
    return (window, *compressed, *(_compressor_state(index, ratio, dim) for dim in dims))


def _compressor_state(index: int, ratio: int, dim: int) -> Entry:
    """A compressor keeps FP32 keys and gates of its window (two windows if they overlap)."""
    overlap = 2 if ratio == _OVERLAPPED else 1
    block = _STATE_BLOCK.get(ratio, _STATE_BLOCK[128])
    return _rows(
        index, Kind(window=ratio * overlap, transient=True), block, block * 2 * overlap * dim * 4
    )


def _rows(index: int, kind: Kind, block_tokens: int, page_bytes: int) -> Entry:
    return Entry(
        layer=index,
        kind=kind,
        block_tokens=block_tokens,
        page_bytes=math.ceil(page_bytes / _ROW) * _ROW,
    )


def _aligned(entries: Sequence[Entry], step: int) -> Sequence[Entry]:
    """Return attention blocks lengthened, in multiples of ``step`` tokens, until a page holds a
    recurrent state.
    """
    state = max((entry.page_bytes for entry in entries if entry.kind.states), default=0)
    tokens = [entry for entry in entries if not entry.kind.states]
    if not state or not tokens:
        return entries
    per_token = max(entry.page_bytes // entry.block_tokens for entry in tokens)
    # As in vLLM, where all pages are equal.
    block = step * max(1, math.ceil(state / (step * per_token)))
    return [
        replace(entry, page_bytes=block * per_token, block_tokens=block)
        if entry.kind.states
        else replace(
            entry, block_tokens=block, page_bytes=entry.page_bytes // entry.block_tokens * block
        )
        for entry in entries
    ]


def _buckets(entries: Sequence[Entry]) -> list[list[Entry]]:
    buckets: dict[tuple[Kind, int], list[Entry]] = defaultdict(list)
    for entry in entries:
        buckets[entry.kind, entry.block_tokens].append(entry)
    return list(buckets.values())


def _paged(entries: Sequence[Entry]) -> tuple[KvCacheGroup, ...]:
    page = max(entry.page_bytes for entry in entries)
    buckets = _buckets([_with_page(entry, page) for entry in entries])
    sizes = [len(bucket) for bucket in buckets]
    size = max(sizes) if max(sizes) < min(sizes) * _MERGE_BELOW else min(sizes)
    return tuple(
        group for bucket in buckets for group in _dealt(bucket, math.ceil(len(bucket) / size))
    )


def _with_page(entry: Entry, page: int) -> Entry:
    """Return an entry with a longer block if that is a whole number of pages, else with padding."""
    longer = (
        page // entry.page_bytes if page % entry.page_bytes == 0 and not entry.kind.states else 1
    )
    return replace(entry, block_tokens=entry.block_tokens * longer, page_bytes=page)


def _dealt(bucket: Sequence[Entry], groups: int) -> tuple[KvCacheGroup, ...]:
    return tuple(_group(bucket[index::groups]) for index in range(groups))


def _group(entries: Sequence[Entry]) -> KvCacheGroup:
    return KvCacheGroup(
        kind=entries[0].kind, block_tokens=entries[0].block_tokens, entries=tuple(entries)
    )


def _packed(buckets: Sequence[Sequence[Entry]]) -> tuple[KvCacheGroup, ...]:
    """Return groups of unequal pages, packed into one block. Source:
    ``_get_packed_kv_cache_groups``.
    """
    patterns = [_by_page(bucket) for bucket in buckets]
    balanced = [len({len(layers) for layers in pattern.values()}) == 1 for pattern in patterns]
    repeats = [
        len(next(iter(pattern.values())))
        for pattern, even in zip(patterns, balanced, strict=True)
        if even
    ]
    mixed = [
        len(next(iter(p.values())))
        for p, even in zip(patterns, balanced, strict=True)
        if even and len(p) > 1
    ]
    size = _least_padding(repeats, max(mixed)) if mixed else 0
    groups: list[KvCacheGroup] = []
    for bucket, pattern, even in zip(buckets, patterns, balanced, strict=True):
        count = math.ceil(len(next(iter(pattern.values()))) / size) if even and size else 1
        columns = list(zip(*pattern.values(), strict=True)) if count > 1 else []
        parts = [
            [entry for column in columns[index::count] for entry in column]
            for index in range(count)
        ]
        groups += [_group(part) for part in parts] if count > 1 else [_group(bucket)]
    return tuple(groups)


def _by_page(bucket: Sequence[Entry]) -> Mapping[int, list[Entry]]:
    pages: dict[int, list[Entry]] = defaultdict(list)
    for entry in bucket:
        pages[entry.page_bytes].append(entry)
    return pages


def _least_padding(values: Sequence[int], least: int) -> int:
    """Return the size, from ``least`` on, that pads least; the largest of several. Source:
    ``_approximate_gcd``.
    """
    sizes = range(least, max(least, *values) + 1)
    return min(sizes, key=lambda size: (sum(-value % size for value in values), -size))


_CACHE_BITS: Final = {
    "fp8": 8,
    "fp8_e4m3": 8,
    "fp8_e5m2": 8,
    FP8_PER_HEAD: 8,
    "bf16": 16,
    "fp16": 16,
    "fp32": 32,
}

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

    @property
    def keeps_states(self) -> bool:
        """Return whether a request has states of recurrent layers in blocks of their own."""
        return any(kind.states for kind, _ in self.groups)

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
