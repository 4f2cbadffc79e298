"""Overheads: what a program sees of a GPU, and how many batch sizes are captured."""

import pytest

from shardwright.costs.working_memory import (
    LOADING_RESIDUE,
    Device,
    LoadedStage,
    band_bytes,
    captured_batches,
    overhead_bytes,
)
from shardwright.costs.workload import Limits
from shardwright.hardware.gpus import load_gpus
from shardwright.layouts.layout import EngineOverrides, Layout
from shardwright.units import GIB
from tests.support.builders_plan import vllm_traits
from tests.support.parts import with_parts


def a_device(gpu: str) -> Device:
    row = load_gpus()[gpu]
    return Device(gpu=row, joined_gpus=row.scale_up_gpus)


@pytest.mark.parametrize(
    ("gpu", "printed_gib"),
    [
        ("H100-SXM-80GB", 79.19),
        ("RTX-A6000-48GB", 47.50),
        ("RTX-3090-24GB", 23.58),
        ("MI300X-192GB", 191.98),
    ],
)
def test_programs_see_what_engines_print_as_the_total(gpu: str, printed_gib: float) -> None:
    assert a_device(gpu).usable_bytes / GIB == pytest.approx(printed_gib, abs=0.06)


@pytest.mark.parametrize(
    ("gpu", "sequences", "tokens", "batches"),
    [
        ("H100-SXM-80GB", 1024, 8192, 51),  # 1, 2, 4, 8 to 248 by 8, 256 to 512 by 16
        ("B200-SXM-180GB", 1024, 16384, 83),  # up to 1,024
        ("H100-SXM-80GB", 16, 1024, 7),  # up to 32
        ("H100-SXM-80GB", 1, 1024, 2),
        ("L4-24GB", 256, 256, 35),  # never above the tokens of a batch
    ],
)
def test_batch_sizes_are_captured_as_vllm_0_32_lists_them(
    gpu: str, sequences: int, tokens: int, batches: int
) -> None:
    limits = Limits(batched_tokens=tokens, sequences=sequences, model_len=1024)

    assert captured_batches(limits, a_device(gpu), vllm_traits()) == batches


def test_overhead_is_libraries_buffers_captured_layers_and_what_loading_leaves_behind() -> None:
    traits, device = vllm_traits(), a_device("H100-SXM-80GB")
    limits = Limits(batched_tokens=8192, sequences=1024, model_len=1024)
    left_behind = round(LOADING_RESIDUE * 10**10)
    loaded = LoadedStage(layers=32, weights_bytes=10**10)
    least = traits.memory.fixed_overhead_bytes + left_behind

    uncounted = with_parts(traits, counts_graphs=False)
    assert overhead_bytes(Layout(), device, uncounted, limits, loaded) == least
    assert (
        overhead_bytes(Layout(), device, traits, limits, loaded)
        == least + 32 * 51 * traits.memory.graph_bytes
    )
    joined = overhead_bytes(Layout(tensor=8), device, uncounted, limits, loaded)
    assert joined == least + traits.memory.communication_overhead_bytes


@pytest.mark.parametrize(
    ("told", "batches"),
    [
        (EngineOverrides(captured=()), 0),
        (
            EngineOverrides(captured=(1, 2, 4, 4, 1024)),
            3,
        ),  # each once, none above the tokens of a batch
        (EngineOverrides(largest_captured=16), 5),  # 1, 2, 4, 8, 16, whatever the sequences
        (
            EngineOverrides(largest_captured=4096),
            51,
        ),  # never above the tokens of a batch: up to 512
    ],
)
def test_what_the_engine_is_told_to_capture_is_what_is_captured(
    told: EngineOverrides, batches: int
) -> None:
    limits = Limits(batched_tokens=512, sequences=8, model_len=1024)

    assert captured_batches(limits, a_device("H100-SXM-80GB"), vllm_traits(told=told)) == batches


def test_the_band_is_twice_as_wide_beside_what_nobody_counts() -> None:
    assert band_bytes(10**10, 10**9, 10**9, uncounted=True) == 2 * band_bytes(10**10, 10**9, 10**9)
