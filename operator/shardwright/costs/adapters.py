"""How many bytes do adapter slots (LoRA) take? Two low-rank matrices beside each that may change.

Exact for dense models of one class (``tests/engine``); elsewhere an upper bound: matrices that a
class merges share a factor, and not every class applies adapters to embedding and head. Source:
vLLM 0.32 ``lora/model_manager.py:_create_lora_modules``, ``lora/layers``, without
``fully_sharded_loras``.
"""

from typing import Final

from shardwright.costs.activations import ELEMENT_BYTES
from shardwright.costs.weights import WeightBytes, stage_sums
from shardwright.layouts.layout import Layout
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec, PipelineRole, Weight

_ENDS: Final = frozenset({PipelineRole.EMBEDDING, PipelineRole.HEAD})


def stage_adapter_bytes(model: ModelSpec, layout: Layout, traits: EngineTraits) -> tuple[int, ...]:
    """Return the bytes of adapter slots on the fullest rank of every pipeline stage.

    Formula: slots x rank x bytes a value x sum over matrices of (inputs + outputs that the rank
        holds).
    Unit: bytes, one figure a stage.
    Error: exact for dense models of one class (``tests/engine``); elsewhere an upper bound.
    Source: vLLM 0.32 ``lora/model_manager.py:_create_lora_modules``, ``lora/layers``.

    >>> from dataclasses import replace
    >>> from shardwright.layouts.traits import AdapterSlots, EngineOptions
    >>> one, two = (
    ...     replace(vllm, options=EngineOptions(adapters=slots))
    ...     for slots in (AdapterSlots(count=n, rank=16) for n in (1, 2))
    ... )
    >>> stage_adapter_bytes(llama, Layout(), one)
    (422920192,)
    >>> stage_adapter_bytes(llama, Layout(), two)
    (845840384,)
    """
    slots = traits.options.adapters
    if slots is None:
        return (0,) * layout.pipeline
    held = stage_sums(model, layout, traits, _factor_elements)
    elements = [
        _elements(model, traits, stage, last=index == len(held) - 1)
        for index, stage in enumerate(held)
    ]
    return tuple(
        slots.count * slots.rank * ELEMENT_BYTES[model.dtype] * count for count in elements
    )


def _elements(model: ModelSpec, traits: EngineTraits, held: WeightBytes, *, last: bool) -> int:
    if model.architecture in traits.support.adapters_leave_vocabulary:
        return held.attention_bytes + held.feed_forward_bytes + held.expert_bytes
    has_head = last or model.architecture in traits.repeats.ends_on_every_stage
    # The elements of the head, beside those of the embedding.
    logits = model.vocabulary + model.hidden_size if has_head and model.tied_embeddings else 0
    return held.total_bytes + logits


def _factor_elements(_: ModelSpec, weight: Weight, copies: int, outputs: int, inputs: int) -> int:
    """Return the elements of two factors per rank of an adapter: a row of inputs, a column of
    outputs.

    The factor on the axis that is cut is cut with it, the other is whole; those of the vocabulary
    are never cut.
    """
    if weight.part is PipelineRole.LAYER:
        # One input: a norm or a bias, which no adapter changes.
        return copies * (outputs + inputs) if weight.inputs > 1 else 0
    # Every rank keeps the whole factors of embedding and head.
    return weight.outputs + weight.inputs if weight.part in _ENDS else 0
