"""Does an engine apply adapters (LoRA) to this architecture, vocabulary and layout?"""

from collections.abc import Iterator

from shardwright.errors import Problem
from shardwright.layouts.layout import Layout
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec


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
