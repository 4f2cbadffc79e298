"""Arguments that the planner counts with: read where they are right, refused where it could not
count with them.
"""

from functools import partial

import pytest

from shardwright.engines import options
from shardwright.engines.options import Pins
from shardwright.engines.vllm.pins import read_pins
from shardwright.engines.vllm.policy import POLICY, RULES
from shardwright.layouts.layout import EngineOverrides

check_arguments = partial(options.check_arguments, rules=RULES)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("auto", None),
        ("half", "fp16"),
        ("float16", "fp16"),
        ("bfloat16", "bf16"),
        ("float", "fp32"),
        ("float32", "fp32"),
    ],
)
def test_every_type_that_the_engine_knows_is_understood(name: str, dtype: str | None) -> None:
    assert check_arguments({"dtype": name}, "0.33.0") == ()
    assert read_pins({"dtype": name}, POLICY) == Pins(dtype=dtype)


def test_both_spellings_of_an_option_are_pins() -> None:
    underscored, dashed = (
        read_pins({"kv_cache_memory_bytes": 7}, POLICY),
        read_pins({"kv-cache-memory-bytes": 7}, POLICY),
    )
    assert underscored == dashed == Pins(kv_cache_bytes=7)


@pytest.mark.parametrize("value", [0, -1, "1.5G", "None", True, 1.5, [1]])
def test_bytes_that_are_no_whole_number_are_refused(value: object) -> None:
    (problem, *_) = check_arguments({"kv-cache-memory-bytes": value}, "0.33.0")

    assert (problem.code, problem.path) == ("EngineArgumentInvalid", "kv-cache-memory-bytes")


@pytest.mark.parametrize(
    ("arguments", "pins"),
    [
        ({"block-size": 128}, Pins(block_tokens=128)),
        ({"kv-cache-memory-bytes": "2G"}, Pins(kv_cache_bytes=2**31)),
        ({"max-num-batched-tokens": "1.5k"}, Pins(told=EngineOverrides(batched_tokens=1500))),
        ({"cudagraph-capture-sizes": [1, 2]}, Pins(told=EngineOverrides(captured=(1, 2)))),
        (
            {"compilation-config": {"cudagraph_mode": "NONE"}},
            Pins(told=EngineOverrides(captured=())),
        ),
        ({"gpu-memory-utilization": "0.8"}, Pins(memory_utilization=0.8)),
        ({"language-model-only": True}, Pins(language_only=True)),
        ({"mm-encoder-tp-mode": "data"}, Pins(whole_towers=True)),
        ({"mm-encoder-tp-mode": "weights"}, Pins()),
        ({"mamba-ssm-cache-dtype": "float16"}, Pins(state_bits=16)),
        (
            {"max-num-seqs": "64", "max-num-batched-tokens": 4096},
            Pins(told=EngineOverrides(sequences=64, batched_tokens=4096)),
        ),
        ({"enforce-eager": True}, Pins(told=EngineOverrides(captured=()))),
        ({"enforce-eager": False}, Pins()),
        ({"cudagraph-capture-sizes": "1 2 4"}, Pins(told=EngineOverrides(captured=(1, 2, 4)))),
        (
            {"cudagraph-capture-sizes": "1 2", "enforce-eager": True},
            Pins(told=EngineOverrides(captured=())),
        ),
        ({"max-cudagraph-capture-size": 64}, Pins(told=EngineOverrides(largest_captured=64))),
        (
            {"compilation-config": '{"cudagraph_mode": "NONE"}'},
            Pins(told=EngineOverrides(captured=())),
        ),
        (
            {"compilation-config": '{"cudagraph_capture_sizes": [8, 16]}'},
            Pins(told=EngineOverrides(captured=(8, 16))),
        ),
        (
            {"compilation-config": '{"mode": 0, "max_cudagraph_capture_size": 32}'},
            Pins(told=EngineOverrides(largest_captured=32, uncounted=("compilation-config.mode",))),
        ),
        (
            {"enable-eplb": True, "attention_config": "{}"},
            Pins(told=EngineOverrides(uncounted=("attention-config", "enable-eplb"))),
        ),
        ({"seed": 1, "enable-prefix-caching": False}, Pins()),
    ],
)
def test_what_an_argument_fixes_of_a_plan(arguments: dict[str, object], pins: Pins) -> None:
    assert check_arguments(arguments, "0.33.0", POLICY.admissible) == ()
    assert read_pins(arguments, POLICY) == pins


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "3",
        "{}",
        '{"cache_dir": "/x"}',
        '{"backend": "a.b"}',
        '{"cudagraph_mode": "SOME"}',
        '{"cudagraph_capture_sizes": [0]}',
        '{"cudagraph_capture_sizes": "1"}',
        '{"max_cudagraph_capture_size": true}',
        '{"max_cudagraph_capture_size": 9007199254740993}',
    ],
)
def test_a_compilation_config_names_neither_code_nor_files_and_only_what_can_be_counted(
    text: str,
) -> None:
    assert {
        problem.code for problem in check_arguments({"compilation-config": text}, "0.33.0")
    } == {"EngineArgumentInvalid"}


@pytest.mark.parametrize("value", [2**53 + 1, 10**400, f"1{'0' * 400}k", "nan"])
@pytest.mark.parametrize("name", ["max-num-seqs", "max-num-batched-tokens"])
def test_a_number_that_no_plan_can_count_with_is_refused_in_a_line(
    name: str, value: object
) -> None:
    (problem,) = check_arguments({name: value}, "0.33.0")

    assert (problem.code, problem.path) == ("EngineArgumentInvalid", name)
    assert len(problem.what) < 100
