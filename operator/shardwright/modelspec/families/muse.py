"""Muse Glimmer: four norms a layer, gated attention outputs, windows as ``layer_types`` lists them,
no weights of query norms.
"""

from shardwright.modelspec.config_json import WIDTH, Fields
from shardwright.modelspec.families.family import (
    Family,
    Shape,
    Tower,
    block_norms,
    grouped,
    grouped_tensors,
    windows,
)
from shardwright.modelspec.model_spec import (
    Block,
    Blocks,
    DenseFeedForward,
    Layer,
    Split,
    gated,
    linear,
    norms,
)


def _muse_glimmer(fields: Fields, shape: Shape) -> Blocks:
    """Source: vLLM 0.33 ``models/muse_glimmer.py``."""
    intermediate = fields.integer("intermediate_size", WIDTH)
    tensors = (
        *grouped_tensors(shape),
        *linear("self_attn.gate_proj", shape.heads * shape.head_dim, shape.hidden, Split.COLUMN),
        *gated("mlp", shape.hidden, intermediate),
        *block_norms(shape),
        *norms(shape.hidden, "pre_feedforward_layernorm", "post_feedforward_layernorm"),
    )
    reach = windows(fields, shape.layers)
    dense = DenseFeedForward(intermediate=intermediate)
    blocks = {
        window: Block(
            layer=Layer(attention=grouped(shape, window), feed_forward=dense), tensors=tensors
        )
        for window in set(reach)
    }
    return lambda layer: blocks[reach[layer]]


FAMILIES = {
    "MuseGlimmerForCausalLM": Family(blocks=_muse_glimmer),
    "MuseGlimmerForConditionalGeneration": Family(
        blocks=_muse_glimmer, tower=Tower(matrices=2, split=Split.REPLICATED)
    ),
}
