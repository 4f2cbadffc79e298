"""What drafts beside the model that it drafts for: its weights, the peak of its passes, their time.

As vLLM 0.33 has it (``v1/worker/gpu/spec_decode/``): the ranks that sample hold it. After every
step it passes once over all tokens of the step (a draft model over one more of every request), then
once for every further token that it drafts. Its K/V joins that of its target
(:mod:`shardwright.costs.kvcache`). The passes of a draft model have no CUDA graphs; what launching
their kernels one by one takes beyond the overhead that was fitted is not counted.
"""

from dataclasses import dataclass, fields, replace

from shardwright.costs.activations import ELEMENT_BYTES, activation_bytes
from shardwright.costs.coefficients import Coefficients
from shardwright.costs.limits import Limits
from shardwright.costs.roofline import (
    Batch,
    Links,
    StageFloor,
    StepTime,
    hidden_bytes,
    stage_floor,
    step_time,
)
from shardwright.costs.weights import load_bytes_per_node, stage_weight_parts
from shardwright.costs.work import ModelWork
from shardwright.hardware.gpus import Gpu
from shardwright.layouts.layout import Layout
from shardwright.layouts.traits import Drafter, DraftMethod, EngineTraits
from shardwright.modelspec.spec import ModelSpec


def draft_weight_bytes(layout: Layout, traits: EngineTraits) -> int:
    """Return the bytes of the draft model on a rank that samples, 0 without one."""
    drafter = traits.drafter
    if drafter is None:
        return 0
    (held,) = stage_weight_parts(drafter.model, drafter.layout(layout), traits)
    return held.total_bytes


def draft_load_bytes(layout: Layout, traits: EngineTraits, gpus_per_node: int) -> int:
    """Return the bytes of the draft model that a node reads, 0 without one."""
    drafter = traits.drafter
    return (
        load_bytes_per_node(
            drafter.model, drafter.layout(layout), traits, gpus_per_node
        )
        if drafter
        else 0
    )


def draft_activation_bytes(
    model: ModelSpec, layout: Layout, limits: Limits, traits: EngineTraits
) -> int:
    """Return the peak while the draft model passes, 0 without one: what its target has just
    computed is kept.
    """
    drafter = traits.drafter
    if drafter is None:
        return 0
    kept = limits.batched_tokens * ELEMENT_BYTES[model.dtype] * model.hidden_size
    return kept + activation_bytes(
        drafter.model, drafter.layout(layout), limits, traits.logit_copies, last=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPasses:
    """The passes of what drafts, on a rank: what one takes at least, what its ranks say to each
    other, the share of its experts that a token uses, and by how many tokens of a request the first
    has more than the step before it.
    """

    floor: StageFloor
    links: Links
    hot_share: float = 0.0
    further_tokens: int = 1


def draft_passes(
    drafter: Drafter,
    target: Layout,
    links: Links,
    gpu: Gpu,
    kv_bits: int,
    traits: EngineTraits,
) -> DraftPasses:
    """Return the passes beside a target that is cut so and has these links."""
    layout, passing = drafter.layout(target), _passing(drafter)
    work = ModelWork.of(passing)
    (held,) = stage_weight_parts(passing, layout, traits)
    stage = work.stage(layout, (0, work.layers), held, last=True)
    own = replace(
        links,
        peers=layout.attention_data,
        whole_experts=layout.expert > 1,
        hidden_bytes=hidden_bytes(work),
    )
    return DraftPasses(
        floor=stage_floor(stage, work, gpu, kv_bits),
        links=own,
        hot_share=work.hot_share,
        further_tokens=drafter.further_tokens,
    )


def _passing(drafter: Drafter) -> ModelSpec:
    """Return the layers of one drafting pass. MTP layers take turns, and each pass ends in the
    target's head.
    """
    model = drafter.model
    if drafter.method is not DraftMethod.MTP:
        return model
    first = (weight for weight in model.weights if weight.layer == 0)
    return replace(model, layers=model.layers[:1], weights=(*first, *drafter.borrowed))


def with_drafting(
    step: StepTime,
    passes: DraftPasses,
    batch: Batch,
    fitted: Coefficients,
    imbalance: float | None = None,
) -> StepTime:
    """Return the time of a step with the drafting after it: the first pass has what the step had,
    the others a token each.

    As many tokens are drafted as the step verifies beside the newest one. ``imbalance`` as in
    :func:`~shardwright.costs.roofline.step_time`.
    """
    prompts = max(0.0, batch.sampled - batch.sequences * batch.verified)
    requests = batch.sequences + prompts
    first = replace(
        batch, verified=batch.verified + passes.further_tokens, sampled=requests
    )
    other = replace(
        batch, sequences=requests, verified=1.0, prompt_tokens=0.0, sampled=requests
    )
    drafted = round(batch.verified) - 1
    times = [
        step,
        *(
            step_time(
                passes.floor, passes.links, passes.hot_share, one, fitted, imbalance
            )
            for one in (first, *[other] * (drafted - 1))
        ),
    ]
    return StepTime(
        **{
            part.name: sum(getattr(time, part.name) for time in times)
            for part in fields(StepTime)
        }
    )
