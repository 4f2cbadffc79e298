"""Fit the coefficients of the cost model to published measurements, cross-validate them, and write
them as data.

    make fit          # from the repository root; ../shared/groundtruth beside the checkout has the measurements

Pure Python and the product's own code: there is no second model. A fold holds out all rows of one
shape of a model (layers, hidden size, heads, K/V heads, feed-forward widths; not its name), of one
GPU type, of one pair of both, or of one source, and is fitted anew without them.
"""  # noqa: E501

import argparse
import json
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fitting import FREE, Predicted, Problem, Scheme, Term, fit, linear_fit
from groundtruth import FOLDER, GroundTruth, Question, load
from tables import decisions, families, nearest, noise_floor, show

OUTPUT: Final = (
    Path(__file__).resolve().parents[1] / "operator" / "shardwright" / "costs" / "coefficients.json"
)

PER_GENERATION: Final = frozenset(
    {"compute_efficiency", "product_seconds", "step_seconds", "sequence_seconds"}
)
"""What changes with an engine's software: its kernels, how they are started and how steps are
prepared.
"""

SCHEMES: Final[Mapping[str, Scheme]] = {
    "vLLM": Scheme(("2024-12", ""), PER_GENERATION),  # V0, V1
    "TensorRT-LLM": Scheme(("2025-03", ""), PER_GENERATION),  # the C++ engines, the PyTorch backend
    "SGLang": Scheme(("",), frozenset()),
}
"""The generations of every engine, by the last month of release (empty: still)."""

ROUNDS: Final = 12
FOLD_TRUSTED: Final = 2.0
LINEAR: Final = 0.35
"""A fold is fitted by the lines of the fit to all rows; where an unknown moves further (log), a
round of its own follows.
"""
DIGITS: Final = 3

Group = Callable[[Question], object]

FOLDS: Final[Mapping[str, Group]] = {
    "shape": lambda question: question.shape,
    "GPU type": lambda question: question.gpu,
    "shape and GPU type": lambda question: (question.shape, question.gpu),
    "source": lambda question: question.source,
}


def main() -> None:
    """Fit, cross-validate, print the tables, write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the measurements")
    parser.add_argument("--half", default="dev", help="which half of them (default: dev)")
    parser.add_argument(
        "--quick", action="store_true", help="without the folds of pairs and of sources"
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    options = parser.parse_args()
    began = time.monotonic()
    truth = load(options.half, options.data)
    print(
        f"{len(truth.rows)} rows and {len(truth.decisions)} sets: {len(truth.questions)} "
        f"different cases, {truth.unread} unread"
    )
    problem = Problem(truth, SCHEMES)
    theta = fit(problem, problem.start(), lambda _: True, ROUNDS)
    show(
        truth,
        problem.evaluate(theta),
        "in sample (fitted and judged on the same rows)",
        sources=True,
    )
    held = _cross_validate(problem, theta, list(FOLDS)[: 2 if options.quick else None])
    bands = _bands(truth, [held["shape"], held["GPU type"]])
    _show_rest(truth, held, bands)
    if not options.dry_run:
        OUTPUT.write_text(
            json.dumps(_document(problem, theta, bands), indent=1) + "\n", encoding="utf-8"
        )
    print(f"\n{time.monotonic() - began:.0f} s")


def _cross_validate(
    problem: Problem, theta: Sequence[float], kinds: Sequence[str]
) -> dict[str, dict[int, Predicted]]:
    """Return, by kind of fold, the predictions of every question by a fit without its group."""
    lines = problem.lines(theta)
    held: dict[str, dict[int, Predicted]] = {}
    for kind in kinds:
        found: dict[int, Predicted] = {}
        for members, kept in _folds(problem, kind):
            there = linear_fit(
                problem, theta, [line for line in lines if kept(line.term)], FOLD_TRUSTED
            )
            if max(abs(a - b) for a, b in zip(there, theta, strict=True)) > LINEAR:
                there = fit(problem, there, kept, 1)
            found |= problem.evaluate(there, members)
        held[kind] = found
        show(problem.truth, found, f"one {kind} held out", sources=True)
    return held


def _folds(problem: Problem, kind: str) -> Iterable[tuple[list[int], Callable[[Term], bool]]]:
    """Yield the questions of every fold, and whether a term may be fitted on without them.

    Where shape and GPU type are held out, all rows of either are.
    """
    group, questions = FOLDS[kind], problem.truth.questions
    members: dict[object, list[int]] = defaultdict(list)
    for index in problem.used:
        members[group(questions[index])].append(index)
    for key, indices in members.items():
        out = set(indices)
        if isinstance(key, tuple) and kind == "shape and GPU type":
            out = {
                i
                for i in problem.used
                if questions[i].shape == key[0] or questions[i].gpu == key[1]
            }
        yield indices, _without(out)


def _without(out: set[int]) -> Callable[[Term], bool]:
    return lambda term: not any(part[0] in out for part in term.parts)


def _bands(
    truth: GroundTruth, held: Sequence[Mapping[int, Predicted]]
) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the factors from prediction to the ends of the 80% band, by engine and arrival, from
    held-out rows.
    """
    offs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in truth.rows:
        if row.experimental:
            continue
        question = truth.questions[row.question]
        key = (question.engine, question.task.load.workload.arrival.value)
        offs[key] += [
            math.log(row.output_tokens_per_second) - predicted[row.question].throughput
            for predicted in held
        ]
    bands: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for (engine, arrival), values in sorted(offs.items()):
        deciles = statistics.quantiles(values, n=10)
        bands[engine][arrival] = (
            _rounded(math.exp(min(0.0, deciles[0]))),
            _rounded(math.exp(max(0.0, deciles[-1]))),
        )
    return dict(bands)


def _show_rest(
    truth: GroundTruth, held: Mapping[str, Mapping[int, Predicted]], bands: Mapping[str, Any]
) -> None:
    print(
        "\n80% band of throughput (of the prediction; from both kinds of held-out rows), and the "
        "held-out rows inside"
    )
    for kind in ("shape", "GPU type"):
        inside = [
            _inside(truth, row.question, row.output_tokens_per_second, held[kind], bands)
            for row in truth.rows
        ]
        print(
            f"  one {kind} held out: {statistics.fmean(inside):.1%} of {len(inside)} rows are "
            "inside"
        )
    for engine, rows in bands.items():
        for arrival, (low, high) in rows.items():
            print(f"  {engine:<14}{arrival:<12} {low - 1:+.0%} to {high - 1:+.0%}")
    print(
        "\nnoise floor (equal cases): "
        + ", ".join(f"{kind} {value:.1%}" for kind, value in noise_floor(truth))
    )
    for kind in ("shape", "GPU type"):
        groups = {index: FOLDS[kind](question) for index, question in enumerate(truth.questions)}
        figures = decisions(truth, nearest(truth, groups))
        shown = ", ".join(f"{tier} {kept:.4f} ({top:.0%})" for tier, kept, top, _ in figures)
        print(f"nearest neighbour without physics, one {kind} held out: kept (top-1) {shown}")
    print("\nthe ten worst families with one shape held out (median error, signed in log, rows)")
    for absolute, signed, rows, name in families(truth, held["shape"])[:10]:
        print(f"  {absolute:7.1%} {signed:+.2f} {rows:4}  {name}")


def _inside(
    truth: GroundTruth,
    index: int,
    measured: float,
    predicted: Mapping[int, Predicted],
    bands: Mapping[str, Any],
) -> bool:
    question = truth.questions[index]
    low, high = bands[question.engine][question.task.load.workload.arrival.value]
    return bool(low <= measured / math.exp(predicted[index].throughput) <= high)


def _document(problem: Problem, theta: Sequence[float], bands: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "basis": "fitted",
        "source": (
            "benchmarks/fit.py, published measurements of groundtruth/throughput_dev.csv and "
            "decisions_dev.csv"
        ),
        "engines": {
            engine: [
                {"until": until, "values": {name: _rounded(getattr(fitted, name)) for name in FREE}}
                for until, fitted in zip(
                    scheme.until, problem.coefficients(engine, theta), strict=True
                )
            ]
            for engine, scheme in SCHEMES.items()
        },
        "bands": bands,
        "formats": _formats(problem.truth),
    }


def _formats(truth: GroundTruth) -> dict[str, dict[str, int]]:
    """Return how many rows there are of every way to store weights, by engine."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for row in truth.rows:
        if not row.experimental:
            question = truth.questions[row.question]
            rows[question.engine].update(
                {name for kind in question.task.replica.kinds for name in kind.floor.formats}
            )
    return {engine: dict(sorted(counts.items())) for engine, counts in sorted(rows.items())}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


if __name__ == "__main__":
    main()
