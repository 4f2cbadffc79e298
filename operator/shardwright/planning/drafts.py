"""What an engine refuses of a layout because of a draft model beside the one that is served."""

from collections.abc import Iterator

from shardwright.errors import Problem
from shardwright.layouts.layout import Layout
from shardwright.layouts.traits import EngineTraits


def draft_problems(layout: Layout, traits: EngineTraits) -> Iterator[Problem]:
    """Yield the degrees beside which no draft model runs; the codes are explained in
    ``shapes.SHAPE_REASONS``.

    Sources: vLLM 0.32. Pipeline: only the last stage makes the draft model
    (``v1/worker/gpu/model_runner.py``), by a class that takes the stages of its target for its own
    (``models/utils.py:make_layers``), so that it has a part of its layers and no embedding.
    Attention data: the first pass has a token more per request than the replicas have agreed on,
    which ``forward_context.py:DPMetadata.make`` asserts. Context:
    ``v1/worker/gpu/spec_decode/standalone_ar/speculator.py`` makes the draft model without it and
    then shares its K/V out nevertheless.
    """
    if traits.drafter is None:
        return
    degrees = (
        ("DraftExcludesPipeline", "pipeline", layout.pipeline, "stages"),
        (
            "DraftExcludesAttentionData",
            "attentionData",
            layout.attention_data,
            "replicas of the attention",
        ),
        ("DraftExcludesContext", "context", layout.context, "ranks that share K/V"),
    )
    for code, field, count, several in degrees:
        if count > 1:
            yield Problem(
                code=code,
                path=field,
                what=f"{count} {several}",
                limit=f"run no draft model in {traits.name} {traits.version}",
                remedy=f"use {field} 1, or remove spec.workload.draftModel",
            )
