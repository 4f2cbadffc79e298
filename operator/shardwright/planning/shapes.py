"""Which layouts does an engine refuse because of the model's sizes, and what is the way out?

Sources: vLLM 0.32, as named at each check.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeVar

from shardwright.errors import Problem
from shardwright.layouts.layout import EngineTraits, Layout
from shardwright.modelspec.model_spec import (
    GroupedAttention,
    Layer,
    ModelSpec,
    RecurrentAttention,
    Split,
    Weight,
)
from shardwright.planning.engine_limits import (
    NOUNS,
    TENSOR,
    adapter_problems,
    degree_problems,
    draft_problems,
    lookup_problems,
)

SHAPE_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "HeadsNotDivisible": "The attention heads are not divisible by the tensor degree.",
        "KvHeadsNotDivisible": (
            "The K/V heads are not divisible by the tensor degree and do not divide it."
        ),
        "VocabularyNotDivisible": "The padded vocabulary is not divisible by the tensor degree.",
        "IntermediateNotDivisible": (
            "A feed-forward width is not divisible by the ranks that share it."
        ),
        "QuantizationBlockNotDivisible": (
            "A rank's slice of a weight is no whole number of quantization blocks."
        ),
        "ExpertsFewerThanRanks": "There are fewer experts than ranks that must each hold one.",
        "ExpertParallelNeedsExperts": "Expert parallelism was asked of a model without experts.",
        "ExpertDegreeImpossible": "The expert degree is neither 1 nor tensor x attention data.",
        "ExpertsNotDivisible": (
            "The engine wants as many whole experts on every rank, and the experts do not divide."
        ),
        "AttentionDataExcludesTensor": (
            "The engine cannot cut the attention into tensor ranks and replicas at once."
        ),
        "AttentionDataNeedsExperts": (
            "Attention data parallelism was asked of a model without experts."
        ),
        "PipelineNotSupported": "The engine cannot cut this architecture into pipeline stages.",
        "MoreStagesThanLayers": "A pipeline stage would hold no layer.",
        "StageWithoutAttention": "The layers of a stage keep nothing of a request.",
        "StageWithoutExperts": "The engine's class wants experts on every stage, and one has none.",
        "PartitionImpossible": (
            "The layers of the stages are not those of the model, or a stage has none."
        ),
        "ContextDegreeImpossible": (
            "The ranks cannot share K/V: none of them would "
            "hold a copy, or the attention forbids it."
        ),
        "MaxModelLenTooLong": "The longest request is longer than the model's own limit.",
        "QuantizationUnknownToEngine": (
            "The engine, in this version, cannot load weights that are stored this way."
        ),
        "AdaptersNotSupported": (
            "The engine, in this version, applies no adapters to this architecture."
        ),
        "VocabularyTooLargeForAdapters": (
            "The engine makes adapters for vocabularies up to a limit."
        ),
        "AdaptersExcludeExperts": (
            "The engine applies no adapters to whole experts that share the tokens of tensor ranks."
        ),
        "DraftExcludesPipeline": (
            "The engine makes what drafts on the last pipeline stage, without what the others hold."
        ),
        "DraftExcludesAttentionData": (
            "The engine runs no draft model beside replicas of the attention."
        ),
        "DraftExcludesContext": "Nothing drafts where ranks share K/V.",
        "DraftNotDivisible": (
            "The draft model is not divisible by the tensor degree, which is that of its target."
        ),
        "ArchitectureUnknownToEngine": "The engine, in this version, has no such architecture.",
    }
)
"""Every code of this module, with one line of explanation."""

MIN_REFINED_BLOCK: Final = 32
"""Finest grid that FP8 scales of experts are refined to. Source: vLLM 0.32
``fused_moe/oracle/fp8.py:refine_fp8_moe_block_shape``."""

_LARGEST_TENSOR: Final = 72
"""Largest tensor degree that a remedy proposes: the GPUs of the largest scale-up domain (NVL72)."""

_T = TypeVar("_T")

_ATTENTION: Final = ("self_attn.", "linear_attn.")
_MERGED: Final = (".gate_proj", ".up_proj", ".in_proj_qkv", ".in_proj_z")
_MERGED_GROUPED: Final = (".q_proj", ".k_proj", ".v_proj", ".q_gate")


def shape_problems(
    model: ModelSpec, layout: Layout, traits: EngineTraits, max_model_len: int | None = None
) -> tuple[Problem, ...]:
    """Return everything that the engine refuses of a layout because of the model's sizes.

    Args:
        model: The model.
        layout: The degrees; paths of the problems are relative to ``parallelism``.
        traits: The engine.
        max_model_len: The longest request in tokens; None: not judged.
    """
    rules = _rules(model, traits)
    cut = tuple(_cut_problems(model, layout, rules))
    if cut:
        # A tensor degree that fixes one rule and breaks another is no way out.
        remedy = _tensor_remedy(model, _without_tensor(layout, rules), rules)
        cut = tuple(replace(problem, remedy=remedy) for problem in cut)
    unknown = architecture_unknown_to_engine(model, traits) or _quantization_unknown(model, traits)
    length = None if max_model_len is None else max_model_len_problem(model, max_model_len)
    beside = (
        *adapter_problems(model, layout, traits),
        *draft_problems(model, layout, traits),
        *lookup_problems(layout, traits),
        *_draft_cut_problems(layout, traits),
    )
    rest = (*degree_problems(model, layout, traits), *beside, unknown, length)
    return (*cut, *(problem for problem in rest if problem is not None))


def _draft_cut_problems(layout: Layout, traits: EngineTraits) -> Iterator[Problem]:
    drafter = traits.options.drafter
    if drafter is None:
        return
    rules = _rules(drafter.model, traits)
    for problem in _cut_problems(drafter.model, drafter.layout(layout), rules):
        remedy = (
            f"{_tensor_remedy(drafter.model, Layout(), rules)}, or another {NOUNS[drafter.method]}"
        )
        yield replace(
            problem,
            code="DraftNotDivisible",
            what=f"the {NOUNS[drafter.method]}'s {problem.what}",
            remedy=remedy,
        )


def architecture_unknown_to_engine(model: ModelSpec, traits: EngineTraits) -> Problem | None:
    """Return that the engine lacks this architecture; None if that is not known."""
    known = traits.support.architectures
    # Of a stated model it is not known what loads it: a newer image, or code of its publisher.
    if known is None or model.stated or model.architecture in known:
        return None
    return Problem(
        code="ArchitectureUnknownToEngine",
        what=f"{model.architecture}",
        limit=f"is not among the {len(known)} architectures of {traits.name} {traits.version}",
        remedy="use another engine or a newer version",
    )


def _quantization_unknown(model: ModelSpec, traits: EngineTraits) -> Problem | None:
    """Source: ``config/model.py:_verify_quantization``."""
    if (
        traits.support.quantizations is None
        or model.quantization is None
        or model.quantization in traits.support.quantizations
    ):
        return None
    return Problem(
        code="QuantizationUnknownToEngine",
        what=f"{model.quantization} weights",
        limit=f"are not among what {traits.name} {traits.version} loads: "
        f"{', '.join(sorted(traits.support.quantizations))}",
        remedy="use weights that are stored in one of these ways",
    )


def max_model_len_problem(model: ModelSpec, max_model_len: int) -> Problem | None:
    """Return that requests are longer than the model allows.

    Source: ``config/model.py:_get_and_verify_max_len``.
    """
    gap = max_model_len - model.max_context_tokens
    if gap <= 0:
        return None
    return Problem(
        code="MaxModelLenTooLong",
        what=f"{max_model_len} tokens per request",
        limit=f"must not exceed the model's limit of {model.max_context_tokens}",
        gap=f"{gap} too many",
        remedy=f"plan for requests of at most {model.max_context_tokens} tokens",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    vocabulary_padding: int
    width_divides_replica: bool
    pads_shared_experts: bool
    refines_blocks: bool


def _rules(model: ModelSpec, traits: EngineTraits) -> _Rules:
    methods = traits.cuts.refines_blocks
    return _Rules(
        vocabulary_padding=traits.memory.vocabulary_padding,
        width_divides_replica=model.architecture in traits.cuts.width_divides_replica,
        pads_shared_experts=model.architecture in traits.repeats.pads_shared_experts,
        refines_blocks=traits.options.adapters is None
        and (methods is None or (model.quantization or "") in methods),
    )


def _cut_problems(model: ModelSpec, layout: Layout, rules: _Rules) -> Iterator[Problem]:
    yield from _head_problems(model, layout)
    yield from _vocabulary_problems(model, layout, rules)
    yield from _width_problems(model, layout, rules)
    yield from _block_problems(model, layout, rules)


def _head_problems(model: ModelSpec, layout: Layout) -> Iterator[Problem]:
    """Source: ``config/model.py:verify_with_parallel_config``,
    ``layers/linear.py:QKVParallelLinear``.
    """
    tensor = layout.tensor
    heads_of_layers, kv_heads_of_layers = _heads_of_layers(model)
    for heads, noun in heads_of_layers:
        if heads % tensor:
            yield _indivisible("HeadsNotDivisible", f"{heads} {noun}", heads, tensor)
    for kv_heads in kv_heads_of_layers:
        # Heads are dealt out, or each is copied.
        few, many = sorted((kv_heads, tensor))
        if many % few:
            yield Problem(
                code="KvHeadsNotDivisible",
                path=TENSOR,
                what=f"{kv_heads} K/V heads",
                limit=f"must be divisible by tensor {tensor} or divide it",
                gap=f"{many % few} left over",
            )


@lru_cache(maxsize=64)
def _heads_of_layers(model: ModelSpec) -> tuple[tuple[tuple[int, str], ...], tuple[int, ...]]:
    grouped = (
        layer.attention for layer in model.layers if isinstance(layer.attention, GroupedAttention)
    )
    heads = _different(pair for layer in model.layers for pair in _heads(layer))
    return heads, _different(attention.kv_heads for attention in grouped)


def _heads(layer: Layer) -> tuple[tuple[int, str], ...]:
    match layer.attention:
        case None:
            return ()
        case RecurrentAttention(heads=heads, key_heads=key_heads):
            return (
                (heads, "heads of recurrent layers"),
                (key_heads, "key heads of recurrent layers"),
            )
        case attention:
            return ((attention.heads, "attention heads"),)


def _vocabulary_problems(model: ModelSpec, layout: Layout, rules: _Rules) -> Iterator[Problem]:
    """Source: ``layers/vocab_parallel_embedding.py``."""
    padded = math.ceil(model.vocabulary / rules.vocabulary_padding) * rules.vocabulary_padding
    if padded % layout.tensor:
        yield _indivisible(
            "VocabularyNotDivisible", f"a vocabulary of {padded} (padded)", padded, layout.tensor
        )


def _width_problems(model: ModelSpec, layout: Layout, rules: _Rules) -> Iterator[Problem]:
    """Source: ``layers/linear.py``, ``fused_moe/config.py:FusedMoEConfig``,
    ``models/gpt_oss.py:MLPBlock``.
    """
    for weight in _feed_forward(model):
        ways = layout.gpus_per_replica if rules.width_divides_replica else _ways(weight, layout)
        if weight.cut_elements % ways and not _is_padded(weight, rules):
            what = (
                f"{'an expert' if weight.experts else 'a feed-forward'} width of "
                f"{weight.cut_elements}"
            )
            yield _indivisible("IntermediateNotDivisible", what, weight.cut_elements, ways)


def _block_problems(model: ModelSpec, layout: Layout, rules: _Rules) -> Iterator[Problem]:
    """Source: ``quantization/utils/fp8_utils.py:validate_fp8_block_shape``,
    ``distributed/utils.py``.

    Slices of experts that are no whole blocks are refused with adapters
    (``fused_moe/oracle/fp8.py``), and where the method does not refine the grid of scales
    (``validate_fp8_block_shape_moe``): there whole experts are refused as well.
    """
    for weight in _blocked(model):
        ways = _ways(weight, layout)
        share = weight.cut_elements // ways
        uncut = ways == 1 and not weight.in_grid
        if uncut or weight.cut_elements % ways or share % weight.block == 0:
            continue
        # Outputs of a merged projection may end within a block, and padded slices never do.
        if weight.forgiving or _is_padded(weight, rules):
            continue
        if (
            weight.in_grid
            and rules.refines_blocks
            and math.gcd(share, weight.block) >= MIN_REFINED_BLOCK
        ):
            continue
        yield Problem(
            code="QuantizationBlockNotDivisible",
            path=TENSOR,
            what=f"{weight.name} in {ways} slice{'s' if ways > 1 else ''} of {share}",
            limit=f"must be whole quantization blocks of {weight.block}",
            gap=f"{share % weight.block} left over",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CutWeight:
    name: str
    cut_elements: int  # along the axis that is cut
    block: int  # of that axis; 0 where it is not quantized in blocks
    experts: bool
    in_grid: bool  # an expert in FP8 with a grid of scales
    # One of several outputs of a merged projection with a grid of scales.
    forgiving: bool
    kv_heads: int  # 0 where the cut is not by K/V heads


def _is_padded(weight: _CutWeight, rules: _Rules) -> bool:
    return rules.pads_shared_experts and not weight.experts and ".shared_expert" in weight.name


def _ways(weight: _CutWeight, layout: Layout) -> int:
    if weight.experts:
        return max(1, layout.tensor * layout.attention_data // layout.expert)
    return min(layout.tensor, weight.kv_heads) if weight.kv_heads else layout.tensor


@lru_cache(maxsize=64)
def _cut_weights(model: ModelSpec) -> tuple[_CutWeight, ...]:
    return _different(
        _cut_weight(model, weight)
        for weight in model.weights
        if weight.layer is not None and weight.split is not Split.REPLICATED
    )


def _cut_weight(model: ModelSpec, weight: Weight) -> _CutWeight:
    row = weight.split is Split.ROW
    block = (weight.storage.block or (0, 0))[1 if row else 0]
    attention = model.layers[weight.layer or 0].attention
    by_heads = weight.split is Split.KV_HEADS and isinstance(attention, GroupedAttention)
    return _CutWeight(
        name=weight.name,
        cut_elements=weight.inputs if row else weight.outputs,
        block=block,
        experts=weight.experts,
        in_grid=weight.experts and weight.storage.name == "fp8" and weight.storage.in_grid,
        forgiving=not row and _is_merged(model, weight) and weight.storage.in_grid,
        kv_heads=attention.kv_heads if by_heads and isinstance(attention, GroupedAttention) else 0,
    )


def _is_merged(model: ModelSpec, weight: Weight) -> bool:
    """Return whether the engine merges this projection with others, whose scales may overlap.

    Source: ``layers/linear.py:_maybe_allow_fp8_block_shape_mismatch``.
    """
    if weight.experts:
        return False
    grouped = isinstance(model.layers[weight.layer or 0].attention, GroupedAttention)
    return weight.name.endswith(_MERGED) or (grouped and weight.name.endswith(_MERGED_GROUPED))


@lru_cache(maxsize=64)
def _feed_forward(model: ModelSpec) -> tuple[_CutWeight, ...]:
    # A model has hundreds of such weights, and a few widths.
    widths = {
        (w.cut_elements, w.experts): w
        for w in _cut_weights(model)
        if not w.name.startswith(_ATTENTION)
    }
    return tuple(widths.values())


@lru_cache(maxsize=64)
def _blocked(model: ModelSpec) -> tuple[_CutWeight, ...]:
    """MXFP4 slices are padded, so they are left out."""
    if model.quantization == "mxfp4":
        return ()
    kinds = {
        (w.cut_elements, w.block, w.experts, w.kv_heads, w.forgiving): w
        for w in _cut_weights(model)
        if w.block > 1
    }
    return tuple(kinds.values())


def _different(items: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(items))


def _indivisible(code: str, what: str, size: int, ways: int) -> Problem:
    return Problem(
        code=code,
        path=TENSOR,
        what=what,
        limit=f"must be divisible by {ways} ranks",
        gap=f"{size % ways} left over",
    )


@lru_cache(maxsize=1024)
def _tensor_remedy(model: ModelSpec, layout: Layout, rules: _Rules) -> str:
    works = [
        str(tensor)
        for tensor in range(1, _LARGEST_TENSOR + 1)
        if not any(_cut_problems(model, _with_tensor(layout, tensor), rules))
    ]
    if not works:
        return "no tensor degree divides this model: use weights that are stored in another way"
    return (
        f"use tensor {', '.join(works[:-1])} or {works[-1]}"
        if len(works) > 1
        else f"use tensor {works[0]}"
    )


def _without_tensor(layout: Layout, rules: _Rules) -> Layout:
    """Return the remedy's conditions: whole experts, attention ranks, and stages if a class counts
    them.
    """
    stages = layout.pipeline if rules.width_divides_replica else 1
    return Layout(
        pipeline=stages,
        # 2 stands for any degree above 1, so the answer is worked out once.
        expert=min(layout.expert, 2),
        attention_data=layout.attention_data,
    )


def _with_tensor(layout: Layout, tensor: int) -> Layout:
    # The engine spreads whole experts over all ranks or none.
    expert = tensor * layout.attention_data if layout.expert > 1 else 1
    return replace(layout, tensor=tensor, expert=expert)
