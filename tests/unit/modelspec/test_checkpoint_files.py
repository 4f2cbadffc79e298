"""What a pod hands over as the messages of two containers: configs of any published size, and
damage of any kind.
"""

import json
import lzma
import tracemalloc
from base64 import b85encode

import pytest

from shardwright.errors import InputError, Problem
from shardwright.modelspec import checkpoint_files
from shardwright.modelspec.checkpoint_files import (
    CONFIG_MAP_BYTES,
    MESSAGE_BYTES,
    MESSAGES,
    CheckpointFiles,
    handed_over,
    problem_handed_over,
    read_handover,
)
from tests.support.builders_model import a_config

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def by_layer(layers: int) -> dict[str, object]:
    """Return a config whose layers are each quantized in a way of its own, as the largest published
    ones are.
    """
    names = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    found = {
        f"model.layers.{layer}.{name}": {"quant_algo": "FP8"}
        for layer in range(layers)
        for name in names
    }
    return a_config(quantization_config={"quant_method": "modelopt", "quantized_layers": found})


def packed(content: object) -> str:
    raw = lzma.compress(
        json.dumps(content).encode(), format=lzma.FORMAT_RAW, filters=checkpoint_files._LZMA
    )
    return checkpoint_files._CONFIG + b85encode(raw).decode()


def test_what_is_handed_over_is_read_as_it_was() -> None:
    files = {
        "config.json": json.dumps(a_config(rope_theta=1e-05)),
        "hf_quant_config.json": '{"quantization": {}}',
    }

    text = handed_over(CheckpointFiles(files=files, commit=COMMIT, tensor_bytes=8_030_261_248))
    found = read_handover(text)

    assert isinstance(found, CheckpointFiles)
    assert {name: json.loads(text) for name, text in found.files.items()} == {
        "config.json": a_config(rope_theta=1e-05),
        "hf_quant_config.json": {"quantization": {}},
    }
    assert (found.commit, found.tensor_bytes) == (COMMIT, 8_030_261_248)
    assert text.isascii()


def test_a_config_of_half_a_megabyte_fits() -> None:
    large = json.dumps(by_layer(1_500))

    text = handed_over(CheckpointFiles(files={"config.json": large}))

    assert len(large) > CONFIG_MAP_BYTES // 2
    assert len(text) <= MESSAGES * MESSAGE_BYTES
    found = read_handover(text)
    assert isinstance(found, CheckpointFiles)
    assert json.loads(found.files["config.json"]) == by_layer(1_500)


def test_what_does_not_fit_is_refused_with_its_size() -> None:
    noise = a_config(noise=[f"{number * 2654435761 % 2**32:08x}" for number in range(3_000)])

    with pytest.raises(InputError) as caught:
        handed_over(CheckpointFiles(files={"config.json": json.dumps(noise)}))

    (problem,) = caught.value.problems
    assert (problem.code, problem.limit) == ("ConfigNotHandedOver", "and a pod can hand over 8,192")


def test_a_problem_is_handed_over_without_its_way_out() -> None:
    problem = Problem(
        code="HubUnavailable", what="hub.example", limit="answers 503", remedy="of the command line"
    )

    assert read_handover(problem_handed_over(problem)) == Problem(
        code="HubUnavailable", what="hub.example", limit="answers 503"
    )


DAMAGED = {
    "nothing of ours": "Traceback (most recent call last):",
    "empty": checkpoint_files._CONFIG,
    "no base 85": f"{checkpoint_files._CONFIG}\x7f\x7f",
    "not compressed": checkpoint_files._CONFIG + b85encode(b"config").decode(),
    "cut off": packed({"files": {"config.json": a_config()}})[:200],
    "no object": packed([1]),
    "no files": packed({"commit": COMMIT}),
    "files that are none": packed({"files": 5}),
    "no config": packed({"files": {"hf_quant_config.json": {}}}),
    "larger than any config": packed(
        {"files": {"config.json": a_config(more="x" * CONFIG_MAP_BYTES)}}
    ),
    "a problem that is none": f"{checkpoint_files._PROBLEM}[1, 2, 3]",
    "a problem that is too long": f'{checkpoint_files._PROBLEM}["HubUnavailable", "{"x" * 600}", ""]',
    "a problem that is no JSON": f"{checkpoint_files._PROBLEM}[",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_what_is_damaged_is_one_problem(text: str) -> None:
    found = read_handover(text)

    assert isinstance(found, Problem)
    assert found.code == "ConfigFetchFailed"


def test_what_unpacks_to_far_more_than_a_config_takes_no_memory() -> None:
    bomb = lzma.compress(
        b" " * (12 * CONFIG_MAP_BYTES), format=lzma.FORMAT_RAW, filters=checkpoint_files._LZMA
    )
    text = checkpoint_files._CONFIG + b85encode(bomb).decode()

    tracemalloc.start()
    try:
        found = read_handover(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert isinstance(found, Problem)
    assert len(text) < MESSAGES * MESSAGE_BYTES
    assert peak < 8 * CONFIG_MAP_BYTES


@pytest.mark.parametrize(
    "config", ['{"a": {"b": ' * 40 + "1" + "}}" * 40, '{"a": 1, "a": 2}', "[1]", "5"]
)
def test_a_config_that_would_not_be_read_is_not_handed_on(config: str) -> None:
    raw = f'{{"files": {{"config.json": {config}}}}}'
    text = (
        checkpoint_files._CONFIG
        + b85encode(
            lzma.compress(raw.encode(), format=lzma.FORMAT_RAW, filters=checkpoint_files._LZMA)
        ).decode()
    )

    assert isinstance(read_handover(text), Problem)


def test_what_a_stranger_says_of_commit_and_size_is_believed_only_where_it_can_be_one() -> None:
    found = read_handover(
        packed({"files": {"config.json": a_config()}, "commit": "main\n", "tensorBytes": True})
    )

    assert isinstance(found, CheckpointFiles)
    assert (found.commit, found.tensor_bytes) == (None, None)
