"""What is an EAGLE-3 head? Few layers that draft from the states of some layers of their target.

As vLLM 0.33 makes them (``models/llama_eagle3.py``, ``models/deepseek_eagle3.py``): the first layer
reads the embedding of a token beside the combined states of its target, twice the hidden size. A
quantized head, and one of another architecture, is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from shardwright.errors import InputError, Problem
from shardwright.modelspec.config_json import EXPERTS, VOCABULARY, WIDTH, Fields, check_depth
from shardwright.modelspec.families.deepseek import latent_tensors, read_latent
from shardwright.modelspec.families.family import Shape, grouped, grouped_tensors, read_shape
from shardwright.modelspec.model_spec import (
    BF16,
    Attention,
    DenseFeedForward,
    Layer,
    ModelSpec,
    PipelineRole,
    Split,
    Tensor,
    Tensors,
    Weight,
    WeightFormat,
    gated,
    linear,
    norms,
)
from shardwright.modelspec.read import canonical_hash, max_context_tokens

GROUPED_HEADS: Final = frozenset(
    {
        "Eagle3LlamaForCausalLM",
        "Eagle3MiniMaxM2ForCausalLM",
        "Eagle3Qwen2_5vlForCausalLM",
        "Eagle3Qwen3vlForCausalLM",
        "LlamaForCausalLM",
        "LlamaForCausalLMEagle3",
    }
)
"""Architectures of heads that vLLM 0.32 and 0.33 make by ``llama_eagle3.py``."""

LATENT_HEADS: Final = frozenset({"Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM"})
"""The same by ``deepseek_eagle3.py``: latent attention, no experts."""

_STATES: Final = 3
"""Layers of the target whose states are combined where the config does not say. Same source."""

_READS_INPUT: Final = frozenset(
    f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "q_a_proj", "kv_a_proj_with_mqa")
)
_INT64: Final = WeightFormat(name="int64", bits=64)


def read_eagle(config: Mapping[str, object], *, source: str, vocabulary: int) -> ModelSpec:
    """Return the facts of an EAGLE-3 head, in BF16.

    Embedding and output head are counted as its own: its config does not say whether its checkpoint
    has them, or whether they equal its target's, which the engine then shares.

    Args:
        config: The content of its ``config.json``.
        source: Its origin, for messages.
        vocabulary: Tokens of its target's vocabulary; a head with fewer holds a map to them.

    Raises:
        InputError: It is no such head, or fields are missing, of the wrong type or out of
            bounds.
    """
    check_depth(config, source=source)
    fields = Fields(config)
    architecture = _architecture(fields)
    shape = read_shape(fields)
    embedded = fields.integer("vocab_size", VOCABULARY)
    drafted = fields.integer("draft_vocab_size", VOCABULARY, default=embedded)
    block = DenseFeedForward(intermediate=fields.integer("intermediate_size", WIDTH))
    attention, tensors = _attention(fields, shape, latent=architecture in LATENT_HEADS)
    first, extra_groups = _by_layer(fields, shape, block, tensors)
    context = max_context_tokens(fields)
    if fields.problems:
        raise InputError(fields.problems)
    layers = (Layer(attention=attention, feed_forward=block),) * shape.layers
    placed = (
        tensor.placed(index, BF16)
        for index in range(shape.layers)
        for tensor in (extra_groups if index else first)
    )
    hashed = canonical_hash(config, source)
    return ModelSpec(
        source=source,
        architecture=architecture,
        model_type=fields.string("model_type") or "",
        config_hash=hashed,
        config_file_hash=hashed,
        hidden_size=shape.hidden,
        vocabulary=embedded,
        layers=layers,
        weights=(*_ends(shape.hidden, embedded, drafted, vocabulary), *placed),
        dtype=BF16.name,
        quantization=None,
        max_context_tokens=context,
        tied_embeddings=False,
    )


def _architecture(fields: Fields) -> str:
    architecture = next(iter(fields.strings("architectures")), "")
    if architecture not in LATENT_HEADS | GROUPED_HEADS:
        raise InputError([*fields.problems, _unknown(architecture)])
    if fields.values.get("quantization_config") is not None:
        fields.refuse(
            "quantization_config", "a quantized head", "is not counted", "use one in BF16"
        )
    return architecture


def _attention(fields: Fields, shape: Shape, *, latent: bool) -> tuple[Attention, Tensors]:
    if latent:
        found = read_latent(fields, shape)
        return found, latent_tensors(shape, found)
    bias = fields.boolean("attention_bias", default=False)
    return grouped(shape), grouped_tensors(shape, bias=bias, output_bias=bias)


def _by_layer(
    fields: Fields, shape: Shape, block: DenseFeedForward, attention: Iterable[Tensor]
) -> tuple[Tensors, Tensors]:
    """Return the tensors of the first layer, which reads the target's states, and of a further
    one.
    """
    always = (
        *gated("mlp", shape.hidden, block.intermediate),
        *norms(shape.hidden, "input_layernorm", "post_attention_layernorm", "hidden_norm"),
    )
    first = (*map(_doubled, attention), *always, *_combining(fields, shape))
    return first, (*attention, *always)


def _doubled(tensor: Tensor) -> Tensor:
    """The first layer reads embedding and states side by side."""
    return replace(tensor, inputs=2 * tensor.inputs) if tensor.name in _READS_INPUT else tensor


def _combining(fields: Fields, shape: Shape) -> Tensors:
    """Every rank holds them whole."""
    section = fields.section("eagle_config")
    stated = section.integers("eagle_aux_hidden_state_layer_ids") if section else ()
    states = fields.integer("num_aux_hidden_states", EXPERTS, default=len(stated) or _STATES)
    width = fields.integer("target_hidden_size", WIDTH, default=shape.hidden)
    if section is not None and not section.boolean("use_aux_hidden_state", default=True):
        return ()
    each = fields.boolean("fc_norm", default=False)
    before = fields.boolean("norm_before_fc", default=False)
    return (
        *linear("fc", shape.hidden, width * states, Split.REPLICATED),
        *(norms(width * states, "fc_norm") if each else ()),
        *(norms(width * states, "input_norm") if before else ()),
    )


def _ends(hidden: int, embedded: int, drafted: int, vocabulary: int) -> tuple[Weight, ...]:
    def end(
        name: str, part: PipelineRole, outputs: int, inputs: int, storage: WeightFormat
    ) -> Weight:
        split = Split.VOCABULARY if inputs > 1 else Split.REPLICATED
        return Weight(
            name=name, part=part, outputs=outputs, inputs=inputs, split=split, storage=storage
        )

    ends = (
        end("embed_tokens", PipelineRole.EMBEDDING, embedded, hidden, BF16),
        end("norm", PipelineRole.FINAL, hidden, 1, BF16),
        end("lm_head", PipelineRole.HEAD, drafted, hidden, BF16),
    )
    places = end("d2t", PipelineRole.FINAL, drafted, 1, _INT64)
    return ends if drafted == vocabulary else (*ends, places)


def _unknown(architecture: str) -> Problem:
    known = ", ".join(sorted(GROUPED_HEADS | LATENT_HEADS))
    return Problem(
        code="ArchitectureUnknown",
        path="architectures",
        what=f"{architecture!r:.80}" if architecture else "missing,",
        limit=f"is no EAGLE-3 head that can be counted: {known}",
        remedy="use a head of one of these",
    )
