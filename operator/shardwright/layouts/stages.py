"""Which layers go to which pipeline stage, exactly as the engines cut them."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from shardwright.layouts.traits import Remainder


def split_layers(layers: int, pipeline: int, remainder: Remainder, partition: Sequence[int] = ()) -> tuple[tuple[int, int], ...]:
    """Return (first, one past the last) layer of every stage.

    ``partition``, the layers of every stage, goes before the engine's own rule. A stage is empty where there
    are more stages than layers; the checks refuse that, and a partition of other layers than the model's.

    Sources: vLLM 0.32 ``distributed/utils.py:get_pp_indices``; TensorRT-LLM ``mapping.py:pp_layers``
    (``tensor_split``).

    >>> split_layers(126, 4, Remainder.BEFORE_LAST)
    ((0, 31), (31, 63), (63, 95), (95, 126))
    >>> split_layers(126, 4, Remainder.FIRST)
    ((0, 32), (32, 64), (64, 95), (95, 126))
    >>> split_layers(61, 4, Remainder.BEFORE_LAST, (16, 16, 15, 14))
    ((0, 16), (16, 32), (32, 47), (47, 61))
    """
    if partition:
        return tuple(pairwise(accumulate(partition, initial=0)))
    each, rest = divmod(layers, pipeline)
    first_longer = pipeline - 1 - rest if remainder is Remainder.BEFORE_LAST else 0
    sizes = (each + (first_longer <= stage < first_longer + rest) for stage in range(pipeline))
    return tuple(pairwise(accumulate(sizes, initial=0)))
