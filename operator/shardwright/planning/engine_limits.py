"""Which number formats does a model need, and has the engine kernels for them on a GPU?

An unknown fact of an engine or a GPU refuses nothing.

Which pipeline, expert, attention-data and context degrees does an engine refuse?

Sources: vLLM 0.32, as named at each check; :data:`shardwright.planning.shapes.SHAPE_REASONS`
explains the codes.

Does an engine apply adapters (LoRA) to this architecture, vocabulary and layout?

Which layouts does an engine refuse because of the drafter beside the served model?
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.gpus import ComputeCapability, Gpu
from shardwright.layouts.layout import DraftMethod, EngineTraits, Layout
from shardwright.layouts.stages import split_layers
from shardwright.modelspec.model_spec import (
    ExpertFeedForward,
    GroupedAttention,
    LatentAttention,
    Layer,
    ModelSpec,
)

NOUNS: Final = {
    DraftMethod.DRAFT_MODEL: "draft model",
    DraftMethod.EAGLE3: "EAGLE-3 head",
    DraftMethod.MTP: "MTP layer",
}
"""What drafts, in words."""


def draft_problems(model: ModelSpec, layout: Layout, traits: EngineTraits) -> Iterator[Problem]:
    """Return the degrees beside which nothing drafts; ``shapes.SHAPE_REASONS`` explains the
    codes.

    Sources: vLLM 0.33. Pipeline: only the last stage makes the drafter
    (``v1/worker/gpu/model_runner.py``). A draft model's class takes the stages of its target for
    its own (``models/utils.py:make_layers``), so that it has a part of its layers and no embedding.
    MTP layers get an embedding of their own there, of classes that say so
    (``tests/engine/backends.py``). An EAGLE-3 head must bring one (``eagle/utils.py``), which its
    config.json does not tell. Attention data: the first pass of a draft model has a token more per
    request than the replicas have agreed on, which ``forward_context.py:DPMetadata.make`` asserts.
    Context: ``standalone_ar/speculator.py`` makes the draft model without it and then shares its
    K/V out nevertheless; the K/V of the others is not worked out.
    """
    drafter = traits.options.drafter
    if drafter is None:
        return
    # MTP layers step with their target, so that replicas of the attention agree on the batch.
    data = 1 if drafter.steps_with_replicas else layout.attention_data
    staged = (
        drafter.method is DraftMethod.MTP
        and model.architecture in traits.support.predicts_over_stages
    )
    stages = 1 if staged else layout.pipeline
    degrees = (
        ("DraftExcludesPipeline", "pipeline", stages, "stages"),
        ("DraftExcludesAttentionData", "dataParallelAttention", data, "replicas of the attention"),
        ("DraftExcludesContext", "context", layout.context, "ranks that share K/V"),
    )
    for code, field, count, several in degrees:
        if count > 1:
            # Of a draft model the engine's source tells; of others it does not tell all.
            told = field != "pipeline" or drafter.method is DraftMethod.DRAFT_MODEL
            verb = "run no" if told else "are not planned beside the"
            of = f" of {model.architecture}" if drafter.method is DraftMethod.MTP else ""
            yield Problem(
                code=code,
                path=field,
                what=f"{count} {several}",
                limit=f"{verb} {NOUNS[drafter.method]}{of} in {traits.name} {traits.version}",
                remedy=f"use {field} 1, or PromptLookup",
            )


def lookup_problems(layout: Layout, traits: EngineTraits) -> Iterator[Problem]:
    """Return the degrees beside which drafts are not looked up in the prompt."""
    if not (traits.options.looks_up and traits.support.looks_up_alone):
        return
    degrees = (
        ("DraftExcludesPipeline", "pipeline", layout.pipeline, "stages"),
        (
            "DraftExcludesAttentionData",
            ATTENTION_DATA,
            layout.attention_data,
            "replicas of the attention",
        ),
    )
    for code, field, count, several in degrees:
        if count > 1:
            yield Problem(
                code=code,
                path=field,
                what=f"{count} {several}",
                limit=f"look no drafts up in the prompt in {traits.name} {traits.version}",
                remedy=f"use {field} 1, or no speculation",
            )


_OTHER: Final = "select other GPUs or other weights"

# A model on the GPU, what its weights are called, the field that it comes from.
_Held = tuple[ModelSpec, str, str]

# A unit of the GPU, what needs it, the field that it comes from, the way out where it is missing.
_Need = tuple[str, str, str, str]


def dtype_problems(
    model: ModelSpec, gpu: Gpu, kv_cache_dtype: str, traits: EngineTraits
) -> Iterator[Problem]:
    """Return that the engine does not run on a GPU, or which needed number formats one of them
    lacks.
    """
    # Every format would repeat it.
    if _older(gpu, traits.support.least_capability):
        yield _too_old(gpu, traits)
        return
    held = _held(model, traits)
    stored = [problem for each in held for problem in _storage_problems(each, gpu, traits)]
    yield from stored
    as_fp16 = _OTHER if stored else _as_fp16(model, gpu)
    in_fp8 = () if traits.support.widens_fp8(gpu) else held
    for unit, what, path, remedy in _needs(model, kv_cache_dtype, in_fp8, as_fp16):
        if unit not in gpu.flops:
            yield Problem(
                code="DtypeNotSupported",
                what=what,
                limit=f"but {gpu.id} has no {unit} unit",
                gap=f"it has {', '.join(sorted(gpu.flops))}",
                remedy=remedy,
                path=path,
            )


def _as_fp16(model: ModelSpec, gpu: Gpu) -> str:
    if "fp16" not in gpu.flops:
        return _OTHER
    in_fp16 = (
        "set model.quantization: FP16"
        if model.quantization is None
        else "set engine.args.dtype: float16"
    )
    return f"{in_fp16}, or {_OTHER}"


def _needs(
    model: ModelSpec, kv_cache_dtype: str, in_fp8: Iterable[_Held], as_fp16: str
) -> Iterator[_Need]:
    if model.dtype == "bf16":
        yield "bf16", "the model computes in bf16", "spec.model", as_fp16
    for each, whose, path in in_fp8:
        if "fp8" in _formats(each):
            yield "fp8", f"{whose} are held in fp8", path, _OTHER
    if kv_cache_dtype == "fp8":
        path = "spec.engine.kvCacheQuantization"
        yield "fp8", "the K/V cache is kept in fp8", path, _OTHER


def _held(model: ModelSpec, traits: EngineTraits) -> tuple[_Held, ...]:
    own = (model, "the weights", "spec.model.quantization")
    drafter = traits.options.drafter
    if drafter is None:
        return (own,)
    whose = f"the {NOUNS[drafter.method]}'s weights"
    return (own, (drafter.model, whose, "spec.workload"))


def _formats(model: ModelSpec) -> set[str]:
    return {weight.storage.name for weight in model.weights}


def _storage_problems(held: _Held, gpu: Gpu, traits: EngineTraits) -> Iterator[Problem]:
    """Return the formats that the engine takes, as this method stores them, only on newer GPUs."""
    model, whose, path = held
    for product in sorted({weight.storage.product for weight in model.weights}):
        least = traits.support.oldest_for.get((model.quantization or "", product))
        if _older(gpu, least):
            method = "" if model.quantization == product else f" by {model.quantization}"
            yield Problem(
                code="DtypeNotSupported",
                what=f"{whose} stored as {product}{method}",
                limit=f"need compute capability {_shown(least)} with {traits.name} "
                f"{traits.version}",
                gap=f"{gpu.id} has {_shown(gpu.compute_capability)}",
                remedy=_OTHER,
                path=path,
            )


def _older(gpu: Gpu, least: ComputeCapability | None) -> bool:
    return (
        least is not None and gpu.compute_capability is not None and gpu.compute_capability < least
    )


def _shown(capability: ComputeCapability | None) -> str:
    return ".".join(map(str, capability or ()))


def _too_old(gpu: Gpu, traits: EngineTraits) -> Problem:
    return Problem(
        code="GpuTooOld",
        what=f"{traits.name} {traits.version}",
        limit="runs on NVIDIA GPUs of compute capability "
        f"{_shown(traits.support.least_capability)} and newer",
        gap=f"{gpu.id} has {_shown(gpu.compute_capability)}",
        remedy="select other GPUs",
        path="spec.placement",
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
    if any(
        isinstance(kind, GroupedAttention | LatentAttention) and kind.window is not None
        for kind in kinds
    ):
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
    if model.stated:
        return
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
            f"context {layout.context}", f"is not planned for {traits.name}", "use context 1"
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


def adapter_problems(model: ModelSpec, layout: Layout, traits: EngineTraits) -> Iterator[Problem]:
    """Return why the engine would not start with adapters; ``shapes.SHAPE_REASONS`` explains the
    codes.

    Sources: vLLM 0.32 ``v1/worker/lora_model_runner_mixin.py:load_lora_model``,
    ``lora/layers/logits_processor.py`` and ``lora/layers/fused_moe.py:_ep_check`` with
    ``config/parallel.py:use_sequence_parallel_moe``.
    """
    if traits.options.adapters is None:
        return
    engine, support = f"{traits.name} {traits.version}", traits.support
    if support.takes_adapters is not None and model.architecture not in support.takes_adapters:
        yield Problem(
            code="AdaptersNotSupported",
            what=f"adapters of {model.architecture}",
            limit=f"are not supported by {engine}",
            remedy="remove spec.model.adapters, or merge each adapter into weights of its own",
        )
    too_many = model.vocabulary - support.adapter_vocabulary
    if too_many > 0 and model.architecture not in support.adapters_leave_vocabulary:
        yield Problem(
            code="VocabularyTooLargeForAdapters",
            what=f"a vocabulary of {model.vocabulary:,} tokens",
            limit=f"must have at most {support.adapter_vocabulary:,} for adapters in {engine}",
            gap=f"{too_many:,} too many",
            remedy="remove spec.model.adapters, or merge each adapter into weights of its own",
        )
    if layout.expert > 1 and layout.tensor > 1 and layout.attention_data > 1:
        yield Problem(
            code="AdaptersExcludeExperts",
            path="expert",
            what=f"whole experts over tensor {layout.tensor} x attention data "
            f"{layout.attention_data}",
            limit=f"take no adapters in {engine}",
            remedy="use tensor 1 or dataParallelAttention 1 beside whole experts",
        )
