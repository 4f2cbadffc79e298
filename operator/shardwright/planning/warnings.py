"""Of what should a plan's reader beware: lowered values, slow links, uncertain speeds?

From which load does drafting cost more than it brings? Asked of the chosen layout.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from shardwright.costs.estimator import Estimator
from shardwright.hardware.capabilities import Capability, RdmaMode, Reach
from shardwright.hardware.gpus import relative_price
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.topology import NetworkWay
from shardwright.layouts.layout import AttentionKind, Candidate, DraftMethod, EngineTraits
from shardwright.layouts.placing import Over
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.planning.arrivals import estimator_of
from shardwright.planning.attention import attention_needs
from shardwright.planning.engine_limits import NOUNS
from shardwright.planning.node_storage import host_cache
from shardwright.planning.phrases import UNKNOWN_PODS, relative_price_words
from shardwright.planning.request import Request
from shardwright.planning.select import FeasibleCandidate
from shardwright.planning.sentences import uncounted_sentence, unproven_sentence
from shardwright.units import format_bytes


def loses_from(
    best: FeasibleCandidate, request: Request, model: ModelSpec, traits: EngineTraits
) -> int | None:
    """Return the requests in flight, over all replicas, from which drafts make a token take longer.

    None if that is at no number that runs at once. Drafts and memory are the plan's; loads are
    doubled until drafting loses, and the last step is halved. Larger ones are not tried: a batch
    that computes more makes drafts no cheaper, except for a while where experts fill up.
    """
    # An offered rate would settle the number in flight by itself.
    closed = replace(request.workload, requests_per_second=None)
    prices = Estimator(model, closed, traits, request.storage)
    memory, drafted = prices.memory(best.candidate), best.estimate.draft_tokens

    def loses(in_flight: int) -> bool:
        with_drafts, without = (
            prices.token_seconds(
                # The memory of the plan for both: without drafts there would be more K/V, which is
                # another question.
                best.candidate,
                memory,
                in_flight=in_flight,
                draft_tokens=tokens,
            )
            for tokens in (drafted, 0)
        )
        return with_drafts > without

    layout = best.candidate.layout
    most = memory.running(memory.limits.sequences) * layout.replicas * layout.attention_data
    wins, asked = 0, 1
    while not loses(asked):
        if asked >= most:
            return None
        wins, asked = asked, min(most, 2 * asked)
    while asked - wins > 1:
        middle = (wins + asked) // 2
        wins, asked = (wins, middle) if loses(middle) else (middle, asked)
    return asked


_NOTICEABLE_SHARE: Final = 0.05
"""By how much drafts must slow a token down to be warned of, a share; assumed: half the median
error of what is predicted.
"""

_PRICES_SHOWN: Final = 6

_OPEN_ROUTER: Final = (
    "Without spec.engine.apiKeySecretRef whoever reaches the router may add engines to it (POST "
    "/workers), and so read what others ask: set a key, or admit only clients that trust each other"
)


def warnings(
    inventory: Inventory,
    best: FeasibleCandidate,
    request: Request,
    model: ModelSpec,
    traits: EngineTraits,
) -> tuple[str, ...]:
    """Return the warnings about a plan, its model and its nodes.

    Args:
        inventory: The nodes, with those that are free.
        best: The chosen layout.
        request: The load and the objective.
        model: The model to serve.
        traits: The engine.
    """
    return (
        *_tight(best),
        *_lowered(best, traits),
        *_lighter(best, model, traits),
        *_slow_links(best.candidate),
        *_adapters(best, traits),
        *_gated(request),
        *((_OPEN_ROUTER,) if request.open_router else ()),
        *_downloads(request),
        *_commits(request),
        *_executor(best, traits),
        *_unproven(best.candidate, traits),
        *_unevenly_spread(best.candidate, request),
        *_uncounted(traits),
        *_draft(best, request, traits),
        *_speculation(best, request, model, traits),
        *_on_request(best.candidate, request, model, traits),
        *_beside_the_gpus(best, request, model, traits),
        *_slowed_by_drafts(best, request, model, traits),
        *_unpriced(inventory),
        *_unknown_pods(inventory),
        *((unproven_sentence(),) if model.stated else ()),
        *model.warnings,
        *traits.warnings,
        *best.candidate.pool.warnings,
        *_missed_network(best.candidate),
        *_unknown_network(best.candidate),
    )


def _unknown_pods(inventory: Inventory) -> Iterator[str]:
    if said := UNKNOWN_PODS.get(inventory.known_pods):
        yield f"{said}, the planned ones may be taken"


def _tight(best: FeasibleCandidate) -> Iterator[str]:
    tight = [stage for stage in best.estimate.stages if stage.tight]
    if tight:
        # The engine starts on all stages or on none.
        worst = min(tight, key=lambda stage: stage.kv_cache_bytes - stage.request_bytes)
        margin = format_bytes(worst.kv_cache_bytes - worst.request_bytes)
        yield (
            f"tight: beside one longest request {margin} are left per GPU, less than the "
            f"{format_bytes(worst.band_bytes)} by which the memory may be off; it may not start"
        )


def _lowered(best: FeasibleCandidate, traits: EngineTraits) -> Iterator[str]:
    estimate = best.estimate
    # The user's own limit was not lowered by us.
    told, ours = traits.options.told, traits.batching
    if (told.sequences is None and estimate.max_sequences < ours.max_sequences) or (
        told.batched_tokens is None and estimate.max_batched_tokens < ours.max_batched_tokens
    ):
        yield (
            f"batch limits lowered to {estimate.max_sequences:,} sequences and "
            f"{estimate.max_batched_tokens:,} tokens to leave room for K/V"
        )


def _adapters(best: FeasibleCandidate, traits: EngineTraits) -> Iterator[str]:
    if slots := traits.options.adapters:
        most = format_bytes(max(stage.adapter_bytes for stage in best.estimate.stages))
        yield (
            f"adapters: {slots.count} up to rank {slots.rank} take {most} of the weights' "
            "memory per GPU; the predicted speed is that of the model without them"
        )


def _gated(request: Request) -> Iterator[str]:
    if request.gated:
        named = "spec: {model: {weights: {secretRef: {name: hub-token}}}}"
        are = "are" if len(request.gated) > 1 else "is"
        namespace, name = request.owner
        kubectl = f"kubectl -n {namespace}" if namespace else "kubectl"
        secret = "create secret generic hub-token --from-literal=token=hf_..."  # noqa: S105 - no token
        patch = f"{kubectl} patch smodel {name} --type merge -p '{named}'"
        yield (
            f"{' and '.join(request.gated)} {are} gated, and no token is named: the hub refuses "
            "pods (401, 403) until its terms are accepted there and "
            f"you run `{kubectl} {secret}` and `{patch}`"
        )


def _downloads(request: Request) -> Iterator[str]:
    if request.cache_bytes is not None and request.cache_bytes < request.file_bytes:
        yield (
            "spec.model.weights.cache.storage is "
            f"{format_bytes(request.cache_bytes)}, the weights alone are "
            f"{format_bytes(request.file_bytes)}: the download will not end"
        )


def _commits(request: Request) -> Iterator[str]:
    if request.commit_missed:
        yield (
            "no commit of the model is named: its publisher can change what the hub gives "
            "tomorrow; spec.model.revision pins one"
        )


def _executor(best: FeasibleCandidate, traits: EngineTraits) -> Iterator[str]:
    if traits.options.over_ray and best.candidate.placement.nodes_per_replica == 1:
        yield (
            "spec.engine.executor Ray changes nothing here: a group is one pod, whose ranks the "
            "engine starts by itself"
        )


def _unproven(candidate: Candidate, traits: EngineTraits) -> Iterator[str]:
    resource = candidate.pool.resource
    if resource in traits.support.unproven:
        yield (
            f"no image of {traits.name} for {resource} has been started here, so the speed counts "
            "as modelled (provenImagesFirst takes other GPUs first)"
        )


def _unevenly_spread(candidate: Candidate, request: Request) -> Iterator[str]:
    """Uneven: some value of the label has at least two more replicas than another."""
    over, nodes = Over.of(request.space), candidate.pool.nodes
    if over is None or candidate.layout.replicas == 1:
        return
    there = over.count(candidate.placement.groups, nodes) + Counter(over.standing)
    counts = {value: there[value] for value in sorted({over.value(node) for node in nodes})}
    if len(counts) == 1 or max(counts.values()) - min(counts.values()) > 1:
        said = ", ".join(
            f"{count} in {value or 'nodes without it'}" for value, count in counts.items()
        )
        yield f"replicas are not spread evenly over {over.label}: {said}, as far as there is room"


def _uncounted(traits: EngineTraits) -> Iterator[str]:
    if names := traits.options.told.uncounted:
        yield uncounted_sentence(names)


def _draft(best: FeasibleCandidate, request: Request, traits: EngineTraits) -> Iterator[str]:
    drafter, load = traits.options.drafter, request.workload
    if drafter is None:
        return
    most = format_bytes(max(stage.draft_bytes for stage in best.estimate.stages))
    whose = "that of " if drafter.method is DraftMethod.MTP else ""
    accepted = (
        f"is assumed ({load.draft_acceptance:.0%} of them, "
        f"{load.draft_acceptance_band:.0%} more or less: measure it)"
        if load.draft_acceptance_band
        else "is what the spec says"
    )
    yield (
        f"{NOUNS[drafter.method]}: {whose}{drafter.model.source} takes {most} of the weights' "
        f"memory per GPU and K/V beside it; how many drafts are accepted {accepted}, and no "
        "plan with one has been measured"
    )
    yield from drafter.model.warnings


def _speculation(
    best: FeasibleCandidate, request: Request, model: ModelSpec, traits: EngineTraits
) -> Iterator[str]:
    drafted = best.estimate.draft_tokens
    if drafted == 0:
        return
    brings = replace(request.workload, draft_tokens=drafted).tokens_per_step
    most = loses_from(best, request, model, traits)
    if most is None:
        until = "a token takes no longer than without at any load that fits"
    elif most == 1:
        until = "a token takes longer than without at every load"
    else:
        until = f"from {most:,} requests in flight on a token takes longer than without"
    yield (
        f"speculation: {drafted} drafted token{'s' if drafted > 1 else ''} a step, of which "
        f"{brings - 1:.2g} are accepted; {until}"
    )


def _beside_the_gpus(
    best: FeasibleCandidate, request: Request, model: ModelSpec, traits: EngineTraits
) -> Iterator[str]:
    candidate, wanted = best.candidate, request.workload.kv_offload
    if wanted is None:
        return
    over_ray = traits.options.over_ray
    found = host_cache(candidate, best.estimate, wanted, model, over_ray=over_ray)
    if found is None:
        unsaid = candidate.pool.leanest is None
        why = "nodes do not say what they have" if unsaid else "they have none left for a pod"
        yield (
            f"no K/V is kept in the memory of the nodes: {why} "
            "(spec.engine.kvOffload.hostMemory states a number)"
        )
        return
    kept = best.estimate.kv_tokens * candidate.layout.attention_data
    yield (
        f"K/V offload: {format_bytes(found.pod_bytes)} of memory per pod keep about "
        f"{found.tokens:,} tokens beside the {kept:,} on the GPUs; how many prompts find "
        "theirs is what spec.workload.prefixCacheHitPercent says, copying them back is not "
        "counted, and no plan with it has been measured"
    )


_INDEXED: Final = frozenset({AttentionKind.SELECTED_LATENT, AttentionKind.COMPRESSED_LATENT})


def _on_request(
    candidate: Candidate, request: Request, model: ModelSpec, traits: EngineTraits
) -> Iterator[str]:
    """Source: vLLM 0.33 ``sparse_attn_indexer.py:SparseAttnIndexer.forward_hip``."""
    needs = attention_needs(model, request.workload.kv_cache_dtype)
    indexed = any(need.kind in _INDEXED for need in needs)
    if indexed and candidate.pool.gpu.vendor == "AMD" and traits.support.backends is not None:
        yield (
            f"{traits.name} runs sparse attention on AMD with AITER, which is off by itself: set "
            "VLLM_ROCM_USE_AITER to 1 in spec.engine.env (gfx950 and gfx11 do without)"
        )


def _slowed_by_drafts(
    best: FeasibleCandidate, request: Request, model: ModelSpec, traits: EngineTraits
) -> Iterator[str]:
    load = request.workload
    if load.draft_tokens == 0:
        return
    alone = replace(load, draft_tokens=0, draft_acceptance=0.0, draft_choices=())
    undrafted = replace(traits, options=replace(traits.options, drafter=None))
    # Without drafts another layout might be best, which says nothing of drafts.
    estimator = estimator_of(model, replace(request, workload=alone), undrafted)
    plain = estimator.estimate(best.candidate).performance.tpot_seconds
    drafting = best.estimate.performance.tpot_seconds
    if plain < drafting * (1 - _NOTICEABLE_SHARE):
        yield (
            f"drafts make serving slower: {drafting * 1e3:,.1f} ms per output token are "
            f"predicted with them, {plain * 1e3:,.1f} ms without"
        )


def _lighter(best: FeasibleCandidate, model: ModelSpec, traits: EngineTraits) -> Iterator[str]:
    """Lighter weights do not help if the user has fixed the bytes of the K/V cache.

    An offered rate that is not carried needs more replicas.
    """
    if best.carries_load or best.estimate.capacity is not None:
        return
    if traits.options.kv_cache_bytes is not None:
        yield (
            "requests queue for K/V: spec.engine.args.kv-cache-memory-bytes says how much there is"
        )
    # Without an FP8 unit the GPU would widen lighter weights at each product.
    elif model.quantization is None and "fp8" in best.candidate.pool.gpu.flops:
        worst = min(best.estimate.stages, key=lambda stage: stage.kv_cache_bytes)
        half = format_bytes(worst.weights_bytes / 2)
        yield (
            f"requests queue for K/V: spec.model.quantization FP8 would free up to {half} per "
            "GPU for it, spec.engine.kvCacheQuantization FP8 would double what it holds"
        )


def _unpriced(inventory: Inventory) -> Iterator[str]:
    stated = [pool.gpu_hour_price is not None for pool in inventory.pools]
    found = {pool.gpu.id: relative_price(pool.gpu) for pool in inventory.pools}
    if all(stated) or len(found) == 1:
        return
    dearest = sorted(found.items(), key=lambda item: (-item[1].per_hour, item[0]))
    each = ", ".join(
        f"{name} {relative_price_words(price)}" for name, price in dearest[:_PRICES_SHOWN]
    )
    others = len(found) - _PRICES_SHOWN
    more = f" and {others} others" if others > 0 else ""
    who = "some nodes state no price" if any(stated) else "no node states a price"
    yield (
        f"GPUs are compared by relative prices, an H100 as 1: {each}{more}; {who} "
        "(gpuHourPrices, shardwright.io/gpu-hour-price)"
    )


_PLUGINS: Final = {
    Capability.EFA: "NCCL's plugin for EFA (as Dynamo's vllm-runtime:VERSION-efa has)",
    Capability.GIB: "Google's gIB",
}

_NOT_GIVEN: Final = {
    NetworkWay.RESOURCES: "the nodes offer no RDMA resource that is known (rdmaResources)",
    NetworkWay.CLAIMS: "pods claim its NICs from GKE's DRANET, and no claims for NICs are rendered",
    NetworkWay.DAEMON: "GPUDirect-TCPX and TCPXO want a daemon of Google's in every pod, with "
    "rights that no pod has here",
}


def _missed_network(candidate: Candidate) -> Iterator[str]:
    pool = candidate.pool
    if candidate.uses_network and (missed := missed_network(pool.reach)):
        yield f"{missed}; planned over TCP, {pool.network.name} per GPU assumed"


def missed_network(reach: Reach) -> str:
    """Return which network is there and why pods do not use it, empty if they miss none."""
    if reach.missed is None:
        return ""
    why = _NOT_GIVEN[reach.way]
    if reach.mode is RdmaMode.NONE:
        why = "spec.pod.network.rdma is None"
    elif reach.plugin:
        why = (
            f"the nodes offer {reach.unused[0][0]}, and the image is not known to have "
            f"{_PLUGINS[reach.plugin]}"
        )
    return f"pods do not reach the nodes' {reach.missed.name}: {why}"


def _unknown_network(candidate: Candidate) -> Iterator[str]:
    pool = candidate.pool
    assumed = pool.reach.missed is None and pool.network.basis == "assumed"
    if assumed and candidate.uses_network:
        yield (
            f"the network between nodes is unknown: {pool.network.name} per GPU assumed; the node "
            "label shardwright.io/network-gbps-per-gpu states it, for --gpus the option --network"
        )


def _slow_links(candidate: Candidate) -> Iterator[str]:
    placement, link = candidate.placement, candidate.placement.tensor_link
    if link is None or link == candidate.pool.gpu.scale_up:
        return
    if candidate.layout.tensor > placement.gpus_per_node:
        yield (
            f"tensor parallelism crosses nodes over {link.name}: every layer waits for the "
            "network twice"
        )
