"""Least squares over the product's own cost model: robust, in log space, every family of measurements alike."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from groundtruth import GroundTruth, Question

from shardwright.costs.coefficients import Coefficients
from shardwright.costs.serving import serve
from shardwright.costs.workload import Arrival

FREE: Final[Mapping[str, tuple[float, float, float]]] = {
    # name: start, least, most
    "compute_efficiency": (0.6, 0.2, 1.0),
    "kv_efficiency": (0.85, 0.1, 1.0),
    "layer_seconds": (4.5e-5, 1e-6, 3e-4),
    "expert_layer_seconds": (1.5e-5, 1e-6, 3e-4),
    "step_seconds": (4e-4, 1e-5, 2e-2),
    "sequence_seconds": (1.2e-5, 1e-7, 3e-4),
    "answer_steps": (2.0, 0.2, 40.0),
    "request_seconds": (2e-2, 1e-4, 0.5),
    "admission_seconds": (8e-4, 1e-6, 2e-2),
    "bunching": (0.12, 0.01, 1.0),
    "widening": (2.0, 1.0, 4.0),
    "thin_columns": (128.0, 1.0, 512.0),
}
"""What is fitted, with where it starts and its bounds; a start far from the data is what the prior pulls to."""

PRIOR: Final = 0.05
"""Weight of the prior, in residuals."""

PRIOR_WIDTH: Final = 1.0
"""Standard deviation (log) of the prior around the start."""

WEIGHTS: Final = {"throughput": 1.0, "tpot": 0.7, "ttft": 0.35, "decision": 1.5}
"""What the square root of a residual's weight is multiplied with, by what it is of."""

TAIL: Final = 0.25
"""Log residual beyond which a row counts ever less (Cauchy)."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """Logarithms of what the model says of one question."""

    throughput: float
    tpot: float
    ttft: float


@dataclass(frozen=True, slots=True)
class Term:
    """One residual: predictions, with factors, less a constant."""

    parts: tuple[tuple[int, str, float], ...]  # question, what, factor
    target: float
    weight: float
    kind: str


@dataclass(frozen=True, slots=True)
class Scheme:
    """The generations of an engine (last month of each, empty: still) and what differs between them."""

    until: tuple[str, ...]
    own: frozenset[str]  # names that every generation has a value of its own for

    @property
    def unknowns(self) -> tuple[tuple[str, int], ...]:
        """Return (name, generation) of every unknown; generation -1 holds for all."""
        shared = [(name, -1) for name in FREE if name not in self.own]
        return (*shared, *((name, index) for name in FREE if name in self.own for index in range(len(self.until))))

    def generation(self, released: str) -> int:
        """Return the generation of a month of release."""
        last = len(self.until) - 1
        return next((i for i, until in enumerate(self.until) if not until or (released and released <= until)), last)

    def coefficients(self, theta: Sequence[float]) -> tuple[Coefficients, ...]:
        """Return the coefficients of every generation."""
        sets: list[dict[str, float]] = [{} for _ in self.until]
        for (name, generation), value in zip(self.unknowns, theta, strict=True):
            for index, values in enumerate(sets):
                if generation in (-1, index):
                    values[name] = math.exp(value)
        return tuple(Coefficients(**values) for values in sets)

    def start(self) -> list[float]:
        """Return the logarithms of the starting values."""
        return [math.log(FREE[name][0]) for name, _ in self.unknowns]


def predict(question: Question, fitted: Coefficients) -> Predicted:
    """Return what the product says of a question."""
    task = question.task
    speed = serve(task.replica, task.load, fitted)
    outputs = task.load.workload.output_tokens
    first = speed.prefill + speed.waiting
    return Predicted(
        throughput=math.log(task.groups * speed.requests_per_second * outputs),
        tpot=math.log(speed.after(first) / outputs),
        ttft=math.log(first + speed.queued),
    )


def terms(truth: GroundTruth, engine: str) -> list[Term]:
    """Return the residuals of an engine; rows of a family share what the family weighs."""
    rows = [row for row in truth.rows if truth.questions[row.question].engine == engine and not row.experimental]
    sizes = Counter(truth.questions[row.question].family for row in rows)
    found = []
    for row in rows:
        question = truth.questions[row.question]
        each = sizes[question.family] ** -0.25
        figures = [("throughput", row.output_tokens_per_second), ("tpot", row.tpot_seconds)]
        if question.task.load.workload.arrival is Arrival.CLOSED_LOOP:
            figures.append(("ttft", row.ttft_seconds))
        found += [
            Term(((row.question, kind, 1.0),), math.log(value), WEIGHTS[kind] * each, kind) for kind, value in figures if value
        ]
    return found + _decision_terms(truth, engine)


def _decision_terms(truth: GroundTruth, engine: str) -> list[Term]:
    """Return, for every layout of a set, its distance to the mean of the set."""
    sets = [item for item in truth.decisions if truth.questions[item.questions[0]].engine == engine and len(item.questions) > 1]
    sizes = Counter(item.family for item in sets)
    found = []
    for item in sets:
        each = WEIGHTS["decision"] * (sizes[item.family] * len(item.questions)) ** -0.25
        logs = [math.log(value) for value in item.values]
        mean, share = sum(logs) / len(logs), 1 / len(logs)
        for own, value in zip(item.questions, logs, strict=True):
            parts = tuple((other, "throughput", (other == own) - share) for other in item.questions)
            found.append(Term(parts, value - mean, each, "decision"))
    return found


class Problem:
    """The residuals of one engine as a function of its unknowns."""

    def __init__(self, truth: GroundTruth, engine: str, scheme: Scheme) -> None:
        self.truth, self.engine, self.scheme = truth, engine, scheme
        self.terms = terms(truth, engine)
        self.used = [index for index, question in enumerate(truth.questions) if question.engine == engine]
        self.generation = {index: scheme.generation(truth.questions[index].released) for index in self.used}

    def evaluate(self, theta: Sequence[float], only: Iterable[int] | None = None) -> dict[int, Predicted]:
        """Return the predictions of the questions."""
        sets = self.scheme.coefficients(theta)
        indices = self.used if only is None else only
        return {index: predict(self.truth.questions[index], sets[self.generation[index]]) for index in indices}

    def jacobian(self, theta: Sequence[float], at: Mapping[int, Predicted]) -> list[dict[int, Predicted]]:
        """Return the derivatives of every prediction by every unknown."""
        step, columns = 1e-4, []
        for position, (_, generation) in enumerate(self.scheme.unknowns):
            moved = [value + step * (index == position) for index, value in enumerate(theta)]
            only = [index for index in at if generation in (-1, self.generation[index])]
            there = self.evaluate(moved, only)
            columns.append({index: _slope(at[index], there[index], step) for index in only})
        return columns


def _slope(here: Predicted, there: Predicted, step: float) -> Predicted:
    return Predicted(
        (there.throughput - here.throughput) / step, (there.tpot - here.tpot) / step, (there.ttft - here.ttft) / step
    )


_NONE: Final = Predicted(0.0, 0.0, 0.0)


def residual(term: Term, at: Mapping[int, Predicted]) -> float:
    """Return prediction less measurement, in log."""
    return math.fsum(factor * getattr(at[index], kind) for index, kind, factor in term.parts) - term.target


def fit(
    problem: Problem,
    theta: Sequence[float],
    keep: Callable[[Term], bool],
    *,
    rounds: int,
    slopes: list[dict[int, Predicted]] | None = None,
) -> list[float]:
    """Return the unknowns after some rounds of damped Gauss-Newton over the terms that are kept.

    ``slopes`` are the derivatives at ``theta`` where they are known already.
    """
    kept = [term for term in problem.terms if keep(term)]
    used = {part[0] for term in kept for part in term.parts}
    here, damping = list(theta), 1e-3
    at = problem.evaluate(here, sorted(used))
    cost = _cost(problem, kept, at, here)
    for _ in range(rounds):
        columns, slopes = slopes or problem.jacobian(here, at), None
        normal, gradient = _normal(problem, kept, at, here, columns)
        for _ in range(6):
            tried = _clipped(problem.scheme, [a + b for a, b in zip(here, _solve(normal, gradient, damping), strict=True)])
            there = problem.evaluate(tried, sorted(used))
            new = _cost(problem, kept, there, tried)
            if new < cost:
                break
            damping *= 8
        else:
            return here
        gain, here, at, cost, damping = cost - new, tried, there, new, max(1e-5, damping / 4)
        if gain < 1e-4 * cost:
            break
    return here


def _cost(problem: Problem, kept: Sequence[Term], at: Mapping[int, Predicted], theta: Sequence[float]) -> float:
    total = sum(term.weight**2 * TAIL**2 * math.log1p((residual(term, at) / TAIL) ** 2) for term in kept)
    return total + sum(((a - b) / PRIOR_WIDTH) ** 2 for a, b in zip(theta, problem.scheme.start(), strict=True)) * PRIOR


def _normal(
    problem: Problem,
    kept: Sequence[Term],
    at: Mapping[int, Predicted],
    theta: Sequence[float],
    columns: Sequence[Mapping[int, Predicted]],
) -> tuple[list[list[float]], list[float]]:
    """Return the normal equations, each term weighed down by how far off it is."""
    size = len(theta)
    normal = [[0.0] * size for _ in range(size)]
    gradient = [0.0] * size
    for term in kept:
        off = residual(term, at)
        weight = term.weight**2 / (1 + (off / TAIL) ** 2)
        row = [sum(f * getattr(column.get(i, _NONE), k) for i, k, f in term.parts) for column in columns]
        for a in range(size):
            if row[a]:
                gradient[a] -= weight * row[a] * off
                for b in range(a + 1):
                    normal[a][b] += weight * row[a] * row[b]
    for a, (value, start) in enumerate(zip(theta, problem.scheme.start(), strict=True)):
        normal[a][a] += PRIOR / PRIOR_WIDTH**2
        gradient[a] -= PRIOR * (value - start) / PRIOR_WIDTH**2
        for b in range(a):
            normal[b][a] = normal[a][b]
    return normal, gradient


def _clipped(scheme: Scheme, theta: Sequence[float]) -> list[float]:
    return [
        min(max(value, math.log(FREE[name][1])), math.log(FREE[name][2]))
        for value, (name, _) in zip(theta, scheme.unknowns, strict=True)
    ]


def _solve(normal: Sequence[Sequence[float]], gradient: Sequence[float], damping: float) -> list[float]:
    """Return the damped step by elimination with pivoting, at most one unit of logarithm anywhere."""
    size = len(gradient)
    rows = [[*normal[i], gradient[i]] for i in range(size)]
    for i in range(size):
        rows[i][i] *= 1 + damping
        rows[i][i] += 1e-9
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(size):
            if r != i and rows[r][i]:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i], strict=True)]
    step = [rows[i][size] / rows[i][i] for i in range(size)]
    longest = max(1.0, *(abs(value) for value in step))
    return [value / longest for value in step]
