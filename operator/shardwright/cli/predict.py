"""The command ``predict``: many what-ifs, one JSON object per line in and out; a bad line gets its
answer too.

It chooses nothing: a case names its layout.

Cases of ``predict``: turns a JSON object into a model, a candidate, a workload and an engine.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TextIO, cast

from shardwright.api.case import CaseHardware, CaseLine, CaseModel, CaseParallelism, read_case
from shardwright.api.planner_request import DEFAULT_CONCURRENCY
from shardwright.cli.exits import Exit
from shardwright.cli.inputs import STDIN
from shardwright.cli.named_gpus import usual_node
from shardwright.cli.output import print_note, with_progress
from shardwright.costs.estimates import Estimate, Performance
from shardwright.costs.estimator import Estimator
from shardwright.costs.pairs import PairEstimator, Unit, kv_bytes, transfer_seconds
from shardwright.costs.workload import Arrival, Phase, Workload
from shardwright.engines.registry import BY_LOWER_NAME, traits_of
from shardwright.errors import InputError, Problem
from shardwright.hardware.gpus import DEVICES_PER_PACKAGE, Gpu, find_gpu
from shardwright.hardware.inventory import Node, Pool
from shardwright.hardware.topology import read_domain, read_network
from shardwright.hardware.untrusted import raw_node
from shardwright.layouts.layout import Candidate, EngineTraits, Layout
from shardwright.layouts.placing import Shelf
from shardwright.modelspec.catalogue import find_model, model_unknown
from shardwright.modelspec.computed import stored_as
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.modelspec.read import read_model
from shardwright.planning.checks import MODEL_LENGTH, memory_violations
from shardwright.planning.engine_limits import ATTENTION_DATA, dtype_problems
from shardwright.planning.shapes import shape_problems
from shardwright.units import GIB

_RESOURCES: Final = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case, in the planner's values: whole groups, or those that compute prompts and those that
    answer.
    """

    model: ModelSpec
    traits: EngineTraits
    workload: Workload
    candidates: tuple[Candidate, ...]


class Cases:
    """Reads cases; parts that many of them share (model, hardware, engine) are read once."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str | None], ModelSpec] = {}
        self._estimators: dict[tuple[object, ...], Estimator] = {}
        self._shelves: dict[CaseHardware, Shelf] = {}
        self._candidates: dict[tuple[CaseHardware, Layout], Candidate] = {}

    def read(self, content: Mapping[str, Any]) -> Case:
        """Return a case.

        Raises:
            InputError: a field is missing, of the wrong type or out of bounds, the model cannot be
                read, or the GPU is unknown.
        """
        line = read_case(content)
        layouts = _layouts(line)
        model = self._model(_config(line.model), line.weights)
        traits = _traits(
            BY_LOWER_NAME[line.engine.name], line.engine.version, line.memory_utilization
        )
        return Case(
            model=model,
            traits=traits,
            workload=_workload(line, layouts[-1], model, traits),
            candidates=tuple(self._candidate(line.hardware, layout) for layout in layouts),
        )

    def estimator(self, case: Case) -> Estimator:
        """Return the estimator of a case; cases share whatever their loads do not change."""
        model = case.model
        traits = case.traits
        key = (
            model.config_hash,
            model.quantization,
            model.dtype,
            traits.name,
            traits.version,
            traits.memory.memory_utilization,
        )
        if key not in self._estimators:
            self._estimators[key] = Estimator(model, case.workload, traits)
        return self._estimators[key].under(case.workload)

    def _model(self, config: Mapping[str, Any], stored: str | None) -> ModelSpec:
        key = (json.dumps(config, sort_keys=True), stored)
        if key not in self._models:
            model = read_model(config, source="model.config")
            self._models[key] = stored_as(model, stored) if stored else model
        return self._models[key]

    def _candidate(self, hardware: CaseHardware, layout: Layout) -> Candidate:
        key = (hardware, layout)
        if key not in self._candidates:
            pool = _pool(hardware)
            shelf = self._shelves.setdefault(hardware, Shelf(pool))
            self._candidates[key] = Candidate(
                layout=layout, pool=pool, placement=shelf.place(layout)
            )
        return self._candidates[key]


def _config(model: CaseModel) -> Mapping[str, Any]:
    if not model.id:
        return model.config
    entry = find_model(model.id)
    if entry is None:
        remedy = "give its config.json as model.config"
        raise InputError([replace(model_unknown(model.id), path="model.id", remedy=remedy)])
    return entry.config


@lru_cache(maxsize=256)
def _pool(hardware: CaseHardware) -> Pool:
    gpu = _package(hardware.gpu_product)
    resource = _RESOURCES.get(gpu.vendor, "gpu")
    count = _gpus_per_node(hardware)
    raw = raw_node(
        {"metadata": {"name": "node"}, "status": {"allocatable": {resource: count, "rdma/hca": 1}}}
    )
    domain = read_domain(raw, gpu, count, count, None)
    return Pool(
        name=hardware.gpu_product,
        gpu=gpu,
        product=hardware.gpu_product,
        gpus_per_node=count,
        domain_gpus=hardware.nvlink_domain_gpus or domain.gpus,
        network=read_network(raw, gpu, count, None),
        resource=resource,
        architecture="amd64",
        nodes=tuple(_node(index, count, hardware, domain.name) for index in range(hardware.nodes)),
        warnings=(domain.warning,) if domain.warning else (),
    )


def _gpus_per_node(hardware: CaseHardware) -> int:
    if hardware.gpus_per_node:
        return hardware.gpus_per_node
    gpu = find_gpu(hardware.gpu_product)
    usual = usual_node(gpu) if gpu else None
    # A case counts packages.
    return usual[0] // DEVICES_PER_PACKAGE.get(gpu.id, 1) if gpu and usual else 1


def _package(product: str) -> Gpu:
    """Return a GPU as cases count it: a whole package, whose dies are devices of their own."""
    gpu = find_gpu(product)
    if gpu is None:
        raise InputError(
            [
                Problem(
                    code="GpuUnknown",
                    path="hardware.gpuProduct",
                    what=f"{product!r:.60}",
                    limit="must name a GPU of the catalogue",
                )
            ]
        )
    dies = DEVICES_PER_PACKAGE.get(gpu.id, 1)
    link = gpu.scale_up and replace(
        gpu.scale_up, bytes_per_second=gpu.scale_up.bytes_per_second * dies
    )
    return replace(
        gpu,
        memory_bytes=gpu.memory_bytes * dies,
        memory_bytes_per_second=gpu.memory_bytes_per_second * dies,
        flops={unit: rate * dies for unit, rate in gpu.flops.items()},
        matmul_flops={unit: rate * dies for unit, rate in gpu.matmul_flops.items()},
        scale_up=link,
    )


def _node(index: int, count: int, hardware: CaseHardware, domain: str) -> Node:
    name = f"node-{index:04}"
    joined = name if domain else ""
    size = hardware.nvlink_domain_gpus
    if size > count:
        joined = f"rack-{index * count // size}"
    return Node(name=name, gpus=count, free=count, domain=joined, path=(), labels={})


def _layouts(line: CaseLine) -> tuple[Layout, ...]:
    if line.disaggregation is None:
        return (_layout(line.parallelism or CaseParallelism()),)
    halves = line.disaggregation.prefill, line.disaggregation.decode
    return tuple(replace(_layout(half.parallelism), replicas=half.workers) for half in halves)


def _layout(degrees: CaseParallelism) -> Layout:
    """Return the layout; a case counts attention-data ranks in ``tensor``, a layout beside it."""
    return Layout(
        tensor=degrees.tensor // degrees.attention_data,
        pipeline=degrees.pipeline,
        expert=degrees.expert,
        attention_data=degrees.attention_data,
        replicas=degrees.replicas,
    )


def _has_fp8_cache(model: ModelSpec, traits: EngineTraits) -> bool:
    """Return whether K/V is FP8 by checkpoint or engine; ModelOpt's (all in NVFP4 are) say so."""
    stored = {weight.storage.name for weight in model.weights if weight.quantizable}
    return "nvfp4" in stored or ("fp8" in stored and traits.memory.cache_follows_weights)


def _workload(line: CaseLine, layout: Layout, model: ModelSpec, traits: EngineTraits) -> Workload:
    load = line.workload
    cache = line.kv_cache
    all_that_fits = traits.batching.max_sequences * (layout.replicas * layout.attention_data)
    usual = all_that_fits if load.arrival is Arrival.SATURATED else DEFAULT_CONCURRENCY
    return Workload(
        input_tokens=round(load.input_tokens),
        output_tokens=round(load.output_tokens),
        concurrency=round(load.concurrency or usual),
        max_model_len=round(line.max_model_len or load.input_tokens + load.output_tokens),
        kv_cache_dtype="fp8"
        if cache == "fp8" or (cache == "auto" and _has_fp8_cache(model, traits))
        else "auto",
        arrival=load.arrival,
    )


@lru_cache(maxsize=1024)
def _traits(engine: str, version: str | None, utilization: float) -> EngineTraits:
    traits = traits_of(engine, version)
    if not utilization:
        return traits
    memory = replace(traits.memory, memory_utilization=utilization)
    return replace(traits, memory=memory)


_PHASES: Final = {1: (Phase.WHOLE,), 2: (Phase.PREFILL, Phase.DECODE)}
"""The phases of a case's candidates, by their number."""

_LONGEST_LINE: Final = 10**7  # characters; a config is a few thousand
_ROUND: Final = 6  # significant digits
_OF_A_CASE: Final = {ATTENTION_DATA: "attentionData", MODEL_LENGTH: "maxModelLen"}
"""Fields of the resource that a case calls something else."""


def predict(arguments: Namespace) -> Exit:
    """Answer every case; the exit code says whether all could be read and priced."""
    origin, end = arguments.input or STDIN, arguments.predictions or STDIN
    _refuse_one_file_for_both(origin, end)
    cases, failed = Cases(), False
    if origin == STDIN and sys.stdin.isatty():
        print_note("cases are read from here: one JSON object per line, Ctrl-D at the end")
    with _opened(origin, "r") as source, _opened(end, "w") as target:
        for record in with_progress(_answers(_lines(source), cases), "cases"):
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


def _lines(source: TextIO) -> Iterator[str]:
    """Yield the lines; of one that is too long no more is kept than shows it."""
    while line := source.readline(_LONGEST_LINE + 1):
        rest = line
        while len(rest) > _LONGEST_LINE and not rest.endswith("\n"):
            rest = source.readline(_LONGEST_LINE + 1)
        yield line


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
    asked = {
        candidate: estimator
        if phase is Phase.WHOLE
        else estimator.under(case.workload.of_phase(phase))
        for phase, candidate in zip(_PHASES[len(case.candidates)], case.candidates, strict=True)
    }
    problems = [
        violation.problem
        for candidate, prices in asked.items()
        for violation in memory_violations(candidate, prices.memory(candidate))
    ]
    *_, (last, prices) = asked.items()
    found = prices.estimate(last)
    return {
        "fits": not problems,
        "reasons": [_reason(problem) for problem in problems],
        "memory": _memory(found),
        "performance": _performance(_speed(case, estimator) or found.performance),
    }


def _speed(case: Case, estimator: Estimator) -> Performance | None:
    """Return the speed of a pair, None of whole groups."""
    if len(case.candidates) == 1:
        return None
    prefill, decode = case.candidates
    held = kv_bytes(case.model, case.workload, decode.layout, case.traits)
    link = decode.pool.network
    unit = Unit(
        prefill=prefill,
        decode=decode,
        prefill_groups=prefill.layout.replicas,
        decode_groups=decode.layout.replicas,
        transfer_seconds=transfer_seconds(held, prefill.layout, decode.layout, link),
    )
    return PairEstimator(estimator, case.workload, case.traits).speed(unit).performance


def _refusals(case: Case) -> list[Problem]:
    traits = case.traits
    length = case.workload.max_model_len if traits.batching.refuses_long_requests else None
    return [
        problem
        for candidate in case.candidates
        for problem in (
            *shape_problems(case.model, candidate.layout, traits, length),
            *dtype_problems(case.model, candidate.pool.gpu, case.workload.kv_cache_dtype, traits),
        )
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


def _performance(speed: Performance) -> dict[str, Any]:
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
