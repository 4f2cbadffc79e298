"""Prompts and answers apart, beside the whole plan: which groups, how fast, and why or why not."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from shardwright.planning.pairing import GAIN_FOR_TWO_HALVES, SURE_GAIN
from shardwright.planning.report import Half, Pair, PairChoice, PairCode, PairReason
from shardwright.reporting.figures import format_count, format_seconds, short_layout
from shardwright.units import format_bytes, format_plural, to_milliseconds

_WORDS: Final[Mapping[PairCode, str]] = MappingProxyType(
    {
        PairCode.PAIR_WOULD_IDLE: "{0:.0%} of its GPU time would be idle: too few requests are in "
        "flight for so many GPUs",
        PairCode.PROMPTS_ARE_CHEAP: "other prompts take {0:.0%} of the time of a token: there is "
        "little to put apart",
        PairCode.TRANSFER_TOO_SLOW: "K/V would take {0:.2g} times as long to move as to compute: "
        "it wants a faster network between the nodes",
        PairCode.PAIR_HALVES_FAIL: "either half of its one unit stops all, where whole groups "
        f"stand in for each other: {GAIN_FOR_TWO_HALVES:g} times the tokens for the same cost are "
        "worth that, it serves {0:.2f} times",
        PairCode.PAIR_NEEDS_PIPELINE: "the model fits in {0:.0f} pipeline stages or more, and "
        "stages hand over no K/V",
        PairCode.PAIR_HAS_NO_ROOM: "it needs a group of each kind, or as many as prefillGroups, "
        "decodeGroups and replicas say: within the budget there is room for {0:.0f}",
        PairCode.PAIR_MISSES_LIMITS: "within the budget it misses the load or a limit by {0:.0%}",
        PairCode.GAIN_UNCERTAIN: "it serves {0:.2f} times the tokens of the whole plan for the "
        f"same cost; a gain below {SURE_GAIN:g} may be an error of the prediction",
        PairCode.PAIR_SLOWER: "it serves {0:.2f} times the tokens of the whole plan for the same "
        "cost",
        PairCode.PAIR_UNSUPPORTED: "this engine hands no K/V of this model from group to group",
    }
)
"""A reason in words, with its number."""


def reason_sentence(reason: PairReason) -> str:
    """Return a reason in words.

    >>> reason_sentence(PairReason(code=PairCode.PAIR_WOULD_IDLE, amount=0.62))[:31]
    '62% of its GPU time would be id'
    """
    return _WORDS[reason.code].format(reason.amount)


def only_apart(choice: PairChoice | None) -> str:
    """Return what is said where no whole plan is, but a pair; empty if none is taken either."""
    return "no whole groups fit, and a pair is taken" if choice and choice.taken else ""


def said_of_pair(choice: PairChoice | None) -> Iterator[tuple[str, str]]:
    """Yield whether prompts and answers are apart and why, first in one line, each with a label."""
    if choice is None:
        return
    said = [reason_sentence(reason) for reason in choice.reasons]
    if choice.best is None:
        yield "Apart", f"no: {said[0]}"
        return
    if choice.taken:
        gain = choice.best.gain
        why = said or [
            "no whole plan carries the load within the limits"
            if gain is None
            else f"{gain:.2f} times the tokens of the whole plan for the same cost"
        ]
        yield "Apart", f"yes: {pair_figures(choice.best)}; {why[0]}"
    else:
        yield "Apart", f"no: {said[0]}"
        yield "Best pair", pair_figures(choice.best)
    for more in said[1:]:
        yield "Also", more


def pair_figures(pair: Pair) -> str:
    """Return the groups of a pair and its figures in one line."""
    speed = pair.performance
    units = f"{pair.units} units of " if pair.units > 1 else ""
    moved = f"{format_bytes(pair.transfer_bytes)} in {format_seconds(pair.transfer_seconds)}"
    return (
        f"{units}{_groups(pair.prefill)} for prompts + {_groups(pair.decode)} for answers, "
        f"{format_plural(pair.gpus, 'GPU')}: {format_count(speed.output_tokens_per_second)} "
        f"output tok/s, first token {format_seconds(speed.ttft_seconds)}, "
        f"{format_seconds(speed.tpot_seconds)} per token; K/V of a prompt {moved}"
    )


def _groups(half: Half) -> str:
    layout = half.plan.layout
    cut = short_layout(layout).rpartition(" x ")[2]
    return f"{half.groups} x {cut}"


def pair_document(choice: PairChoice) -> dict[str, Any]:
    """Return the answer to who asks for a pair, for programs."""
    best = choice.best
    reasons = [
        {
            "code": reason.code.value,
            "amount": float(f"{reason.amount:.4g}"),
            "message": reason_sentence(reason),
        }
        for reason in choice.reasons
    ]
    return {"taken": choice.taken, "reasons": reasons, **({"best": _best(best)} if best else {})}


def _best(pair: Pair) -> dict[str, Any]:
    speed = pair.performance
    return {
        "units": pair.units,
        "gpus": pair.gpus,
        "prefill": _half(pair.prefill),
        "decode": _half(pair.decode),
        "transferBytes": pair.transfer_bytes,
        "transferMilliseconds": to_milliseconds(pair.transfer_seconds),
        "outputTokensPerSecond": round(speed.output_tokens_per_second, 1),
        "ttftMilliseconds": to_milliseconds(speed.ttft_seconds),
        "tpotMilliseconds": to_milliseconds(speed.tpot_seconds),
        **({} if pair.gain is None else {"gainPercent": round(100 * (pair.gain - 1))}),
    }


def _half(half: Half) -> dict[str, Any]:
    layout = half.plan.layout
    return {
        "groups": half.groups,
        "tensor": layout.tensor,
        "expert": layout.expert,
        "dataParallelAttention": layout.attention_data,
        "context": layout.context,
        "requestsPerSecond": float(f"{half.rate:.4g}"),
        "requestsInFlight": float(f"{half.in_flight:.4g}"),
    }
