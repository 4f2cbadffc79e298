"""What does the drafter beside a model cost: its weights, the peak of its passes, their time?

As vLLM 0.33 has it (``v1/worker/gpu/spec_decode/``): the ranks that sample hold it. After every
step it passes once over all tokens of the step (a draft model over one more of every request), then
once for every further token. Its K/V joins its target's (:mod:`shardwright.costs.kvcache`). A draft
model has no CUDA graphs; launching its kernels one by one beyond the fitted overhead is not
counted.
"""

from dataclasses import dataclass, fields, replace

from shardwright.costs.coefficients import Coefficients
from shardwright.costs.roofline import (
    Batch,
    Links,
    StageFloor,
    StepTime,
    hidden_bytes,
    stage_floor,
    step_time,
)
from shardwright.costs.weight_bytes import load_bytes_per_node, stage_weight_parts
from shardwright.costs.work import ModelWork
from shardwright.costs.working_memory import ELEMENT_BYTES, activation_bytes
from shardwright.costs.workload import Limits
from shardwright.hardware.gpus import Gpu
from shardwright.layouts.layout import Drafter, DraftMethod, EngineTraits, Layout
from shardwright.modelspec.model_spec import ModelSpec


def draft_weight_bytes(layout: Layout, traits: EngineTraits) -> int:
    """Return the bytes of the draft model on a rank that samples, 0 without one.

    Formula: as :func:`~shardwright.costs.weight_bytes.stage_weight_parts`, of the draft model in
        one stage.
    Unit: bytes, on one rank of the last stage.
    Error: as that of weights; no published row has a draft model.
    Source: vLLM 0.33 ``v1/worker/gpu/spec_decode/``: the ranks that sample hold it.

    >>> from dataclasses import replace
    >>> drafts = replace(vllm.options, drafter=Drafter(model=qwen))
    >>> drafting = replace(vllm, options=drafts)
    >>> draft_weight_bytes(Layout(tensor=4), drafting)
    15285252096
    >>> draft_weight_bytes(Layout(tensor=4), vllm)
    0
    """
    drafter = traits.options.drafter
    if drafter is None:
        return 0
    (held,) = stage_weight_parts(drafter.held(layout), drafter.layout(layout), traits)
    return held.total_bytes


def draft_load_bytes(layout: Layout, traits: EngineTraits, gpus_per_node: int) -> int:
    """Return the bytes of the draft model that a node reads, 0 without one.

    Formula: as :func:`~shardwright.costs.weight_bytes.load_bytes_per_node`, of the draft model.
    Unit: bytes a node.
    Error: as that of weights; no published row has a draft model.
    Source: derived: ranks of a node share its page cache.

    >>> from dataclasses import replace
    >>> drafts = replace(vllm.options, drafter=Drafter(model=qwen))
    >>> drafting = replace(vllm, options=drafts)
    >>> draft_load_bytes(Layout(tensor=4), drafting, 8)
    61064245248
    """
    drafter = traits.options.drafter
    return (
        load_bytes_per_node(drafter.held(layout), drafter.layout(layout), traits, gpus_per_node)
        if drafter
        else 0
    )


def draft_activation_bytes(
    model: ModelSpec, layout: Layout, limits: Limits, traits: EngineTraits
) -> int:
    """Return the peak while the draft model passes, 0 without one; its target's new states are
    kept.

    Formula: tokens of the batch x bytes a value x hidden size of the target +
        :func:`~shardwright.costs.working_memory.activation_bytes` of the draft model.
    Unit: bytes, on one rank of the last stage.
    Error: assumed to be that of activations: not measured (docs/memory.md).
    Source: vLLM 0.32, by reading (docs/memory.md).

    >>> from dataclasses import replace
    >>> limits = Limits(batched_tokens=8192, sequences=256, model_len=3072)
    >>> drafts = replace(vllm.options, drafter=Drafter(model=qwen))
    >>> drafting = replace(vllm, options=drafts)
    >>> draft_activation_bytes(llama, Layout(tensor=4), limits, drafting)
    1326972928
    >>> 1326972928 - 8192 * 2 * 8192 == activation_bytes(
    ...     qwen, Layout(tensor=4), limits, vllm.memory.logit_copies, last=True
    ... )
    True
    """
    drafter = traits.options.drafter
    if drafter is None:
        return 0
    # The drafter reads the states of the pass before it, so they cannot be given back yet.
    kept = limits.batched_tokens * ELEMENT_BYTES[model.dtype] * model.hidden_size
    return kept + activation_bytes(
        drafter.model, drafter.layout(layout), limits, traits.memory.logit_copies, last=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPasses:
    """The drafter's passes on a rank: least time of one, links of its ranks, further tokens of a
    request in the first.
    """

    floor: StageFloor
    links: Links
    further_tokens: int = 1


def draft_passes(
    target: Layout, links: Links, gpu: Gpu, kv_bits: int, traits: EngineTraits
) -> DraftPasses | None:
    """Return the passes beside a target with this layout and these links, None without a
    drafter.

    Formula: none: the floor of one pass of the draft model, as
        :func:`~shardwright.costs.roofline.stage_floor` has it for a stage.
    Unit: seconds and bytes/s, as the fields of a floor and of links.
    Error: as that of a step; no measurement has drafts (docs/planner-speed.md).
    Source: derived: a draft model is priced as a stage of its size.

    >>> from dataclasses import replace
    >>> drafts = replace(vllm.options, drafter=Drafter(model=qwen))
    >>> drafting, links = replace(vllm, options=drafts), task.replica.links
    >>> passes = draft_passes(Layout(tensor=8), links, h100, 16, drafting)
    >>> passes.floor.layers, passes.floor.hot_share, passes.further_tokens
    (48, 0.0625, 1)
    """
    drafter = traits.options.drafter
    if drafter is None:
        return None
    layout = drafter.layout(target)
    passing = _passing(drafter)
    work = ModelWork.of(passing)
    (held,) = stage_weight_parts(passing, layout, traits)
    stage = work.stage(layout, (0, work.layers), held, last=True)
    own = replace(
        links,
        peers=layout.attention_data,
        expert_groups=max(1, layout.expert),
        hidden_bytes=hidden_bytes(work),
    )
    return DraftPasses(
        floor=stage_floor(stage, work, gpu, kv_bits),
        links=own,
        further_tokens=drafter.further_tokens,
    )


def _passing(drafter: Drafter) -> ModelSpec:
    """MTP layers take turns, and each pass ends in the target's head."""
    model = drafter.model
    if drafter.method is not DraftMethod.MTP:
        return model
    first = (weight for weight in model.weights if weight.layer == 0)
    # One layer a pass, however many there are, and then the borrowed head (ADR 35).
    return replace(model, layers=model.layers[:1], weights=(*first, *drafter.borrowed))


def with_drafting(
    step: StepTime, passes: DraftPasses, batch: Batch, fitted: Coefficients
) -> StepTime:
    """Return the time of a step with the drafting after it: the first pass has the tokens of the
    step, the others one each.

    As many tokens are drafted as the step verifies beside the newest one.

    Formula: the step + one pass over its tokens + (drafts - 1) passes over one token a request,
        part by part.
    Unit: seconds.
    Error: no measurement has drafts; launching the kernels of a draft model one by one is not
        counted.
    Source: vLLM 0.33 ``v1/worker/gpu/spec_decode/``, by reading.

    >>> from shardwright.costs.coefficients import coefficients_of
    >>> fitted, floor = coefficients_of("vLLM", ""), task.replica.kinds[0].floor
    >>> batch = Batch(sequences=1, verified=3, context_tokens=2304, sampled=3)
    >>> step = step_time(floor, task.replica.links, batch, fitted)
    >>> itself = DraftPasses(floor=floor, links=task.replica.links)
    >>> drafting = with_drafting(step, itself, batch, fitted)
    >>> round(1000 * step.total_seconds, 2), round(1000 * drafting.total_seconds, 2)
    (11.01, 32.97)
    """
    # Prompts that end in this step are sampled as well, and drafted for from then on.
    prompts = max(0.0, batch.sampled - batch.sequences * batch.verified)
    requests = batch.sequences + prompts
    first = replace(batch, verified=batch.verified + passes.further_tokens, sampled=requests)
    other = replace(batch, sequences=requests, verified=1.0, prompt_tokens=0.0, sampled=requests)
    # A step verifies the drafts and the newest token; all of a batch are floats.
    drafted = round(batch.verified) - 1
    times = [
        step,
        *(
            step_time(passes.floor, passes.links, one, fitted)
            for one in (first, *[other] * (drafted - 1))
        ),
    ]
    return StepTime(
        **{part.name: sum(getattr(time, part.name) for time in times) for part in fields(StepTime)}
    )
