"""Candidate in, estimate out: memory first, then the speed that this memory and these links allow."""

from collections import Counter
from typing import Final

from shardwright.costs.coefficients import BAND_MEASURED, BAND_MODELLED
from shardwright.costs.communication import tensor_fabric
from shardwright.costs.estimates import Estimate, Performance
from shardwright.costs.limits import requests_per_replica
from shardwright.costs.loading import Storage, load_time
from shardwright.costs.memory import ReplicaMemory, StageHold, replica_memory, stage_holds
from shardwright.costs.overheads import Device
from shardwright.costs.roofline import Machine
from shardwright.costs.serving import Load, Replica, StageKind, serve
from shardwright.costs.weights import load_bytes_per_node
from shardwright.costs.work import ModelWork
from shardwright.costs.workload import Workload
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec

_ACTIVATION_BYTES: Final = 2  # bf16 and fp16 cross links as two bytes a value

_Degrees = tuple[int, int, int, int, int, tuple[int, ...]]


def estimate(model: ModelSpec, candidate: Candidate, workload: Workload, traits: EngineTraits) -> Estimate:
    """Return what one candidate would cost."""
    return Estimator(model, workload, traits).estimate(candidate)


class Estimator:
    """Prices candidates of one model under one load; what depends on the degrees alone is counted once."""

    def __init__(self, model: ModelSpec, workload: Workload, traits: EngineTraits, storage: Storage | None = None) -> None:
        self._model, self._workload, self._traits, self._storage = model, workload, traits, storage
        self._work = ModelWork.of(model)
        self._holds: dict[_Degrees, tuple[tuple[StageHold, ...], tuple[StageKind, ...]]] = {}
        self._estimates: dict[tuple[object, ...], Estimate] = {}
        self._load: dict[tuple[_Degrees, int], int] = {}
        self._memory: dict[tuple[_Degrees, int, Device], ReplicaMemory] = {}

    def estimate(self, candidate: Candidate) -> Estimate:
        """Return memory and speed of a candidate whose degrees divide the model; alike hardware is priced once."""
        pool, placement = candidate.pool, candidate.placement
        links = (placement.tensor_link, placement.pipeline_link, pool.domain_gpus)
        key = (candidate.layout, pool.gpu, *links, placement.gpus_per_node, placement.nodes_per_replica)
        if key not in self._estimates:
            self._estimates[key] = self._estimate(candidate)
        return self._estimates[key]

    def _estimate(self, candidate: Candidate) -> Estimate:
        memory, placement = self._replica_memory(candidate), candidate.placement
        load_bytes = self._load_bytes(candidate.layout, placement.gpus_per_node)
        return Estimate(
            stages=memory.stages,
            kv_tokens=memory.kv_tokens,
            kv_requests=memory.requests,
            max_model_len=memory.limits.model_len,
            max_sequences=memory.limits.sequences,
            max_batched_tokens=memory.limits.batched_tokens,
            load_bytes_per_node=load_bytes,
            load=load_time(load_bytes, placement.nodes_per_replica, self._storage),
            performance=self._performance(candidate, memory),
        )

    def _replica_memory(self, candidate: Candidate) -> ReplicaMemory:
        layout, device = candidate.layout, Device.of(candidate)
        key = (_degrees(layout), layout.replicas, device)
        if key not in self._memory:
            holds = self._stages(layout)[0]
            self._memory[key] = replica_memory(self._model, layout, holds, device, self._workload, self._traits)
        return self._memory[key]

    def _load_bytes(self, layout: Layout, gpus_per_node: int) -> int:
        key = (_degrees(layout), gpus_per_node)
        if key not in self._load:
            self._load[key] = load_bytes_per_node(self._model, layout, self._traits, gpus_per_node)
        return self._load[key]

    def _stages(self, layout: Layout) -> tuple[tuple[StageHold, ...], tuple[StageKind, ...]]:
        key = _degrees(layout)
        if key not in self._holds:
            holds = stage_holds(self._model, layout, self._workload.kv_cache_dtype, self._traits)
            alike = Counter((self._work.stage(layout, hold.layers, hold.weights, last=hold.last), hold.kv) for hold in holds)
            kinds = tuple(StageKind(work=work, kv=kv, count=count) for (work, kv), count in alike.items())
            self._holds[key] = (holds, kinds)
        return self._holds[key]

    def _performance(self, candidate: Candidate, memory: ReplicaMemory) -> Performance:
        kinds = self._stages(candidate.layout)[1]
        offered = requests_per_replica(self._workload, candidate.layout)
        load = Load(
            workload=self._workload,
            offered=offered,
            running=max(1, memory.running(offered)),
            chunk_tokens=memory.limits.batched_tokens,
        )
        measured = candidate.placement.nodes_per_replica == 1 and len({kind.work.layers for kind in kinds}) == 1
        band, basis = (BAND_MEASURED, "fitted") if measured else (BAND_MODELLED, "modelled")
        return serve(self._replica(candidate, kinds), load, candidate.layout.replicas, band=band, basis=basis)

    def _replica(self, candidate: Candidate, kinds: tuple[StageKind, ...]) -> Replica:
        link = candidate.placement.pipeline_link
        gpu = candidate.pool.gpu
        hidden_bytes = self._model.hidden_size * _ACTIVATION_BYTES
        return Replica(
            model=self._work,
            machine=Machine.of(gpu, self._work, tensor_fabric(candidate), hidden_bytes),
            kinds=kinds,
            tensor=candidate.layout.tensor,
            whole_experts=candidate.layout.expert > 1,
            stage_link=link,
            stage_link_is_network=link is not None and link not in (gpu.scale_up, gpu.host),
        )


def _degrees(layout: Layout) -> _Degrees:
    return layout.tensor, layout.pipeline, layout.expert, layout.attention_data, layout.context, layout.partition
