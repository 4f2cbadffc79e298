"""The reasons that ruled layouts and nodes out, as the verb of a sentence: "31 exceed GPU memory".

A code without a phrase is one of nodes, and spelled out word by word.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from shardwright.planning.report import Exclusion
from shardwright.reporting.figures import format_plural

PHRASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "AdaptersExcludeExperts": "deal whole experts in a way that takes no adapters",
        "AdaptersNotSupported": "need adapters that the engine does not apply to this architecture",
        "ArchitectureUnknownToEngine": "need an architecture that the engine does not have",
        "AttentionDataExcludesTensor": "use attention data parallelism beside tensor ranks",
        "AttentionDataNeedsExperts": "use attention data parallelism without experts",
        "AttentionDataOverRay": "use attention data parallelism over nodes that Ray joins",
        "BudgetExceeded": "exceed the budget",
        "ContextDegreeImpossible": "cannot share the K/V cache among the ranks",
        "DraftExcludesAttentionData": "use attention data parallelism beside a draft model",
        "DraftExcludesContext": "share the K/V cache among the ranks beside a drafter",
        "DraftExcludesPipeline": "use pipeline stages beside a drafter",
        "DraftNotDivisible": "do not divide the drafter",
        "DtypeNotSupported": "need a number format that the GPU does not have",
        "EngineImageMissing": "need an engine image for other GPUs",
        "ExpertDegreeImpossible": "have an impossible expert degree",
        "ExpertParallelNeedsExperts": "use expert parallelism without experts",
        "ExpertsFewerThanRanks": "have more ranks than experts",
        "ExpertsNotDivisible": "do not divide the experts",
        "GpuTooOld": "need a newer GPU",
        "HostMemoryTooSmall": "want more memory of a node than it has left",
        "KvOffloadTooSmall": "leave an engine less than a GiB of the memory for K/V",
        "HeadsNotDivisible": "do not divide the attention heads",
        "InsufficientCapacity": "need more GPUs than are free now",
        "IntermediateNotDivisible": "do not divide the feed-forward width",
        "KvCachePinTooLarge": "leave too little for the K/V cache that is asked for",
        "KvCacheTooSmall": "leave too little for the K/V cache",
        "KvHeadsNotDivisible": "do not divide the K/V heads",
        "MaxModelLenTooLong": "exceed the model's context",
        "MigSlicesJoined": "join slices of a GPU (MIG)",
        "MoreStagesThanLayers": "have more stages than layers",
        "NetworkResourceMissing": "need network devices that the nodes do not offer",
        "PartitionImpossible": "split other layers than the model's over the stages",
        "PipelineNotSupported": "need pipeline stages that the engine does not have for this model",
        "PoolTooSmall": "need more nodes than the pool has",
        "QuantizationBlockNotDivisible": "cut quantization blocks",
        "QuantizationUnknownToEngine": (
            "need a way of storing weights that the engine does not load"
        ),
        "StageWithoutAttention": "have a stage without attention",
        "StageWithoutExperts": "have a stage without experts",
        "TpotLimitExceeded": "exceed the limit on time per token",
        "TtftLimitExceeded": "exceed the limit on time to first token",
        "VocabularyNotDivisible": "do not divide the vocabulary",
        "VocabularyTooLargeForAdapters": "have a vocabulary too large for adapters",
        "WeightsExceedMemory": "exceed GPU memory",
    }
)
"""Code of a check of layouts to its phrase in the plural; every other code is about nodes."""

_SINGULAR: Final[Mapping[str, str]] = MappingProxyType(
    {"do": "does", "have": "has", "cannot": "cannot"}
)
_WRITTEN: Final[Mapping[str, str]] = MappingProxyType(
    {"gpu": "GPU", "gpus": "GPUs", "mig": "MIG"}
)


def summarise_exclusions(considered: int, excluded: Sequence[Exclusion]) -> str:
    """Return the excluded candidates, counted, most frequent reason first: layouts, then nodes.

    A layout may break several rules, so the counts may add up to more than the total.

    >>> exclusion = Exclusion(
    ...     code="WeightsExceedMemory", count=31, example="", nearest_miss=""
    ... )
    >>> summarise_exclusions(48, [exclusion])
    'of 48 layouts tried: 31 exceed GPU memory'
    """
    layouts = [
        f"{item.count:,} {_inflected(item)}"
        for item in excluded
        if item.code in PHRASES
    ]
    nodes = [
        f"{item.count:,} {spell(item.code)}"
        for item in excluded
        if item.code not in PHRASES
    ]
    several = " (a layout can break several rules)" if len(layouts) > 1 else ""
    said = (
        f"of {format_plural(considered, 'layout')} tried: {', '.join(layouts) or 'none'}{several}"
        if considered
        else "no layout was tried"
    )
    return f"{said}; nodes not used: {', '.join(nodes)}" if nodes else said


def _inflected(exclusion: Exclusion) -> str:
    """Return the phrase of a code, in the singular for one layout.

    >>> _inflected(
    ...     Exclusion(code="HeadsNotDivisible", count=1, example="", nearest_miss="")
    ... )
    'does not divide the attention heads'
    """
    phrase = PHRASES[exclusion.code]
    if exclusion.count > 1:
        return phrase
    verb, _, rest = phrase.partition(" ")
    return f"{_SINGULAR.get(verb, f'{verb}s')} {rest}"


def spell(code: str) -> str:
    """Return a code as words.

    >>> spell("TaintNotTolerated"), spell("NoAllocatableGpus"), spell("MigEnabled")
    ('taint not tolerated', 'no allocatable GPUs', 'MIG enabled')
    """
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", code).lower().split()
    return " ".join(_WRITTEN.get(word, word) for word in words)
