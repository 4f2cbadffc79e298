"""What does a candidate cost? Memory first, then the speed that this memory and these links allow.

Nothing is refused: ``planning.checks`` has refused degrees that do not divide the model.
"""

from collections import Counter
from dataclasses import dataclass, replace

from shardwright.costs.coefficients import Band, Coefficients, band_of, coefficients_of
from shardwright.costs.communication import Fabric, group_fabric, tensor_fabric
from shardwright.costs.drafts import draft_load_bytes, draft_passes
from shardwright.costs.estimates import UNPROMISED, Estimate, Performance
from shardwright.costs.host import Storage, distinct_nodes, loading_time
from shardwright.costs.kvcache import kv_bits
from shardwright.costs.memory import (
    Frame,
    ReplicaMemory,
    StageHold,
    lengthened,
    memory_under,
    stage_holds,
)
from shardwright.costs.roofline import Links, hidden_bytes, stage_floor
from shardwright.costs.speed import Load, Replica, StageKind, performance, serve
from shardwright.costs.weight_bytes import load_bytes_per_node
from shardwright.costs.work import ModelWork, StageWork
from shardwright.costs.working_memory import Device
from shardwright.costs.workload import Limits, Workload, requests_per_rank
from shardwright.hardware.gpus import Gpu
from shardwright.layouts.layout import Candidate, EngineTraits, Layout
from shardwright.modelspec.model_spec import ModelSpec

_Degrees = tuple[int, int, int, int, int, tuple[int, ...]]
_Stages = tuple[tuple[StageHold, ...], tuple[tuple[StageWork, int], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One candidate's speed as a question: all that does not depend on the fitted coefficients.

    ``groups`` is how many batches of ``load`` run beside each other: one on every attention-data
    rank of every replica that has a request. A rank without one steps with the others of its
    replica.
    """

    replica: Replica
    load: Load
    groups: int
    replicas: int  # that have a request
    # of measurement that comes nearest; "" where there is none: the band is that of a model
    kind: str
    # What a measurement may have in common with it: the sort of model, the generation of GPU, how
    # weights are stored. The more of it nobody measured, the wider the band.
    facets: frozenset[str]


def estimate(
    model: ModelSpec, candidate: Candidate, workload: Workload, traits: EngineTraits
) -> Estimate:
    """Return the estimated memory and speed of one candidate.

    Formula: none of its own: memory, then the speed that it leaves room for (docs/memory.md,
        docs/planner-speed.md).
    Unit: bytes, tokens, seconds, as the fields say.
    Error: K/V space 2.9%, output tokens per second 8.7%, TPOT 8.6%, TTFT 26.2%, medians in
        sample (docs/benchmarks/).
    Source: derived: the parts in this package, each with its source.

    >>> found = estimate(llama, on_h100s(Layout(tensor=8)), load, vllm)
    >>> round(found.performance.output_tokens_per_second), found.performance.basis
    (2054, 'fitted')
    >>> round(1000 * found.performance.tpot_seconds)  # ms
    30
    """
    return Estimator(model, workload, traits).estimate(candidate)


class Estimator:
    """Prices candidates of one model under one load; parts that depend on the degrees alone are
    counted once.
    """

    def __init__(
        self,
        model: ModelSpec,
        workload: Workload,
        traits: EngineTraits,
        storage: Storage | None = None,
        read_bytes_per_second: float | None = None,
    ) -> None:
        self._model, self._workload, self._traits, self._storage = (
            model,
            workload,
            traits,
            storage,
        )
        self._read_bytes_per_second = read_bytes_per_second
        self._work = ModelWork.of(model)
        self._fitted = coefficients_of(traits.name, traits.released)
        self._holds: dict[tuple[_Degrees, str], _Stages] = {}
        self._load: dict[tuple[_Degrees, int], int] = {}
        self._kinds: dict[tuple[_Degrees, str, Gpu], tuple[StageKind, ...]] = {}
        self._replicas: dict[tuple[object, ...], Replica] = {}
        self._estimates: dict[tuple[object, ...], Estimate] = {}
        self._memory: dict[tuple[_Degrees, Gpu, int, int], ReplicaMemory] = {}
        self._seen: dict[tuple[_Degrees, Gpu, int], dict[Limits, ReplicaMemory]] = {}

    def under(self, workload: Workload) -> "Estimator":
        """Return an estimator of the same model and engine under another load, with the parts that
        no load changes.
        """
        # __init__ would count the model's tensors again.
        other = object.__new__(Estimator)
        other._model, other._workload, other._traits = (self._model, workload, self._traits)
        other._work, other._fitted = self._work, self._fitted
        other._storage = self._storage
        other._read_bytes_per_second = self._read_bytes_per_second
        other._holds, other._load = self._holds, self._load
        other._kinds, other._replicas = self._kinds, self._replicas
        other._estimates = {}
        # A rate is priced at dozens of numbers in flight, so these are part of the key of memory
        # and may differ, and hits take none; all else of the load changes memory.
        own = self._workload
        alike = replace(
            workload,
            concurrency=own.concurrency,
            prefix_cache_hit_rate=own.prefix_cache_hit_rate,
            follows_prefixes=own.follows_prefixes,
        )
        same = alike == own
        other._memory = self._memory if same else {}
        other._seen = self._seen if same else {}
        return other

    def estimate(self, candidate: Candidate) -> Estimate:
        """Return memory and speed of a candidate whose degrees divide the model; alike hardware is
        priced once.
        """
        key = (candidate.layout, *candidate.hardware)
        if key not in self._estimates:
            self._estimates[key] = self._estimate(candidate)
        return self._estimates[key]

    def speed(self, candidate: Candidate) -> Performance:
        """Return the speed of a candidate whose degrees divide the model."""
        return self.estimate(candidate).performance

    def memory(self, candidate: Candidate) -> ReplicaMemory:
        """Return the memory of a candidate whose degrees divide the model."""
        layout = candidate.layout
        pool = candidate.pool
        share = requests_per_rank(self._workload, layout)
        place = (_degrees(layout), pool.gpu, pool.domain_gpus)
        key = (*place, share)
        if key not in self._memory:
            self._memory[key] = memory_under(
                self._frame(candidate), self._workload, self._seen.setdefault(place, {})
            )
        return self._memory[key]

    def lengthened(self, candidate: Candidate) -> ReplicaMemory:
        """Return the memory of a candidate at the longest request that costs nothing."""
        return lengthened(self._frame(candidate), self.memory(candidate), self._workload)

    def _frame(self, candidate: Candidate) -> Frame:
        return Frame(
            model=self._model,
            layout=candidate.layout,
            holds=self._stages(candidate.layout)[0],
            device=Device.of(candidate),
            traits=self._traits,
            mean_tokens=self._workload.input_tokens + self._workload.output_tokens,
        )

    def task(self, candidate: Candidate, memory: ReplicaMemory | None = None) -> Task:
        """Return the task of pricing a candidate."""
        memory = memory or self.memory(candidate)
        layout = candidate.layout
        requests = self._workload.concurrency
        groups, busy = (
            min(layout.replicas * layout.attention_data, requests),
            min(layout.replicas, requests),
        )
        offered = requests / groups
        load = Load(
            workload=self._workload.among(layout.replicas),
            offered=offered,
            # A layout without room for any is judged by its memory, and still needs a time for the
            # picture of all.
            running=max(1.0, min(offered, memory.limits.sequences, self._room(memory))),
            chunk_tokens=memory.limits.batched_tokens,
            ranks=groups / busy,
            mixed=self._traits.batching.mixes_prompts and self._traits.batching.chunks_prompts,
        )
        replica = self._replica(candidate)
        return Task(
            replica=replica,
            load=load,
            groups=groups,
            replicas=busy,
            kind=_kind(candidate, replica, self._workload, self._traits.support.unproven),
            facets=frozenset(
                (
                    self._work.sort,
                    candidate.pool.gpu.generation,
                    *(name for kind in replica.kinds for name in kind.floor.formats),
                )
            ),
        )

    def _room(self, memory: ReplicaMemory) -> float:
        """A request takes its whole length, or the mean of the lengths that it grows through."""
        if self._traits.batching.reserves_output:
            return memory.requests
        work = self._workload
        return (
            memory.requests
            * (work.input_tokens + work.output_tokens)
            / (work.input_tokens + work.output_tokens / 2)
        )

    def _estimate(self, candidate: Candidate) -> Estimate:
        memory = self.memory(candidate)
        placement = candidate.placement
        load_bytes = self._load_bytes(candidate.layout, placement.gpus_per_node)
        drafted, speed = self._performance(candidate, memory)
        return Estimate(
            stages=memory.stages,
            kv_tokens=memory.kv_tokens,
            kv_requests=memory.requests,
            max_model_len=memory.limits.model_len,
            max_sequences=memory.limits.sequences,
            max_batched_tokens=memory.limits.batched_tokens,
            load_bytes_per_node=load_bytes,
            load=loading_time(
                load_bytes,
                distinct_nodes(candidate.layout, placement.gpus_per_node),
                self._storage,
                self._read_bytes_per_second,
            ),
            performance=speed,
            draft_tokens=drafted,
        )

    def token_seconds(
        self, candidate: Candidate, memory: ReplicaMemory, *, in_flight: int, draft_tokens: int
    ) -> float:
        """Return the time per output token with so many requests and drafts, in the planned
        memory.
        """
        other = self.under(
            replace(self._workload, concurrency=in_flight, draft_tokens=draft_tokens)
        )
        task = other.task(candidate, memory)
        return price(task, self._fitted, self._band(task)).tpot_seconds

    def _performance(self, candidate: Candidate, memory: ReplicaMemory) -> tuple[int, Performance]:
        """Of several numbers of drafts, the one that serves most; of equals, the least."""
        task = self.task(candidate, memory)
        choices = self._workload.draft_choices or (self._workload.draft_tokens,)
        tasks = ((tokens, _drafting(task, tokens)) for tokens in choices)
        offered = [(tokens, price(each, self._fitted, self._band(each))) for tokens, each in tasks]
        # max takes the first of equals: the choice with the fewest drafts.
        return max(offered, key=lambda each: each[1].output_tokens_per_second)

    def _band(self, task: Task) -> Band:
        known = not (self._model.warnings or self._traits.options.told.uncounted)
        band = band_of(self._traits.name, task.kind, task.facets, known=known)
        low, high = task.load.workload.drafted_band
        basis = UNPROMISED if self._model.stated else band.basis
        return replace(band, low=band.low * low, high=band.high * high, basis=basis)

    def _load_bytes(self, layout: Layout, gpus_per_node: int) -> int:
        key = (_degrees(layout), gpus_per_node)
        if key not in self._load:
            own = load_bytes_per_node(self._model, layout, self._traits, gpus_per_node)
            self._load[key] = own + draft_load_bytes(layout, self._traits, gpus_per_node)
        return self._load[key]

    def _stages(self, layout: Layout) -> _Stages:
        key = (_degrees(layout), self._workload.kv_cache_dtype)
        if key not in self._holds:
            holds = stage_holds(self._model, layout, self._workload.kv_cache_dtype, self._traits)
            self._holds[key] = (holds, tuple(self._counted(layout, holds).items()))
        return self._holds[key]

    def _counted(self, layout: Layout, holds: tuple[StageHold, ...]) -> Counter[StageWork]:
        """Return the stages' different works and how many stages do each, the first stage's
        first.
        """
        alike: dict[object, list[StageHold]] = {}
        for hold in holds:
            alike.setdefault((self._work.sorts(hold.layers), hold.weights, hold.last), []).append(
                hold
            )
        counts: Counter[StageWork] = Counter()
        for hold, *more in alike.values():
            counts[self._work.stage(layout, hold.layers, hold.weights, last=hold.last)] += 1 + len(
                more
            )
        return counts

    def _replica(self, candidate: Candidate) -> Replica:
        key = (_degrees(candidate.layout), self._workload.kv_cache_dtype, *candidate.hardware)
        if key not in self._replicas:
            self._replicas[key] = self._made(candidate)
        return self._replicas[key]

    def _made(self, candidate: Candidate) -> Replica:
        link = candidate.placement.pipeline_link
        gpu = candidate.pool.gpu
        links, bits = (
            _links(candidate, hidden_bytes(self._work), two_shot=self._traits.cuts.two_shot_sums),
            kv_bits(self._model, self._workload.kv_cache_dtype),
        )
        return Replica(
            kinds=self._stage_kinds(candidate.layout, gpu),
            links=links,
            tensor=candidate.layout.tensor,
            stage_link=link,
            stage_link_is_network=link is not None and link not in (gpu.scale_up, gpu.host),
            drafting=draft_passes(candidate.layout, links, gpu, bits, self._traits),
            eager=self._traits.options.told.eager,
        )

    def _stage_kinds(self, layout: Layout, gpu: Gpu) -> tuple[StageKind, ...]:
        key = (_degrees(layout), self._workload.kv_cache_dtype, gpu)
        if key not in self._kinds:
            bits = kv_bits(self._model, self._workload.kv_cache_dtype)
            self._kinds[key] = tuple(
                StageKind(floor=stage_floor(stage, self._work, gpu, bits), count=count)
                for stage, count in self._stages(layout)[1]
            )
        return self._kinds[key]


def _drafting(task: Task, tokens: int) -> Task:
    load = task.load
    if load.workload.draft_tokens == tokens:
        return task
    workload = replace(load.workload, draft_tokens=tokens)
    return replace(task, load=replace(load, workload=workload))


def price(task: Task, fitted: Coefficients, band: Band) -> Performance:
    """Return the speed of a task with an engine's coefficients.

    Formula: none of its own: :func:`~shardwright.costs.speed.serve`, then
        :func:`~shardwright.costs.speed.performance`.
    Unit: tokens and requests per second, seconds.
    Error: output tokens per second 8.7%, TPOT 8.6%, TTFT 26.2%, medians in sample
        (docs/benchmarks/accuracy.md).
    Source: derived from both.

    >>> fitted, band = coefficients_of("vLLM", ""), Band(low=0.5, high=2.0, basis="")
    >>> speed = price(task, fitted, band)
    >>> speed.low / speed.output_tokens_per_second, speed.running_requests
    (0.5, 64)
    """
    speed = serve(task.replica, task.load, fitted)
    running = round(task.groups * task.load.running / task.replicas)
    return performance(speed, task.load, task.groups, running=running, band=band)


def _kind(
    candidate: Candidate, replica: Replica, workload: Workload, unproven: frozenset[str]
) -> str:
    """Return the kind of measurement that a candidate is like; empty if hardly any are of it or its
    GPU, or if the engine has never been run on it here.
    """
    layout = candidate.layout
    even = len({kind.floor.layers for kind in replica.kinds}) == 1
    # No published row has drafts or a cache that hits, so such a prediction is a model (ADR 35).
    plain = workload.draft_tokens == 0 and workload.prefix_cache_hit_rate == 0
    plain = plain and workload.kv_offload is None
    one_node = candidate.placement.nodes_per_replica == 1 and not candidate.pool.crosses_nodes
    measured = (
        one_node
        and even
        and plain
        and layout.context == 1
        and not candidate.pool.gpu.stated
        and not candidate.pool.gpu.mig_profile
        and candidate.pool.resource not in unproven
    )
    return workload.arrival.value if measured else ""


def _links(candidate: Candidate, token_bytes: int, *, two_shot: bool) -> Links:
    layout = candidate.layout
    return Links(
        tensor=replace(tensor_fabric(candidate), two_shot=two_shot),
        experts=group_fabric(candidate, layout.tensor * layout.attention_data),
        context=group_fabric(candidate, layout.context) if layout.context > 1 else Fabric(),
        peers=layout.attention_data,
        expert_groups=max(1, layout.expert),
        hidden_bytes=token_bytes,
    )


def _degrees(layout: Layout) -> _Degrees:
    return (
        layout.tensor,
        layout.pipeline,
        layout.expert,
        layout.attention_data,
        layout.context,
        layout.partition,
    )
