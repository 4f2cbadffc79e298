"""Layers per stage, as each engine splits them."""

import pytest

from shardwright.layouts.layout import Remainder
from shardwright.layouts.stages import balanced_partition, split_layers
from tests.support.builders_plan import a_model


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
def test_vllm_gives_the_rest_to_the_stages_before_the_last(
    layers: int, pipeline: int, sizes: list[int]
) -> None:
    assert _sizes(layers, pipeline, Remainder.BEFORE_LAST) == sizes


@pytest.mark.parametrize(
    ("layers", "pipeline", "sizes"), [(126, 4, [32, 32, 31, 31]), (61, 2, [31, 30])]
)
def test_tensorrt_llm_gives_the_rest_to_the_first_stages(
    layers: int, pipeline: int, sizes: list[int]
) -> None:
    assert _sizes(layers, pipeline, Remainder.FIRST) == sizes


def test_more_stages_than_layers_leave_stages_empty_as_vllm_does() -> None:
    assert _sizes(8, 16, Remainder.BEFORE_LAST) == [0] * 7 + [1] * 8 + [0]


def test_a_partition_goes_before_the_engines_own_rule() -> None:
    assert split_layers(7, 2, Remainder.BEFORE_LAST, (5, 2)) == ((0, 5), (5, 7))


def test_light_layers_at_the_start_shift_the_balance() -> None:
    """DeepSeek-V3 begins with three dense layers: 31 + 30 is 38.4 and 40.9 GiB over 8 ranks."""
    assert balanced_partition(a_model("deepseek-v3"), 2, Remainder.BEFORE_LAST) == (32, 29)


@pytest.mark.parametrize(
    ("model", "pipeline"), [("llama-405b", 2), ("llama-70b", 2), ("llama-8b", 1), ("llama-8b", 33)]
)
def test_stages_that_are_balanced_already_get_no_partition(model: str, pipeline: int) -> None:
    assert balanced_partition(a_model(model), pipeline, Remainder.BEFORE_LAST) == ()


@pytest.mark.parametrize(
    "model", ["deepseek-v3", "llama-8b", "qwen2.5-7b", "llama-405b", "qwen3-30b-a3b"]
)
def test_a_partition_has_every_layer_once_and_no_empty_stage(model: str) -> None:
    layers = len(a_model(model).layers)
    found = {
        pipeline: balanced_partition(a_model(model), pipeline, Remainder.BEFORE_LAST)
        for pipeline in range(1, layers + 1)
    }

    assert {(pipeline, len(sizes), sum(sizes)) for pipeline, sizes in found.items() if sizes} == {
        (pipeline, pipeline, layers) for pipeline, sizes in found.items() if sizes
    }
    assert min((min(sizes) for sizes in found.values() if sizes), default=1) >= 1
