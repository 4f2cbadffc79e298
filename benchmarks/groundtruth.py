"""The published measurements as tasks of the product's own cost model, with what was measured
beside them.
"""

import importlib.util
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from shardwright.cli.predict import Case, Cases
from shardwright.costs.estimator import Task
from shardwright.errors import InputError

FOLDER: Final = Path(__file__).resolve().parents[2] / "shared" / "groundtruth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One case that can be priced, and the groups that it belongs to."""

    task: Task
    engine: str
    released: str
    source: str
    model: str
    shape: tuple[int, ...]  # layers, hidden, heads, K/V heads, intermediate: what a fold holds out
    gpu: str
    gpus: int

    @property
    def family(self) -> tuple[str, str, str]:
        """Return what is weighed like any other."""
        return self.source, self.model, self.gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One row: seconds and tokens per second, None where the source does not say."""

    question: int
    output_tokens_per_second: float
    tpot_seconds: float | None
    ttft_seconds: float | None
    experimental: bool  # by its own authors' word: judged, not fitted on


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Layouts that were measured for the same model, GPUs and load, with what each brought."""

    tier: str
    family: str
    engine: str
    spread: float
    questions: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruth:
    """All rows of one half; equal cases are one question."""

    questions: tuple[Question, ...]
    rows: tuple[Measured, ...]
    decisions: tuple[Decision, ...]
    unread: int


def load(half: str, folder: Path = FOLDER) -> GroundTruth:
    """Read the tables of a half with the scorer's own code."""
    scores = scorer(folder)
    reader, catalogue = _Reader(), scores.Catalogue(folder)
    rows = list(_rows(scores.throughput_cases(folder, half, catalogue), reader))
    sets: dict[str, list[tuple[int, Mapping[str, str]]]] = defaultdict(list)
    for case, row in scores.decision_cases(folder, half, catalogue):
        if (question := reader.question(case, row)) is not None:
            sets[row["set_id"]].append((question, row))
    return GroundTruth(
        questions=tuple(reader.questions),
        rows=tuple(rows),
        decisions=tuple(_decision(members) for members in sets.values()),
        unread=reader.unread,
    )


def _rows(
    cases: Iterator[tuple[dict[str, Any], dict[str, str]]], reader: "_Reader"
) -> Iterator[Measured]:
    for case, row in cases:
        if (question := reader.question(case, row)) is not None:
            yield Measured(
                question=question,
                output_tokens_per_second=float(row["out_tok_s_total"]),
                tpot_seconds=_seconds(row["tpot_ms"]),
                ttft_seconds=_seconds(row["ttft_ms"]),
                experimental="experimental" in row["quality"],
            )


def _seconds(milliseconds: str) -> float | None:
    return float(milliseconds) / 1000 if milliseconds and float(milliseconds) > 0 else None


def _decision(members: list[tuple[int, Mapping[str, str]]]) -> Decision:
    row = members[0][1]
    return Decision(
        tier=row["tier"],
        family=row["family"],
        engine=row["engine"],
        spread=float(row["set_spread"]),
        questions=tuple(question for question, _ in members),
        values=tuple(float(row["measured_value"]) for _, row in members),
    )


class _Reader:
    """Turns cases into questions, equal ones once."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.unread = 0
        self._cases = Cases()
        self._known: dict[str, int | None] = {}

    def question(self, case: dict[str, Any], row: Mapping[str, str]) -> int | None:
        key = json.dumps(
            {name: value for name, value in case.items() if name != "id"} | {"s": row["source_id"]},
            sort_keys=True,
        )
        if key not in self._known:
            self._known[key] = self._add(case, row)
        return self._known[key]

    def _add(self, case: dict[str, Any], row: Mapping[str, str]) -> int | None:
        try:
            read = self._cases.read(case)
        except InputError:
            self.unread += 1
            return None
        self.questions.append(_question(read, self._cases, row))
        return len(self.questions) - 1


def _question(case: Case, cases: Cases, row: Mapping[str, str]) -> Question:
    (candidate,) = case.candidates
    return Question(
        task=cases.estimator(case).task(candidate),
        engine=case.traits.name,
        released=case.traits.released,
        source=row["source_id"],
        model=row["model"],
        shape=_shape(case),
        gpu=row["gpu"],
        gpus=candidate.layout.gpus,
    )


def _shape(case: Case) -> tuple[int, ...]:
    """Return what makes two models alike: layers, hidden size, heads, K/V heads and feed-forward
    widths.
    """
    model = case.model
    heads = max((getattr(layer.attention, "heads", 0) for layer in model.layers), default=0)
    kv_heads = max((getattr(layer.attention, "kv_heads", 0) for layer in model.layers), default=0)
    widths = {
        getattr(layer.feed_forward, name, 0)
        for layer in model.layers
        for name in ("intermediate", "expert_intermediate")
    }
    return (len(model.layers), model.hidden_size, heads, kv_heads, *sorted(widths - {0}))


def scorer(folder: Path) -> ModuleType:
    """Return the scorer beside the measurements as a module."""
    spec = importlib.util.spec_from_file_location("score", folder / "score.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(folder / "score.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["score"] = module
    spec.loader.exec_module(module)
    return module
