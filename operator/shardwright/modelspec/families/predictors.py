"""Which decoder layer and tensors do layers for multi-token prediction (MTP) consist of?

As vLLM 0.33 makes them. Embedding and output head are the model's: the engine makes both and gives
them back when the weights are loaded
(``v1/worker/gpu/spec_decode/eagle/utils.py:load_eagle_model``).
"""

from typing import Final

from shardwright.modelspec.families.family import Predictor, Shape
from shardwright.modelspec.spec import RecurrentAttention, Split
from shardwright.modelspec.tensors import Block, Blocks, Tensor, Tensors, norms


def _joined(hidden: int, name: str, split: Split) -> Tensor:
    """One hidden state of the token's embedding and the last state; not quantized."""
    return Tensor(name=name, outputs=hidden, inputs=2 * hidden, split=split)


def _next(blocks: Blocks, layers: int) -> Block:
    return blocks(layers)


def _deepseek(shape: Shape) -> Tensors:
    return (
        _joined(shape.hidden, "eh_proj", Split.REPLICATED),
        *norms(shape.hidden, "enorm", "hnorm", "shared_head.norm"),
    )


def _first_whole(blocks: Blocks, layers: int) -> Block:
    """Layers that predict have no recurrent state."""
    stack = (blocks(layer) for layer in range(layers))
    return next(
        (block for block in stack if not isinstance(block.layer.attention, RecurrentAttention)),
        blocks(0),
    )


def _qwen(shape: Shape) -> Tensors:
    return (
        _joined(shape.hidden, "fc", Split.COLUMN),
        *norms(shape.hidden, "norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"),
    )


DEEPSEEK: Final = Predictor(counts="num_nextn_predict_layers", block=_next, beside=_deepseek)
"""``models/deepseek_mtp.py`` and ``models/glm4_moe_mtp.py``."""

QWEN_NEXT: Final = Predictor(
    counts="num_nextn_predict_layers", default=1, block=_first_whole, shared=_qwen
)
"""``models/qwen3_next_mtp.py``."""

QWEN_3_5: Final = Predictor(
    counts="mtp_num_hidden_layers", default=1, block=_first_whole, shared=_qwen
)
"""``models/qwen3_5_mtp.py``."""
