"""The words for layouts, nodes and times that checks and reasons share.

No number is rounded for a program here: these are sentences for people.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from shardwright.hardware.inventory import Pool
from shardwright.hardware.prices import GpuPrice, PriceBasis
from shardwright.layouts.layout import Layout
from shardwright.planning.report import WaysOut

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


def degrees(layout: Layout) -> str:
    """Return the degrees of one replica in words.

    >>> degrees(Layout(tensor=8, pipeline=2))
    'tensor 8 x pipeline 2'
    >>> (
    ...     degrees(Layout(pipeline=2, partition=(32, 29))),
    ...     degrees(Layout(attention_data=8, expert=8)),
    ... )
    ('pipeline 2 (32+29 layers)', 'attention data 8 x expert 8')
    >>> degrees(Layout())
    'one GPU'
    """
    named = {
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "attention data": layout.attention_data,
        "expert": layout.expert,
        "context": layout.context,
    }
    said = (
        " x ".join(f"{name} {degree}" for name, degree in named.items() if degree > 1)
        or "one GPU"
    )
    return (
        f"{said} ({'+'.join(map(str, layout.partition))} layers)"
        if layout.partition
        else said
    )


def letters(layout: Layout) -> str:
    """Return the degrees of one replica in the field's letters, for a column of a table.

    >>> (
    ...     letters(Layout(tensor=8, pipeline=2)),
    ...     letters(Layout(attention_data=32, expert=32)),
    ...     letters(Layout()),
    ... )
    ('TP8·PP2', 'DP32·EP32', 'TP1')
    """
    named = {
        "TP": layout.tensor,
        "PP": layout.pipeline,
        "DP": layout.attention_data,
        "EP": layout.expert,
        "CP": layout.context,
    }
    return (
        "·".join(f"{name}{degree}" for name, degree in named.items() if degree > 1)
        or "TP1"
    )


def copies(layout: Layout) -> str:
    """Return the degrees with the number of replicas in words.

    >>> copies(Layout(tensor=8, replicas=2)), copies(Layout(tensor=8))
    ('2 replicas of tensor 8', 'tensor 8')
    """
    return (
        f"{layout.replicas} replicas of {degrees(layout)}"
        if layout.replicas > 1
        else degrees(layout)
    )


def nodes_of(count: int, pool: Pool) -> str:
    """Return a number of nodes of a pool in words."""
    return f"{count} node{'s' if count > 1 else ''} of {pool.name}"


def ways_sentence(ways: WaysOut | None) -> str:
    """Return in words the ways to make room, empty if none is known.

    >>> ways_sentence(WaysOut(pool="h100-8x-400g", more_nodes=2, moved="models/small"))
    'it would fit with 2 more nodes of h100-8x-400g, or if models/small went'
    >>> ways_sentence(WaysOut(moved="models/small")), ways_sentence(WaysOut())
    ('it would fit if models/small went', '')
    """
    if ways is None:
        return ""
    nodes = (
        f"with {ways.more_nodes} more node{'s' if ways.more_nodes > 1 else ''} of {ways.pool}"
        if ways.more_nodes
        else ""
    )
    said = ", or ".join(
        filter(None, (nodes, f"if {ways.moved} went" if ways.moved else ""))
    )
    return f"it would fit {said}" if said else ""


def uncounted_sentence(names: Sequence[str]) -> str:
    """Return in words that an engine has options that no plan counts.

    >>> uncounted_sentence(["enable-eplb"])
    'spec.engine.args.enable-eplb is not counted: its effect on memory and speed is not known, and the bands are twice as wide'
    """  # noqa: E501 - a sentence as it is said
    its, are = ("its", "is") if len(names) == 1 else ("their", "are")
    listed = ", ".join(f"spec.engine.args.{name}" for name in names)
    return (
        f"{listed} {are} not counted: {its} effect on memory and speed is not known, "
        "and the bands are twice as wide"
    )


def gpus_of(count: int, state: str) -> str:
    """Return a number of GPUs in words.

    >>> gpus_of(1, "free"), gpus_of(8, "healthy"), gpus_of(0, "free")
    ('1 free GPU', '8 healthy GPUs', '0 free GPUs')
    """
    return f"{count} {state} GPU{'' if count == 1 else 's'}"


def on_gpus(layout: Layout) -> str:
    """Return the degrees with replicas in words, and on how many GPUs.

    >>> on_gpus(Layout(tensor=8, replicas=2)), on_gpus(Layout())
    ('2 replicas of tensor 8 on 16 GPUs', 'one GPU')
    """
    said = copies(layout)
    return said if layout.gpus == 1 else f"{said} on {layout.gpus:,} GPUs"


def requests_of(count: int) -> str:
    """Return a number of requests in words.

    >>> requests_of(1), requests_of(4096)
    ('1 request', '4,096 requests')
    """
    return f"{count:,} request{'s' if count != 1 else ''}"


def per_second(tokens: float) -> str:
    """Return a throughput.

    >>> per_second(1234.4)
    '1,234 tok/s'
    """
    return f"{tokens:,.0f} tok/s"


def price(amount: float) -> str:
    """Return the price of a million tokens as text, in the currency of the nodes' labels: three
    digits.

    >>> price(0.41234), price(12.345), price(1234.5)
    ('0.412', '12.3', '1,234')
    """
    decimals = 3 if amount < 1 else 2 if amount < 10 else 1 if amount < 100 else 0  # noqa: PLR2004 - three digits
    return f"{amount:,.{decimals}f}"


def relative_price_words(each: GpuPrice) -> str:
    """Return the price of a GPU in hours of an H100, and say if it is a guess.

    >>> relative_price_words(GpuPrice(per_hour=0.35, basis=PriceBasis.LISTED))
    '0.35'
    >>> relative_price_words(GpuPrice(per_hour=1.0, basis=PriceBasis.ASSUMED))
    '1 (assumed)'
    """
    return (
        f"{each.per_hour:g}{' (assumed)' if each.basis is PriceBasis.ASSUMED else ''}"
    )


def as_h100s(gpus: int, per_hour: float) -> str:
    """Return the price of GPUs beside an H100, and of how many that is the sum.

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
    return (
        f"{rate_offered(per_second)} request{'' if per_second == 1 else 's'} a second"
    )
