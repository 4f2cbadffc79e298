"""The one table of phrases for people: codes, degrees, counts, rates, times and prices."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shardwright.hardware.gpus import GpuPrice, PriceBasis
from shardwright.hardware.inventory import KnownPods
from shardwright.layouts.layout import Layout

WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Weights": "reading weights",
        "KvCache": "reading K/V",
        "Compute": "computing",
        "TensorCommunication": "tensor communication",
        "PipelineCommunication": "sending between stages",
        "ExpertCommunication": "sending to experts",
        "ContextCommunication": "joining shared K/V",
        "Bubble": "waiting for other stages",
        "Prefill": "other requests' prompts",
        "Queue": "queueing",
        "Overhead": "fixed overhead",
    }
)
"""Part of a token's time to its words."""

PHRASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "AdaptersExcludeExperts": "deal whole experts in a way that takes no adapters",
        "AdaptersNotSupported": "need adapters that the engine does not apply to this architecture",
        "ArchitectureUnknownToEngine": "need an architecture that the engine does not have",
        "AttentionDataExcludesTensor": "use attention data parallelism beside tensor ranks",
        "AttentionDataNeedsExperts": "use attention data parallelism without experts",
        "AttentionNotSupported": "need kernels for attention that the engine lacks on the GPU",
        "AttentionDataOverRay": "use attention data parallelism over nodes that Ray joins",
        "BudgetExceeded": "exceed the budget",
        "ClaimNotShared": "mount a claim on more nodes than may have it",
        "ClaimTooSmall": "download more than their claim holds",
        "ClaimUnbound": "mount a claim for which there is no volume",
        "ComputeDomainUnavailable": "join nodes by NVLink, for which no ComputeDomain is served",
        "ContextDegreeImpossible": "cannot share the K/V cache among the ranks",
        "DraftExcludesAttentionData": "use attention data parallelism beside a draft model",
        "DiskTooSmall": "download more than the local disk of a node holds",
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
        "NetworkPluginMissing": "need a network plugin that the image does not have",
        "NetworkResourceMissing": "need network devices that the nodes do not offer",
        "PartitionImpossible": "split other layers than the model's over the stages",
        "PipelineNotSupported": "need pipeline stages that the engine does not have for this model",
        "PoolTooSmall": "need more nodes than the pool has",
        "QuantizationBlockNotDivisible": "cut quantization blocks",
        "QuantizationUnknownToEngine": (
            "need a way of storing weights that the engine does not load"
        ),
        "QuotaExceeded": "exceed a quota of the namespace",
        "SequencesExceedBlocks": "have fewer blocks of K/V and states than sequences",
        "StageWithoutAttention": "have a stage without attention",
        "StageWithoutExperts": "have a stage without experts",
        "TpotLimitExceeded": "exceed the limit on time per token",
        "TtftLimitExceeded": "exceed the limit on time to first token",
        "VocabularyNotDivisible": "do not divide the vocabulary",
        "VocabularyTooLargeForAdapters": "have a vocabulary too large for adapters",
        "WeightsExceedMemory": "exceed GPU memory",
    }
)
"""Code of a check of layouts to the verb of a sentence: "31 exceed GPU memory". Every other code is
about nodes, and spelled out.
"""

UNKNOWN_PODS: Final = {
    KnownPods.WATCHED: "pods of namespaces that are not watched are not known: "
    "their GPUs count as free",
    KnownPods.NONE: "no pods are known: every allocatable GPU counts as free",
}
_ACRONYMS: Final = {
    "gpu": "GPU",
    "gpus": "GPUs",
    "mig": "MIG",
    "ttft": "TTFT",
    "tpot": "TPOT",
    "kv": "K/V",
}


def letters(layout: Layout) -> str:
    """Return the degrees of one replica in the field's letters: the one name of a layout.

    >>> letters(Layout(attention_data=32, expert=32)), letters(Layout())
    ('DP32·EP32', 'TP1')
    """
    every = (
        ("TP", layout.tensor),
        ("PP", layout.pipeline),
        ("DP", layout.attention_data),
        ("EP", layout.expert),
        ("CP", layout.context),
    )
    return "·".join(f"{name}{degree}" for name, degree in every if degree > 1) or "TP1"


def degrees(layout: Layout) -> str:
    """Return the degrees of one replica, with the layers of stages that are uneven on purpose.

    >>> degrees(Layout(pipeline=2, partition=(32, 29))), degrees(Layout())
    ('PP2 (32+29 layers)', 'TP1')
    """
    cut = "+".join(map(str, layout.partition))
    return f"{letters(layout)} ({cut} layers)" if cut else letters(layout)


def copies(layout: Layout) -> str:
    """Return the degrees with the number of replicas.

    >>> copies(Layout(tensor=8, replicas=2)), copies(Layout(tensor=8))
    ('2 x TP8', 'TP8')
    """
    several = f"{layout.replicas} x " if layout.replicas > 1 else ""
    return f"{several}{degrees(layout)}"


def on_gpus(layout: Layout) -> str:
    """Return the degrees with replicas, and on how many GPUs.

    >>> on_gpus(Layout(tensor=8, replicas=2)), on_gpus(Layout())
    ('2 x TP8 on 16 GPUs', 'TP1')
    """
    said = copies(layout)
    return said if layout.gpus == 1 else f"{said} on {layout.gpus:,} GPUs"


def gpus_of(count: int, state: str) -> str:
    """Return a number of a node's GPUs in words.

    >>> gpus_of(1, "free"), gpus_of(8, "healthy"), gpus_of(0, "free")
    ('1 free GPU', '8 healthy GPUs', '0 free GPUs')
    """
    return f"{count} {state} GPU{'' if count == 1 else 's'}"


def spell(code: str) -> str:
    """Return a code as words.

    >>> spell("TaintNotTolerated"), spell("NoAllocatableGpus"), spell("MigEnabled")
    ('taint not tolerated', 'no allocatable GPUs', 'MIG enabled')
    """
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", code).lower().split()
    return " ".join(_ACRONYMS.get(word, word) for word in words)


def price(amount: float) -> str:
    """Return the price of a million tokens in three digits, in the currency of the nodes' labels.

    >>> price(0.41234), price(12.345), price(1234.5)
    ('0.412', '12.3', '1,234')
    """
    decimals = 3 if amount < 1 else 2 if amount < 10 else 1 if amount < 100 else 0  # noqa: PLR2004 - three digits
    return f"{amount:,.{decimals}f}"


def relative_price_words(each: GpuPrice) -> str:
    """Return the price of a GPU in hours of an H100, marked if it is a guess.

    >>> relative_price_words(GpuPrice(per_hour=0.35, basis=PriceBasis.LISTED))
    '0.35'
    >>> relative_price_words(GpuPrice(per_hour=1.0, basis=PriceBasis.ASSUMED))
    '1 (assumed)'
    """
    assumed = " (assumed)" if each.basis is PriceBasis.ASSUMED else ""
    return f"{each.per_hour:g}{assumed}"


def as_h100s(gpus: int, per_hour: float) -> str:
    """Return what GPUs cost in H100s, with the sum worked out.

    >>> as_h100s(1, 0.35), as_h100s(16, 1.4)
    ('as much as 0.35 H100', 'as much as 22.4 H100s (16 x 1.4)')
    """
    each = f" ({gpus} x {per_hour:g})" if gpus > 1 else ""
    return f"as much as {h100s(gpus * per_hour)}{each}"


def h100s(count: float) -> str:
    """Return a price in hours of an H100.

    >>> h100s(0.7), h100s(22.4)
    ('0.7 H100', '22.4 H100s')
    """
    return f"{count:.3g} H100{'s' if count > 1 else ''}"


def duration(seconds: float) -> str:
    """Return a latency: milliseconds below a second, with tenths below 10 ms.

    >>> duration(0.0042), duration(0.042), duration(1.24)
    ('4.2 ms', '42 ms', '1.2 s')
    """
    if seconds >= 1:
        return f"{seconds:,.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"  # noqa: PLR2004 - three digits


def rate(per_second: float) -> str:
    """Return a predicted rate of requests in three digits, without a unit.

    >>> rate(0.787), rate(20.04), rate(3931.4)
    ('0.787', '20', '3,930')
    """
    return f"{float(f'{per_second:.3g}'):,.10g}"


def rate_offered(per_second: float) -> str:
    """Return an offered rate as it was typed, without a unit.

    >>> rate_offered(0.7866), rate_offered(3000)
    ('0.7866', '3,000')
    """
    return f"{per_second:,.6g}"


def rate_of(per_second: float) -> str:
    """Return an offered rate of requests.

    >>> rate_of(1), rate_of(0.5), rate_of(3000)
    ('1 request a second', '0.5 requests a second', '3,000 requests a second')
    """
    s = "" if per_second == 1 else "s"
    return f"{rate_offered(per_second)} request{s} a second"
