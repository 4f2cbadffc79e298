"""How good predictions are: the scorer's figures for any set of them, its noise floor, and a
baseline without physics.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from fitting import Predicted
from groundtruth import GroundTruth, Measured, Question

TIERS = ("A", "B", "A+B", "C", "all")
FEW = 50  # rows of a source below which its error is not printed


def decisions(
    truth: GroundTruth, predicted: Mapping[int, float]
) -> Iterator[tuple[str, float, float, int]]:
    """Yield (tier, kept, top-1, sets); as score.py: families first, ties under 3% left out, equal
    predictions share.
    """
    kept: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    hits: dict[str, list[bool]] = defaultdict(list)
    for item in truth.decisions:
        if len(item.questions) < 2 or item.spread < 1.03:  # noqa: PLR2004 - the scorer's own rule
            continue
        values = [float(f"{math.exp(predicted[index]):.6g}") for index in item.questions]
        chosen = statistics.fmean(
            m for p, m in zip(values, item.values, strict=True) if p == max(values)
        )
        share = chosen / max(item.values)
        for tier in (item.tier, "all", *(("A+B",) if item.tier in {"A", "B"} else ())):
            kept[tier][item.family].append(share)
            hits[tier].append(share >= 0.99)  # noqa: PLR2004 - the scorer's own rule
    for tier in TIERS:
        mean = statistics.fmean(statistics.fmean(shares) for shares in kept[tier].values())
        yield tier, mean, statistics.fmean(hits[tier]), len(hits[tier])


def errors(
    truth: GroundTruth, predicted: Mapping[int, Predicted]
) -> dict[str, dict[str, list[float]]]:
    """Return signed log errors by what was measured, over all rows and by source."""
    found: dict[str, dict[str, list[float]]] = {
        kind: defaultdict(list) for kind in ("throughput", "tpot", "ttft")
    }
    for row in truth.rows:
        source = truth.questions[row.question].source
        for kind, value in _figures(row):
            off = getattr(predicted[row.question], kind) - math.log(value)
            found[kind]["all"].append(off)
            found[kind][source].append(off)
    return found


def families(
    truth: GroundTruth, predicted: Mapping[int, Predicted]
) -> list[tuple[float, float, int, str]]:
    """Return (median absolute error, median log error, rows, family) of the throughput of every
    family, the worst first.
    """
    by: dict[str, list[float]] = defaultdict(list)
    for row in truth.rows:
        question = truth.questions[row.question]
        off = predicted[row.question].throughput - math.log(row.output_tokens_per_second)
        by[f"{question.source} | {question.engine} | {question.model} | {question.gpu}"].append(off)
    return sorted(
        ((_absolute(off), statistics.median(off), len(off), name) for name, off in by.items()),
        reverse=True,
    )


def show(
    truth: GroundTruth, predicted: Mapping[int, Predicted], title: str, *, sources: bool = False
) -> None:
    """Print decisions and median absolute errors."""
    print(f"\n{title}")
    throughput = {index: item.throughput for index, item in predicted.items()}
    for tier, kept, top, sets in decisions(truth, throughput):
        print(f"  decisions {tier:<22} sets={sets:<5} kept {kept:.4f}   top-1 {top:6.1%}")
    for kind, groups in errors(truth, predicted).items():
        for name, offs in sorted(groups.items(), key=lambda item: (item[0] != "all", item[0])):
            if name == "all" or (sources and kind == "throughput" and len(offs) >= FEW):
                print(
                    f"  {kind:<10}{name:<22} n={len(offs):<5} median error {_absolute(offs):6.1%}"
                )


def noise_floor(truth: GroundTruth) -> Iterator[tuple[str, float]]:
    """Yield the median error of predicting equal cases by the middle of what was measured for
    them.
    """
    for kind in ("throughput", "tpot", "ttft"):
        same: dict[int, list[float]] = defaultdict(list)
        for row in truth.rows:
            for name, value in _figures(row):
                if name == kind:
                    same[row.question].append(value)
        offs = [
            abs(value - statistics.median(values)) / value
            for values in same.values()
            if len(values) > 1
            for value in values
        ]
        if offs:
            yield kind, statistics.median(offs)


def nearest(truth: GroundTruth, groups: Mapping[int, object]) -> dict[int, float]:
    """Return log throughput of every question by the nearest measured row of another group, without
    any physics.

    Near: the same engine and arrival, then the logarithms of lengths, requests, GPUs, bandwidth,
    bytes and heads.
    """
    rows: dict[tuple[str, str], list[tuple[tuple[float, ...], object, float]]] = defaultdict(list)
    for row in truth.rows:
        question = truth.questions[row.question]
        each = math.log(row.output_tokens_per_second / question.task.groups)
        rows[_alike(question)].append((_features(question), groups[row.question], each))
    found = {}
    for index, question in enumerate(truth.questions):
        here = _features(question)
        others = [
            (_distance(here, there), value)
            for there, group, value in rows[_alike(question)]
            if group != groups[index]
        ]
        found[index] = min(others, default=(0.0, 0.0))[1] + math.log(question.task.groups)
    return found


def _figures(row: Measured) -> Iterator[tuple[str, float]]:
    for kind, value in (
        ("throughput", row.output_tokens_per_second),
        ("tpot", row.tpot_seconds),
        ("ttft", row.ttft_seconds),
    ):
        if value:
            yield kind, value


def _absolute(offs: Sequence[float]) -> float:
    return statistics.median(abs(math.exp(off) - 1) for off in offs)


def _alike(question: Question) -> tuple[str, str]:
    return question.engine, question.task.load.workload.arrival.value


def _features(question: Question) -> tuple[float, ...]:
    task, floor = question.task, question.task.replica.kinds[0].floor
    work = task.load.workload
    figures = (
        work.input_tokens,
        work.output_tokens,
        task.load.offered,
        task.replica.tensor,
        task.replica.stages,
        task.replica.links.peers,
        (floor.weights_seconds + floor.expert_weights_seconds) * 1e3,
        floor.token_seconds * 1e9,
    )
    return tuple(math.log(figure) for figure in figures)


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
