"""Layers per stage, as each engine splits them."""

import pytest

from shardwright.layouts.stages import split_layers
from shardwright.layouts.traits import Remainder


def _sizes(layers: int, pipeline: int, remainder: Remainder) -> list[int]:
    return [end - first for first, end in split_layers(layers, pipeline, remainder)]


@pytest.mark.parametrize(
    ("layers", "pipeline", "sizes"),
    [
        (80, 4, [20, 20, 20, 20]),
        (126, 4, [31, 32, 32, 31]),
        (61, 2, [31, 30]),
        (61, 4, [15, 15, 16, 15]),
        (62, 5, [12, 12, 13, 13, 12]),
        (7, 4, [2, 2, 2, 1]),
    ],
)
def test_vllm_gives_the_rest_to_the_stages_before_the_last(layers: int, pipeline: int, sizes: list[int]) -> None:
    assert _sizes(layers, pipeline, Remainder.BEFORE_LAST) == sizes


@pytest.mark.parametrize(("layers", "pipeline", "sizes"), [(126, 4, [32, 32, 31, 31]), (61, 2, [31, 30])])
def test_tensorrt_llm_gives_the_rest_to_the_first_stages(layers: int, pipeline: int, sizes: list[int]) -> None:
    assert _sizes(layers, pipeline, Remainder.FIRST) == sizes


def test_more_stages_than_layers_leave_stages_empty_as_vllm_does() -> None:
    assert _sizes(8, 16, Remainder.BEFORE_LAST) == [0] * 7 + [1] * 8 + [0]
