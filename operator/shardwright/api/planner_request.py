"""The spec as a question to the planner.

Requests longer than the context of the model or its draft model are refused.
"""

from typing import Final

from shardwright.api.parts import unsaid
from shardwright.api.pod_spec import Network, Pod, Resources
from shardwright.api.spec import Budget, Engine, Model, Parallelism, Spec, Speculation, is_half
from shardwright.api.weights_source import BUCKETS, CLAIM, IMAGE_VOLUME, scheme_of
from shardwright.costs.host import Storage
from shardwright.costs.workload import KvOffload, Phase, Workload
from shardwright.engines.launch import DEFAULT_ADAPTER_RANK
from shardwright.errors import InputError, Problem
from shardwright.hardware.capabilities import RdmaMode, RdmaRequest
from shardwright.hardware.untrusted import quantity, whole_bytes
from shardwright.layouts.layout import AdapterSlots, Drafter, DraftMethod, SearchSpace
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.planning.request import (
    Objective,
    OptimizeFor,
    PairMode,
    PairWish,
    Request,
    Statistic,
)

DEFAULT_CONCURRENCY: Final = 64
"""Unit: requests. Basis: assumed; the default of ``concurrency``."""

MOST_PLANNED_DRAFTS: Final = 8
"""Unit: tokens a step. Basis: assumed; at an acceptance of 75% eight bring 3.7 tokens, and as many
as one likes 4.
"""

ASSUMED_ACCEPTANCE: Final = {
    DraftMethod.MTP: 0.75,
    DraftMethod.EAGLE3: 0.65,
    DraftMethod.DRAFT_MODEL: 0.6,
    DraftMethod.PROMPT_LOOKUP: 0.3,
}
"""Unit: share of drafted tokens, after all before them were accepted. Basis: assumed; of the first
token DeepSeek-V3's report has 85 to 90% (arXiv 2412.19437, section 5.4.3), of further ones less.
"""

ASSUMED_BAND: Final = 0.2
"""Unit: share, more or less. Basis: assumed; texts differ by that much."""

KV_CACHE_DTYPES: Final = {"Auto": "auto", "FP8": "fp8"}


_STORAGES: Final = {
    CLAIM: Storage.CLAIM,
    IMAGE_VOLUME: Storage.IMAGE,
    **dict.fromkeys(BUCKETS, Storage.OBJECT_STORE),
}
"""Where weights are, by the scheme of their address, if that is not the hub."""


def to_request(spec: Spec, model: ModelSpec, drafter: Drafter | None = None) -> Request:
    """Return the request to the planner, for a model and its drafter.

    ``replicas: 0`` leaves their number to the plan: it is shown, and nothing is deployed. So does
    ``scaling``: the layout is for the load, and an autoscaler chooses how many groups there are.

    Raises:
        InputError: requests are longer than the context of the model, or of its draft model.
    """
    return Request(
        workload=_workload(spec, model, drafter).of_phase(Phase(spec.phase or Phase.WHOLE)),
        objective=_objective(spec),
        space=_space(spec, stated=model.stated),
        storage=_storage(spec),
        read_bytes_per_second=_read_bytes_per_second(spec),
        cache_bytes=_cache_bytes(spec),
        deploy=spec.mode == "Deploy",
        pair=_pair(spec),
    )


def _pair(spec: Spec) -> PairWish | None:
    wish = spec.disaggregation
    if wish is None or wish.mode == "Off":
        return None
    return PairWish(
        mode=PairMode(wish.mode),
        prefill_groups=wish.prefill_groups,
        decode_groups=wish.decode_groups,
    )


def network_of(spec: Spec) -> Network:
    """Return how pods of groups over several nodes reach each other."""
    return (spec.pod or unsaid(Pod)).network or unsaid(Network)


def adapter_slots(model: Model) -> AdapterSlots | None:
    """Return the engine's room for adapters, a slot for each, None without any."""
    rank = model.max_adapter_rank or DEFAULT_ADAPTER_RANK
    return AdapterSlots(count=len(model.adapters), rank=rank) if model.adapters else None


def rdma_request(spec: Spec) -> RdmaRequest:
    """Return the RDMA that pods of groups over several nodes request."""
    network = network_of(spec)
    devices = sorted((resource.name, resource.count) for resource in network.resources)
    return RdmaRequest(mode=RdmaMode(network.rdma), devices=tuple(devices))


def _workload(spec: Spec, model: ModelSpec, drafter: Drafter | None) -> Workload:
    load = spec.workload
    needed = load.input_tokens + load.output_tokens
    # heads and MTP layers share the positions of their target
    apart = drafter is not None and drafter.method is DraftMethod.DRAFT_MODEL
    models = (model, drafter.model) if drafter and apart else (model,)
    for one in models:
        other = "serve a model" if one is model else "use a draft model"
        _check_context(spec, needed, one, other)
    # Beyond the engine's own context only requests that somebody asks for are taken.
    longest = min(_own_context(one) for one in models)
    engine, speculation = spec.engine, spec.engine.speculation
    acceptance, band = _acceptance(speculation) if speculation else (0.0, 0.0)
    choices = _choices(speculation, drafter) if speculation else ()
    return Workload(
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        concurrency=load.concurrency or DEFAULT_CONCURRENCY,
        max_model_len=engine.max_model_len or needed,
        open_model_len=None if engine.max_model_len else max(longest, needed),
        kv_cache_dtype=KV_CACHE_DTYPES[engine.kv_cache_quantization or "Auto"],
        requests_per_second=load.requests_per_second,
        prefix_cache_hit_rate=load.prefix_cache_hit_percent / 100,
        follows_prefixes=is_half(spec)
        or (spec.routing is not None and spec.routing.mode != "Service"),
        expert_imbalance=None
        if load.expert_imbalance_percent is None
        else load.expert_imbalance_percent / 100,
        draft_tokens=max(choices, default=0),
        draft_acceptance=acceptance,
        draft_acceptance_band=band,
        draft_choices=choices if len(choices) > 1 else (),
        kv_offload=_kv_offload(engine, (spec.pod or unsaid(Pod)).resources or unsaid(Resources)),
    )


def _own_context(model: ModelSpec) -> int:
    longest = model.max_context_tokens
    return min(longest, model.own_context_tokens or longest)


def _acceptance(speculation: Speculation) -> tuple[float, float]:
    stated = speculation.acceptance_percent
    if stated is not None:
        return stated / 100, 0.0
    return ASSUMED_ACCEPTANCE[DraftMethod(speculation.method)], ASSUMED_BAND


def _choices(speculation: Speculation, drafter: Drafter | None) -> tuple[int, ...]:
    if speculation.tokens is not None:
        return (speculation.tokens,)
    offered = range(1, MOST_PLANNED_DRAFTS + 1)
    return tuple(n for n in offered if drafter is None or drafter.drafts(n))


def _kv_offload(engine: Engine, pod: Resources) -> KvOffload | None:
    """Return the memory for K/V beside the GPUs; ``Auto`` states no quantity."""
    if engine.kv_offload is None:
        return None
    beside = whole_bytes(pod.memory) if pod.memory is not None else 0
    return KvOffload(pod_bytes=quantity(engine.kv_offload.host_memory), beside_bytes=beside)


def _check_context(spec: Spec, needed: int, model: ModelSpec, other: str) -> None:
    asked = spec.engine.max_model_len or needed
    if asked <= model.max_context_tokens:
        return
    pinned = spec.engine.max_model_len is not None
    raise InputError(
        [
            Problem(
                code="ContextTooLong",
                path="spec.engine.maxModelLen" if pinned else "spec.workload.inputTokens",
                what=f"{asked:,} tokens" if pinned else f"{asked:,} tokens of input and output",
                limit=f"must be at most the {model.max_context_tokens:,} of {model.source}",
                gap=f"{asked - model.max_context_tokens:,} too many",
                remedy=f"lower it, or {other} with a longer context",
            )
        ]
    )


def _objective(spec: Spec) -> Objective:
    limits = spec.objective
    return Objective(
        optimize_for=OptimizeFor(limits.optimize_for),
        # Each half is held to the limit of what it does.
        ttft_seconds=None if spec.phase == "Decode" else _seconds(limits.ttft_milliseconds),
        tpot_seconds=None if spec.phase == "Prefill" else _seconds(limits.tpot_milliseconds),
        statistic=Statistic(limits.statistic),
    )


def _storage(spec: Spec) -> Storage:
    weights = spec.model.weights
    hub = Storage.KEPT if weights and weights.cache else Storage.HUB
    return _STORAGES.get(scheme_of(weights), hub)


def _read_bytes_per_second(spec: Spec) -> float | None:
    store = spec.model.weights and spec.model.weights.object_store
    measured = store.megabytes_per_second if store else None
    return None if measured is None else measured * 1e6


def _cache_bytes(spec: Spec) -> int | None:
    cache = spec.model.weights and spec.model.weights.cache
    return quantity(cache.storage) if cache else None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _space(spec: Spec, *, stated: bool) -> SearchSpace:
    pins = spec.parallelism or unsaid(Parallelism)
    budget, spread = (spec.budget or unsaid(Budget), (spec.pod or unsaid(Pod)).topology_spread)
    return SearchSpace(
        # Their number follows from a speed, which is not known of a stated model. A layout is
        # planned for the load, however few groups an autoscaler has chosen at the moment.
        replicas=(None if spec.scaling else spec.replicas) or (1 if stated else None),
        fill=budget.fill,
        tensor=pins.tensor,
        pipeline=1 if is_half(spec) else len(pins.partition) or pins.pipeline,
        expert=pins.expert,
        attention_data=pins.data_parallel_attention,
        context=pins.context,
        partition=tuple(pins.partition),
        max_gpus=budget.gpus,
        max_nodes=budget.nodes,
        spread_over=spread.topology_key if spread else "",
    )
