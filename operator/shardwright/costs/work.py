"""What one step moves and computes on a rank of each stage: counted from the model's tensors, free of any GPU."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

from shardwright.costs.weights import WeightBytes
from shardwright.layouts.layout import Layout
from shardwright.modelspec.spec import (
    ExpertFeedForward,
    GroupedAttention,
    Layer,
    ModelSpec,
    Part,
    Split,
    Weight,
)

Prefix = tuple[float, ...]
"""Sums over the first n layers: the sum over layers a to b is ``prefix[b] - prefix[a]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """One rank of one stage. Bytes are read in every step, FLOP are per token.

    ``expert_bytes`` are all routed experts the rank holds; a step touches a share of them.
    ``attention_flops`` are per token and token of context, while decoding and while prefilling;
    ``head_flops`` per sampled token, on the last stage only.
    """

    layers: int
    dense_bytes: float
    dense_flops: float
    expert_bytes: float
    expert_flops: float
    expert_columns: float
    decode_attention_flops: float
    prefill_attention_flops: float
    head_flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork:
    """The sums over a model's layers that every layout needs, made once.

    ``storage`` is how most of the layers' elements are stored; ``hot_share`` the share of a layer's
    experts that one token uses (0 for dense models).
    """

    storage: str
    hot_share: float
    expert_columns: int
    split_elements: Prefix
    whole_elements: Prefix
    expert_elements: Prefix
    decode_attention: Prefix
    prefill_attention: Prefix
    head_elements: float

    @classmethod
    def of(cls, model: ModelSpec) -> "ModelWork":
        """Count a model's layers."""
        experts = [layer.feed_forward for layer in model.layers if isinstance(layer.feed_forward, ExpertFeedForward)]
        matrices = [weight for weight in model.weights if weight.inputs > 1]
        embedding = [weight for weight in matrices if weight.part is Part.EMBEDDING]
        head = [weight for weight in matrices if weight.part is Part.HEAD] or embedding
        return cls(
            storage=_main_storage(matrices),
            hot_share=max((block.experts_per_token / block.experts for block in experts), default=0.0),
            expert_columns=max((block.expert_intermediate for block in experts), default=0),
            split_elements=_over_layers(model, lambda weight: weight.elements * _is_split(weight)),
            whole_elements=_over_layers(model, lambda weight: weight.elements * _is_whole(weight)),
            expert_elements=_over_layers(model, lambda weight: weight.elements * weight.experts),
            decode_attention=_running(_decode_attention(layer) for layer in model.layers),
            prefill_attention=_running(_prefill_attention(layer) for layer in model.layers),
            head_elements=sum(weight.elements for weight in head),
        )

    def stage(self, layout: Layout, layers: tuple[int, int], held: WeightBytes, *, last: bool) -> StageWork:
        """Return the work of one stage whose fullest rank holds the bytes of ``held``."""
        ranks = layout.tensor
        split = _between(self.split_elements, layers) / ranks
        return StageWork(
            layers=layers[1] - layers[0],
            dense_bytes=held.attention_bytes + held.feed_forward_bytes + held.head_bytes,
            dense_flops=2 * (split + _between(self.whole_elements, layers)),
            expert_bytes=held.expert_bytes,
            expert_flops=2 * _between(self.expert_elements, layers) * self.hot_share / ranks,
            expert_columns=self.expert_columns / (1 if layout.expert > 1 else ranks),
            decode_attention_flops=_between(self.decode_attention, layers) / ranks,
            prefill_attention_flops=_between(self.prefill_attention, layers) / ranks,
            head_flops=2 * self.head_elements / ranks if last else 0.0,
        )

    def touched_share(self, tokens: float) -> float:
        """Return the expected share of experts that a batch of ``tokens`` touches (1: all of them)."""
        return 1.0 - math.pow(1 - self.hot_share, tokens)


def _main_storage(matrices: list[Weight]) -> str:
    elements: Counter[str] = Counter()
    for weight in matrices:
        if weight.part is Part.LAYER:
            elements[weight.storage.name] += weight.elements
    return min(elements, key=lambda name: (-elements[name], name))


def _is_split(weight: Weight) -> bool:
    return weight.inputs > 1 and not weight.experts and weight.split is not Split.REPLICATED


def _is_whole(weight: Weight) -> bool:
    return weight.inputs > 1 and not weight.experts and weight.split is Split.REPLICATED


def _over_layers(model: ModelSpec, figure: Callable[[Weight], float]) -> Prefix:
    per_layer = [0.0] * len(model.layers)
    for weight in model.weights:
        if weight.layer is not None and weight.layer < len(per_layer):
            per_layer[weight.layer] += figure(weight)
    return _running(per_layer)


def _running(values: Iterable[float]) -> Prefix:
    return tuple(accumulate(values, initial=0.0))


def _between(prefix: Prefix, layers: tuple[int, int]) -> float:
    return prefix[layers[1]] - prefix[layers[0]]


def _decode_attention(layer: Layer) -> float:
    """Return FLOP per token and context token: scores and values; latent attention works on the latent vector."""
    attention = layer.attention
    if isinstance(attention, GroupedAttention):
        return 2.0 * attention.heads * (attention.head_dim + attention.value_head_dim)
    return 2.0 * attention.heads * (2 * attention.kv_lora_rank + attention.rope_dim)


def _prefill_attention(layer: Layer) -> float:
    attention = layer.attention
    if isinstance(attention, GroupedAttention):
        return _decode_attention(layer)
    return 2.0 * attention.heads * (attention.nope_dim + attention.rope_dim + attention.value_head_dim)
