"""Which layouts does an engine refuse because of the drafter beside the served model?"""

from collections.abc import Iterator
from typing import Final

from shardwright.errors import Problem
from shardwright.layouts.layout import Layout
from shardwright.layouts.traits import DraftMethod, EngineTraits

NOUNS: Final = {
    DraftMethod.DRAFT_MODEL: "draft model",
    DraftMethod.EAGLE3: "EAGLE-3 head",
    DraftMethod.MTP: "MTP layer",
}
"""What drafts, in words."""


def draft_problems(layout: Layout, traits: EngineTraits) -> Iterator[Problem]:
    """Return the degrees beside which nothing drafts; ``shapes.SHAPE_REASONS`` explains the
    codes.

    Sources: vLLM 0.33. Pipeline: only the last stage makes the drafter
    (``v1/worker/gpu/model_runner.py``). A draft model's class takes the stages of its target for
    its own (``models/utils.py:make_layers``), so that it has a part of its layers and no embedding;
    MTP layers need the embedding of the first stage (``spec_decode/eagle/utils.py``), and EAGLE-3
    heads a class that hands states from stage to stage (``eagle3_utils.py``), which is not worked
    out. Attention data: the first pass of a draft model has a token more per request than the
    replicas have agreed on, which ``forward_context.py:DPMetadata.make`` asserts. Context:
    ``standalone_ar/speculator.py`` makes the draft model without it and then shares its K/V out
    nevertheless; the K/V of the others is not worked out.
    """
    drafter = traits.options.drafter
    if drafter is None:
        return
    # MTP layers step with their target, so that replicas of the attention agree on the batch.
    data = 1 if drafter.steps_with_replicas else layout.attention_data
    degrees = (
        ("DraftExcludesPipeline", "pipeline", layout.pipeline, "stages"),
        ("DraftExcludesAttentionData", "dataParallelAttention", data, "replicas of the attention"),
        ("DraftExcludesContext", "context", layout.context, "ranks that share K/V"),
    )
    for code, field, count, several in degrees:
        if count > 1:
            yield Problem(
                code=code,
                path=field,
                what=f"{count} {several}",
                limit=f"run no {NOUNS[drafter.method]} in {traits.name} {traits.version}",
                remedy=f"use {field} 1, or PromptLookup",
            )
