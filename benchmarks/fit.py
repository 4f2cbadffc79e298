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
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from fitting import FREE, Predicted, Problem, Scheme, Term, fit, linear_fit
from groundtruth import FOLDER, GroundTruth, Measured, Question, load
from tables import decisions, families, nearest, noise_floor, show

from shardwright.costs.coefficients import FARTHEST, distance
from shardwright.costs.workload import Arrival

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
FOLD_TRUSTED: Final = 1.5
"""How far (log) an unknown may move in a fold, which is fitted by the lines of the fit to all rows.
"""
DIGITS: Final = 3
ROUNDING: Final = 2e-3
"""Share of the loss that a further round may gain on numbers rounded to ``DIGITS``."""

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
    parser.add_argument(
        "--check", action="store_true", help="only say whether the file is what a fit gives"
    )
    options = parser.parse_args()
    began = time.monotonic()
    truth = load(options.half, options.data)
    print(
        f"{len(truth.rows)} rows and {len(truth.decisions)} sets: {len(truth.questions)} "
        f"different cases, {truth.unread} unread"
    )
    problem = Problem(truth, SCHEMES)
    if options.check:
        _check(problem)
        return
    theta = fit(problem, problem.start(), lambda _: True, ROUNDS)
    show(
        truth,
        problem.evaluate(theta),
        "in sample (fitted and judged on the same rows)",
        sources=True,
    )
    held = _cross_validate(problem, theta, list(FOLDS)[: 2 if options.quick else None])
    # Rows of the fit stand for questions next to the data, which no fold has of every engine.
    judged = {"": problem.evaluate(theta)} | {kind: held[kind] for kind in held if kind != "source"}
    offs = [off for kind, found in judged.items() for off in _offs(truth, kind, found)]
    bands = Bands.of(offs)
    _show_rest(truth, held, bands, offs)
    if not options.dry_run:
        OUTPUT.write_text(
            json.dumps(_document(problem, theta, bands), indent=1) + "\n", encoding="utf-8"
        )
    print(f"\n{time.monotonic() - began:.0f} s")


def _check(problem: Problem) -> None:
    """Fail unless the numbers in the file are as good as one more round of the fit makes them."""
    written = json.loads(OUTPUT.read_text(encoding="utf-8"))
    theta = problem.written(written["engines"], written["products"])
    better = fit(problem, theta, lambda _: True, 1)
    before, after = problem.cost(theta), problem.cost(better)
    print(f"loss {before:.4f} as written, {after:.4f} after one more round")
    if before - after > ROUNDING * after:
        raise SystemExit("the coefficients are not what the measurements give: run make fit")


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


@dataclass(frozen=True, slots=True)
class Off:
    """How far a held-out row was off (log, measured less predicted), and what its band goes by."""

    engine: str
    arrival: str
    distance: int
    off: float


def _offs(truth: GroundTruth, kind: str, held: Mapping[int, Predicted]) -> list[Off]:
    """Return the rows of a kind of fold (empty: nothing held out), each at its distance from the
    rows of other groups.
    """
    rows = _fitted(truth)
    total = _facets(truth, rows)
    groups: dict[object, list[Measured]] = defaultdict(list)
    for row in rows:
        groups[FOLDS[kind](truth.questions[row.question]) if kind else ""].append(row)
    found = []
    for key, members in groups.items():
        out = members if kind else []
        if kind == "shape and GPU type":
            shape, gpu = key
            out = [row for row in rows if _touches(truth.questions[row.question], shape, gpu)]
        gone = _facets(truth, out)
        for row in members:
            question = truth.questions[row.question]
            left = total[question.engine] - gone[question.engine]
            found.append(
                Off(
                    engine=question.engine,
                    arrival=question.task.load.workload.arrival.value,
                    distance=distance(left, question.task.facets),
                    off=math.log(row.output_tokens_per_second) - held[row.question].throughput,
                )
            )
    return found


def _fitted(truth: GroundTruth) -> list[Measured]:
    return [row for row in truth.rows if not row.experimental]


def _touches(question: Question, shape: object, gpu: object) -> bool:
    return question.shape == shape or question.gpu == gpu


def _facets(truth: GroundTruth, rows: Iterable[Measured]) -> dict[str, Counter[str]]:
    """Return how many rows have every facet, by engine."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        question = truth.questions[row.question]
        found[question.engine].update(question.task.facets)
    return found


@dataclass(frozen=True, slots=True)
class Bands:
    """The ends of the 80% band next to the data, by engine and arrival, as factors of a prediction;
    and how many times wider it is (log) at each distance.
    """

    ends: Mapping[str, Mapping[str, tuple[float, float]]]
    wider: tuple[float, ...]

    @classmethod
    def of(cls, offs: Sequence[Off]) -> "Bands":
        """Return the bands of rows: first how what served loads err grows with distance, in the
        mean of the engines, as each has other models near and far; then the ends.
        """
        served: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in _FAR])
        for each in offs:
            if each.arrival == Arrival.CLOSED_LOOP:
                served[each.engine][each.distance].append(abs(each.off))
        growth = (_growth(list(served.values()), far) for far in _FAR)
        # Who measured what is chance, so a band never narrows with distance.
        wider = tuple(accumulate(growth, max))
        scaled: dict[tuple[str, str], list[float]] = defaultdict(list)
        for each in offs:
            scaled[each.engine, each.arrival].append(each.off / wider[each.distance])
        ends: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
        for (engine, arrival), values in sorted(scaled.items()):
            deciles = statistics.quantiles(values, n=10)
            ends[engine][arrival] = (
                _rounded(math.exp(min(0.0, deciles[0]))),
                _rounded(math.exp(max(0.0, deciles[-1]))),
            )
        return cls(ends=ends, wider=tuple(_rounded(each) for each in wider))

    def holds(self, each: Off) -> bool:
        """Return whether a row lies inside its band."""
        low, high = self.ends[each.engine][each.arrival]
        return math.log(low) <= each.off / self.wider[each.distance] <= math.log(high)


_FAR: Final = range(FARTHEST + 1)


def _growth(engines: Sequence[Sequence[Sequence[float]]], far: int) -> float:
    """Return how many times more rows err at a distance than next to the data; 1 where no engine
    has both.
    """
    found = [_level(rows[far]) / _level(rows[0]) for rows in engines if rows[0] and rows[far]]
    return statistics.geometric_mean(found) if found else 1.0


def _level(sizes: Sequence[float]) -> float:
    return statistics.quantiles(sizes, n=5)[-1] if len(sizes) > 1 else sizes[0]


def _show_rest(
    truth: GroundTruth,
    held: Mapping[str, Mapping[int, Predicted]],
    bands: Bands,
    offs: Sequence[Off],
) -> None:
    print("\n80% band of throughput (of the prediction), and the held-out rows inside")
    for far in _FAR:
        for engine in (*bands.ends, ""):
            rows = [each for each in offs if each.distance == far and engine in ("", each.engine)]
            if rows:
                inside = statistics.fmean(map(bands.holds, rows))
                name = engine or "all"
                print(f"  {far} facets unmeasured, {name:<14} {inside:.1%} of {len(rows)} rows")
    for engine, ends in bands.ends.items():
        for arrival, (low, high) in ends.items():
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


def _document(problem: Problem, theta: Sequence[float], bands: Bands) -> dict[str, Any]:
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
        "products": _products(problem.products(theta)),
        "bands": bands.ends,
        "distances": bands.wider,
        "facets": {
            engine: dict(sorted(counts.items()))
            for engine, counts in sorted(_facets(problem.truth, _fitted(problem.truth)).items())
        },
    }


def _products(shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all engines share, rounded."""
    return {
        name: {key: _rounded(each) for key, each in value.items()}
        if isinstance(value, dict)
        else _rounded(value)
        for name, value in shared.items()
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


if __name__ == "__main__":
    main()
