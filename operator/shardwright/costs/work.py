"""How many bytes and FLOP does one step take on a rank? Counted from the model's tensors, for no
GPU yet.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from shardwright.costs.weight_bytes import WeightBytes
from shardwright.layouts.layout import Layout
from shardwright.modelspec.model_spec import (
    Attention,
    ExpertFeedForward,
    GroupedAttention,
    LatentAttention,
    ModelSpec,
    PipelineRole,
    RecurrentAttention,
    Split,
    StatedAttention,
    Weight,
)

SELECTION_KERNELS: Final = 5
"""Kernels of a layer that selects the tokens to attend to, beside its matrices: queries and keys
of the indexer are quantized, the context is scored, the best are taken and made into places of the
cache. Each counts as starting a matrix. Basis: counted in the engines' indexers; their reading and
scores of the whole context are not priced.
"""

Prefix = tuple[float, ...]
"""Sums over the first n layers: the sum over layers a to b is ``prefix[b] - prefix[a]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWork:
    """Alike layers' attention on one rank, per token and token of context that it sees, ``window``
    at most.

    ``kv_values`` are read per token of context and decoding sequence, ``state_bytes`` per sequence.
    """

    window: float  # infinite: all of the context
    decode_flops: float
    prefill_flops: float
    kv_values: float
    state_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """One rank of one stage; bytes are read in every step, FLOP are per token of the rank's batch.

    ``matmul_flops`` are of all but the routed experts, by how their weights are stored;
    ``expert_flops`` of one token in one of the rank's experts, summed over ``expert_layers``.
    ``expert_bytes`` are all routed experts the rank holds, ``experts`` in every layer. ``products``
    are the matrices that a pass multiplies with, one after the other. ``head_flops`` are per
    sampled token, on the last stage only.
    """

    layers: int
    products: int
    expert_layers: int
    experts: float
    dense_bytes: float
    matmul_flops: tuple[tuple[str, float], ...]
    expert_bytes: float
    expert_flops: tuple[tuple[str, float], ...]
    expert_columns: float  # of an expert's slice on one rank
    attention: tuple[AttentionWork, ...]
    head_flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork:
    """The sums over a model's layers that every layout needs; element counts are by storage.

    ``hot_share`` is the share of a layer's experts that one token uses (0 for dense models).
    """

    hidden: int
    layers: int
    experts: int
    hot_share: float
    expert_columns: int
    split_elements: Mapping[str, Prefix]
    whole_elements: Mapping[str, Prefix]
    expert_elements: Mapping[str, Prefix]
    expert_layers: Prefix
    products: Prefix
    attention: Mapping[Attention, Prefix]  # layers of each kind
    head_elements: float
    # Layers of each sort: layers of one sort differ in nothing that is counted.
    alike: tuple[Prefix, ...]

    @classmethod
    def of(cls, model: ModelSpec) -> "ModelWork":
        """Return the sums of a model."""
        every = [layer.feed_forward for layer in model.layers]
        blocks = [block for block in every if isinstance(block, ExpertFeedForward)]
        matrices = [weight for weight in model.weights if weight.inputs > 1]
        plain = [weight for weight in matrices if not weight.experts]
        kinds = [layer.attention for layer in model.layers]
        split = _by_storage(
            model, (weight for weight in plain if weight.split is not Split.REPLICATED)
        )
        whole = _by_storage(model, (weight for weight in plain if weight.split is Split.REPLICATED))
        routed = _by_storage(model, (weight for weight in matrices if weight.experts))
        return cls(
            hidden=model.hidden_size,
            layers=len(model.layers),
            experts=max((block.experts for block in blocks), default=0),
            hot_share=max(
                (block.experts_per_token / block.experts for block in blocks), default=0.0
            ),
            expert_columns=max((block.expert_intermediate for block in blocks), default=0),
            split_elements=split,
            whole_elements=whole,
            expert_elements=routed,
            expert_layers=_running(isinstance(block, ExpertFeedForward) for block in every),
            products=_products(model, matrices),
            attention=_by_kind(kinds),
            head_elements=sum(weight.elements for weight in _head(matrices)),
            alike=_alike(model, [*split.values(), *whole.values(), *routed.values()]),
        )

    @property
    def sort(self) -> str:
        """Return what sort of model it is, by what attention reads and whether it has experts:
        models of one sort spend their time alike.
        """
        kinds = {_reads(kind) for kind in self.attention}
        # Beside layers that read less, those that read all of the context are what all models have.
        found = kinds - {"full"} if len(kinds) > 1 else kinds
        return ", ".join([*sorted(found), *(["experts"] if self.experts else [])])

    def sorts(self, layers: tuple[int, int]) -> tuple[float, ...]:
        """Return the number of layers of each sort in a stage; with the same numbers stages do the
        same work.
        """
        return tuple(_between(prefix, layers) for prefix in self.alike)

    def stage(
        self, layout: Layout, layers: tuple[int, int], held: WeightBytes, *, last: bool
    ) -> StageWork:
        """Return the work of one stage whose fullest rank holds the bytes of ``held``."""
        ranks = layout.tensor
        expert = max(1, layout.expert)
        slices = max(1, layout.tensor * layout.attention_data // expert)
        of_one = {
            name: 2 * _between(prefix, layers) for name, prefix in self.expert_elements.items()
        }
        here = {kind: _between(prefix, layers) for kind, prefix in self.attention.items()}
        return StageWork(
            layers=layers[1] - layers[0],
            products=round(_between(self.products, layers)),
            expert_layers=round(_between(self.expert_layers, layers)),
            # Not rounded: this is the mean of the ranks. The busiest one is a factor of the batch.
            experts=self.experts / expert,
            dense_bytes=held.attention_bytes + held.feed_forward_bytes + held.head_bytes,
            matmul_flops=self._matmul_flops(layers, ranks),
            expert_bytes=held.expert_bytes,
            expert_flops=tuple(
                (name, value / self.experts / slices) for name, value in sorted(of_one.items())
            ),
            expert_columns=self.expert_columns / slices,
            attention=tuple(
                _attention_work(kind, count, layout) for kind, count in here.items() if count
            ),
            head_flops=2 * self.head_elements / ranks if last else 0.0,
        )

    def _matmul_flops(self, layers: tuple[int, int], ranks: int) -> tuple[tuple[str, float], ...]:
        flops = {
            name: 2 * _between(prefix, layers) / ranks
            for name, prefix in self.split_elements.items()
        }
        for name, prefix in self.whole_elements.items():
            flops[name] = flops.get(name, 0.0) + 2 * _between(prefix, layers)
        return tuple(sorted(flops.items()))


def _head(matrices: Sequence[Weight]) -> list[Weight]:
    own = [weight for weight in matrices if weight.part is PipelineRole.HEAD]
    return own or [weight for weight in matrices if weight.part is PipelineRole.EMBEDDING]


def _by_storage(model: ModelSpec, weights: Iterable[Weight]) -> Mapping[str, Prefix]:
    per_layer: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(model.layers))
    for weight in weights:
        if weight.layer is not None and weight.layer < len(model.layers):
            per_layer[weight.storage.product][weight.layer] += weight.elements
    return {name: _running(elements) for name, elements in per_layer.items()}


def _products(model: ModelSpec, matrices: Iterable[Weight]) -> Prefix:
    """Of the first n layers; the routed experts of a layer are started together."""
    counts = Counter(weight.layer for weight in matrices)
    return _running(
        counts[index] + SELECTION_KERNELS * _selects(layer.attention)
        for index, layer in enumerate(model.layers)
    )


def _selects(kind: Attention | None) -> bool:
    return isinstance(kind, LatentAttention | GroupedAttention) and bool(kind.selected_tokens)


def _by_kind(kinds: Sequence[Attention | None]) -> Mapping[Attention, Prefix]:
    at: dict[Attention, list[int]] = {}
    for index, kind in enumerate(kinds):
        if kind is not None:
            at.setdefault(kind, [0] * len(kinds))[index] = 1
    return {kind: _running(layers) for kind, layers in at.items()}


def _reads(kind: Attention) -> str:
    match kind:
        case RecurrentAttention():
            return "recurrent"
        case _ if _selects(kind):
            return "sparse"
        case LatentAttention():
            return "latent"
        case StatedAttention():
            return "full"
        case _:
            return "windowed" if kind.window else "full"


def _alike(model: ModelSpec, counted: Sequence[Prefix]) -> tuple[Prefix, ...]:
    sorts = [
        (layer, *(_between(prefix, (index, index + 1)) for prefix in counted))
        for index, layer in enumerate(model.layers)
    ]
    numbers = {sort: number for number, sort in enumerate(dict.fromkeys(sorts))}
    of_layers = [numbers[sort] for sort in sorts]
    return tuple(_running(number == own for own in of_layers) for number in numbers.values())


def _running(values: Iterable[float]) -> Prefix:
    return tuple(accumulate(values, initial=0.0))


def _between(prefix: Prefix, layers: tuple[int, int]) -> float:
    return prefix[layers[1]] - prefix[layers[0]]


def _attention_work(kind: Attention, count: float, layout: Layout) -> AttentionWork:
    """Latent attention decodes on the latent vector."""
    share = count / layout.tensor
    match kind:
        case GroupedAttention():
            flops = 2.0 * kind.heads * (kind.head_dim + kind.value_head_dim) * share
            values = (
                math.ceil(kind.kv_heads / layout.tensor)
                * (kind.head_dim + kind.value_head_dim)
                * count
                / layout.context
            )
            return _seen(kind.window, flops, flops, values)
        case LatentAttention():
            decode = 2.0 * kind.heads * (2 * kind.kv_lora_rank + kind.rope_dim) * share
            prefill = (
                2.0 * kind.heads * (kind.nope_dim + kind.rope_dim + kind.value_head_dim) * share
            )
            values = (kind.kv_lora_rank + kind.rope_dim) * count / layout.context
            return _seen(kind.selected_tokens or kind.window, decode, prefill, values)
        case StatedAttention():
            return _seen(None, 0.0, 0.0, kind.bytes_per_token / 2 * count)
        case RecurrentAttention():
            # The state is read and written once per token; every element takes a product and a sum
            # of each kind.
            state = kind.state_elements * kind.state_bits / 8 * 2 * share
            return AttentionWork(
                window=1.0, decode_flops=0.0, prefill_flops=0.0, kv_values=0.0, state_bytes=state
            )


def _seen(
    window: int | None, decode_flops: float, prefill_flops: float, kv_values: float
) -> AttentionWork:
    return AttentionWork(
        window=math.inf if window is None else window,
        decode_flops=decode_flops,
        prefill_flops=prefill_flops,
        kv_values=kv_values,
        state_bytes=0.0,
    )
