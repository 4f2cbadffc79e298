"""What are the facts of a model: its layers, its tensors, how each is stored?

A model is a list of layers (attention + feed-forward) and a flat list of weight tensors. Every
tensor says how tensor parallelism cuts it (:class:`Split`), so the bytes of a rank and the
divisibility rules come out of the same list.

Which tensors are decoder layers made of? Every family puts its layers together from these
blocks.

Names are those of the checkpoints (``self_attn.q_proj``), which quantization configs use. How a
tensor is cut, its ``split`` alone says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final
from weakref import WeakKeyDictionary, ref


class Split(StrEnum):
    """How tensor parallelism cuts a weight of shape (outputs, inputs)."""

    REPLICATED = "Replicated"  #: every rank holds all of it
    COLUMN = "Column"  #: outputs are divided over the ranks
    ROW = "Row"  #: inputs are divided over the ranks
    KV_HEADS = "KvHeads"  #: outputs are whole K/V heads; replicated when heads < ranks
    VOCABULARY = "Vocabulary"  #: outputs are the vocabulary, padded by the engine, then divided


class PipelineRole(StrEnum):
    """Which stage of a pipeline a weight belongs to."""

    EMBEDDING = "Embedding"  #: first stage (and the last one when it is tied to the head)
    LAYER = "Layer"  #: the stage that holds its layer
    TOWER = "Tower"  #: every stage: the vision tower of a multimodal model
    FINAL = "Final"  #: last stage: the final norm
    HEAD = "Head"  #: last stage: the output head


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How the elements of a weight are stored.

    ``bits`` per element; quantized weights have one scale of ``scale_bits`` per ``block`` of
    (outputs, inputs) elements (0: the whole axis; None: no scales), and ``zero_point_bits`` per
    block. ``matrix_bits`` are further scales of the matrix as a whole. ``alone``: activations keep
    their dtype, to which the weights are widened.
    """

    name: str  # bf16, fp16, fp32, fp8, int8, int4, nvfp4, mxfp4
    bits: int
    block: tuple[int, int] | None = None
    scale_bits: int = 0
    zero_point_bits: int = 0
    matrix_bits: int = 0
    alone: bool = False

    @property
    def product(self) -> str:
        """Return how it is multiplied: 8 bits beside activations of 16 are no product of the 8 bit
        units.
        """
        return f"{self.name} alone" if self.alone else self.name

    @property
    def in_grid(self) -> bool:
        """Return whether its scales form a grid: a block has several outputs and inputs."""
        return self.block is not None and min(self.block) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One kind of weight tensor: ``copies`` tensors of (outputs, inputs) elements.

    ``inputs`` is 1 for vectors (norms, biases). ``experts``: routed experts, of which an
    expert-parallel rank holds whole ones and a tensor-parallel rank a slice of each. A quantization
    method converts ``quantizable`` matrices unless a config leaves them out.
    """

    name: str
    part: PipelineRole
    outputs: int
    inputs: int
    split: Split
    storage: WeightFormat
    layer: int | None = None
    copies: int = 1
    experts: bool = False
    quantizable: bool = False

    @property
    def elements(self) -> int:
        """Return the number of elements of all copies."""
        return self.copies * self.outputs * self.inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedAttention:
    """Multi-head, grouped-query or single-K/V-head attention; ``window`` tokens when it slides.

    With ``chunked`` a token sees its own chunk of ``window`` tokens instead. ``sinks``: every head
    has a logit that no token gives. If an indexer selects
    the tokens to attend to, ``selected_tokens`` is their number, and ``index_dim`` the width of the
    key that the cache holds per token for the indexer of this layer.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    window: int | None = None
    chunked: bool = False
    selected_tokens: int | None = None
    index_dim: int = 0
    sinks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: one compressed K/V vector per token, replicated on every rank.

    ``selected_tokens`` and ``index_dim`` as in :class:`GroupedAttention`; the cache has one key of
    the indexer for ``index_pool`` tokens. With ``compression`` the cache of the whole context has
    one entry for so many tokens (0: none at all), beside ``window`` tokens kept as they are.
    """

    heads: int
    kv_lora_rank: int
    rope_dim: int
    nope_dim: int
    value_head_dim: int
    q_lora_rank: int | None = None
    window: int | None = None
    selected_tokens: int | None = None
    index_dim: int = 0
    index_pool: int = 1
    compression: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentAttention:
    """Mamba, gated delta rule and their kin: a state of fixed size per request, no K/V per token.

    ``heads``, ``key_heads`` and both states are divided by the tensor ranks. ``state_elements`` of
    ``state_bits`` each are the recurrent state of one request, ``convolution_elements`` (in the
    model's dtype) the short window before it, ``width`` the values per token of the input
    projections. ``checkpointed``: its kernels keep one more state of a prompt in work.
    """

    heads: int
    key_heads: int
    width: int
    state_elements: int
    convolution_elements: int
    state_bits: int = 32
    checkpointed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedAttention:
    """Attention of which only is stated what a GPU keeps of a token, of all layers of its stage."""

    bytes_per_token: int
    heads: int = 0  # not known: nothing is divided by them


Attention = GroupedAttention | LatentAttention | RecurrentAttention | StatedAttention


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseFeedForward:
    """A feed-forward block that every token passes; ``matrices`` is 3 when it is gated, else 2."""

    intermediate: int
    matrices: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertFeedForward:
    """Routed experts and the shared experts beside them, as one block of their sum.

    ``matrices`` of each is 3 when they are gated, else 2.
    """

    experts: int
    experts_per_token: int
    expert_intermediate: int
    shared_intermediate: int = 0
    matrices: int = 3


FeedForward = DenseFeedForward | ExpertFeedForward


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer; None for a half that it does not have."""

    attention: Attention | None
    feed_forward: FeedForward | None


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class ModelSpec:
    """The served model, as its ``config.json`` states it.

    ``config_hash``, in every plan, is the SHA-256 of the canonical config joined with its
    quantization file. ``config_file_hash`` is of the ``config.json`` alone: pods read the
    quantization file from the weights. ``dtype`` is the type that the engine computes with (bf16,
    fp16, fp32). ``quantization`` is the config's method name (fp8, awq, gptq, mxfp4,
    compressed-tensors, ...) or None. ``max_context_tokens`` is the longest context the engine
    accepts, ``own_context_tokens`` the one that it takes by itself (None: the same).
    ``residual_streams`` are rows of the hidden size that run side by side through the
    layers. ``warnings`` are facts that widen the band of the prediction. ``stated``: it is not
    counted, but what its user states.
    """

    source: str
    architecture: str
    model_type: str
    config_hash: str
    config_file_hash: str
    hidden_size: int
    vocabulary: int
    layers: tuple[Layer, ...]
    weights: tuple[Weight, ...]
    dtype: str
    quantization: str | None
    max_context_tokens: int
    tied_embeddings: bool
    warnings: tuple[str, ...] = ()
    cache_dtype: str | None = None
    residual_streams: int = 1
    own_context_tokens: int | None = None
    stated: bool = False

    def __hash__(self) -> int:
        """The config stands for thousands of weights, so that results can be kept per model."""
        return hash((self.config_hash, self.quantization, self.dtype))

    @property
    def parameters(self) -> int:
        """Return the number of parameters (tied embeddings counted once, scales not counted)."""
        return sum(w.elements for w in self.weights)

    @property
    def least_bytes(self) -> int:
        """Return the least bytes of its files: every element as stored, no scales, no kernel's
        padding.
        """
        return sum(weight.elements * weight.storage.bits for weight in self.weights) // 8

    @property
    def experts(self) -> int:
        """Return the number of routed experts of a layer, 0 for a dense model."""
        return _experts(self)


_LIVING: Final[WeakKeyDictionary[ModelSpec, "ref[ModelSpec]"]] = WeakKeyDictionary()


def interned(model: ModelSpec) -> ModelSpec:
    """Return one and the same object for equal models, as long as anybody has one.

    Results kept per model are then found by identity; equal models would be compared weight by
    weight at every look-up: measured, 4 s instead of 0.2 s for a plan of DeepSeek-V3. Weakly, and
    not the last so many: a result that is kept for longer would be compared from then on.
    """
    living = _LIVING.get(model)
    found = living() if living else None
    if found is None:
        _LIVING[model] = ref(model)
    return found or model


@lru_cache(maxsize=64)
def _experts(model: ModelSpec) -> int:
    blocks = (layer.feed_forward for layer in model.layers)
    return max(
        (block.experts for block in blocks if isinstance(block, ExpertFeedForward)), default=0
    )


BF16 = WeightFormat(name="bf16", bits=16)
FP16 = WeightFormat(name="fp16", bits=16)
FP32 = WeightFormat(name="fp32", bits=32)


FP8_PER_HEAD = "fp8_per_head"
"""The format of a K/V cache in FP8 with a scale for every head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A weight before it is known in which layer it stands and how it is stored.

    Quantization methods convert ``quantizable`` matrices unless a config leaves them out.
    ``storage`` is set if it does not follow the model's dtype.
    """

    name: str
    outputs: int
    inputs: int = 1
    split: Split = Split.REPLICATED
    copies: int = 1
    experts: bool = False
    quantizable: bool = False
    storage: WeightFormat | None = None

    def placed(self, layer: int, dtype: WeightFormat) -> Weight:
        """Return the weight as it stands in one layer."""
        return Weight(
            name=self.name,
            part=PipelineRole.LAYER,
            outputs=self.outputs,
            inputs=self.inputs,
            split=self.split,
            storage=self.storage or dtype,
            layer=layer,
            copies=self.copies,
            experts=self.experts,
            quantizable=self.quantizable,
        )


Tensors = tuple[Tensor, ...]
"""Tensors of one layer, in the order in which they are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One decoder layer: its computation, and the tensors for it."""

    layer: Layer
    tensors: Tensors


Blocks = Callable[[int], Block]
"""The decoder layer at an index."""


def linear(name: str, outputs: int, inputs: int, split: Split, *, bias: bool = False) -> Tensors:
    """Return a projection, with its bias if any (a row-parallel bias is on every rank)."""
    matrix = Tensor(name=name, outputs=outputs, inputs=inputs, split=split, quantizable=True)
    if not bias:
        return (matrix,)
    along = Split.REPLICATED if split is Split.ROW else split
    return (matrix, Tensor(name=f"{name}.bias", outputs=outputs, split=along))


def norms(size: int, *names: str) -> Tensors:
    """Return normalisation vectors, which every rank holds."""
    return tuple(Tensor(name=name, outputs=size) for name in names)


def gated(name: str, hidden: int, intermediate: int, *, bias: bool = False) -> Tensors:
    """Return a gated feed-forward block: gate, up, down."""
    return (
        *linear(f"{name}.gate_proj", intermediate, hidden, Split.COLUMN, bias=bias),
        *linear(f"{name}.up_proj", intermediate, hidden, Split.COLUMN, bias=bias),
        *linear(f"{name}.down_proj", hidden, intermediate, Split.ROW, bias=bias),
    )


def router(
    name: str,
    experts: int,
    hidden: int,
    *,
    quantizable: bool = False,
    storage: WeightFormat | None = None,
) -> Tensor:
    """Return the router of a mixture of experts; most engine classes never quantize it."""
    return Tensor(
        name=name, outputs=experts, inputs=hidden, quantizable=quantizable, storage=storage
    )


def routed(name: str, experts: int, hidden: int, intermediate: int) -> Tensors:
    """Return the routed experts of a layer, each gated: gate, up, down."""
    return tuple(
        Tensor(
            name=f"{name}.{matrix}",
            outputs=outputs,
            inputs=inputs,
            split=split,
            copies=experts,
            experts=True,
            quantizable=True,
        )
        for matrix, outputs, inputs, split in (
            ("gate_proj", intermediate, hidden, Split.COLUMN),
            ("up_proj", intermediate, hidden, Split.COLUMN),
            ("down_proj", hidden, intermediate, Split.ROW),
        )
    )
