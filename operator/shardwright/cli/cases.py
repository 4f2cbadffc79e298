"""Cases of ``predict``: one JSON object to a model, a candidate, a workload and an engine; and its
answer back.

Refuses a GPU that the catalogue lacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from shardwright.cli.fields import CaseReader
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
from shardwright.modelspec.read import read_model
from shardwright.modelspec.spec import ModelSpec
from shardwright.modelspec.stored import STORED, stored_as

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "": (
        "id",
        "model",
        "weights",
        "kvCache",
        "engine",
        "hardware",
        "parallelism",
        "workload",
        "maxModelLen",
        "memoryUtilization",
    ),
    "model": (
        "config",
        "name",
    ),
    "engine": (
        "name",
        "version",
    ),
    "hardware": (
        "gpuProduct",
        "gpusPerNode",
        "nodes",
        "nvlinkDomainGpus",
    ),
    "parallelism": (
        "tensor",
        "pipeline",
        "expert",
        "attentionData",
        "replicas",
    ),
    "workload": (
        "inputTokens",
        "outputTokens",
        "concurrency",
        "arrival",
    ),
}
"""The fields of a case and of its parts; what is in ``model.config`` is the model's."""

_CACHES: Final = (
    "auto",
    "fp16",
    "bf16",
    "fp8",
)
_RESOURCES: Final = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question, read."""

    model: ModelSpec
    traits: EngineTraits
    workload: Workload
    candidate: Candidate


class Cases:
    """Reads cases; parts that many of them share (model, hardware, engine) are read once."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], ModelSpec] = {}
        self._estimators: dict[tuple[object, ...], Estimator] = {}
        self._shelves: dict[_Hardware, Shelf] = {}
        self._candidates: dict[tuple[object, ...], Candidate] = {}

    def read(self, record: Mapping[str, Any], config_key: str) -> Case:
        """Return a case; ``config_key`` is the same for the same config.

        Raises:
            InputError: a field is missing, of the wrong type or out of bounds, the model cannot be
                read, or the GPU is unknown.
        """
        top = CaseReader(record, "", [], FIELDS)
        engine = top.section("engine")
        name = engine.choice("name", BY_LOWER_NAME)
        version = engine.text("version")
        layout = _layout(top.section("parallelism"))
        stored = top.choice("weights", STORED, default="") if top.has("weights") else ""
        cache = top.choice("kvCache", _CACHES, default="auto")
        model_section = top.section("model")
        config = model_section.section("config")
        hardware = _Hardware.of(top.section("hardware"))
        if top.problems:
            raise InputError(top.problems)
        model = self._model(config.values, config_key, stored)
        traits = _traits(
            BY_LOWER_NAME[name],
            version,
            top.number("memoryUtilization", default=0, least=0),
        )
        if cache == "auto":
            cache = _cache_of(model, traits)
        workload = _workload(top, layout, traits, cache)
        if top.problems:
            raise InputError(top.problems)
        return Case(
            model=model,
            traits=traits,
            workload=workload,
            candidate=self._candidate(hardware, layout),
        )

    def estimator(self, case: Case) -> Estimator:
        """Return the estimator of the case. Cases of one model and engine share everything that no
        load changes.
        """
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

    def _model(
        self, config: Mapping[str, Any], config_key: str, stored: str
    ) -> ModelSpec:
        key = (config_key, stored)
        if key not in self._models:
            model = read_model(config, source="model.config")
            self._models[key] = stored_as(model, stored) if stored else model
        return self._models[key]

    def _candidate(self, hardware: "_Hardware", layout: Layout) -> Candidate:
        key = (hardware, layout)
        if key not in self._candidates:
            if hardware not in self._shelves:
                self._shelves[hardware] = Shelf(hardware.pool())
            placement = self._shelves[hardware].place(layout)
            self._candidates[key] = Candidate(
                layout=layout, pool=hardware.pool(), placement=placement
            )
        return self._candidates[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hardware:
    """The nodes of a case."""

    product: str
    gpus_per_node: int
    nodes: int
    domain_gpus: int  # 0: the node decides by the GPU's form

    @classmethod
    def of(cls, fields: CaseReader) -> "_Hardware":
        product = fields.text("gpuProduct") or ""
        if not product:
            fields.refuse("gpuProduct", "must be the product as the node label has it")
        elif find_gpu(product) is None:
            limit = "must name a GPU of the catalogue"
            fields.problems.append(
                Problem(
                    code="GpuUnknown",
                    path="hardware.gpuProduct",
                    what=f"{product!r:.60}",
                    limit=limit,
                )
            )
        return cls(
            product=product,
            gpus_per_node=fields.degree("gpusPerNode"),
            nodes=fields.degree("nodes"),
            domain_gpus=int(fields.number("nvlinkDomainGpus", default=0, least=0)),
        )

    def pool(self) -> Pool:
        """Return nodes as the labels of the case describe them, all free, with RDMA between
        them.
        """
        return _pool(self)


@lru_cache(maxsize=256)
def _pool(hardware: _Hardware) -> Pool:
    gpu = _package(hardware.product)
    resource = _RESOURCES.get(gpu.vendor, "gpu")
    count = hardware.gpus_per_node
    raw = raw_node(
        {
            "metadata": {"name": "node"},
            "status": {"allocatable": {resource: count, "rdma/hca": 1}},
        }
    )
    domain = read_domain(raw, gpu, count, count, None)
    return Pool(
        name=hardware.product,
        gpu=gpu,
        product=hardware.product,
        gpus_per_node=count,
        domain_gpus=hardware.domain_gpus or domain.gpus,
        network=read_network(raw, gpu, count, None),
        resource=resource,
        architecture="amd64",
        nodes=tuple(
            _node(index, hardware, domain.name) for index in range(hardware.nodes)
        ),
        warnings=(domain.warning,) if domain.warning else (),
    )


def _package(product: str) -> Gpu:
    """Return a GPU as cases count them: whole packages, whose dies are devices of their own."""
    gpu = find_gpu(product)
    if gpu is None:
        raise LookupError(product)
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


def _node(index: int, hardware: _Hardware, domain: str) -> Node:
    rack = hardware.domain_gpus > hardware.gpus_per_node
    name = f"node-{index:04}"
    joined = (
        f"rack-{index * hardware.gpus_per_node // hardware.domain_gpus}"
        if rack
        else name
        if domain
        else ""
    )
    return Node(
        name=name,
        gpus=hardware.gpus_per_node,
        free=hardware.gpus_per_node,
        domain=joined,
        path=(),
        labels={},
    )


def _layout(fields: CaseReader) -> Layout:
    """Return the degrees; a case counts the attention-data ranks as part of ``tensor``, a layout
    beside it.
    """
    ranks = fields.degree("tensor")
    attention_data = fields.degree("attentionData")
    if ranks % attention_data:
        fields.refuse("attentionData", f"must divide tensor {ranks}")
        attention_data = 1
    expert = fields.degree("expert")
    if ranks % expert:
        fields.refuse("expert", f"must divide tensor {ranks}")
    return Layout(
        tensor=ranks // attention_data,
        pipeline=fields.degree("pipeline"),
        expert=expert,
        attention_data=attention_data,
        replicas=fields.degree("replicas"),
    )


def _cache_of(model: ModelSpec, traits: EngineTraits) -> str:
    """Return FP8 if checkpoint or engine say so: ModelOpt's (the only ones in NVFP4) state it of
    their K/V cache.
    """
    stored = {weight.storage.name for weight in model.weights if weight.quantizable}
    return (
        "fp8"
        if "nvfp4" in stored
        or ("fp8" in stored and traits.memory.cache_follows_weights)
        else "auto"
    )


def _workload(
    top: CaseReader, layout: Layout, traits: EngineTraits, cache: str
) -> Workload:
    fields = top.section("workload")
    arrival = Arrival(
        fields.choice("arrival", tuple(Arrival), default=Arrival.CLOSED_LOOP)
    )
    groups = layout.replicas * layout.attention_data
    all_that_fits = (
        float(traits.batching.max_sequences * groups)
        if arrival is Arrival.SATURATED
        else None
    )
    inputs = fields.number("inputTokens")
    outputs = fields.number("outputTokens")
    length = top.number("maxModelLen", default=inputs + outputs)
    return Workload(
        input_tokens=round(inputs),
        output_tokens=round(outputs),
        concurrency=round(fields.number("concurrency", default=all_that_fits)),
        max_model_len=round(length),
        kv_cache_dtype="auto" if cache in ("fp16", "bf16") else cache,
        arrival=arrival,
    )


@lru_cache(maxsize=1024)
def _traits(engine: str, version: str | None, utilization: float) -> EngineTraits:
    traits = traits_of(engine, version)
    if not utilization:
        return traits
    memory = replace(traits.memory, memory_utilization=utilization)
    return replace(traits, memory=memory)
