"""Which layers go to which pipeline stage: as the engines cut them, or evenly balanced?"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final

from shardwright.layouts.layout import Remainder
from shardwright.modelspec.model_spec import ModelSpec, PipelineRole

WORTHWHILE: Final = 0.02
"""Share by which a partition must lighten the heaviest stage before it is tried. Basis: assumed;
below it the engine's own cut, which needs no setting, is as good.
"""


@lru_cache(maxsize=1024)
def split_layers(
    layers: int, pipeline: int, remainder: Remainder, partition: tuple[int, ...] = ()
) -> tuple[tuple[int, int], ...]:
    """Return (first, one past the last) layer of every stage.

    ``partition``, the layers of every stage, goes before the engine's own rule. A stage is empty if
    there are more stages than layers; the checks refuse that, and a partition of other layers than
    the model's.

    Sources: vLLM 0.32 ``distributed/utils.py:get_pp_indices``; TensorRT-LLM
    ``mapping.py:pp_layers`` (``tensor_split``); SGLang ``srt/distributed/utils.py:get_pp_indices``.

    >>> split_layers(126, 4, Remainder.BEFORE_LAST)
    ((0, 31), (31, 63), (63, 95), (95, 126))
    >>> split_layers(126, 4, Remainder.FIRST)
    ((0, 32), (32, 64), (64, 95), (95, 126))
    >>> split_layers(126, 4, Remainder.LAST)
    ((0, 31), (31, 62), (62, 94), (94, 126))
    >>> split_layers(61, 4, Remainder.BEFORE_LAST, (16, 16, 15, 14))
    ((0, 16), (16, 32), (32, 47), (47, 61))
    """
    if partition:
        return tuple(pairwise(accumulate(partition, initial=0)))
    each, rest = divmod(layers, pipeline)
    first_longer = {
        Remainder.FIRST: 0,
        Remainder.BEFORE_LAST: pipeline - 1 - rest,
        Remainder.LAST: pipeline - rest,
    }[remainder]
    sizes = (each + (first_longer <= stage < first_longer + rest) for stage in range(pipeline))
    return tuple(pairwise(accumulate(sizes, initial=0)))


@lru_cache(maxsize=256)
def balanced_partition(model: ModelSpec, pipeline: int, remainder: Remainder) -> tuple[int, ...]:
    """Return the layers of every stage if that is noticeably better balanced than the engine's cut,
    else ().

    Bits of weights are balanced, embedding and output head included: a rank must hold them, and
    reads them for every token.
    """
    if not 1 < pipeline <= len(model.layers):
        return ()
    held = _running_bits(model)
    # The embedding and the head weigh as much as several layers.
    ends = [_nearest(held, held[-1] * stage / pipeline) for stage in range(1, pipeline)]
    cuts = [0, *ends, len(model.layers)]
    sizes = tuple(end - first for first, end in pairwise(cuts))
    own = split_layers(len(model.layers), pipeline, remainder)
    if min(sizes) < 1 or _heaviest(held, pairwise(cuts)) > _heaviest(held, own) * (1 - WORTHWHILE):
        return ()
    return sizes


@lru_cache(maxsize=64)
def _running_bits(model: ModelSpec) -> tuple[int, ...]:
    """Return the bits of weights before each layer, and of all.

    Weights before the first layer are in every sum, those after the last one in the last sum.
    """
    layers = [0] * len(model.layers)
    before = 0
    after = 0
    for weight in model.weights:
        bits = weight.elements * weight.storage.bits
        if weight.layer is not None and weight.layer < len(layers):
            layers[weight.layer] += bits
        elif weight.part is PipelineRole.EMBEDDING:
            before += bits
        else:
            after += bits
    # The output head is the embedding once more, on the last stage.
    after += before if model.tied_embeddings else 0
    sums = list(accumulate(layers, initial=before))
    return (*sums[:-1], sums[-1] + after)


def _nearest(sums: Sequence[int], target: float) -> int:
    after = min(bisect_left(sums, target), len(sums) - 1)
    return after - 1 if after and target - sums[after - 1] <= sums[after] - target else after


def _heaviest(sums: Sequence[int], stages: Iterable[tuple[int, int]]) -> int:
    # The first stage also holds the weights before the layers: the embedding.
    return max(sums[end] - (sums[first] if first else 0) for first, end in stages)
