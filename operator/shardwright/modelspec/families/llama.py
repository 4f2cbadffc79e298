"""Dense decoders of Llama's form: Llama, Mistral, Phi-3, Qwen2, Qwen3, MiMo-7B."""

from types import MappingProxyType

from shardwright.modelspec.config_json import WIDTH, Fields
from shardwright.modelspec.families.family import (
    QWEN_TOWER,
    Family,
    Shape,
    block_norms,
    grouped,
    grouped_tensors,
    head_norms,
    qwen_window,
    windows,
)
from shardwright.modelspec.model_spec import Block, Blocks, DenseFeedForward, Layer, Tensors, gated


def _stack(
    fields: Fields, shape: Shape, attention: Tensors, reach: tuple[int | None, ...]
) -> Blocks:
    intermediate = fields.integer("intermediate_size", WIDTH)
    feed_forward = gated(
        "mlp", shape.hidden, intermediate, bias=fields.boolean("mlp_bias", default=False)
    )
    tensors = (*attention, *feed_forward, *block_norms(shape))
    blocks = {
        window: Block(
            layer=Layer(
                attention=grouped(shape, window),
                feed_forward=DenseFeedForward(intermediate=intermediate),
            ),
            tensors=tensors,
        )
        for window in set(reach)
    }
    return lambda layer: blocks[reach[layer]]


def dense_blocks(fields: Fields, shape: Shape) -> Blocks:
    """Return Llama's layers, with the biases and windows that the config states."""
    bias = fields.boolean("attention_bias", default=False)
    attention = grouped_tensors(shape, bias=bias, output_bias=bias)
    return _stack(fields, shape, attention, windows(fields, shape.layers))


def _qwen2(fields: Fields, shape: Shape) -> Blocks:
    return _stack(
        fields,
        shape,
        grouped_tensors(shape, bias=True),
        (qwen_window(fields, shape.layers),) * shape.layers,
    )


def _qwen3(fields: Fields, shape: Shape) -> Blocks:
    bias = fields.boolean("attention_bias", default=False)
    attention = (*grouped_tensors(shape, bias=bias), *head_norms(shape))
    return _stack(fields, shape, attention, (qwen_window(fields, shape.layers),) * shape.layers)


_QWEN3_DEFAULTS = MappingProxyType({"head_dim": 128})

FAMILIES = {
    "LlamaForCausalLM": Family(blocks=dense_blocks),
    "MistralForCausalLM": Family(
        blocks=dense_blocks,
        defaults=MappingProxyType({"num_key_value_heads": 8, "sliding_window": 4096}),
    ),
    "Phi3ForCausalLM": Family(blocks=dense_blocks),
    "MiMoForCausalLM": Family(blocks=_qwen2, ignores=frozenset({"head_dim"})),
    "Qwen2ForCausalLM": Family(blocks=_qwen2, ignores=frozenset({"head_dim"})),
    "Qwen3ForCausalLM": Family(blocks=_qwen3, defaults=_QWEN3_DEFAULTS),
    "Qwen3VLForConditionalGeneration": Family(
        blocks=_qwen3, defaults=_QWEN3_DEFAULTS, tower=QWEN_TOWER
    ),
}
