"""DeepSeek-V4: a short window beside a compressed context, low-rank outputs, several residual
streams, FP4 experts.

Refuses a config that does not state the compression of every layer.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from shardwright.modelspec.config_json import (
    CONTEXT,
    HEAD_DIM,
    HEADS,
    LAYERS,
    STREAMS,
    VOCABULARY,
    WIDTH,
    Fields,
)
from shardwright.modelspec.families.deepseek import read_experts
from shardwright.modelspec.families.family import Family, Shape
from shardwright.modelspec.model_spec import (
    FP32,
    Block,
    Blocks,
    ExpertFeedForward,
    LatentAttention,
    Layer,
    PipelineRole,
    Split,
    Tensor,
    Tensors,
    WeightFormat,
    gated,
    linear,
    norms,
    routed,
    router,
)
from shardwright.modelspec.quantization import MXFP4, NVFP4

_INT32: Final = WeightFormat(name="int32", bits=32)

_INDEXED: Final = 4
"""Compression of the layers that have an indexer; their windows overlap, so projections are twice
as wide. Source: vLLM 0.32 ``models/deepseek_v4/attention.py`` and ``compressor.py``.
"""


def _attention(fields: Fields, shape: Shape, ratio: int) -> LatentAttention:
    rope = fields.integer("qk_rope_head_dim", HEAD_DIM)
    indexed = ratio == _INDEXED
    selected = fields.integer("index_topk", CONTEXT) if indexed else None
    return LatentAttention(
        heads=shape.heads,
        kv_lora_rank=max(1, shape.head_dim - rope),
        rope_dim=rope,
        nope_dim=max(1, shape.head_dim - rope),
        value_head_dim=shape.head_dim,
        q_lora_rank=fields.integer("q_lora_rank", WIDTH),
        window=fields.integer("sliding_window", CONTEXT),
        selected_tokens=selected * ratio if selected else None,
        index_dim=fields.integer("index_head_dim", HEAD_DIM) if indexed else 0,
        compression=ratio,
    )


def _compressor(name: str, hidden: int, dim: int, ratio: int) -> Tensors:
    width = dim * (2 if ratio == _INDEXED else 1)
    return (
        Tensor(name=f"{name}.ape", outputs=ratio, inputs=width, storage=FP32),
        Tensor(name=f"{name}.wkv", outputs=width, inputs=hidden),
        Tensor(name=f"{name}.wgate", outputs=width, inputs=hidden),
        *norms(dim, f"{name}.norm"),
    )


def _indexer(fields: Fields, hidden: int, q_rank: int) -> Tensors:
    heads, dim = (
        fields.integer("index_n_heads", HEADS),
        fields.integer("index_head_dim", HEAD_DIM),
    )
    return (
        *linear("self_attn.indexer.wq_b", heads * dim, q_rank, Split.REPLICATED),
        Tensor(name="self_attn.indexer.weights_proj", outputs=heads, inputs=hidden),
        *_compressor("self_attn.indexer.compressor", hidden, dim, _INDEXED),
    )


def _attention_tensors(fields: Fields, shape: Shape, ratio: int) -> Tensors:
    q_rank = fields.integer("q_lora_rank", WIDTH)
    groups, o_rank = (fields.integer("o_groups", HEADS), fields.integer("o_lora_rank", WIDTH))
    width = shape.heads * shape.head_dim
    return (
        Tensor(name="self_attn.attn_sink", outputs=shape.heads, split=Split.COLUMN, storage=FP32),
        *linear("self_attn.wq_a", q_rank, shape.hidden, Split.REPLICATED),
        *linear("self_attn.wkv", shape.head_dim, shape.hidden, Split.REPLICATED),
        *norms(q_rank, "self_attn.q_norm"),
        *norms(shape.head_dim, "self_attn.kv_norm"),
        *linear("self_attn.wq_b", width, q_rank, Split.COLUMN),
        *linear("self_attn.wo_a", groups * o_rank, width // groups, Split.COLUMN),
        *linear("self_attn.wo_b", shape.hidden, groups * o_rank, Split.ROW),
        *(
            _compressor("self_attn.compressor", shape.hidden, shape.head_dim, ratio)
            if ratio
            else ()
        ),
        *(_indexer(fields, shape.hidden, q_rank) if ratio == _INDEXED else ()),
    )


def stream_tensors(fields: Fields, hidden: int) -> Tensors:
    """Return the tensors that mix the streams before and after attention and feed-forward."""
    streams = fields.integer("hc_mult", STREAMS, default=1)
    mixes = streams * (streams + 2)
    parts = (("fn", mixes, streams * hidden), ("base", mixes, 1), ("scale", 3, 1))
    return tuple(
        Tensor(name=f"hc_{half}_{part}", outputs=outputs, inputs=inputs, storage=FP32)
        for half in ("attn", "ffn")
        for part, outputs, inputs in parts
    )


def _expert_tensors(
    fields: Fields, shape: Shape, block: ExpertFeedForward, *, hashed: bool
) -> Tensors:
    experts = routed("mlp.experts", block.experts, shape.hidden, block.expert_intermediate)
    if fields.string("expert_dtype") == "fp4":
        section = fields.section("quantization_config")
        storage = (
            NVFP4
            if section and (section.string("moe_quant_algo") or "").upper() == "NVFP4"
            else MXFP4
        )
        experts = tuple(replace(tensor, storage=storage, quantizable=False) for tensor in experts)
    vocabulary = fields.integer("vocab_size", VOCABULARY)
    choice = (
        Tensor(
            name="mlp.gate.tid2eid",
            outputs=vocabulary,
            inputs=block.experts_per_token,
            storage=_INT32,
        )
        if hashed
        else Tensor(name="mlp.gate.e_score_correction_bias", outputs=block.experts, storage=FP32)
    )
    return (
        router("mlp.gate", block.experts, shape.hidden),
        choice,
        *gated("mlp.shared_experts", shape.hidden, block.shared_intermediate),
        *experts,
    )


def _ratios(fields: Fields, layers: int) -> Callable[[int], int]:
    ratios = fields.integers("compress_ratios")
    if len(ratios) < layers or any(not 0 <= ratio <= CONTEXT[1] for ratio in ratios):
        fields.refuse(
            "compress_ratios",
            f"{len(ratios)} entries",
            f"must be a ratio, 0 or more, for each of {layers} layers",
        )
        return lambda _: 0
    return lambda layer: ratios[layer]


def _deepseek_v4(fields: Fields, shape: Shape) -> Blocks:
    experts = read_experts(fields)
    hash_layers = fields.integer("num_hash_layers", (0, LAYERS[1]), default=0)
    ratio_of = _ratios(fields, shape.layers)
    always = (
        *stream_tensors(fields, shape.hidden),
        *norms(shape.hidden, "input_layernorm", "post_attention_layernorm"),
    )

    def block(layer: int) -> Block:
        ratio = ratio_of(layer)
        return Block(
            layer=Layer(attention=_attention(fields, shape, ratio), feed_forward=experts),
            tensors=(
                *_attention_tensors(fields, shape, ratio),
                *_expert_tensors(fields, shape, experts, hashed=layer < hash_layers),
                *always,
            ),
        )

    return block


def _ends(fields: Fields, shape: Shape) -> tuple[tuple[PipelineRole, Tensor], ...]:
    streams = fields.integer("hc_mult", STREAMS, default=1)
    parts = (("fn", streams, streams * shape.hidden), ("base", streams, 1), ("scale", 1, 1))
    return tuple(
        (
            PipelineRole.FINAL,
            Tensor(name=f"model.hc_head_{part}", outputs=outputs, inputs=inputs, storage=FP32),
        )
        for part, outputs, inputs in parts
    )


FAMILIES = {"DeepseekV4ForCausalLM": Family(blocks=_deepseek_v4, ends=_ends)}
