"""What one step moves and computes on a rank of each stage: counted from the model's tensors, free of any GPU."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from shardwright.costs.weights import WeightBytes
from shardwright.layouts.layout import Layout
from shardwright.modelspec.spec import ExpertFeedForward, GroupedAttention, LatentAttention, Layer, ModelSpec, Part, Split, Weight

Prefix = tuple[float, ...]
"""Sums over the first n layers: the sum over layers a to b is ``prefix[b] - prefix[a]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """One rank of one stage. Bytes are read in every step, FLOP are per token of the rank's own batch.

    ``matmul_flops`` are of all but the routed experts, by how their weights are stored; ``expert_flops`` of one
    token in one of the rank's experts, summed over ``expert_layers``. ``expert_bytes`` are all routed experts the
    rank holds, ``experts`` in every layer. ``attention_flops`` are per token and token of context, while decoding
    and while prefilling; ``head_flops`` per sampled token, on the last stage only.
    """

    layers: int
    expert_layers: int
    experts: float
    dense_bytes: float
    matmul_flops: tuple[tuple[str, float], ...]
    expert_bytes: float
    expert_flops: tuple[tuple[str, float], ...]
    decode_attention_flops: float
    prefill_attention_flops: float
    head_flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork:
    """The sums over a model's layers that every layout needs, made once; element counts are by storage.

    ``hot_share`` is the share of a layer's experts that one token uses (0 for dense models), ``window`` the widest
    context that every layer of attention reads less of (see :func:`_attention`).
    """

    hidden: int
    experts: int
    hot_share: float
    split_elements: Mapping[str, Prefix]
    whole_elements: Mapping[str, Prefix]
    expert_elements: Mapping[str, Prefix]
    expert_layers: Prefix
    decode_attention: Prefix
    prefill_attention: Prefix
    head_elements: float

    @classmethod
    def of(cls, model: ModelSpec) -> "ModelWork":
        """Count a model's layers."""
        blocks = [layer.feed_forward for layer in model.layers if isinstance(layer.feed_forward, ExpertFeedForward)]
        matrices = [weight for weight in model.weights if weight.inputs > 1]
        plain = [weight for weight in matrices if not weight.experts]
        ends = [weight for weight in matrices if weight.part is Part.EMBEDDING]
        head = [weight for weight in matrices if weight.part is Part.HEAD] or ends
        return cls(
            hidden=model.hidden_size,
            experts=max((block.experts for block in blocks), default=0),
            hot_share=max((block.experts_per_token / block.experts for block in blocks), default=0.0),
            split_elements=_by_storage(model, (weight for weight in plain if weight.split is not Split.REPLICATED)),
            whole_elements=_by_storage(model, (weight for weight in plain if weight.split is Split.REPLICATED)),
            expert_elements=_by_storage(model, (weight for weight in matrices if weight.experts)),
            expert_layers=_running(isinstance(layer.feed_forward, ExpertFeedForward) for layer in model.layers),
            decode_attention=_running(_decode_attention(layer) for layer in model.layers),
            prefill_attention=_running(_prefill_attention(layer) for layer in model.layers),
            head_elements=sum(weight.elements for weight in head),
        )

    def stage(self, layout: Layout, layers: tuple[int, int], held: WeightBytes, *, last: bool) -> StageWork:
        """Return the work of one stage whose fullest rank holds the bytes of ``held``."""
        ranks, expert = layout.tensor, max(1, layout.expert)
        slices = max(1, layout.tensor * layout.attention_data // expert)
        flops = {name: 2 * _between(prefix, layers) / ranks for name, prefix in self.split_elements.items()}
        for name, prefix in self.whole_elements.items():
            flops[name] = flops.get(name, 0.0) + 2 * _between(prefix, layers)
        of_one = {name: 2 * _between(prefix, layers) for name, prefix in self.expert_elements.items()}
        return StageWork(
            layers=layers[1] - layers[0],
            expert_layers=round(_between(self.expert_layers, layers)),
            experts=self.experts / expert,
            dense_bytes=held.attention_bytes + held.feed_forward_bytes + held.head_bytes,
            matmul_flops=tuple(sorted(flops.items())),
            expert_bytes=held.expert_bytes,
            expert_flops=tuple((name, value / self.experts / slices) for name, value in sorted(of_one.items())),
            decode_attention_flops=_between(self.decode_attention, layers) / ranks,
            prefill_attention_flops=_between(self.prefill_attention, layers) / ranks,
            head_flops=2 * self.head_elements / ranks if last else 0.0,
        )


def _by_storage(model: ModelSpec, weights: Iterable[Weight]) -> Mapping[str, Prefix]:
    per_layer: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(model.layers))
    for weight in weights:
        if weight.layer is not None and weight.layer < len(model.layers):
            per_layer[weight.storage.name][weight.layer] += weight.elements
    return {name: _running(elements) for name, elements in per_layer.items()}


def _running(values: Iterable[float]) -> Prefix:
    return tuple(accumulate(values, initial=0.0))


def _between(prefix: Prefix, layers: tuple[int, int]) -> float:
    return prefix[layers[1]] - prefix[layers[0]]


def _decode_attention(layer: Layer) -> float:
    """Return FLOP per token and context token: scores and values; latent attention works on the latent vector."""
    attention = layer.attention
    if isinstance(attention, GroupedAttention):
        return 2.0 * attention.heads * (attention.head_dim + attention.value_head_dim)
    if isinstance(attention, LatentAttention):
        return 2.0 * attention.heads * (2 * attention.kv_lora_rank + attention.rope_dim)
    return 0.0


def _prefill_attention(layer: Layer) -> float:
    attention = layer.attention
    if isinstance(attention, LatentAttention):
        return 2.0 * attention.heads * (attention.nope_dim + attention.rope_dim + attention.value_head_dim)
    return _decode_attention(layer)
