"""Which pipeline, expert, attention-data and context degrees does an engine refuse?

Sources: vLLM 0.32, as named at each check; :data:`shardwright.planning.shapes.SHAPE_REASONS`
explains the codes.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from shardwright.errors import Problem
from shardwright.layouts.layout import Layout
from shardwright.layouts.stages import split_layers
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import (
    ExpertFeedForward,
    GroupedAttention,
    Layer,
    ModelSpec,
    RecurrentAttention,
)

TENSOR: Final = "tensor"
_EXPERT: Final = "expert"
_PIPELINE: Final = "pipeline"
ATTENTION_DATA: Final = "dataParallelAttention"


def degree_problems(model: ModelSpec, layout: Layout, traits: EngineTraits) -> Iterator[Problem]:
    """Return the degrees that the engine refuses beyond divisibility; paths are relative to
    ``parallelism``.
    """
    yield from _pipeline_problems(model, layout, traits)
    yield from _expert_problems(model, layout, traits)
    yield from _context_problems(model, layout)
    yield from _unsayable_problems(model, layout, traits)


def _pipeline_problems(model: ModelSpec, layout: Layout, traits: EngineTraits) -> Iterator[Problem]:
    layers = len(model.layers)
    if layout.pipeline > 1 and model.architecture in traits.cuts.without_pipeline:
        yield Problem(
            code="PipelineNotSupported",
            path=_PIPELINE,
            what=f"{model.architecture}",
            limit=f"cannot be cut into {layout.pipeline} stages by {traits.name} {traits.version}",
            remedy="use pipeline 1",
        )
    if layout.pipeline > layers:
        yield Problem(
            code="MoreStagesThanLayers",
            path=_PIPELINE,
            what=f"{layers} layers",
            limit=f"must fill {layout.pipeline} stages with one each",
            gap=f"{layout.pipeline - layers} stages stay empty",
            remedy=f"use pipeline {layers} or less",
        )

    if layout.partition:
        yield from _partition_problems(layout, layers)
    if layout.pipeline <= layers:
        yield from _stage_problems(model, layout, traits)


def _stage_problems(model: ModelSpec, layout: Layout, traits: EngineTraits) -> Iterator[Problem]:
    """Source: vLLM 0.32 ``models/qwen3_moe.py:set_moe_parameters`` and others."""
    stages = split_layers(
        len(model.layers), layout.pipeline, traits.cuts.remainder, layout.partition
    )
    held = [model.layers[first:end] for first, end in stages]
    # A stage without layers has its own problem (MoreStagesThanLayers, PartitionImpossible).
    if not all(held):
        return
    yield from _without_attention(layout, held)
    if model.architecture in traits.cuts.experts_on_every_stage:
        yield from _without_experts(model, layout, held)


def _without_attention(layout: Layout, held: Sequence[Sequence[Layer]]) -> Iterator[Problem]:
    idle = [
        stage for stage, layers in enumerate(held) if not any(layer.attention for layer in layers)
    ]
    if idle:
        yield Problem(
            code="StageWithoutAttention",
            path=_PIPELINE,
            what=f"stage {idle[0]} of {layout.pipeline}",
            limit="must have a layer with attention or a recurrent state",
            gap=f"{len(idle)} stages have none",
            remedy="use fewer stages",
        )


def _without_experts(
    model: ModelSpec, layout: Layout, held: Sequence[Sequence[Layer]]
) -> Iterator[Problem]:
    sparse = [
        any(isinstance(layer.feed_forward, ExpertFeedForward) for layer in layers)
        for layers in held
    ]
    dense = [stage for stage, has_experts in enumerate(sparse) if not has_experts]
    if dense:
        yield Problem(
            code="StageWithoutExperts",
            path=_PIPELINE,
            what=f"stage {dense[0]} of {layout.pipeline}",
            limit=f"must have a layer with experts for {model.architecture}",
            gap=f"{len(dense)} stages have none",
            remedy="use fewer stages",
        )


def _partition_problems(layout: Layout, layers: int) -> Iterator[Problem]:
    """Source: ``distributed/utils.py:get_pp_indices``; a stage without layers is accepted and dies
    at the start.
    """
    given = ",".join(map(str, layout.partition))
    fits = len(layout.partition) == layout.pipeline and sum(layout.partition) == layers
    if fits and min(layout.partition) > 0:
        return
    yield Problem(
        code="PartitionImpossible",
        path="partition",
        what=f"a partition of {given}",
        limit=f"must be {layout.pipeline} numbers above 0 "
        f"with the sum {layers}, the layers of the model",
        gap="a stage has no layer"
        if fits
        else f"it is {len(layout.partition)} with the sum {sum(layout.partition)}",
        remedy="correct the partition, or leave it out to have it planned",
    )


def _context_problems(model: ModelSpec, layout: Layout) -> Iterator[Problem]:
    """Source: ``config/parallel.py``, ``config/model.py:verify_with_parallel_config``,
    ``v1/kv_cache_interface.py``.
    """
    degree = layout.context
    if degree == 1:
        return
    if layout.tensor % degree:
        yield _context(
            f"tensor {layout.tensor}",
            f"must be divisible by context {degree}",
            "use a divisor of the tensor degree",
        )
    # A dict keeps the order of the layers, so problems come in one order.
    kinds = tuple(dict.fromkeys(layer.attention for layer in model.layers if layer.attention))
    if any(not isinstance(kind, RecurrentAttention) and kind.window is not None for kind in kinds):
        yield _context(
            "attention with a window", f"cannot be shared by context {degree}", "use context 1"
        )
    for kind in kinds:
        if isinstance(kind, GroupedAttention):
            yield from _head_problems(kind, layout)


def _head_problems(kind: GroupedAttention, layout: Layout) -> Iterator[Problem]:
    degree, copies = layout.context, layout.tensor // kind.kv_heads
    if layout.tensor <= kind.kv_heads or degree > copies:
        limit = (
            f"leave {max(1, copies)} copies at tensor {layout.tensor}, fewer than context {degree}"
        )
        yield _context(
            f"{kind.kv_heads} K/V heads",
            limit,
            f"use context {max(1, copies)} or less, or a greater tensor degree",
        )
    elif kind.heads // kind.kv_heads % degree:
        queries = f"{kind.heads // kind.kv_heads} attention heads per K/V head"
        yield _context(queries, f"must be divisible by context {degree}", "use a divisor of it")


def _context(what: str, limit: str, remedy: str) -> Problem:
    return Problem(
        code="ContextDegreeImpossible", path="context", what=what, limit=limit, remedy=remedy
    )


def _expert_problems(model: ModelSpec, layout: Layout, traits: EngineTraits) -> Iterator[Problem]:
    """Source: ``config/model.py``, ``fused_moe/config.py:FusedMoEParallelConfig.make``,
    ``models/qwen3_moe.py``.
    """
    ranks = layout.tensor * layout.attention_data
    if model.experts == 0:
        yield from _needs_experts(layout)
        return
    if layout.expert not in (1, ranks) and not (
        traits.cuts.mixes_expert_cuts and ranks % layout.expert == 0
    ):
        yield Problem(
            code="ExpertDegreeImpossible",
            path=_EXPERT,
            what=f"expert {layout.expert}",
            limit=f"must be 1 or tensor x attention data = {ranks}",
            remedy=f"use expert 1 or {ranks}",
        )
    at_least_tensor = model.architecture in traits.cuts.experts_at_least_tensor
    need = max(layout.expert, layout.tensor if at_least_tensor else 1)
    if need > model.experts:
        yield Problem(
            code="ExpertsFewerThanRanks",
            path=_EXPERT if layout.expert == need else TENSOR,
            what=f"{model.experts} experts",
            limit=f"must be at least one for each of {need} ranks",
            gap=f"{need - model.experts} short",
            remedy=f"use at most {model.experts} ranks"
            + ("" if at_least_tensor else ", or expert 1, which slices every expert"),
        )


def _needs_experts(layout: Layout) -> Iterator[Problem]:
    if layout.expert > 1:
        yield Problem(
            code="ExpertParallelNeedsExperts",
            path=_EXPERT,
            what="a model without experts",
            limit=f"cannot be spread over expert {layout.expert}",
            remedy="use expert 1",
        )
    if layout.attention_data > 1:
        yield Problem(
            code="AttentionDataNeedsExperts",
            path=ATTENTION_DATA,
            what="a model without experts",
            limit=f"gains nothing from attention data {layout.attention_data}",
            remedy="use attention data 1 and more replicas",
        )


def _unsayable_problems(
    model: ModelSpec, layout: Layout, traits: EngineTraits
) -> Iterator[Problem]:
    """Source: TensorRT-LLM ``mapping.py`` (engine-measurements.md 10)."""
    if layout.context > 1 and not traits.cuts.shares_context:
        yield _context(
            f"context {layout.context}", f"is no option of {traits.name}", "use context 1"
        )
    if layout.attention_data > 1 and layout.tensor > 1 and not traits.cuts.data_beside_tensor:
        yield Problem(
            code="AttentionDataExcludesTensor",
            path=ATTENTION_DATA,
            what=f"attention data {layout.attention_data} beside tensor {layout.tensor}",
            limit=f"cannot be combined in {traits.name}: "
            "attention is whole on every rank or on none",
            remedy="use tensor 1 or attention data 1",
        )
    if traits.cuts.deals_experts_evenly and model.experts and model.experts % layout.expert:
        yield Problem(
            code="ExpertsNotDivisible",
            path=_EXPERT,
            what=f"{model.experts} experts",
            limit=f"must be divisible by {layout.expert} ranks for {traits.name}",
            gap=f"{model.experts % layout.expert} are left over",
            remedy="use a number of ranks that divides them",
        )
