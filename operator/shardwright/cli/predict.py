"""The command ``predict``: many what-ifs, one JSON object per line in and out; a bad line gets its
answer too.

It chooses nothing: a case names its layout.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TextIO, cast

from shardwright.cli.cases import Case, Cases
from shardwright.cli.exits import Exit
from shardwright.cli.inputs import STDIN
from shardwright.cli.output import print_note, with_progress
from shardwright.costs.estimates import Estimate
from shardwright.errors import InputError, Problem
from shardwright.planning.checks import MODEL_LENGTH, memory_violations
from shardwright.planning.degrees import ATTENTION_DATA
from shardwright.planning.formats import dtype_problems
from shardwright.planning.shapes import shape_problems
from shardwright.units import GIB

_LONGEST_LINE: Final = 10**7  # characters; a config is a few thousand
_ROUND: Final = 6  # significant digits
_OF_A_CASE: Final = {ATTENTION_DATA: "attentionData", MODEL_LENGTH: "maxModelLen"}
"""Fields of the resource that a case calls something else."""


def predict(arguments: Namespace) -> Exit:
    """Answer every case; the exit code says whether all could be read and priced."""
    origin, end = arguments.input or STDIN, arguments.output or STDIN
    _refuse_one_file_for_both(origin, end)
    cases, failed = Cases(), False
    if origin == STDIN and sys.stdin.isatty():
        print_note("cases are read from here: one JSON object per line, Ctrl-D at the end")
    with _opened(origin, "r") as source, _opened(end, "w") as target:
        for record in with_progress(_answers(source, cases), "cases"):
            failed |= "error" in record
            target.write(json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")
    return Exit.BAD_INPUT if failed else Exit.PLAN


def _refuse_one_file_for_both(source: str, target: str) -> None:
    if STDIN in (source, target):
        return
    same = False
    with suppress(OSError):  # one of them does not exist
        same = Path(source).samefile(target)
    if same:
        remedy = "name another --output"
        raise InputError(
            [
                Problem(
                    code="FileUnreadable",
                    what=f"{target}: cannot be read and written at once",
                    remedy=remedy,
                )
            ]
        )


def _answers(lines: Iterable[str], cases: Cases) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield answer(line, cases, number)


def answer(line: str, cases: Cases, number: int = 1) -> dict[str, Any]:
    """Return the prediction for a line, or its faults, under the case's id."""
    identity: object = None
    try:
        record = _parsed(line)
        identity = _identity(record)
        return {"id": identity, **_prediction(cases.read(record), cases)}
    except InputError as error:
        return {
            "id": identity,
            "error": [
                {"code": problem.code, "message": f"line {number:,}: {problem.sentence()}"}
                for problem in error.problems
            ],
        }


def _identity(record: Mapping[str, Any]) -> object:
    found = record.get("id")
    try:
        json.dumps(found, allow_nan=False)
    except ValueError as error:  # JSON could not say it back
        problem = Problem(
            code="CaseInvalid", what="id: must have no number that is infinite or NaN"
        )
        raise InputError([problem]) from error
    return found


def _parsed(line: str) -> Mapping[str, Any]:
    found: object = None
    gap = ""
    try:
        if len(line) <= _LONGEST_LINE:
            found = json.loads(line)
        else:
            gap = f"and is longer than {_LONGEST_LINE:,} characters"
    except json.JSONDecodeError as error:
        gap = f"and is not valid JSON at character {error.pos + 1:,}"
    except (ValueError, RecursionError):
        gap = "and has a number too long, or parts nested too deeply"
    if isinstance(found, Mapping):
        return found
    problem = Problem(code="CaseInvalid", what="must be a JSON object", gap=gap)
    raise InputError([problem])


def _prediction(case: Case, cases: Cases) -> dict[str, Any]:
    """Return the fields of a prediction: no memory and speed if the engine refuses the case."""
    problems = _refusals(case)
    if problems:
        return {"fits": False, "reasons": [_reason(problem) for problem in problems]}
    estimator = cases.estimator(case)
    found, memory = estimator.estimate(case.candidate), estimator.memory(case.candidate)
    problems = [violation.problem for violation in memory_violations(case.candidate, memory)]
    return {
        "fits": not problems,
        "reasons": [_reason(problem) for problem in problems],
        "memory": _memory(found),
        "performance": _performance(found),
    }


def _refusals(case: Case) -> list[Problem]:
    traits = case.traits
    length = case.workload.max_model_len if traits.batching.refuses_long_requests else None
    problems = shape_problems(case.model, case.candidate.layout, traits, length)
    return [
        *problems,
        *dtype_problems(case.model, case.candidate.pool.gpu, case.workload.kv_cache_dtype, traits),
    ]


def _memory(found: Estimate) -> dict[str, float]:
    worst = min(found.stages, key=lambda stage: stage.kv_cache_bytes)
    return {
        "weightsGiB": _figure(max(stage.weights_bytes for stage in found.stages) / GIB),
        "activationsGiB": _figure(worst.activations_bytes / GIB),
        "overheadGiB": _figure(worst.overhead_bytes / GIB),
        "kvCacheGiB": _figure(max(0, worst.kv_cache_bytes) / GIB),
        "kvCacheTokens": found.kv_tokens,
    }


def _performance(found: Estimate) -> dict[str, Any]:
    speed = found.performance
    return {
        "outputTokensPerSecond": _figure(speed.output_tokens_per_second),
        "requestsPerSecond": _figure(speed.requests_per_second),
        "ttftSeconds": _figure(speed.ttft_seconds),
        "tpotSeconds": _figure(speed.tpot_seconds),
        "low": _figure(speed.low),
        "high": _figure(speed.high),
        "basis": speed.basis,
    }


def _figure(value: float) -> float:
    return float(f"{value:.{_ROUND}g}")


def _reason(problem: Problem) -> dict[str, str]:
    told = replace(problem, path=_OF_A_CASE.get(problem.path, problem.path))
    return {"code": told.code, "message": told.sentence()}


@contextmanager
def _opened(name: str, mode: str) -> Iterator[TextIO]:
    if name == STDIN:
        yield sys.stdin if mode == "r" else sys.stdout
        return
    with _file(name, mode) as file:
        yield file


def _file(name: str, mode: str) -> TextIO:
    try:
        if mode == "r":
            # A bad line stops no other.
            return cast("TextIO", Path(name).open(mode, encoding="utf-8-sig", errors="replace"))
        return cast("TextIO", Path(name).open(mode, encoding="utf-8"))
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise InputError(
            [
                Problem(
                    code="FileUnreadable",
                    what=f"{name}: {text}",
                    remedy="name a file that you may open",
                )
            ]
        ) from error
