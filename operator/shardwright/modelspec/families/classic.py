"""Dense decoders with forms of their own: GPT-J, OPT, Falcon, ChatGLM, Command-R.

Refuses an OPT whose embedding has another width than its layers.
"""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.modelspec.config_json import CONTEXT, VOCABULARY, WIDTH, Fields
from shardwright.modelspec.families.family import (
    Family,
    Shape,
    alternating,
    grouped,
    grouped_tensors,
    window_of,
)
from shardwright.modelspec.model_spec import (
    Block,
    Blocks,
    DenseFeedForward,
    Layer,
    PipelineRole,
    Split,
    Tensor,
    Tensors,
    gated,
    linear,
    norms,
)

_OPT_POSITION_OFFSET: Final = 2
"""Rows of OPT's position table before the first position. Source: transformers
``OPTLearnedPositionalEmbedding``.
"""


def _ungated(name: tuple[str, str], hidden: int, intermediate: int, *, bias: bool) -> Tensors:
    return (
        *linear(name[0], intermediate, hidden, Split.COLUMN, bias=bias),
        *linear(name[1], hidden, intermediate, Split.ROW, bias=bias),
    )


def _layer_norms(size: int, *names: str) -> Tensors:
    return norms(size, *names, *(f"{name}.bias" for name in names))


def _same(shape: Shape, intermediate: int, matrices: int, tensors: Tensors) -> Blocks:
    feed_forward = DenseFeedForward(intermediate=intermediate, matrices=matrices)
    block = Block(layer=Layer(attention=grouped(shape), feed_forward=feed_forward), tensors=tensors)
    return lambda _: block


def _gptj(fields: Fields, shape: Shape) -> Blocks:
    intermediate = fields.integer("intermediate_size", WIDTH, default=4 * shape.hidden)
    feed_forward = _ungated(("mlp.fc_in", "mlp.fc_out"), shape.hidden, intermediate, bias=True)
    tensors = (
        *grouped_tensors(shape),
        *feed_forward,
        *_layer_norms(shape.hidden, "input_layernorm"),
    )
    return _same(shape, intermediate, 2, tensors)


def _gptj_ends(fields: Fields, shape: Shape) -> tuple[tuple[PipelineRole, Tensor], ...]:
    vocabulary = fields.integer("vocab_size", VOCABULARY)
    return (
        (PipelineRole.FINAL, Tensor(name="model.norm.bias", outputs=shape.hidden)),
        (
            PipelineRole.HEAD,
            Tensor(name="lm_head.bias", outputs=vocabulary, split=Split.VOCABULARY),
        ),
    )


def _opt(fields: Fields, shape: Shape) -> Blocks:
    bias = fields.boolean("enable_bias", default=True)
    intermediate = fields.integer("intermediate_size", WIDTH)
    tensors = (
        *grouped_tensors(shape, bias=bias, output_bias=bias),
        *_ungated(("fc1", "fc2"), shape.hidden, intermediate, bias=bias),
        *_layer_norms(shape.hidden, "self_attn_layer_norm", "final_layer_norm"),
    )
    return _same(shape, intermediate, 2, tensors)


def _opt_ends(fields: Fields, shape: Shape) -> tuple[tuple[PipelineRole, Tensor], ...]:
    positions = fields.integer("max_position_embeddings", CONTEXT) + _OPT_POSITION_OFFSET
    if fields.integer("word_embed_proj_dim", WIDTH, default=shape.hidden) != shape.hidden:
        fields.refuse(
            "word_embed_proj_dim",
            f"{fields.values['word_embed_proj_dim']}",
            f"must be hidden_size {shape.hidden}",
        )
    return (
        (
            PipelineRole.EMBEDDING,
            Tensor(name="model.embed_positions", outputs=positions, inputs=shape.hidden),
        ),
        (PipelineRole.FINAL, Tensor(name="model.norm.bias", outputs=shape.hidden)),
    )


def _falcon(fields: Fields, shape: Shape) -> Blocks:
    """Source: vLLM 0.32 ``models/falcon.py``: only the newer form states its number of K/V
    heads.
    """
    intermediate = fields.integer("intermediate_size", WIDTH, default=4 * shape.hidden)
    bias = fields.boolean("bias", default=False)
    newer = fields.boolean("new_decoder_architecture", default=False)
    if not newer:
        shape = replace(
            shape, kv_heads=1 if fields.boolean("multi_query", default=True) else shape.heads
        )
    norms_in_parallel = fields.integer("num_ln_in_parallel_attn", (1, 2), default=2 if newer else 1)
    two_norms = norms_in_parallel == 2 or not fields.boolean(  # noqa: PLR2004 - one norm or two
        "parallel_attn", default=True
    )
    tensors = (
        *grouped_tensors(shape, bias=bias, output_bias=bias),
        *_ungated(
            ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), shape.hidden, intermediate, bias=bias
        ),
        *_layer_norms(
            shape.hidden, *(("ln_attn", "ln_mlp") if two_norms else ("input_layernorm",))
        ),
    )
    return _same(shape, intermediate, 2, tensors)


def _falcon_ends(_: Fields, shape: Shape) -> tuple[tuple[PipelineRole, Tensor], ...]:
    return ((PipelineRole.FINAL, Tensor(name="model.norm.bias", outputs=shape.hidden)),)


def _chatglm(fields: Fields, shape: Shape) -> Blocks:
    biased = fields.boolean("add_bias_linear", default=False)
    intermediate = fields.integer("intermediate_size", WIDTH)
    tensors = (
        *grouped_tensors(
            shape, bias=biased or fields.boolean("add_qkv_bias", default=False), output_bias=biased
        ),
        *gated("mlp", shape.hidden, intermediate, bias=biased),
        *norms(shape.hidden, "input_layernorm", "post_attention_layernorm"),
    )
    return _same(shape, intermediate, 3, tensors)


def _cohere(fields: Fields, shape: Shape) -> Blocks:
    intermediate = fields.integer("intermediate_size", WIDTH)
    normed = fields.boolean("use_qk_norm", default=False)
    head_norms = (
        Tensor(name="self_attn.q_norm", outputs=shape.heads * shape.head_dim, split=Split.COLUMN),
        Tensor(
            name="self_attn.k_norm", outputs=shape.kv_heads * shape.head_dim, split=Split.KV_HEADS
        ),
    )
    tensors = (
        *grouped_tensors(shape),
        *gated("mlp", shape.hidden, intermediate),
        *norms(shape.hidden, "input_layernorm"),
        *(head_norms if normed else ()),
    )
    return _same(shape, intermediate, 3, tensors)


def _cohere2(fields: Fields, shape: Shape) -> Blocks:
    """Its windows see one token more. Source: vLLM 0.33 ``models/commandr.py``."""
    block, window = _cohere(fields, shape)(0), window_of(fields)
    slides = alternating(fields, shape.layers, full_every=4)
    near = replace(
        block, layer=replace(block.layer, attention=grouped(shape, window and window + 1))
    )
    return lambda layer: near if slides(layer) else block


_GPT_NAMES = MappingProxyType(
    {
        "hidden_size": ("n_embd", "hidden_dim"),
        "num_hidden_layers": ("n_layer", "num_layers"),
        "num_attention_heads": ("n_head",),
        "intermediate_size": ("n_inner", "ffn_embed_dim"),
        "max_position_embeddings": ("n_positions", "max_seq_len"),
    }
)
_OPT_NAMES = MappingProxyType({**_GPT_NAMES, "intermediate_size": ("ffn_dim", "ffn_embed_dim")})
_FALCON_NAMES = MappingProxyType(
    {
        "num_key_value_heads": ("num_kv_heads",),
        "intermediate_size": ("ffn_hidden_size",),
        "num_attention_heads": ("n_head",),
    }
)
_CHATGLM_NAMES = MappingProxyType(
    {
        "num_hidden_layers": ("num_layers",),
        "num_key_value_heads": ("multi_query_group_num",),
        "intermediate_size": ("ffn_hidden_size",),
        "vocab_size": ("padded_vocab_size",),
        "max_position_embeddings": ("seq_length",),
    }
)

_HEAD_DIM = frozenset({"head_dim"})  # vLLM divides the hidden size by the heads

FAMILIES = {
    "GPTJForCausalLM": Family(blocks=_gptj, names=_GPT_NAMES, ends=_gptj_ends),
    "OPTForCausalLM": Family(blocks=_opt, tied=True, names=_OPT_NAMES, ends=_opt_ends),
    "FalconForCausalLM": Family(
        blocks=_falcon,
        tied=True,
        defaults=MappingProxyType({"max_position_embeddings": 2048}),
        names=_FALCON_NAMES,
        ends=_falcon_ends,
    ),
    "ChatGLMModel": Family(blocks=_chatglm, names=_CHATGLM_NAMES, ignores=_HEAD_DIM),
    "ChatGLMForConditionalGeneration": Family(
        blocks=_chatglm, names=_CHATGLM_NAMES, ignores=_HEAD_DIM
    ),
    "CohereForCausalLM": Family(blocks=_cohere, tied=True),
    "Cohere2ForCausalLM": Family(blocks=_cohere2, tied=True),
}
