"""Which tensors are decoder layers made of? Every family puts its layers together from these
blocks.

Names are those of the checkpoints (``self_attn.q_proj``), which quantization configs use. How a
tensor is cut, its ``split`` alone says.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shardwright.modelspec.spec import Layer, PipelineRole, Split, Weight, WeightFormat

BF16 = WeightFormat(name="bf16", bits=16)
FP16 = WeightFormat(name="fp16", bits=16)
FP32 = WeightFormat(name="fp32", bits=32)


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
