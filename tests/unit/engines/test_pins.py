"""Arguments that the planner counts with: read where they are right, refused where it could not count with them."""

import pytest

from shardwright.engines.options import check_arguments
from shardwright.engines.pins import Pins, read_pins


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("auto", None), ("half", "fp16"), ("float16", "fp16"), ("bfloat16", "bf16"), ("float", "fp32"), ("float32", "fp32")],
)
def test_every_type_that_the_engine_knows_is_understood(name: str, dtype: str | None) -> None:
    assert check_arguments({"dtype": name}, "0.33.0") == ()
    assert read_pins({"dtype": name}) == Pins(dtype=dtype)


def test_both_spellings_of_an_option_are_pins() -> None:
    assert read_pins({"kv_cache_memory_bytes": 7}) == read_pins({"kv-cache-memory-bytes": 7}) == Pins(kv_cache_bytes=7)


@pytest.mark.parametrize("value", [0, -1, "1G", "1024", True, 1.5])
def test_bytes_that_are_no_whole_number_are_refused(value: object) -> None:
    (problem, *_) = check_arguments({"kv-cache-memory-bytes": value}, "0.33.0")

    assert (problem.code, problem.path) == ("EngineArgumentInvalid", "kv-cache-memory-bytes")
