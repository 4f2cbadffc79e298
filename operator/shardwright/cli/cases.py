"""Cases of ``predict``: turns a JSON object into a model, a candidate, a workload and an engine."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from shardwright.api.case import CaseHardware, CaseLine, CaseModel, CaseParallelism, read_case
from shardwright.api.request import DEFAULT_CONCURRENCY
from shardwright.cli.named_gpus import usual_node
from shardwright.costs.estimator import Estimator
from shardwright.costs.workload import Arrival, Workload
from shardwright.engines.known import BY_LOWER_NAME, traits_of
from shardwright.errors import InputError, Problem
from shardwright.hardware.domains import read_domain
from shardwright.hardware.gpus import DEVICES_PER_PACKAGE, Gpu, find_gpu
from shardwright.hardware.inventory import Node, Pool
from shardwright.hardware.networks import read_network
from shardwright.hardware.untrusted import raw_node
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.placing import Shelf
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.catalogue import find_model, model_unknown
from shardwright.modelspec.read import read_model
from shardwright.modelspec.spec import ModelSpec
from shardwright.modelspec.stored import stored_as

_RESOURCES: Final = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case, in the planner's values."""

    model: ModelSpec
    traits: EngineTraits
    workload: Workload
    candidate: Candidate


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
        layout = _layout(line.parallelism)
        candidate = self._candidate(line.hardware, layout)
        model = self._model(_config(line.model), line.weights)
        traits = _traits(
            BY_LOWER_NAME[line.engine.name], line.engine.version, line.memory_utilization
        )
        return Case(
            model=model,
            traits=traits,
            workload=_workload(line, layout, model, traits),
            candidate=candidate,
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
