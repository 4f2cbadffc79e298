"""Least squares over the product's own cost model: robust, in log space, every family of
measurements alike.

The engines are fitted together: each has values of its own, drawn towards values that are common to
all of them.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from groundtruth import GroundTruth, Question

from shardwright.costs.coefficients import Coefficients
from shardwright.costs.speed import serve
from shardwright.costs.workload import Arrival

FREE: Final[Mapping[str, tuple[float, float, float]]] = {
    # name: start, least, most
    "compute_efficiency": (0.6, 0.2, 1.0),
    "kv_efficiency": (0.85, 0.1, 1.0),
    "product_seconds": (6e-6, 1e-7, 5e-5),
    "step_seconds": (4e-4, 1e-5, 2e-2),
    "sequence_seconds": (1.2e-5, 1e-7, 3e-4),
    "answer_steps": (2.0, 0.2, 40.0),
    "request_seconds": (2e-2, 1e-4, 0.5),
    "admission_seconds": (8e-4, 1e-6, 2e-2),
    "bunching": (0.12, 0.01, 1.0),
    "widening": (2.0, 1.0, 4.0),
    "launch_seconds": (4e-5, 1e-6, 3e-4),
}
"""What is fitted for every engine, with where the common value starts and the bounds of all."""

SHARED: Final[Mapping[str, tuple[float, float, float]]] = {
    "thin_columns": (60.0, 1.0, 512.0),
    "expert_imbalance": (0.1, 0.01, 1.0),
    "expert_evenness": (3.0, 0.2, 100.0),
    "four_bit_bytes_per_second": (6.4e12, 2e12, 2e13),
    "dense": (1.0, 0.3, 1.6),
    "experts": (0.4, 0.1, 1.6),
}
"""What is fitted for all engines at once. ``dense`` and ``experts`` have a value for every
generation of GPU and format beside one for all others: kernels are the GPU's and the format's
affair, scheduling is the engine's.
"""

SHRINKAGE_SHARED: Final = {"dense": 1.5, "experts": 0.4}
"""Weight of the distance of the value of a generation and format to that of all others."""

TIED: Final = 1.0
"""The same for an engine's ``compute_efficiency``: engines call the same kernels or like ones. At
0.1, as of other values, folds are worse: an engine's waits are then bought with its products.
"""

WAITING: Final = frozenset({"answer_steps", "request_seconds", "admission_seconds", "bunching"})
"""What stands between a prompt and its answer: an engine's own affair, hardly drawn to the others'.
"""

PRIOR: Final = 0.01
"""Weight of a common value's distance (log, squared) to its start, in residuals."""

PRIOR_EXPERTS: Final = 0.2
"""The same for what few models tell: how experts are wanted, dealt and sliced, and how four bits
are read. At 0.01 a shape held out moves them so far that it keeps less of the best layouts (tier B
0.966, at 0.2 0.974).
"""

SHRINKAGE: Final = 0.1
"""Weight of the distance of an engine's value to the common one. 0.001 to 0.3 were tried: this has
the least error over the folds of shapes and of GPU types together.
"""

SHRINKAGE_WAITING: Final = 0.003
"""The same for ``WAITING``."""

_PRIORS: Final = dict.fromkeys(
    ("thin_columns", "expert_imbalance", "expert_evenness", "four_bit_bytes_per_second"),
    PRIOR_EXPERTS,
)

_SHRINKAGES: Final[Mapping[str, float]] = {
    **dict.fromkeys(WAITING, SHRINKAGE_WAITING),
    **SHRINKAGE_SHARED,
    "compute_efficiency": TIED,
}

BOUNDS: Final = {**FREE, **SHARED}
"""Start and bounds of all unknowns."""

WEIGHTS: Final = {"throughput": 1.0, "tpot": 0.7, "ttft": 0.35, "decision": 1.5}
"""What the square root of a residual's weight is multiplied with, by what it is of."""

TAIL: Final = 0.25
"""Log residual beyond which a row counts ever less (Cauchy)."""

TRUSTED: Final = (0.7, 0.23, 0.08, 0.03)
"""How far (log) an unknown may move where the model is taken to be linear; the next where the loss
does not fall.
"""

ENOUGH: Final = 3e-4
"""Share of the loss that a round must gain for another one."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """Logarithms of what the model says of one question."""

    throughput: float
    tpot: float
    ttft: float


@dataclass(frozen=True, slots=True)
class Term:
    """One residual of an engine: predictions, with factors, less a constant."""

    engine: str
    parts: tuple[tuple[int, str, float], ...]  # question, what, factor
    target: float
    weight: float
    kind: str


@dataclass(frozen=True, slots=True)
class Scheme:
    """The generations of an engine (last month of each, empty: still) and what differs between
    them.
    """

    until: tuple[str, ...]
    own: frozenset[str]  # names that every generation has a value of its own for

    @property
    def unknowns(self) -> tuple[tuple[str, int], ...]:
        """Return (name, generation) of every unknown; generation -1 holds for all."""
        shared = [(name, -1) for name in FREE if name not in self.own]
        return (
            *shared,
            *(
                (name, index)
                for name in FREE
                if name in self.own
                for index in range(len(self.until))
            ),
        )

    def generation(self, released: str) -> int:
        """Return the generation of a month of release."""
        last = len(self.until) - 1
        return next(
            (
                i
                for i, until in enumerate(self.until)
                if not until or (released and released <= until)
            ),
            last,
        )

    def coefficients(
        self, theta: Sequence[float], shared: Mapping[str, Any]
    ) -> tuple[Coefficients, ...]:
        """Return the coefficients of every generation."""
        sets: list[dict[str, float]] = [{} for _ in self.until]
        for (name, generation), value in zip(self.unknowns, theta, strict=True):
            for index, values in enumerate(sets):
                if generation in (-1, index):
                    values[name] = math.exp(value)
        return tuple(Coefficients(**values, **shared) for values in sets)


def predict(question: Question, fitted: Coefficients) -> Predicted:
    """Return what the product says of a question."""
    task = question.task
    speed = serve(task.replica, task.load, fitted)
    outputs = task.load.workload.output_tokens
    return Predicted(
        throughput=math.log(task.groups * speed.requests_per_second * outputs),
        tpot=math.log(speed.after_first_seconds / outputs),
        ttft=math.log(speed.first_token_seconds + speed.queued_seconds),
    )


def terms(truth: GroundTruth, engine: str) -> list[Term]:
    """Return the residuals of an engine; rows of a family share what the family weighs."""
    rows = [
        row
        for row in truth.rows
        if truth.questions[row.question].engine == engine and not row.experimental
    ]
    sizes = Counter(truth.questions[row.question].family for row in rows)
    found = []
    for row in rows:
        question = truth.questions[row.question]
        each = sizes[question.family] ** -0.25
        figures = [("throughput", row.output_tokens_per_second), ("tpot", row.tpot_seconds)]
        if question.task.load.workload.arrival is Arrival.CLOSED_LOOP:
            figures.append(("ttft", row.ttft_seconds))
        found += [
            Term(engine, ((row.question, kind, 1.0),), math.log(value), WEIGHTS[kind] * each, kind)
            for kind, value in figures
            if value
        ]
    return found + _decision_terms(truth, engine)


def _decision_terms(truth: GroundTruth, engine: str) -> list[Term]:
    """Return, for every layout of a set, its distance to the mean of the set."""
    sets = [
        item
        for item in truth.decisions
        if truth.questions[item.questions[0]].engine == engine and len(item.questions) > 1
    ]
    sizes = Counter(item.family for item in sets)
    found = []
    for item in sets:
        each = WEIGHTS["decision"] * (sizes[item.family] * len(item.questions)) ** -0.25
        logs = [math.log(value) for value in item.values]
        mean, share = sum(logs) / len(logs), 1 / len(logs)
        for own, value in zip(item.questions, logs, strict=True):
            parts = tuple((other, "throughput", (other == own) - share) for other in item.questions)
            found.append(Term(engine, parts, value - mean, each, "decision"))
    return found


class Problem:
    """The residuals of all engines as a function of their unknowns; the common values come
    first.
    """

    def __init__(self, truth: GroundTruth, schemes: Mapping[str, Scheme]) -> None:
        self.truth, self.schemes = truth, schemes
        self.terms = [term for engine in schemes for term in terms(truth, engine)]
        self.used = [
            index for index, question in enumerate(truth.questions) if question.engine in schemes
        ]
        self.shared = _shared(truth.questions[index] for index in self.used)
        self.blocks = _blocks(schemes, len(FREE) + len(self.shared))
        self.unknowns = (
            [(name, -1) for name in FREE]
            + [(name, -1) for name, _ in self.shared]
            + [one for scheme in schemes.values() for one in scheme.unknowns]
        )
        self.common = [
            list(FREE).index(name) if name in FREE else len(FREE) + self.shared.index((name, ""))
            for name, _ in self.unknowns
        ]
        questions = truth.questions
        self._generations = {
            i: schemes[questions[i].engine].generation(questions[i].released) for i in self.used
        }
        self._alike = self._first_alike()

    def start(self) -> list[float]:
        """Return the logarithms of the starting values."""
        return [math.log(BOUNDS[name][0]) for name, _ in self.unknowns]

    def written(self, engines: Mapping[str, Any], products: Mapping[str, Any]) -> list[float]:
        """Return the unknowns of written coefficients; a common one is the mean of the engines."""
        own = [
            math.log(engines[engine][max(0, generation)]["values"][name])
            for engine, scheme in self.schemes.items()
            for name, generation in scheme.unknowns
        ]
        begin = len(FREE) + len(self.shared)
        common = [
            statistics.fmean(
                value
                for (other, _), value in zip(self.unknowns[begin:], own, strict=True)
                if other == name
            )
            for name in FREE
        ]
        found = (products[name] for name, _ in self.shared)
        shared = [
            math.log(value[product] if isinstance(value, dict) else value)
            for (_, product), value in zip(self.shared, found, strict=True)
        ]
        return [*common, *shared, *own]

    def cost(self, theta: Sequence[float]) -> float:
        """Return the loss at some values of the unknowns."""
        at = self.evaluate(theta)
        return _loss(((term, residual(term, at)) for term in self.terms), self, theta)

    def coefficients(self, engine: str, theta: Sequence[float]) -> tuple[Coefficients, ...]:
        """Return the coefficients of every generation of an engine."""
        begin, end = self.blocks[engine]
        return self.schemes[engine].coefficients(theta[begin:end], self.products(theta))

    def products(self, theta: Sequence[float]) -> dict[str, Any]:
        """Return the coefficients that all engines share."""
        found: dict[str, Any] = {name: {} for name in SHRINKAGE_SHARED}
        for (name, product), value in zip(self.shared, theta[len(FREE) :], strict=False):
            if name in SHRINKAGE_SHARED:
                found[name][product] = math.exp(value)
            else:
                found[name] = math.exp(value)
        return found

    def evaluate(
        self, theta: Sequence[float], only: Iterable[int] | None = None
    ) -> dict[int, Predicted]:
        """Return the predictions of the questions; those that differ in the number of replicas
        alone are priced once.
        """
        sets = {engine: self.coefficients(engine, theta) for engine in self.schemes}
        questions, found, priced = self.truth.questions, {}, {}
        for index in self.used if only is None else only:
            first = self._alike[index]
            if first not in priced:
                priced[first] = predict(
                    questions[first], sets[questions[first].engine][self._generations[first]]
                )
            more = math.log(questions[index].task.groups / questions[first].task.groups)
            found[index] = replace(priced[first], throughput=priced[first].throughput + more)
        return found

    def lines(self, theta: Sequence[float]) -> list["Line"]:
        """Return every residual and its slopes at some values of the unknowns."""
        at = self.evaluate(theta)
        columns = [self._column(theta, at, position) for position in range(len(theta))]
        return [self._line(term, at, columns) for term in self.terms]

    def _column(
        self, theta: Sequence[float], at: Mapping[int, Predicted], position: int
    ) -> dict[int, Predicted]:
        """Return the derivatives of the predictions by one unknown, where it has any."""
        step = 1e-4
        only = [index for index in at if self._takes(index, position)]
        there = self.evaluate(
            [value + step * (index == position) for index, value in enumerate(theta)], only
        )
        return {index: _slope(at[index], there[index], step) for index in only}

    def _takes(self, index: int, position: int) -> bool:
        """Return whether a question's prediction depends on an unknown."""
        question = self.truth.questions[index]
        begin, end = self.blocks[question.engine]
        if begin <= position < end:
            return self.unknowns[position][1] in (-1, self._generations[index])
        if not len(FREE) <= position < len(FREE) + len(self.shared):
            return False
        name, product = self.shared[position - len(FREE)]
        return name not in SHRINKAGE_SHARED or product in _products(question, name)

    def _line(
        self, term: Term, at: Mapping[int, Predicted], columns: Sequence[Mapping[int, Predicted]]
    ) -> "Line":
        begin, end = self.blocks[term.engine]
        slopes = []
        for position in (*range(len(FREE), len(FREE) + len(self.shared)), *range(begin, end)):
            column = columns[position]
            slope = sum(f * getattr(column.get(i, _NONE), kind) for i, kind, f in term.parts)
            if slope:
                slopes.append((position, slope))
        return Line(term, residual(term, at), tuple(slopes))

    def _first_alike(self) -> dict[int, int]:
        """Return, for every question, the first one with the same replica under the same load."""
        seen: dict[object, int] = {}
        found = {}
        for index in self.used:
            question = self.truth.questions[index]
            load, work = question.task.load, question.task.load.workload
            lengths = (work.input_tokens, work.output_tokens, work.arrival)
            running = (load.offered, load.running, load.chunk_tokens)
            key = (question.engine, question.released, question.task.replica, running, lengths)
            found[index] = seen.setdefault(key, index)
        return found


@dataclass(frozen=True, slots=True)
class Line:
    """One residual as a linear function of the unknowns: the positions that it has a slope for."""

    term: Term
    off: float
    slopes: tuple[tuple[int, float], ...]

    def at(self, moved: Sequence[float]) -> float:
        """Return the residual after the unknowns have moved."""
        return self.off + sum([slope * moved[position] for position, slope in self.slopes])


def _shared(questions: Iterable[Question]) -> list[tuple[str, str]]:
    """Return (name, generation and format; empty: others) of what all engines share."""
    found: dict[str, set[str]] = {name: {""} for name in SHARED}
    for question in questions:
        for name in SHRINKAGE_SHARED:
            found[name] |= _products(question, name) - {""}
    return [(name, product) for name, products in found.items() for product in sorted(products)]


def _products(question: Question, name: str) -> set[str]:
    kinds = question.task.replica.kinds
    return {kind.floor.product if name == "dense" else kind.floor.expert_product for kind in kinds}


def _blocks(schemes: Mapping[str, Scheme], begin: int) -> dict[str, tuple[int, int]]:
    blocks = {}
    for engine, scheme in schemes.items():
        blocks[engine] = (begin, begin + len(scheme.unknowns))
        begin += len(scheme.unknowns)
    return blocks


def _slope(here: Predicted, there: Predicted, step: float) -> Predicted:
    return Predicted(
        (there.throughput - here.throughput) / step,
        (there.tpot - here.tpot) / step,
        (there.ttft - here.ttft) / step,
    )


_NONE: Final = Predicted(0.0, 0.0, 0.0)


def residual(term: Term, at: Mapping[int, Predicted]) -> float:
    """Return prediction less measurement, in log."""
    return (
        math.fsum(factor * getattr(at[index], kind) for index, kind, factor in term.parts)
        - term.target
    )


def fit(
    problem: Problem, theta: Sequence[float], keep: Callable[[Term], bool], rounds: int
) -> list[float]:
    """Return the unknowns after some rounds, each the best of the linear problem within a distance
    that is to be trusted.
    """
    kept = [term for term in problem.terms if keep(term)]
    used = sorted({part[0] for term in kept for part in term.parts})

    def cost(values: Sequence[float]) -> float:
        at = problem.evaluate(values, used)
        return _loss(((term, residual(term, at)) for term in kept), problem, values)

    here, before = list(theta), cost(theta)
    for _ in range(rounds):
        lines = [line for line in problem.lines(here) if keep(line.term)]
        tries = (linear_fit(problem, here, lines, trusted) for trusted in TRUSTED)
        best = next(((tried, after) for tried in tries if (after := cost(tried)) < before), None)
        if best is None:
            return here
        gain, here, before = before - best[1], best[0], best[1]
        if gain < ENOUGH * before:
            break
    return here


def linear_fit(
    problem: Problem, theta: Sequence[float], lines: Sequence[Line], trusted: float
) -> list[float]:
    """Return the unknowns, each at most ``trusted`` from where the lines touch, that minimise the
    loss of the lines.
    """
    here, damping = list(theta), 1e-3

    def cost(values: Sequence[float]) -> float:
        moved = [a - b for a, b in zip(values, theta, strict=True)]
        return _loss(((line.term, line.at(moved)) for line in lines), problem, values)

    before = cost(here)
    for _ in range(25):
        normal, gradient = _normal(problem, lines, theta, here)
        for _ in range(8):
            step = damped_step(normal, gradient, damping)
            tried = _clipped(
                problem, [a + b for a, b in zip(here, step, strict=True)], theta, trusted
            )
            after = cost(tried)
            if after < before:
                break
            damping *= 6
        else:
            return here
        gain, here, before, damping = (before - after, tried, after, max(1e-6, damping / 5))
        if gain < 1e-5 * before:
            break
    return here


def _loss(offs: Iterable[tuple[Term, float]], problem: Problem, theta: Sequence[float]) -> float:
    total = sum(term.weight**2 * TAIL**2 * math.log1p((off / TAIL) ** 2) for term, off in offs)
    return total + sum(
        weight * (theta[a] - other) ** 2 for a, _, weight, other in _pulls(problem, theta)
    )


def _pulls(problem: Problem, theta: Sequence[float]) -> Iterator[tuple[int, int, float, float]]:
    """Yield (unknown, the common one or -1, weight, value that it is drawn to)."""
    for position, ((name, _), common) in enumerate(
        zip(problem.unknowns, problem.common, strict=True)
    ):
        if position == common:
            yield position, -1, _PRIORS.get(name, PRIOR), math.log(BOUNDS[name][0])
        else:
            yield position, common, _SHRINKAGES.get(name, SHRINKAGE), theta[common]


def _normal(
    problem: Problem, lines: Sequence[Line], origin: Sequence[float], theta: Sequence[float]
) -> tuple[list[list[float]], list[float]]:
    """Return the normal equations, each term weighed down by how far off it is."""
    size = len(theta)
    normal, gradient = [[0.0] * size for _ in range(size)], [0.0] * size
    moved = [a - b for a, b in zip(theta, origin, strict=True)]
    for line in lines:
        off = line.at(moved)
        weight = line.term.weight**2 / (1 + (off / TAIL) ** 2)
        for place, (a, slope) in enumerate(line.slopes):
            gradient[a] -= weight * slope * off
            row = normal[a]
            for b, other in line.slopes[: place + 1]:
                row[b] += weight * slope * other
    for a in range(size):
        for b in range(a):
            normal[b][a] = normal[a][b]
    for a, common, weight, value in _pulls(problem, theta):
        normal[a][a] += weight
        gradient[a] -= weight * (theta[a] - value)
        if common >= 0:
            normal[common][common] += weight
            normal[a][common] -= weight
            normal[common][a] -= weight
            gradient[common] += weight * (theta[a] - value)
    return normal, gradient


def _clipped(
    problem: Problem, theta: Sequence[float], origin: Sequence[float], trusted: float
) -> list[float]:
    bounds = [
        (math.log(BOUNDS[name][1]), math.log(BOUNDS[name][2])) for name, _ in problem.unknowns
    ]
    return [
        min(max(value, least, middle - trusted), most, middle + trusted)
        for value, middle, (least, most) in zip(theta, origin, bounds, strict=True)
    ]


def damped_step(
    normal: Sequence[Sequence[float]], gradient: Sequence[float], damping: float
) -> list[float]:
    """Return the damped step by elimination with pivoting, at most one unit of logarithm
    anywhere.
    """
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
