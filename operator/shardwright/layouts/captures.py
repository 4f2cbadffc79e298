"""For which batches does an engine capture graphs?"""

import math
from enum import StrEnum

_FEW = (1, 2, 4)
_EIGHTS = tuple(range(8, 129, 8))


class Captures(StrEnum):
    """By which steps the sizes grow that an engine captures graphs for."""

    EIGHTS_AND_SIXTEENS = "EightsAndSixteens"  #: vLLM: by 8 to 256, then by 16
    EIGHTS_AND_DOUBLES = "EightsAndDoubles"  #: TensorRT-LLM 1.2: by 8 to 128, then doubled
    EIGHTS_AND_SIXTY_FOURS = "EightsAndSixtyFours"  #: TensorRT-LLM after it: then by 64


def captured_sizes(largest: int, steps: Captures, *, padded: bool = True) -> tuple[int, ...]:
    """Return the sizes that TensorRT-LLM captures up to its largest batch.

    Formula: 1, 2, 4, steps of 8 to 128, then as ``steps`` say, and the largest; without padding 1
        to 31, 32, 64, 128, then doubled.
    Unit: sequences.
    Error: exact.
    Source: TensorRT-LLM ``llmapi/llm_args.py:_generate_cuda_graph_batch_sizes`` of 1.2 (at 00e8cf7)
        and of 1.4 (at 0004396).

    >>> captured_sizes(600, Captures.EIGHTS_AND_DOUBLES)[-4:]
    (128, 256, 512, 600)
    >>> captured_sizes(300, Captures.EIGHTS_AND_SIXTY_FOURS)[-4:]
    (128, 192, 256, 300)
    >>> captured_sizes(3, Captures.EIGHTS_AND_DOUBLES, padded=False)
    (1, 2, 3)
    """
    doubled = [2**power for power in range(8, math.ceil(math.log2(largest)))]
    by_64 = range(192, largest + 1, 64)
    further = by_64 if padded and steps is Captures.EIGHTS_AND_SIXTY_FOURS else doubled
    small = (*_FEW, *_EIGHTS) if padded else (*range(1, 32), 32, 64, 128)
    return tuple(sorted({size for size in (*small, *further) if size <= largest} | {largest}))
